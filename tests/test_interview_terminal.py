"""Тренажёр в терминале и вопрос на три минуты."""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_layers import foreign_modules

from nanolm import console
from nanolm.interview import KINDS, LEVELS, judge, problem, session
from nanolm.interview.session import SECONDS, clock
from nanolm.interview.terminal import main

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
PROG = "nanolm interview"

Answer = tuple[int, str, str]


@pytest.fixture
def talk(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """Разговор с тренажёром: строки ответов, ключи; код, вывод, ошибки."""
    for name in ("_", "ngettext"):
        monkeypatch.setattr(argparse, name, getattr(argparse, name))

    def call(lines: list[str], *arguments: str) -> Answer:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        try:
            code = main(list(arguments), PROG)
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


# --- задачи подряд ------------------------------------------------------------------------------


def test_right_answers_are_counted(talk: Callable[..., Answer]) -> None:
    tasks = [problem(seed, 2, "kv") for seed in (5, 6)]
    code, output, errors = talk(
        [task.expected for task in tasks], "--seed", "5", "--level", "2", "--kind", "kv", "--count", "2"
    )
    assert (code, errors) == (0, "")
    for task in tasks:
        assert task.question in output
        assert task.solution in output
    assert output.endswith("Верно с первого раза: 2 из 2.\n")


def test_second_try_is_not_the_first(talk: Callable[..., Answer]) -> None:
    task = problem(5, 2, "kv")
    _, output, _ = talk(["1 КиБ", task.expected], "--seed", "5", "--level", "2", "--kind", "kv", "--count", "1")
    assert "Неверно" in output
    assert output.endswith("Верно с первого раза: 0 из 1.\n")


def test_unclear_answer_costs_nothing(talk: Callable[..., Answer]) -> None:
    task = problem(5, 2, "kv")
    _, output, _ = talk(["42 попугая", task.expected], "--seed", "5", "--level", "2", "--kind", "kv", "--count", "1")
    assert "Не понял" in output
    assert output.endswith("Верно с первого раза: 1 из 1.\n")


def test_mistake_is_named(talk: Callable[..., Answer]) -> None:
    task = problem(5, 2, "kv")
    one = task.mistakes[0]
    _, output, _ = talk([task.dimension.shown(one.value, task.unit)], "--seed", "5", "--level", "2", "--kind", "kv")
    assert f"{one.meaning} {one.hint}" in output


def test_empty_line_shows_the_solution(talk: Callable[..., Answer]) -> None:
    _, output, _ = talk([""], "--seed", "5", "--count", "1")
    assert problem(5, 1).solution in output
    assert output.endswith("Верно с первого раза: 0 из 1.\n")


def test_hints_one_by_one(talk: Callable[..., Answer]) -> None:
    task = problem(5, 1)
    _, output, _ = talk(["?"] * (len(task.hints) + 1), "--seed", "5")
    places = [output.index(hint) for hint in task.hints]
    assert places == sorted(places)
    assert "Подсказок больше нет" in output


@pytest.mark.parametrize("lines", [[], ["выход"], ["Q"]])
def test_end_of_input_and_goodbye(talk: Callable[..., Answer], lines: list[str]) -> None:
    code, output, errors = talk(lines, "--seed", "5")
    assert (code, errors) == (0, "")
    assert output.endswith("Верно с первого раза: 0 из 0.\n")


def test_attempted_task_is_counted_on_leaving(talk: Callable[..., Answer]) -> None:
    """Как на странице: на задачу ответили, пусть неверно и бросили, — она в счёте; непонятое не в счёт."""
    arguments = ("--seed", "5", "--level", "2", "--kind", "kv")
    for lines, score in (
        (["1 КиБ", "2 КиБ", "выход"], "0 из 1"),
        (["1 КиБ"], "0 из 1"),
        (["42 попугая", "?", "выход"], "0 из 0"),
        ([problem(5, 2, "kv").expected, "1 КиБ", "выход"], "1 из 2"),
    ):
        _, output, _ = talk(lines, *arguments)
        assert output.endswith(f"Верно с первого раза: {score}.\n"), lines


def test_seed_is_told_when_it_was_not_given(talk: Callable[..., Answer]) -> None:
    _, output, _ = talk([""], "--count", "1")
    seed = int(output.split("Зерно ")[1].split(",")[0])
    assert problem(seed, 1).question in output


def test_seeds_go_round_at_the_end(talk: Callable[..., Answer]) -> None:
    code, output, _ = talk(["", ""], "--seed", str(10**9), "--count", "2")
    assert code == 0
    assert problem(0, 1).question in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seed", "-1"), "--seed = -1"),
        (("--seed", "x"), "--seed"),
        (("--level", "4"), "--level"),
        (("--kind", "cook"), "--kind"),
        (("--count", "0"), "--count = 0"),
        (("extra",), "extra"),
    ],
)
def test_refusals(talk: Callable[..., Answer], arguments: tuple[str, ...], message: str) -> None:
    code, output, errors = talk([], *arguments)
    assert (code, output) == (2, "")
    assert errors.startswith(f"{PROG}: ошибка: ")
    assert message in errors
    assert errors.count("\n") == 1


# --- три минуты ---------------------------------------------------------------------------------


def test_session_in_the_terminal(talk: Callable[..., Answer]) -> None:
    asked = session(5, 2)
    lines = [asked.parts[0].expected, "42 попугая", "1 КиБ", "", asked.parts[3].expected]
    code, output, errors = talk(lines, "--seed", "5", "--level", "2", "--session")
    assert (code, errors) == (0, "")
    for part in asked.parts:
        assert part.question in output
        assert part.solution in output
    assert "Верно 2 из 4, за 0:0" in output
    assert "Поместится ли? Ответа нет." in output


@pytest.mark.parametrize("level", LEVELS)
def test_session_is_about_one_model(level: int) -> None:
    """Части связаны: третья складывает первую и вторую."""
    for seed in range(20):
        asked = session(seed, level)
        weights, cache, fit, _ = asked.parts
        assert fit.answer == weights.answer + cache.answer
        assert [part.kind for part in asked.parts] == ["weights", "kv", "fit", "days"]
        assert session(seed, level).parts[2].question == fit.question


def test_summary() -> None:
    asked = session(5, 2)
    verdicts = [judge(part, part.expected) for part in asked.parts]
    assert asked.summary(verdicts) == "Верно 4 из 4."
    assert asked.summary(verdicts, 61) == "Верно 4 из 4, за 1:01."
    assert asked.summary(verdicts, SECONDS + 1) == "Верно 4 из 4, за 3:01 — дольше трёх минут."
    none = asked.summary([None] * 4).splitlines()
    assert none[:3] == ["Верно 0 из 4.", "Веса. Ответа нет.", "Кеш KV. Ответа нет."]
    assert none[3:] == ["Поместится ли? Ответа нет.", "Время обучения. Ответа нет."]
    wrong = asked.summary([verdicts[0], judge(asked.parts[1], "1 КиБ"), *verdicts[2:]])
    assert wrong == "Верно 3 из 4.\nКеш KV. Неверно: ваш ответ меньше верного."


def test_clock() -> None:
    assert [clock(seconds) for seconds in (0, 9.9, 60, 180)] == ["0:00", "0:09", "1:00", "3:00"]


@pytest.mark.parametrize(("seed", "level"), [(-1, 1), (1, 0), ("x", 1)])
def test_session_refusals(seed: int, level: int) -> None:
    with pytest.raises(ValueError, match=r"seed|level"):
        session(seed, level)


# --- процессом ----------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [("nanolm.interview",), ("nanolm", "interview")])
def test_as_a_module(module: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", *module, "--seed", "5", "--count", "1"]
    done = subprocess.run(command, cwd=ROOT, input=b"\xff\xfe\n\n", capture_output=True, check=True)
    text = done.stdout.decode()
    assert problem(5, 1).solution in text
    assert done.stderr == b""


@pytest.mark.parametrize("encoding", ["cp1251", "cp866", "koi8-r", "ascii"])
def test_any_console(encoding: str) -> None:
    """У каждого знака задач и решений есть читаемая замена: вопросительных знаков не прибавляется."""
    console.install()
    for kind in KINDS:
        for level in LEVELS:
            task = problem(5, level, kind)
            for text in (task.question, task.solution, *(str(judge(task, word)) for word in ("x", "1", "1 парсек"))):
                shown = text.encode(encoding, console.HANDLER).decode(encoding)
                assert shown.count("?") == text.count("?"), text


def test_closed_reader_is_not_an_error() -> None:
    script = f"yes '' | {sys.executable} -m nanolm interview --seed 1 | head -2 >/dev/null; echo ${{PIPESTATUS[1]}}"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout.strip() == b"0"
    assert done.stderr == b""


def test_standard_library_only() -> None:
    assert foreign_modules("from nanolm.interview import problem, session\nproblem(1, 3)\nsession(1, 3)") == []
