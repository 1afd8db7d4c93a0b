"""Живые упражнения: решить, ошибиться, сломать, вернуться завтра."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from conftest import ROOT, SITE, START_MS, lesson_cells, settle

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LESSONS = sorted(path.stem for path in (ROOT / "lessons").glob("*.py"))
WEEK = next(name for name in LESSONS if name.startswith("week_09"))
CHECK = re.compile(r'check\("([^"]+)", (\w+)\)\s*$')
VIEWS = [(1280, "light"), (390, "dark")]


class Task(NamedTuple):
    """Упражнение на странице: id, имя ответа, заготовка, решение урока."""

    id: str
    name: str
    stub: str
    solution: str


def tasks(site: Path, lesson: str) -> list[Task]:
    """Все живые упражнения урока."""
    found, stub, solution = [], "", ""
    for cell in lesson_cells(site, lesson):
        if "exercise" in cell["tags"]:
            stub = cell["source"]
        elif "solution" in cell["tags"]:
            solution = cell["source"]
        elif "check" in cell["tags"] and (asked := CHECK.match(cell["source"])):
            found.append(Task(asked[1], asked[2], stub, solution))
    return found


class Exercise:
    """Одно упражнение глазами читателя."""

    def __init__(self, page: Any, id_: str) -> None:
        self.page, self.root = page, page.locator(f'[data-exercise="{id_}"]')
        self.cell = self.root.locator("xpath=preceding-sibling::*[1]")

    def open(self) -> None:
        """Дойти до упражнения: редактор появляется, как только его тронули."""
        self.root.locator('[data-do="run"]').focus()
        self.cell.locator(".cm-content").wait_for(timeout=START_MS)

    def write(self, code: str) -> None:
        """Заменить текст в редакторе, как это делают с клавиатуры."""
        self.cell.locator(".cm-content").focus()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.press("Delete")
        self.page.keyboard.insert_text(code)

    def press(self, action: str) -> str:
        """Нажать кнопку и вернуть текст итога."""
        self.root.locator("[data-output]").evaluate("place => place.replaceChildren()")
        self.root.locator(f'[data-do="{action}"]').click()
        self.root.locator("[data-output] > *").first.wait_for(timeout=START_MS)
        return str(self.root.locator("[data-output]").inner_text())

    def shows(self, status: str) -> bool:
        """Итог именно такой."""
        return bool(self.root.locator(f".nanolm-check-{status}").count())


def constant(task: Task) -> str:
    """Ответ, который не зависит от входа."""
    header = re.search(r"^def [^:]+:", task.stub, re.MULTILINE)
    if header is None:
        return re.sub(r"\.\.\.", "12345", task.stub)
    return f"{header[0]}\n    return 12345\n"


def failing(task: Task) -> str:
    """Ответ, который бросает исключение: в функции — на третьей строке, в словаре — на первой."""
    header = re.search(r"^def [^:]+:", task.stub, re.MULTILINE)
    return f"{header[0]}\n    return 1 / 0\n" if header else f"{task.name} = 1 / 0\n"


@pytest.mark.parametrize(("width", "theme"), VIEWS)
@pytest.mark.parametrize("lesson", LESSONS)
def test_every_exercise_solved_and_failed(
    visit: Callable[..., Any], site: Path, lesson: str, width: int, theme: str
) -> None:
    page = visit(f"lessons/{lesson}.html", width, theme).page
    found = tasks(site, lesson)
    assert page.locator("[data-exercise]").count() == len(found) >= 2
    for task in found:
        exercise = Exercise(page, task.id)
        exercise.open()
        exercise.press("check")
        assert exercise.shows("not-started"), task.id
        exercise.write(constant(task))
        text = exercise.press("check")
        assert exercise.shows("wrong"), (task.id, text)
        exercise.write(failing(task))
        text = exercise.press("check")
        assert exercise.shows("error"), (task.id, text)
        assert "1 / 0" in text
        assert "Traceback" not in text
        assert "pyodide" not in text.lower()
        exercise.write(task.solution)
        text = exercise.press("check")
        assert exercise.shows("correct"), (task.id, text)
    assert page.locator("[data-progress]").inner_text() == f"{len(found)} из {len(found)}"
    scrolls = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    assert not scrolls


@pytest.fixture
def exercise(visit: Callable[..., Any]) -> Exercise:
    """Открытое упражнение о ширине SwiGLU."""
    page = visit(f"lessons/{WEEK}.html").page
    found = Exercise(page, "9/swiglu-width")
    found.open()
    return found


RIGHT = "def swiglu_width(D):\n    return round(8 * D / 3)\n"


def test_endless_loop_is_stopped_and_python_is_back(exercise: Exercise) -> None:
    exercise.press("check")
    exercise.write("while True:\n    pass")
    assert "дольше 5" in exercise.press("run")
    exercise.write(RIGHT)
    exercise.press("check")
    assert exercise.shows("correct")


def test_endless_loop_inside_the_answer(exercise: Exercise) -> None:
    exercise.write("def swiglu_width(D):\n    while True:\n        pass\n")
    assert "остановлен" in exercise.press("check")
    assert exercise.shows("error")


def test_million_lines_do_not_freeze_the_page(exercise: Exercise) -> None:
    exercise.write("for number in range(10**6):\n    print(number)\n")
    text = exercise.press("run")
    assert "Напечатано больше" in text
    assert len(text) < 30_000
    assert exercise.page.evaluate("1 + 1") == 2


MISTAKES = (
    ("def f(n):\n    return f(n + 1)\nf(0)", "вызывает сама себя"),
    ("import torch", "Библиотеки torch в браузере нет"),
    ("import неведомое", "Такого модуля здесь нет"),
    ("def swiglu_width(D)\n    return D", "Не хватает двоеточия"),
    ("print('начало", "Строка не закрыта"),
    ("(1, 2", "Скобка не закрыта"),
    ("input('?')", "вводить здесь некуда"),
    ("raise SystemExit(3)", "завершить программу"),
    ("1 / 0", "Деление на ноль"),
    ("float('x')", "Недопустимое значение"),
)


def test_errors_speak_russian_and_point_at_the_line(exercise: Exercise) -> None:
    for code, words in MISTAKES:
        exercise.write(code)
        text = exercise.press("run")
        assert words in text, code
        assert "Traceback" not in text
        assert exercise.cell.locator(".nanolm-failed-line").count() == 1
    exercise.write(RIGHT)
    exercise.press("check")
    assert exercise.shows("correct"), "после ошибок Python продолжает работать"


def test_what_the_cell_prints_and_returns(exercise: Exercise) -> None:
    exercise.write("ширина = 8 * 4096 // 3\nprint('F =', ширина)\nширина * 2")
    assert exercise.press("run").split() == ["F", "=", "10922", "21844"]
    exercise.write("x = 1")
    assert "Определено: x" in exercise.press("run")


def test_markup_in_the_answer_stays_text(exercise: Exercise) -> None:
    exercise.write("print('<img src=x onerror=alert(1)>')")
    assert "<img" in exercise.press("run")
    exercise.write("raise ValueError('<script>alert(1)</script>')")
    assert "<script>" in exercise.press("run")
    assert exercise.root.locator("img, script").count() == 0


def test_hints_go_one_by_one(exercise: Exercise) -> None:
    assert "Подсказка 1 из" in exercise.press("hint")
    assert "Подсказка 2 из" in exercise.press("hint")


def test_text_and_progress_survive_a_reload_and_can_be_erased(exercise: Exercise) -> None:
    page = exercise.page
    exercise.write(RIGHT)
    exercise.press("check")
    settle(page, page.reload)
    assert page.locator("[data-progress]").inner_text().startswith("1 из")
    again = Exercise(page, "9/swiglu-width")
    assert "round(8 * D / 3)" in again.cell.locator("pre").first.inner_text(), "прошлый текст виден и до редактора"
    assert "решено" in again.root.locator(".nanolm-buttons").evaluate("b => getComputedStyle(b, '::after').content")
    again.open()
    assert "round(8 * D / 3)" in again.cell.locator(".cm-content").inner_text()
    page.on("dialog", lambda dialog: dialog.accept())
    page.locator("[data-forget]").click()
    assert page.locator("[data-progress]").inner_text().startswith("0 из")
    assert "..." in again.cell.locator(".cm-content").inner_text()
    assert page.evaluate("Object.keys(localStorage).filter(key => key.startsWith('nanolm:'))") == []


def test_click_on_the_code_opens_the_editor(visit: Callable[..., Any]) -> None:
    page = visit(f"lessons/{WEEK}.html").page
    exercise = Exercise(page, "9/swiglu-width")
    exercise.cell.locator("pre").first.click()
    editor = exercise.cell.locator(".nanolm-editor")
    editor.wait_for(timeout=START_MS)
    frame = exercise.cell.locator(".cell_input").bounding_box()
    assert editor.bounding_box()["width"] > 0.9 * frame["width"]


def test_two_tabs_do_not_lose_a_solution(exercise: Exercise) -> None:
    other = exercise.page.context.new_page()
    settle(other, lambda: other.goto(exercise.page.url))
    twin = Exercise(other, "9/swiglu-width")
    twin.open()
    exercise.write(RIGHT)
    exercise.press("check")
    twin.write("# заметка\n")
    settle(other, other.reload)
    assert other.locator("[data-progress]").inner_text().startswith("1 из")


def test_spoiled_python_is_replaced(exercise: Exercise) -> None:
    exercise.write("import json\njson.JSONEncoder.encode = lambda *_: 'zzz'")
    assert "испортил Python" in exercise.press("run")
    exercise.write(RIGHT)
    exercise.press("check")
    assert exercise.shows("correct")


def test_reset_does_not_stop_a_neighbour(exercise: Exercise) -> None:
    other = Exercise(exercise.page, "9/params")
    other.open()
    exercise.press("check")
    exercise.write("x = 0\nwhile x < 3 * 10**6:\n    x += 1\nprint('досчитал')")
    exercise.root.locator("[data-output]").evaluate("place => place.replaceChildren()")
    exercise.root.locator('[data-do="run"]').click()
    other.root.locator('[data-do="reset"]').click()
    exercise.root.locator("[data-output] > *").first.wait_for(timeout=START_MS)
    assert "досчитал" in exercise.root.locator("[data-output]").inner_text()


def test_reset_brings_the_stub_back(exercise: Exercise) -> None:
    exercise.write("испорчено")
    exercise.root.locator('[data-do="reset"]').click()
    text = exercise.cell.locator(".cm-content").inner_text()
    assert "def swiglu_width(D):" in text
    assert "испорчено" not in text


def test_keyboard_alone_is_enough(visit: Callable[..., Any]) -> None:
    page = visit(f"lessons/{WEEK}.html").page
    exercise = Exercise(page, "9/swiglu-width")
    exercise.open()
    editor = exercise.cell.locator(".cm-content")
    assert "9/swiglu-width" in str(editor.get_attribute("aria-label"))
    # С кнопки «Запустить» назад — в редактор.
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.classList.contains('cm-content')")
    page.keyboard.press("Control+a")
    page.keyboard.type("def swiglu_width(D):\nreturn round(8 * D / 3)")  # отступ ставит редактор
    page.keyboard.press("Control+Shift+Enter")
    exercise.root.locator(".nanolm-check-correct").wait_for(timeout=START_MS)
    # Tab — отступ, а Esc и Tab выводят из редактора.
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.do") == "run"


def test_two_exercises_share_one_python(visit: Callable[..., Any]) -> None:
    arrived = visit(f"lessons/{WEEK}.html")
    for id_ in ("9/swiglu-width", "9/params"):
        exercise = Exercise(arrived.page, id_)
        exercise.open()
        exercise.press("check")
    assert sum(url.endswith(".wasm") for url in arrived.requests) == 1
    assert len(arrived.page.workers) == 1


def test_reset_cancels_a_queued_check(visit: Callable[..., Any], site: Path) -> None:
    """Проверка ждёт за чужим бесконечным циклом, а код уже сброшен: решённым упражнение не становится."""
    page = visit(f"lessons/{WEEK}.html").page
    first, second = tasks(site, WEEK)[:2]
    one, other = Exercise(page, first.id), Exercise(page, second.id)
    one.open()
    other.open()
    one.press("run")
    other.write(second.solution)
    one.write("while True:\n    pass")
    one.root.locator('[data-do="run"]').click()
    other.root.locator('[data-do="check"]').click()
    other.root.locator('[data-do="reset"]').click()
    one.root.locator(".nanolm-check-error", has_text="дольше 5").wait_for(timeout=START_MS)
    assert one.press("run")  # очередь дошла до конца
    assert other.root.locator("[data-output]").inner_text() == ""
    assert "nanolm-solved" not in other.root.get_attribute("class")
    assert page.evaluate(f"localStorage.getItem('nanolm:exercise:{second.id}')") is None


def test_value_too_deep_for_the_browser(visit: Callable[..., Any]) -> None:
    """Стек браузера переполнен: причина по-русски, Python снова работает."""
    arrived = visit(f"lessons/{WEEK}.html")
    exercise = Exercise(arrived.page, "9/swiglu-width")
    exercise.open()
    exercise.write("x = []\nfor i in range(200_000):\n    x = [x]\nx")
    assert "Вложенность слишком велика: стек браузера переполнен" in exercise.press("run")
    exercise.write("print(6 * 7)")
    assert "42" in exercise.press("run")
    arrived.complaints.clear()  # о гибели Python сам Pyodide пишет в консоль


def test_garbage_in_the_storage_does_not_kill_the_exercise(visit: Callable[..., Any], site: Path) -> None:
    visitor = visit(f"lessons/{WEEK}.html")
    task = tasks(site, WEEK)[0]
    visitor.page.evaluate(f"localStorage.setItem('nanolm:exercise:{task.id}', '{{\"code\": 5}}')")
    visitor.go(f"lessons/{WEEK}.html")
    exercise = Exercise(visitor.page, task.id)
    exercise.open()
    exercise.press("check")
    assert exercise.shows("not-started")


if SITE is None:
    pytest.skip("нужен собранный сайт", allow_module_level=True)
