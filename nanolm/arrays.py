"""Массивы numpy вместо одного B или S: тот же счёт сразу для миллиона точек.

Сам модуль numpy не импортирует: он узнаёт массив по признакам и пользуется его же методами. Отличий от целых
Python три, и каждое здесь обезврежено: у массива 64 бита и переполнение молчит, `min` и `max` не умеют
поэлементно, а истинность сравнения не определена.
"""

from __future__ import annotations

from nanolm.spec import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from nanolm.ops import Factor

#: Больше не бывает ни контекста, ни пакета, а произведение двух таких ещё помещается в 64 бита.
ARRAY_LIMIT = 2**28

#: Предел одной строки счёта: сумма сотни таких строк помещается в 63 бита.
LINE_LIMIT = 2**56


def is_array(value: object) -> bool:
    """Массив ли это numpy хотя бы с одной осью."""
    return bool(getattr(value, "ndim", 0)) and hasattr(value, "__array_interface__")


def wholes(field: str, value: Any) -> Any:
    """Проверить, что в массиве целые от 1 до `ARRAY_LIMIT`, и вернуть его 64-битным.

    Ошибки: `ValueError` с именем поля и правилом.
    """
    if value.dtype.kind not in "iu":
        raise ValueError(f"{field}: массив из {shown(str(value.dtype))}: нужны целые числа")
    if not value.size:
        raise ValueError(f"{field}: массив пуст")
    for bound in (int(value.min()), int(value.max())):
        if not 1 <= bound <= ARRAY_LIMIT:
            raise ValueError(f"{field} = {shown(bound)}: в массиве нужны целые числа от 1 до 2²⁸")
    return value.astype("int64")


def product(factors: Iterable[Factor], over: Any) -> Any:
    """Произведение множителей, среди которых есть массивы, делённое на `over` с округлением.

    Числа перемножаются до массивов: проход по миллиону точек — один на массив, а не на множитель.
    """
    numbers: int | float = 1
    arrays: list[Any] = []
    bound = 1
    value: Any
    for _, value in factors:
        if is_array(value):
            arrays.append(value)
            bound *= int(abs(value).max())
        else:
            numbers *= value
    if abs(numbers) * bound > LINE_LIMIT:
        raise ValueError("B, S: при таких размерах строка счёта длиннее 56 бит; посчитайте эту точку отдельно")
    result: Any = numbers
    for array in arrays:
        result = result * array
    return result if not is_array(over) and over == 1 else (2 * result + over) // (2 * over)


def largest(values: list[Any]) -> tuple[Any, Any]:
    """Поэлементное наибольшее и номер того, кто его дал."""
    best, place = values[0], 0 * values[0]
    for i, value in enumerate(values[1:], 1):
        wins = (value > best).astype("int64")
        best, place = wins.choose([best, value]), wins.choose([place, i])
    return best, place


def span(value: Any, write: Any) -> str:
    """Массив для таблицы: от наименьшего до наибольшего."""
    return f"{write(value.min().item())} … {write(value.max().item())}"
