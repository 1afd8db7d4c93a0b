"""Формулы: KaTeX рисует их при сборке, а сайт отдаёт свои стили и шрифты.

На странице нет скрипта, который набирает формулы: она читается без сети, без JavaScript и не прыгает при
загрузке. Кириллица внутри `\\text{…}` набирается шрифтом страницы.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sphinxcontrib.katex as katex
from sphinx.errors import SphinxError
from sphinx.util import logging

from . import pages

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

logger = logging.getLogger(__name__)

#: Браузеры, которым нужны woff и ttf, давно не выходят: второй и третий источник шрифта только весят.
OLD_FONTS = re.compile(r',url\([^)]*\.(?:woff|ttf)\) format\("(?:woff|truetype)"\)')
ERROR = 'class="katex-error"'


def distribution(root: Path) -> Path:
    """Папка готовых файлов KaTeX."""
    path = root / "node_modules" / "katex" / "dist"
    if not path.is_dir():
        raise SphinxError("нет node_modules/katex: соберите сайт командой nox -s docs или выполните npm ci")
    return path


def configure(app: Sphinx, config: Config) -> None:
    """Настроить sphinxcontrib-katex на наш KaTeX и терпеливое ожидание на занятой машине."""
    source = distribution(Path(app.srcdir))
    copy_assets(source, pages.generated_static(app) / "katex")
    config.katex_prerender = True
    config.katex_js_path = str(source / "katex.min.js")
    config.katex_css_path = "katex/katex.min.css"
    katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = 60.0
    katex.NODEJS_BINARY = shutil.which("node") or "node"
    # Предупреждать о кириллице в формулах незачем: она там намеренно.
    katex.KATEX_DEFAULT_OPTIONS.update(throwOnError=False, strict=False)


def copy_assets(source: Path, target: Path) -> None:
    """Положить в сайт стили и шрифты woff2."""
    (target / "fonts").mkdir(parents=True, exist_ok=True)
    for font in (source / "fonts").glob("*.woff2"):
        shutil.copyfile(font, target / "fonts" / font.name)
    styles = (source / "katex.min.css").read_text(encoding="utf-8")
    (target / "katex.min.css").write_text(OLD_FONTS.sub("", styles), encoding="utf-8")


def check_formulas(_app: Sphinx, name: str, _template: str, context: dict[str, Any], _doctree: Any) -> None:
    """Не пропустить формулу, которую KaTeX не понял: на странице она была бы красным исходником."""
    body = context.get("body") or ""
    for found in re.finditer(ERROR + r'[^>]*title="([^"]*)"', body):
        logger.warning("формула не набрана: %s", found[1], location=name)


def setup(app: Sphinx) -> None:
    """Подключить формулы."""
    app.setup_extension("sphinxcontrib.katex")
    app.connect("config-inited", configure)
    app.connect("html-page-context", check_formulas)
