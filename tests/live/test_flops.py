"""Ползунки лаборатории 7.2: тот же диапазон и то же начало, что у урока, правило 6PN и точный счёт."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markup import Page

from nanolm import budget, live
from nanolm.live import flops
from nanolm.zoo import preset, presets

LESSON = Path(__file__).parents[2] / "lessons" / "lab_7_2_flops.py"


def state(**changes: str) -> dict[str, str]:
    return {**flops.default(), **changes}


def text(**changes: str) -> str:
    return Page("".join(flops.answer(state(**changes))["slots"].values())).text.replace("\u00a0", " ")


def test_sliders_are_those_of_the_lesson() -> None:
    """Начало, низ и верх шкал стоят в ячейке урока."""
    found = re.findall(r"log_(\w+)=IntSlider\((\d+), (\d+), (\d+)", LESSON.read_text(encoding="utf-8"))
    fields = {"params": flops.PARAMETERS, "tokens": flops.TOKENS}
    assert [name for name, *_ in found] == list(fields)
    for name, *edges in found:
        field = fields[name]
        assert [ast.literal_eval(edge) for edge in edges] == [int(field.default), field.low, field.high]


def test_default_page_is_complete() -> None:
    page = Page(flops.page(flops.default()))
    assert len(set(page.ids)) == len(page.ids)
    assert set(page.wanted) <= set(page.ids)
    assert set(page.names) == set(flops.FORM.fields)
    assert "6·10²³ FLOPs" in page.text.replace("\u00a0", " ")


@pytest.mark.parametrize("P", range(6, 13))
@pytest.mark.parametrize("T", [9, 14])
def test_rule_and_time(P: int, T: int) -> None:
    run = flops.Run(state(logP=str(P), logT=str(T), gpus="8", mfu="0,4"))
    assert run.flops == 6 * 10 ** (P + T)
    assert run.seconds == pytest.approx(run.flops / (8 * run.rate * 0.4))


def test_exact_account_is_of_the_nearest_model() -> None:
    assert flops.nearest(10**12) == "deepseek-v3"
    for power in range(6, 13):
        name = flops.nearest(10**power)
        ratio = max(presets()[name]["total"] / 10**power, 10**power / presets()[name]["total"])
        assert all(ratio <= max(entry["total"] / 10**power, 10**power / entry["total"]) for entry in presets().values())


def test_exact_account_is_shown() -> None:
    spec = preset(flops.nearest(10**10))
    total = budget.flops_per_token(spec, min(spec.S, 8192)).total
    assert f"{total:,}".replace(",", " ") in text(logP="10")


@pytest.mark.parametrize(
    ("field", "value"),
    [("logP", "13"), ("logT", "8"), ("gpus", "0"), ("gpus", "x"), ("mfu", "0"), ("mfu", "45"), ("gpu", "x")],
)
def test_wrong_value_is_told_at_its_field(field: str, value: str) -> None:
    found = flops.answer(state(**{field: value}))
    assert list(found["errors"]) == [field]
    assert "slots" not in found


def test_card_of_unknown_speed_is_told_at_its_field() -> None:
    from nanolm.hardware import gpus

    slow = [key for key, card in gpus().items() if not card.flops_per_s]
    assert slow
    assert list(flops.answer(state(gpu=slow[0]))["errors"]) == ["gpu"]
    offered = {value for pairs in flops._cards().values() for value, _ in pairs}
    assert not offered & set(slow)


ANYTHING = st.one_of(st.integers(-1, 15).map(str), st.text(max_size=6))


@settings(max_examples=60, deadline=None)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(flops.FORM.fields, ANYTHING)))
def test_no_state_breaks_the_widget(asked: dict[str, str]) -> None:
    found = json.loads(live.answer(json.dumps({"widget": "flops", "state": asked, "action": None})))
    assert set(found["errors"]) <= {"", *flops.FORM.fields}
    assert bool(found["errors"]) != ("slots" in found)
