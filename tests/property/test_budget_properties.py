"""Свойства счетов на случайных моделях: рост по каждому размеру, порядки, точные отношения."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import TYPE_CHECKING

import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import GROWING, specs

from nanolm.budget import (
    ACTIVATIONS,
    ATTENTION_CONVENTIONS,
    CHECKPOINTING,
    KV_CONVENTIONS,
    OPTIMIZERS,
    RECIPES,
    Account,
    attention_crossover,
    critical_batch,
    decode_step_time,
    flops_per_token,
    inference_memory,
    kv_cache_bytes,
    parameter_breakdown,
    training_memory,
)
from nanolm.ops import distinct_experts, pairs, parameter_shapes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nanolm.spec import Spec

batches = st.integers(1, 6)
contexts = st.integers(1, 90)
recipes = st.sampled_from(tuple(RECIPES))
specs_with_heads = specs().filter(lambda spec: not spec.kv_rank)
specs_with_experts = specs().filter(lambda spec: bool(spec.experts))

#: Чего нет у самой NanoLM: сохранённые тензоры таких моделей не измерены.
NANOLM = {
    "shared_F": 0, "dense_layers": 0, "dense_F": 0, "pre_norms": 2, "post_norms": False, "qk_norm_wide": False,
}  # fmt: skip


def all_accounts(spec: Spec, B: int, S: int) -> Iterator[Account]:
    """Счета модели под всеми соглашениями, кроме рецептов: те — в своих тестах."""
    yield parameter_breakdown(spec)
    for convention in ATTENTION_CONVENTIONS:
        yield flops_per_token(spec, S, attention=convention)
    for kv in KV_CONVENTIONS:
        yield kv_cache_bytes(spec, B, S, kv=kv)
        yield inference_memory(spec, B, S, kv=kv)
    for activations in ACTIVATIONS:
        yield training_memory(spec, B, S, activations=activations)


def grown(before: Account, after: Account) -> bool:
    """Не убыл ни один компонент и ни один момент шага, а с ними и итог.

    Рабочие буферы — остаток пика: пик переходит в другой момент, и сами по себе они могут убыть.
    """
    names = [name for name in before if name != "workspace"]
    moments = getattr(before, "moments", {})
    return (
        after.total >= before.total
        and all(after[name] >= before[name] for name in names)
        and all(getattr(after, "moments", {})[name] >= size for name, size in moments.items())
    )


# --- закрытые формулы на случайных моделях ------------------------------------------------------


@given(specs())
def test_parameters_equal_the_closed_formula(spec: Spec) -> None:
    account = parameter_breakdown(spec)
    assert dict(account) == oracles.parameters(spec)
    assert account.active == sum(oracles.parameters(spec, active=True).values())


@given(specs())
def test_named_tensors_add_up_to_the_parameters(spec: Spec) -> None:
    total = 0
    for shape in parameter_shapes(spec).values():
        size = 1
        for axis in shape:
            size *= axis
        total += size
    assert total == parameter_breakdown(spec).total


@given(specs(), contexts)
def test_flops_equal_the_closed_formula(spec: Spec, S: int) -> None:
    for convention in ("full", "windowed"):
        account = flops_per_token(spec, S, training=False, attention=convention)
        assert dict(account) == oracles.forward_flops(spec, S, convention)
    causal = flops_per_token(spec, S, training=False, attention="causal")
    exact = oracles.forward_flops(spec, S, "causal")
    # Строк у scores — две на каждую группу слоёв с одним окном, и каждая округлена.
    assert abs(causal["scores"] - exact["scores"]) <= len(set(spec.windows))
    assert {name: causal[name] for name in causal if name != "scores"} == {
        name: value for name, value in exact.items() if name != "scores"
    }


@given(specs(), batches, contexts, st.sampled_from(("theory", "transformers", "engine")))
def test_cache_equals_the_closed_formula(spec: Spec, B: int, S: int, kv: str) -> None:
    assert kv_cache_bytes(spec, B, S, "fp32", kv).total == 4 * B * oracles.cached_values(spec, S, kv)


@given(
    specs_with_heads.map(lambda spec: spec.replace(**NANOLM)),
    batches,
    contexts,
    recipes,
    st.sampled_from(("fused", "naive")),
    st.sampled_from(CHECKPOINTING),
)
def test_saved_activations_equal_the_measured_list(
    spec: Spec, B: int, S: int, recipe: str, attention: str, checkpointing: str
) -> None:
    account = training_memory(spec, B, S, recipe, attention=attention, checkpointing=checkpointing)
    expected = oracles.saved_activations(spec, B, S, recipe, attention, checkpointing)
    assert (account["activations"], account["logits"]) == expected


# --- счёт внутри себя ---------------------------------------------------------------------------


@given(specs(), batches, contexts)
def test_total_is_the_sum_of_details_and_lines_multiply(spec: Spec, B: int, S: int) -> None:
    for account in all_accounts(spec, B, S):
        assert account.total == sum(account.values()) == sum(line.value for line in account.details)
        for line in account.details:
            product = Fraction(1)
            for factor in line.numbers.partition(" / ")[0].split("·"):
                product *= Fraction(factor.replace(",", "."))
            assert abs(product / line.over - line.value) <= Fraction(1, 2)
            assert (line.value >= 0) is not line.name.startswith("freed_")
        assert all(value >= 0 for value in account.values())


@given(specs(), batches, contexts)
def test_peak_covers_the_total(spec: Spec, B: int, S: int) -> None:
    account = inference_memory(spec, B, S)
    assert account.peak > account.total


# --- рост ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", GROWING)
@given(spec=specs(), B=batches, S=contexts)
def test_accounts_grow_with_every_size(field: str, spec: Spec, B: int, S: int) -> None:
    """Ни один счёт не убывает ни по одному размеру, а число параметров растёт строго."""
    if field == "L" and isinstance(spec.window, tuple):
        spec = spec.replace(window=None)
    bigger = spec.replace(**{field: getattr(spec, field) + 1})
    for before, after in zip(all_accounts(spec, B, S), all_accounts(bigger, B, S), strict=True):
        assert grown(before, after), before.title
    # Ширина F у модели, где эксперты есть хоть в одном слое, тоже видна: плотных слоёв не больше L − 1.
    assert parameter_breakdown(bigger).total > parameter_breakdown(spec).total


@given(specs(), batches, contexts)
def test_accounts_grow_with_heads(spec: Spec, B: int, S: int) -> None:
    """Больше групп голов при той же G: растут и запросы, и ключи, и кеш."""
    wider = spec.replace(N=spec.N + spec.G, K=spec.K + 1)
    for before, after in zip(all_accounts(spec, B, S), all_accounts(wider, B, S), strict=True):
        assert grown(before, after), before.title
    assert parameter_breakdown(wider).total > parameter_breakdown(spec).total


@given(specs(), batches, contexts)
def test_memory_grows_with_batch_and_context(spec: Spec, B: int, S: int) -> None:
    for account in (training_memory, inference_memory):
        base = account(spec, B, S)
        for more in (account(spec, B + 1, S), account(spec, B, S + 1)):
            assert grown(base, more)
        assert account(spec, B + 1, S).total > base.total
    assert inference_memory(spec, B + 1, S).peak > inference_memory(spec, B, S).peak
    assert kv_cache_bytes(spec, B + 1, S).total * B == kv_cache_bytes(spec, B, S).total * (B + 1)


@given(specs(), contexts)
def test_flops_grow_with_context(spec: Spec, S: int) -> None:
    for convention in ATTENTION_CONVENTIONS:
        less, more = (flops_per_token(spec, n, attention=convention).total for n in (S, S + 1))
        assert more > less if convention == "full" else more >= less


@given(specs_with_experts)
def test_experts_cost_memory_and_chosen_ones_cost_flops(spec: Spec) -> None:
    more_stored = spec.replace(experts=spec.experts + 1)
    assert parameter_breakdown(more_stored).total > parameter_breakdown(spec).total
    assert flops_per_token(more_stored)["ffn"] == flops_per_token(spec)["ffn"]
    if spec.experts_per_token < spec.experts:
        more_used = spec.replace(experts_per_token=spec.experts_per_token + 1)
        assert parameter_breakdown(more_used).total == parameter_breakdown(spec).total
        assert parameter_breakdown(more_used).active > parameter_breakdown(spec).active
        assert flops_per_token(more_used)["ffn"] > flops_per_token(spec)["ffn"]


# --- точные отношения ---------------------------------------------------------------------------


@given(specs_with_heads, batches, contexts)
def test_gqa_saves_exactly_N_over_K(spec: Spec, B: int, S: int) -> None:
    mha = spec.replace(K=spec.N)
    for kv in ("theory", "transformers", "engine"):
        assert kv_cache_bytes(mha, B, S, kv=kv).total == spec.G * kv_cache_bytes(spec, B, S, kv=kv).total
    assert flops_per_token(mha, S)["scores"] == flops_per_token(spec, S)["scores"]


@given(specs())
def test_tying_removes_exactly_the_head(spec: Spec) -> None:
    tied, untied = spec.replace(tie_embeddings=True), spec.replace(tie_embeddings=False)
    assert parameter_breakdown(untied).total - parameter_breakdown(tied).total == spec.V * spec.D
    assert parameter_breakdown(untied).non_embedding == parameter_breakdown(tied).non_embedding
    assert dict(flops_per_token(untied)) == dict(flops_per_token(tied))


@given(specs(), contexts)
def test_training_is_three_forwards(spec: Spec, S: int) -> None:
    for convention in ("full", "windowed"):
        forward = flops_per_token(spec, S, training=False, attention=convention)
        assert dict(flops_per_token(spec, S, attention=convention)) == {n: 3 * value for n, value in forward.items()}


# --- порядки ------------------------------------------------------------------------------------


@given(specs(), contexts)
def test_causal_windowed_full(spec: Spec, S: int) -> None:
    causal, windowed, full = (flops_per_token(spec, S, attention=kind).total for kind in ("causal", "windowed", "full"))
    assert causal <= windowed <= full
    if spec.window is None:
        assert windowed == full


@given(specs(), batches, contexts, recipes, st.sampled_from(("fused", "naive")))
def test_checkpointing_saves(spec: Spec, B: int, S: int, recipe: str, attention: str) -> None:
    """full ≤ selective ≤ none. Маску, которую держит выборочный пересчёт наивного внимания, вычитаем."""
    none, selective, full = (
        training_memory(spec, B, S, recipe, attention=attention, checkpointing=kind)
        for kind in ("none", "selective", "full")
    )
    masks = sum(line.value for line in selective.details if line.name == "mask" and attention == "naive")
    assert full["activations"] <= selective["activations"]
    assert selective["activations"] - masks <= none["activations"]
    assert all(none[name] == full[name] for name in ("weights", "gradients", "optimizer", "logits", "input"))


@given(specs(), batches, contexts, recipes)
def test_fused_attention_saves_the_square(spec: Spec, B: int, S: int, recipe: str) -> None:
    """Вместо матрицы S×S на голову — fp32-сумма на строку и, если окно короче контекста, одна маска."""
    fused, naive = (training_memory(spec, B, S, recipe, attention=kind)["activations"] for kind in ("fused", "naive"))
    size = 4 if recipe == "fp32" else 2
    narrow = len({window for window in spec.windows if window is not None and window < S})
    assert naive - fused == spec.L * B * spec.N * S * (S * size - 4) - narrow * S * S * size


@given(specs(), batches, contexts, recipes, st.sampled_from(("fused", "naive")), st.sampled_from(CHECKPOINTING))
def test_total_is_the_largest_moment(
    spec: Spec, B: int, S: int, recipe: str, attention: str, checkpointing: str
) -> None:
    """Пик шага — наибольший из моментов, и ни один не меньше того, что живо весь шаг."""
    account = training_memory(spec, B, S, recipe, attention=attention, checkpointing=checkpointing)
    assert account.total == max(account.moments.values()) == account.moments[account.moment]
    always = sum(account[name] for name in ("weights", "master_weights", "gradients", "optimizer", "input"))
    assert min(account.moments.values()) >= always
    loss = account.moments["градиент функции потерь"] - always - account["activations"] - account["logits"]
    assert loss >= 4 * B * S * spec.V
    assert account["workspace"] >= 4 * B * S * spec.V


@given(specs(), recipes)
def test_optimizers_in_order(spec: Spec, recipe: str) -> None:
    sgd, momentum, adamw = (
        training_memory(spec, recipe=recipe, optimizer=kind)["optimizer"] for kind in ("sgd", "momentum", "adamw")
    )
    assert sgd == 0
    assert adamw == 2 * momentum > 0
    eight = training_memory(spec, recipe=recipe, optimizer="adamw8bit")["optimizer"]
    # При чистой bf16 состояние и так 2 байта, а мелкие тензоры 8-битный Adam держит в fp32.
    assert eight <= adamw * (2 if recipe == "bf16" else 1)
    assert set(OPTIMIZERS) == {"sgd", "momentum", "adamw", "adamw8bit"}


@given(specs(), batches, contexts)
def test_counted_activations_in_order(spec: Spec, B: int, S: int) -> None:
    """Размноженные до N голов ключи не меньше неразмноженных; равны они при G = 1."""
    every, expanded = (training_memory(spec, B, S, activations=kind)["activations"] for kind in ("all", "expanded"))
    assert expanded >= every
    if spec.G == 1:
        assert expanded == every


@given(specs(), contexts)
def test_cache_conventions_in_order(spec: Spec, S: int) -> None:
    held, theory, reserved = (
        kv_cache_bytes(spec, 1, S, kv=kind).total for kind in ("transformers", "theory", "engine")
    )
    assert held <= theory <= reserved
    if spec.window is None:
        assert held == theory == reserved


@given(specs(), batches, contexts)
def test_bytes_in_proportion_to_dtype(spec: Spec, B: int, S: int) -> None:
    fp8, bf16, fp32 = (inference_memory(spec, B, S, dtype).total for dtype in ("fp8", "bf16", "fp32"))
    assert 4 * fp8 == 2 * bf16 == fp32


# --- пары и эксперты ----------------------------------------------------------------------------


@given(st.integers(1, 30), st.integers(0, 30), st.booleans(), st.one_of(st.none(), st.integers(1, 40)))
def test_pairs_equal_the_mask(T: int, earlier: int, causal: bool, window: int | None) -> None:
    assert pairs(T, T + earlier, causal, window) == oracles.visible_pairs(T, T + earlier, causal, window)


@given(st.integers(1, 10**9), st.integers(0, 10**9), st.one_of(st.none(), st.integers(1, 10**9)))
def test_pairs_of_long_contexts_are_exact(T: int, earlier: int, window: int | None) -> None:
    """Прибавить один запрос — прибавить ровно то, что видит он: целые не теряют разрядов."""
    S = T + earlier
    last = min(S + 1, window or S + 1)
    assert pairs(T + 1, S + 1, True, window) == pairs(T, S, True, window) + last


@given(st.integers(1, 40), st.data())
def test_distinct_experts_bounds(E: int, data: st.DataObject) -> None:
    k, B = data.draw(st.integers(1, E)), data.draw(st.integers(1, 50))
    hit = distinct_experts(E, k, B)
    assert k * (1 - 1e-9) <= hit <= min(E, k * B) * (1 + 1e-9)
    assert distinct_experts(E, k, B + 1) >= hit
    assert distinct_experts(E, k, 1) == pytest.approx(k)


@pytest.mark.parametrize(("E", "k", "B"), [(8, 2, 4), (64, 6, 16), (128, 8, 40)])
def test_distinct_experts_against_a_draw(E: int, k: int, B: int) -> None:
    """Монте-Карло: 4000 пакетов с равномерным выбором; допуск — пять стандартных ошибок."""
    dice = random.Random(20)
    counts = [len({e for _ in range(B) for e in dice.sample(range(E), k)}) for _ in range(4000)]
    mean = sum(counts) / len(counts)
    error = (sum((count - mean) ** 2 for count in counts) / len(counts) ** 2) ** 0.5
    assert abs(distinct_experts(E, k, B) - mean) < 5 * error


# --- ответы -------------------------------------------------------------------------------------


@given(specs(), st.sampled_from(tuple(ATTENTION_CONVENTIONS)))
def test_attention_crossover_is_the_first_such_context(spec: Spec, convention: str) -> None:
    def reached(S: int) -> bool:
        forward = flops_per_token(spec, S, training=False, attention=convention)
        return forward["scores"] >= forward["attention"] + forward["ffn"] + forward["router"]

    S = attention_crossover(spec, convention)
    if S is None:
        assert convention != "full"
        assert not reached(10**6)
    else:
        assert reached(S)
        assert S == 1 or not reached(S - 1)


@given(specs(), batches, contexts, st.sampled_from(("t4", "a100-80", "h100-sxm")))
def test_decode_step_grows(spec: Spec, B: int, S: int, card: str) -> None:
    step = decode_step_time(spec, B, S, card)
    for more in (decode_step_time(spec, B + 1, S, card), decode_step_time(spec, B, S + 1, card)):
        assert more.memory_seconds >= step.memory_seconds
        assert more.compute_seconds >= step.compute_seconds
        assert more.seconds >= step.seconds
    assert step.flops * (B + 1) == decode_step_time(spec, B + 1, S, card).flops * B


@given(specs(), st.integers(1, 8), st.sampled_from(("t4", "h100-sxm")))
def test_critical_batch_is_the_first_bound_by_compute(spec: Spec, S: int, card: str) -> None:
    batch = critical_batch(spec, S, card)
    if batch is None:
        assert decode_step_time(spec, 2**24, S, card).bound == "память"
    else:
        assert decode_step_time(spec, batch, S, card).bound == "вычисления"
        assert batch == 1 or decode_step_time(spec, batch - 1, S, card).bound == "память"
