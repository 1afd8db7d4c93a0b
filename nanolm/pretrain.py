"""Обучение маленькой модели фактам: одна ячейка урока, минута на двух ядрах.

Модель читает начало фразы («Страна Кения, валюта:») и учится дописывать ответ. Потеря считается только по токенам
ответа: угадывать, о какой стране спросят, модели незачем, а ёмкости у маленькой и так в обрез.

Запуск повторяем. Всё случайное — начальные веса и порядок фактов — идёт от одного числа `seed`; число потоков
закреплено, потому что от него зависит порядок сложений, а с ним и последние разряды; алгоритмы детерминированные.
На одной машине с одной версией torch это даёт те же веса бит в бит. Поток один: матрицы так малы, что второй мало
помогает, а на занятой машине мешает — потоки подолгу ждут друг друга. Что уже обучено, хранит `nanolm.store`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nanolm.facts import VOCABULARY, Fact, end_token
from nanolm.model import NanoLM
from nanolm.spec import Spec

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: Позиция, которую потеря пропускает: токены запроса и хвост строки.
IGNORED = -100
#: Доля шагов на разгон и доля скорости, на которой обучение заканчивается.
WARMUP, FLOOR = 0.05, 0.02


@dataclass(frozen=True, slots=True)
class Recipe:
    """Всё, от чего зависит результат, кроме самих фактов: геометрия, шаги, случайность, потоки."""

    spec: Spec
    learning_rate: float
    epochs: int = 30
    batch: int = 16
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: нужно целое число не меньше 1")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate = {self.learning_rate}: нужно положительное число")


#: Пара лабораторной 7.1: одно семейство, один словарь, одни факты, поровну шагов; разные только размеры — и
#: скорость обучения, которую большей модели берут меньше.
FAMILY = {
    "малая": Recipe(Spec(V=VOCABULARY, D=24, L=2, N=1, S=64, tie_embeddings=True), learning_rate=6e-3),
    "большая": Recipe(Spec(V=VOCABULARY, D=128, L=4, N=4, S=64, tie_embeddings=True), learning_rate=2e-3),
}


@dataclass
class Trained:
    """Обученная модель с её токенизатором; `losses` — средняя потеря по эпохам, нат на токен ответа."""

    model: NanoLM
    tokenizer: Tokenizer
    losses: list[float]
    seconds: float = field(compare=False)

    def answer(self, fact: Fact, max_new_tokens: int = 24) -> str:
        """Жадно дописать фразу: до метки конца или до `max_new_tokens` токенов."""
        return self.answers([fact], max_new_tokens)[0]

    def answers(self, known: Sequence[Fact], max_new_tokens: int = 24) -> list[str]:
        """То же для многих фактов одним пакетом: ответы не зависят от соседей."""
        prompts = [self.tokenizer.encode(fact.prompt).ids for fact in known]
        rows = self.model.generate(prompts, max_new_tokens, end_token=end_token(self.tokenizer))
        return [str(self.tokenizer.decode(row)) for row in rows]


def recalled(trained: Trained, known: Sequence[Fact], batch: int = 256) -> list[bool]:
    """Вспомнила ли модель каждый факт: ответ должен совпасть целиком, до буквы."""
    parts = (known[start : start + batch] for start in range(0, len(known), batch))
    return [answer == fact.answer for part in parts for fact, answer in zip(part, trained.answers(part), strict=True)]


def train(recipe: Recipe, known: Sequence[Fact], tokenizer: Tokenizer) -> Trained:
    """Обучить модель с нуля. Повторный вызов даёт те же веса и те же потери."""
    rows = encode(known, tokenizer)
    longest = max(len(prompt) + len(answer) for prompt, answer in rows)
    if longest > recipe.spec.S:
        raise ValueError(f"S = {recipe.spec.S}: самая длинная фраза занимает {longest} токенов")
    start = time.perf_counter()
    with reproducible(recipe.threads):
        # Своё состояние генератора: чужое случайное число рядом с обучением ничего в нём не изменит.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            model = NanoLM(recipe.spec)
        losses = list(_epochs(model, recipe, rows, end_token(tokenizer)))
    return Trained(model, tokenizer, losses, time.perf_counter() - start)


def _epochs(model: NanoLM, recipe: Recipe, rows: Sequence[Row], end: int) -> Iterator[float]:
    """Пройти все эпохи; после каждой — средняя потеря."""
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    generator = torch.Generator().manual_seed(recipe.seed)
    total, step = recipe.epochs * math.ceil(len(rows) / recipe.batch), 0
    for _ in range(recipe.epochs):
        losses: list[float] = []
        for chosen in batches(rows, recipe.batch, generator):
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * schedule(step / total)
            loss = model.loss(*collate([rows[i] for i in chosen], end))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            step += 1
        yield sum(losses) / len(losses)


def schedule(share: float) -> float:
    """Множитель скорости обучения: линейный разгон, затем косинус до нижней границы."""
    cosine = FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * share)) / 2
    return min(1.0, (share + 1e-3) / WARMUP) * cosine


# --- Данные ---------------------------------------------------------------------------------------

#: Токены запроса и токены ответа с меткой конца.
Row = tuple[list[int], list[int]]


def encode(known: Sequence[Fact], tokenizer: Tokenizer) -> list[Row]:
    """Факты → токены. Запрос и ответ кодируются порознь: на границе слияний нет, поэтому фраза та же."""
    end = end_token(tokenizer)
    return [(tokenizer.encode(fact.prompt).ids, [*tokenizer.encode(fact.answer).ids, end]) for fact in known]


def batches(rows: Sequence[Row], size: int, generator: torch.Generator) -> Iterator[list[int]]:
    """Эпоха: номера строк пакетами. В пакете строки близкой длины, поэтому почти нет пустых хвостов."""
    order: list[int] = torch.randperm(len(rows), generator=generator).tolist()
    order.sort(key=lambda i: len(rows[i][0]) + len(rows[i][1]))
    cut = [order[start : start + size] for start in range(0, len(order), size)]
    for place in torch.randperm(len(cut), generator=generator).tolist():
        yield cut[place]


def collate(rows: Sequence[Row], end: int) -> tuple[Tensor, Tensor]:
    """Пакет: токены и цели, сдвинутые на один. Цели есть только у ответа."""
    T = max(len(prompt) + len(answer) for prompt, answer in rows) - 1
    tokens_BT = torch.full((len(rows), T), end)
    targets_BT = torch.full((len(rows), T), IGNORED)
    for row, (prompt, answer) in enumerate(rows):
        whole = torch.tensor(prompt + answer)
        tokens_BT[row, : len(whole) - 1] = whole[:-1]
        targets_BT[row, len(prompt) - 1 : len(whole) - 1] = whole[len(prompt) :]
    return tokens_BT, targets_BT


@contextmanager
def reproducible(threads: int) -> Iterator[None]:
    """Закрепить потоки и детерминированные алгоритмы на время блока, потом вернуть как было."""
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])
