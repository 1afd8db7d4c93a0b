"""График: всё стоит там, где говорит ось; подписей хватает и тому, кто его не видит."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from markup import Page

from nanolm.live import chart

X = chart.Axis(1, 1000, "пакет", chart.powers(1, 1000, 10, 5, str), log=True)
Y = chart.Axis(0, 50, "байтов", [(0, "0"), (50, "50")])


def drawn(**changes: object) -> str:
    given = {"curves": [("кеш", [(1, 0), (1000, 50)])], "x": X, "y": Y, "marks": [(10, 25, "здесь", True)], **changes}
    return chart.lines("toy", "Название", "Описание", **given)  # type: ignore[arg-type]


def test_axis_places_values() -> None:
    assert [X.place(value) for value in (1, 10, 1000)] == pytest.approx([0, 1 / 3, 1])
    assert [Y.place(value) for value in (0, 25, 50)] == [0, 0.5, 1]


@pytest.mark.parametrize(("low", "high", "log"), [(1, 1, False), (2, 1, False), (0, 1, True), (-1, 1, True)])
def test_impossible_axis_is_refused(low: float, high: float, log: bool) -> None:
    with pytest.raises(ValueError, match=r"^axis: "):
        chart.Axis(low, high, log=log)


@pytest.mark.parametrize("most", range(1, 12))
def test_ticks_are_few_and_inside(most: int) -> None:
    ticks = chart.powers(1, 4096, 2, most, str)
    assert 1 <= len(ticks) <= most
    assert all(1 <= value <= 4096 for value, _ in ticks)
    assert len({round(b / a) for (a, _), (b, _) in pairwise(ticks)}) <= 1


def test_curve_joins_the_corners() -> None:
    points = re.search(r'points="([^"]+)"', drawn())
    assert points is not None
    first, last = (tuple(map(float, pair.split(","))) for pair in points[1].split())
    assert first[0] == 0
    assert last[0] == chart.INNER
    assert first[1] > last[1]  # больше — выше


def test_mark_stands_at_its_share() -> None:
    assert 'cx="33.333%"' in drawn()
    assert "здесь" in Page(drawn()).text


def test_picture_is_described_and_unstyled() -> None:
    page = Page(drawn())
    assert page.wanted == ["toy-title", "toy-about"]
    assert page.ids == ["toy-title", "toy-about"]
    for word in ("Название", "Описание", "пакет", "байтов", "кеш"):
        assert word in page.text


def test_names_are_escaped() -> None:
    assert "<b>" not in drawn(curves=[("<b>", [(1, 0), (2, 1)])], marks=[(1, 1, "<b>", False)])


def test_stacked_bar_fills_its_total() -> None:
    bars = [("первая", [("weights", 30.0), ("kv_cache", 20.0)]), ("вторая", [("weights", 100.0), ("input", 0.0)])]
    svg = chart.stacked_bars("toy", "Память", "Описание", bars, (50.0, "предел"), {"weights": "веса"})
    widths = [
        float(width) for width in re.findall(r'<rect class="nanolm-part-\w+" x="[\d.]+%" y="\d+" width="([\d.]+)%', svg)
    ]
    assert widths == pytest.approx([30 / 1.02, 20 / 1.02, 100 / 1.02], abs=1e-3)
    assert 'x1="49.020%"' in svg
    text = Page(svg).text
    assert "веса" in text
    assert "input" not in text


def test_bars_of_nothing_are_still_a_picture() -> None:
    Page(chart.stacked_bars("toy", "Память", "Пусто", [("пусто", [])]))


def test_labels_of_close_points_do_not_overlap() -> None:
    """Вторая подпись легла бы на первую и уходит на другую сторону своей точки."""
    markup = drawn(marks=[(10, 25, "первая", False), (30, 22, "вторая", False)])
    levels = [float(found) for found in re.findall(r'class="nanolm-note"[^>]* y="([\d.]+)"', markup)]
    assert len(levels) == 2
    assert abs(levels[0] - levels[1]) >= 15
