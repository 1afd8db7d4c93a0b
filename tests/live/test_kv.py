"""Кеш против весов: числа — из счетов, пересечение стоит там, где кеш и правда равен весам."""

from __future__ import annotations

import json
from urllib.parse import parse_qsl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markup import Page

from nanolm import budget, live
from nanolm.live import kv, rows
from nanolm.zoo import preset

LLAMA = preset("llama-3-8b")


def state(**changes: str) -> dict[str, str]:
    return {**kv.default(), **changes}


def text(**changes: str) -> str:
    return Page("".join(kv.answer(state(**changes))["slots"].values())).text.replace("\u00a0", " ")


def test_default_page_is_complete() -> None:
    page = Page(kv.page(kv.default()))
    assert len(set(page.ids)) == len(page.ids)
    assert set(page.wanted) <= set(page.ids)
    assert set(page.names) == set(kv.FORM.fields)
    assert "Кеш равен весам при B = 14,96." in page.text


def test_numbers_are_those_of_the_account() -> None:
    """16 последовательностей по 8192 токена Llama 3 8B — это 2·16·8192·32·8·128·2 байт, ровно 16 ГиБ."""
    scene = kv.Scene(state())
    assert scene.cache == 2 * 16 * 8192 * 32 * 8 * 128 * 2 == 16 * 2**30
    assert scene.weights == 2 * 8_030_261_248
    assert scene.crossover == budget.crossover_batch(LLAMA, 8192)
    assert "16,00 ГиБ" in text()


def test_cache_of_another_width_moves_the_crossover() -> None:
    assert kv.Scene(state(kv_dtype="fp8")).crossover == pytest.approx(2 * kv.Scene(state()).crossover)
    assert kv.Scene(state(dtype="int8", kv_dtype="int8")).crossover == kv.Scene(state()).crossover
    assert "29,92" in text(kv_dtype="fp8")


def test_crossover_along_the_context() -> None:
    """Найденный контекст — наименьший, при котором кеш не легче весов."""
    scene = kv.Scene(state(axis="S"))
    S = scene.crossover_context
    assert S is not None
    assert scene.cache_at(16, S) >= scene.weights > scene.cache_at(16, S - 1)
    assert f"S = {S:,}".replace(",", " ") in text(axis="S")


def test_window_may_never_reach_the_weights() -> None:
    """Mistral 7B: кеш всех слоёв ограничен окном 4096, и при B = 16 весов он не догоняет."""
    assert kv.Scene(state(preset="mistral-7b-v0.1", axis="S")).crossover_context is None
    assert "не догоняет" in text(preset="mistral-7b-v0.1", axis="S")
    assert "не догоняет" not in text(preset="mistral-7b-v0.1", axis="S", logB="12")


@pytest.mark.parametrize("axis", ["B", "S"])
def test_crossover_is_marked_only_inside_the_picture(axis: str) -> None:
    assert "кеш = веса" in kv.answer(state(axis=axis))["slots"]["chart"]
    far = state(axis=axis, dtype="fp32", kv_dtype="int8", logB="0", logS="7", preset="llama-2-70b")
    assert "кеш = веса" not in kv.answer(far)["slots"]["chart"]


def test_sliders_show_what_they_mean() -> None:
    slots = kv.answer(state(logB="5", logS="17"))["slots"]
    assert slots["logB-value"] == "32"
    assert slots["logS-value"] == "131\u00a0072"


@pytest.mark.parametrize(
    ("field", "value"), [("logB", "13"), ("logS", "x"), ("preset", "llama"), ("dtype", "int4"), ("axis", "L")]
)
def test_wrong_value_is_told_at_its_field(field: str, value: str) -> None:
    found = kv.answer(state(**{field: value}))
    assert list(found["errors"]) == [field]
    assert "slots" not in found


def test_address_restores_the_state() -> None:
    asked = state(preset="gpt2", logB="0", axis="S")
    query = dict(parse_qsl(kv.answer(asked)["query"]))
    assert kv.answer(query, "load")["state"] == asked


ANYTHING = st.one_of(st.integers(-1, 21).map(str), st.text(max_size=6))


@settings(max_examples=60, deadline=None)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(kv.FORM.fields, ANYTHING)))
def test_no_state_breaks_the_widget(asked: dict[str, str]) -> None:
    found = json.loads(live.answer(json.dumps({"widget": "kv", "state": asked, "action": None})))
    assert set(found["errors"]) <= {"", *kv.FORM.fields}
    assert bool(found["errors"]) != ("slots" in found)


@pytest.mark.parametrize("name", ["llama-3-8b", "gemma-3-12b", "deepseek-v3", "gpt-oss-20b", "gpt2"])
@pytest.mark.parametrize("axis", ["B", "S"])
def test_every_kind_of_attention_is_drawn(name: str, axis: str) -> None:
    for edge in ({"logB": "0", "logS": "7"}, {"logB": "12", "logS": "20"}):
        found = kv.answer(state(preset=name, axis=axis, **edge))
        assert found["errors"] == {}
        Page("".join(found["slots"].values()))


@pytest.mark.parametrize(
    ("cache", "words"),
    [
        (67, "Кеш — 6,7\u00a0% весов"),
        (9_990, "Кеш — 999,0\u00a0% весов"),
        (22_000, "Кеш в 22\u00a0раза больше весов"),
        (2_541_590, "Кеш в 2\u00a0542\u00a0раза больше весов"),
    ],
)
def test_cache_against_weights_in_words(cache: int, words: str) -> None:
    assert rows.against(cache, 1_000) == words
