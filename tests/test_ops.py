"""Таблица операций: пары внимания перебором, строки и их веса, ни одного мёртвого поля Spec."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from oracles import visible_pairs

from nanolm import budget, ops
from nanolm.budget import flops_per_token, inference_memory, kv_cache_bytes, parameter_breakdown, training_memory
from nanolm.ops import distinct_experts, pairs, parameter_shapes, table, window_groups
from nanolm.spec import Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Fields = dict[str, object]

SMALL: Fields = {"V": 97, "D": 48, "L": 5, "N": 6, "K": 3, "H": 10, "F": 40, "S": 50}
MOE: Fields = {**SMALL, "experts": 7, "experts_per_token": 2}
DENSE_FIRST: Fields = {**MOE, "dense_layers": 2, "dense_F": 90}
LATENT: Fields = {**SMALL, "K": 6, "kv_rank": 16, "q_rank": 12, "rope_H": 4, "value_H": 8}


def spec_of(fields: Fields) -> Spec:
    return Spec(**fields)  # type: ignore[arg-type]


# --- пары «запрос — ключ» -----------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 1, 2, 3, 7, 8, 50])
@pytest.mark.parametrize("causal", [False, True])
def test_pairs_against_the_mask_itself(causal: bool, window: int | None) -> None:
    for S in range(1, 13):
        for T in range(1, S + 1):
            assert pairs(T, S, causal, window) == visible_pairs(T, S, causal, window), (T, S)


def test_pairs_known_numbers() -> None:
    """Половина квадрата — это N²/2 с диагональю: N(N + 1)/2, а не N²/2."""
    assert pairs(8192, 8192) == 8192**2
    assert pairs(8192, 8192, causal=True) == 8192 * 8193 // 2
    assert pairs(1, 8192, causal=True) == 8192
    assert pairs(1, 8192, causal=True, window=4096) == 4096
    assert pairs(4, 6, causal=True) == 3 + 4 + 5 + 6


# --- сколько разных экспертов -------------------------------------------------------------------


def expected_distinct(E: int, k: int, B: int) -> Fraction:
    """Среднее по всем наборам из B независимых выборов k экспертов из E — полным перебором."""
    choices = [frozenset(c) for c in itertools.combinations(range(E), k)]
    sizes = Counter(len(frozenset().union(*batch)) for batch in itertools.product(choices, repeat=B))
    return Fraction(sum(size * count for size, count in sizes.items()), sum(sizes.values()))


@pytest.mark.parametrize(("E", "k", "B"), [(3, 1, 1), (3, 1, 4), (4, 2, 3), (5, 3, 2), (4, 4, 2), (1, 1, 3), (6, 1, 3)])
def test_distinct_experts_against_enumeration(E: int, k: int, B: int) -> None:
    assert distinct_experts(E, k, B) == pytest.approx(float(expected_distinct(E, k, B)), rel=1e-12)


def test_distinct_experts_ends() -> None:
    """Один токен читает k экспертов, огромный пакет — всех; Mixtral при 16 токенах — почти всех."""
    assert distinct_experts(8, 2, 1) == pytest.approx(2)
    assert distinct_experts(8, 2, 16) == pytest.approx(7.92, abs=0.005)
    assert distinct_experts(8, 2, 10**6) == pytest.approx(8)


# --- строки -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [SMALL, MOE, DENSE_FIRST, LATENT], ids=["dense", "moe", "mixed", "latent"])
def test_every_weight_has_a_parameter_and_shapes_add_up(fields: Fields) -> None:
    """Сумма по именованным тензорам равна счёту параметров: ни один вес не посчитан без имени и дважды."""
    spec = spec_of(fields)
    shapes = parameter_shapes(spec)
    total = 0
    for shape in shapes.values():
        size = 1
        for axis in shape:
            size *= axis
        total += size
    assert total == parameter_breakdown(spec).total
    assert not any("{" in name for name in shapes)


def test_shapes_of_a_small_model() -> None:
    """Один слой выписан вручную: размеры и порядок осей такие же, как у модуля torch [выход, вход]."""
    spec = Spec(V=11, D=6, L=1, N=4, K=2, H=5, F=7, qkv_bias=True)
    assert parameter_shapes(spec) == {
        "embedding.weight": (11, 6),
        "layers.0.attention_norm.weight": (6,),
        "layers.0.attention.query.weight": (20, 6),
        "layers.0.attention.query.bias": (20,),
        "layers.0.attention.key.weight": (10, 6),
        "layers.0.attention.key.bias": (10,),
        "layers.0.attention.value.weight": (10, 6),
        "layers.0.attention.value.bias": (10,),
        "layers.0.attention.output.weight": (6, 20),
        "layers.0.ffn_norm.weight": (6,),
        "layers.0.ffn.gate.weight": (7, 6),
        "layers.0.ffn.up.weight": (7, 6),
        "layers.0.ffn.down.weight": (6, 7),
        "norm.weight": (6,),
        "head.weight": (11, 6),
    }


def test_shapes_of_experts_and_dense_layers() -> None:
    """Плотные слои идут первыми, у смеси — по имени на эксперта."""
    shapes = parameter_shapes(spec_of(DENSE_FIRST))
    assert shapes["layers.1.ffn.up.weight"] == (90, 48)
    assert shapes["layers.2.ffn.experts.6.up.weight"] == (40, 48)
    assert "layers.2.ffn.up.weight" not in shapes
    assert "layers.1.ffn.experts.0.up.weight" not in shapes
    assert "layers.2.ffn.experts.7.up.weight" not in shapes
    assert shapes["layers.4.ffn.router.weight"] == (7, 48)


def test_tied_head_has_no_weight_but_keeps_its_product() -> None:
    tied = spec_of({**SMALL, "tie_embeddings": True})
    assert "head.weight" not in parameter_shapes(tied)
    assert flops_per_token(tied)["lm_head"] == flops_per_token(spec_of(SMALL))["lm_head"] > 0


@pytest.mark.parametrize("fields", [SMALL, MOE, DENSE_FIRST, LATENT], ids=["dense", "moe", "mixed", "latent"])
def test_einsum_of_every_row_is_consistent(fields: Fields) -> None:
    """Ось результата есть у операндов, а сокращённая ось — у обоих: иначе это не произведение."""
    for op in table(spec_of(fields)):
        if not op.product:
            continue
        operands, _, result = op.product.partition("->")
        left, right = operands.split(",")
        assert set(result) <= set(left) | set(right), op
        summed = (set(left) | set(right)) - set(result)
        assert summed <= set(left) & set(right), op
        assert summed, op


def test_titles_and_names_are_given_to_every_row() -> None:
    for fields in (SMALL, MOE, DENSE_FIRST, LATENT):
        rows = table(spec_of(fields))
        assert all(op.title and op.name for op in rows)
        assert len({op.name for op in rows}) == len(rows)
        assert {op.component for op in rows} <= set(budget.COMPONENTS["parameters"]) | {"scores"}


def test_window_groups_cover_every_layer_once() -> None:
    spec = spec_of({**SMALL, "window": (8, None, 8, 4, None)})
    assert sorted((window or 0, layers) for (_, layers), window in window_groups(spec)) == [(0, 2), (4, 1), (8, 2)]
    assert window_groups(spec_of(SMALL)) == [(("L", 5), None)]


# --- мёртвых полей нет --------------------------------------------------------------------------

#: Поле → модель и другое значение поля, допустимое в ней.
CHANGES: dict[str, tuple[Fields, object]] = {
    "V": (SMALL, 101),
    "D": (SMALL, 50),
    "L": (SMALL, 6),
    "N": (SMALL, 9),
    "K": (SMALL, 2),
    "H": (SMALL, 11),
    "F": (SMALL, 41),
    "S": (SMALL, 51),
    "tie_embeddings": (SMALL, True),
    "experts": (MOE, 8),
    "experts_per_token": (MOE, 3),
    "shared_F": (MOE, 24),
    "dense_layers": (DENSE_FIRST, 3),
    "dense_F": (DENSE_FIRST, 91),
    "router_bias": (MOE, True),
    "gated_ffn": (SMALL, False),
    "qkv_bias": (SMALL, True),
    "out_bias": (SMALL, True),
    "ffn_bias": (SMALL, True),
    "qk_norm": (SMALL, True),
    "qk_norm_wide": ({**SMALL, "qk_norm": True}, True),
    "sinks": (SMALL, True),
    "norm_bias": (SMALL, True),
    "pre_norms": (SMALL, 1),
    "post_norms": (SMALL, True),
    "learned_positions": (SMALL, 50),
    "window": (SMALL, 16),
    "kv_rank": (LATENT, 17),
    "q_rank": (LATENT, 13),
    "rope_H": (LATENT, 6),
    "value_H": (LATENT, 9),
}

#: Счёт → его строки. Окно видно во FLOPs только под своим соглашением.
ACCOUNTS: dict[str, Callable[[Spec], object]] = {
    "parameters": lambda spec: (parameter_breakdown(spec), parameter_breakdown(spec).active),
    "flops": lambda spec: flops_per_token(spec, attention="causal"),
    "kv_cache": kv_cache_bytes,
    "training": training_memory,
    "inference": inference_memory,
}

#: Поле → счета, которые обязаны измениться; все остальные обязаны остаться прежними.
SEEN_BY: dict[str, str] = {
    "V": "parameters flops training inference",
    "D": "parameters flops training inference",
    "L": "parameters flops kv_cache training inference",
    "N": "parameters flops training inference",
    "K": "parameters flops kv_cache training inference",
    "H": "parameters flops kv_cache training inference",
    "F": "parameters flops training inference",
    "S": "flops kv_cache training inference",
    "tie_embeddings": "parameters training inference",
    "experts": "parameters flops training inference",
    "experts_per_token": "parameters flops training",
    "shared_F": "parameters flops training inference",
    "dense_layers": "parameters flops training inference",
    "dense_F": "parameters flops training inference",
    "router_bias": "parameters training inference",
    "gated_ffn": "parameters flops training inference",
    "qkv_bias": "parameters training inference",
    "out_bias": "parameters training inference",
    "ffn_bias": "parameters training inference",
    "qk_norm": "parameters training inference",
    "qk_norm_wide": "parameters training inference",
    "sinks": "parameters training inference",
    "norm_bias": "parameters training inference",
    "pre_norms": "parameters training inference",
    "post_norms": "parameters training inference",
    "learned_positions": "parameters training inference",
    "window": "flops kv_cache training inference",
    "kv_rank": "parameters flops kv_cache training inference",
    "q_rank": "parameters flops training inference",
    "rope_H": "parameters flops kv_cache training inference",
    "value_H": "parameters flops training inference",
}


def moved_accounts(field: str) -> Iterator[str]:
    """Счета, у которых от нового значения поля изменился итог, компонент или строка."""
    fields, value = CHANGES[field]
    before, after = spec_of(fields), spec_of({**fields, field: value})
    for name, account in ACCOUNTS.items():
        if _print(account(before)) != _print(account(after)):
            yield name


def _print(account: object) -> object:
    """Ненулевые строки счёта: строка с нулём (поиск в эмбеддинге) ничего не меняет."""
    accounts = account if isinstance(account, tuple) else (account,)
    return [
        [(line.component, line.name, line.value) for line in one.details if line.value]
        if hasattr(one, "details")
        else one
        for one in accounts
    ]


def test_every_field_has_a_case() -> None:
    """Новое поле Spec без строчки здесь — провал: никто не проверил, что его видят счета."""
    assert set(CHANGES) == set(SEEN_BY) == set(Spec.__slots__)


@pytest.mark.parametrize("field", Spec.__slots__)
def test_field_is_seen_by_exactly_these_accounts(field: str) -> None:
    """Поле, о котором забыл один счёт, — обычная беда калькуляторов: добавили голову, забыли KV."""
    assert set(moved_accounts(field)) == set(SEEN_BY[field].split())


@pytest.mark.parametrize("field", ["qkv_bias", "H", "experts_per_token", "window"])
def test_a_dead_field_would_be_caught(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Проверка проверки: если таблица перестаёт видеть поле, `moved_accounts` это показывает."""
    fields, _ = CHANGES[field]
    frozen = fields.get(field, getattr(spec_of(fields), field))

    def blind(function: Callable[[Spec], object]) -> Callable[[Spec], object]:
        return lambda spec: function(spec.replace(**{field: frozen}))

    for name in ("parameters", "flops", "kv_cache", "training", "inference"):
        monkeypatch.setitem(ACCOUNTS, name, blind(ACCOUNTS[name]))
    assert list(moved_accounts(field)) == []


def test_table_is_not_cached_between_models() -> None:
    """Две модели подряд не делят строк: вторая не наследует размеров первой."""
    first, second = spec_of(SMALL), spec_of({**SMALL, "L": 9})
    assert {op.layers for op in table(first)} == {1, 5}
    assert {op.layers for op in table(second)} == {1, 9}
    assert ops.table(first) is not ops.table(second)
