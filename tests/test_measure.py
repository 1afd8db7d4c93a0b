"""Измерительные приборы: время, пик памяти, сохранённые тензоры."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from nanolm import measure
from nanolm.measure import Samples

CPU = torch.device("cpu")


def test_median_and_spread() -> None:
    samples = Samples((4.0, 1.0, 2.0, 3.0, 100.0))
    assert samples.median == 3.0
    assert samples.spread == pytest.approx((4.0 - 2.0) / 3.0)
    assert Samples((5.0,)).spread == 0.0
    assert samples.to_dict()["samples_s"] == [4.0, 1.0, 2.0, 3.0, 100.0]


def test_rivals_take_turns() -> None:
    calls: list[str] = []
    names = ("a", "b", "c")
    found = measure.alternate({name: lambda name=name: calls.append(name) for name in names}, CPU, warmup=1, repeats=3)
    assert "".join(calls) == "abc" + "abc" + "bca" + "cab"
    assert {name: len(samples.seconds) for name, samples in found.items()} == dict.fromkeys(names, 3)


def test_ratio_is_taken_inside_rounds() -> None:
    # Машина замедлилась втрое во втором и третьем кругах; отношение этого не замечает.
    samples = {"a": Samples((2.0, 6.0, 6.0)), "b": Samples((1.0, 3.0, 3.0))}
    assert measure.ratio(samples, "a", "b") == 2.0


def test_clock_waits_for_the_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """На CUDA часы останавливает синхронизация: без неё засекалась бы постановка в очередь."""
    order: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: order.append("sync"))
    measure.once(lambda: order.append("work"), torch.device("cuda"))
    assert order == ["sync", "work", "sync"]


def test_cpu_peak_counts_what_lives_at_once() -> None:
    def work() -> None:
        a = torch.empty(1000)
        b = torch.empty(500)
        del a
        c = torch.empty(300)
        del b, c

    assert measure.peak_bytes(work, CPU) == measure.Peak(6000, 6000)


def test_kernel_scratch_is_not_a_tensor() -> None:
    def event(number: int, ptr: int, size: int, time: int, owner: str) -> SimpleNamespace:
        parent = SimpleNamespace(name=owner, end_time_ns=10)
        return SimpleNamespace(
            id=number, start_time_ns=time, parent=parent, extra_fields=SimpleNamespace(ptr=ptr, alloc_size=size)
        )

    events = [
        event(1, 100, 8, 1, "aten::mm"),  # результат: живёт дольше операции
        event(2, 200, 64, 2, "aten::mm"),  # рабочая память: возвращена внутри неё
        event(3, 200, -64, 5, "aten::mm"),
        event(4, 300, 16, 6, "aten::add"),  # временный тензор другой операции — тензор
        event(5, 300, -16, 7, "aten::add"),
        event(6, 100, -8, 20, "aten::mm"),
    ]
    assert measure._scratch(events) == {2, 3}


def test_cuda_peak_is_the_allocators(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"allocated": 100, "peak": 0}
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda *_: state.update(peak=state["allocated"]))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda *_: state["allocated"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda *_: state["peak"])
    assert measure.peak_bytes(lambda: state.update(peak=175), torch.device("cuda")) == measure.Peak(75, 75)


def test_cublas_workspace_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"allocated": 0}
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda *_: state["allocated"])
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: state.update(allocated=10), raising=False)
    assert measure.cublas_workspace_bytes(lambda: state.update(allocated=42)) == 32


def test_mps_peak_looks_after_each_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([10, 12, 90, 30])
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: next(readings))
    x = torch.ones(3)
    assert measure.peak_bytes(lambda: (x + 1).mul_(2).sum(), torch.device("mps")) == measure.Peak(80, 80)


class Twice(torch.nn.Module):
    """Хранит вход произведения и вход exp — один и тот же тензор — и результат exp."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 5, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.view(2, 3)).exp().sum()


def test_saved_tensors_are_unique_storages() -> None:
    model, x = Twice(), torch.ones(6)
    rows = measure.saved_tensors(lambda: model(x), model, [x])
    assert [(row.module, row.role, row.nbytes) for row in rows] == [("inner", "input", 24), ("", "", 40)]
    assert measure.by_module(rows) == {"inner": 24, "model": 40}


def test_saved_copy_of_a_parameter_is_recognised() -> None:
    model, x = Twice(), torch.ones(6, requires_grad=True)

    def forward() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    roles = {row.role: row.nbytes for row in measure.saved_tensors(forward, model)}
    assert roles["copy"] == 3 * 5 * 2
