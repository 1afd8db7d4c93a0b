"""Тренажёр в браузере: решить, ошибиться, взять подсказку, дойти до следующей задачи, уложиться в три минуты."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from conftest import START_MS

from nanolm.interview import problem, session
from nanolm.live.interview import FIRST_SEED

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = "docs/interview.html"
VIEWS = [(1280, "light"), (390, "dark")]


class Trainer:
    """Тренажёр глазами учащегося."""

    def __init__(self, page: Any) -> None:
        self.page, self.root = page, page.locator('[data-widget="interview"]')

    def slot(self, name: str) -> Any:
        return self.root.locator(f'[data-slot="{name}"]')

    def shows(self, name: str, text: str) -> None:
        """Дождаться текста в этом месте."""
        from playwright.sync_api import expect

        expect(self.slot(name)).to_contain_text(text, timeout=START_MS)

    def field(self, name: str) -> Any:
        return self.root.locator(f'[name="{name}"]')

    def answer(self, text: str, part: int = 1) -> None:
        """Вписать ответ и нажать Enter."""
        self.field(f"answer{part}").fill(text)
        self.field(f"answer{part}").press("Enter")

    def focused(self) -> str:
        return str(self.page.evaluate("document.activeElement.name || ''"))


@pytest.mark.parametrize(("width", "theme"), VIEWS)
def test_solving(visit: Callable[..., Any], width: int, theme: str) -> None:
    """Ошибка названа, верный ответ засчитан со второй попытки, Enter ведёт дальше, решение сложено."""
    trainer = Trainer(visit(f"{PAGE}?level=2&kind=kv&seed=1", width, theme).page)
    task, following = problem(1, 2, "kv"), problem(2, 2, "kv")
    trainer.shows("question1", task.text)
    one = task.mistakes[0]
    trainer.answer(task.dimension.shown(one.value, task.unit))
    trainer.shows("verdict1", one.meaning)
    trainer.answer("42 попугая")
    trainer.shows("verdict1", "Уточните")
    trainer.answer(task.expected)
    trainer.shows("verdict1", f"Верно: {task.expected}")
    trainer.shows("score", "Верно с первого раза: 0 из 1.")
    solution = trainer.slot("solution1").locator("details")
    assert solution.get_attribute("open") is None
    solution.locator("summary").click()
    assert trainer.slot("solution1").get_by_text(task.rows[0].numbers).first.is_visible()
    assert not trainer.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    trainer.field("answer1").press("Enter")
    trainer.shows("question1", following.text)
    assert trainer.field("answer1").input_value() == ""
    assert trainer.focused() == "answer1"
    assert trainer.slot("solution1").locator("details").get_attribute("open") is None
    assert trainer.page.evaluate("location.search") == "?level=2&kind=kv&seed=2"


def test_keyboard(visit: Callable[..., Any]) -> None:
    """N вне поля — следующая, в поле это буква, Alt+N — следующая везде."""
    trainer = Trainer(visit(f"{PAGE}?kind=kv&seed=1").page)
    trainer.shows("question1", problem(1, 1, "kv").text)
    trainer.field("answer1").focus()
    trainer.page.keyboard.press("n")
    assert trainer.field("answer1").input_value() == "n"
    trainer.page.keyboard.press("Alt+n")
    trainer.shows("question1", problem(2, 1, "kv").text)
    trainer.page.evaluate("document.activeElement.blur()")
    trainer.page.keyboard.press("n")
    trainer.shows("question1", problem(3, 1, "kv").text)
    assert trainer.focused() == "answer1"


def test_typing_hides_the_verdict(visit: Callable[..., Any]) -> None:
    trainer = Trainer(visit(f"{PAGE}?kind=kv&seed=1").page)
    trainer.shows("question1", problem(1, 1, "kv").text)
    trainer.answer("1 КиБ")
    trainer.shows("verdict1", "Неверно")
    trainer.field("answer1").type("2")
    trainer.slot("verdict1").locator(".nanolm-verdict").wait_for(state="detached")
    assert trainer.field("answer1").input_value() == "1 КиБ2"


def test_hints(visit: Callable[..., Any]) -> None:
    trainer = Trainer(visit(PAGE).page)
    task = problem(int(FIRST_SEED), 1)
    for hint in task.hints:
        trainer.root.locator('button[data-action="hint"]').click()
        trainer.shows("hints", hint)


def test_wrong_link_marks_the_field(visit: Callable[..., Any]) -> None:
    """Неверное зерно — ошибка у поля; прежняя задача остаётся на странице."""
    trainer = Trainer(visit(f"{PAGE}?seed=-3").page)
    place = trainer.root.locator('[data-error="seed"]')
    place.wait_for(timeout=START_MS)
    assert place.inner_text().startswith("seed = ")
    assert trainer.field("seed").get_attribute("aria-invalid") == "true"
    trainer.field("seed").fill("5")
    trainer.shows("question1", problem(5, 1).text)
    assert place.is_hidden()


@pytest.mark.parametrize(("width", "theme"), VIEWS)
def test_three_minutes(visit: Callable[..., Any], width: int, theme: str) -> None:
    """Часы идут и останавливаются, части судятся отдельно, итог их складывает."""
    trainer = Trainer(visit(f"{PAGE}?mode=session&level=2&seed=3", width, theme).page)
    asked = session(3, 2)
    clock = trainer.root.locator("[data-clock]")
    for part, task in enumerate(asked.parts, 1):
        trainer.shows(f"question{part}", task.text)
        trainer.field(f"answer{part}").fill(task.expected if part != 2 else "1 КиБ")
    assert clock.inner_text().startswith("Осталось ")
    trainer.root.get_by_text("Проверить всё").click()
    trainer.shows("score", "Верно 3 из 4, за ")
    trainer.shows("verdict2", "Неверно")
    stopped = clock.inner_text()
    trainer.page.wait_for_timeout(1500)
    assert clock.inner_text() == stopped
    assert trainer.slot("solution4").locator("details").count() == 1
    assert not trainer.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    trainer.root.get_by_text("Другой вопрос").click()
    trainer.shows("question1", session(4, 2).parts[0].text)
    assert clock.inner_text().startswith("Осталось")
    assert trainer.slot("solution4").locator("details").count() == 0


def test_buttons_pressed_in_a_row_stay_on_one_problem(visit: Callable[..., Any]) -> None:
    """«Следующая» и сразу «Подсказка»: подсказка — к новой задаче, и ответ судят по ней же."""
    trainer = Trainer(visit(f"{PAGE}?level=2&kind=kv&seed=1").page)
    following = problem(2, 2, "kv")
    trainer.shows("question1", problem(1, 2, "kv").text)
    trainer.page.evaluate(
        """() => {
          document.querySelector('button[data-action="next"]').click();
          document.querySelector('button[data-action="hint"]').click();
        }"""
    )
    trainer.shows("hints", following.hints[0])
    trainer.shows("question1", following.text)
    trainer.answer(following.expected)
    trainer.shows("verdict1", f"Верно: {following.expected}")


def test_modes_change_what_is_seen(visit: Callable[..., Any]) -> None:
    trainer = Trainer(visit(PAGE).page)
    assert trainer.field("answer2").is_hidden()
    trainer.field("mode").select_option("session")
    trainer.field("answer4").wait_for(timeout=START_MS)
    assert trainer.field("kind").is_hidden()
    assert trainer.root.get_by_text("Подсказка").is_hidden()
    trainer.field("mode").select_option("practice")
    trainer.field("answer4").wait_for(state="hidden")
    assert trainer.field("kind").is_visible()
    assert trainer.root.locator("[data-clock]").is_hidden()
