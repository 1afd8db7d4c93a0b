"""Общее для проверок сайта: собранные страницы, сервер на этой машине, Chromium без внешней сети.

Проверки идут сессией `nox -s site`: она ставит браузерные пакеты и называет папку сайта в `NANOLM_SITE`.
Обычный `pytest` их не собирает — ему не нужны ни Sphinx, ни браузер.
"""

from __future__ import annotations

import os
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

SITE = os.environ.get("NANOLM_SITE")
ROOT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]

if SITE is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def site() -> Path:
    """Папка собранного сайта."""
    folder = Path(str(SITE))
    assert (folder / "index.html").is_file(), f"в {folder} нет сайта: сначала nox -s docs"
    return folder


@pytest.fixture(scope="session")
def pages(site: Path) -> list[Path]:
    """Все страницы сайта."""
    found = sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)
    assert len(found) > 10
    return found


class QuietHandler(SimpleHTTPRequestHandler):
    """Сервер файлов, который не печатает каждый запрос."""

    def log_message(self, *_: object) -> None:
        """Молчать."""


@pytest.fixture(scope="session")
def server(site: Path) -> Iterator[str]:
    """Адрес сайта на этой машине."""
    handler = partial(QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium из системы; имена узлов, кроме этой машины, не разрешаются."""
    from playwright.sync_api import sync_playwright

    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    assert program, "нужен Chromium: поставьте пакет chromium или назовите программу в переменной CHROMIUM"
    flags = [*FLAGS, "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=flags)
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Browser, server: str) -> Iterator[Callable[..., Page]]:
    """Открыть страницу сайта; после теста проверить, что ничего чужого и сломанного не просили."""
    contexts, strangers, broken = [], [], []

    def note(response: object) -> None:
        if response.status >= 400:  # type: ignore[attr-defined]
            broken.append(response.url)  # type: ignore[attr-defined]

    def opener(address: str, width: int = 1280, theme: str = "light", **options: object) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: strangers.append(request.url) if foreign(request.url) else None)
        page.on("response", note)
        page.goto(f"{server}/{address}", wait_until="networkidle")
        return page

    def foreign(url: str) -> bool:
        return not url.startswith((server, "data:", "blob:"))

    yield opener
    for context in contexts:
        context.close()
    assert strangers == []
    assert broken == []
