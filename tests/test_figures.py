"""Рисунки уроков: настоящий текст, цвета темы, описание словами и одни и те же байты при каждой сборке."""

from __future__ import annotations

import ast
import itertools
import os
import re
import subprocess
import sys
import types
import xml.etree.ElementTree as ElementTree
from typing import Any

import matplotlib as mpl
import pytest

from nanolm import figures
from nanolm.figures import PALETTE, Figure, bars, css_variables, lines, prose, scatter, stacked_bars, table

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"


def some_bars(name: str = "weights", **more: Any) -> Figure:
    return bars({"веса": 14.96, "кеш": 7.48}, name=name, title="Память", alt="Веса вдвое больше кеша", **more)


def some_stack(name: str = "states") -> Figure:
    rows = {"fp32": {"веса": 4.0, "моменты": 8.0}, "bf16": {"веса": 2.0, "моменты": 4.0}}
    return stacked_bars(
        rows,
        name=name,
        title="Состояния",
        alt="Байты",
        unit="байт",
        threshold=(8, "предел"),
        label=lambda v: f"{v:.0f}",
    )


def some_lines(name: str = "flops", **more: Any) -> Figure:
    series = {"6N": [(1e2, 1e9), (1e9, 1e16)], "внимание": [(1e2, 1e8), (1e9, 1e17)]}
    options = {"title": "Работа", "alt": "Две прямые", "x": "токенов", "y": "FLOPs", "log": "xy", **more}
    return lines(series, name=name, **options)


def some_scatter(name: str = "forecast", **more: Any) -> Figure:
    series = {"байты": [(1e3, 1e3), (1e5, 1e5)], "FLOPs": [(1e7, 2e7)]}
    options = {"title": "Сверка", "alt": "Точки у диагонали", "x": "прогноз", "y": "измерено", **more}
    return scatter(series, name=name, diagonal="совпало", **options)


ALL = {"bars": some_bars, "stacked_bars": some_stack, "lines": some_lines, "scatter": some_scatter}


def texts(figure: Figure) -> list[str]:
    """Надписи рисунка в том порядке, в каком они лежат в SVG."""
    return ["".join(node.itertext()).strip() for node in ElementTree.fromstring(figure.svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_the_same_figure_is_the_same_bytes(make: Any) -> None:
    assert make().svg == make().svg


def test_another_process_draws_the_same_bytes() -> None:
    program = (
        "from nanolm.figures import lines\n"
        "print(lines({'a': [(1, 2.5), (3, 4)]}, name='n', title='t', alt='a', x='x', y='y', points={'p': (2, 3)}).svg)"
    )
    runs = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment)
        runs.add(done.stdout)
    assert len(runs) == 1
    assert b"<svg" in runs.pop()


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_svg_is_inline_markup_of_the_page(make: Any) -> None:
    svg = make().svg
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert svg.startswith("<svg")  # без объявления XML и DOCTYPE
    # Общее правило «*{…}» из стилей испортило бы остальную страницу, метаданные несут дату и чужие адреса.
    assert not {node.tag for node in root.iter()} & {f"{SVG}style", f"{SVG}script", f"{SVG}metadata"}
    addresses = set(re.findall(r"https?://[^\"'<> ]+", svg))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_identifiers_start_with_the_name_and_references_resolve(make: Any) -> None:
    root = ElementTree.fromstring(make("first").svg)
    ids = [node.get("id") for node in root.iter() if node.get("id")]
    assert ids
    assert len(ids) == len(set(ids))
    assert all(str(name).startswith("first-") for name in ids)
    links = {str(node.get(LINK))[1:] for node in root.iter() if node.get(LINK)}
    clips = set(re.findall(r"url\(#([^)]+)\)", make("first").svg))
    assert links | clips == set(ids)
    second = {node.get("id") for node in ElementTree.fromstring(make("second").svg).iter() if node.get("id")}
    assert not second & set(ids)


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_every_colour_is_a_variable_with_a_light_fallback(make: Any) -> None:
    svg = make().svg
    fallbacks = {name: light for name, (light, _) in PALETTE.items()}
    used = re.findall(r"var\((--nl-[a-z0-9]+),(#[0-9a-f]{6})\)", svg)
    assert {"--nl-muted", "--nl-grid", "--nl-c1"} <= {name for name, _ in used}
    assert all(fallbacks[name] == light for name, light in used)
    rest = re.sub(r"var\([^)]*\)", "", svg)
    assert not re.search(r"(?:fill|stroke): ?(?:#|rgb|black|white)", rest)


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_labels_are_real_russian_text(make: Any) -> None:
    labels = texts(make())
    assert labels
    assert not any(re.search(r"\d\.\d", label) for label in labels)
    assert "font-family:inherit" in make().svg
    assert "DejaVu" not in make().svg


def test_bars_are_proportional_to_the_values() -> None:
    widths = []
    for node in ElementTree.fromstring(some_bars().svg).iter(f"{SVG}path"):
        if f"fill: var(--nl-c1,{figures.SERIES[0]})" in (node.get("style") or ""):
            xs = [float(x) for x in re.findall(r"[ML] (-?[\d.]+) ", node.get("d") or "")]
            widths.append(max(xs) - min(xs))
    assert len(widths) == 2
    assert widths[0] / widths[1] == pytest.approx(14.96 / 7.48, rel=1e-3)


def test_bars_carry_their_numbers_and_threshold() -> None:
    labels = texts(some_bars(threshold=(10, "предел")))
    assert {"веса", "кеш", "15,0", "7,5", "предел"} <= set(labels)
    assert "предел" not in texts(some_bars())


def test_stack_shows_totals_parts_and_legend() -> None:
    labels = texts(some_stack())
    assert {"12", "6", "8", "веса", "моменты", "fp32", "bf16", "предел", "байт"} <= set(labels)


def test_lines_are_labelled_at_their_ends_and_points_named() -> None:
    labels = texts(some_lines(points={"граница": (1e4, 1e11)}))
    assert {"6N", "внимание", "граница", "токенов", "FLOPs", "10⁹"} <= set(labels)
    assert "граница" not in texts(some_lines())


def marks(figure: Figure) -> list[tuple[float, float]]:
    """Середины знаков рядов в координатах SVG; знаки легенды лежат вне осей и сюда не входят."""
    root = ElementTree.fromstring(figure.svg)
    inside = next(node for node in root.iter(f"{SVG}g") if any(use.get("clip-path") for use in node.iter()))
    uses = [use for group in inside.iter(f"{SVG}g") if group.get("clip-path") for use in group.iter(f"{SVG}use")]
    return [(float(use.get("x") or 0), float(use.get("y") or 0)) for use in uses]


def test_scatter_names_axes_series_diagonal_and_points() -> None:
    labels = texts(some_scatter(points={"Llama": (1e8, 1e8)}))
    assert {"прогноз", "измерено", "байты", "FLOPs", "совпало", "Llama"} <= set(labels)


def test_equal_values_lie_on_the_diagonal_and_others_do_not() -> None:
    (ax, ay), (bx, by), (cx, cy) = marks(some_scatter())
    slope = (by - ay) / (bx - ax)
    assert slope < 0  # в SVG ось y смотрит вниз
    expected = ay + slope * (cx - ax)
    assert cy < expected - 5, "вдвое большее измерение должно стоять выше диагонали"


def test_ticks_can_be_given_by_hand() -> None:
    assert "8 192" in texts(some_lines(x_ticks={8192: "8 192"}))


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (2.5, "2,5"), (-2.0, "−2"), (12_000.0, "12\u00a0000"), (1e-12, "0")]
)
def test_plain_ticks(value: float, shown: str) -> None:
    assert figures._plain(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(1.0, "1"), (100.0, "100"), (1e9, "10⁹"), (1e-3, "10⁻³"), (2e9, "")])
def test_power_ticks(value: float, shown: str) -> None:
    assert figures._power(value) == shown


def test_end_labels_keep_order_and_distance() -> None:
    placed = figures._spread([0.50, 0.51, 0.52, 0.10], [1, 2, 1, 1])
    assert placed[3] == pytest.approx(0.10)
    assert placed[0] < placed[1] < placed[2]
    assert placed[1] - placed[0] >= 0.062 * 1.5 - 1e-9
    assert max(figures._spread([0.99, 1.0, 1.0], [1, 1, 1])) <= 1 + 1e-9


def test_html_says_what_the_picture_shows() -> None:
    figure = bars({"a": 1.0}, name="n", title="Доля <V>", alt='Столбец "a" & число', caption="Подпись")
    html = figure._repr_html_()
    root = ElementTree.fromstring(html)
    assert root.get("class") == "nanolm-figure"
    svg = next(root.iter(f"{SVG}svg"))
    assert svg.get("role") == "img"
    assert svg.get("aria-label") == figure.alt
    assert "".join(next(root.iter("figcaption")).itertext()) == "Доля <V>. Подпись"
    assert repr(figure) == 'Рисунок «Доля <V>». Столбец "a" & число'


def test_a_figure_without_description_is_refused() -> None:
    with pytest.raises(ValueError, match="alt: у рисунка «n» нет описания"):
        bars({"a": 1.0}, name="n", title="t", alt=" ")


def test_a_name_that_is_no_identifier_is_refused() -> None:
    with pytest.raises(ValueError, match="name: имя рисунка"):
        bars({"a": 1.0}, name="Мой рисунок", title="t", alt="a")


def test_matplotlib_settings_of_the_notebook_are_neither_used_nor_changed() -> None:
    usual = some_lines().svg
    with mpl.rc_context({"font.size": 30, "axes.grid": False, "xtick.direction": "in", "xtick.major.pad": 20}):
        assert some_lines().svg == usual
        assert mpl.rcParams["font.size"] == 30


def test_importing_figures_does_not_import_matplotlib() -> None:
    program = "import sys, nanolm.figures; print('matplotlib' in sys.modules, 'IPython' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout
    assert shown.split() == ["False", "False"]


# --- цвета ------------------------------------------------------------------------------------------------------


def linear(colour: str) -> list[float]:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def luminance(rgb: list[float]) -> float:
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted(luminance(linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


#: Как видят без одного вида колбочек: матрицы Machado et al. 2009, полная выраженность.
VISION = {
    "обычное": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "протанопия": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "дейтеранопия": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "тританопия": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def lab(rgb: list[float]) -> tuple[float, float, float]:
    r, g, b = rgb
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047,
        luminance(rgb),
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883,
    )
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def seen(colour: str, vision: str) -> tuple[float, float, float]:
    rgb = linear(colour)
    return lab([min(1.0, max(0.0, sum(m * c for m, c in zip(row, rgb, strict=True)))) for row in VISION[vision]])


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_stand_out_from_the_background(theme: int) -> None:
    surface = PALETTE["--nl-surface"][theme]
    for name, pair in PALETTE.items():
        if name not in ("--nl-surface", "--nl-grid"):  # сетка и должна быть едва видна
            assert contrast(pair[theme], surface) >= 4.5, name


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_series_differ_for_every_kind_of_vision(theme: int, vision: str) -> None:
    colours = [PALETTE[f"--nl-c{i}"][theme] for i in range(1, 7)]
    for one, other in itertools.combinations(colours, 2):
        distance = sum((a - b) ** 2 for a, b in zip(seen(one, vision), seen(other, vision), strict=True)) ** 0.5
        assert distance > 20, (one, other)


def test_css_defines_every_variable_in_both_themes() -> None:
    css = css_variables()
    for name, (light, dark) in PALETTE.items():
        assert css.count(f"{name}:{light};") == 1
        assert css.count(f"{name}:{dark};") == 2  # явный выбор и настройка системы


# --- таблицы и числа в тексте -------------------------------------------------------------------------------------


def test_table_formats_numbers_and_aligns_columns() -> None:
    shown = table(["модель", "параметров", "доля", "вид"], [("a<b", 8030261248, 1 / 3, "плотная")], "Подпись")
    root = ElementTree.fromstring(shown._repr_html_())
    heads = [(th.text, th.get("scope"), th.get("style")) for th in root.iter("th")]
    assert heads[1] == ("параметров", "col", "text-align:right")
    assert heads[-1] == ("a<b", "row", "text-align:left")
    cells = [(td.text, td.get("style")) for td in root.iter("td")]
    assert cells[:2] == [("8\u00a0030\u00a0261\u00a0248", "text-align:right"), ("0,33", "text-align:right")]
    assert cells[2] == ("плотная", "text-align:left")
    assert next(root.iter("caption")).text == "Подпись"


def test_table_prints_aligned_text() -> None:
    printed = repr(table(["что", "сколько"], [("веса", 7), ("кеш", 1234)])).split("\n")
    assert [len(line) for line in printed] == [len(printed[0])] * 3
    assert printed[1] == "веса        7"


def test_table_refuses_a_row_of_another_length() -> None:
    with pytest.raises(ValueError, match="в строке «веса» ячеек 3, а столбцов 2"):
        table(["что", "сколько"], [("веса", 1, 2)])


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Подставной IPython: складывает то, что ему показали."""
    shown: list[dict[str, Any]] = []
    package, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    package.get_ipython = lambda: object()  # type: ignore[attr-defined]
    module.display = lambda data, raw, metadata: shown.append({"data": data, "raw": raw, **metadata})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return shown


def test_prose_hands_over_a_literal_that_reads_back_as_the_same_string(notebook: list[dict[str, Any]]) -> None:
    prose(ratio="14,96", total="8\u00a0030")
    assert [item["scrapbook"]["name"] for item in notebook] == ["ratio", "total"]
    for item, text in zip(notebook, ["14,96", "8\u00a0030"], strict=True):
        prefix = item["scrapbook"]["mime_prefix"]
        assert item["raw"]
        # Роль glue:text разбирает значение как литерал; без кавычек «14,96» стало бы парой чисел.
        assert ast.literal_eval(item["data"][f"{prefix}text/plain"]) == text


def test_prose_takes_only_finished_text(notebook: list[dict[str, Any]]) -> None:
    with pytest.raises(TypeError, match=r"ratio: в текст передают готовую строку, а получено float"):
        prose(ratio=14.96)  # type: ignore[arg-type]
    assert notebook == []


def test_prose_outside_a_notebook_does_nothing(notebook: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: None)
    prose(ratio="14,96")
    assert notebook == []
