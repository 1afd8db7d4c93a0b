"""Случайность, которая не зависит от версии Python.

Зерно задачи стоит в адресе страницы: ссылка обязана открыть ту же задачу и через год, и в браузере (Pyodide), и в
терминале. `random.Random` обещает неизменный поток только для `random()`; как из него получаются `choice` и
`randrange`, от версии к версии менялось. Поэтому генератор свой: SplitMix64 — три строки целочисленной арифметики,
и поток записан в тестах.

Источник: Steele, Lea, Flood. Fast Splittable Pseudorandom Number Generators. OOPSLA 2014.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeVar

    T = TypeVar("T")

_MASK = (1 << 64) - 1


class Dice:
    """Поток чисел, заданный зерном и метками: у каждого вида и уровня он свой."""

    def __init__(self, *labels: object) -> None:
        # FNV-1a по тексту меток: соседние зёрна дают непохожие состояния.
        self._state = 0xCBF29CE484222325
        for byte in "/".join(map(str, labels)).encode():
            self._state = (self._state ^ byte) * 0x100000001B3 & _MASK

    def next(self) -> int:
        """Следующее целое от 0 до 2⁶⁴ − 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
        return mixed ^ mixed >> 31

    def below(self, limit: int) -> int:
        """Целое от 0 до `limit` − 1: старшие разряды произведения, без деления и повторов."""
        return self.next() * limit >> 64

    def choice(self, options: Sequence[T]) -> T:
        """Один из вариантов."""
        return options[self.below(len(options))]
