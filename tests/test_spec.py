"""Spec: значения по умолчанию, правила, неизменяемость. Каждое правило нарушается по одному."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from nanolm.spec import LIMIT, NOTATION, Spec, shown, whole

SMALL = {"V": 97, "D": 48, "L": 3, "N": 6}
MOE = {**SMALL, "experts": 5, "experts_per_token": 2}
LATENT = {**SMALL, "kv_rank": 16, "rope_H": 4, "value_H": 8}


def refused(message: str, **fields: object) -> None:
    """Spec с такими полями не создаётся, и сообщение содержит `message` дословно."""
    with pytest.raises(ValueError, match=re.escape(message)):
        Spec(**fields)  # type: ignore[arg-type]


# --- значения по умолчанию ----------------------------------------------------------------------


def test_defaults_follow_from_D_and_N() -> None:
    spec = Spec(**SMALL)
    assert (spec.K, spec.H, spec.F, spec.S) == (6, 8, 128, 2048)
    assert spec.G == 1
    assert not spec.tie_embeddings
    assert spec.gated_ffn
    assert (spec.experts, spec.experts_per_token, spec.learned_positions) == (0, 0, 0)
    assert spec.window is None


@pytest.mark.parametrize(("D", "F"), [(1, 3), (2, 5), (3, 8), (4, 11), (5, 13), (768, 2048), (4096, 10923)])
def test_swiglu_width_is_8D_over_3_to_the_nearest(D: int, F: int) -> None:
    """4D — ширина простого блока; у SwiGLU с ней параметров стало бы в полтора раза больше."""
    assert Spec(V=1, D=D, L=1, N=1).F == F
    assert Spec(V=1, D=D, L=1, N=1, gated_ffn=False).F == 4 * D


def test_head_size_is_independent_of_D_over_N() -> None:
    assert Spec(**SMALL, H=20).H == 20
    assert Spec(V=1, D=7, L=1, N=2, H=5).H == 5
    refused("H не задан, а D = 7 не делится на N = 2", V=1, D=7, L=1, N=2)


@pytest.mark.parametrize(("K", "G"), [(1, 6), (2, 3), (3, 2), (6, 1)])
def test_group_size(K: int, G: int) -> None:
    assert Spec(**SMALL, K=K).G == G


# --- правила ------------------------------------------------------------------------------------

SIZES = ("V", "D", "L", "N", "K", "H", "F", "S")


@pytest.mark.parametrize("field", SIZES)
@pytest.mark.parametrize("value", [0, -1, -(10**30)])
def test_sizes_are_positive(field: str, value: int) -> None:
    refused(f"{field} = {shown(value)}: нужно целое число не меньше 1", **{**SMALL, field: value})


@pytest.mark.parametrize("field", SIZES)
@pytest.mark.parametrize("value", [1.5, 2.0, "3", True, float("nan"), [1], int])
def test_sizes_are_integers(field: str, value: object) -> None:
    refused(f"{field} = {value!r}: нужно целое число", **{**SMALL, field: value})


@pytest.mark.parametrize("field", ["V", "D", "L", "N"])
def test_required_sizes_have_no_none(field: str) -> None:
    refused(f"{field} = None: нужно целое число", **{**SMALL, field: None})


@pytest.mark.parametrize("field", [*SIZES, "experts", "experts_per_token", "learned_positions"])
@pytest.mark.parametrize("value", [LIMIT + 1, 10**30, 10**5000], ids=["limit", "30 digits", "5000 digits"])
def test_sizes_beyond_any_model_are_refused(field: str, value: int) -> None:
    """10⁵⁰⁰⁰ не печатается десятичными цифрами: сообщение обойдётся без них."""
    refused(
        f"{field} = {shown(value)}: больше предела 1\u00a0000\u00a0000\u00a0000\u00a0000", **{**SMALL, field: value}
    )


@pytest.mark.parametrize("field", [name for name, value in Spec(**SMALL).to_dict().items() if isinstance(value, bool)])
@pytest.mark.parametrize("value", ["yes", None, 0, 1, 10**5000], ids=["text", "None", "0", "1", "5000 digits"])
def test_flags_are_booleans(field: str, value: object) -> None:
    refused(f"{field} = {shown(value)}: нужно True или False", **{**SMALL, field: value})


def test_heads_divide_into_groups() -> None:
    refused("K = 4: N = 6 должно делиться на K без остатка", **SMALL, K=4)
    refused("K = 12: N = 6 должно делиться на K без остатка", **SMALL, K=12)


def test_experts_rules() -> None:
    refused("experts_per_token = 2: у модели без экспертов должно быть 0", **SMALL, experts_per_token=2)
    refused("experts_per_token = 0: при experts = 4 нужно от 1 до 4", **SMALL, experts=4)
    refused("experts_per_token = 5: при experts = 4 нужно от 1 до 4", **SMALL, experts=4, experts_per_token=5)
    refused("experts = -1: нужно целое число не меньше 0", **SMALL, experts=-1)


@pytest.mark.parametrize(
    ("base", "field", "value"),
    [
        (SMALL, "shared_F", 8),
        (SMALL, "dense_layers", 1),
        (MOE, "dense_F", 8),
        (SMALL, "router_bias", True),
        (SMALL, "qk_norm_wide", True),
        (SMALL, "q_rank", 8),
        (SMALL, "rope_H", 8),
        (SMALL, "value_H", 8),
    ],
)
def test_field_without_its_owner_is_refused(base: dict[str, int], field: str, value: object) -> None:
    """Поле, которое без другого ничего не значит, молча не глотается."""
    refused(f"{field} = {value}: имеет смысл, только если задано поле ", **base, **{field: value})


def test_dense_layers_rules() -> None:
    refused("dense_layers = 4: слоёв всего L = 3", **MOE, dense_layers=4, dense_F=8)
    refused("dense_F не задан, а dense_layers = 1", **MOE, dense_layers=1)


def test_latent_attention_rules() -> None:
    Spec(**LATENT)
    refused("K = 3: у латентного внимания", **LATENT, K=3)
    refused("qk_norm = True: у латентного внимания", **LATENT, qk_norm=True)
    refused("rope_H не задан, а kv_rank = 16", **{**LATENT, "rope_H": 0})
    refused("value_H не задан, а kv_rank = 16", **{**LATENT, "value_H": 0})


def test_number_of_norms() -> None:
    refused("pre_norms = 3: нужно 0, 1 или 2", **SMALL, pre_norms=3)


# --- окно ---------------------------------------------------------------------------------------


def test_window_is_one_number_or_one_per_layer() -> None:
    assert Spec(**SMALL).windows == (None, None, None)
    assert Spec(**SMALL, window=16).windows == (16, 16, 16)
    assert Spec(**SMALL, window=(16, None, 16)).windows == (16, None, 16)
    assert Spec(**SMALL, window=[16, None, 8]).window == (16, None, 8)  # type: ignore[arg-type]


def test_equal_windows_are_one_window() -> None:
    """Одинаковые слои и одно число — одна модель: равны и хеш, и сравнение."""
    assert Spec(**SMALL, window=(16, 16, 16)) == Spec(**SMALL, window=16)
    assert hash(Spec(**SMALL, window=(16, 16, 16))) == hash(Spec(**SMALL, window=16))
    assert Spec(**SMALL, window=(None, None, None)).window is None


@pytest.mark.parametrize(
    ("window", "message"),
    [
        (0, "window = 0: нужно целое число не меньше 1"),
        ("8", "window = '8': нужно целое число"),
        ((8, 8), "window: задано слоёв 2, а L = 3"),
        ((), "window: задано слоёв 0, а L = 3"),
        ((8, 0, 8), "window[1] = 0: нужно целое число не меньше 1"),
        ((8, "x", 8), "window[1] = 'x': нужно целое число"),
    ],
)
def test_wrong_windows(window: object, message: str) -> None:
    refused(message, **SMALL, window=window)


# --- объект -------------------------------------------------------------------------------------


def test_fields_only_by_name() -> None:
    with pytest.raises(TypeError):
        Spec(97, 48, 3, 6)  # type: ignore[misc]
    with pytest.raises(TypeError):
        Spec(**SMALL, Z=1)  # type: ignore[call-arg]


def test_spec_is_frozen() -> None:
    spec = Spec(**SMALL)
    with pytest.raises(AttributeError, match="Spec неизменяем: поле V"):
        spec.V = 5
    with pytest.raises(AttributeError, match="Spec неизменяем: поле V"):
        del spec.V
    with pytest.raises(AttributeError):
        spec.unknown = 5  # type: ignore[attr-defined]
    assert spec.V == 97


@pytest.mark.parametrize("fields", [SMALL, MOE, LATENT, {**SMALL, "window": (4, None, 8)}])
def test_copies_are_equal(fields: dict[str, object]) -> None:
    spec = Spec(**fields)  # type: ignore[arg-type]
    for other in (
        copy.copy(spec),
        copy.deepcopy(spec),
        pickle.loads(pickle.dumps(spec)),
        Spec(**spec.to_dict()),  # type: ignore[arg-type]
        eval(repr(spec), {"Spec": Spec}),
        spec.replace(),
    ):
        assert other == spec
        assert hash(other) == hash(spec)


@pytest.mark.parametrize("field", Spec.__slots__)
def test_equality_sees_every_field(field: str) -> None:
    """Сравнение по части полей приняло бы разные модели за одну."""
    spec = Spec(**SMALL)
    other = copy.copy(spec)
    object.__setattr__(other, field, "другое")
    assert other != spec
    assert field in repr(other)


def test_spec_is_not_equal_to_other_things() -> None:
    assert Spec(**SMALL) != Spec(**SMALL).to_dict()
    assert Spec(**SMALL) is not None


def test_replace_keeps_derived_sizes_and_checks_again() -> None:
    spec = Spec(**SMALL)
    assert spec.replace(D=96).H == 8
    assert spec.replace(D=96).F == 128
    with pytest.raises(ValueError, match="K = 4"):
        spec.replace(K=4)
    with pytest.raises(ValueError, match="width: такого поля у Spec нет; есть V, D, L"):
        spec.replace(width=4)


def test_iteration_gives_fields_in_order() -> None:
    assert list(Spec(**SMALL)) == list(Spec(**SMALL).to_dict()) == list(Spec.__slots__)
    assert list(Spec.__slots__)[:8] == list(SIZES)


def test_notation_names_every_letter_of_spec() -> None:
    letters = {field for field in Spec.__slots__ if len(field) == 1}
    assert letters <= set(NOTATION)
    assert all(NOTATION.values())


# --- разбор целых -------------------------------------------------------------------------------


class Integer:
    """Целое чужой библиотеки: numpy, torch и другие дают `__index__`."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class Fractional:
    """Дробное чужой библиотеки: `__index__` есть, но отказывает (так делает массив numpy)."""

    def __index__(self) -> int:
        raise TypeError("only integer scalar arrays can be converted to a scalar index")

    def __repr__(self) -> str:
        return "array(1.5)"


def test_foreign_integers_become_int() -> None:
    assert type(Spec(**{**SMALL, "V": Integer(97)}).V) is int  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=re.escape("V = array(1.5): нужно целое число")):
        whole("V", Fractional())


def test_long_values_are_shortened_in_messages() -> None:
    with pytest.raises(ValueError, match="нужно целое число") as caught:
        whole("V", "x" * 100_000)
    assert len(str(caught.value)) < 120
    assert shown(10**5000) == "число из 4153 шестнадцатеричных цифр"
    assert shown(-(10**30)) == "число из 25 шестнадцатеричных цифр"
    assert shown(42) == "42"
