"""Проба: каждая строка счёта рядом с измерением на этой машине.

`verify` строит модель, делает шаг обучения и кладёт рядом прогноз и измеренное: параметры, FLOPs, сохранённые
для обратного прохода байты, состояния, кеш KV, пик памяти. Строки `exact` обязаны совпасть до единицы:
счёт и модель описывают одно и то же. Пик памяти в них не входит: кроме тензоров модели в нём живут
рабочие буферы ядер, которых счёт не знает, — с ними он сходится в пределах `PEAK_TOLERANCE`.

Полезные FLOPs и выполненные — разные строки. Повторный счёт при чекпоинтинге и в слитом внимании —
работа машины, но не польза, и в MFU он не входит.

Командная строка: `python -m nanolm.probe verify|speed|roofline`.
"""

from __future__ import annotations

if __name__ == "__main__":  # раньше определений: иначе модуль загрузился бы дважды
    import sys

    from nanolm.cli import probe

    sys.exit(probe(sys.argv[1:], "python -m nanolm.probe"))

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from nanolm import budget, units
from nanolm.counter import count
from nanolm.machine import available_bytes
from nanolm.measure import PROBE_VERSION, peak_bytes, saved_tensors
from nanolm.model import NanoLM
from nanolm.ops import table
from nanolm.spec import Spec
from nanolm.training import Training

__all__ = ["PEAK_TOLERANCE", "PROBE_VERSION", "Row", "main", "verify"]

#: Насколько измеренный пик памяти может отличаться от счёта.
PEAK_TOLERANCE = 0.02

#: Столько рецептов умеет мета-устройство: памяти там нет, есть только размеры.
META = torch.device("meta")


def main(argv: list[str], prog: str = "python -m nanolm.probe") -> int:
    """Командная строка пробы."""
    from nanolm.probe_cli import main as run

    return run(argv, prog)


@dataclass(frozen=True)
class Row:
    """Строка сверки. `exact` — обязана совпасть до единицы; иначе сходится в пределах `tolerance`."""

    name: str
    title: str
    unit: str
    predicted: int
    measured: int
    exact: bool = True
    tolerance: float = 0.0

    @property
    def ratio(self) -> float:
        """Измеренное к прогнозу; у двух нулей — 1."""
        if self.predicted == 0:
            return 1.0 if self.measured == 0 else float("inf")
        return self.measured / self.predicted

    @property
    def passed(self) -> bool:
        """Сошлось ли."""
        return self.measured == self.predicted if self.exact else abs(self.ratio - 1) <= self.tolerance

    def to_dict(self) -> dict[str, Any]:
        """Поля и отношение для JSON."""
        return {**asdict(self), "ratio": self.ratio if self.ratio != float("inf") else None}


def verify(
    spec: Spec,
    B: int = 1,
    S: int | None = None,
    *,
    recipe: str = "fp32",
    optimizer: str = "adamw",
    attention: str = "fused",
    checkpointing: str = "none",
    device: torch.device | str = "cpu",
    progress: Callable[[Iterable[str]], Iterable[str]] = iter,
) -> list[Row]:
    """Сверить счёт с моделью: строки прогноз — измерение.

    На устройстве «meta» модель не занимает памяти, и сверяются только параметры и FLOPs — зато любой модели.

    Ошибки: `ValueError`, если такой модели NanoLM не строит или шаг не поместится в свободную память.
    """
    S = spec.S if S is None else S
    device = torch.device(device)
    account = budget.training_memory(spec, B, S, recipe, optimizer, attention, checkpointing)
    if device != META:
        _check_room(account.total, device)
    training = Training(spec, recipe, optimizer, attention, checkpointing, device)
    stages: dict[str, Callable[[], Iterable[Row]]] = {
        "параметры": lambda: _parameters(training.model),
        "FLOPs": lambda: _flops(training, B, S),
    }
    if device != META:
        stages |= {
            "сохранённые тензоры": lambda: _saved(training, B, S, recipe),
            "память шага": lambda: _memory(training, account, B, S),
            "кеш KV": lambda: _cache(training.model, B, S),
        }
    return [row for name in progress(stages) for row in stages[name]()]


def _check_room(needed: int, device: torch.device) -> None:
    """Отказать, пока ничего не занято."""
    free = available_bytes(device)
    if free is not None and needed > free:
        raise ValueError(
            f"шагу обучения нужно {units.both_bytes(needed)}, а свободно {units.both_bytes(free)}: "
            "уменьшите B или S; параметры и FLOPs сверяет и --device meta, без памяти"
        )


# --- Параметры и FLOPs ---------------------------------------------------------------------------


def _parameters(model: NanoLM) -> Iterator[Row]:
    """Параметры всего и по компонентам: компонент параметра — тот, чью строку таблицы он занимает."""
    account = budget.parameter_breakdown(model.spec)
    owner = {_pattern(op.param): op.component for op in table(model.spec) if op.weight and not op.shared}
    sizes = dict.fromkeys(account, 0)
    for name, parameter in model.named_parameters():
        sizes[owner[_pattern(name)]] += parameter.numel()
    yield Row("parameters", "параметры", "параметров", account.total, sum(sizes.values()))
    for name, size in sizes.items():
        if size or account[name]:
            yield Row(f"parameters.{name}", f"параметры: {budget.TITLES[name]}", "параметров", account[name], size)


def _pattern(name: str) -> str:
    """Имя параметра без номеров слоя и эксперта."""
    return ".".join("*" if part.isdigit() or part.startswith("{") else part for part in name.split("."))


def _flops(training: Training, B: int, S: int) -> Iterator[Row]:
    """Полезные FLOPs — на мета-устройстве, где нет ни слитых ядер, ни пересчёта; выполненные — на деле."""
    model, tokens = training.model, B * S
    forward = budget.flops_per_token(model.spec, S, training=False).total * tokens
    useful = Training(model.spec, attention="naive", device=META)
    passes = _count_passes(useful, *useful.batch(B, S))
    yield Row("flops.forward", "FLOPs прямого прохода", "FLOPs", forward, passes[0])
    yield Row("flops.backward", "FLOPs обратного прохода", "FLOPs", 2 * forward, passes[1])
    if training.device == META:
        return
    done = budget.hardware_flops_per_token(model.spec, S, model.attention, model.checkpointing).total * tokens
    passes = _count_passes(training, *training.batch(B, S))
    title = "FLOPs, выполненные"
    yield Row("flops.forward_hardware", f"{title} в прямом проходе", "FLOPs", forward, passes[0])
    yield Row("flops.backward_hardware", f"{title} в обратном", "FLOPs", done - forward, passes[1])


def _count_passes(training: Training, tokens_BT: Tensor, targets_BT: Tensor) -> tuple[int, int]:
    """FLOPs прямого прохода и отдельно — обратного."""
    losses: list[Tensor] = []
    forward = count(lambda: losses.append(training.loss(tokens_BT, targets_BT)))
    backward = count(lambda: losses.pop().backward())  # type: ignore[no-untyped-call]
    training.optimizer.zero_grad(set_to_none=True)
    return forward, backward


# --- Память --------------------------------------------------------------------------------------


def _saved(training: Training, B: int, S: int, recipe: str) -> Iterator[Row]:
    """Что autograd держит до обратного прохода: всего и по компонентам."""
    model = training.model
    tokens, targets = training.batch(B, S)
    predicted = budget.saved_tensor_bytes(model.spec, B, S, recipe, model.attention, model.checkpointing)
    measured = dict.fromkeys(predicted, 0)
    for row in saved_tensors(lambda: training.loss(tokens, targets), model, (tokens, targets)):
        # Потери считаются в самой модели: там остаются логарифмы вероятностей.
        exit_row = row.module == "" and row.shape == (B * S, model.spec.V)
        kind = {"input": "input", "copy": "copies"}.get(row.role) or ("logits" if exit_row else "activations")
        measured[kind] += row.nbytes
    total = sum(predicted.values())
    yield Row("saved", "сохранено для обратного прохода", "байт", total, sum(measured.values()))
    titles = {**budget.TITLES, "copies": "копии матриц для autocast"}
    for name, size in predicted.items():
        if size or measured[name]:
            yield Row(f"saved.{name}", f"сохранено: {titles[name]}", "байт", size, measured[name])


def _memory(training: Training, account: budget.TrainingMemory, B: int, S: int) -> Iterator[Row]:
    """Постоянная память шага и его пик. Первый шаг — разогрев: он заводит градиенты и состояния."""
    batch = training.batch(B, S)
    training.step(*batch)
    states = training.state_bytes()
    for name, size in states.items():
        if size or account[name]:
            yield Row(name, budget.TITLES[name], "байт", account[name], size)
    constant = sum(states.values()) + sum(tensor.nbytes for tensor in batch)
    peak = peak_bytes(lambda: training.step(*batch), training.device)
    title = f"пик памяти шага ({account.moment})"
    rules: dict[str, Any] = {"exact": False, "tolerance": PEAK_TOLERANCE}
    yield Row("peak", title, "байт", account.total, constant + peak.tensors, **rules)
    if peak.total != peak.tensors:
        title = "пик вместе с рабочей памятью ядер"
        yield Row("peak.with_scratch", title, "байт", account.total, constant + peak.total, **rules)


def _cache(model: NanoLM, B: int, S: int) -> Iterator[Row]:
    dtype = {torch.float32: "fp32", torch.bfloat16: "bf16"}[model.embedding.weight.dtype]
    predicted = budget.kv_cache_bytes(model.spec, B, S, dtype).total
    yield Row("kv_cache", f"кеш KV, {dtype}", "байт", predicted, model.new_cache(B, S).nbytes)
