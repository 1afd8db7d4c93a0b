"""Якоря русских заголовков: `#кэш-ключей` вместо `#id7`.

docutils не умеет делать имена из кириллицы и нумерует разделы, поэтому ссылка на раздел ломается, стоит
вставить заголовок выше. myst-parser считает имя по тексту заголовка, но кладёт его вторым; здесь оно
становится первым, и его берут и оглавление, и знак абзаца у заголовка.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

NUMBERED = re.compile(r"^id\d+$")


def prefer_slugs(_app: Sphinx, document: nodes.document) -> None:
    """Поставить имя, сделанное из текста заголовка, впереди номера."""
    for section in document.findall(nodes.section):
        named = [name for name in section["ids"] if not NUMBERED.match(name)]
        if named:
            section["ids"] = named + [name for name in section["ids"] if NUMBERED.match(name)]


def setup(app: Sphinx) -> None:
    """Подключить до сборщиков оглавления: у них приоритет 500."""
    app.connect("doctree-read", prefer_slugs, priority=100)
