"""Расширение Sphinx, на котором держится сайт NanoLM.

Оно собрано из небольших частей, каждая — со своей заботой: чтение и выполнение уроков, блокноты
для скачивания, формулы без сети, поиск по-русски, устойчивые якоря, живые таблицы и примеры команд.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import anchors, catalog, course, examples, lessons, live, maths, notebooks, pages, policy, search, tables

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PARTS = (anchors, catalog, course, examples, lessons, live, maths, notebooks, pages, policy, search, tables)


def setup(app: Sphinx) -> dict[str, Any]:
    """Подключить все части."""
    for part in PARTS:
        part.setup(app)
    return {"version": "1", "env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
