"""Проверка упражнений, где ответ — текст или список, а не формула: лабораторные 7.1 и 7.3.

Порядок тот же, что у формул: функцию зовут в заданных и случайных точках, не начатую не ругают, исключение
показывают на строке учащегося, а неверный ответ сравнивают с таблицей известных ошибок. Сравнение здесь точное:
у текста нет «почти верно».

    >>> from nanolm.exercises.text import check
    >>> check("7.3/format-question", lambda question, sot, eot: question).misconception
    'markers-forgotten'
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nanolm.exercises import attempt, lab_7_1, lab_7_3
from nanolm.exercises.answer import contains_ellipsis, cut, exact_text, shown, whole
from nanolm.exercises.failures import NOT_WRITTEN, explain, guarded
from nanolm.exercises.judge import points
from nanolm.exercises.phrase import Phrase
from nanolm.exercises.result import Finding, Hint, Result, bad_level, bad_seed

__all__ = ["check", "hint"]

_ALL = {exercise.id: exercise for exercise in (*lab_7_1.EXERCISES, *lab_7_3.EXERCISES)}
#: Упражнения, которые судит этот модуль; `nanolm.exercises` передаёт их сюда.
IDS = tuple(_ALL)

#: Сколько подсказок к упражнению уже показано.
_shown_hints: dict[str, int] = {}

_UNFINISHED = "В функции ещё стоит многоточие заготовки. Замените его кодом и вызовите проверку снова."


class Run(NamedTuple):
    """Проверка одной функции: точки, ответы учащегося и верные ответы."""

    exercise: Phrase
    points: tuple[tuple[Any, ...], ...]
    outcomes: tuple[attempt.Outcome, ...]
    seed: int

    @property
    def expected(self) -> list[Any]:
        """Верные ответы."""
        return [self.exercise.call(self.exercise.solve, point) for point in self.points]

    def result(self, status: str, finding: Finding, at: int | None = None, **more: Any) -> Result:
        """Итог; `at` — номер точки, которую показать."""
        if at is not None:
            outcome = self.outcomes[at]
            # Поддельная модель в точке не записана: вместо неё — имя аргумента.
            missing = self.exercise.arguments[: len(self.exercise.arguments) - len(self.points[at])]
            arguments = ", ".join([*missing, *map(repr, self.points[at])])
            more = {
                "input": f"{self.exercise.name}({arguments})",
                "printed": cut(outcome.printed.strip(), 500),
                "line": outcome.line,
                "source": outcome.source,
                **more,
            }
        return Result(
            self.exercise.id, self.exercise.title, status, finding.meaning, finding.id, finding.hint,
            total=len(self.points), seed=self.seed, **more,
        )  # fmt: skip


def check(id: str, answer: Any, seed: int | None = None) -> Result:  # noqa: A002 — так зовётся в уроках
    """Проверить функцию учащегося; исключений не бросает. `seed` повторяет случайные точки прошлой проверки."""
    return guarded(id, lambda: _checked(id, answer, seed))


def _checked(id_: Any, answer: Any, seed: Any) -> Result:
    exercise = find(id_)
    if exercise is None:
        return Result(shown(id_), "", "error", _unknown_id(id_), "unknown-exercise")
    number = random.SystemRandom().randrange(2**32) if seed is None else whole(seed)
    if number is None:
        return bad_seed(exercise.id, exercise.title, shown(seed))
    refusal = _refuse(exercise, answer)
    return _judged(exercise, answer, number) if refusal is None else refusal._replace(seed=number)


def _judged(exercise: Phrase, answer: Any, seed: int) -> Result:
    """Позвать функцию во всех точках и вынести решение."""
    points = (*exercise.given, *exercise.generated(random.Random(seed)))
    clock, outcomes = attempt.Clock(), []
    for point in points:
        outcomes.append(attempt.run(lambda *values: exercise.call(answer, values), point, (), clock))
        if outcomes[-1].error:
            break
    run = Run(exercise, points, tuple(outcomes), seed)
    return next(result for result in (rule(run) for rule in RULES) if result is not None)


def hint(id: str, level: int | None = None) -> Hint:  # noqa: A002 — так зовётся в уроках
    """Следующая подсказка; `level` (с единицы) — именно эта."""
    exercise = find(id)
    if exercise is None:
        return Hint(shown(id), 0, 0, _unknown_id(id))
    total = len(exercise.hints)
    if level is None:
        level = _shown_hints[exercise.id] = min(_shown_hints.get(exercise.id, 0) + 1, total)
    number = whole(level)
    if number is None:
        return bad_level(exercise.id, total, shown(level))
    number = min(max(number, 1), total)
    return Hint(exercise.id, number, total, exercise.hints[number - 1])


def find(id_: Any) -> Phrase | None:
    """Упражнение этого модуля или None."""
    return _ALL.get((exact_text(id_) or "").strip())


def catalogue(lesson: str | None = None) -> tuple[Phrase, ...]:
    """Упражнения всех лабораторных или одной: «7.1», «7.3»."""
    return tuple(exercise for exercise in _ALL.values() if lesson in (None, exercise.id.partition("/")[0]))


def _unknown_id(id_: Any) -> str:
    return f"Упражнения {shown(id_)} нет. Есть: {', '.join(_ALL)}."


def _refuse(exercise: Phrase, function: Any) -> Result | None:
    """Передали не функцию или функцию с другим числом аргументов."""
    if function is None or function is ...:
        message = f"Вместо функции передано {function!r}. Напишите её и передайте имя без скобок."
        return Result(exercise.id, exercise.title, "not_started", message)
    if not callable(function):
        message = f"Проверке нужна сама функция, а получено значение: {shown(function)}."
        advice = f'Передайте имя без скобок вызова: check("{exercise.id}", {exercise.name}).'
        return Result(exercise.id, exercise.title, "error", message, "value-not-function", advice)
    if attempt.keywords(function, exercise.arguments) is not None:
        return None
    message = f"Число аргументов не то. Ожидается {exercise.name}({', '.join(exercise.arguments)})."
    return Result(exercise.id, exercise.title, "error", message, "wrong-arity")


# --- Правила --------------------------------------------------------------------------------------


def _unfinished(run: Run) -> Result | None:
    for outcome in run.outcomes:
        about_stub = isinstance(outcome.error, (TypeError, AttributeError)) and "llipsis" in explain(outcome.error).raw
        if about_stub or isinstance(outcome.error, NOT_WRITTEN) or contains_ellipsis(outcome.value):
            return run.result("not_started", Finding(None, _UNFINISHED), line=outcome.line, source=outcome.source)
    if all(outcome.value is None and not outcome.error and not outcome.printed.strip() for outcome in run.outcomes):
        return run.result("not_started", Finding(None, "Функция пока ничего не возвращает: добавьте return."))
    return None


def _failed(run: Run) -> Result | None:
    last = len(run.outcomes) - 1
    error = run.outcomes[last].error
    if error is None:
        return None
    failure = explain(error)
    return run.result("error", Finding(failure.id, failure.text), last)


def _silent(run: Run) -> Result | None:
    """Вернула None: напечатала вместо return или забыла return."""
    empty = [at for at, outcome in enumerate(run.outcomes) if outcome.value is None]
    if not empty:
        return None
    pairs = zip(run.outcomes, run.expected, strict=True)
    if all(outcome.printed.strip() == str(right).strip() for outcome, right in pairs):
        meaning = "Текст верен, но функция его напечатала, а не вернула: вызвавший получил None."
        return run.result("wrong", Finding("printed-not-returned", meaning, "Замените print на return."), empty[0])
    meaning = "Функция вернула None: где-то нет return."
    return run.result("wrong", Finding("nothing-returned", meaning, "Ответ отдают через return."), empty[0])


def _other_type(run: Run) -> Result | None:
    """Вернула не то: вместо строки — список, вместо пары — одно."""
    for at, outcome in enumerate(run.outcomes):
        complaint = run.exercise.complain(outcome.value)
        if complaint is not None:
            return run.result("wrong", Finding("wrong-type", complaint), at, got=shown(outcome.value))
    return None


def _compared(run: Run) -> Result:
    got, expected = [outcome.value for outcome in run.outcomes], run.expected
    fits = [mine == right for mine, right in zip(got, expected, strict=True)]
    if all(fits):
        known, total = len(run.exercise.given), len(fits)
        praise = f"Все проверки сошлись: {total} из {total} ({points(known, total - known)})."
        return run.result("correct", Finding(None, praise), passed=total)
    at = fits.index(False)
    finding = _diagnosis(run, got) or Finding(None, _unknown(fits), f'Подсказка: hint("{run.exercise.id}").')
    return run.result("wrong", finding, at, got=shown(got[at]), expected=shown(expected[at]), passed=sum(fits))


def _diagnosis(run: Run, got: Sequence[Any]) -> Finding | None:
    """Названная ошибка: совпасть нужно во всех точках. Иначе — ответ, который не зависит от вопроса."""
    for mistake in run.exercise.mistakes:
        if all(run.exercise.call(mistake.wrong, point) == mine for point, mine in zip(run.points, got, strict=True)):
            return Finding(mistake.id, mistake.meaning, mistake.hint)
    if all(mine == got[0] for mine in got):
        return Finding("constant", "Ответ один и тот же, о чём ни спроси.", "Он должен зависеть от аргументов.")
    return None


def _unknown(fits: Sequence[bool]) -> str:
    if not any(fits):
        return "Ответ не совпал ни в одной точке."
    return f"Ответ верен не всегда: совпало {sum(fits)} из {len(fits)} точек."


RULES: tuple[Callable[[Run], Result | None], ...] = (_unfinished, _failed, _silent, _other_type, _compared)
