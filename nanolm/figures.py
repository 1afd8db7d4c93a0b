"""Рисунки, таблицы и числа в тексте уроков.

Рисунок урока — это встроенный в страницу SVG, а не картинка. Отсюда всё остальное:

- цвета заданы переменными CSS, и один и тот же рисунок читается в светлой и тёмной теме;
- подписи — настоящий текст: их находит поиск по странице и читает программа экранного доступа;
- сборка повторяется байт в байт: в файле нет ни даты, ни случайных идентификаторов;
- идентификаторы начинаются с имени рисунка, поэтому рисунки одной страницы не мешают друг другу.

Рисует matplotlib, но загружается он только вместе с первым рисунком: импорт модуля ничего не стоит.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from html import escape
from importlib import import_module
from itertools import chain, cycle, pairwise
from typing import TYPE_CHECKING, Any, ParamSpec

from nanolm.units import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

P = ParamSpec("P")

__all__ = ["PALETTE", "Figure", "Table", "bars", "css_variables", "lines", "prose", "scatter", "stacked_bars", "table"]

#: Переменная CSS → цвет в светлой теме, цвет в тёмной теме. Шесть цветов рядов подобраны перебором:
#: контраст с фоном не ниже 4,5 и наибольшее различие пары худших при всех видах дальтонизма.
PALETTE: dict[str, tuple[str, str]] = {
    "--nl-surface": ("#ffffff", "#131416"),
    "--nl-ink": ("#1a1a1a", "#e8e8ea"),
    "--nl-muted": ("#5d5f66", "#a0a3ab"),
    "--nl-grid": ("#d9dadf", "#3a3c42"),
    "--nl-c1": ("#2572d7", "#3c8af0"),
    "--nl-c2": ("#6f1403", "#e96848"),
    "--nl-c3": ("#1d5f42", "#88f7ad"),
    "--nl-c4": ("#5c2d6e", "#c368a4"),
    "--nl-c5": ("#88710f", "#fdd042"),
    "--nl-c6": ("#272d37", "#dfe6f9"),
}
SURFACE, INK, MUTED, GRID, *SERIES = (light for light, _ in PALETTE.values())

#: Ширина рисунка в единицах его системы координат; на странице он растягивается и сжимается.
WIDTH = 480
#: Так помечены подписи, которым нужен ореол: их группу узнаёт `_inline`.
HALO = "halo"
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
#: Знаки рядов: полые, чтобы под верхним был виден нижний.
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES = ("-", (0, (6, 2)), (0, (2, 2)), (0, (8, 2, 2, 2)), (0, (4, 1)), (0, (1, 1)))


@dataclass(frozen=True, slots=True)
class Figure:
    """Готовый рисунок: в блокноте и на странице — SVG, в терминале — его описание словами."""

    name: str
    svg: str
    title: str
    alt: str
    caption: str = ""

    def _repr_html_(self) -> str:
        caption = f"<figcaption><strong>{escape(self.title)}.</strong> {escape(self.caption)}</figcaption>"
        return (
            f'<figure class="nanolm-figure" id="{self.name}">'
            f'<div class="nanolm-scroll" style="overflow-x:auto;background:var(--nl-surface,{SURFACE})">'
            f"{self.svg}</div>{caption}</figure>"
        )

    def __repr__(self) -> str:
        return f"Рисунок «{self.title}». {self.alt}"


@dataclass(frozen=True, slots=True)
class Table:
    """Таблица урока: первый столбец — заголовки строк, числа прижаты вправо."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""

    def _repr_html_(self) -> str:
        caption = f'<caption style="text-align:left">{escape(self.caption)}</caption>' if self.caption else ""
        head = "".join(f'<th scope="col"{self._style(i)}>{escape(h)}</th>' for i, h in enumerate(self.head))
        body = "".join(f"<tr>{self._row(row)}</tr>" for row in self.rows)
        return (
            '<div class="nanolm-scroll" style="overflow-x:auto"><table class="nanolm-account nanolm-table">'
            f"{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def _row(self, row: tuple[str, ...]) -> str:
        cells = (f"<td{self._style(i)}>{escape(cell)}</td>" for i, cell in enumerate(row[1:], 1))
        return f'<th scope="row"{self._style(0)}>{escape(row[0])}</th>' + "".join(cells)

    def _style(self, column: int) -> str:
        return f' style="text-align:{"right" if self._numeric(column) else "left"}"'

    def _numeric(self, column: int) -> bool:
        """Столбец числовой, если каждая его непустая ячейка начинается с цифры или знака."""
        cells = [row[column] for row in self.rows if row[column] not in ("", "—")]
        return bool(column) and bool(cells) and all(re.match(r"[−+≈×÷]?\s?[\d∞]", cell) for cell in cells)

    def __repr__(self) -> str:
        lines = [self.head, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.head))]
        aligned = (
            "  ".join(
                c.rjust(w) if self._numeric(i) else c.ljust(w)
                for i, (c, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        )
        return "\n".join(filter(None, (self.caption, *(line.rstrip() for line in aligned))))


def table(head: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> Table:
    """Таблица из заголовков столбцов и строк; целые числа разбиваются на разряды, дроби пишутся с запятой."""
    cells = tuple(tuple(_cell(value) for value in row) for row in rows)
    for row in cells:
        if len(row) != len(head):
            raise ValueError(f"rows: в строке «{row[0]}» ячеек {len(row)}, а столбцов {len(head)}")
    return Table(tuple(head), cells, caption)


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return number(value)
    return number(value, 2) if isinstance(value, float) else str(value)


def prose(**values: str) -> None:
    """Передать числа в текст урока: после `prose(total="8,03 млрд")` текст ссылается на `total` ролью `glue:text`.

    Число в тексте так и остаётся вычисленным: изменится расчёт — изменится и фраза. Значение уходит в скрытый
    вывод ячейки в кавычках (`repr`): роль `glue:text` разбирает его как литерал Python, и «14,96» без кавычек
    превратилось бы в пару (14, 96). Вне блокнота функция ничего не делает.
    """
    for name, value in values.items():
        if not isinstance(value, str):
            raise TypeError(f"{name}: в текст передают готовую строку, а получено {type(value).__name__}")
    # Имена модулей — строками: уроки читают и там, где IPython нет, и проверка типов о нём не знает.
    try:
        ipython, publish = import_module("IPython"), import_module("IPython.display")
    except ImportError:
        return
    if ipython.get_ipython() is None:
        return
    prefix = "application/papermill.record/"
    for name, value in values.items():
        scrapbook = {"scrapbook": {"name": name, "mime_prefix": prefix}}
        publish.display({prefix + "text/plain": repr(value)}, raw=True, metadata=scrapbook)


def css_variables() -> str:
    """Определения цветов для страницы: светлая тема, тёмная тема и выбор по настройке системы."""
    light = "".join(f"{name}:{pair[0]};" for name, pair in PALETTE.items())
    dark = "".join(f"{name}:{pair[1]};" for name, pair in PALETTE.items())
    return (
        f"body{{{light}}}\nbody[data-theme=dark]{{{dark}}}\n"
        f"@media (prefers-color-scheme:dark){{body:not([data-theme=light]){{{dark}}}}}\n"
    )


# --- виды рисунков ---------------------------------------------------------------------------------------------


def _styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Общие настройки matplotlib — только на время одного рисунка; чужих графиков в блокноте они не меняют."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        from matplotlib import rc_context, rcParamsDefault

        style = {
            "font.size": 12, "text.color": INK, "axes.edgecolor": MUTED, "axes.labelcolor": MUTED,
            "xtick.color": MUTED, "ytick.color": MUTED, "xtick.major.size": 3, "ytick.major.size": 3,
            "xtick.minor.size": 0, "ytick.minor.size": 0, "axes.spines.top": False, "axes.spines.right": False,
            "axes.grid": True, "grid.color": GRID, "grid.linewidth": 0.8, "axes.axisbelow": True,
            "svg.fonttype": "none", "svg.hashsalt": "nanolm",
        }  # fmt: skip
        settings: dict[Any, Any] = {k: v for k, v in rcParamsDefault.items() if "backend" not in k}
        settings.update(style)
        with rc_context(settings):
            return draw(*args, **kwargs)

    return drawn


@_styled
def bars(
    values: Mapping[str, float],
    *,
    name: str,
    title: str,
    alt: str,
    unit: str = "",
    label: Callable[[float], str] | None = None,
    threshold: tuple[float, str] | None = None,
    caption: str = "",
) -> Figure:
    """Горизонтальные столбцы: одно число на строку, подпись у столбца; `threshold` — черта с подписью."""
    canvas, axes = _canvas(0.9 + 0.34 * len(values) + (0.3 if threshold else 0))
    sizes = list(values.values())
    axes.barh(range(len(sizes)), sizes, height=0.62, color=SERIES[0])
    _totals(axes, sizes, label or _tenths)
    _rows(axes, list(values), unit, threshold)
    return _figure(canvas, name, title, alt, caption)


@_styled
def stacked_bars(
    rows: Mapping[str, Mapping[str, float]],
    *,
    name: str,
    title: str,
    alt: str,
    unit: str,
    label: Callable[[float], str] | None = None,
    threshold: tuple[float, str] | None = None,
    caption: str = "",
) -> Figure:
    """Столбцы из слагаемых: строка → (слагаемое → величина). Узкие доли не подписаны, итог стоит справа."""
    parts = list(dict.fromkeys(part for row in rows.values() for part in row))
    height = 1.0 + 0.42 * len(rows) + 0.26 * -(-len(parts) // 3) + (0.3 if threshold else 0)
    canvas, axes = _canvas(height)
    totals = [sum(row.values()) for row in rows.values()]
    left = [0.0] * len(rows)
    for part, colour in zip(parts, cycle(SERIES), strict=False):
        sizes = [row.get(part, 0.0) for row in rows.values()]
        axes.barh(range(len(rows)), sizes, left=left, height=0.62, color=colour, edgecolor=SURFACE, label=part)
        _inside(axes, left, sizes, max(totals), label or _tenths)
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    _totals(axes, totals, label or _tenths, fontweight="bold")
    _rows(axes, list(rows), unit, threshold)
    _legend(canvas, axes)
    return _figure(canvas, name, title, alt, caption)


@_styled
def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    name: str,
    title: str,
    alt: str,
    x: str,
    y: str,
    log: str = "",
    points: Mapping[str, tuple[float, float] | tuple[float, float, str]] | None = None,
    x_ticks: Mapping[float, str] | None = None,
    y_ticks: Mapping[float, str] | None = None,
    caption: str = "",
) -> Figure:
    """Кривые с подписями у правого конца; `log` — «x», «y» или «xy»; `points` — подписанные точки.

    Точка — (x, y) или (x, y, сторона подписи): «nw» слева сверху (по умолчанию), «se» справа снизу.
    """
    canvas, axes = _canvas(4.0)
    for index, curve in enumerate(series.values()):
        xs, ys = zip(*curve, strict=True)
        axes.plot(xs, ys, color=SERIES[index % 6], linewidth=2, linestyle=_DASHES[index % 6])
    for axis, ticks in (("x", x_ticks), ("y", y_ticks)):
        getattr(axes, f"set_{axis}scale")("log" if axis in log else "linear")
        _ticks(axes, axis, ticks)
    if "y" not in log:
        axes.set_ylim(bottom=0)
    axes.margins(x=0, y=0.08)
    axes.set(xlabel=x, ylabel=y)
    _end_labels(canvas, axes, {key: curve[-1] for key, curve in series.items()})
    for text, (at_x, at_y, *side) in (points or {}).items():
        _point(axes, text, at_x, at_y, side[0] if side else "nw")
    return _figure(canvas, name, title, alt, caption)


@_styled
def scatter(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    name: str,
    title: str,
    alt: str,
    x: str,
    y: str,
    diagonal: str,
    points: Mapping[str, tuple[float, float] | tuple[float, float, str]] | None = None,
    caption: str = "",
) -> Figure:
    """Точки на двойной логарифмической шкале и диагональ y = x с подписью `diagonal`: равные величины лежат на ней.

    `points` — подписанные точки, как у `lines`.
    """
    canvas, axes = _canvas(4.4)
    axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    for axis in "xy":
        _ticks(axes, axis, None)
    dots = [*chain.from_iterable(series.values()), *(point[:2] for point in (points or {}).values())]
    low, high = min(map(min, dots)) / 4, max(map(max, dots)) * 4
    axes.set(xlim=(low, high), ylim=(low, high))
    axes.plot([low, high], [low, high], color=MUTED, linewidth=1.2)
    middle = (low * high) ** 0.5
    axes.annotate(diagonal, (middle, middle), (10, -8), textcoords="offset points", va="top", color=MUTED)
    for index, (label, row) in enumerate(series.items()):
        style: dict[str, Any] = {
            "color": SERIES[index % 6],
            "marker": _MARKERS[index % 6],
            "fillstyle": "none",
            "linestyle": "none",
        }
        axes.plot(*zip(*row, strict=True), **style, markersize=8, markeredgewidth=1.6, label=label)
    for text, (at_x, at_y, *side) in (points or {}).items():
        _point(axes, text, at_x, at_y, side[0] if side else "nw")
    _legend(canvas, axes)
    return _figure(canvas, name, title, alt, caption)


# --- оформление -------------------------------------------------------------------------------------------------


def _canvas(height: float) -> tuple[Canvas, Axes]:
    """Пустой рисунок без pyplot: никакого общего состояния, рисунки не зависят друг от друга."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(WIDTH / 72, height), dpi=72, layout="constrained")
    axes = canvas.add_subplot()
    canvas.patch.set_visible(False)
    axes.patch.set_visible(False)
    _ticks(axes, "x", None)
    return canvas, axes


def _ticks(axes: Axes, axis: str, ticks: Mapping[float, str] | None) -> None:
    """Деления по-русски: запятая в дробях, неразрывный пробел в разрядах, степени десяти на шкале логарифма."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, NullLocator

    side = getattr(axes, f"{axis}axis")
    if ticks:
        side.set_major_locator(FixedLocator(list(ticks)))
        side.set_major_formatter(FixedFormatter(list(ticks.values())))
        side.set_minor_locator(NullLocator())
        return
    side.set_major_formatter(FuncFormatter(_power if side.get_scale() == "log" else _plain))


def _plain(value: float, _: object = None) -> str:
    """Деление линейной шкалы: без лишних нулей, с запятой и разрядами."""
    text = number(float(value), 6).rstrip("0").rstrip(",")
    return "0" if text in ("−0", "") else text


def _power(value: float, _: object = None) -> str:
    """Деление логарифмической шкалы: 10⁹, а 1, 10 и 100 — как есть."""
    from math import log10

    exponent = round(log10(value))
    if abs(log10(value) - exponent) > 1e-9:
        return ""
    return number(10**exponent) if 0 <= exponent <= 2 else "10" + str(exponent).translate(_SUPERSCRIPT)


def _tenths(value: float) -> str:
    return number(float(value), 1)


def _totals(axes: Axes, sizes: Sequence[float], label: Callable[[float], str], **style: Any) -> None:
    """Итог у правого конца каждого столбца и место для него."""
    for row, size in enumerate(sizes):
        axes.text(size + max(sizes) * 0.012, row, label(size), va="center", **style)
    axes.set_xlim(0, max(sizes) * 1.16)


def _inside(
    axes: Axes, left: Sequence[float], sizes: Sequence[float], top: float, label: Callable[[float], str]
) -> None:
    """Подписать доли внутри столбца — те, в которые подпись помещается."""
    for row, (start, size) in enumerate(zip(left, sizes, strict=True)):
        if size > top * 0.02 * len(label(size)):
            axes.text(start + size / 2, row, label(size), ha="center", va="center", color=SURFACE)


def _rows(axes: Axes, names: Sequence[str], unit: str, threshold: tuple[float, str] | None) -> None:
    """Строки сверху вниз, подписи строк — основным цветом, без лишних линий; порог — черта с подписью снизу."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - (0 if threshold else 0.4), -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(unit)
    if threshold:
        at, text = threshold
        left_half = at < sum(axes.get_xlim()) / 2
        axes.axvline(at, color=INK, linestyle=(0, (4, 3)), linewidth=1.5)
        axes.annotate(
            text, (at, len(names) - 0.42), (5 if left_half else -5, 0), textcoords="offset points",
            ha="left" if left_half else "right", va="top",
        )  # fmt: skip


def _legend(canvas: Canvas, axes: Axes) -> None:
    """Расшифровка цветов над столбцами. Строки — слева направо; сам matplotlib заполняет её по столбцам."""
    handles, labels = axes.get_legend_handles_labels()
    columns = min(3, len(labels))
    order = [i for column in range(columns) for i in range(column, len(labels), columns)]
    canvas.legend(
        [handles[i] for i in order], [labels[i] for i in order], loc="outside upper left", ncols=columns,
        frameon=False, handlelength=1, handleheight=1, columnspacing=1.4, borderpad=0.1,
    )  # fmt: skip


def _point(axes: Axes, text: str, x: float, y: float, side: str) -> None:
    """Точка с подписью; ореол цвета фона не даёт линиям перечеркнуть буквы."""
    shift, vertical, horizontal = {"nw": ((-7, 7), "bottom", "right"), "se": ((8, -6), "top", "left")}[side]
    axes.plot([x], [y], marker="o", markersize=7, color=INK, linestyle="none")
    label = axes.annotate(text, (x, y), shift, textcoords="offset points", va=vertical, ha=horizontal)
    label.set_gid(HALO)


def _end_labels(canvas: Canvas, axes: Axes, ends: Mapping[str, tuple[float, float]]) -> None:
    """Подписать кривые у правого края, раздвинув подписи так, чтобы строки не налезали друг на друга."""
    inside = [axes.transAxes.inverted().transform(axes.transData.transform(end))[1] for end in ends.values()]
    heights = [text.count("\n") + 1 for text in ends]
    for index, (text, at) in enumerate(zip(ends, _spread(inside, heights), strict=True)):
        axes.annotate(
            text, (1, at), (7, 0), xycoords="axes fraction", textcoords="offset points",
            va="center", ha="left", color=SERIES[index % 6], annotation_clip=False,
        )  # fmt: skip


def _spread(positions: Sequence[float], heights: Sequence[int], step: float = 0.062) -> list[float]:
    """Раздвинуть подписи по вертикали: порядок сохраняется, между соседями не меньше их полувысот."""
    order = sorted(range(len(positions)), key=positions.__getitem__)
    placed = list(positions)
    for lower, upper in pairwise(order):
        gap = step * (heights[lower] + heights[upper]) / 2
        placed[upper] = max(placed[upper], placed[lower] + gap)
    excess = max(0.0, max(placed) - 1)
    return [value - excess * (value / max(placed)) if excess else value for value in placed]


# --- из matplotlib в страницу ---------------------------------------------------------------------------------


def _figure(canvas: Canvas, name: str, title: str, alt: str, caption: str) -> Figure:
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise ValueError(f"name: имя рисунка — строчные латинские буквы, цифры и дефис, а получено «{name}»")
    if not alt.strip():
        raise ValueError(f"alt: у рисунка «{name}» нет описания; без него рисунок не виден незрячему читателю")
    buffer = io.StringIO()
    canvas.savefig(buffer, format="svg", metadata={"Date": None})
    return Figure(name, _inline(buffer.getvalue(), name, alt), title, alt, caption)


def _inline(svg: str, name: str, alt: str) -> str:
    """Из самостоятельного файла SVG — кусок страницы: без заголовка, общих стилей и чужих идентификаторов."""
    body = svg[svg.index("<svg") :]
    box = re.search(r'viewBox="([^"]+)"', body)
    assert box is not None  # matplotlib пишет viewBox всегда
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    # Правило «*{…}» из стилей matplotlib попало бы во всю страницу; то же самое скажет атрибут корня.
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.S)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.S)
    halo = f'<g style="paint-order:stroke;stroke:{SURFACE};stroke-width:4px;stroke-linejoin:round">'
    body = _own_ids(body.replace(f'<g id="{HALO}">', halo), name)
    body = re.sub(r"font(?:-family)?: ?[^;\"]*'[^;\"]*(?:; )?", _inherit_font, body)
    body = re.sub(r"-?\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), body)
    for variable, (light, _) in PALETTE.items():
        body = body.replace(light, f"var({variable},{light})")
    body = re.sub(r"\s*\n\s*", " ", body).replace("> <", "><").strip()
    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box[1]}" '
        f'role="img" aria-label="{escape(alt)}" style="display:block;width:100%;min-width:21rem;max-width:37rem;'
        f'height:auto;stroke-linejoin:round;font-family:inherit">'
    )
    return re.sub(r"^<svg[^>]*>", root, body)


def _own_ids(body: str, name: str) -> str:
    """Оставить лишь те идентификаторы, на которые есть ссылки, и начать их с имени рисунка."""
    used = set(re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', body))
    body = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", body)
    return re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", body)


def _inherit_font(found: re.Match[str]) -> str:
    """`font: bold 14px 'DejaVu Sans'` → размер и насыщенность рисунка, а гарнитура — страницы."""
    weight = re.search(r"\b(bold|[6-9]00)\b", found[0])
    size = re.search(r"[\d.]+px", found[0])
    return (f"font-size: {size[0]}; " if size else "") + ("font-weight: 600; " if weight else "")
