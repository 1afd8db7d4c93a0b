"""Примеры командной строки, которые выполняются при сборке.

Директива `console` запускает команду и показывает её вместе с настоящим выводом, поэтому страница не может
разойтись с программой. Ненулевой код выхода — ошибка, если он не назван в опции `exit`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from . import digest

if TYPE_CHECKING:
    from sphinx.application import Sphinx

logger = logging.getLogger(__name__)
#: Чем на самом деле запускается первое слово команды.
PROGRAMS = {"python": [sys.executable], "nanolm": [sys.executable, "-m", "nanolm"]}
SECONDS = 60


def run(command: str, root: Path) -> tuple[int, str]:
    """Выполнить команду и вернуть код выхода и всё, что она напечатала."""
    program, *words = shlex.split(command)
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONUTF8": "1", "COLUMNS": "100"}
    result = subprocess.run(
        [*PROGRAMS[program], *words], cwd=root, env=environment, timeout=SECONDS, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, encoding="utf-8",
    )  # fmt: skip
    return result.returncode, result.stdout.rstrip()


class Console(SphinxDirective):
    """Команда и её вывод."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar = {
        "exit": directives.nonnegative_int, "lines": directives.positive_int, "tail": directives.positive_int,
    }  # fmt: skip

    def run(self) -> list[nodes.Node]:
        """Выполнить команду и показать её как сеанс терминала."""
        command, root = self.arguments[0], Path(self.env.srcdir)
        for path in digest.files(root, ("nanolm/**/*.py", "nanolm/data/**/*")):
            self.env.note_dependency(str(path))
        code, output = run(command, root)
        if code != self.options.get("exit", 0):
            logger.error("команда «%s» завершилась с кодом %d: %s", command, code, output[-300:],
                         location=self.get_location())  # fmt: skip
        lines = output.split("\n")
        shown = _cut(lines, self.options.get("lines", len(lines)), self.options.get("tail", len(lines)))
        text = "\n".join([f"$ {command}", *shown])
        return [nodes.literal_block(text, text, language="text", classes=["console"])]


def _cut(lines: list[str], head: int, tail: int) -> list[str]:
    """Первые `head` или последние `tail` строк; пропуск отмечен многоточием."""
    if head < len(lines):
        return [*lines[:head], "…"]
    return ["…", *lines[-tail:]] if tail < len(lines) else lines


def setup(app: Sphinx) -> None:
    """Подключить директиву `console`."""
    app.add_directive("console", Console)
