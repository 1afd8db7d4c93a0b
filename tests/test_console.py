"""Консоли, чья кодировка знает не всё: у каждого нашего символа есть читаемая замена."""

from __future__ import annotations

import ast
import codecs
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from nanolm import console

ROOT = Path(__file__).parents[1]
CODE_PAGES = ("cp1251", "cp866", "ascii", "latin-1", "koi8-r", "cp437", "cp1252")
#: Модули, строки которых попадают на консоль.
CORE = ("spec", "ops", "units", "budget", "summary", "cli", "zoo", "hardware")


@pytest.fixture(autouse=True)
def handler() -> None:
    console.install()


def seen(text: str, encoding: str) -> str:
    """Что увидит читатель консоли с такой кодировкой."""
    return text.encode(encoding, console.HANDLER).decode(encoding)


@pytest.mark.parametrize(
    ("encoding", "text", "shown"),
    [
        ("cp1251", "«14,96 ГиБ» — 1·10²⁰", "«14,96 ГиБ» — 1·10^20"),
        ("cp866", "6,0·10⁻⁸ и x²", "6,0·10^-8 и x^2"),
        ("cp1251", "──  16−2", "--  16-2"),
        ("cp866", "«память» — 92 %…", '"память" - 92 %...'),
        ("cp866", "8\u00a0030\u00a0261", "8\u00a0030\u00a0261"),
        ("ascii", "8\u00a0030\u00a0261", "8 030 261"),
        ("ascii", "ошибка: нужно целое число", "oshibka: nuzhno tseloe chislo"),
        ("ascii", "Щука, ёж, съезд, ЮЛА", "Shchuka, ezh, sezd, YuLA"),
        ("ascii", "⌈V·D/256⌉ ≈ 2 × 3 → ∞", "ceil(V*D/256) ~ 2 x 3 -> inf"),
        ("ascii", "²⁰ ™", "^20 TM"),
        ("latin-1", "«да» — 5×3", "«da» - 5×3"),
    ],
)
def test_substitutes_are_readable(encoding: str, text: str, shown: str) -> None:
    assert seen(text, encoding) == shown


def test_unknown_characters_become_question_marks_not_errors() -> None:
    assert seen("привет 漢字 \ud800", "cp1251") == "привет ?? ?"


@pytest.mark.parametrize("encoding", CODE_PAGES)
def test_what_the_encoding_knows_is_not_touched(encoding: str) -> None:
    known = "".join(bytes([code]).decode(encoding, "ignore") for code in range(32, 127))
    assert seen(known, encoding) == known


@pytest.mark.parametrize("module", CORE)
@pytest.mark.parametrize("encoding", CODE_PAGES)
def test_every_character_of_the_core_has_a_substitute(encoding: str, module: str) -> None:
    """Новый символ в сообщении без замены здесь стал бы вопросительным знаком."""
    text = "".join(strings((ROOT / "nanolm" / f"{module}.py").read_text(encoding="utf-8")))
    assert lost(text, encoding) == set()


@pytest.mark.parametrize("name", ["gpus.toml", "models.toml"])
@pytest.mark.parametrize("encoding", CODE_PAGES)
def test_every_title_of_the_data_has_a_substitute(encoding: str, name: str) -> None:
    data = tomllib.loads((ROOT / "nanolm" / "data" / name).read_text(encoding="utf-8"))
    assert lost("".join(titles(data)), encoding) == set()


def strings(source: str) -> list[str]:
    """Строки модуля, кроме docstring: их на консоль не выводят."""
    tree = ast.parse(source)
    silent = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and isinstance(node.body[0], ast.Expr)
    }
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in silent]
    return [node.value for node in constants if isinstance(node.value, str)]


def titles(data: object) -> list[str]:
    if isinstance(data, dict):
        return [text for key, value in data.items() for text in ([value] if key == "title" else titles(value))]
    return [text for item in data for text in titles(item)] if isinstance(data, list) else []


def lost(text: str, encoding: str) -> set[str]:
    """Символы, от которых осталось «?»; твёрдый и мягкий знаки законно исчезают."""
    return {char for char in set(text) - {"?"} if "?" in seen(char, encoding)}


def test_lost_would_notice() -> None:
    assert lost("漢 и 2", "cp1251") == {"漢"}
    assert strings('"""тихо"""\nx = "громко"\ndef f():\n    """тихо"""\n    return f"в {x} и"') == [
        "громко",
        "в ",
        " и",
    ]


def test_install_is_repeatable() -> None:
    console.install()
    assert codecs.lookup_error(console.HANDLER) is console.readable


# --- целая программа ----------------------------------------------------------------------------


def run(encoding: str, *arguments: str) -> tuple[int, str, str]:
    """CLI в процессе, чьи потоки — каналы в этой кодировке."""
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "nanolm.budget", *arguments], cwd=ROOT, env=environment, capture_output=True, check=False
    )
    plain = encoding.partition(":")[0]
    return done.returncode, done.stdout.decode(plain), done.stderr.decode(plain)


@pytest.mark.parametrize("encoding", [*CODE_PAGES, "utf-8", "utf-16", "cp1251:strict"])
def test_report_survives_every_pipe(encoding: str) -> None:
    code, output, errors = run(encoding, "--preset", "gpt2", "--gpu", "t4", "--tokens", "1e9", "--price", "1")
    assert (code, errors) == (0, "")
    assert "?" not in output
    assert "124" in output
    word = "параметров" if encoding.startswith(("cp1251", "cp866", "koi8", "utf")) else "parametrov"
    assert word in output


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--list-gpus",), ("--list-presets",), ("--preset", "gpt2", "--explain")]
)
@pytest.mark.parametrize("encoding", ["cp1251", "cp866", "ascii"])
def test_other_outputs_survive(encoding: str, arguments: tuple[str, ...]) -> None:
    code, output, errors = run(encoding, *arguments)
    assert (code, errors) == (0, "")
    assert output
    assert "?" not in output


@pytest.mark.parametrize(
    ("encoding", "words"), [("cp1251", "ошибка: --V"), ("cp866", "ошибка: --V"), ("ascii", "oshibka: --V")]
)
def test_errors_survive(encoding: str, words: str) -> None:
    code, output, errors = run(encoding, "--V", "много")
    assert (code, output) == (2, "")
    assert words in errors
    assert "?" not in errors
    assert errors.count("\n") == 1
