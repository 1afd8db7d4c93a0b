"""Из чего состоит упражнение: эталон, аргументы, точки проверки, таблица ошибок, подсказки.

Ответ проверяется в точках — наборах аргументов. Три точки заданы, ещё десять случайны: подгонка под
известные числа не пройдёт. Числа во всех точках различны и «почти простые» (не делятся на 2, 3, 5…),
чтобы две разные формулы не совпали случайно: при `K = N` или `b = 1` ошибку не увидеть.

Ошибка (`Misconception`) — это неверная функция. Если ответ учащегося совпал с ней во всех точках, то мы
знаем не только, что он неверен, но и почему.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from nanolm import units

#: Сколько случайных точек добавляется к заданным.
GENERATED = 10

_SMALL_PRIMES = (2, 3, 5, 7, 11, 13)

Number = int | float | Fraction
Point = tuple[Any, ...]


class Misconception(NamedTuple):
    """Типичная ошибка: неверная функция и разговор о ней.

    `id` постоянен: на него опираются страница и тесты. `meaning` называет ошибку, `hint` выводит из неё,
    не называя ответа.
    """

    id: str
    wrong: Callable[..., Any]
    meaning: str
    hint: str


class Argument(NamedTuple):
    """Аргумент и границы его случайных значений.

    `kind` — "int", "float" или "bool". `times` — имя аргумента, на который значение умножается:
    голов запроса всегда целое число на голову ключа.
    """

    name: str
    title: str
    low: float = 0
    high: float = 1
    kind: str = "int"
    times: str = ""


class Exercise(NamedTuple):
    """Упражнение. `returns` — названия частей ответа, если их несколько; `tolerance` — относительная."""

    id: str
    title: str
    lesson: str
    solve: Callable[..., Any]
    unit: str
    arguments: tuple[Argument, ...] = ()
    given: tuple[Point, ...] = ()
    mistakes: tuple[Misconception, ...] = ()
    hints: tuple[str, ...] = ()
    tolerance: Fraction = Fraction(0)
    returns: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Имена аргументов по порядку."""
        return tuple(argument.name for argument in self.arguments)

    @property
    def signature(self) -> str:
        """Что нужно написать: «compute_num_flops(param_count, num_tokens)»."""
        return f"{self.solve.__name__}({', '.join(self.names)})" if self.arguments else "словарь «сценарий → FLOPs»"

    @property
    def accuracy(self) -> str:
        """Какое расхождение допустимо: «точно», «1 %», «10⁻⁶»."""
        if not self.tolerance:
            return "точно"
        if self.tolerance >= Fraction(1, 1000):
            return units.percent(float(self.tolerance), 0)
        return units.scientific(float(self.tolerance), 0).removeprefix("1·")

    @property
    def stub(self) -> str:
        """Заготовка, с которой учащийся начинает."""
        if self.arguments:
            return f"def {self.signature}:\n    ..."
        rows = "".join(f"    {name!r}: ...,\n" for name in self.solve())
        return "flops = {\n" + rows.replace("'", '"') + "}"

    def points(self, seed: int) -> tuple[Point, ...]:
        """Заданные точки и случайные: одно зерно — одни и те же точки."""
        draw = random.Random(seed)
        return (*self.given, *(self._random_point(draw, i) for i in range(GENERATED)))

    def _random_point(self, draw: random.Random, index: int) -> Point:
        """Все числа различны; логические значения чередуются, чтобы встретились оба."""
        while True:
            values = {argument.name: _random_value(argument, draw, index) for argument in self.arguments}
            for argument in self.arguments:
                if argument.times:
                    values[argument.name] *= values[argument.times]
            numbers = [value for value in values.values() if not isinstance(value, bool)]
            if len(set(numbers)) == len(numbers):
                return tuple(values.values())


def _random_value(argument: Argument, draw: random.Random, index: int) -> Any:
    if argument.kind == "bool":
        return bool(index % 2)
    if argument.kind == "float":
        return round(draw.uniform(argument.low, argument.high), 3)
    return _prime_like(int(math.exp(draw.uniform(math.log(argument.low), math.log(argument.high)))))


def _prime_like(start: int) -> int:
    """Ближайшее сверху число без малых делителей."""
    while any(start % prime == 0 and start != prime for prime in _SMALL_PRIMES):
        start += 1
    return start
