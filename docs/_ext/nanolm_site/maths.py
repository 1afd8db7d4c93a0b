"""Формулы: KaTeX рисует их при сборке, а сайт отдаёт свои стили и шрифты.

На странице нет скрипта, который набирает формулы: она читается без сети, без JavaScript и не прыгает при
загрузке. Кириллица внутри `\\text{…}` набирается шрифтом страницы. Набирает один процесс Node на сборку;
разговор с ним — строки JSON через вход и выход, без сокетов и портов.
"""

from __future__ import annotations

import functools
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.locale import _
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

from . import pages
from .errors import stop

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config
    from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)

#: Браузеры, которым нужны woff и ttf, давно не выходят: второй и третий источник шрифта только весят.
OLD_FONTS = re.compile(r',url\([^)]*\.(?:woff|ttf)\) format\("(?:woff|truetype)"\)')


def distribution(root: Path) -> Path:
    """Папка готовых файлов KaTeX."""
    path = root / "node_modules" / "katex" / "dist"
    if not path.is_dir():
        stop("нет node_modules/katex: соберите сайт командой nox -s docs или выполните npm ci")
    return path


@functools.cache
def server(root: Path) -> subprocess.Popen[str]:
    """Процесс Node, который набирает формулы; завершится сам, когда сборка закроет его вход."""
    node = shutil.which("node")
    if node is None:
        stop("нет node: соберите сайт командой nox -s docs, она ставит Node в своё окружение")
    command = [node, str(Path(__file__).with_name("katex.js")), str(distribution(root) / "katex.min.js")]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", bufsize=1)


@functools.cache
def render(root: Path, latex: str, display: bool) -> tuple[str, str | None]:
    """Разметка формулы и жалоба KaTeX, если он её не понял."""
    process = server(root)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"latex": latex, "display": display}) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        stop("Node завершился, не набрав формулу: " + latex)
    answer = json.loads(line)
    return answer.get("html") or f"<code>{html.escape(latex)}</code>", answer.get("error")


def typeset(translator: HTML5Translator, node: nodes.Element, display: bool) -> str:
    """Набрать формулу узла; непонятую — назвать, и сборка с -W не пройдёт."""
    markup, complaint = render(Path(translator.builder.srcdir), node.astext().strip(), display)
    if complaint:
        logger.warning("формула не набрана: %s", complaint, location=node)
    return markup


def visit_math(translator: HTML5Translator, node: nodes.math) -> None:
    """Формула в строке."""
    translator.body.append(translator.starttag(node, "span", "", CLASS="math"))
    translator.body.append(typeset(translator, node, display=False) + "</span>")
    raise nodes.SkipNode


def visit_display_math(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Формула отдельной строкой, с номером и ссылкой, если у неё есть имя."""
    translator.body.append(translator.starttag(node, "div", "", CLASS="math", tabindex="0"))
    if node["number"]:
        translator.body.append(f'<span class="eqno">({get_node_equation_number(translator, node)})')
        translator.add_permalink_ref(node, _("Link to this equation"))
        translator.body.append("</span>")
    translator.body.append(typeset(translator, node, display=True) + "</div>\n")
    raise nodes.SkipNode


def copy_assets(app: Sphinx, _config: Config) -> None:
    """Положить в сайт стили и шрифты woff2."""
    source, target = distribution(Path(app.srcdir)), pages.generated_static(app) / "katex"
    (target / "fonts").mkdir(parents=True, exist_ok=True)
    for font in (source / "fonts").glob("*.woff2"):
        shutil.copyfile(font, target / "fonts" / font.name)
    styles = (source / "katex.min.css").read_text(encoding="utf-8")
    (target / "katex.min.css").write_text(OLD_FONTS.sub("", styles), encoding="utf-8")


def add_styles(
    app: Sphinx, name: str, _template: str, _context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Подключить стили KaTeX там, где есть формулы."""
    if doctree is not None and next(doctree.findall(lambda n: isinstance(n, (nodes.math, nodes.math_block))), None):
        app.add_css_file("katex/katex.min.css")


def setup(app: Sphinx) -> None:
    """Подключить формулы; в conf.py нужно `html_math_renderer = "katex"`."""
    app.add_html_math_renderer("katex", (visit_math, None), (visit_display_math, None))
    app.connect("config-inited", copy_assets)
    app.connect("html-page-context", add_styles)
