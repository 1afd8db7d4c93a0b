"""Путь по урокам на главной: рисунок и таблица.

Какой урок готов, решает сама сборка: готов тот, чей файл есть. Поэтому на главной не бывает ни мёртвых
ссылок, ни забытого «готовится».
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from . import tables

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment


@dataclass(frozen=True)
class Step:
    """Урок на пути."""

    prefix: str  # начало имени файла урока
    label: str
    picture: tuple[str, str]  # две строки на рисунке
    title: str
    about: str
    time: str


SHORT = "15\N{NO-BREAK SPACE}минут"
LONG = "основа — около 11\N{NO-BREAK SPACE}часов, всё — около 21\N{NO-BREAK SPACE}часа"
STEPS = (
    Step("lessons/lab_7_1", "Урок 7.1", ("Больше — лучше,", "но медленнее"), "Модели разного размера",
         "что даёт большая модель и чего она стоит", SHORT),
    Step("lessons/lab_7_2", "Урок 7.2", ("Сколько операций:", "правило 6PN"), "FLOPs обучения",
         "сколько операций стоит обучение", SHORT),
    Step("lessons/lab_7_3", "Урок 7.3", ("Стена памяти:", "4 млрд не влезают"), "Стена памяти",
         "модель на 4 млрд параметров не загружается", SHORT),
    Step("lessons/lab_7_4", "Урок 7.4", ("Куда уходит", "память"), "Память видеокарты",
         "из чего складывается память обучения", SHORT),
    Step("lessons/week_09", "Неделя 9", ("Бухгалтерия: параметры,", "FLOPs, память"), "Бухгалтерия",
         "параметры, FLOPs, память — до последней строки", LONG),
)  # fmt: skip

BOX_WIDTH, BOX_HEIGHT, GAP = 204, 92, 42


def found_lesson(env: BuildEnvironment, step: Step) -> str | None:
    """Страница урока, если его файл есть."""
    return next((name for name in sorted(env.found_docs) if name.startswith(step.prefix)), None)


def box(step: Step, page: str | None, x: float, y: float, width: float) -> str:
    """Прямоугольник урока; готовый урок — ссылка, у остальных — пометка."""
    state = "" if page else "готовится"
    left, right = x + 14, x + width - 12
    drawn = (
        f'<g class="{"ready" if page else "soon"}">'
        f'<rect x="{x}" y="{y}" width="{width}" height="{BOX_HEIGHT}" rx="8"/>'
        f'<text class="name" x="{left}" y="{y + 27}">{step.label}</text>'
        f'<text class="state" x="{right}" y="{y + 27}" text-anchor="end">{state}</text>'
        f'<text x="{left}" y="{y + 54}">{step.picture[0]}</text>'
        f'<text x="{left}" y="{y + 75}">{step.picture[1]}</text></g>'
    )
    return f'<a href="{escape(page)}.html">{drawn}</a>' if page else drawn


def arrow(x1: float, y1: float, x2: float, y2: float, marker: str) -> str:
    """Стрелка от урока к следующему."""
    return f'<path class="arrow" d="M{x1:g} {y1:g}L{x2:g} {y2:g}" marker-end="url(#{marker})"/>'


def frame(kind: str, width: float, height: float, body: str) -> str:
    """Рисунок с описанием для тех, кто его не видит."""
    route = "; ".join(f"{step.label} — {step.title.lower()}" for step in STEPS)
    return (
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" role="group" aria-label="Путь по урокам: {route}">'
        f'<defs><marker id="path-{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'orient="auto"><path d="M0 0L8 4L0 8Z"/></marker></defs>{body}</svg>'
    )


def wide_path(pages: list[str | None]) -> str:
    """Рисунок для широкого экрана: три урока в ряд, ниже — обратно к девятой неделе."""
    step_x, low = BOX_WIDTH + GAP, BOX_HEIGHT + 52
    parts = [box(STEPS[i], pages[i], 4 + i * step_x, 4, BOX_WIDTH) for i in range(3)]
    parts += [arrow(8 + i * step_x + BOX_WIDTH, 50, (i + 1) * step_x - 1, 50, "path-wide") for i in range(2)]
    last = 4 + 2 * step_x
    parts.append(arrow(last + BOX_WIDTH / 2, 100, last + BOX_WIDTH / 2, low - 5, "path-wide"))
    parts.append(box(STEPS[3], pages[3], last, low, BOX_WIDTH))
    parts.append(arrow(last - 5, low + 46, last - GAP + 5, low + 46, "path-wide"))
    parts.append(box(STEPS[4], pages[4], 4, low, 2 * BOX_WIDTH + GAP))
    return frame("wide", last + BOX_WIDTH + 4, low + BOX_HEIGHT + 4, "".join(parts))


def narrow_path(pages: list[str | None]) -> str:
    """Рисунок для телефона: уроки друг под другом."""
    step_y = BOX_HEIGHT + 26
    parts = [box(step, page, 4, 4 + i * step_y, 292) for i, (step, page) in enumerate(zip(STEPS, pages, strict=True))]
    parts += [arrow(150, i * step_y - 19, 150, i * step_y, "path-narrow") for i in range(1, len(STEPS))]
    return frame("narrow", 300, len(STEPS) * step_y - 18, "".join(parts))


class CoursePath(SphinxDirective):
    """Рисунок пути и таблица уроков."""

    def run(self) -> list[nodes.Node]:
        """Построить путь по тем урокам, которые есть."""
        pages = [found_lesson(self.env, step) for step in STEPS]
        # Появился или исчез урок — главную нужно собрать заново.
        self.env.note_reread()
        picture = f'<div class="course-path">{wide_path(pages)}{narrow_path(pages)}</div>'
        rows = [
            (self.link(step, page), step.about, step.time if page else "готовится")
            for step, page in zip(STEPS, pages, strict=True)
        ]
        return [nodes.raw("", picture, format="html"), tables.table(("Урок", "О чём", "Время"), rows)]

    def link(self, step: Step, page: str | None) -> nodes.Node:
        """Название урока; у готового — ссылка с заголовком страницы."""
        if page is None:
            return nodes.inline("", f"{step.label.removeprefix('Урок ')}. {step.title}")
        reference = addnodes.pending_xref(
            "", nodes.inline(), refdomain="std", reftype="doc", reftarget=f"/{page}", refexplicit=False, refwarn=True
        )
        reference["refdoc"] = self.env.docname
        return reference


def setup(app: Sphinx) -> None:
    """Подключить директиву `course-path`."""
    app.add_directive("course-path", CoursePath)
