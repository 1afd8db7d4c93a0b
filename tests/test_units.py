"""Числа и единицы: запятая, неразрывный пробел, ГБ против ГиБ."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from nanolm import units
from nanolm.units import GB, GIB, NBSP


def plain(text: str) -> str:
    """Неразрывный пробел как обычный: ожидаемое читается."""
    return text.replace(NBSP, " ")


# --- ГБ и ГиБ -----------------------------------------------------------------------------------


def test_gigabyte_is_not_gibibyte() -> None:
    """4 млрд весов по 4 байта: 16,00 ГБ, но 14,90 ГиБ. На карте в 16 ГБ это решает."""
    size = 4_000_000_000 * 4
    assert GIB - GB == 73_741_824
    assert plain(units.gb(size)) == "16,00 ГБ"
    assert plain(units.gib(size)) == "14,90 ГиБ"
    assert plain(units.both_bytes(size)) == "14,90 ГиБ (16,00 ГБ)"


@pytest.mark.parametrize(
    ("size", "binary", "decimal"),
    [
        (2**30, "1,000 ГиБ", "1,074 ГБ"),
        (10**9, "953,7 МиБ", "1,000 ГБ"),
        (16_060_522_496, "14,96 ГиБ", "16,06 ГБ"),
        (131_072, "128,0 КиБ", "131,1 кБ"),
        (2**40, "1,000 ТиБ", "1,100 ТБ"),
        (2**50, "1,000 ПиБ", "1,126 ПБ"),
        (1023, "1023 Б", "1,023 кБ"),
        (59, "59 Б", "59 Б"),
        (0, "0 Б", "0 Б"),
    ],
)
def test_bytes_in_both_systems(size: int, binary: str, decimal: str) -> None:
    assert plain(units.binary_bytes(size)) == binary.replace("1023", "1 023")
    assert plain(units.decimal_bytes(size)) == decimal


def test_binary_and_decimal_prefixes_never_mix() -> None:
    """Двоичное значение — только с «и» в единице, десятичное — только без неё."""
    for power in range(10, 60):
        assert units.binary_bytes(2**power)[-2:] == "иБ"
        assert units.decimal_bytes(2**power)[-2:] != "иБ"


# --- запись чисел -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (8_030_261_248, 0, "8 030 261 248"),
        (999, 0, "999"),
        (1000, 0, "1 000"),
        (-1234567, 0, "−1 234 567"),
        (14.957, 2, "14,96"),
        (1234.5, 1, "1 234,5"),
        (1234.5678, 0, "1 235"),
        (0.0, 1, "0,0"),
        (-0.0001, 2, "0,00"),
        (5, 2, "5,00"),
        (10**30, 0, "1" + " 000" * 10),
        (math.inf, 2, "∞"),
        (-math.inf, 2, "−∞"),
        (math.nan, 2, "не число"),
    ],
)
def test_number(value: float, digits: int, text: str) -> None:
    assert plain(units.number(value, digits)) == text


def test_groups_and_units_are_joined_by_no_break_spaces() -> None:
    shown = (
        units.number(1234567), units.gib(1), units.gb(1), units.both_bytes(10**9), units.percent(0.5),
        units.short(8e9), units.duration(5), units.prefixed(1e12, "FLOP/s"),
    )  # fmt: skip
    for text in shown:
        assert NBSP in text
        assert " " not in text.replace(" (", "(")


def test_decimal_and_percent() -> None:
    assert units.decimal(14.9573) == "14,96"
    assert units.decimal(26, 1) == "26,0"
    assert plain(units.percent(0.0737)) == "7,4 %"
    assert plain(units.percent(1.0, 0)) == "100 %"


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (8.03e9, 3, "8,03 млрд"),
        (8_030_261_248, 4, "8,030 млрд"),
        (671_026_404_352, 3, "671 млрд"),
        (15e12, 3, "15,0 трлн"),
        (1e6, 3, "1,00 млн"),
        (1500, 2, "1,5 тыс."),
        (8, 3, "8"),
        (0, 3, "0"),
        (-2e9, 3, "−2,00 млрд"),
    ],
)
def test_short(value: float, digits: int, text: str) -> None:
    assert plain(units.short(value, digits)) == text
    assert units.si is units.short


@pytest.mark.parametrize(
    ("show", "value", "text"),
    [
        (units.short, 999_960.0, "1,00 млн"),
        (units.binary_bytes, 2**30 - 1, "1,000 ГиБ"),
        (units.duration, 59.999, "1,00 мин"),
        (units.duration, 0.9996, "1,00 с"),
        (units.decimal_bytes, 999_999_999, "1,000 ГБ"),
    ],
)
def test_rounding_up_moves_to_the_next_unit(show: object, value: float, text: str) -> None:
    """«1 000 мс» и «1 024,0 МиБ» — округление перешло через край единицы, а единица осталась."""
    assert plain(show(value)) == text  # type: ignore[operator]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (46_875, "13,0 ч"),
        (86_400, "1,00 сут"),
        (3_600, "1,00 ч"),
        (90, "1,50 мин"),
        (1.0, "1,00 с"),
        (0.0048, "4,80 мс"),
        (3.2e-6, "3,20 мкс"),
        (1e-9, "1,00 нс"),
        (0, "0 с"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert plain(units.duration(seconds)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(9.89e14, "989 TFLOP/s"), (1.979e15, "1,98 PFLOP/s"), (5.0, "5,00 FLOP/s"), (4e3, "4,00 kFLOP/s")],
)
def test_rates_have_a_prefix_and_a_unit(value: float, text: str) -> None:
    assert plain(units.prefixed(value, "FLOP/s")) == text


def test_prefixes_of_a_latin_unit_are_latin() -> None:
    """«ТFLOP/s» с русской «Т» не найти поиском и не вставить в формулу."""
    shown = [units.prefixed(10.0**power, "FLOPs").split(NBSP)[1] for power in range(3, 27, 3)]
    assert shown == [prefix + "FLOPs" for prefix in "kMGTPEZY"]
    assert all(name.isascii() for name in shown)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1.2e20, 2, "1,20·10²⁰"),
        (1.2e20, 1, "1,2·10²⁰"),
        (6e-8, 0, "6·10⁻⁸"),
        (-1234, 1, "−1,2·10³"),
        (9.999, 1, "1,0·10¹"),
        (0, 2, "0"),
        (10**40, 0, "1·10⁴⁰"),
    ],
)
def test_scientific(value: float, digits: int, text: str) -> None:
    assert units.scientific(value, digits) == text


@pytest.mark.parametrize("show", [units.short, units.duration, units.binary_bytes, units.scientific, units.gib])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_infinity_is_shown_not_raised(show: object, value: float) -> None:
    assert units.number(value) in show(value)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("count", "form"),
    [
        (0, "слоёв"), (1, "слой"), (2, "слоя"), (4, "слоя"), (5, "слоёв"), (11, "слоёв"), (12, "слоёв"), (14, "слоёв"),
        (21, "слой"), (22, "слоя"), (25, "слоёв"), (101, "слой"), (111, "слоёв"), (112, "слоёв"), (-1, "слой"),
    ],
)  # fmt: skip
def test_plural(count: int, form: str) -> None:
    assert units.plural(count, "слой", "слоя", "слоёв") == form


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (24, 0, "24 раза"), (23.6, 0, "24 раза"), (24.6, 0, "25 раз"), (1, 0, "1 раз"), (111, 0, "111 раз"),
        (2.2, 1, "2,2 раза"), (5.0, 1, "5,0 раза"), (1_572_864, 0, "1 572 864 раза"),
    ],
)  # fmt: skip
def test_counted_agrees_with_the_number_that_is_shown(value: float, digits: int, text: str) -> None:
    assert plain(units.counted(value, "раз", "раза", "раз", digits)) == text


@pytest.mark.parametrize("page", ["docs/notation.md", "docs/glossary.md"])
def test_typed_gap_between_gib_and_gb_is_the_computed_one(page: str) -> None:
    """На страницах без ячеек число вписано рукой: тест держит его равным посчитанному."""
    text = (Path(__file__).parents[1] / page).read_text(encoding="utf-8").replace(units.NBSP, " ")
    assert units.percent(units.GIB / units.GB - 1).replace(units.NBSP, " ") in text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8192", 8192),
        (" 8\u00a0192 ", 8192),
        ("15e12", 15 * 10**12),
        ("14,8 трлн", 14_800_000_000_000),
        ("0,5млн", 500_000),
        ("3 тыс.", 3000),
        ("2 млрд", 2 * 10**9),
        ("-2", -2),
        ("9007199254740993", 9_007_199_254_740_993),  # длиннее мантиссы float
        ("1234567890123456789e0", 1_234_567_890_123_456_789),
        ("14,805 трлн", 14_805_000_000_000),
        ("1200e-2", 12),
    ],
)
def test_whole_number_as_people_write_it(text: str, value: int) -> None:
    assert units.whole_from(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "трлн",
        "1,5",
        "²",
        "15e12 млрд",
        "2 млн млн",
        "1e400",
        "nan",
        "8k",
        "0,0001 тыс.",
        "8,192",
        "32.000",
        "5e",
        "1e-999999999",
        "1e999999999",
        "e5",
    ],
)
def test_what_is_not_a_whole_number(text: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        units.whole_from(text)
