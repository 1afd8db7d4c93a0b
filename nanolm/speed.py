"""Скорость: шаг обучения, чтение запроса, шаг порождения — и доля предела этой машины.

Прогноз времени — нижняя граница: полезная работа, делённая на измеренный предел. Отношение к ней и
есть ответ. У обучения это MFU: полезные FLOPs за секунду к пику произведений. У порождения — доля
полосы памяти: шаг обязан прочитать все веса и кеш, и быстрее этого он не бывает.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from nanolm import budget
from nanolm.hardware import Gpu
from nanolm.measure import Samples, timed
from nanolm.spec import Spec
from nanolm.training import Training


@dataclass(frozen=True)
class Timing:
    """Один замер: секунды на единицу работы, нижняя граница по пределам машины, токены в секунду."""

    name: str
    title: str
    samples: Samples
    limit_s: float
    tokens: int

    @property
    def share(self) -> float:
        """Доля предела: 1 — быстрее эта машина не может."""
        return self.limit_s / self.samples.median

    @property
    def tokens_per_s(self) -> float:
        """Токенов в секунду."""
        return self.tokens / self.samples.median

    def to_dict(self) -> dict[str, Any]:
        """Всё для JSON, сырые замеры тоже."""
        return {
            "name": self.name, "title": self.title, "limit_s": self.limit_s, "share": self.share,
            "tokens_per_s": self.tokens_per_s, **self.samples.to_dict(),
        }  # fmt: skip


def speed(
    spec: Spec,
    card: Gpu,
    B: int = 1,
    S: int | None = None,
    *,
    recipe: str = "fp32",
    attention: str = "fused",
    checkpointing: str = "none",
    new_tokens: int = 16,
    repeats: int = 7,
    device: torch.device | str = "cpu",
    progress: Callable[[Iterable[str]], Iterable[str]] = iter,
) -> list[Timing]:
    """Замерить шаг обучения, чтение запроса и шаг порождения; `card` — пределы машины.

    Запрос — S − `new_tokens` токенов, дальше порождается `new_tokens`.

    Ошибки: `ValueError`, если запросу не остаётся места.
    """
    S = spec.S if S is None else S
    if not 1 <= new_tokens < S:
        raise ValueError(f"new_tokens = {new_tokens}: нужно от 1 до S − 1 = {S - 1}")
    training = Training(spec, recipe, "adamw", attention, checkpointing, device)
    stages: dict[str, Callable[[], Timing]] = {
        "обучение": lambda: _training(training, card, B, S, repeats),
        "чтение запроса": lambda: _prefill(training, card, B, S - new_tokens, repeats),
        "порождение": lambda: _decode(training, card, B, S, new_tokens, repeats),
    }
    return [stages[name]() for name in progress(stages)]


def _training(training: Training, card: Gpu, B: int, S: int, repeats: int) -> Timing:
    """Шаг обучения: прямой и обратный проход и оптимизатор; предел — полезные FLOPs на пике."""
    batch = training.batch(B, S)
    samples = timed(lambda: training.step(*batch), training.device, repeats=repeats)
    flops = budget.flops_per_token(training.model.spec, S, attention="causal").total * B * S
    dtype = card.best_16bit if budget.RECIPES[training.recipe].compute == 2 else "fp32"
    return Timing("training", "шаг обучения", samples, flops / card.rate(dtype), B * S)


def _prefill(training: Training, card: Gpu, B: int, S: int, repeats: int) -> Timing:
    """Чтение запроса из S токенов; логиты считаются только у последнего."""
    model = training.model.eval()
    cache, tokens = model.new_cache(B, S), training.batch(B, S)[0]

    def run() -> None:
        cache.position = 0
        model.prefill(tokens, cache)

    samples = timed(run, training.device, repeats=repeats)
    account = budget.flops_per_token(model.spec, S, training=False, attention="causal")
    flops = (account.total - account["lm_head"]) * B * S + account["lm_head"] * B
    return Timing("prefill", "чтение запроса", samples, flops / card.rate(_stored(training)), B * S)


def _decode(training: Training, card: Gpu, B: int, S: int, new_tokens: int, repeats: int) -> Timing:
    """Один токен каждой последовательности; время шага — среднее по `new_tokens` шагам подряд."""
    model, prompt = training.model.eval(), S - new_tokens
    cache, tokens = model.new_cache(B, S), training.batch(B, prompt)[0]
    model.prefill(tokens, cache)
    token = tokens[:, 0].clone()

    def run() -> None:
        cache.position = prompt
        for _ in range(new_tokens):
            model.decode(token, cache)

    whole = timed(run, training.device, repeats=repeats)
    samples = Samples(tuple(seconds / new_tokens for seconds in whole.seconds))
    limit = budget.decode_step_time(model.spec, B, prompt + new_tokens // 2, card, _stored(training)).seconds
    return Timing("decode", "шаг порождения", samples, limit, B)


def _stored(training: Training) -> str:
    """В чём лежат веса, в том и идёт порождение."""
    return "bf16" if budget.RECIPES[training.recipe].weights == 2 else "fp32"
