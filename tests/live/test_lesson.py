"""Живое упражнение: выполнение ячейки, ошибки по-русски, проверка, подсказки."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jupytext
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanolm import exercises, live
from nanolm.live import lesson

RIGHT = "def swiglu_width(D):\n    return round(8 * D / 3)\n"


def ask(code: str, action: str = "run", **state: str) -> dict[str, Any]:
    """Ответ странице, через тот же JSON."""
    full = {"exercise": "9/swiglu-width", "name": "swiglu_width", "code": code, **state}
    return dict(json.loads(live.answer(json.dumps({"widget": "lesson", "state": full, "action": action}))))


def test_four_states() -> None:
    assert ask(RIGHT, "check")["status"] == "correct"
    assert ask("def swiglu_width(D):\n    return 4 * D\n", "check")["status"] == "wrong"
    assert ask("def swiglu_width(D):\n    return ...\n", "check")["status"] == "not_started"
    assert ask("def swiglu_width(D):\n    return D / 0\n", "check")["status"] == "error"


def test_exception_of_the_answer_shows_its_line() -> None:
    found = ask("def swiglu_width(D):\n    x = 1\n    return D / 0\n", "check")
    assert found["line"] == 3
    assert "3: return D / 0" in found["html"]


def test_missing_name_is_explained() -> None:
    found = ask("def width(D):\n    return D\n", "check")
    assert found["status"] == "error"
    assert "swiglu_width" in found["html"]
    assert "Сбросить" in found["html"]


def test_runs_do_not_see_each_other() -> None:
    ask("secret = 1")
    assert "Имя не определено" in ask("secret")["html"]


def test_replaced_builtins_do_not_outlive_the_run() -> None:
    spoiled = "import builtins\nbuiltins.round = lambda *_: 7\nbuiltins.isinstance = None\n"
    assert ask(spoiled)["status"] == "ran"
    assert ask(RIGHT, "check")["status"] == "correct"


@pytest.mark.parametrize(
    "code",
    [
        "raise SyntaxError('x', ('<ячейка>', 1, 'a', 5))",
        "e = SyntaxError('x')\ne.msg = 5\nraise e",
        "e = ModuleNotFoundError('x')\ne.name = 5\nraise e",
        "class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E",
    ],
)
def test_hostile_exceptions_are_still_explained(code: str) -> None:
    found = ask(code)
    assert found["status"] == "error"
    assert "Traceback" not in found["html"]


def test_deep_value_is_not_called_a_recursion() -> None:
    found = ask("x = []\nfor _ in range(100_000):\n    x = [x]\nx")
    assert "вложено слишком глубоко" in found["html"]


def test_last_expression_is_shown_and_none_is_not() -> None:
    assert '<pre class="nanolm-output" tabindex="0">42</pre>' in ask("x = 40\nx + 2")["html"]
    assert "Ничего не напечатано" in ask("None")["html"]


def test_output_has_a_limit() -> None:
    found = ask("while True:\n    print('я' * 100)")
    assert "Напечатано больше 20\u00a0000 знаков" in found["html"]
    assert len(found["html"]) < 2 * lesson.PRINT_LIMIT


def test_limit_cannot_be_swallowed() -> None:
    code = "while True:\n    try:\n        print('x' * 1000)\n    except Exception:\n        pass"
    assert "код остановлен" in ask(code)["html"]


@pytest.mark.parametrize(
    ("code", "words", "line"),
    [
        ("x = (1,\ny = 2", "Скобка не закрыта", 1),
        ("x = 1)", "Лишняя закрывающая скобка", 1),
        ("if 1\n    pass", "Не хватает двоеточия", 1),
        ("  x = 1", "Лишний отступ", 1),
        ("def f():\nreturn 1", "Ожидается тело с отступом", 2),
        ("return 1", "return стоит вне функции", 1),
        ("x = 'a", "Строка не закрыта", 1),
        ("x = 2D", "Имя не может начинаться с цифры", 1),
        ("x = 2 × 3", "Этого знака в Python нет", 1),
        ("1 = x", "Слева от знака равенства", 1),
        ("import torch", "Библиотеки torch в браузере нет", 1),
        ("import nowhere", "Такого модуля здесь нет", 1),
        ("def f(): return f()\nf()", "вызывает сама себя", 1),
        ("input()", "вводить здесь некуда", 1),
        ("exit()", "завершить программу", 1),
        ("raise KeyboardInterrupt", "прервано", 1),
        ("raise ValueError('<b>')", "&lt;b&gt;", 1),
        ("def f():\n    return 1 / 0\n\nf()", "Деление на ноль", 2),
        ("x = '\\ud800'\nprint(x)", "", 2),
    ],
)
def test_errors(code: str, words: str, line: int) -> None:
    if words in ("Библиотеки torch в браузере нет",):
        code = "raise ModuleNotFoundError('No module named torch', name='torch')"
    found = ask(code)
    assert words in found["html"]
    assert "Traceback" not in found["html"]
    assert found.get("line", line) == line


def test_only_learner_lines_of_the_trace() -> None:
    error = lesson.Run("import json\n\ndef read(x):\n    return json.loads(x)\n\nread('{')").error
    assert error is not None
    assert [number for number, _ in lesson.learner_lines(error)] == [6, 4]


def test_hints_advance() -> None:
    total = exercises.hint("9/swiglu-width", 1).total
    seen = []
    shown = 0
    for _ in range(total + 1):
        found = ask("", "hint", shown=str(shown))
        shown = found["hints"]
        seen.append(found["html"])
    assert shown == total
    assert len(set(seen[:total])) == total


def test_unknown_part_and_broken_request_are_messages() -> None:
    for request in ('{"widget": "нет", "state": {}}', "{", "[" * 10**5):
        assert list(json.loads(live.answer(request))["errors"]) == [""]


CHECK = re.compile(r'check\("([^"]+)", (\w+)\)\s*$')


def live_exercises() -> list[tuple[str, str, str, str]]:
    """Все живые упражнения уроков: id, имя ответа, заготовка, решение."""
    found = []
    for path in sorted((Path(__file__).parents[2] / "lessons").glob("*.py")):
        stub = solution = ""
        for cell in jupytext.read(path).cells:
            tags = cell.metadata.get("tags", [])
            if "exercise" in tags:
                stub = cell.source
            elif "solution" in tags:
                solution = cell.source
            elif "check" in tags and (asked := CHECK.match(cell.source)):
                found.append((asked[1], asked[2], stub, solution))
    return found


@pytest.mark.parametrize(("id_", "name", "stub", "solution"), live_exercises())
def test_every_exercise_works_alone(id_: str, name: str, stub: str, solution: str) -> None:
    """Решение урока проходит без переменных других ячеек, а заготовка — ещё не начата."""
    assert ask(solution, "check", exercise=id_, name=name)["status"] == "correct"
    assert ask(stub, "check", exercise=id_, name=name)["status"] == "not_started"


def test_all_formula_exercises_are_live() -> None:
    known = {exercise.id for exercise in exercises.exercises()} | {found.id for found in exercises.exercises().texts}
    assert {id_ for id_, *_ in live_exercises()} == known


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="def (x):\n\t return1+*[]{}'\"\\#@,.лЯ\u00a0\x00", max_size=60))
def test_any_text_gives_an_answer(code: str) -> None:
    found = ask(code)
    assert found["status"] in ("ran", "error")


WRONG = "\ndef swiglu_width(D):\n    return 1\n"
#: Чем код учащегося портит общие модули.
TAMPERING = {
    "judge": "import nanolm.exercises.judge as j\nj.close = lambda *a: True\n",
    "check": "import nanolm.exercises as e\ne.check = lambda *a: None\n",
    "method": "from nanolm.budget import Account\nAccount.total = 5\n",
    "class": "import nanolm.spec as s\ns.Spec = 3\n",
    "deleted": "import nanolm.units as u\ndel u.number\n",
    "added": "import nanolm.units as u\nu.extra = 1\n",
    "dict": 'import nanolm.budget as b\nb.DTYPES["bf16"] = 1\n',
    "math": "import math\nmath.pi = 3\nmath.isclose = lambda *a, **k: True\n",
    "json": "import json\njson.dumps = lambda *a, **k: '{}'\n",
    "module": "import sys\nsys.modules['nanolm.units'] = None\n",
    "fresh": "import nanolm.sharding as s\ns.shard_training = None\n",
    "inside": "",
}
INSIDE = "def swiglu_width(D):\n    import nanolm.exercises.judge as j\n    j.close = lambda *a: True\n    return 1\n"
PROBE = """
import json, math, sys
import nanolm.exercises.judge, nanolm.sharding, nanolm.units
from nanolm import budget, exercises
spec = budget.Spec(V=10, D=8, L=1, N=2)
print(math.pi, budget.DTYPES["bf16"], budget.parameter_breakdown(spec).total, nanolm.units.number(5),
      hasattr(nanolm.units, "extra"), exercises.check.__name__, json.dumps(1), nanolm.sharding.shard_training.__name__,
      nanolm.exercises.judge.close.__name__)
"""


@pytest.mark.parametrize("kind", TAMPERING)
def test_tampering_does_not_outlive_the_run(kind: str) -> None:
    """Подменённая проверка не засчитывает ответ, а следующий запуск видит модули нетронутыми."""
    clean = ask(PROBE)["html"]
    spoiled = ask(
        TAMPERING[kind] + (INSIDE if kind == "inside" else WRONG),
        "check",
        exercise="9/swiglu-width",
        name="swiglu_width",
    )
    if kind != "inside":
        assert spoiled["status"] == "wrong"
    assert ask(PROBE)["html"] == clean
    assert ask(WRONG, "check", exercise="9/swiglu-width", name="swiglu_width")["status"] == "wrong"
