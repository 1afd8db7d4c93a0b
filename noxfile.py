#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.5.1"]
# ///
"""Команды проекта: тесты, сайт, проверки.

Список с пояснениями печатает `nox -l`. Слова после `--` уходят в сессию: `nox -s tests -- -k spec`.
Каждая сессия живёт в своём окружении внутри `.nox`; оно собирается один раз и пересобирается, когда
меняется то, из чего собрано: зависимости, закреплённые версии или сам интерпретатор.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "virtualenv"

ROOT = Path(__file__).resolve().parent
HTML = ROOT / "build" / "html"
CSP = ROOT / "build" / "csp.txt"
CONSTRAINTS = "constraints.txt"
PROJECT = nox.project.load_toml("pyproject.toml")

#: Полный прогон идёт на всех ядрах, но не больше четырёх: каждый рабочий держит свой torch. Файл тестов достаётся
#: одному рабочему целиком: обученные модели и открытые страницы у тестов одного файла общие.
PARALLEL = ("-n", "auto", "--maxprocesses", "4", "--dist", "loadfile")
#: Сессия тестов держит torch, сессия сайта — torch и Sphinx: заново ставить их каждый раз слишком долго.
session = partial(nox.session, reuse_venv=True)


def digest(*parts: str | bytes) -> str:
    """Отпечаток того, от чего зависит установка."""
    total = hashlib.sha256()
    for part in parts:
        total.update(part.encode() if isinstance(part, str) else part)
        total.update(b"\0")
    return total.hexdigest()


def once(folder: Path, name: str, key: str) -> bool:
    """Верно, если шаг `name` с ключом `key` в `folder` уже сделан."""
    stamp = folder / f".{name}.done"
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == key


def done(folder: Path, name: str, key: str) -> None:
    """Запомнить, что шаг `name` с ключом `key` сделан."""
    (folder / f".{name}.done").write_text(key, encoding="utf-8")


def install(session: nox.Session, *extras: str, groups: tuple[str, ...]) -> None:
    """Поставить проект с дополнениями и группами зависимостей, если с прошлого раза что-то изменилось."""
    target = f".[{','.join(extras)}]" if extras else "."
    packages = nox.project.dependency_groups(PROJECT, *groups)
    venv = Path(session.virtualenv.location)
    pins = (ROOT / CONSTRAINTS).read_bytes()
    key = digest((ROOT / "pyproject.toml").read_bytes(), pins, target, *packages, sys.version, str(ROOT))
    if once(venv, "install", key):
        return
    session.install("-c", CONSTRAINTS, "-e", target, *packages)
    done(venv, "install", key)


def install_npm(session: nox.Session) -> None:
    """Поставить пакеты npm по package-lock.json, если он изменился; Node берётся из окружения сессии."""
    modules = ROOT / "node_modules"
    key = digest((ROOT / "package-lock.json").read_bytes())
    if once(modules, "nanolm", key):
        return
    session.run("npm", "ci", "--ignore-scripts", silent=True)
    done(modules, "nanolm", key)


def gpu_mode(session: nox.Session) -> tuple[str, list[str]]:
    """Разобрать `--gpu` и `--no-gpu`; остальные слова вернуть для sphinx-build."""
    parser = argparse.ArgumentParser(prog="nox -s docs --", add_help=False, allow_abbrev=False)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--gpu", dest="mode", action="store_const", const="require")
    choice.add_argument("--no-gpu", dest="mode", action="store_const", const="forbid")
    known, rest = parser.parse_known_args(session.posargs)
    return known.mode or "auto", rest


def prepare_docs(session: nox.Session, *groups: str) -> list[str]:
    """Собрать окружение сайта и вернуть слова для sphinx-build."""
    mode, rest = gpu_mode(session)
    session.env["NANOLM_GPU"] = mode
    install(session, "model", "figures", groups=groups)
    install_npm(session)
    return ["-n", "-W", "-T", "--keep-going", "-d", str(ROOT / "build" / "doctrees"), *rest, ".", str(HTML)]


@session
def tests(session: nox.Session) -> None:
    """Тесты пакета: pytest, без сайта и браузера."""
    install(session, "model", "figures", groups=("test",))
    session.run("pytest", *(session.posargs or PARALLEL))


@session
def docs(session: nox.Session) -> None:
    """Выполнить уроки и собрать сайт в build/html; --gpu требует видеокарту, --no-gpu запрещает её."""
    arguments = prepare_docs(session, "docs")
    session.run("sphinx-build", *arguments)
    session.log("Сайт собран: %s", HTML / "index.html")


@session
def lint(session: nox.Session) -> None:
    """Стиль и типы: ruff check, ruff format --check, mypy --strict."""
    # Без torch и transformers mypy не видит типов, с которыми работает модель.
    install(session, "model", "figures", groups=("test", "lint"))
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")
    session.run("mypy")


@session(default=False)
def fuzz(session: nox.Session) -> None:
    """Обстрелять чтение config.json: сто тысяч случайных документов; другое число задаёт NANOLM_FUZZ."""
    install(session, "model", "figures", groups=("test",))
    session.run("pytest", "tests/fuzz", *session.posargs, env={"NANOLM_FUZZ": os.environ.get("NANOLM_FUZZ", "100000")})


@session(default=False)
def site(session: nox.Session) -> None:
    """Проверить собранный сайт, в том числе в браузере (нужен Chromium; сначала nox -s docs)."""
    if not (HTML / "index.html").is_file():
        session.error("Сайта нет: сначала соберите его командой nox -s docs.")
    install(session, "figures", groups=("docs", "browser"))
    install_npm(session)
    session.run("pytest", *(session.posargs or ["tests/site"]), env={"NANOLM_SITE": str(HTML)})


@session(default=False)
def browser(session: nox.Session) -> None:
    """Пройти живые страницы собранного сайта в Chromium: упражнения, калькулятор, тренажёр."""
    if not (HTML / "index.html").is_file():
        session.error("Сайта нет: сначала соберите его командой nox -s docs.")
    install(session, groups=("browser",))
    install_npm(session)
    session.run("pytest", *(session.posargs or [*PARALLEL, "tests/browser"]), env={"NANOLM_SITE": str(HTML)})


@session(default=False)
def bench(session: nox.Session) -> None:
    """Скорость NanoLM рядом с transformers и с пределом машины; ключи — у bench/speed.py."""
    install(session, "model", groups=("test",))
    session.run("python", "bench/speed.py", *session.posargs)


@session(default=False)
def bench_live(session: nox.Session) -> None:
    """Скорость живых страниц собранного сайта: запуск Python и пересчёт в Chromium."""
    install(session, groups=("browser",))
    session.run("python", "bench/live.py", *session.posargs)


@session(default=False)
def live(session: nox.Session) -> None:
    """Сайт, который пересобирается при правке и открывается в браузере."""
    arguments = prepare_docs(session, "live")
    # Сборка пишет и в папку исходников (кеши, переводы): следить за ними — значит собирать без конца.
    ignored = ("build", ".git", ".nox", ".venv", "node_modules")
    options = [word for name in ignored for word in ("--ignore", str(ROOT / name))]
    patterns = [word for rule in (r"\.mo$", r"__pycache__", r"\.py[co]$") for word in ("--re-ignore", rule)]
    session.run("sphinx-autobuild", "--open-browser", "--port", "0", *options, *patterns, *arguments)


class SiteHandler(SimpleHTTPRequestHandler):
    """Сервер сайта: со строгой политикой содержимого и верными типами файлов."""

    #: В Windows тип .js бывает переписан в реестре, а модуль с чужим типом браузер не запустит.
    extensions_map = {  # noqa: RUF012
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm",
    }  # fmt: skip

    def end_headers(self) -> None:
        """Дописать политику, которую составила сборка."""
        if CSP.is_file():
            self.send_header("Content-Security-Policy", CSP.read_text(encoding="utf-8").strip())
        super().end_headers()


class SiteServer(ThreadingHTTPServer):
    """Сервер, которого не тревожит браузер, оборвавший загрузку: так бывает при каждом переходе."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Промолчать об обрыве связи, об остальном сказать."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@session(venv_backend="none", default=False)
def serve(session: nox.Session) -> None:
    """Открыть собранный сайт на этой машине; порт выбирается сам или задаётся: nox -s serve -- 8000."""
    if not (HTML / "index.html").is_file():
        session.error("Сайта нет: сначала соберите его командой nox -s docs.")
    port = int(session.posargs[0]) if session.posargs else 0
    handler = partial(SiteHandler, directory=str(HTML))
    with SiteServer(("127.0.0.1", port), handler) as server:
        session.log("Сайт: http://127.0.0.1:%d/ (остановить — Ctrl+C)", server.server_address[1])
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            session.log("Остановлено.")


@session(venv_backend="none", default=False)
def clean(session: nox.Session) -> None:
    """Удалить сборку сайта и её кеши."""
    for name in ("build", "dist", "node_modules"):
        shutil.rmtree(ROOT / name, ignore_errors=True)


if __name__ == "__main__":
    nox.main()
