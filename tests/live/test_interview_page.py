"""Тренажёр на странице: слова формы в задачу и обратно. Сами задачи и суд проверяют tests/test_interview*.py."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanolm import live
from nanolm.interview import KINDS, LEVELS, problem, session
from nanolm.live import interview


class Browser:
    """Страница без браузера: форма, ответы виджета, обновление полей — как это делает widget.js."""

    def __init__(self, **state: str) -> None:
        self.state = {**interview.default(), "seed": "1", **state}
        self.answer = self.send()

    def send(self, action: str | None = None) -> dict[str, Any]:
        request = json.dumps({"widget": "interview", "state": self.state, "action": action})
        self.answer = json.loads(live.answer(request))
        self.state |= self.answer.get("state", {})
        return self.answer

    def type(self, text: str, part: int = 1) -> dict[str, Any]:
        self.state[f"answer{part}"] = text
        return self.send()

    def judge(self) -> dict[str, Any]:
        return self.send("judge")

    def slot(self, name: str) -> str:
        """Текст места, без разметки."""
        return unescape(re.sub(r"<[^>]+>", "", self.answer["slots"][name]))


class Balance(HTMLParser):
    """Разметка закрыта; `ids` и `names` — чтобы искать повторы."""

    VOID = ("input", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.names: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.names += [given["name"] or ""] if "name" in given else []
        self.inline += [name for name, _ in attrs if name == "style" or name.startswith("on")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(markup: str) -> Balance:
    found = Balance()
    found.feed(markup)
    found.close()
    assert found.open == []
    return found


# --- задача -------------------------------------------------------------------------------------


def test_default_page_is_complete_without_scripts() -> None:
    """Сборка печатает задачу по умолчанию и её решение; всё закрыто, имена не повторяются, стилей в строке нет."""
    markup = interview.page(interview.default())
    found = parsed(markup)
    assert len(set(found.ids)) == len(found.ids)
    assert len(set(found.names)) == len(found.names)
    assert found.inline == []
    task = problem(int(interview.FIRST_SEED), 1)
    assert task.title == "Кеш KV одного токена"
    assert task.text in unescape(markup)
    for row in task.rows:
        assert row.result in unescape(markup)
    assert task.advice in unescape(markup)
    assert "<details" in markup
    assert "<details open" not in markup


def test_page_and_answer_agree() -> None:
    """Что напечатано при сборке, то и ответит браузер."""
    state = interview.default()
    slots = interview.answer(state)["slots"]
    markup = interview.page(state)
    for name, inner in slots.items():
        assert f'data-slot="{name}"' in markup
        assert inner in markup


def test_every_slot_exists_in_every_mode() -> None:
    places = set(re.findall(r'data-slot="([^"]+)"', interview.page(interview.default())))
    for mode in interview.MODES:
        assert set(Browser(mode=mode).answer["slots"]) == places


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", LEVELS)
def test_every_problem_is_shown(kind: str, level: int) -> None:
    page = Browser(kind=kind, level=str(level), seed="9")
    task = problem(9, level, kind)
    assert task.text in page.slot("question1")
    for _, title, value in task.given:
        assert title in page.slot("question1")
        assert value in page.slot("question1")
    for row in task.rows:
        assert row.title in page.slot("solution1")
        assert row.numbers in page.slot("solution1")
    for markup in page.answer["slots"].values():
        parsed(markup)


def test_right_answer() -> None:
    page = Browser(kind="kv", level="2")
    page.type(problem(1, 2, "kv").expected)
    assert page.slot("verdict1") == ""
    answer = page.judge()
    assert answer["done"] is True
    assert page.slot("verdict1").startswith("Верно: ")
    assert "nanolm-yes" in answer["slots"]["verdict1"]
    assert page.slot("score") == "Верно с первого раза: 1 из 1."


def test_named_mistake_and_second_try() -> None:
    task = problem(1, 2, "kv")
    page = Browser(kind="kv", level="2")
    page.type(task.dimension.shown(task.mistakes[0].value, task.unit))
    assert page.judge()["done"] is False
    assert page.slot("verdict1") == f"Неверно. {task.mistakes[0].meaning} {task.mistakes[0].hint}"
    page.type(task.expected)
    assert page.judge()["done"] is True
    assert page.slot("score") == "Верно с первого раза: 0 из 1."


def test_unclear_answer_costs_nothing() -> None:
    page = Browser(kind="kv", level="2")
    for text in ("", "42 попугая"):
        page.type(text)
        page.judge()
        assert page.slot("verdict1").startswith("Уточните")
        assert page.slot("score") == ""
    page.type(problem(1, 2, "kv").expected)
    page.judge()
    assert page.slot("score") == "Верно с первого раза: 1 из 1."


def test_typing_hides_the_verdict_and_keeps_the_problem() -> None:
    page = Browser(kind="kv")
    page.type("1 КиБ")
    page.judge()
    before = page.slot("question1")
    page.type("1 КиБ2")
    assert page.slot("verdict1") == ""
    assert page.slot("question1") == before
    assert page.state["answer1"] == "1 КиБ2"


def test_hints_open_one_by_one() -> None:
    task = problem(1, 1, "kv")
    page = Browser(kind="kv")
    assert page.slot("hints") == ""
    for count in range(1, len(task.hints) + 2):
        page.send("hint")
        assert page.slot("hints") == "".join(task.hints[:count])
    page.type("1")
    assert page.slot("hints") == "".join(task.hints)


def test_next_problem() -> None:
    page = Browser(kind="kv", seed="5")
    page.send("hint")
    page.type("1 КиБ")
    page.judge()
    answer = page.send("next")
    assert page.state["seed"] == "6"
    assert problem(6, 1, "kv").text in page.slot("question1")
    assert (page.state["answer1"], page.state["hints"], page.state["tried"]) == ("", "", "")
    assert page.slot("score") == "Верно с первого раза: 0 из 1."
    assert dict(parse_qsl(answer["query"])) == {"kind": "kv", "seed": "6"}


def test_seeds_go_round() -> None:
    page = Browser(seed=str(10**9))
    page.send("next")
    assert page.state["seed"] == "0"


def test_another_level_forgets_the_answer() -> None:
    page = Browser(kind="kv")
    page.type("1 КиБ")
    page.state["level"] = "2"
    page.send()
    assert page.state["answer1"] == ""


def test_link_opens_the_same_problem() -> None:
    query = Browser(kind="days", level="3", seed="77").answer["query"]
    found = json.loads(
        live.answer(json.dumps({"widget": "interview", "state": dict(parse_qsl(query)), "action": "load"}))
    )
    assert problem(77, 3, "days").text in unescape(found["slots"]["question1"])
    assert (found["state"]["kind"], found["state"]["level"], found["state"]["seed"]) == ("days", "3", "77")
    assert found["query"] == query


@pytest.mark.parametrize("field", ["answer1", "hints", "right", "of"])
def test_own_fields_stay_out_of_the_address(field: str) -> None:
    assert field not in Browser(**{field: "7"}).answer["query"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("seed", "zz"), ("seed", "-1"), ("seed", "1000000001"), ("seed", "1,5"), ("seed", "9" * 5000), ("level", "7"),
     ("level", "x"), ("kind", "cook"), ("mode", "sleep")],
)  # fmt: skip
@pytest.mark.parametrize("action", [None, "judge", "hint", "next", "load"])
def test_bad_state_is_an_error_of_its_field(field: str, value: str, action: str | None) -> None:
    found = json.loads(live.answer(json.dumps({"widget": "interview", "state": {field: value}, "action": action})))
    assert list(found["errors"]) == [field]
    assert "slots" not in found


@pytest.mark.parametrize("value", ["-5", "x", "9" * 400, "1e9", "٣"])
def test_spoiled_counters_start_from_zero(value: str) -> None:
    page = Browser(hints=value, right=value, asked=value, elapsed=value)
    page.judge()
    assert page.answer["errors"] == {}


def test_answer_is_escaped() -> None:
    """Что ввели, в разметку не попадает."""
    page = Browser(kind="kv")
    page.type("<img src=x onerror=alert(1)> 5 <b>")
    page.judge()
    assert "<img" not in json.dumps(page.answer["slots"])
    assert "<img" not in interview.page({**page.state})
    page.type("5 <i>КиБ")
    page.judge()
    assert "<i>" not in page.answer["slots"]["verdict1"]


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*interview.default(), "x"]), st.text(max_size=30) | st.sampled_from(["1", "2", "kv"])
    ),
    st.sampled_from([None, "judge", "hint", "next", "load", "sleep"]),
)
def test_any_state_is_answered(state: dict[str, str], action: str | None) -> None:
    """Любые строки в полях: либо задача, либо ошибки полей."""
    found = json.loads(live.answer(json.dumps({"widget": "interview", "state": state, "action": action})))
    assert found["errors"] or found["slots"]["question1"]
    assert set(found["errors"]) <= set(interview.FORM.fields)


# --- три минуты ---------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_session(level: int) -> None:
    asked = session(3, level)
    page = Browser(mode="session", seed="3", level=str(level))
    assert page.answer["mode"] == "session"
    for part, task in enumerate(asked.parts, 1):
        assert f"Часть {part}. {task.title}" in page.slot(f"question{part}")
        assert page.slot(f"solution{part}") == ""
        page.type(task.expected, part)
    page.state["elapsed"] = "161"
    assert page.judge()["done"] is True
    assert page.slot("score") == "Верно 4 из 4, за 2:41."
    for part, task in enumerate(asked.parts, 1):
        assert page.slot(f"verdict{part}").startswith("Верно")
        assert task.rows[-1].numbers in page.slot(f"solution{part}")


def test_session_parts_are_judged_separately() -> None:
    asked = session(3, 2)
    page = Browser(mode="session", seed="3", level="2")
    page.type(asked.parts[1].expected, 2)
    page.type("1 КиБ", 3)
    page.judge()
    assert page.slot("verdict1") == page.slot("verdict4") == ""
    assert page.slot("verdict2").startswith("Верно")
    assert not page.slot("verdict3").startswith("Верно")
    assert page.slot("score").startswith("Верно 1 из 4.")
    assert "Веса. Ответа нет." in page.slot("score")


def test_session_does_not_touch_the_score_of_practice() -> None:
    page = Browser(kind="kv")
    page.type(problem(1, 1, "kv").expected)
    page.judge()
    page.state["mode"] = "session"
    page.send()
    page.judge()
    page.state["mode"] = "practice"
    page.send()
    assert page.slot("score") == "Верно с первого раза: 1 из 1."


def test_another_question() -> None:
    page = Browser(mode="session", seed="3")
    page.type("5 ГБ", 1)
    page.state["elapsed"] = "99"
    page.send("next")
    assert (page.state["seed"], page.state["answer1"], page.state["elapsed"]) == ("4", "", "")
    assert session(4, 1).parts[0].text in page.slot("question1")


def test_first_problem_names_its_seed_in_the_address() -> None:
    assert dict(parse_qsl(interview.answer(interview.default())["query"])) == {"seed": interview.FIRST_SEED}


def test_address_carries_no_score_and_no_answers() -> None:
    found = interview.answer({"seed": "3", "right": "100", "asked": "3", "answer1": "5", "hints": "2"}, "load")
    assert found["slots"]["score"] == interview.answer({"seed": "3"}, "load")["slots"]["score"]
    assert found["slots"]["hints"] == ""


def test_refused_address_shows_its_value() -> None:
    found = interview.answer({"seed": "-1"}, "load")
    assert list(found["errors"]) == ["seed"]
    assert found["state"]["seed"] == "-1"
