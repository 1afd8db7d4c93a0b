"""Тренажёр: ответ равен учебнику, решение пересчитывается по печатным числам, ошибки различимы."""

from __future__ import annotations

import hashlib
import html
import re
from pathlib import Path

import pytest
from interview_oracle import NBSP, Data, expected, room

from nanolm.interview import KINDS, LEVELS, Problem, judge, problem, session
from nanolm.interview.draw import Dice
from nanolm.interview.mistakes import MISTAKES
from nanolm.interview.problem import NARROWER, Row, apart

SEEDS = range(24)
EVERY = [(kind, level) for kind in KINDS for level in LEVELS]
#: Записано один раз: изменить эти числа — значит открыть по старым ссылкам другие задачи.
PINNED_STREAM = [7443256224976955984, 10608624728096698762, 714959860414411971]
PINNED_BELOW = [4, 9, 6, 6, 9, 9, 9, 7, 9, 3, 4, 1]
PINNED = {
    ("params", 1): "114dedef8a50",
    ("params", 2): "f0968a70ded3",
    ("params", 3): "f5931b361e22",
    ("kv", 1): "ba49fdef40aa",
    ("kv", 2): "f2126aa79ade",
    ("kv", 3): "8882a18e4d2b",
    ("fit", 1): "67aed69118aa",
    ("fit", 2): "7cb9b0bfa2e7",
    ("fit", 3): "6cfc1b2705f2",
    ("memory", 1): "e6645d5d32fd",
    ("memory", 2): "81f563d79433",
    ("memory", 3): "9a989fa91f7b",
    ("flops", 1): "a6f1e2a6052e",
    ("flops", 2): "eb09bdca3d1a",
    ("flops", 3): "be3b15d78d44",
    ("days", 1): "b20c5fb30cce",
    ("days", 2): "0a4794be685c",
    ("days", 3): "0f0dcbf02dd4",
    ("crossover", 1): "fd57d424e4aa",
    ("crossover", 2): "45550ec0f0cc",
    ("crossover", 3): "7444b8b19e3a",
    ("moe", 1): "c8c4dc045462",
    ("moe", 2): "d8638d16e2d7",
    ("moe", 3): "195dd8281c9b",
    ("decode", 1): "7b37dd51a816",
    ("decode", 2): "70ffaaaa49ea",
    ("decode", 3): "38540a9ffd05",
}
SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


def problems(kind: str, level: int) -> list[Problem]:
    return [problem(seed, level, kind) for seed in SEEDS]


# --- зерно --------------------------------------------------------------------------------------


def test_the_stream_is_pinned() -> None:
    """Поток случайных чисел — часть договора: по нему открываются старые ссылки."""
    dice = Dice("problem", "kv", 1, 7, 0)
    assert [dice.next() for _ in range(3)] == PINNED_STREAM
    assert [Dice("a", n).below(10) for n in range(12)] == PINNED_BELOW


def test_splitmix_is_the_published_one() -> None:
    """Эталонные числа SplitMix64 для состояния 1234567 из описания алгоритма."""
    dice = Dice()
    dice._state = 1234567
    assert [dice.next() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_below_is_even_and_in_range() -> None:
    dice = Dice("even")
    counts = [0] * 7
    for _ in range(7000):
        counts[dice.below(7)] += 1
    assert min(counts) > 850
    assert max(counts) < 1150


@pytest.mark.parametrize("pinned", range(len(EVERY)), ids=lambda i: f"{EVERY[i][0]}-{EVERY[i][1]}")
def test_problems_are_pinned(pinned: int) -> None:
    """Задача с зерном 7 та же, что была: данные, ответ, единица, вывод. Слова условия править можно."""
    kind, level = EVERY[pinned]
    task = problem(7, level, kind)
    content = ([(letter, value) for letter, _, value in task.given], f"{task.answer:.9g}", task.unit, task.fits)
    assert hashlib.sha256(repr(content).encode()).hexdigest()[:12] == PINNED[kind, level]


def test_same_seed_same_problem() -> None:
    assert problem(11, 2, "kv").question == problem(11, 2, "kv").question
    assert problem(11, 2, "kv").question != problem(12, 2, "kv").question


def test_seed_chooses_the_kind() -> None:
    kinds = {problem(seed, 1).kind for seed in range(120)}
    assert kinds == set(KINDS)


def test_problems_do_not_run_out() -> None:
    """Двести зёрен дают больше ста двадцати разных задач в каждом виде и уровне, где есть что менять."""
    for kind in ("kv", "fit", "days", "moe"):
        assert len({problem(seed, 2, kind).question for seed in range(200)}) > 120


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 1), "seed = -1"),
        ((10**9 + 1, 1), "seed"),
        (("x", 1), "seed"),
        ((1, 0), "level"),
        ((1, 4), "level"),
        ((1, 1, "cook"), "kind = 'cook'"),
    ],
)
def test_refusals(arguments: tuple[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        problem(*arguments)


# --- ответ и решение ----------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "level"), EVERY)
def test_answer_equals_the_textbook(kind: str, level: int) -> None:
    """По условию и таблице данных учебная формула даёт тот же ответ — в пределах округления данных и норм."""
    for task in problems(kind, level):
        assert expected(task) == pytest.approx(task.answer, rel=0.006), task.question


@pytest.mark.parametrize("level", LEVELS)
def test_session_answers_equal_the_textbook(level: int) -> None:
    for seed in SEEDS:
        weights, cache, fit, days = session(seed, level).parts
        assert weights.dimension is fit.dimension
        assert weights.answer == pytest.approx(2 * Data(weights).P, rel=0.006)
        for part in (cache, fit, days):
            assert expected(part) == pytest.approx(part.answer, rel=0.006)


@pytest.mark.parametrize("level", LEVELS)
def test_conclusion_is_far_from_the_edge(level: int) -> None:
    """«Поместится» и «не поместится» не зависят ни от округления, ни от буферов, ни от паспортной памяти."""
    for task in [*problems("fit", level), *(session(seed, level).parts[2] for seed in SEEDS)]:
        need, available = expected(task), room(Data(task))
        assert task.fits is (need < available)
        assert not 0.94 < need / available < 1.04


def test_both_conclusions_happen() -> None:
    for level in LEVELS:
        assert {task.fits for task in problems("fit", level)} == {True, False}


def evaluated(numbers: str) -> float:
    """Пересчитать печатное выражение."""
    text = numbers.replace(NBSP, "").replace(",", ".")
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda found: f"**({found[0].translate(SUPERSCRIPT)})", text)
    text = text.translate(str.maketrans("·−", "*-"))
    assert re.fullmatch(r"[\d.+\-*/() ]+", text), text
    return float(eval(text))


def assert_follows(row: Row) -> None:
    exact = isinstance(row.value, int) and "," not in row.numbers
    assert evaluated(row.numbers) == pytest.approx(row.value, rel=1e-12 if exact else 1e-3, abs=0.51 if exact else 0), (
        row
    )


@pytest.mark.parametrize(("kind", "level"), EVERY)
def test_solution_rows_can_be_recomputed(kind: str, level: int) -> None:
    """Каждая строка решения сходится сама с собой, а последняя даёт ответ."""
    for task in problems(kind, level):
        for row in task.rows:
            assert_follows(row)
        last = task.rows[-1]
        assert evaluated(last.numbers) * task.dimension.units[last.unit] == pytest.approx(task.answer, rel=1e-3)


def test_wrong_row_would_be_noticed() -> None:
    with pytest.raises(AssertionError):
        assert_follows(Row("кеш", "2·L", "2·32", 63))


@pytest.mark.parametrize("level", LEVELS)
def test_session_rows_can_be_recomputed(level: int) -> None:
    for seed in SEEDS:
        for part in session(seed, level).parts:
            for row in part.rows:
                assert_follows(row)


def test_rows_come_from_the_account() -> None:
    """Строки решения — строки счёта: с буквами курса."""
    task = problem(1, 2, "kv")
    assert task.rows[0].letters == "B·S·L·K·H·байт[bf16]"
    assert str(task.rows[0]).startswith("проекция ключа: B·S·L·K·H·байт[bf16] = ")
    assert task.solution.splitlines()[0] == str(task.rows[0])


# --- ошибки -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "level"), EVERY)
def test_mistakes_are_distinguishable(kind: str, level: int) -> None:
    for task in problems(kind, level):
        narrow = task.tolerance * NARROWER
        assert len(task.mistakes) > 1
        for i, one in enumerate(task.mistakes):
            assert apart(one.value, narrow, task.answer, task.tolerance), (task.question, one)
            assert all(apart(one.value, narrow, other.value, narrow) for other in task.mistakes[:i]), task.question


def test_overlapping_would_be_noticed() -> None:
    assert not apart(100, 0.02, 103, 0.02)
    assert not apart(103, 0.02, 100, 0.02)
    assert apart(100, 0.02, 105, 0.02)


def test_every_named_mistake_happens() -> None:
    """В таблице нет ошибок, которых никто не считает, и у каждой есть что сказать."""
    seen = {one.id for kind, level in EVERY for seed in range(60) for one in problem(seed, level, kind).mistakes}
    assert set(MISTAKES) <= seen
    for meaning, hint in MISTAKES.values():
        assert meaning.endswith(".")
        assert hint[-1] in ".?"


@pytest.mark.parametrize(
    ("kind", "id_", "ratio"),
    [
        ("kv", "query-heads", lambda d: d.N / d.K),
        ("kv", "factor-two-forgotten", lambda d: 1 / 2),
        ("kv", "layers-forgotten", lambda d: 1 / d.L),
        ("crossover", "factor-two-forgotten", lambda d: 2),
        ("flops", "forward-only", lambda d: 1 / 3),
        ("flops", "macs", lambda d: 1 / 2),
        ("days", "mfu-forgotten", lambda d: d.MFU),
        ("days", "gpus-forgotten", lambda d: d.about("карт")),
    ],
)
def test_mistakes_have_the_value_of_their_formula(kind: str, id_: str, ratio: object) -> None:
    """Число ошибки — то, что получит ошибшийся: во столько раз, во сколько учит формула."""
    for task in problems(kind, 2):
        found = next((one for one in task.mistakes if one.id == id_), None)
        if found is not None:
            assert found.value / task.answer == pytest.approx(ratio(Data(task)))  # type: ignore[operator]


def test_fractions_of_training_memory() -> None:
    for task in problems("memory", 1):
        shares = {one.id: one.value / task.answer for one in task.mistakes}
        assert shares["weights-only"] == pytest.approx(2 / 16)
        assert shares["optimizer-forgotten"] == pytest.approx(8 / 16)
        assert shares["master-forgotten"] == pytest.approx(12 / 16)


def test_gigabytes_for_gibibytes() -> None:
    """Число, верное в ГБ и названное в ГиБ, — названная ошибка, а не «почти верно»."""
    task = problem(1, 2, "kv")
    assert task.unit == "ГиБ"
    assert judge(task, f"{task.answer / 1e9:.4g} ГиБ").mistake == "decimal-for-binary"
    assert judge(task, f"{task.answer / 1e9:.4g} ГБ").state == "correct"


# --- язык ---------------------------------------------------------------------------------------

#: Число и слово, которые вместе не бывают.
CLUMSY = re.compile(
    r"(?<![\d,\u00a0])(?:\d*[02-9])?1[ \u00a0](?:карты|карт|слоя|слоёв|последовательности|последовательностей|"
    r"последовательностями|запросов|токенов|токена|байта|экспертов)\b"
    # «с кешем 4 последовательностей», «кеш KV 4 последовательностей» — родительный падеж, он тут на месте
    r"|(?<![\d,\u00a0])(?<!кешем )(?<!кеш KV )(?<!кеш )[234][ \u00a0](?:карт|слоёв|последовательностей|токенов|байт)\b"
    r"|\.\.|  | ,|«»|None|nan|\bинф\b"
)


@pytest.mark.parametrize(("kind", "level"), EVERY)
def test_texts_are_readable(kind: str, level: int) -> None:
    for task in [*problems(kind, level), *session(level, level).parts]:
        words = [task.title, task.text, task.advice, *task.hints, *(f"{m.meaning} {m.hint}" for m in task.mistakes)]
        for text in [*words, *(f"{title} {value}" for _, title, value in task.given)]:
            assert text == text.strip()
            assert not CLUMSY.search(text), text
        assert task.text[0].isupper()
        assert task.advice.endswith(".")
        assert html.escape(task.question, quote=False) == task.question  # условие можно вставить в страницу как есть
        # Спрошенная единица названа в условии.
        assert not task.unit or task.unit in task.text or {"сут": "в сутках", "ч": "в часах"}[task.unit] in task.text


@pytest.mark.parametrize("text", ["1\u00a0карт", "21 слоёв", "3\u00a0слоёв", "два  пробела", "конец.."])
def test_clumsy_text_would_be_noticed(text: str) -> None:
    assert CLUMSY.search(text)


@pytest.mark.parametrize("text", ["11\u00a0карт", "1\u00a0024\u00a0карты", "2\u00a0048\u00a0токенов", "0,1 карт"])
def test_good_grammar_is_not_blamed(text: str) -> None:
    assert not CLUMSY.search(text)


def test_the_package_has_no_random_module() -> None:
    """`random` обещает неизменный поток не для всех методов; здесь его нет вовсе."""
    package = Path(__file__).parents[1] / "nanolm" / "interview"
    for path in package.glob("*.py"):
        assert not re.search(r"^\s*(?:import|from) random\b", path.read_text(encoding="utf-8"), re.M), path
