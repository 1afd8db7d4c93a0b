"""Собранные страницы как файлы: ничего из сети, русский язык, числа на месте, блокноты годны."""

from __future__ import annotations

import ast
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted(path.stem for path in (ROOT / "lessons").glob("*.py"))
#: Атрибуты, по которым браузер сам загружает файл. Ссылка `a href` загружает, только если её нажать.
LOADS = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src"),
         ("image", "href"), ("use", "href"), ("object", "data")}  # fmt: skip
#: Такие `link` браузер не загружает: это подсказки, куда ведёт страница.
NAVIGATION = ("next", "prev", "index", "search")
#: Больше урок весить не должен: страница с шрифтами, стилями и скриптами, сжатая.
LESSON_BYTES = 700_000
#: Английские слова темы, которым на русской странице не место.
ENGLISH = (
    "Skip to content", "Back to top", "On this page", "Toggle", "Hide navigation", "Made with", "Copyright",
    "Show code", "Hide code", "Next", "Previous", "Search", "Contents", "Permalink", "Index", "Parameters:", "Bases:",
)  # fmt: skip


class Loads(HTMLParser):
    """Собирает адреса, которые страница загружает сама, и встроенные обработчики событий."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.texts: list[str] = []
        self.labels: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in ("script", "style", "pre", "code", "title", "annotation")
        for name, value in attrs:
            if (tag, name.split(":")[-1]) in LOADS and dict(attrs).get("rel") not in NAVIGATION:
                self.addresses.append(value or "")
            if name.startswith("on"):
                self.handlers.append(f"{tag} {name}")
            if name in ("aria-label", "title", "placeholder", "alt"):
                self.labels.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in ("script", "style", "pre", "code", "title", "annotation")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.texts.append(data)


def parse(page: Path) -> Loads:
    """Разобрать страницу."""
    parser = Loads()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


def test_pages_load_only_their_own_files(site: Path, pages: list[Path]) -> None:
    for page in pages:
        addresses = parse(page).addresses
        assert [a for a in addresses if re.match(r"(https?:)?//", a)] == [], page
        files = [a.split("?")[0].split("#")[0] for a in addresses if not a.startswith(("#", "data:"))]
        assert [a for a in files if not (page.parent / a).exists()] == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_pages_have_no_inline_handlers(pages: list[Path]) -> None:
    assert {str(page): handlers for page in pages if (handlers := parse(page).handlers)} == {}


def test_every_page_is_russian_and_titled(pages: list[Path]) -> None:
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert '<html class="no-js" lang="ru"' in text, page
        title = re.search(r"<title>(.*?)</title>", text, re.DOTALL)
        assert title, page
        assert "NanoLM" in title[1], page
        assert "None" not in title[1], page


def test_theme_speaks_russian(pages: list[Path]) -> None:
    for page in pages:
        parsed = parse(page)
        shown = [text.strip() for text in [*parsed.texts, *parsed.labels]]
        assert [text for text in shown if text.startswith(ENGLISH)] == [], page


def test_local_links_lead_somewhere(pages: list[Path]) -> None:
    anchors = {page.resolve(): set(re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8"))) for page in pages}
    for page in pages:
        for link in re.findall(r'<a [^>]*?href="([^"]+)"', page.read_text(encoding="utf-8")):
            if re.match(r"[a-z]+:", link) or link == "#":
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page.resolve()
            assert target.exists(), f"{page.name}: {link}"
            if anchor and target.suffix == ".html":
                assert anchor in anchors[target], f"{page.name}: {link}"


def test_headings_have_readable_anchors(site: Path) -> None:
    text = (site / "docs" / "notation.html").read_text(encoding="utf-8")
    assert '<section id="три-алфавита">' in text
    assert 'href="#три-алфавита"' in text
    assert not re.search(r'href="#id\d+"', text)


@pytest.mark.parametrize("lesson", LESSONS)
def test_lesson_was_executed(site: Path, lesson: str) -> None:
    text = (site / "lessons" / f"{lesson}.html").read_text(encoding="utf-8")
    assert 'class="cell_output' in text
    assert "Traceback" not in text
    assert "without encryption" not in text
    assert "{glue:" not in text
    assert "katex-error" not in text


@pytest.mark.parametrize("lesson", LESSONS)
def test_lesson_notebook_is_ready_for_a_reader(site: Path, lesson: str) -> None:
    folder = site / "_downloads" / "lessons"
    notebook = json.loads((folder / f"{lesson}.ipynb").read_text(encoding="utf-8"))
    cells = notebook["cells"]
    tags = {tag for cell in cells for tag in cell["metadata"].get("tags", [])}
    assert tags <= {"exercise", "solution", "check", "gpu"}
    assert any(cell.get("outputs") for cell in cells if cell["cell_type"] == "code")
    prose = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert not re.search(r"\{[a-z:]+\}`", prose)
    assert ":::" not in prose
    for cell in cells:
        if cell["cell_type"] == "code":
            ast.parse("".join(cell["source"]))
    assert (folder / f"{lesson}.py").read_bytes() == (ROOT / "lessons" / f"{lesson}.py").read_bytes()


@pytest.mark.parametrize("lesson", LESSONS)
def test_lesson_is_light(site: Path, lesson: str) -> None:
    page = site / "lessons" / f"{lesson}.html"
    files = {page} | {(page.parent / a.split("?")[0]).resolve() for a in parse(page).addresses if "#" not in a}
    fonts = sum(font.stat().st_size for font in (site / "_static" / "katex" / "fonts").glob("*.woff2"))
    weight = sum(len(gzip.compress(path.read_bytes())) for path in files) + fonts
    assert weight < LESSON_BYTES, f"{lesson}: {weight} байт"


def test_reference_shows_signatures(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "docs" / "reference" / "spec.html").read_text(encoding="utf-8"))
    assert "tie_embeddings: bool = False" in text
    budget = re.sub(r"<[^>]+>", "", (site / "docs" / "reference" / "budget.html").read_text(encoding="utf-8"))
    assert "dtype: str = 'bf16'" in budget
    assert "„" not in budget


def test_notation_page_shows_every_letter(site: Path) -> None:
    from nanolm.spec import NOTATION

    text = (site / "docs" / "notation.html").read_text(encoding="utf-8")
    assert [meaning for meaning in NOTATION.values() if meaning not in text] == []


def test_gpu_page_shows_every_card(site: Path) -> None:
    from nanolm.hardware import gpus

    text = (site / "docs" / "gpus.html").read_text(encoding="utf-8")
    assert [card.key for card in gpus().values() if f">{card.key}<" not in text] == []
