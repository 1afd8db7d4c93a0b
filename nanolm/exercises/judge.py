"""Ход проверки: вызвать функцию во всех точках и вынести решение.

Решение — первое подошедшее правило: не начато, исключение, ничего не вернула, вернула не число,
и только потом сравнение чисел. Показывается первая несовпавшая точка; ожидаемое число ответа не выдаёт:
оно верно для одной точки, а проверок тринадцать.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from nanolm import units
from nanolm.exercises import attempt
from nanolm.exercises.answer import Problem, close, contains_ellipsis, cut, pair, read, shown
from nanolm.exercises.attempt import Clock, Outcome
from nanolm.exercises.diagnosis import Trial, diagnose, evaluate
from nanolm.exercises.failures import NOT_WRITTEN, explain
from nanolm.exercises.result import Finding, Result
from nanolm.exercises.task import Exercise, Number, Point

#: Напечатанное число сверяется грубо: его могли округлить при печати.
PRINTED = Fraction(1, 100)

_NUMBER = re.compile(r"[-−+]?\d+(?:[\u00a0\u202f_,' ]\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?")
_HUGE_EXPONENT = re.compile(r"[eE][-+]?\d{4}")
_UNFINISHED = "В функции ещё стоит многоточие заготовки. Замените его формулой и вызовите проверку снова."
_SILENT = "Функция пока ничего не возвращает. Напишите формулу; если она уже есть, добавьте return."


class Run(NamedTuple):
    """Проверка одной функции: точки и то, чем кончились вызовы."""

    exercise: Exercise
    function: Callable[..., Any]
    style: tuple[str, ...]
    clock: Clock
    points: tuple[Point, ...]
    outcomes: tuple[Outcome, ...]
    seed: int

    @property
    def expected(self) -> tuple[tuple[Number, ...], ...]:
        """Верные ответы."""
        return tuple(evaluate(self.exercise.solve, point) or () for point in self.points)

    def call(self, point: Sequence[Any], names: Sequence[str]) -> Outcome:
        """Ещё один вызов функции учащегося."""
        return attempt.run(self.function, point, names or self.style, self.clock)

    def result(self, status: str, finding: Finding, at: int | None = None, **more: Any) -> Result:
        """Итог; `at` — номер точки, которую показать."""
        if at is not None:
            outcome = self.outcomes[at]
            more = {
                "input": written(self.exercise, self.points[at]),
                "printed": cut(outcome.printed.strip(), 500),
                "line": outcome.line,
                "source": outcome.source,
                **more,
            }
        return Result(
            self.exercise.id, self.exercise.title, status, finding.meaning, finding.id, finding.hint,
            total=len(self.points), seed=self.seed, **more,
        )  # fmt: skip


def judge(exercise: Exercise, function: Any, seed: int) -> Result:
    """Проверить функцию учащегося."""
    refusal = _refuse(exercise, function)
    if refusal is not None:
        return refusal._replace(seed=seed)
    style = attempt.keywords(function, exercise.names) or ()
    clock, points = Clock(), exercise.points(seed)
    outcomes: list[Outcome] = []
    for point in points:
        outcomes.append(attempt.run(function, point, style, clock))
        if outcomes[-1].error:
            break
    run = Run(exercise, function, style, clock, points, tuple(outcomes), seed)
    return next(result for result in (rule(run) for rule in RULES) if result is not None)


def written(exercise: Exercise, point: Point) -> str:
    """Вызов, который можно скопировать в ячейку."""
    return f"{exercise.solve.__name__}({', '.join(map(repr, point))})"


def _refuse(exercise: Exercise, function: Any) -> Result | None:
    """Передали не функцию или функцию с другим числом аргументов."""
    name = exercise.solve.__name__
    if function is None or function is ...:
        return Result(exercise.id, exercise.title, "not_started", f"Вместо функции передано {function!r}. {_SILENT}")
    if not callable(function):
        message = f"Проверке нужна сама функция, а получено значение: {shown(function)}."
        advice = f'Передайте имя без скобок вызова: check("{exercise.id}", {name}).'
        return Result(exercise.id, exercise.title, "error", message, "value-not-function", advice)
    if attempt.keywords(function, exercise.names) is not None:
        return None
    theirs = attempt.parameters(function) or ()
    words = ("аргумент", "аргумента", "аргументов")
    count = f"{len(exercise.names)}{units.NBSP}{units.plural(len(exercise.names), *words)}"
    has = f"{len(theirs)} ({', '.join(theirs)})" if theirs else "ни одного"
    message = f"Число аргументов не то: нужно {count}, а у функции {has}."
    return Result(exercise.id, exercise.title, "error", message, "wrong-arity", f"Ожидается {exercise.signature}.")


# --- Правила ------------------------------------------------------------------------------------


def _unfinished(run: Run) -> Result | None:
    """Многоточие заготовки, где бы оно ни всплыло."""
    for outcome in run.outcomes:
        about_stub = isinstance(outcome.error, (TypeError, AttributeError)) and "llipsis" in explain(outcome.error).raw
        if about_stub or isinstance(outcome.error, NOT_WRITTEN) or contains_ellipsis(outcome.value):
            return run.result("not_started", Finding(None, _UNFINISHED), line=outcome.line, source=outcome.source)
    quiet = all(outcome.value is None and outcome.printed.strip() in ("", "Ellipsis") for outcome in run.outcomes)
    failed = any(outcome.error for outcome in run.outcomes)
    return run.result("not_started", Finding(None, _SILENT)) if quiet and not failed else None


def _failed(run: Run) -> Result | None:
    """Исключение: по-русски и на строке учащегося."""
    last = len(run.outcomes) - 1
    error = run.outcomes[last].error
    if error is None:
        return None
    failure = explain(error)
    return run.result("error", Finding(failure.id, failure.text, failure.advice), last)


def _silent(run: Run) -> Result | None:
    """Вернула None: напечатала вместо return или забыла return в одной из веток."""
    empty = [at for at, outcome in enumerate(run.outcomes) if outcome.value is None]
    if not empty:
        return None
    at = empty[0]
    if len(empty) < len(run.outcomes):
        meaning = "При этих аргументах функция вернула None: в одной из веток нет return."
        return run.result("wrong", Finding("branch-without-return", meaning, "Проверьте каждую ветку if."), at)
    printed = zip(run.outcomes, run.expected, strict=True)
    if all(_printed_right(outcome.printed, right) for outcome, right in printed):
        meaning = "Число верно, но функция его напечатала, а не вернула: вызвавший получил None."
        return run.result("wrong", Finding("printed-not-returned", meaning, "Замените print на return."), at)
    meaning = "Функция что-то напечатала, но ничего не вернула: ответ — None."
    return run.result("wrong", Finding("nothing-returned", meaning, "Ответ отдают через return."), at)


def _printed_right(text: str, expected: Sequence[Number]) -> bool:
    """Есть ли в напечатанном все верные числа."""
    # Порядок длиннее трёх цифр верным не бывает, а дробь из `1e999999999` строилась бы минутами.
    items = (item for item in _NUMBER.findall(text[:2000]) if not _HUGE_EXPONENT.search(item))
    found = [re.sub(r"[\u00a0\u202f_,' ]", "", item).replace("−", "-") for item in items]
    return all(any(close((Fraction(item),), (right,), PRINTED) for item in found) for right in expected)


def _unusable(run: Run) -> Result | None:
    """Вернула не число."""
    for at, outcome in enumerate(run.outcomes):
        answer = read(outcome.value, run.exercise.returns)
        if isinstance(answer, Problem):
            expected = shown(run.exercise.solve(*run.points[at])) if answer.id == "not-finite" else ""
            return run.result("wrong", Finding(answer.id, answer.text), at, got=shown(outcome.value), expected=expected)
    return None


def _compared(run: Run) -> Result:
    """Числа против чисел."""
    answers = [read(outcome.value, run.exercise.returns) for outcome in run.outcomes]
    given = tuple(answer for answer in answers if not isinstance(answer, Problem))
    fits = [close(got, right, run.exercise.tolerance) for got, right in zip(given, run.expected, strict=True)]
    if all(fits):
        return run.result("correct", Finding(None, _praise(run)), passed=len(fits))
    at = fits.index(False)
    got, expected = pair(run.outcomes[at].value, run.exercise.solve(*run.points[at]))
    trial = Trial(run.exercise, run.function, run.points, given, run.expected, run.call)
    finding = diagnose(trial) or Finding(None, _unknown(run, fits), f'Подсказка: hint("{run.exercise.id}").')
    return run.result("wrong", finding, at, got=got, expected=expected, passed=sum(fits))


def _praise(run: Run) -> str:
    known, total = len(run.exercise.given), len(run.points)
    accuracy = "; точность " + run.exercise.accuracy if run.exercise.tolerance else "; совпадение точное"
    return f"Все проверки сошлись: {total} из {total} ({points(known, total - known)}{accuracy})."


def points(given: int, chance: int) -> str:
    """Сколько точек проверено: «2 заданные и 2 случайные», «8 заданных и 10 случайных»."""
    first = units.plural(given, "заданная", "заданные", "заданных")
    second = units.plural(chance, "случайная", "случайные", "случайных")
    return f"{given} {first} и {chance} {second}"


def _unknown(run: Run, fits: Sequence[bool]) -> str:
    """Ошибка без имени: сколько точек совпало и какие."""
    known, passed = len(run.exercise.given), sum(fits)
    if not passed:
        return "Ответ не совпал ни в одной точке."
    if all(fits[:known]):
        return "На заданных числах ответ верен, на других — нет. Нужна формула, а не таблица ответов."
    return f"Ответ верен не всегда: совпало {passed} из {len(fits)} точек."


RULES: tuple[Callable[[Run], Result | None], ...] = (_unfinished, _failed, _silent, _unusable, _compared)
