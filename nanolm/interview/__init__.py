"""Тренажёр «Собеседование»: бесконечные задачи о параметрах, памяти и времени.

    >>> from nanolm.interview import judge, problem
    >>> task = problem(seed=7, level=1, kind="kv")
    >>> judge(task, "42 попугая").state
    'unclear'

`problem(seed, level, kind)` — задача: то же зерно — та же задача на любой версии Python и в браузере. `judge(задача,
текст)` судит ответ и узнаёт ошибку по числу. `session(seed, level)` — вопрос собеседования на три минуты.

Верный ответ берётся из счетов `nanolm.budget`, решение — строки этих счетов, ошибки — те же строки, исправленные
неверно. Своих формул у тренажёра нет. Нужна только стандартная библиотека.
"""

from nanolm.interview.judging import Verdict, judge
from nanolm.interview.kinds import KINDS, LEVELS, problem
from nanolm.interview.problem import Mistake, Problem, Row
from nanolm.interview.session import Session, session

__all__ = ["KINDS", "LEVELS", "Mistake", "Problem", "Row", "Session", "Verdict", "judge", "problem", "session"]
