"""Живые страницы в настоящем браузере: сервер с подпутём и строгой политикой, Chromium без внешней сети.

Проверки идут сессией `nox -s browser`: она ставит Playwright и называет папку сайта в `NANOLM_SITE`.
Сайт отдаётся из `/site/`, а не из корня: так он лежит у всех, кто кладёт его в подпапку. Любой запрос
мимо этой папки, ответ с ошибкой, исключение в скрипте и нарушение политики проваливают проверку.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SITE = os.environ.get("NANOLM_SITE")
ROOT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]  # fmt: skip
#: Первый ответ ждёт запуска Python: на занятой машине это десятки секунд.
START_MS = 120_000

if SITE is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def site() -> Path:
    """Папка собранного сайта."""
    folder = Path(str(SITE))
    assert (folder / "index.html").is_file(), f"в {folder} нет сайта: сначала nox -s docs"
    return folder


class Handler(SimpleHTTPRequestHandler):
    """Отдаёт сайт из /site/ с политикой содержимого; вне этой папки ничего нет."""

    policy = ""

    def translate_path(self, path: str) -> str:
        """/site/… — файлы сайта, остальное — заведомо отсутствующий файл."""
        inside = path.startswith("/site/")
        return super().translate_path(path.removeprefix("/site") if inside else "/нет такого")

    def end_headers(self) -> None:
        """Дописать политику."""
        self.send_header("Content-Security-Policy", self.policy)
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Молчать."""


class Server(ThreadingHTTPServer):
    """Сервер, который молчит о загрузках, оборванных закрытой страницей."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Сказать обо всём, кроме обрыва связи."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def server(site: Path) -> Iterator[str]:
    """Адрес сайта: http://127.0.0.1:порт/site/."""
    Handler.policy = (site.parent / "csp.txt").read_text(encoding="utf-8").strip()
    with Server(("127.0.0.1", 0), partial(Handler, directory=str(site))) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}/site/"
        running.shutdown()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Chromium из системы."""
    from playwright.sync_api import sync_playwright

    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    assert program, "нужен Chromium: поставьте пакет chromium или назовите программу в переменной CHROMIUM"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield running
        running.close()


def settle(page: Any, move: Callable[[], object]) -> None:
    """Выполнить переход и дождаться скриптов: тишина в сети на занятой машине бывает и раньше, чем они пошли."""
    move()  # ждёт события load, а оно — отложенных скриптов
    page.wait_for_load_state("networkidle")


class Visit:
    """Открытая страница и всё, что она просила и на что жаловалась."""

    def __init__(self, context: Any, server: str) -> None:
        self.page, self.server = context.new_page(), server
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("response", self._answered)
        self.page.on("pageerror", lambda error: self.complaints.append(f"исключение: {error}"))
        self.page.on("console", self._said)

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self.complaints.append(f"ответ {response.status}: {response.url}")

    def _said(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(f"консоль: {message.text}")

    def go(self, address: str) -> Any:
        """Перейти на страницу сайта и дождаться тишины."""
        settle(self.page, lambda: self.page.goto(self.server + address))
        return self.page

    @property
    def strangers(self) -> list[str]:
        """Запросы мимо папки сайта."""
        return [url for url in self.requests if not url.startswith((self.server, "data:", "blob:"))]


@pytest.fixture
def visit(chromium: Any, server: str) -> Iterator[Callable[..., Visit]]:
    """Новый посетитель: ширина, тема и прочее от браузера. После теста — ни чужих запросов, ни жалоб."""
    contexts, visits = [], []

    def arrive(address: str | None = None, width: int = 1280, theme: str = "light", **options: Any) -> Visit:
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, **options)
        context.set_default_timeout(30_000)
        contexts.append(context)
        visits.append(Visit(context, server))
        if address is not None:
            visits[-1].go(address)
        return visits[-1]

    yield arrive
    for context in contexts:
        context.close()
    assert [url for one in visits for url in one.strangers] == []
    assert [text for one in visits for text in one.complaints] == []


def lesson_cells(site: Path, lesson: str) -> list[dict[str, Any]]:
    """Ячейки урока из блокнота, который отдаёт сайт."""
    notebook = json.loads((site / "_downloads" / "lessons" / f"{lesson}.ipynb").read_text(encoding="utf-8"))
    return [
        {"tags": cell["metadata"].get("tags", []), "source": "".join(cell["source"])}
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]
