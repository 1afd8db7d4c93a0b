"""Блокноты для скачивания: те же ячейки с выводами, понятные любому Jupyter.

В блокноте нет служебных ячеек (`remove-*`), ссылки на посчитанные значения заменены самими значениями,
а разметка MyST, которой Jupyter не знает, — обычным Markdown. Рядом кладётся и сам файл `.py`.
"""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat

from . import lessons

if TYPE_CHECKING:
    from nbformat import NotebookNode
    from sphinx.application import Sphinx

#: Роль с текстом и целью `{ref}`текст <цель>`` — остаётся текст; без цели — остаётся содержимое.
ROLE_WITH_TARGET = re.compile(r"\{[a-z:-]+\}`([^`<]+?)\s*<[^`>]*>`")
ROLE = re.compile(r"\{[a-z:-]+\}`([^`]+)`")
FENCE = re.compile(r"^(:{3,}|`{3,})\{([a-z-]+)\}\s*(.*)$")
OPTION = re.compile(r"^:[a-z-]+:.*$")
#: Директивы, у которых есть русское имя, если автор не дал своего заголовка.
NAMES = {"note": "Примечание", "tip": "Совет", "warning": "Внимание", "important": "Важно", "hint": "Подсказка"}
#: Живой части в блокноте нет.
LIVE = "Здесь на странице урока — калькулятор с ползунками."


def glued_values(notebook: NotebookNode) -> dict[str, str]:
    """Значения, которые ячейки передали в прозу."""
    values = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            mark = output.get("metadata", {}).get("scrapbook")
            if mark:
                text = output["data"].get(mark.get("mime_prefix", "") + "text/plain", "")
                values[mark["name"]] = unquoted(text)
    return values


def unquoted(text: str) -> str:
    """Строка без кавычек `repr`; всё, что не строка, остаётся как есть."""
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
    return value if isinstance(value, str) else text


def is_helper(cell: NotebookNode) -> bool:
    """Служебная ли ячейка: её нет на странице, или она только передаёт значения в прозу."""
    tags = {tag.replace("_", "-") for tag in cell.metadata.get("tags", [])}
    silent = "remove-input" in tags and all(is_glue(output) for output in cell.get("outputs", []))
    return "remove-cell" in tags or silent


def plain_markdown(text: str, values: dict[str, str]) -> str:
    """Переписать разметку MyST обычным Markdown."""
    text = lessons.GLUE.sub(lambda found: values.get(found[1], found[0]), text)
    text = ROLE.sub(r"\1", ROLE_WITH_TARGET.sub(r"\1", text))
    lines, inside, options = [], [], False
    for line in text.split("\n"):
        fence = FENCE.match(line)
        if fence:
            inside.append(fence[1])
            title = LIVE if fence[2] == "live" else fence[3] or NAMES.get(fence[2], "")
            lines += ["", f"**{title}**" if title else "", ""]
            options = True
        elif inside and line.strip() == inside[-1]:
            inside.pop()
        elif not (options and OPTION.match(line)):
            options = False
            lines.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def for_download(notebook: NotebookNode) -> NotebookNode:
    """Блокнот для читателя: без служебных ячеек и меток сборки."""
    values = glued_values(notebook)
    cells = []
    for cell in notebook.cells:
        if is_helper(cell):
            continue
        if cell.cell_type == "markdown":
            cell.source = plain_markdown(cell.source, values)
        else:
            cell.outputs = [output for output in cell.outputs if not is_glue(output)]
        cell.metadata = visible_metadata(cell)
        cells.append(cell)
    notebook.cells = cells
    for key in ("source_map", "nanolm", "jupytext"):
        notebook.metadata.pop(key, None)
    return notebook


def visible_metadata(cell: NotebookNode) -> NotebookNode:
    """Метаданные для читателя: теги курса и свёрнутый код там, где на странице его не видно."""
    tags = cell.metadata.get("tags", [])
    metadata = {"tags": kept} if (kept := [tag for tag in tags if tag in lessons.TAGS]) else {}
    if {"solution", "remove-input", "hide-input"} & set(tags):
        metadata["jupyter"] = {"source_hidden": True}
    return type(cell.metadata)(metadata)


def is_glue(output: NotebookNode) -> bool:
    """Вывод, который только передаёт значение в прозу: в блокноте он лишний."""
    return "scrapbook" in output.get("metadata", {})


def export(app: Sphinx, exception: Exception | None) -> None:
    """Записать в сайт блокноты и исходники всех уроков."""
    if exception is not None or app.builder.format != "html":
        return
    for docname in app.env.found_docs:
        executed = Path(app.outdir).parent / "jupyter_execute" / f"{docname}.ipynb"
        if not lessons.is_lesson(app.env, docname) or not executed.is_file():
            continue
        target = Path(app.outdir) / "_downloads" / f"{docname}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(for_download(nbformat.read(executed, as_version=4)), target)
        shutil.copyfile(app.env.doc2path(docname), target.with_suffix(".py"))


def setup(app: Sphinx) -> None:
    """Подключить выдачу блокнотов."""
    app.connect("build-finished", export)
