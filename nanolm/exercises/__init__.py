"""Упражнения уроков: проверка, которая называет ошибку.

    >>> from nanolm.exercises import check
    >>> check("9/swiglu-width", lambda D: 4 * D).misconception
    'four-d'

`check(id, ответ)` сам ничего не печатает: последним выражением ячейки итог показывает себя, в программе
его печатает `print`. `hint(id)` даёт подсказки от общей к точной, `exercises()` — список упражнений.

Проверка не бросает исключений, что бы ей ни дали: неизвестный id, значение вместо функции, функция, которая
падает, выходит из программы, зацикливается или зовёт себя без конца, — всё это итоги с объяснением.
Наружу проходит только KeyboardInterrupt: Ctrl-C прерывает и проверку.
Тот же модуль работает в блокноте, на странице (Pyodide) и в pytest, поэтому ему хватает стандартной библиотеки.
"""

from __future__ import annotations

import difflib
import random
from typing import Any

from nanolm.exercises import judge, scenarios, text
from nanolm.exercises.answer import cut, exact_text, shown, whole
from nanolm.exercises.failures import guarded
from nanolm.exercises.formulas import SCENARIOS
from nanolm.exercises.lab_7_2 import EXERCISES as _LAB_7_2
from nanolm.exercises.lab_7_4 import EXERCISES as _LAB_7_4
from nanolm.exercises.phrase import Phrase
from nanolm.exercises.result import Hint, Result, bad_level, bad_seed
from nanolm.exercises.task import Argument, Exercise, Misconception
from nanolm.exercises.week_9_model import EXERCISES as _WEEK_9_MODEL
from nanolm.exercises.week_9_serving import EXERCISES as _WEEK_9_SERVING

__all__ = ["SCENARIOS", "Argument", "Exercise", "Hint", "Misconception", "Result", "check", "exercises", "hint"]

_ALL = {exercise.id: exercise for exercise in (*_LAB_7_2, *_LAB_7_4, *_WEEK_9_MODEL, *_WEEK_9_SERVING)}

#: Сколько подсказок к упражнению уже показано.
_shown_hints: dict[str, int] = {}


class Catalogue(tuple[Exercise, ...]):
    """Список упражнений-формул; `texts` — упражнения, ответ которых текст. Печатаются одной таблицей."""

    texts: tuple[Phrase, ...] = ()

    _HEAD = ("id", "упражнение", "точность", "что написать")

    def _rows(self) -> list[tuple[str, ...]]:
        formulas = [(exercise.id, exercise.title, exercise.accuracy, exercise.signature) for exercise in self]
        texts = [
            (
                phrase.id,
                phrase.title[:1].upper() + phrase.title[1:],
                "точно",
                f"{phrase.name}({', '.join(phrase.arguments)})",
            )
            for phrase in self.texts
        ]
        return sorted(formulas + texts, key=lambda row: row[0].partition("/")[0])

    def __str__(self) -> str:
        rows = [self._HEAD, *self._rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self._HEAD))]
        lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
        return "\n".join(line.rstrip() for line in lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{name}</th>' for name in self._HEAD)
        rows = "".join(
            f'<tr><th scope="row"><code>{id_}</code></th><td>{title}</td><td>{accuracy}</td>'
            f"<td><code>{signature}</code></td></tr>"
            for id_, title, accuracy, signature in self._rows()
        )
        return f'<table class="nanolm-exercises"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def exercises(lesson: str | None = None) -> Catalogue:
    """Все упражнения или упражнения одного урока: «7.1», «7.2», «7.3», «7.4», «9»."""
    found = Catalogue(exercise for exercise in _ALL.values() if lesson in (None, exercise.lesson))
    found.texts = text.catalogue(lesson)
    return found


def check(id: str, answer: Any, seed: int | None = None) -> Result:  # noqa: A002 — так зовётся в уроках
    """Проверить ответ: функцию или, в «7.2/scenarios», словарь.

    `seed` повторяет случайные точки прошлой проверки (`Result.seed`); без него они каждый раз новые.
    """
    # Упражнения 7.1 и 7.3 судят другие правила: там ответ — строка или список.
    return text.check(id, answer, seed) if text.find(id) else guarded(id, lambda: _checked(id, answer, seed))


def _checked(id_: Any, answer: Any, seed: Any) -> Result:
    exercise = _find(id_)
    if exercise is None:
        return Result(shown(id_), "", "error", _unknown(id_), "unknown-exercise")
    number = random.SystemRandom().randrange(2**32) if seed is None else whole(seed)
    if number is None:
        return bad_seed(exercise.id, exercise.title, shown(seed))
    decide = judge.judge if exercise.arguments else scenarios.judge
    return decide(exercise, answer, number)


def hint(id: str, level: int | None = None) -> Hint:  # noqa: A002 — так зовётся в уроках
    """Следующая подсказка; `level` (с единицы) — именно эта, счёт показанных не сдвигает."""
    exercise = _find(id)
    if text.find(id):
        return text.hint(id, level)
    if exercise is None:
        return Hint(shown(id), 0, 0, _unknown(id))
    total = len(exercise.hints)
    if level is None:
        # После последней подсказки — ещё раз она же, а потом снова с первой.
        level = _shown_hints.get(exercise.id, 0) + 1
        _shown_hints[exercise.id] = level if level <= total else 0
    number = whole(level)
    if number is None:
        return bad_level(exercise.id, total, shown(level))
    last = " Это последняя подсказка; дальше — решение в уроке." if number > total else ""
    number = min(max(number, 1), total)
    return Hint(exercise.id, number, total, exercise.hints[number - 1] + last)


def _find(id_: Any) -> Exercise | None:
    return _ALL.get((exact_text(id_) or "").strip())


def _unknown(id_: Any) -> str:
    name = exact_text(id_)
    if name is None:
        return f"Первым аргументом идёт id упражнения, строка, а получено {shown(id_)}."
    every = (*_ALL, *text.IDS)
    near = difflib.get_close_matches(cut(name), every, 1, 0.5)
    return f"Упражнения «{cut(name)}» нет. " + (f"Возможно, «{near[0]}»?" if near else f"Есть: {', '.join(every)}.")
