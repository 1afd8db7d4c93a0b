"""B и S массивами numpy: каждая точка равна отдельному вызову, переполнение — отказ, миллион точек — доля секунды."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nanolm.budget import (
    ATTENTION_CONVENTIONS,
    KV_CONVENTIONS,
    RECIPES,
    crossover_batch,
    decode_step_time,
    flops_per_token,
    inference_memory,
    kv_cache_bytes,
    training_memory,
)
from nanolm.zoo import preset

if TYPE_CHECKING:
    from nanolm.spec import Spec

SPECS = {name: preset(name) for name in ("llama-3-8b", "gemma-3-4b", "mixtral-8x7b", "deepseek-v3", "mistral-7b-v0.1")}
#: Границы: единица, окно Gemma (1024) и соседи, нечётное, окно Mistral и дальше.
B, S = np.array([1, 3, 8, 32, 2, 7]), np.array([1, 1023, 1024, 1025, 4097, 9001])


@pytest.fixture(params=SPECS)
def spec(request: pytest.FixtureRequest) -> Spec:
    return SPECS[request.param]


def points() -> list[tuple[int, int]]:
    return list(zip(B.tolist(), S.tolist(), strict=True))


@pytest.mark.parametrize("convention", ATTENTION_CONVENTIONS)
@pytest.mark.parametrize("training", [True, False])
def test_flops_point_by_point(spec: Spec, convention: str, training: bool) -> None:
    found = flops_per_token(spec, S, training, convention)  # type: ignore[arg-type]
    for i, s in enumerate(S.tolist()):
        expected = flops_per_token(spec, s, training, convention)
        assert found.total[i] == expected.total  # type: ignore[index]
        assert {name: at(value, i) for name, value in found.items()} == dict(expected)


def at(value: Any, i: int) -> int:
    """Точка счёта: компонент, который не зависит от B и S, остаётся числом."""
    return int(value[i]) if hasattr(value, "ndim") else value


@pytest.mark.parametrize("kv", KV_CONVENTIONS)
def test_cache_point_by_point(spec: Spec, kv: str) -> None:
    found = kv_cache_bytes(spec, B, S, "fp8", kv)  # type: ignore[arg-type]
    assert found.total.tolist() == [kv_cache_bytes(spec, b, s, "fp8", kv).total for b, s in points()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("chunk", [None, 512])
def test_inference_point_by_point(spec: Spec, chunk: int | None) -> None:
    options: dict[str, Any] = {"kv": "transformers", "chunk": chunk, "block": 16, "weights": "int8"}
    found = inference_memory(spec, B, S, **options)  # type: ignore[arg-type]
    for i, (b, s) in enumerate(points()):
        expected = inference_memory(spec, b, s, **options)
        assert {name: at(value, i) for name, value in found.items()} == dict(expected)
        assert found.peak[i] == expected.peak  # type: ignore[index]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(
    ("attention", "checkpointing"),
    [("fused", "none"), ("naive", "none"), ("naive", "selective"), ("fused", "full"), ("naive", "full")],
)
def test_training_point_by_point(spec: Spec, recipe: str, attention: str, checkpointing: str) -> None:
    options = {"recipe": recipe, "attention": attention, "checkpointing": checkpointing}
    found = training_memory(spec, B, S, **options)  # type: ignore[arg-type]
    for i, (b, s) in enumerate(points()):
        expected = training_memory(spec, b, s, **options)
        assert {name: at(value, i) for name, value in found.items()} == dict(expected)
        assert found.moment[i] == expected.moment


@pytest.mark.parametrize(("card", "weights"), [("h100-sxm", None), ("rtx-4090", None), ("h100-sxm", "nf4-double")])
def test_decode_point_by_point(spec: Spec, card: str, weights: str | None) -> None:
    found = decode_step_time(spec, B, S, card, weights=weights)  # type: ignore[arg-type]
    for i, (b, s) in enumerate(points()):
        expected = decode_step_time(spec, b, s, card, weights=weights)
        assert at(found.flops, i) == expected.flops
        assert at(found.cache_bytes, i) == expected.cache_bytes
        assert found.seconds[i] == pytest.approx(expected.seconds, rel=1e-12)  # type: ignore[index]
        assert found.bound[i] == expected.bound
        assert found.tokens_per_s[i] == pytest.approx(expected.tokens_per_s, rel=1e-12)  # type: ignore[index]


def test_both_bounds_are_met() -> None:
    batches = np.array([1, 4096])
    found = decode_step_time(SPECS["llama-3-8b"], batches, 16, "h100-sxm")  # type: ignore[arg-type]
    assert found.bound.tolist() == ["память", "вычисления"]  # type: ignore[attr-defined]


def test_axes_are_broadcast() -> None:
    """Столбец пакетов и строка контекстов дают таблицу."""
    spec = SPECS["gemma-3-4b"]
    for account in (kv_cache_bytes, inference_memory, training_memory):
        found = account(spec, B[:, None], S[None, :])  # type: ignore[operator]
        assert found.total.shape == (6, 6)
        for (i, b), (j, s) in itertools.product(enumerate(B.tolist()), enumerate(S.tolist())):
            if (i + j) % 5 == 0:
                assert found.total[i, j] == account(spec, b, s).total  # type: ignore[operator]
    assert crossover_batch(spec, S).shape == (6,)  # type: ignore[arg-type, attr-defined]


def test_array_accounts_print() -> None:
    found = kv_cache_bytes(SPECS["llama-3-8b"], B, 8192)  # type: ignore[arg-type]
    assert "1,000\u00a0ГиБ" in str(found)
    assert "32,00\u00a0ГиБ" in str(found)
    assert "<table" in found._repr_html_()


def test_arguments_are_not_changed() -> None:
    batches, contexts = B.tolist(), S.tolist()
    found = kv_cache_bytes(SPECS["gemma-3-4b"], B, S)  # type: ignore[arg-type]
    total = found.total
    total += 1  # type: ignore[misc]
    assert B.tolist() == batches
    assert S.tolist() == contexts


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([1.0, 2.0]), "S: массив из 'float64': нужны целые числа"),
        (np.array([True]), "S: массив из 'bool'"),
        (np.array([], dtype=int), "S: массив пуст"),
        (np.array([5, 0]), "S = 0: в массиве нужны целые числа от 1"),
        (np.array([5, -3]), "S = -3: в массиве нужны"),
        (np.array([2**28 + 1]), "S = 268435457: в массиве нужны"),
        (np.array(["8"]), "S: массив из"),
        (np.array([None]), "S: массив из 'object'"),
    ],
)
def test_bad_arrays_are_refused(value: Any, message: str) -> None:
    for account in (kv_cache_bytes, inference_memory, training_memory):
        with pytest.raises(ValueError, match=message):
            account(SPECS["llama-3-8b"], 1, value)  # type: ignore[operator]


def test_overflow_is_refused_not_wrapped() -> None:
    """У массива 64 бита и переполнение молчит: точку, которой их не хватит, считать нельзя."""
    large = np.array([2**28])
    with pytest.raises(ValueError, match="длиннее 56 бит"):
        kv_cache_bytes(SPECS["llama-3-8b"], large, large)  # type: ignore[arg-type]
    assert kv_cache_bytes(SPECS["llama-3-8b"], 2**28, 2**28).total == 2**56 * 131_072


def test_zero_axis_array_is_a_number() -> None:
    spec = SPECS["llama-3-8b"]
    assert kv_cache_bytes(spec, np.int64(3), np.array(512)).total == kv_cache_bytes(spec, 3, 512).total  # type: ignore[arg-type]


def test_spec_itself_takes_no_arrays() -> None:
    with pytest.raises(ValueError, match="V = array"):
        SPECS["llama-3-8b"].replace(V=np.array([5, 6]))
