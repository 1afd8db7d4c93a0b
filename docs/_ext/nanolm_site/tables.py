"""Таблицы, которые сайт строит из данных пакета: обозначения, видеокарты, модели.

Страница не повторяет данные, а показывает их: новая карта в `gpus.toml` сама появляется в таблице.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from . import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sphinx.application import Sphinx

    from nanolm.hardware import Gpu


def table(
    head: Sequence[str], rows: Iterable[Sequence[str | nodes.Node]], numeric: int = 0, kind: str = "nanolm-table"
) -> nodes.table:
    """Таблица docutils; последние `numeric` столбцов выровнены вправо, `kind` — её класс в CSS."""
    group = nodes.tgroup("", cols=len(head))
    group += [nodes.colspec("", colwidth=1) for _ in head]
    group += nodes.thead("", row(head, numeric))
    group += nodes.tbody("", *[row(cells, numeric) for cells in rows])
    return nodes.table("", group, classes=[kind])


def row(cells: Sequence[str | nodes.Node], numeric: int) -> nodes.row:
    """Строка таблицы."""
    line = nodes.row()
    for index, cell in enumerate(cells):
        right = index >= len(cells) - numeric
        content = nodes.Text(cell) if isinstance(cell, str) else cell
        line += nodes.entry("", nodes.paragraph("", "", content), classes=["text-right"] if right else [])
    return line


class DataTable(SphinxDirective):
    """Общая часть: страница зависит от исходников и данных пакета."""

    def run(self) -> list[nodes.Node]:
        """Построить таблицу и запомнить, от каких файлов она зависит."""
        for path in digest.files(Path(self.env.srcdir), ("nanolm/*.py", "nanolm/data/*")):
            self.env.note_dependency(str(path))
        return [self.build()]

    def build(self) -> nodes.Node:
        """Сама таблица."""
        raise NotImplementedError


class NotationTable(DataTable):
    """Буквы курса из `nanolm.spec.NOTATION`."""

    def build(self) -> nodes.Node:
        """Буква и её значение."""
        from nanolm.spec import NOTATION

        return table(("Буква", "Что значит"), [(nodes.math("", letter), text) for letter, text in NOTATION.items()])


class GpuSources(DataTable):
    """Источник каждой цифры о видеокартах; карты с одинаковыми источниками стоят вместе."""

    def build(self) -> nodes.Node:
        """Список карт: источник и числа, которые он подтверждает."""
        from nanolm.hardware import gpus

        groups: dict[str, list[Gpu]] = {}
        for card in gpus().values():
            groups.setdefault(repr((dict(card.sources), card.unchecked, card.note)), []).append(card)
        items = nodes.definition_list()
        for cards in groups.values():
            title = "; ".join(card.title for card in cards)
            items += nodes.definition_list_item("", nodes.term("", title), nodes.definition("", *proofs(cards[0])))
        return items


#: Поля карты по-русски; остальные — скорости и называются типом данных.
FIELDS = {
    "memory": "память", "usable": "доступная память", "bandwidth": "пропускная способность",
    "watts": "мощность", "link": "связь",
}  # fmt: skip


def proofs(card: Gpu) -> list[nodes.Node]:
    """Каждый источник карты — один раз, с перечнем чисел; затем несверенное и оговорки."""
    proven: dict[tuple[str, ...], list[str]] = {}
    for field, texts in card.sources.items():
        proven.setdefault(texts, []).append(FIELDS.get(field, field))
    lines = nodes.bullet_list()
    for texts, fields in proven.items():
        lead = nodes.strong("", ", ".join(fields))
        lines += nodes.list_item("", nodes.paragraph("", "", lead, nodes.Text(": "), *linkify("; ".join(texts))))
    remarks = [card.note] if card.note else []
    if card.unchecked:
        names = ", ".join(FIELDS.get(field, field) for field in card.unchecked)
        remarks.append(f"Не сверено по сохранённой странице: {names}.")
    return [lines, *(nodes.paragraph("", text) for text in remarks)]


def linkify(text: str) -> list[nodes.Node]:
    """Превратить адреса в тексте в ссылки."""
    parts: list[nodes.Node] = []
    for word in text.split(" "):
        address = word.rstrip(".,;")
        if address.startswith("https://"):
            host = address.split("/")[2].removeprefix("www.")
            parts += [nodes.reference("", host, refuri=address), nodes.Text(word[len(address) :] + " ")]
        else:
            parts.append(nodes.Text(word + " "))
    return parts


def setup(app: Sphinx) -> None:
    """Подключить директивы таблиц."""
    for name, directive in {
        "notation-table": NotationTable,
        "gpu-sources": GpuSources,
    }.items():
        app.add_directive(name, directive)
