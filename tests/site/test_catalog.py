"""Страницы «Модели» и «Видеокарты»: числа — из данных, а сортировка и поиск — только надстройка над таблицей."""

from __future__ import annotations

import html
import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = json.loads((ROOT / "tests" / "golden" / "models.json").read_text(encoding="utf-8"))
CARDS = tomllib.loads((ROOT / "nanolm" / "data" / "gpus.toml").read_text(encoding="utf-8"))["card"]
GIB, KIB = 2**30, 2**10

Row = dict[str, tuple[str, float | None]]


def rows(page: Path) -> dict[str, Row]:
    """Таблица страницы: имя строки → заголовок столбца → (текст, число)."""
    table = re.search(r'<div class="nanolm-catalog".*?</table>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert table
    heads = [html.unescape(text) for text in re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", table[0])]
    found = {}
    for line in re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", table[0], re.DOTALL):
        key = re.search(r"<code>(.*?)</code>", line)
        cells = re.findall(r'<td(?: class="number")?(?: data-value="([^"]*)")?>(.*?)</td>', line)
        values = [(text, float(value) if value else None) for value, text in cells]
        assert key
        found[key[1]] = dict(zip(heads[1:], values, strict=True))
    return found


@pytest.fixture(scope="module")
def models(site: Path) -> dict[str, Row]:
    return rows(site / "docs" / "models.html")


@pytest.fixture(scope="module")
def gpus(site: Path) -> dict[str, Row]:
    return rows(site / "docs" / "gpus.html")


def ru(value: float, digits: int = 0) -> str:
    return f"{value:,.{digits}f}".translate({44: "\u00a0", 46: ","})


def test_models_page_counts_are_the_published_ones(models: dict[str, Row]) -> None:
    assert set(models) >= set(GOLDEN)
    for key, known in GOLDEN.items():
        for column, field in (("Параметры", "total"), ("Активные", "active")):
            assert models[key][column] == (ru(known[field]), known[field]), (key, column)


def test_models_page_columns_agree_with_each_other(models: dict[str, Row]) -> None:
    for key, row in models.items():
        value = {column: number for column, (_, number) in row.items() if number is not None}
        weights = 2 * value["Параметры"] / GIB
        cache = value["KV, КиБ на токен"] * value["S"] * KIB / GIB
        assert value["Веса, ГиБ"] == pytest.approx(weights), key
        assert value["Пакет кеш = веса"] == pytest.approx(weights / cache), key
        assert value["Вывод, ГиБ"] > weights + cache, key
        assert value["Обучение, ГиБ"] > 8 * weights, key
        assert value["S"] <= 8192, key


@pytest.mark.parametrize(
    ("key", "flops", "cache"),
    [
        # FLOPs: 6·(матрицы) + 12·L·N·H·S; кеш: по слоям, окна и сжатие учтены.
        ("llama-3-8b", 6 * (32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 128256 * 4096)
         + 12 * 32 * 4096 * 8192, 2 * 32 * 8 * 128 * 2),
        ("gpt2", 6 * (12 * 12 * 768**2 + 50257 * 768) + 12 * 12 * 768 * 1024, 2 * 12 * 768 * 2),
        ("gpt-oss-20b", None, 12 * 2 * 8 * 64 * 2 * (1 + 128 / 8192)),
        ("gemma-3-4b", None, 2 * 4 * 256 * 2 * (5 + 29 * 1024 / 8192)),
        ("deepseek-v3", None, 61 * (512 + 64) * 2),
    ],
)  # fmt: skip
def test_models_page_by_hand(models: dict[str, Row], key: str, flops: float | None, cache: float) -> None:
    text, value = models[key]["KV, КиБ на токен"]
    assert value == pytest.approx(cache / KIB)
    assert text == ru(cache / KIB, 2)
    if flops is not None:
        assert models[key]["GFLOPs на токен"] == (ru(flops / 1e9, 2), pytest.approx(flops / 1e9))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("llama-2-7b", "MHA"),
        ("llama-3.2-1b", "GQA 4:1, голова связана"),
        ("gemma-2b", "MQA, голова связана"),
        ("mistral-7b-v0.1", "GQA 4:1, окно 4096 во всех слоях"),
        ("gpt-oss-20b", "GQA 8:1, смесь: 4 из 32, окно 128 в 12 слоях из 24"),
        ("deepseek-v3", "MLA, смесь: 8 из 256"),
    ],
)
def test_models_page_names_the_architecture(models: dict[str, Row], key: str, words: str) -> None:
    assert models[key]["Устройство"][0] == words


def test_gpus_page_repeats_the_data(gpus: dict[str, Row]) -> None:
    for card in CARDS:
        row = gpus[card["key"]]
        assert row["Память, ГиБ"][1] == card["memory_gib"]
        assert row["Полоса, ТБ/с"][1] == pytest.approx(card["bandwidth_gb_s"] / 1000)
        assert row["Мощность, Вт"][1] == card.get("watts")
        assert row["Связь, ГБ/с"][1] == card.get("link_gb_s")
        for rate in ("fp32", "tf32", "bf16", "fp16", "fp8"):
            text, value = row[f"{rate}, TFLOP/s"]
            assert value == (pytest.approx(card["tflops"][rate]) if rate in card["tflops"] else None)
            assert (text == "—") == (rate not in card["tflops"])


def test_gpus_page_marks_assumed_and_unchecked_numbers(gpus: dict[str, Row]) -> None:
    columns = {"usable": "Доступно, ГиБ", "link": "Связь, ГБ/с", "bandwidth": "Полоса, ТБ/с", "watts": "Мощность, Вт",
               "memory": "Память, ГиБ"}  # fmt: skip
    for card in CARDS:
        row = gpus[card["key"]]
        assert ("*" in row["Доступно, ГиБ"][0]) == ("usable_gib" not in card), card["key"]
        for field, column in columns.items():
            unchecked = field in card.get("unchecked", ()) and row[column][0] != "—"
            assert row[column][0].endswith("?") == unchecked, (card["key"], field)
    assert any("unchecked" in card for card in CARDS)
    assert any("usable_gib" not in card for card in CARDS)


def test_only_catalog_pages_load_the_script(pages: list[Path]) -> None:
    with_script = {page.stem for page in pages if "nanolm-catalog.js" in page.read_text(encoding="utf-8")}
    assert with_script == {"models", "gpus"}


# --- в браузере ---------------------------------------------------------------------------------


def shown(page: Page) -> list[str]:
    """Имена видимых строк по порядку."""
    return page.locator(".nanolm-catalog tbody tr:visible th code").all_inner_texts()


def test_table_reads_without_scripts(open_page: Callable[..., Page]) -> None:
    page = open_page("docs/models.html", java_script_enabled=False)
    assert set(shown(page)) >= set(GOLDEN)
    assert page.locator(".nanolm-catalog button, .nanolm-catalog input").count() == 0


def test_sorting_by_keyboard(open_page: Callable[..., Page]) -> None:
    page = open_page("docs/models.html")
    heading = page.locator("th", has=page.get_by_role("button", name="Параметры", exact=True))
    heading.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    down = shown(page)
    assert down[0] == "deepseek-v3"
    assert [key for key in down if key in GOLDEN] == sorted(GOLDEN, key=lambda key: -GOLDEN[key]["total"])
    page.keyboard.press("Space")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert shown(page) == down[::-1]
    page.get_by_role("button", name="Модель", exact=True).click()
    assert page.locator("th[aria-sort]").count() == 1
    assert page.get_by_role("status").inner_text() == "Порядок: Модель, по возрастанию"
    titles = page.locator(".nanolm-catalog tbody th").all_inner_texts()
    assert titles[0].startswith("DeepSeek")
    assert titles[-1].startswith("TinyLlama")


def test_missing_numbers_stay_last(open_page: Callable[..., Page], gpus: dict[str, Row]) -> None:
    page = open_page("docs/gpus.html")
    button = page.get_by_role("button", name="fp8, TFLOP/s", exact=True)
    missing = sum(row["fp8, TFLOP/s"][1] is None for row in gpus.values())
    assert 0 < missing < len(gpus)
    for _ in ("по убыванию", "по возрастанию"):
        button.click()
        known = [gpus[key]["fp8, TFLOP/s"][1] is not None for key in shown(page)]
        assert known == [True] * (len(gpus) - missing) + [False] * missing


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("mla", {"deepseek-v2-lite", "deepseek-v3"}),
        ("Qwen3 смесь", {"qwen3-30b-a3b"}),
        ("8 030 261 248", {"llama-3-8b"}),
        ("такой нет", set()),
    ],
)
def test_search(open_page: Callable[..., Page], query: str, expected: set[str]) -> None:
    page = open_page("docs/models.html")
    total = len(shown(page))
    field = page.get_by_role("searchbox", name="Найти модель")
    field.fill(query)
    assert set(shown(page)) == expected
    assert page.get_by_role("status").inner_text() == f"Показано {len(expected)} из {total}"
    field.fill("")
    assert len(shown(page)) == total


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["models", "gpus", "conventions", "mistakes"])
def test_page_fits_the_screen(open_page: Callable[..., Page], name: str, width: int, theme: str) -> None:
    page = open_page(f"docs/{name}.html", width, theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".katex-error").count() == 0
    if name in ("models", "gpus"):
        box = page.locator(".nanolm-catalog .table-wrapper")
        assert box.evaluate("e => e.scrollWidth > e.clientWidth")
        box.evaluate("e => { e.scrollLeft = e.scrollWidth }")
        name_cell = page.locator(".nanolm-catalog tbody th").first
        assert name_cell.bounding_box()["x"] == pytest.approx(box.bounding_box()["x"], abs=2)  # type: ignore[index]


def test_gallery_and_conventions_are_executed_and_downloadable(site: Path) -> None:
    for name, least in (("mistakes", 40), ("conventions", 9)):
        text = (site / "docs" / f"{name}.html").read_text(encoding="utf-8")
        assert text.count('class="nanolm-account nanolm-table"') >= least
        assert "Traceback" not in text
        assert "{glue:" not in text
        notebook = json.loads((site / "_downloads" / "docs" / f"{name}.ipynb").read_text(encoding="utf-8"))
        assert any(cell.get("outputs") for cell in notebook["cells"])
