"""Измерительные приборы: время, пик памяти, сохранённые тензоры. Что измерять, решает `nanolm.probe`.

Почему измерять труднее, чем кажется:

- первый запуск платит за выделение памяти и выбор ядер, поэтому перед замером идёт разогрев;
- ускоритель работает сам по себе: без синхронизации часы засекут постановку в очередь, а не счёт;
- среднее портит один случайный выброс, поэтому ответ — медиана, рядом с ней разброс, а сырые числа
  остаются в отчёте;
- два замера подряд сравнивать нельзя: машина за это время меняется. Соперники идут попеременно,
  и делятся друг на друга замеры одного круга;
- память процесса (RSS) говорит, сколько страниц выдала система, а не сколько заняли тензоры, поэтому
  пик берётся из событий самого распределителя памяти.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

#: Растёт, когда меняется способ измерения: числа разных версий сравнивать нельзя.
PROBE_VERSION = 1

# Профайлер torch пишет в поток ошибок строки о своём запуске; они нужны только его авторам.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


# --- Время ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Samples:
    """Повторы одного замера, в секундах."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Медиана: половина замеров быстрее, половина медленнее."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Разброс: расстояние между четвертями в долях медианы; у одного замера — 0."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / self.median

    def to_dict(self) -> dict[str, object]:
        """Медиана, разброс и сырые замеры для JSON."""
        return {"median_s": self.median, "spread": self.spread, "samples_s": list(self.seconds)}


def synchronize(device: torch.device) -> None:
    """Дождаться, пока ускоритель доделает поставленное в очередь; процессору ждать нечего."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def once(function: Callable[[], object], device: torch.device) -> float:
    """Время одного вызова в секундах вместе со всем, что он поставил в очередь."""
    synchronize(device)
    start = time.perf_counter()
    function()
    synchronize(device)
    return time.perf_counter() - start


def alternate(
    functions: Mapping[str, Callable[[], object]],
    device: torch.device,
    *,
    warmup: int = 2,
    repeats: int = 10,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> dict[str, Samples]:
    """Замерить несколько функций попеременно: круг за кругом, каждая по разу.

    Порядок в круге меняется, чтобы ни одной не доставалось всегда место после самой тяжёлой.
    """
    for function in functions.values():
        for _ in range(warmup):
            function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    names = list(functions)
    for turn in progress(range(repeats)):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            seconds[name].append(once(functions[name], device))
    return {name: Samples(tuple(values)) for name, values in seconds.items()}


def timed(function: Callable[[], object], device: torch.device, *, warmup: int = 2, repeats: int = 10) -> Samples:
    """Замерить одну функцию: разогрев, затем `repeats` повторов."""
    return alternate({"": function}, device, warmup=warmup, repeats=repeats)[""]


def ratio(samples: Mapping[str, Samples], above: str, below: str) -> float:
    """Во сколько раз `above` дольше `below`: медиана отношений внутри кругов."""
    pairs = zip(samples[above].seconds, samples[below].seconds, strict=True)
    return statistics.median(a / b for a, b in pairs)
