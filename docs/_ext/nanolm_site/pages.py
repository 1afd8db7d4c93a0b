"""Отделка страниц: палитра рисунков, ссылки на скачивание урока, таблицы в собственной прокрутке."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import lessons

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

DOWNLOADS = """
<p class="lesson-downloads no-search">
<a href="{base}.ipynb" download>Скачать блокнот (.ipynb)</a>
<a href="{base}.py" download>Скачать .py</a>
</p>
"""
#: Таблица из вывода ячейки: у неё нет обёртки, которую Sphinx даёт своим таблицам.
BARE_TABLE = re.compile(r'(<table class="(?:nanolm-account|dataframe)[^"]*".*?</table>)', re.DOTALL)

#: Что прокручивается само, должно прокручиваться и с клавиатуры; а имя складки — её же подпись, другого не нужно.
KEYBOARD = (
    ('<div class="highlight"><pre>', '<div class="highlight"><pre tabindex="0">'),
    ('<figure class="nanolm-figure"', '<figure tabindex="0" class="nanolm-figure"'),
    ('<summary aria-label="Toggle hidden content">', "<summary>"),
)


def generated_static(app: Sphinx) -> Path:
    """Папка статических файлов, которые делает сама сборка."""
    folder = Path(app.srcdir) / "build" / "static"
    folder.mkdir(parents=True, exist_ok=True)
    if str(folder) not in app.config.html_static_path:
        app.config.html_static_path.append(str(folder))
    return folder


def write_palette(app: Sphinx, _config: Config) -> None:
    """Отдать странице цвета рисунков: их единственный источник — `nanolm.figures`."""
    from nanolm.figures import css_variables

    (generated_static(app) / "nanolm-palette.css").write_text(css_variables(), encoding="utf-8")


def finish_page(app: Sphinx, name: str, _template: str, context: dict[str, Any], _doctree: Any) -> None:
    """Дополнить готовую страницу: ссылки под заголовком урока, обёртки таблиц."""
    body = context.get("body")
    if not body:
        return
    body = BARE_TABLE.sub(r'<div class="table-wrapper" tabindex="0">\1</div>', body)
    for before, after in KEYBOARD:
        body = body.replace(before, after)
    if name in app.env.found_docs and lessons.is_lesson(app.env, name):
        base = context["pathto"](f"_downloads/{name}", 1)
        body = body.replace("</h1>", "</h1>" + DOWNLOADS.format(base=base), 1)
    context["body"] = body


def setup(app: Sphinx) -> None:
    """Подключить отделку страниц."""
    app.connect("config-inited", write_palette)
    app.add_css_file("nanolm-palette.css")
    app.connect("html-page-context", finish_page)
