"""Стена памяти: прогноз и настоящий отказ распределителя сходятся до тензора."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest
import torch

from nanolm import wall
from nanolm.budget import Spec, parameter_breakdown
from nanolm.hardware import gpu
from nanolm.ops import parameter_shapes
from nanolm.units import GIB
from nanolm.wall import Climb, Reading, Request, climb, full_training, lora_training, unsupported, weights
from nanolm.zoo import preset

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="предел адресного пространства есть на Linux")
SMALL = Spec(V=1000, D=64, L=3, N=4)


def test_weights_are_the_model_and_go_layer_by_layer():
    plan = weights(SMALL)
    assert {r.name: r.shape for r in plan} == parameter_shapes(SMALL)
    assert plan[0].name == "embedding.weight"
    layers = [wall._layer(r.name) for r in plan[1:]]
    inside = [layer for layer in layers if layer >= 0]
    assert inside == sorted(inside)
    assert layers[-2:] == [-1, -1]


@pytest.mark.parametrize("name", ["gemma-3-4b", "gemma-3-12b"])
@pytest.mark.parametrize(("dtype", "size"), [("fp32", 4), ("bf16", 2)])
def test_requests_add_up_to_the_account(name, dtype, size):
    spec = preset(name)
    assert sum(r.nbytes for r in weights(spec, dtype)) == size * parameter_breakdown(spec).total


def test_gemma_4b_is_the_model_of_the_lesson():
    assert sum(math.prod(r.shape) for r in weights(preset("gemma-3-4b"))) == 3_880_263_168


def test_full_training_in_fp32_is_sixteen_bytes_a_parameter():
    spec = preset("gemma-3-4b")
    plan = full_training(spec)
    assert sum(r.nbytes for r in plan) == 16 * parameter_breakdown(spec).total
    first_gradient = next(r for r in plan if r.stage == wall.GRADIENTS)
    assert first_gradient.name == "embedding.weight.grad"  # голова связана с эмбеддингом


def test_untied_head_gets_its_gradient_first():
    first = next(r for r in full_training(SMALL) if r.stage == wall.GRADIENTS)
    assert first.name == "head.weight.grad"


def test_lora_loads_every_frozen_weight_and_little_else():
    spec = preset("gemma-3-4b")
    plan = lora_training(spec, rank=16)
    by_stage = {stage: sum(r.nbytes for r in plan if r.stage == stage) for stage in {r.stage for r in plan}}
    assert by_stage[wall.WEIGHTS] == 4 * parameter_breakdown(spec).total
    widths = 2 * (spec.D + spec.N * spec.H) + 2 * (spec.D + spec.K * spec.H)
    assert by_stage[wall.ADAPTERS] == 4 * spec.L * 16 * widths
    assert by_stage[wall.GRADIENTS] == by_stage[wall.ADAPTERS]
    assert by_stage[wall.MOMENTS] == 2 * by_stage[wall.ADAPTERS]
    assert by_stage[wall.ACTIVATIONS] > 0


@linux
def test_the_allocator_refuses_where_the_forecast_says():
    plan = weights(Spec(V=50_000, D=1024, L=8, N=8))
    cap = sum(r.nbytes for r in plan) * 2 // 3
    walk = climb(plan, cap, "cpu")
    assert walk.refused == walk.expected
    assert walk.refused is not None
    assert str(walk.refused.nbytes) in walk.message
    assert "can't allocate memory" in walk.message
    assert walk.message.startswith("RuntimeError")
    # Занято ровно то, что получено: на тензор — не больше страницы сверху.
    assert walk.granted <= walk.readings[-1].occupied <= walk.granted + 8192 * len(walk.readings) + 2**20
    assert walk.whole_layers <= walk.granted <= cap


@linux
def test_without_a_wall_the_process_survives():
    walk = climb(weights(SMALL), 2**30, "cpu")
    assert walk.message == ""
    assert walk.refused is None
    assert walk.expected is None
    assert walk.granted == walk.asked[-1] == walk.whole_layers


@linux
@pytest.mark.slow
def test_both_walls_of_a_t4():
    spec, card = preset("gemma-3-4b"), gpu("t4").usable_bytes
    share = climb(full_training(spec), int(0.9 * card), "cpu")
    assert round(share.whole_layers / GIB, 2) == 13.05
    assert share.refused is not None
    assert share.refused.stage == wall.WEIGHTS
    whole = climb(full_training(spec), card, "cpu")
    assert round(whole.granted / GIB, 3) == 14.455
    assert whole.refused is not None
    assert whole.refused.name == "embedding.weight.grad"
    # Адресов 14,5 ГиБ, а настоящей памяти — сотни мегабайт.
    assert 0 < whole.resident < 800 * 10**6


@linux
def test_a_tighter_limit_of_the_system_is_reported():
    code = (
        "import resource, json, subprocess, sys\n"
        "from nanolm import wall\n"
        "from nanolm.budget import Spec\n"
        "resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))\n"
        "print(wall.climb(wall.weights(Spec(V=10, D=8, L=1, N=1)), 100 * 2**30, 'cpu').message)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "система уже ограничила" in done.stdout


def test_other_systems_say_why_not():
    assert "macOS" in unsupported("darwin")
    assert "Windows" in unsupported("win32")
    assert "sunos" in unsupported("sunos")
    assert unsupported("linux") == ""


def test_where_the_cap_cannot_be_set_there_is_only_the_forecast(monkeypatch):
    monkeypatch.setattr(wall, "unsupported", lambda: "здесь нельзя")
    walk = climb(weights(SMALL), 1000, "cpu")
    assert walk.skipped == "здесь нельзя"
    assert walk.readings == ()
    assert walk.refused is None
    assert walk.expected == walk.requests[0]
    assert len(walk.forecast()) > SMALL.L


@pytest.mark.parametrize(("cap", "device"), [(0, "cpu"), (-5, "cpu"), (100, "gpu")])
def test_wrong_arguments_are_refused(cap, device):
    with pytest.raises(ValueError, match=r"cap|device"):
        climb(weights(SMALL), cap, device)


def test_last_words():
    stderr = "Traceback (most recent call last):\n  File x\nRuntimeError: мест нет\n"
    assert wall._last_words(1, stderr) == "RuntimeError: мест нет"
    assert wall._last_words(1, "torch.OutOfMemoryError: CUDA out of memory.") == (
        "torch.OutOfMemoryError: CUDA out of memory."
    )
    assert "сигналом 9" in wall._last_words(-9, "")
    assert wall._last_words(0, stderr) == ""
    assert "кодом 3" in wall._last_words(3, "")


def test_hanging_child_does_not_hang_the_build(monkeypatch):
    def hang(*_, **options):
        raise subprocess.TimeoutExpired("python", options["timeout"])

    monkeypatch.setattr(wall.subprocess, "run", hang)
    assert "не уложился" in climb(weights(SMALL), 10, "cuda").message


def test_cuda_path_limits_a_share_of_the_card(monkeypatch):
    """Без карты: тот же код, а карту изображают."""
    seen = {}

    class Card:
        total_memory = 100 * GIB

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Card)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share: seen.update(share=share))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 7)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 9)
    measure = wall._limit_cuda(25 * GIB)
    assert next(measure) == [7, 9]
    assert seen == {"share": 0.25}
    wall._limit_cuda(500 * GIB)
    assert seen == {"share": 1.0}


def test_curve_has_a_point_per_layer_and_reaches_the_end():
    plan = tuple(weights(SMALL))
    walk = Climb(plan, 10**9, "cpu", tuple(Reading(total, 0) for total in Climb(plan, 1, "cpu").asked))
    assert walk.curve() == walk.forecast()
    assert walk.curve()[0] == (0.0, 0.0)
    assert walk.curve()[-1][0] == len(plan)
    assert len(walk.curve()) < len(plan)


def test_whole_layers_leave_out_the_open_one():
    plan = tuple(Request(wall.WEIGHTS, name, (10,), "fp32") for name in ("a", "layers.0.x", "layers.1.x", "layers.1.y"))
    stopped = Climb(plan, 130, "cpu", tuple(Reading(0, 0) for _ in range(3)), "RuntimeError: мест нет")
    assert stopped.refused == plan[3]
    assert stopped.granted == 120
    assert stopped.whole_layers == 80
    assert json.dumps(stopped.forecast())
