"""Упражнения 7.1 и 7.3: верное проходит, начатое отличают от неначатого, каждая ошибка названа своим именем."""

from __future__ import annotations

import random
import time

import pytest

from nanolm.exercises import lab_7_1, lab_7_3
from nanolm.exercises.judge import points
from nanolm.exercises.text import check, hint

EXERCISES = (*lab_7_1.EXERCISES, *lab_7_3.EXERCISES)
by_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
MISTAKES = [(exercise, mistake) for exercise in EXERCISES for mistake in exercise.mistakes]


@by_exercise
def test_the_solution_is_correct(exercise):
    result = check(exercise.id, exercise.solve)
    assert result.status == "correct", str(result)
    assert result.passed == result.total > len(exercise.given)


@by_exercise
@pytest.mark.parametrize("body", ["...", "return ...", "pass", "raise NotImplementedError", "x = ...; return x + 1"])
def test_the_stub_is_not_started(exercise, body):
    space: dict = {}
    exec(f"def f({', '.join(exercise.arguments)}):\n    {body}", space)
    assert check(exercise.id, space["f"]).status == "not_started"


@pytest.mark.parametrize(("exercise", "mistake"), MISTAKES, ids=[f"{e.id}-{m.id}" for e, m in MISTAKES])
def test_every_mistake_gets_its_own_name(exercise, mistake):
    result = check(exercise.id, mistake.wrong)
    assert result.status == "wrong"
    assert result.misconception == mistake.id
    assert result.message == mistake.meaning


@by_exercise
def test_points_tell_every_mistake_from_the_truth_and_from_each_other(exercise):
    """Заданных точек хватает: ошибку не спасёт удачный случай."""
    for seed in range(20):
        points = (*exercise.given, *exercise.generated(random.Random(seed)))
        if exercise.id == "7.1/collect":
            continue
        for mistake in exercise.mistakes:
            assert any(mistake.wrong(*point) != exercise.solve(*point) for point in points), mistake.id


@by_exercise
@pytest.mark.parametrize("answer", [None, ...])
def test_nothing_is_not_started(exercise, answer):
    assert check(exercise.id, answer).status == "not_started"


@by_exercise
@pytest.mark.parametrize("answer", [5, "текст", [1]])
def test_a_value_is_not_a_function(exercise, answer):
    result = check(exercise.id, answer)
    assert (result.status, result.misconception) == ("error", "value-not-function")


@by_exercise
def test_wrong_arity_and_exceptions_never_escape(exercise):
    assert check(exercise.id, lambda: 1).misconception == "wrong-arity"
    result = check(exercise.id, lambda *_: 1 / 0)
    assert result.status == "error"
    assert "Деление на ноль" in result.message
    assert check(exercise.id, lambda *_: exit(3)).status == "error"


@by_exercise
@pytest.mark.parametrize("constant", ["", "5 секунд", 7, 7.5, [], ([], 0.0), (["ответ"], 1e9), {"a": 1}, b"x"])
def test_a_constant_never_passes(exercise, constant):
    assert check(exercise.id, lambda *_: constant).status == "wrong"


def test_the_shown_call_names_the_model():
    result = check("7.1/collect", lambda generate, prompts: ([], 0.0))
    assert result.input.startswith("collect_generations(generate, ['Кения'")


def test_constant_text_is_named():
    assert check("7.1/duration", lambda seconds: "никогда").misconception == "constant"


def test_printed_instead_of_returned():
    result = check("7.1/duration", lambda seconds: print(lab_7_1.format_duration(seconds)))
    assert result.misconception == "printed-not-returned"


def test_endless_loop_is_stopped():
    def forever(seconds):
        while True:
            pass

    assert check("7.1/duration", forever).misconception == "endless-loop"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 секунд"), (1, "1 секунда"), (2, "2 секунды"), (11, "11 секунд"), (22, "22 секунды"),
        (60, "1 минута 0 секунд"), (121, "2 минуты 1 секунда"), (672, "11 минут 12 секунд"),
    ],
)  # fmt: skip
def test_duration_in_words(seconds, text):
    assert lab_7_1.format_duration(seconds) == text


def collect_variant(start_inside: bool = False, clock=time.perf_counter, sign: int = 1, scale: float = 1):
    """Настоящие часы, а не подставленное слово: так ошибётся сам учащийся."""

    def collect(generate, prompts):
        start, answers = clock(), []
        for prompt in prompts:
            start = clock() if start_inside else start
            answers.append(generate(prompt))
        return answers, sign * scale * (clock() - start)

    return collect


@pytest.mark.parametrize(
    ("options", "misconception"),
    [
        ({"start_inside": True}, "one-call-timed"),
        ({"clock": time.process_time}, "nothing-timed"),
        ({"sign": -1}, "negative-time"),
        ({"scale": 1000}, "milliseconds"),
    ],
)
def test_real_timing_mistakes_are_named(options, misconception):
    assert check("7.1/collect", collect_variant()).status == "correct"
    assert check("7.1/collect", collect_variant(**options)).misconception == misconception


def test_time_dot_time_is_fine_too():
    assert check("7.1/collect", collect_variant(clock=time.monotonic)).status == "correct"


def test_ignored_argument_is_not_accepted():
    assert check("7.3/layers", lambda cap, embedding, layer: (cap - embedding) // 377_526_272).status == "wrong"
    assert check("7.3/format-question", lambda question, sot, eot: f"{sot}user\n{sot}model\n").status == "wrong"


@by_exercise
def test_hints_go_in_order_and_stop(exercise):
    levels = [hint(exercise.id, level).message for level in range(1, len(exercise.hints) + 1)]
    assert levels == list(exercise.hints)
    for _ in range(5):
        last = hint(exercise.id)
    assert last.message == exercise.hints[-1]


class HostileText(str):
    __slots__ = ()

    def __eq__(self, other):
        raise SystemExit(3)

    __hash__ = __len__ = strip = __eq__


class Hostile:
    def __repr__(self):
        raise SystemExit(3)

    __class__ = property(__repr__)


def test_nothing_hostile_escapes_the_check():
    result = check("7.1/duration", lambda seconds: HostileText("1 секунда"))
    assert (result.status, result.misconception, result.id) == ("error", "unreadable-answer", "7.1/duration")
    assert "Ответ не удаётся разобрать" in result.message
    assert check("7.1/duration", lambda seconds: Hostile()).status == "error"
    assert check("7.1/duration", Hostile()).status == "error"
    assert check(HostileText("7.1/duration"), lab_7_1.format_duration).status == "correct"


@by_exercise
def test_bad_seed_and_bad_level_are_explained(exercise):
    result = check(exercise.id, exercise.solve, seed=[1])
    assert (result.status, result.misconception) == ("error", "bad-seed")
    tip = hint(exercise.id, "x")
    assert tip.message == (f"Номер подсказки level — целое число от 1 до {len(exercise.hints)}, а получено: 'x'.")
    assert "7.1/duration" in hint("7.1/нет").message


@pytest.mark.parametrize("bad", ["7.1/нет", None, 5])
def test_unknown_exercise(bad):
    assert check(bad, lambda: 1).misconception == "unknown-exercise"


def test_texts_are_russian_and_escaped():
    result = check("7.1/duration", lambda seconds: "<b>жирно</b>" * 2 + str(seconds))
    assert "<b>" not in result._repr_html_()
    for exercise in EXERCISES:
        for mistake in exercise.mistakes:
            assert mistake.meaning.endswith((".", "?"))
            assert mistake.hint.endswith((".", "?", "…).", "\\n."))


@pytest.mark.parametrize(
    ("given", "chance", "text"),
    [
        (1, 21, "1 заданная и 21 случайная"),
        (2, 2, "2 заданные и 2 случайные"),
        (8, 10, "8 заданных и 10 случайных"),
        (11, 12, "11 заданных и 12 случайных"),
    ],
)
def test_counts_of_points_agree_with_their_words(given, chance, text):
    assert points(given, chance) == text
