"""Уроки как тексты и как программы: разметка, ссылки, числа из расчёта.

Урок — один файл py:percent. Его беды — не ошибки Python: забытая решётка превращает прозу в код, число,
набранное руками, врёт после первой же правки, ссылка на термин ведёт в никуда. Всё это ловится чтением.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import jupytext
import pytest

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted(path for pattern in ("lab_*.py", "week_*.py") for path in (ROOT / "lessons").glob(pattern))
WEEK = ROOT / "lessons" / "week_09_buhgalteriya.py"
TAGS = {
    "exercise", "solution", "check", "gpu",
    "skip-execution", "sliders", "hide-input", "hide-output",
    "remove-cell", "remove-input", "remove-output", "raises-exception",
}  # fmt: skip
#: Десятичные дроби, которые в тексте урока — данные источника, а не результат расчёта.
GIVEN = {
    "lab_7_2_flops": {"2,5", "3,3", "97,5"},  # токены обучения, млрд; пик RTX 4080, TFLOPS
    "lab_7_4_pamyat": {"0,9"},  # доля карты, которую отдали распределителю
}

each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def cells(path: Path, kind: str) -> list[Any]:
    notebook = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def markdown(path: Path) -> str:
    return "\n\n".join(cell.source for cell in cells(path, "markdown"))


def prose_only(text: str) -> str:
    """Текст без кода, формул, ролей и адресов: то, что набрано рукой автора."""
    text = re.sub(r"(?ms)^```.*?^```$", " ", text)
    text = re.sub(r"(?s)\$\$.*?\$\$", " ", text)
    return re.sub(r"\{[a-z:]+\}`[^`]*`|`[^`]*`|\$[^$]+\$|\]\([^)]*\)|<[^>]+>", " ", text)


def glued(path: Path) -> list[str]:
    """Имена, которые ячейки передают в текст вызовом `prose`."""
    names = []
    for cell in cells(path, "code"):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "prose":
                names += [keyword.arg for keyword in node.keywords if keyword.arg]
    return names


def test_there_are_lessons() -> None:
    assert WEEK in LESSONS


@each_lesson
def test_file_is_plain_utf8(path: Path) -> None:
    raw = path.read_bytes()
    assert not raw.startswith(b"\xef\xbb\xbf"), "BOM в начале файла"
    assert b"\r" not in raw, "концы строк не LF"
    raw.decode("utf-8")


@each_lesson
def test_markdown_cells_are_comments_to_the_last_line(path: Path) -> None:
    inside = False
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if line.startswith("# %%"):
            inside = "[markdown]" in line
        elif inside and line.strip():
            assert line.startswith("#"), f"строка {number}: код сразу после текста, забыта строка «# %%»"
            # «##» без пробела jupytext отдаст тексту как заголовок.
            assert line == "#" or line.startswith("# "), f"строка {number}: после решётки нужен пробел"


@each_lesson
def test_every_cell_has_something_and_known_tags(path: Path) -> None:
    for cell in [*cells(path, "markdown"), *cells(path, "code")]:
        assert cell.source.strip(), "пустая ячейка"
        assert set(cell.metadata.get("tags", [])) <= TAGS, cell.metadata["tags"]


@each_lesson
def test_fences_formulas_and_folds_are_closed(path: Path) -> None:
    for cell in cells(path, "markdown"):
        opened: list[str] = []
        for line in cell.source.split("\n"):
            fence = re.match(r"(:{3,}|`{3,})(.*)", line)
            if fence and opened and opened[-1] == fence[1] and not fence[2].strip():
                opened.pop()
            elif fence:
                opened.append(fence[1])
        assert opened == [], cell.source[:60]
        assert cell.source.count("$$") % 2 == 0, cell.source[:60]
        assert len(re.findall(r"<details\b", cell.source)) == cell.source.count("</details>"), cell.source[:60]


@each_lesson
def test_numbers_in_the_text_are_computed(path: Path) -> None:
    typed = set(re.findall(r"(?<![\d.])\d+,\d+", prose_only(markdown(path))))
    assert typed <= GIVEN.get(path.stem, set()), "дробь набрана руками: её должен передать prose()"


@each_lesson
def test_text_and_cells_agree_on_the_names_of_numbers(path: Path) -> None:
    given = glued(path)
    used = set(re.findall(r"\{glue:text\}`([^`]+)`", markdown(path)))
    assert len(given) == len(set(given)), "одно имя передано дважды"
    assert used - set(given) == set(), "в тексте есть имя, которого никто не передал"
    assert set(given) - used == set(), "переданное число в тексте не нужно"


@each_lesson
def test_figures_have_descriptions_and_names_of_their_own(path: Path) -> None:
    names = []
    for cell in cells(path, "code"):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
                "bars",
                "stacked_bars",
                "lines",
                "scatter",
            ):
                keywords = {keyword.arg: keyword.value for keyword in node.keywords}
                assert {"name", "title", "alt"} <= set(keywords), ast.unparse(node)[:80]
                names.append(ast.literal_eval(keywords["name"]))
    assert len(names) == len(set(names))


@each_lesson
def test_references_and_terms_exist(path: Path) -> None:
    text = markdown(path)
    keys = {key.strip() for found in re.findall(r"\{cite[a-z:]*\}`([^`]+)`", text) for key in found.split(",")}
    known = set(re.findall(r"(?m)^@\w+\{([^,]+),", (ROOT / "docs" / "references.bib").read_text(encoding="utf-8")))
    assert keys <= known, keys - known
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = {line.strip() for line in glossary.split("\n") if re.match(r"[^\s:`#]", line)}
    wanted = {re.sub(r".*<(.+)>$", r"\1", " ".join(term.split())) for term in re.findall(r"\{term\}`([^`]+)`", text)}
    assert wanted <= terms, wanted - terms


@each_lesson
def test_typography(path: Path) -> None:
    text = prose_only(markdown(path))
    assert not re.search(r'[а-яё]"|"[а-яё]', text, re.IGNORECASE), "прямые кавычки вместо «ёлочек»"
    assert not re.search(r"[а-яё\d)] - [а-яё\d(]", text), "дефис вместо тире"
    assert not re.search(r"\b(?:еще|счет|счетчик|объем|учет|расчет|дает|берет|идет|ведет|растет|четырех)\b", text)
    # Число и единица стоят через неразрывный пробел, иначе их разорвёт конец строки.
    assert not re.search(r"\d (?:%|ГБ|ГиБ|КиБ|МиБ|байта?|часов|ч|мс|млрд|млн|трлн)(?!\w)", text), (
        "нужен неразрывный пробел"
    )


@each_lesson
def test_nothing_names_this_machine(path: Path) -> None:
    assert not re.search(r"/(?:work|tmp|root|home)/", path.read_text(encoding="utf-8"))
