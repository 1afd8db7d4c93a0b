"""Сайт в Chromium без внешней сети: формулы, рисунки, поиск, телефон, тёмная тема, печать."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

LESSON = next(path.stem for path in (Path(__file__).resolve().parents[2] / "lessons").glob("week_09_*.py"))
ADDRESS = f"lessons/{LESSON}.html"
SCREENS = [(width, theme) for width in (1280, 390) for theme in ("light", "dark")]
#: Страницы, которые проверяются на узком экране.
NARROW = ["index.html", ADDRESS, "docs/gpus.html", "docs/cli.html", "docs/notation.html", "docs/reference/budget.html"]

#: Наименьший контраст текста рисунка с фоном страницы (WCAG: крупный текст и графика — 3). Подписи цвета фона
#: лежат на закрашенных столбцах, их контраст — дело палитры.
CONTRAST = """() => {
  const parse = (color) => color.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const page = light(parse(getComputedStyle(document.body).backgroundColor));
  const ratios = [...document.querySelectorAll(".nanolm-figure svg text, .course-path svg text")]
    .filter((text) => text.getClientRects().length)
    .map((text) => light(parse(getComputedStyle(text).fill)))
    .filter((ink) => ink !== page)
    .map((ink) => (Math.max(ink, page) + 0.05) / (Math.min(ink, page) + 0.05));
  return {count: ratios.length, worst: Math.min(...ratios)};
}"""


@pytest.mark.parametrize(("width", "theme"), SCREENS)
def test_lesson_is_complete(open_page: Callable[..., Page], width: int, theme: str) -> None:
    page = open_page(ADDRESS, width, theme)
    assert page.locator(".katex-error").count() == 0
    assert page.locator("span.math .katex, div.math .katex").count() == page.locator("span.math, div.math").count() > 20
    figures = page.locator(".nanolm-figure svg")
    assert figures.count() >= 5
    for index in range(figures.count()):
        box = figures.nth(index).bounding_box()
        assert box
        assert box["width"] > 250
        assert box["height"] > 100
    assert all(page.evaluate("[...document.querySelectorAll('.nanolm-figure svg')].map(s => !!s.ariaLabel)"))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not page.evaluate("[...document.images].some(image => !image.naturalWidth)")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("address", [ADDRESS, "index.html"])
def test_figures_are_readable(open_page: Callable[..., Page], address: str, theme: str) -> None:
    found = open_page(address, 1280, theme).evaluate(CONTRAST)
    assert found["count"] > 5
    assert found["worst"] >= 3


@pytest.mark.parametrize("address", NARROW)
def test_phone_does_not_scroll_sideways(open_page: Callable[..., Page], address: str) -> None:
    assert open_page(address, 390).evaluate("document.documentElement.scrollWidth") <= 390


def test_theme_switch_beats_the_system(open_page: Callable[..., Page]) -> None:
    page = open_page(ADDRESS, 1280, "dark")
    dark = page.evaluate("getComputedStyle(document.body).getPropertyValue('--nl-ink')")
    page.evaluate("document.body.dataset.theme = 'light'")
    light = page.evaluate("getComputedStyle(document.body).getPropertyValue('--nl-ink')")
    assert light != dark


@pytest.mark.parametrize(
    "query",
    ["память", "памяти", "видеопамяти", "токенов", "записи", "ядер", "объёма", "объема", "кэш", "кешем", "голов",
     "градиенты", "SwiGLU"],
)  # fmt: skip
def test_search_finds_russian_forms(open_page: Callable[..., Page], query: str) -> None:
    page = open_page(f"search.html?q={query}")
    page.wait_for_selector("#search-results ul.search li", timeout=10_000)
    assert page.locator("#search-results ul.search li").count() > 0


def test_search_finds_nothing_for_nonsense(open_page: Callable[..., Page]) -> None:
    page = open_page("search.html?q=щщъжэ")
    page.wait_for_function("document.querySelector('#search-results p.search-summary')?.textContent.length > 20")
    assert page.locator("#search-results ul.search li").count() == 0


def test_printing_opens_everything_folded(open_page: Callable[..., Page]) -> None:
    page = open_page(ADDRESS)
    folded = page.locator("details .cell_input, details .highlight").first
    folded.wait_for(state="attached")
    assert not folded.is_visible()
    page.emulate_media(media="print")
    assert folded.is_visible()


def test_copy_button_stands_on_code_only(open_page: Callable[..., Page]) -> None:
    page = open_page(ADDRESS)
    assert page.locator("div.cell_input .copybtn").count() > 3
    assert page.locator("div.cell_output .copybtn").count() == 0


def test_page_reads_without_scripts(open_page: Callable[..., Page]) -> None:
    page = open_page(ADDRESS, java_script_enabled=False)
    assert page.locator("div.math .katex").count() > 3
    assert page.locator(".nanolm-figure svg").count() >= 5


def test_downloads_are_offered(open_page: Callable[..., Page]) -> None:
    page = open_page(ADDRESS)
    for name in ("Скачать блокнот (.ipynb)", "Скачать .py"):
        with page.expect_download() as waiting:
            page.get_by_text(name, exact=True).click()
        assert waiting.value.suggested_filename.startswith(LESSON)
