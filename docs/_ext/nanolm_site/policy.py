"""Политика безопасности содержимого (CSP): что странице можно загружать и выполнять.

Сайт не просит ничего извне, и это можно не обещать, а потребовать от браузера. Выполнять разрешено свои файлы,
встроенные скрипты темы — поимённо, по отпечаткам — и WebAssembly, без которого нет Pyodide. Стили в тексте
страницы нужны формулам.

Сборка записывает политику в `build/csp.txt`: её отдаёт `nox -s serve`, с ней же идут проверки в браузере.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sphinx.application import Sphinx

#: Как скрипты Sphinx собирают функцию из строки — и как то же сказать без eval, которого политика не пускает.
PLURAL_MAKER = re.compile(r'new Function\(\s*"n",\s*`return \(\$\{catalog\.plural_expr\}\)`,?\s*\)')
PLURAL_TEXT = re.compile(r'"plural_expr": "([^"]+)"')
INLINE = re.compile(r"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL)
RULES = {
    "default-src": "'self'",
    "script-src": "'self' 'wasm-unsafe-eval'",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data:",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}


def inline_scripts(pages: Iterable[Path]) -> list[str]:
    """Отпечатки всех встроенных скриптов: 'sha256-…'."""
    texts = {text for page in pages for text in INLINE.findall(page.read_text(encoding="utf-8")) if text.strip()}
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return sorted(f"'sha256-{digest}'" for digest in digests)


def policy(site: Path) -> str:
    """Политика собранного сайта одной строкой, как её пишут в заголовке."""
    pages = (page for page in site.rglob("*.html") if "_static" not in page.parts)
    rules = {**RULES, "script-src": " ".join([RULES["script-src"], *inline_scripts(pages)])}
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def without_eval(site: Path) -> None:
    """Выражение множественного числа — не строка, а функция прямо в файле перевода."""
    for name, pattern, better in (
        ("doctools.js", PLURAL_MAKER, "catalog.plural_expr"),
        ("translations.js", PLURAL_TEXT, r'"plural_expr": (n) => (\1)'),
    ):
        path = site / "_static" / name
        text = path.read_text(encoding="utf-8")
        path.write_text(pattern.sub(better, text), encoding="utf-8")


def write(app: Sphinx, exception: Exception | None) -> None:
    """Записать политику рядом с сайтом."""
    if exception is None and app.builder.format == "html":
        site = Path(app.outdir)
        without_eval(site)
        (site.parent / "csp.txt").write_text(policy(site) + "\n", encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Подключить запись политики."""
    app.connect("build-finished", write)
