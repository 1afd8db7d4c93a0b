"""Разметка живых частей: её проверяют как дерево, а не как строку."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """Разметка: парные теги закрыты, идентификаторы не повторяются, ссылки на них есть, скриптов и стилей нет."""

    VOID = frozenset({"input", "br", "rect", "line", "circle", "polyline"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.wanted: list[str] = []
        self.names: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert tag not in {"script", "style"}
        assert not [name for name in given if name == "style" or name.startswith("on")]
        self.ids += [given["id"]] if "id" in given else []
        for name in ("for", "aria-describedby", "aria-labelledby"):
            self.wanted += given.get(name, "").split()
        self.names += [given["name"]] if "name" in given else []
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.stack.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
