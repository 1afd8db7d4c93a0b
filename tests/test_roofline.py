"""Пределы машины: измерение, кеш, карта; скорость — доля предела."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from nanolm import budget, machine, roofline
from nanolm.measure import Samples
from nanolm.spec import Spec
from nanolm.speed import Timing, speed

CPU = torch.device("cpu")
RATES = {"rates": {"fp32": 1e11, "bf16": 2e11, "bandwidth": 1e10}, "samples_s": {}}
SPEC = Spec(V=97, D=40, L=2, N=4, S=32)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "nanolm" / "roofline.json"


def test_measured_once_and_remembered(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(roofline, "measure", lambda device, progress: calls.append(device) or RATES)
    first, second = roofline.machine(CPU), roofline.machine(CPU)
    assert len(calls) == 1
    assert first == second
    assert [file.name for file in cache.parent.iterdir()] == ["roofline.json"]
    (key,) = json.loads(cache.read_text(encoding="utf-8"))
    assert machine.name_of(CPU) in key
    roofline.machine(CPU, refresh=True)
    assert len(calls) == 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"%s": 5}', '{"%s": {"rates": {"fp32": 0, "bandwidth": 1}}}'])
def test_broken_cache_is_measured_again(cache: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    key = f"{machine.name_of(CPU)} | torch {torch.__version__} | probe {roofline.PROBE_VERSION}"
    cache.parent.mkdir(parents=True)
    cache.write_text(text.replace("%s", key), encoding="utf-8")
    monkeypatch.setattr(roofline, "measure", lambda *_: RATES)
    assert roofline.machine(CPU).rate("bf16") == 2e11


def test_unwritable_cache_is_not_an_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.parent.parent.mkdir(exist_ok=True)
    cache.parent.write_text("здесь файл, а не папка", encoding="utf-8")
    monkeypatch.setattr(roofline, "measure", lambda *_: RATES)
    assert roofline.machine(CPU).bandwidth_bytes_per_s == 10**10


@pytest.mark.parametrize(
    ("platform", "variable", "tail"),
    [
        ("win32", "LOCALAPPDATA", "place/nanolm"),
        ("darwin", "HOME", "Library/Caches/nanolm"),
        ("linux", "XDG_CACHE_HOME", "place/nanolm"),
    ],
)
def test_cache_folder_of_each_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, platform: str, variable: str, tail: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(variable, str(tmp_path / "place"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "place")
    assert roofline.cache_file().parent.as_posix().endswith(tail)


def test_machine_forecasts_like_any_card(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "measure", lambda *_: RATES)
    card = roofline.machine(CPU)
    step = budget.decode_step_time(SPEC, 1, 32, card, "fp32")
    assert step.memory_seconds == pytest.approx((step.weight_bytes + step.cache_bytes) / 1e10)
    assert budget.training_time(SPEC, 1000, card, mfu=1, dtype="fp32").seconds == pytest.approx(
        1000 * budget.flops_per_token(SPEC).total / 1e11
    )


def test_measurement_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(roofline.SHAPES, "cpu", ((32, 32, 32), (64, 64, 64)))
    monkeypatch.setitem(roofline.ARRAY_BYTES, "cpu", 2**16)
    found = roofline.measure(CPU)
    assert set(found["rates"]) == {"fp32", "bf16", "bandwidth"}
    assert all(rate > 0 for rate in found["rates"].values())
    assert all(found["samples_s"].values())


def test_slow_products_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Процессор без команд bf16 умножает тысячи на тысячи секундами: замер не должен этого ждать."""
    sizes: list[int] = []
    monkeypatch.setitem(roofline.SHAPES, "cpu", ((32, 32, 32), (64, 64, 64)))
    monkeypatch.setattr(roofline, "once", lambda function, _: sizes.append(len(function.args[0])) or 0.5)
    rate, samples = roofline._matmul_rate("bf16", CPU)
    assert sizes == [32, 32]
    assert samples.seconds == (0.5,)
    assert rate == pytest.approx(2 * 32**3 / 0.5)


def test_timing_is_a_share_of_the_limit() -> None:
    timing = Timing("decode", "шаг", Samples((0.2, 0.1, 0.3)), limit_s=0.1, tokens=8)
    assert timing.share == pytest.approx(0.5)
    assert timing.tokens_per_s == pytest.approx(40)


def test_speed_measures_three_stages(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "measure", lambda *_: RATES)
    rows = speed(SPEC, roofline.machine(CPU), 2, 16, new_tokens=4, repeats=2)
    assert [row.name for row in rows] == ["training", "prefill", "decode"]
    assert [row.tokens for row in rows] == [32, 24, 2]
    assert all(len(row.samples.seconds) == 2 for row in rows)
    with pytest.raises(ValueError, match="new_tokens = 16"):
        speed(SPEC, roofline.machine(CPU), 2, 16, new_tokens=16)


def test_container_limit_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"/sys/fs/cgroup/memory.max": "1000", "/sys/fs/cgroup/memory.current": "400"}
    monkeypatch.setattr(machine, "_system_memory", lambda: (10**9, 10**8))
    monkeypatch.setattr(machine, "_read", texts.get)
    assert machine.available_bytes(CPU) == 600
    monkeypatch.setattr(machine, "_read", {**texts, "/sys/fs/cgroup/memory.max": "max"}.get)
    assert machine.available_bytes(CPU) == 10**8


def test_free_memory_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (7, 80))
    assert machine.available_bytes(torch.device("cuda")) == 7
