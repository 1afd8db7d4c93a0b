"""README не врёт: вывод в нём настоящий, а команды есть в noxfile."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_shows_real_output() -> None:
    blocks = re.findall(r"```console\n\$ python3 (.*?)\n(.*?)```", README, re.DOTALL)
    assert blocks
    for command, shown in blocks:
        result = subprocess.run(
            [sys.executable, *command.split()], cwd=ROOT, check=True, capture_output=True, encoding="utf-8",
            env={"PYTHONUTF8": "1", "PATH": ""},
        )  # fmt: skip
        expected = shown.removesuffix("…\n")
        assert result.stdout.startswith(expected), result.stdout[: len(expected)]


def test_readme_python_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    result = subprocess.run([sys.executable, "-c", example], cwd=ROOT, check=True, capture_output=True, text=True)
    assert "8 030 261 248" in result.stdout.replace("\N{NO-BREAK SPACE}", " ")


def test_named_sessions_exist() -> None:
    sessions = set(re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md", "docs/install.md"):
        used = set(re.findall(r"nox -s (\w+)", (ROOT / name).read_text(encoding="utf-8")))
        assert used
        assert used <= sessions, name


def test_first_screen_is_the_two_commands() -> None:
    first = README.split("\n## ")[0]
    assert first.index("nox -s docs") < first.index("nox -s tests")
    assert len(first.splitlines()) < 25
