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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

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


# --- Пик памяти ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peak:
    """Пик памяти сверх занятого до измерения: все байты и без рабочей памяти ядер.

    Рабочую память библиотека произведений (oneDNN) берёт на время одной операции; ни одному тензору она не
    принадлежит, и её размер зависит от процессора.
    """

    total: int
    tensors: int


def peak_bytes(function: Callable[[], object], device: torch.device) -> Peak:
    """Сколько байт `function` занимает в пике сверх того, что было занято до неё.

    На CUDA — счётчик распределителя (рабочую память cuBLAS заводит разогрев, поэтому она в «до»), на
    процессоре — события распределителя из профайлера, на MPS — занятая память после каждой операции.
    """
    if device.type == "cpu":
        return _cpu_peak(function)
    total = _mps_peak(function) if device.type == "mps" else _cuda_peak(function)
    return Peak(total, total)


#: Операции, внутри которых библиотека берёт рабочую память.
PRODUCTS = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear", "aten::mkldnn_linear"})


def _cpu_peak(function: Callable[[], object]) -> Peak:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    results: Any = profiler.profiler.kineto_results
    events = sorted(_allocations(results.experimental_event_tree()), key=lambda event: event.start_time_ns)
    scratch = _scratch(events)
    total = tensors = 0
    most_total = most_tensors = 0
    for event in events:
        total += event.extra_fields.alloc_size
        tensors += 0 if event.id in scratch else event.extra_fields.alloc_size
        most_total, most_tensors = max(most_total, total), max(most_tensors, tensors)
    return Peak(most_total, most_tensors)


def _allocations(nodes: list[Any]) -> Iterator[Any]:
    """События распределителя из дерева профайлера, в глубину без рекурсии: дерево бывает глубоким."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node.tag == torch._C._profiler._EventType.Allocation:
            yield node
        waiting.extend(node.children)


def _scratch(events: Iterable[Any]) -> set[int]:
    """Номера событий рабочей памяти: взята внутри произведения и возвращена, пока оно не кончилось."""
    opened: dict[int, Any] = {}
    found: set[int] = set()
    for event in events:
        if event.extra_fields.alloc_size > 0:
            opened[event.extra_fields.ptr] = event
            continue
        start = opened.pop(event.extra_fields.ptr, None)
        owner = None if start is None else start.parent
        if owner is not None and owner.name in PRODUCTS and event.start_time_ns <= owner.end_time_ns:
            found |= {start.id, event.id}
    return found


def _cuda_peak(function: Callable[[], object]) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def cublas_workspace_bytes(function: Callable[[], object]) -> int:
    """Рабочая память cuBLAS: она лежит внутри `memory_allocated`, но ни одному тензору не принадлежит."""
    function()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch._C._cuda_clearCublasWorkspaces()
    return before - torch.cuda.memory_allocated()


class _AfterEachOperation(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Смотрит на занятую память после каждой операции: у MPS счётчика пика нет."""

    def __init__(self, allocated: Callable[[], int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.allocated, self.peak = allocated, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.peak = max(self.peak, self.allocated())
        return result


def _mps_peak(function: Callable[[], object]) -> int:
    before = torch.mps.current_allocated_memory()
    with _AfterEachOperation(torch.mps.current_allocated_memory) as mode:
        function()
    return max(0, int(mode.peak) - int(before))


# --- Что autograd держит до обратного прохода ----------------------------------------------------


@dataclass(frozen=True)
class Saved:
    """Одно сохранённое хранилище: в каком модуле, что это, форма и тип первого сохранения, байты.

    `role` — «input» у входа, «copy» у копии параметра, которую снял autocast, иначе пусто.
    """

    module: str
    role: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    nbytes: int


def saved_tensors(forward: Callable[[], Tensor], model: nn.Module, inputs: Iterable[Tensor] = ()) -> list[Saved]:
    """Хранилища, которые прямой проход оставляет обратному: без повторов, параметров и буферов модели.

    Один тензор сохраняют по многу раз, и виды делят память с целым, поэтому считаются хранилища.
    """
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    given = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    # Сами тензоры держим: адрес освобождённого мог бы достаться следующему.
    kept: dict[int, tuple[Saved, Tensor]] = {}
    where = [""]

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and storage.data_ptr() not in kept:
            role = "input" if storage.data_ptr() in given else "copy" if _copies_parameter(tensor) else ""
            row = Saved(where[-1], role, tuple(tensor.shape), tensor.dtype, storage.nbytes())
            kept[storage.data_ptr()] = (row, tensor)
        return tensor

    with _path_of(model, where), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = forward()
    del loss
    return [row for row, _ in kept.values()]


def _copies_parameter(tensor: Tensor) -> bool:
    """Параметр ли это, приведённый к другому типу: в графе между ними только приведение и перестановка осей."""
    node = tensor.grad_fn
    while node is not None and node.name() in ("ToCopyBackward0", "TBackward0", "TransposeBackward0"):
        node = node.next_functions[0][0]
        if node is not None and node.name() == "torch::autograd::AccumulateGrad":
            return True
    return False


@contextmanager
def _path_of(model: nn.Module, where: list[str]) -> Iterator[None]:
    """Вести в `where` путь до модуля, который считается сейчас."""

    def enter(name: str) -> Callable[..., None]:
        return lambda *_: where.append(name)

    def leave(*_: object) -> None:
        where.pop()

    handles = []
    for name, module in model.named_modules():
        handles += [module.register_forward_pre_hook(enter(name)), module.register_forward_hook(leave)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def by_module(rows: Iterable[Saved]) -> dict[str, int]:
    """Сохранённые байты по модулям, номер слоя скрыт: «layers.*.attention» → байты всех слоёв."""
    sizes: dict[str, int] = {}
    for row in rows:
        name = ".".join("*" if part.isdigit() else part for part in row.module.split(".")) or "model"
        sizes[name] = sizes.get(name, 0) + row.nbytes
    return sizes
