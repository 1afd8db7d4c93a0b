"""Квантованные веса случайных моделей: байты — сумма по тензорам, чтение не больше хранения, порядок форматов."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import specs
from test_quantization import stored_bytes

from nanolm.budget import decode_step_time, inference_memory, kv_cache_bytes
from nanolm.ops import table
from nanolm.quantization import Quantization, named

if TYPE_CHECKING:
    from nanolm.spec import Spec

#: Форматы, которые берут матрицу любого размера.
ANY_SHAPE = ("nf4", "nf4-double", "fp4", "int8", "fp8-block", "fp8-row", "fp8-tensor")


def weights(spec: Spec, compressed: str | Quantization | None) -> int:
    return inference_memory(spec, 1, 1, weights=compressed)["weights"]


@pytest.mark.parametrize("name", ANY_SHAPE)
@given(spec=specs())
def test_weights_are_the_sum_over_tensors(name: str, spec: Spec) -> None:
    assert weights(spec, name) == stored_bytes(name, spec)


@given(spec=specs(), name=st.sampled_from(ANY_SHAPE), data=st.data())
def test_every_untouched_layer_returns_its_bytes(spec: Spec, name: str, data: st.DataObject) -> None:
    """Исключённые слои стоят как обычные, остальные — как квантованные: поровну на слой."""
    whole = named(name, spec)
    op = data.draw(st.sampled_from([op for op in table(spec) if whole.layers(op)]))
    left = data.draw(st.integers(0, op.layers))
    parts = [weights(spec, Quantization(name, whole.parts, kept={op.name: kept})) for kept in (0, left, op.layers)]
    assert (parts[1] - parts[0]) * op.layers == (parts[2] - parts[0]) * left


@given(spec=specs(), name=st.sampled_from(ANY_SHAPE), B=st.integers(1, 50))
def test_a_step_reads_no_more_than_is_stored(spec: Spec, name: str, B: int) -> None:
    """Из эмбеддинга читаются строки токенов, у связанной головы — вся таблица."""
    read = decode_step_time(spec, B, 1, "h100-sxm", weights=name).weight_bytes
    tables = 2 * spec.D * (spec.V + spec.learned_positions)
    rows = 2 * B * spec.D * (2 if spec.learned_positions else 1)
    head = 2 * spec.V * spec.D if spec.tie_embeddings else 0
    assert read <= weights(spec, name) - tables + rows + head + 1e-6


@given(spec=specs(), B=st.integers(1, 6), S=st.integers(1, 90), block=st.integers(1, 40))
def test_blocks_round_up_and_never_by_a_whole_block(spec: Spec, B: int, S: int, block: int) -> None:
    exact, paged = (kv_cache_bytes(spec, B, S, block=size).total for size in (1, block))
    one = kv_cache_bytes(spec, B, 1).total
    assert exact <= paged <= exact + (block - 1) * one
    assert kv_cache_bytes(spec, B, S, kv="engine", block=block).total == one * -(-S // block) * block
