"""Задержка интервалом: границы — roofline, середина — между ними, эксперты — от k до всех."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nanolm.budget import Spec, decode_step_time, flops_per_token, kv_cache_bytes, parameter_breakdown
from nanolm.hardware import Gpu, gpu
from nanolm.latency import COMPUTE_EFFICIENCY, MEMORY_EFFICIENCY, decode_time, prefill_time
from nanolm.summary import Question, document, text
from nanolm.zoo import preset

LLAMA, MIXTRAL = preset("llama-3-8b"), preset("mixtral-8x7b")
IDEAL = (1.0, 1.0, 1.0)
CASES = [(spec, B, S) for spec in (LLAMA, MIXTRAL, preset("gemma-3-4b")) for B in (1, 64, 4096) for S in (16, 8192)]


@pytest.mark.parametrize(("spec", "B", "S"), CASES)
@pytest.mark.parametrize("card", ["h100-sxm", "rtx-4090", "t4"])
def test_ideal_decode_is_the_roofline(spec: Spec, B: int, S: int, card: str) -> None:
    """Без потерь обычный случай — ровно `decode_step_time`: байты и FLOPs одни и те же."""
    step, found = decode_step_time(spec, B, S, card), decode_time(spec, B, S, card, memory=IDEAL, compute=IDEAL)
    assert found.typical == pytest.approx(step.seconds, rel=1e-12)
    assert found.bound == step.bound
    assert found.flops == step.flops
    assert found.tokens_per_s == pytest.approx(step.tokens_per_s, rel=1e-12)


@pytest.mark.parametrize(("spec", "B", "S"), CASES)
@pytest.mark.parametrize("function", [decode_time, prefill_time])
def test_interval_is_ordered_and_not_faster_than_the_roofline(function: Any, spec: Spec, B: int, S: int) -> None:
    found, ideal = function(spec, B, S, "h100-sxm"), function(spec, B, S, "h100-sxm", memory=IDEAL, compute=IDEAL)
    assert ideal.low < found.low < found.typical < found.high


def test_memory_bound_decode_by_hand() -> None:
    """Llama-3-8B, одна последовательность: веса без эмбеддинга, строка его и кеш — на полосу и её долю."""
    card = gpu("h100-sxm")
    weights = 2 * (parameter_breakdown(LLAMA).total - 128_256 * 4096 + 4096)
    cache = kv_cache_bytes(LLAMA, 1, 8192).total
    found = decode_time(LLAMA, 1, 8192, card)
    for seconds, share in zip((found.low, found.typical, found.high), MEMORY_EFFICIENCY, strict=True):
        assert seconds == pytest.approx((weights + cache) / card.bandwidth_bytes_per_s / share)
    assert found.bound == "память"


def test_prefill_by_hand() -> None:
    """Маленькая модель, все произведения на бумаге; голова — один токен на последовательность."""
    spec = Spec(V=1000, D=64, L=3, N=4, K=2, H=16, F=128)
    B, S = 5, 32
    layer = 2 * (64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128)
    pairs = 2 * 2 * 4 * 16 * S * (S + 1) // 2
    expected = B * (3 * (S * layer + pairs) + 2 * 1000 * 64)
    assert prefill_time(spec, B, S, "h100-sxm").flops == expected


def test_prefill_of_a_long_context_is_compute_bound() -> None:
    card = gpu("h100-sxm")
    found = prefill_time(LLAMA, 1, 8192, card)
    assert found.bound == "вычисления"
    for seconds, share in zip((found.low, found.typical, found.high), COMPUTE_EFFICIENCY, strict=True):
        assert seconds == pytest.approx(found.flops / card.rate("bf16") / share)
    assert prefill_time(LLAMA, 1, 1, card).bound == "память"
    # Голова всех токенов в прямой проход не входит.
    assert found.flops < 8192 * flops_per_token(LLAMA, 8192, training=False, attention="causal").total


def test_experts_widen_the_interval() -> None:
    """Шестнадцать токенов Mixtral: от двух экспертов до всех восьми, в среднем 7,92."""
    found = decode_time(MIXTRAL, 16, 16, "h100-sxm", memory=IDEAL, compute=IDEAL)
    expert = 2 * 32 * 3 * 4096 * 14_336
    low, typical, high = found.bytes
    assert typical - low == pytest.approx((8 * (1 - 0.75**16) - 2) * expert)
    assert high - low == pytest.approx(6 * expert)
    single = decode_time(MIXTRAL, 1, 16, "h100-sxm")
    assert single.bytes[0] == pytest.approx(single.bytes[1]) == pytest.approx(single.bytes[2])


def test_portions_read_the_weights_again() -> None:
    once, many = (prefill_time(LLAMA, 2, 4096, "h100-sxm", chunk=chunk) for chunk in (None, 1024))
    cache = kv_cache_bytes(LLAMA, 2, 4096).total
    weights = once.bytes[1] - cache
    assert many.flops == once.flops
    # Строки эмбеддинга читаются по токену, а не по порции: поправка мала и одинакова.
    assert many.bytes[1] == pytest.approx(8 * weights + cache * 4.5, rel=1e-2)


def test_measured_card_is_a_card() -> None:
    """Крыша этой машины из `nanolm.probe` — такая же карта."""
    mine = Gpu(
        key="mine", title="эта машина", memory_bytes=2**33, usable_bytes=2**33, usable_is_assumed=False,
        bandwidth_bytes_per_s=10**10, flops_per_s={"bf16": 1e11, "fp32": 1e11},
    )  # fmt: skip
    spec = Spec(V=1000, D=64, L=3, N=4)
    found = decode_time(spec, 1, 16, mine, memory=IDEAL, compute=IDEAL)
    assert found.low == found.typical == found.high == pytest.approx(found.bytes[1] / 10**10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": 0.5}, "memory: нужны три доли"),
        ({"memory": (0.9, 0.5)}, "memory: нужны три доли"),
        ({"compute": (0.9, 0.5, 0.0)}, "compute = 0.0: доля, нужно число"),
        ({"compute": (0.9, 0.5, float("nan"))}, "compute = nan: доля"),
        ({"compute": (2, 0.5, 0.1)}, "compute = 2: доля"),
        ({"memory": (0.5, 0.7, 0.9)}, "memory = (0.5, 0.7, 0.9): доли идут от лучшей к худшей"),
        ({"dtype": "int4"}, "dtype = 'int4': нужно одно из"),
        ({"kv_dtype": "int4"}, "kv_dtype = 'int4': нужно одно из"),
        ({"B": 0}, "B = 0"),
        ({"gpu": "m5-16"}, "у карты m5-16 нет такой скорости"),
    ],
)
@pytest.mark.parametrize("function", [decode_time, prefill_time])
def test_refusals(function: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        function(LLAMA, **{"B": 1, "S": 16, "gpu": "t4", **options})


def test_summary_shows_the_intervals() -> None:
    question = Question(LLAMA, B=4, S=2048, gpu="h100-sxm")
    prefill, decode = prefill_time(LLAMA, 4, 2048, "h100-sxm", "bf16"), decode_time(LLAMA, 4, 2048, "h100-sxm", "bf16")
    answer: Any = document(question)
    assert answer["prefill"] == {**prefill.to_dict(), "flops": prefill.flops}
    assert answer["decode"]["interval"] == decode.to_dict()
    assert str(prefill) in text(question)
    assert str(decode) in text(question)
