"""Что и когда грузит страница: вес, ленивость, политика, чтение без скриптов и без сервера."""

from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING, Any

import pytest
from conftest import ROOT, START_MS, Handler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LESSONS = sorted(path.stem for path in (ROOT / "lessons").glob("*.py"))
TOOLS = ("docs/calculator.html", "docs/interview.html")
PAGES = (*(f"lessons/{name}.html" for name in LESSONS), *TOOLS)
#: Пределы веса, байты после gzip.
PAGE_LIMIT, PYTHON_LIMIT = 700_000, 6_500_000


def packed(path: Path) -> int:
    """Сколько файл весит после gzip."""
    return len(gzip.compress(path.read_bytes(), 9))


def files(site: Path, visitor: Any) -> list[Path]:
    """Файлы сайта, которые попросила страница."""
    paths = {url.removeprefix(visitor.server).partition("?")[0].partition("#")[0] for url in visitor.requests}
    return [site / path for path in sorted(paths)]


@pytest.mark.parametrize("address", PAGES)
def test_page_weight_and_nothing_live_before_first_use(visit: Callable[..., Any], site: Path, address: str) -> None:
    visitor = visit(address)
    asked = files(site, visitor)
    assert [path.name for path in asked if path.parent.name == "live"] == ["main.js"]
    assert sum(map(packed, asked)) <= PAGE_LIMIT
    assert visitor.page.workers == []


def test_live_python_weight(site: Path) -> None:
    live = site / "_static" / "live"
    python = next(live.glob("pyodide-*"))
    parts = [*python.iterdir(), *live.glob("nanolm-*.zip")]
    assert len(parts) == 6
    assert sum(map(packed, parts)) <= PYTHON_LIMIT


def test_names_carry_fingerprints(site: Path) -> None:
    live = site / "_static" / "live"
    odd = [path.name for path in live.iterdir() if not re.search(r"-[0-9A-Za-z]{8,}(\.|$)", path.name)]
    assert odd == ["main.js"]


def test_policy_is_strict(server: str) -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in Handler.policy.split(";"))
    words = rules["script-src"].split()
    assert {"'unsafe-inline'", "'unsafe-eval'", "*", "data:", "blob:"}.isdisjoint(words)
    assert all(word in ("'self'", "'wasm-unsafe-eval'") or word.startswith("'sha256-") for word in words)
    assert rules["default-src"] == "'self'"


def test_policy_really_forbids(visit: Callable[..., Any]) -> None:
    """Политика не для вида: встроенный скрипт с чужим отпечатком не выполняется."""
    visitor = visit("index.html")
    visitor.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.broken = 1';"
        " document.body.append(s); }"
    )
    assert visitor.page.evaluate("window.broken") is None
    assert any("Content Security Policy" in text for text in visitor.complaints)
    visitor.complaints.clear()


@pytest.mark.parametrize("address", PAGES)
def test_reads_without_javascript(visit: Callable[..., Any], address: str) -> None:
    page = visit(address, java_script_enabled=False).page
    assert page.locator(".nanolm-live").count() >= 1
    assert page.locator(".nanolm-live-note").first.is_visible()
    assert page.locator(".nanolm-live [data-do]:visible").count() == 0
    for slot in page.locator("[data-widget] [data-slot]").all():
        assert slot.text_content() is not None


@pytest.mark.parametrize("address", TOOLS)
def test_default_result_is_printed(visit: Callable[..., Any], address: str) -> None:
    page = visit(address, java_script_enabled=False).page
    assert re.search(r"\d", page.locator("[data-widget]").inner_text())


@pytest.mark.parametrize("address", PAGES)
def test_from_a_file_says_how_to_serve(chromium: Any, site: Path, address: str) -> None:
    page = chromium.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((site / address).as_uri())
    note = page.locator(".nanolm-live-note").first
    assert note.is_visible()
    assert "nox -s serve" in note.inner_text()
    assert problems == []
    page.close()


@pytest.mark.parametrize("address", PAGES)
def test_print_hides_the_buttons(visit: Callable[..., Any], address: str) -> None:
    page = visit(address).page
    page.emulate_media(media="print")
    assert page.locator(".nanolm-live button:visible").count() == 0


#: Файл, который не дойдёт, и что об этом скажет страница.
MISSING = {
    "nanolm-*.zip": "Python не запустился",
    "pyodide.mjs": "Python не запустился",
    "pyodide.asm.wasm": "Python не запустился",
    "app-*.js": "Живая часть не загрузилась",
}


@pytest.mark.parametrize("name", MISSING)
def test_missing_file_is_reported_and_asked_again(visit: Callable[..., Any], name: str) -> None:
    """Файл не дошёл: страница говорит об этом, а не молчит, и со следующего обращения пробует снова."""
    visitor = visit()
    visitor.page.route(f"**/{name}", lambda route: route.abort())
    page = visitor.go("docs/calculator.html")
    field = page.locator('[data-widget] [name="B"]')
    field.focus()
    page.locator("[data-status]", has_text=MISSING[name]).wait_for(timeout=START_MS)
    page.unroute(f"**/{name}")
    field.fill("3")
    page.locator('[data-slot="export"]', has_text="--B 3").wait_for(timeout=START_MS)
    assert page.locator("[data-status]").inner_text() == ""
    visitor.complaints.clear()


def test_error_of_the_server_is_reported(visit: Callable[..., Any]) -> None:
    visitor = visit()
    visitor.page.route("**/pyodide.asm.wasm", lambda route: route.fulfill(status=503, body=""))
    page = visitor.go("docs/calculator.html")
    page.locator('[data-widget] [name="B"]').focus()
    page.locator("[data-status]", has_text="ответ сервера 503").wait_for(timeout=START_MS)
    visitor.complaints.clear()


def test_licences_are_listed(visit: Callable[..., Any]) -> None:
    text = visit("docs/sources.html").page.locator("article").inner_text()
    for name in ("Pyodide", "CodeMirror", "KaTeX", "esbuild", "MPL-2.0", "MIT"):
        assert name in text
