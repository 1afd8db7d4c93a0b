"""Ответ учащегося как число: что принять, как сравнить, как показать.

Принимается всё, что ведёт себя как действительное число: int, float, Fraction, Decimal, скаляры numpy
и нульмерные тензоры. Логическое значение числом не считается: `True == 1` прошло бы как ответ.
Сравнение идёт в дробях, без потери точности и без переполнения.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from nanolm import units
from nanolm.exercises.task import Number

#: Дольше этого чужую строку в сообщении не показываем.
SHOWN = 120
#: Порядок и число цифр Decimal, дальше которых дробь из него строилась бы минутами.
DIGITS = 400

_DECIMAL_COMMA = "В Python дробная часть отделяется точкой: `6,5` — это кортеж из 6 и 5."
#: Имя типа → (как его назвать, что с этим делать).
_TYPES = {
    "str": ("строка", "Уберите кавычки и форматирование: оформит число print."),
    "bytes": ("строка байтов", ""),
    "bool": ("логическое значение", "Похоже, в return стоит сравнение вместо вычисления."),
    "complex": ("комплексное число", "Проверьте степени и корни: число должно быть действительным."),
    "tuple": ("кортеж", _DECIMAL_COMMA),
    "list": ("список", "Уберите квадратные скобки."),
    "set": ("множество", "Уберите фигурные скобки."),
    "dict": ("словарь", ""),
    "function": ("функция", "Похоже, при вызове забыты скобки."),
    "builtin_function_or_method": ("функция", "Похоже, при вызове забыты скобки."),
    "generator": ("генератор", "Замените yield на return."),
    "coroutine": ("корутина", "Уберите async: считать здесь нечего ждать."),
}  # fmt: skip


class Problem(NamedTuple):
    """Почему значение не годится в ответ."""

    id: str
    text: str


def plain(value: Any) -> Any:
    """Скаляр numpy или нульмерный тензор — в обычное число Python; остальное как есть."""
    try:
        return value.item() if getattr(value, "ndim", None) == 0 else value
    except KeyboardInterrupt:
        raise
    except BaseException:  # чужой объект: ndim есть, а числа внутри нет
        return value


def as_number(value: Any) -> Number | None:
    """Действительное число или None, если это не число. NaN и бесконечность остаются float."""
    value = plain(value)
    if isinstance(value, (bool, complex)):
        return None
    if isinstance(value, (int, float, Fraction)):
        return value
    if isinstance(value, Decimal):
        return _fraction(value) if value.is_finite() else float("nan")
    return None


def _fraction(value: Decimal) -> Fraction:
    """Decimal как дробь. В `1e999999999` миллиард нулей, поэтому порядок и число цифр ограничены `DIGITS`."""
    if not value:
        return Fraction(0)
    if abs(value.adjusted()) > DIGITS:
        sign = -1 if value.is_signed() else 1
        return sign * Fraction(10) ** (DIGITS if value.adjusted() > 0 else -DIGITS)
    return Fraction(Context(DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX).plus(value))


def whole(value: Any) -> int | None:
    """Целое число или None; чужой `__index__` может бросить что угодно."""
    try:
        return operator.index(value)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def exact_text(value: Any) -> str | None:
    """Обычная строка или None. У наследника str методы могут быть любыми, поэтому он копируется."""
    return "".join((value,)) if issubclass(type(value), str) else None


def read(value: Any, returns: Sequence[str]) -> tuple[Number, ...] | Problem:
    """Ответ как кортеж чисел: одно число или столько, сколько частей в `returns`."""
    if not returns:
        return _read_one(value, "")
    what = f"({', '.join(returns)})"
    if not isinstance(value, (tuple, list)):
        return Problem("pair-expected", f"Нужны {len(returns)} числа {what}, а получено одно значение: {shown(value)}.")
    if len(value) != len(returns):
        return Problem("pair-expected", f"Нужны {len(returns)} числа {what}, а получено {len(value)}.")
    numbers: list[Number] = []
    for part, name in zip(value, returns, strict=True):
        one = _read_one(part, f" на месте «{name}»")
        if isinstance(one, Problem):
            return one
        numbers += one
    return tuple(numbers)


def _read_one(value: Any, place: str) -> tuple[Number] | Problem:
    number = as_number(value)
    if number is None:
        kind, advice = _TYPES.get(type(plain(value)).__name__, (f"объект типа {type(value).__name__}", ""))
        return Problem("wrong-type", f"Нужно число{place}, а получено: {kind} {shown(value)}. {advice}".strip())
    if isinstance(number, float) and not math.isfinite(number):
        return Problem("not-finite", f"Получено{place} {units.number(number)}: проверьте деление и степени.")
    return (number,)


def contains_ellipsis(value: Any) -> bool:
    """Осталось ли в значении многоточие заготовки: само, внутри набора или в строке."""
    if isinstance(value, dict):
        value = list(value.values())
    parts = value if isinstance(value, (tuple, list, set)) else (value,)
    return any(
        part is ... or part is NotImplemented or (isinstance(part, str) and part == "Ellipsis") for part in parts
    )


def close(got: Sequence[Number], expected: Sequence[Number], tolerance: Fraction) -> bool:
    """Совпадают ли все части с относительной точностью `tolerance` (0 — в точности)."""
    return len(got) == len(expected) and all(
        abs(Fraction(a) - Fraction(b)) <= tolerance * abs(Fraction(b)) for a, b in zip(got, expected, strict=True)
    )


def cut(text: str, limit: int = SHOWN) -> str:
    """Начало длинного текста."""
    text = "".join((text,))  # repr и str чужого объекта возвращают и наследников str
    return text if len(text) <= limit else text[:limit] + "…"


def shown(value: Any) -> str:
    """Значение для человека: числа по-русски, остальное — как его пишет Python, не длиннее `SHOWN`."""
    try:
        if isinstance(value, (tuple, list)) and value and all(as_number(part) is not None for part in value):
            listed = "; ".join(map(shown, value[:SHOWN]))
            return f"({cut(listed)})"
        number = as_number(value)
        return cut(repr(value)) if number is None else _shown_number(number)
    except KeyboardInterrupt:
        raise
    except BaseException:  # repr и __class__ чужого объекта могут быть любыми
        return f"объект типа {type(value).__name__}"


def _shown_number(number: Number) -> str:
    if isinstance(number, float) and not math.isfinite(number):
        return units.number(number)
    exact = Fraction(number)
    if exact.denominator == 1 and abs(exact) < 10**15:
        return units.number(int(exact))
    if abs(exact) >= 10**300:
        return "больше 10³⁰⁰" if exact > 0 else "меньше −10³⁰⁰"
    value = float(exact)
    if not value:
        return "меньше 10⁻³⁰⁰ по модулю"
    if not 1e-3 <= abs(value) < 1e15:
        mantissa, exponent = units.scientific(value, 6).split("·")
        return f"{mantissa.rstrip('0').rstrip(',')}·{exponent}"
    return units.decimal(value, max(0, 6 - math.floor(math.log10(abs(value)))))


def pair(got: Any, expected: Any) -> tuple[str, str]:
    """Полученное и ожидаемое так, чтобы была видна разница."""
    first, second = shown(got), shown(expected)
    if first == second and as_number(got) is not None:
        return repr(plain(got)).replace(".", ","), repr(expected).replace(".", ",")
    return first, second
