"""Числа и единицы по-русски.

Внутри библиотеки — только основные единицы: байты, FLOPs, секунды. Слова появляются на выходе.
Две ловушки, из-за которых этот модуль существует: ГБ (10⁹) меньше ГиБ (2³⁰) на 7,4 %, а FLOPs —
количество операций, тогда как FLOP/s — скорость.

Разделитель дробной части — запятая; группы разрядов и единицы отделяет неразрывный пробел.
"""

from __future__ import annotations

NBSP = "\u00a0"
#: С ней сравнивают вместо math.isfinite: `math` — отдельный файл библиотеки, его загрузка заметна на старте.
INFINITY = float("inf")
KIB, MIB, GIB = 1024, 1024**2, 1024**3
GB = 10**9

_BINARY = ((1024**5, "ПиБ"), (1024**4, "ТиБ"), (GIB, "ГиБ"), (MIB, "МиБ"), (KIB, "КиБ"))
_DECIMAL = ((10**15, "ПБ"), (10**12, "ТБ"), (10**9, "ГБ"), (10**6, "МБ"), (10**3, "кБ"))
_SHORT = ((10**12, "трлн"), (10**9, "млрд"), (10**6, "млн"), (10**3, "тыс."))
#: Приставки — латиницей: у латинской единицы русская приставка смешала бы два алфавита в одном слове.
_PREFIX = ((1e24, "Y"), (1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_TIME = ((86_400.0, "сут"), (3_600.0, "ч"), (60.0, "мин"), (1.0, "с"), (1e-3, "мс"), (1e-6, "мкс"), (1e-9, "нс"))
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def number(value: float, digits: int = 0) -> str:
    """`8030261248` → «8 030 261 248»; с `digits` — дробь через запятую."""
    if not abs(value) < INFINITY:
        return "∞" if value > 0 else "−∞" if value < 0 else "не число"
    # Знак «z» убирает минус у нуля, в который округлилось отрицательное.
    text = f"{value:z,.{digits}f}" if digits or isinstance(value, float) else f"{value:,d}"
    return text.replace("-", "−").translate({44: NBSP, 46: ","})


def whole_from(text: str) -> int:
    """Целое, как его пишет человек: «8 192», «15e12», «14,8 трлн».

    Считается точно, без float. «8,192» не читается: это и разряды, и дробь.

    Ошибки: `ValueError` или `OverflowError`, если это не целое число.
    """
    text = "".join(text.split()).replace(",", ".").rstrip(".")
    for step, word in _SHORT:
        amount = text.removesuffix(word.rstrip("."))
        if amount != text:
            text = f"{amount}e{len(str(step)) - 1}"
            break
    mantissa, scaled, exponent = text.lower().partition("e")
    before, _, after = mantissa.partition(".")
    power = (int(exponent) if scaled else 0) - len(after)
    if abs(power) > _LARGEST_POWER:
        raise OverflowError(text)
    large: int = 10 ** max(0, power)
    small: int = 10 ** max(0, -power)
    value, rest = divmod(int(before + after), small)
    if rest or (len(after) == 3 and not scaled):
        raise ValueError(f"{text}: не целое число")
    return value * large


#: Больше не бывает ни одного осмысленного числа, а степень считается долго.
_LARGEST_POWER = 300


def decimal(value: float, digits: int = 2) -> str:
    """Дробное число с запятой: `decimal(14.957, 2)` → «14,96»."""
    return number(float(value), digits)


def estimate(value: float, digits: int = 1) -> str:
    """Оценка: у сотен и большего дробных знаков нет — они обещали бы точность, которой взяться неоткуда."""
    return decimal(value, 0 if abs(value) >= 100 else digits)


def percent(share: float, digits: int = 1) -> str:
    """Доля → проценты: `percent(0.074)` → «7,4 %»."""
    return number(float(share) * 100, digits) + NBSP + "%"


def _significant(value: float, digits: int) -> str:
    """Округлить до `digits` значащих цифр и не терять целых разрядов."""
    if not value or not abs(value) < INFINITY:
        return number(value)
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return number(float(value), max(0, digits - 1 - exponent))


def _rounded(value: float, digits: int) -> float:
    """Модуль после округления до `digits` значащих цифр: 999,96 — это уже 1000."""
    return abs(float(f"{value:.{digits - 1}e}"))


def _scaled(value: float, steps: tuple[tuple[float, str], ...], base: str, digits: int) -> str:
    """Самая крупная единица, в которой после округления есть хотя бы одна целая."""
    for step, name in steps:
        if _rounded(value / step, digits) >= 1:
            return _significant(value / step, digits) + NBSP + name
    # Меньше первой единицы целое остаётся целым: «59 Б», а не «59,00 Б».
    shown = number(value) if isinstance(value, int) else _significant(value, digits)
    return shown + (NBSP + base if base else "")


def binary_bytes(size: float, digits: int = 4) -> str:
    """Байты в двоичных единицах: `binary_bytes(2**30)` → «1,000 ГиБ»."""
    return _scaled(size, _BINARY, "Б", digits)


def decimal_bytes(size: float, digits: int = 4) -> str:
    """Байты в десятичных единицах: `decimal_bytes(16060522496)` → «16,06 ГБ»."""
    return _scaled(size, _DECIMAL, "Б", digits)


def gib(size: float, digits: int = 2) -> str:
    """Байты в гибибайтах: «14,96 ГиБ»."""
    return decimal(size / GIB, digits) + NBSP + "ГиБ"


def gb(size: float, digits: int = 2) -> str:
    """Байты в гигабайтах (10⁹): «16,06 ГБ»."""
    return decimal(size / GB, digits) + NBSP + "ГБ"


def both_bytes(size: float) -> str:
    """Обе записи там, где их легко спутать: «14,96 ГиБ (16,06 ГБ)»."""
    return f"{binary_bytes(size)} ({decimal_bytes(size)})"


def short(value: float, digits: int = 3) -> str:
    """Крупное количество словом: `short(8.03e9)` → «8,03 млрд»."""
    return _scaled(value, _SHORT, "", digits)


si = short


def prefixed(value: float, unit: str, digits: int = 3) -> str:
    """Приставка СИ к единице, записанной латиницей: `prefixed(9.89e14, "FLOP/s")` → «989 TFLOP/s»."""
    return _scaled(value, tuple((step, prefix + unit) for step, prefix in _PREFIX), unit, digits)


def scientific(value: float, digits: int = 2) -> str:
    """Экспоненциальная запись: `scientific(1.2e20)` → «1,20·10²⁰»; `digits` — знаки после запятой."""
    if not value or not abs(value) < INFINITY:
        return number(value)
    mantissa, exponent = f"{float(value):.{digits}e}".split("e")
    return mantissa.replace("-", "−").replace(".", ",") + "·10" + str(int(exponent)).translate(_SUPERSCRIPT)


def duration(seconds: float, digits: int = 3) -> str:
    """Время подходящей единицей: `duration(46875)` → «13,0 ч»."""
    return _scaled(seconds, _TIME, "с", digits) if seconds else "0" + NBSP + "с"


def plural(count: int, one: str, few: str, many: str) -> str:
    """Форма слова при числе: `plural(21, "слой", "слоя", "слоёв")` → «слой»."""
    tail = abs(count) % 100
    if tail in range(11, 15):
        return many
    return {1: one, 2: few, 3: few, 4: few}.get(tail % 10, many)


def counted(value: float, one: str, few: str, many: str, digits: int = 0) -> str:
    """Число и слово при нём: `counted(24, "раз", "раза", "раз")` → «24 раза».

    Форму выбирает показанное число, а не точное: 23,6 без дробных знаков — это «24 раза». При дроби слово
    стоит в родительном падеже единственного числа: «2,2 раза».
    """
    word = few if digits else plural(round(value), one, few, many)
    return number(float(value), digits) + NBSP + word
