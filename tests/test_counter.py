"""Счётчик FLOPs: слепые пятна счётчика torch закрыты."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from nanolm.counter import count

B, N, K, T, H = 2, 6, 2, 16, 8
FORWARD = 2 * 2 * B * N * T * T * H


def attention() -> torch.Tensor:
    query, key, value = (torch.ones(B, heads, T, H, requires_grad=True) for heads in (N, K, K))
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


def test_fused_attention_on_a_cpu_is_not_free() -> None:
    with FlopCounterMode(display=False) as blind:
        attention()
    assert blind.get_total_flops() == 0, "torch научился сам: свою формулу можно убрать"
    assert count(attention) == FORWARD


def test_fused_backward_repeats_the_scores() -> None:
    assert count(lambda: attention().sum().backward()) == FORWARD + 5 * FORWARD // 2


def test_grouped_product_counts_every_row_once() -> None:
    rows, inner, outer, groups = 12, 16, 32, 3
    left = torch.ones(rows, inner, dtype=torch.bfloat16)
    right = torch.ones(groups, inner, outer, dtype=torch.bfloat16)
    ends = torch.tensor([2, 7, rows], dtype=torch.int32)
    assert count(lambda: torch._grouped_mm(left, right, offs=ends)) == 2 * rows * inner * outer


@pytest.mark.parametrize("experts", [0, 4])
def test_transformers_models_count_as_the_account_says(experts: int) -> None:
    """Чужая модель, тот же счёт: у смеси transformers произведения экспертов сгруппированы."""
    import transformers

    from nanolm.budget import flops_per_token, hardware_flops_per_token
    from nanolm.spec import Spec

    sizes = {
        "vocab_size": 97, "hidden_size": 40, "intermediate_size": 56, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "max_position_embeddings": 64,
    }  # fmt: skip
    config = (
        transformers.MixtralConfig(**sizes, num_local_experts=experts, num_experts_per_tok=2)
        if experts
        else transformers.LlamaConfig(**sizes)
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    spec = Spec(V=97, D=40, L=2, N=4, K=2, H=12, F=56, S=64, experts=experts, experts_per_token=2 if experts else 0)
    tokens = torch.zeros(B, T, dtype=torch.long)
    assert count(lambda: model(tokens)) == B * T * flops_per_token(spec, T, training=False).total
    total = B * T * hardware_flops_per_token(spec, T).total
    assert count(lambda: model(tokens).logits.sum().backward()) == total
