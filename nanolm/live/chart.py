"""Небольшие графики живых частей: строка SVG, без скриптов и без атрибутов style.

График обязан читаться и на телефоне, и на широком экране, а растянутый целиком SVG растянул бы и буквы. Поэтому
по горизонтали всё стоит в процентах ширины, по вертикали — в пикселях: подписи остаются своего размера. Кривую в
процентах не записать, поэтому она лежит во вложенном `<svg>`, который тянется без сохранения пропорций, а толщина
линии от растяжения не зависит. Подписи вертикальной оси стоят внутри, над линиями сетки: полей слева нет.

Цвета и размер букв задают классы (`nanolm-chart`, `nanolm-curve-1`, `nanolm-part-weights`), правила для них — в
nanolm-live.css. У каждого графика есть название и описание словами для тех, кто его не видит.
"""

from __future__ import annotations

from html import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Points = Sequence[tuple[float, float]]

#: Ширина вложенной системы координат кривых: её растягивает браузер.
INNER = 1000


class Axis:
    """Ось: края, шкала и деления.

    `log` — логарифмическая, края тогда положительны; `ticks` — пары «значение, подпись»; `title` — что отложено.
    """

    __slots__ = ("high", "log", "low", "ticks", "title")

    def __init__(
        self, low: float, high: float, title: str = "", ticks: Iterable[tuple[float, str]] = (), *, log: bool = False
    ) -> None:
        if not low < high or (log and low <= 0):
            raise ValueError(f"axis: края {low}, {high} оси не задают")
        self.low, self.high, self.title, self.ticks, self.log = low, high, title, tuple(ticks), log

    def place(self, value: float) -> float:
        """Где на оси стоит значение: 0 — начало, 1 — конец."""
        if not self.log:
            return (value - self.low) / (self.high - self.low)
        from math import log

        return log(value / self.low) / log(self.high / self.low)


def powers(low: float, high: float, base: int, most: int, name: Callable[[int], str]) -> list[tuple[float, str]]:
    """Деления в степенях `base` между краями, не больше `most`: лишние пропущены через равный шаг."""
    values, power = [], 1
    while power <= high:
        if power >= low:
            values.append(power)
        power *= base
    step = -(-len(values) // most) or 1
    return [(float(value), name(value)) for value in values[::step]]


# --- Кривые -------------------------------------------------------------------------------------


def lines(
    name: str,
    title: str,
    about: str,
    curves: Sequence[tuple[str, Points]],
    x: Axis,
    y: Axis,
    marks: Iterable[tuple[float, float, str, bool]] = (),
    height: int = 280,
) -> str:
    """График кривых с отмеченными точками и подписью под ним.

    `curves` — название и точки; `marks` — x, y, подпись точки и стоит ли подпись над ней. Точки за краями осей
    обрезает рамка.
    """
    top, bottom = 26, height - 42
    canvas = _Canvas(x, y, top, bottom)
    grid = "".join(canvas.row(value, text) for value, text in y.ticks)
    grid += "".join(canvas.column(value, text) for value, text in x.ticks)
    drawn = "".join(canvas.curve(points, number) for number, (_, points) in enumerate(curves, 1))
    inner = (
        f'<svg y="{top}" width="100%" height="{bottom - top}" viewBox="0 {top} {INNER} {bottom - top}" '
        f'preserveAspectRatio="none">{drawn}</svg>'
    )
    titles = (
        f'<text class="nanolm-axis" x="0" y="12">{escape(y.title)}</text>'
        f'<text class="nanolm-axis" x="100%" y="{height - 4}" text-anchor="end">{escape(x.title)}</text>'
    )
    points = "".join(canvas.marks(marks))
    return _figure(name, title, about, height, grid + inner + titles + points, _legend(text for text, _ in curves))


#: Высота строки подписи, пиксели.
_LINE = 15


class _Canvas:
    """Переводит значения в координаты: по горизонтали — проценты, по вертикали — пиксели."""

    def __init__(self, x: Axis, y: Axis, top: int, bottom: int) -> None:
        self.x, self.y, self.top, self.bottom = x, y, top, bottom

    def height(self, value: float) -> float:
        return self.bottom - self.y.place(value) * (self.bottom - self.top)

    def row(self, value: float, text: str) -> str:
        """Горизонталь сетки и подпись над ней."""
        at = self.height(value)
        return (
            f'<line class="nanolm-grid" x1="0" x2="100%" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text class="nanolm-tick" x="2" y="{at - 4:.1f}">{escape(text)}</text>'
        )

    def column(self, value: float, text: str) -> str:
        """Деление горизонтальной оси: у краёв подпись прижата внутрь."""
        share = self.x.place(value)
        anchor = "start" if share < 0.04 else "end" if share > 0.96 else "middle"
        return (
            f'<line class="nanolm-grid" x1="{_percent(share)}" x2="{_percent(share)}" y1="{self.bottom}" '
            f'y2="{self.bottom + 4}"/>'
            f'<text class="nanolm-tick" x="{_percent(share)}" y="{self.bottom + 17}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def curve(self, points: Points, number: int) -> str:
        """Ломаная в растяжимых координатах."""
        path = " ".join(f"{self.x.place(x) * INNER:.1f},{self.height(y):.1f}" for x, y in points)
        return f'<polyline class="nanolm-curve-{number}" points="{path}" vector-effect="non-scaling-stroke"/>'

    def marks(self, marks: Iterable[tuple[float, float, str, bool]]) -> Iterator[str]:
        """Точки с подписями: каждая — с той стороны, где её просили, если там не рамка и не прежняя подпись."""
        taken: list[float] = []
        for x, y, text, above in marks:
            at = self.height(y)
            sides = [at - 9, at + 19] if above else [at + 19, at - 9]
            inside = [side for side in sides if self.top + 13 < side < self.bottom - 1] or sides
            # Ближе строки подписи сливаются; дальше неё сторона выбирается та, которую просили.
            level = max(inside, key=lambda side: min([_LINE, *(abs(side - other) for other in taken)]))
            taken.append(level)
            yield self.mark(self.x.place(x), at, text, level)

    def mark(self, share: float, at: float, text: str, level: float) -> str:
        """Точка, отвесная линия к оси и подпись с той стороны, где больше места."""
        anchor, shift = ("start", 8) if share < 0.5 else ("end", -8)
        left = _percent(share)
        return (
            f'<line class="nanolm-drop-line" x1="{left}" x2="{left}" y1="{at:.1f}" y2="{self.bottom}"/>'
            f'<circle class="nanolm-mark" cx="{left}" cy="{at:.1f}" r="5"/>'
            f'<text class="nanolm-note" x="{left}" dx="{shift}" y="{level:.1f}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )


# --- Столбики -----------------------------------------------------------------------------------

#: Высота подписи, полосы и промежутка, пиксели.
_LABEL, _BAR, _GAP = 18, 26, 16


def stacked_bars(
    name: str,
    title: str,
    about: str,
    bars: Sequence[tuple[str, Sequence[tuple[str, float]]]],
    limit: tuple[float, str] | None = None,
    names: dict[str, str] | None = None,
) -> str:
    """Горизонтальные полосы из частей и черта предела.

    `bars` — подпись полосы и её части: имя (оно же конец класса) и величина; `limit` — величина и подпись черты;
    `names` — названия частей для подписи под графиком.
    """
    totals = [sum(max(0.0, value) for _, value in parts) for _, parts in bars]
    scale = max([*totals, limit[0] if limit else 0.0, 1e-9]) * 1.02
    top = 28 if limit else 4
    height = top + len(bars) * (_LABEL + _BAR + _GAP)
    levels = [top + index * (_LABEL + _BAR + _GAP) for index in range(len(bars))]
    drawn = "".join(_bar(parts, scale, y + _LABEL) for (_, parts), y in zip(bars, levels, strict=True))
    drawn += _limit(limit, scale, [y + _LABEL for y in levels])
    for (text, _), y in zip(bars, levels, strict=True):
        drawn += f'<text class="nanolm-label" x="0" y="{y + 13}">{escape(text)}</text>'
    used = dict.fromkeys(part for _, parts in bars for part, value in parts if value > 0)
    legend = "".join(
        f'<li><svg width="12" height="12" aria-hidden="true"><rect class="nanolm-part-{part}" width="12" height="12"/>'
        f"</svg> {escape((names or {}).get(part, part))}</li>"
        for part in used
    )
    return _figure(name, title, about, height, drawn, legend)


def _bar(parts: Sequence[tuple[str, float]], scale: float, y: int) -> str:
    """Полоса из частей, одна за другой."""
    drawn, left = [], 0.0
    for name, value in parts:
        if value > 0:
            drawn.append(
                f'<rect class="nanolm-part-{name}" x="{_percent(left / scale)}" y="{y}" '
                f'width="{_percent(value / scale)}" height="{_BAR}"/>'
            )
            left += value
    return "".join(drawn)


def _limit(limit: tuple[float, str] | None, scale: float, tops: Iterable[int]) -> str:
    """Черта предела поверх каждой полосы и подпись над всеми; у краёв подпись прижата внутрь."""
    if limit is None:
        return ""
    share = limit[0] / scale
    # Подпись длиной в половину телефона помещается у любой черты, если держать её за ближний край.
    anchor = "start" if share < 0.3 else "end" if share > 0.7 else "middle"
    left = _percent(share)
    lines = "".join(
        f'<line class="nanolm-limit" x1="{left}" x2="{left}" y1="{top - 4}" y2="{top + _BAR + 4}"/>' for top in tops
    )
    return f'{lines}<text class="nanolm-note" x="{left}" y="13" text-anchor="{anchor}">{escape(limit[1])}</text>'


# --- Общее --------------------------------------------------------------------------------------


def _percent(share: float) -> str:
    return f"{100 * share:.3f}%"


def _legend(names: Iterable[str]) -> str:
    return "".join(
        f'<li><svg width="28" height="12" aria-hidden="true"><line class="nanolm-curve-{number}" x1="0" x2="28" '
        f'y1="6" y2="6"/></svg> {escape(text)}</li>'
        for number, text in enumerate(names, 1)
    )


def _figure(name: str, title: str, about: str, height: int, body: str, legend: str) -> str:
    """SVG с названием и описанием, под ним — что значат цвета."""
    return (
        f'<figure class="nanolm-plot"><svg class="nanolm-chart" width="100%" height="{height}" role="img" '
        f'aria-labelledby="{name}-title {name}-about"><title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-about">{escape(about)}</desc>{body}</svg>'
        f'<ul class="nanolm-legend">{legend}</ul></figure>'
    )
