"""Упражнение, ответ которого — текст или список."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from nanolm.exercises.task import Misconception


def _plainly(function: Callable[..., Any], point: tuple[Any, ...]) -> Any:
    return function(*point)


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else f"Нужна строка, а получено {type(value).__name__}."


class Phrase(NamedTuple):
    """Упражнение: эталон, точки, ошибки, подсказки.

    `call` зовёт функцию в точке: обычно просто передаёт аргументы, но может и подсунуть ей поддельную модель.
    `complain` объясняет, почему ответ не того вида, или возвращает `None`.
    """

    id: str
    title: str
    name: str
    arguments: tuple[str, ...]
    solve: Callable[..., Any]
    given: tuple[tuple[Any, ...], ...]
    generated: Callable[[random.Random], Iterable[tuple[Any, ...]]]
    mistakes: tuple[Misconception, ...]
    hints: tuple[str, ...]
    call: Callable[[Callable[..., Any], tuple[Any, ...]], Any] = _plainly
    complain: Callable[[Any], str | None] = _text
