"""Ошибки, общие для многих упражнений: единицы, забытый множитель, переполнение.

Функция ошибки строится из эталона, а не пишется заново: забытый множитель — это эталон, где на место
аргумента поставлена единица.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nanolm.exercises.task import Misconception
from nanolm.units import GB, GIB, KIB, MIB

Formula = Callable[..., Any]


def forgotten(solve: Formula, position: int, id_: str, meaning: str, hint: str) -> Misconception:
    """Аргумент номер `position` не вошёл в произведение."""

    def wrong(*args: Any) -> Any:
        return solve(*args[:position], 1, *args[position + 1 :])

    return Misconception(id_, wrong, meaning, hint)


def scaled(solve: Formula, factor: Any, id_: str, meaning: str, hint: str) -> Misconception:
    """Ответ отличается от верного постоянным множителем."""

    def wrong(*args: Any) -> Any:
        return solve(*args) * factor

    return Misconception(id_, wrong, meaning, hint)


def wrap(value: int, bits: int) -> int:
    """Целое, каким его видит тип со знаком из `bits` разрядов."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


_NARROW = "Целые Python не переполняются: не переводите аргументы в целые numpy или берите float64."


def overflow(whole: Formula, after: Callable[..., Any] = lambda value, *args: value, bits: int = 32) -> Misconception:
    """Целая часть счёта переполнилась; `after` доделывает остальное.

    Сложение и умножение по модулю 2ⁿ дают один и тот же остаток, в каком бы месте ни случилось переполнение,
    поэтому достаточно обрезать итог.
    """

    def wrong(*args: Any) -> Any:
        return after(wrap(whole(*args), bits), *args)

    edge = "2,1 млрд" if bits == 32 else "9,2·10¹⁸"
    return Misconception(
        f"int{bits}-overflow",
        wrong,
        f"Переполнение: счёт шёл в целых int{bits}, а они кончаются на {edge}.",
        _NARROW,
    )


def gibibytes(size: Formula) -> tuple[Misconception, ...]:
    """Ошибки единиц там, где ответ нужен в гибибайтах; `size` — верное число байтов."""
    binary = "Гибибайт — степень двойки: 1024 в кубе байт."
    return (
        Misconception(
            "gb-for-gib",
            lambda *args: size(*args) / GB,
            "Это гигабайты (10⁹ байт), а нужны гибибайты (2³⁰ байт): разница 7,4\u00a0%.",
            binary,
        ),
        Misconception(
            "bytes-for-gib",
            size,
            "Это байты: перевода в гибибайты нет.",
            "Сколько байт в одном гибибайте? На это число и надо разделить.",
        ),
        Misconception(
            "kib-for-gib", lambda *args: size(*args) / KIB, "Это кибибайты: байты поделены на 1024 один раз.", binary
        ),
        Misconception(
            "mib-for-gib", lambda *args: size(*args) / MIB, "Это мебибайты: на 1024 надо делить ещё раз.", binary
        ),
        Misconception(
            "bits-for-bytes",
            lambda *args: size(*args) * 8 / GIB,
            "Ответ в восемь раз больше: байты пересчитаны в биты.",
            "Размер значения уже дан в байтах, а не в битах.",
        ),
        Misconception(
            "bytes-as-bits",
            lambda *args: size(*args) / 8 / GIB,
            "Ответ в восемь раз меньше: байты приняты за биты.",
            "Размер значения уже дан в байтах, делить его не надо.",
        ),
        overflow(size, lambda value, *args: value / GIB),
    )


def plain_bytes(solve: Formula) -> tuple[Misconception, ...]:
    """Ошибки единиц там, где ответ нужен в байтах."""
    return (
        Misconception(
            "gib-for-bytes",
            lambda *args: solve(*args) / GIB,
            "Это гибибайты, а ответ нужен в байтах.",
            "Основная единица курса — байт; в гибибайты переводят при печати.",
        ),
        Misconception(
            "gb-for-bytes",
            lambda *args: solve(*args) / GB,
            "Это гигабайты, а ответ нужен в байтах.",
            "Основная единица курса — байт; в гигабайты переводят при печати.",
        ),
        scaled(
            solve,
            8,
            "bits-for-bytes",
            "Ответ в восемь раз больше: байты пересчитаны в биты.",
            "Размер значения уже дан в байтах, а не в битах.",
        ),
        Misconception(
            "bytes-as-bits",
            lambda *args: solve(*args) / 8,
            "Ответ в восемь раз меньше: байты приняты за биты.",
            "Размер значения уже дан в байтах, делить его не надо.",
        ),
    )
