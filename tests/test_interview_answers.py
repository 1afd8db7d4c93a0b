"""Ответ тренажёру: что читается, что нет, что об ответе говорится. Никакой текст не роняет суд."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanolm.interview import KINDS, LEVELS, Problem, judge, problem, session
from nanolm.interview.quantity import ALL, BATCH, COUNT, LONGEST, SIZE, TIME, WORK, Dimension, read

EVERY = [(kind, level) for kind in KINDS for level in LEVELS]
DAY = 86_400


# --- числа и единицы ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("8,03 млрд", COUNT, 8.03e9),
        ("8.03B", COUNT, 8.03e9),
        ("8.03 B params", COUNT, 8.03e9),
        ("8030261248", COUNT, 8030261248),
        ("8 030 261 248 параметров", COUNT, 8030261248),
        ("8\u00a0030\u00a0261\u00a0248", COUNT, 8030261248),
        ("8\u202f030\u202f261\u202f248", COUNT, 8030261248),
        ("8,030,261,248", COUNT, 8030261248),
        ("8.030.261.248", COUNT, 8030261248),
        ("8_030_261_248", COUNT, 8030261248),
        ("8'030'261'248", COUNT, 8030261248),
        ("8e9", COUNT, 8e9),
        ("8,03·10⁹", COUNT, 8.03e9),
        ("8,03*10^9", COUNT, 8.03e9),
        ("8.03 x 10**9", COUNT, 8.03e9),
        ("125M", COUNT, 125e6),
        ("125 млн.", COUNT, 125e6),
        ("7 миллиардов", COUNT, 7e9),
        ("7 billion parameters", COUNT, 7e9),
        ("0.67 трлн", COUNT, 0.67e12),
        ("1,07 ГБ", SIZE, 1.07e9),
        ("1,07 гб", SIZE, 1.07e9),
        ("1 ГиБ", SIZE, 2**30),
        ("1GiB", SIZE, 2**30),
        ("1 гибибайт", SIZE, 2**30),
        ("128 КиБ", SIZE, 2**17),
        ("128 KiB/токен", SIZE, 2**17),
        ("128 КиБ на токен", SIZE, 2**17),
        ("1024 MiB", SIZE, 2**30),
        ("1.5 TB", SIZE, 1.5e12),
        ("2^30 байт", SIZE, 2**30),
        ("16 · 10⁹ байт", SIZE, 16e9),
        ("16 млрд байт", SIZE, 16e9),
        ("8 Гбит", SIZE, 1e9),
        ("14.96", BATCH, 14.96),
        ("14,96 последовательностей", BATCH, 14.96),
        (",5", BATCH, 0.5),
        ("25 суток", TIME, 25 * DAY),
        ("25 дней", TIME, 25 * DAY),
        ("25 days", TIME, 25 * DAY),
        ("600 ч", TIME, 25 * DAY),
        ("600 часов", TIME, 25 * DAY),
        ("12,5 мс", TIME, 0.0125),
        ("12.5 ms", TIME, 0.0125),
        ("3 недели", TIME, 21 * DAY),
        ("1.2e21 FLOPs", WORK, 1.2e21),
        ("1,2·10^21 FLOPs", WORK, 1.2e21),
        ("1,2·10²¹ операций", WORK, 1.2e21),
        ("1,2 ZFLOPs", WORK, 1.2e21),
        ("44 GFLOPs", WORK, 44e9),
        ("44 ГФЛОПс на токен", WORK, 44e9),
        ("44 млрд FLOPs", WORK, 44e9),
        ("44 GFLOP", WORK, 44e9),
        ("≈ 16 ГБ", SIZE, 16e9),
        ("около 16 ГБ", SIZE, 16e9),
        ("+16 ГБ", SIZE, 16e9),
        ("-16 ГБ", SIZE, -16e9),
        ("−16 ГБ", SIZE, -16e9),
        ("  16   ГБ  ", SIZE, 16e9),
        ("16 ГБ.", SIZE, 16e9),
        ("14.", BATCH, 14),
        ("8,874.30 млн", COUNT, 8874.3e6),
        ("8.874,30 млн", COUNT, 8874.3e6),
        ("3,456.00 МиБ", SIZE, 3456 * 2**20),
        ("3.456,00 МиБ", SIZE, 3456 * 2**20),
        ("4,881.02 ч", TIME, 4881.02 * 3600),
        ("1,234,567.89 Б", SIZE, 1234567.89),
        ("1 234,567 Б", SIZE, 1234.567),
        ("0,125 Б", SIZE, 0.125),
        ("1,234e9 Б", SIZE, 1.234e9),
        ("1,234·10⁹ Б", SIZE, 1.234e9),
        *((f"3 {unit}", SIZE, 3e3) for unit in ("кбайт", "кБайта", "килобайт", "kbytes", "kilobytes", "KB")),
        *((f"3 {unit}", SIZE, 3e6) for unit in ("Мбайт", "Мбайта", "мегабайт", "Mbyte", "megabytes", "megabyte")),
        *((f"3 {unit}", SIZE, 3e9) for unit in ("Гбайт", "ГБайт", "гигабайта", "GBytes", "gigabyte", "gigabytes")),
        *((f"3 {unit}", SIZE, 3 * 2**10) for unit in ("Кибайт", "кибибайт", "kibibyte", "kibibytes", "KiBytes")),
        *((f"3 {unit}", SIZE, 3 * 2**20) for unit in ("Мибайт", "мебибайта", "mebibyte", "mebibytes")),
        *((f"3 {unit}", SIZE, 3 * 2**30) for unit in ("Гибайт", "Гибайта", "gibibyte", "gibibytes")),
        *((f"8,03 {unit}", COUNT, 8.03e9) for unit in ("bn", "Bn", "G", "billions", "bn params", "млрд шт.")),
        ("8.03 M", COUNT, 8.03e6),
        ("8.03T", COUNT, 8.03e12),
        ("8030 шт", COUNT, 8030),
        ("14 шт.", BATCH, 14),
        *((f"12 {unit}", TIME, 0.012) for unit in ("msec", "milliseconds", "мсек", "миллисекунда")),
        *((f"12 {unit}", TIME, 12e-6) for unit in ("usec", "microseconds", "µsec", "микросекунд")),
        *((f"{sign}64", BATCH, 64) for sign in ("B = ", "B=", "= ", "≈ ", "~", "Ответ: ", "ответ — ", "итого ")),
    ],
)
def test_reading(text: str, dimension: Dimension, value: float) -> None:
    found = read(text, dimension)
    assert found.trouble == ""
    assert found.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "fits", "value"),
    [
        ("да, 15 ГиБ", True, 15 * 2**30),
        ("нет, 130 ГБ", False, 130e9),
        ("Нет — нужно 130 ГБ", False, 130e9),
        ("да 15 ГиБ", True, 15 * 2**30),
        ("не поместится, 130 ГБ", False, 130e9),
        ("не влезет: надо 130 ГБ", False, 130e9),
        ("поместится, хватит 15 ГБ", True, 15e9),
        ("yes, 15 GB", True, 15e9),
        ("No, 130 GB", False, 130e9),
        ("да", True, None),
        ("нет", False, None),
        ("130 ГБ", None, 130e9),
        ("130 ГБ, нет", False, 130e9),
        ("130 ГБ нет", False, 130e9),
        ("130 ГБ — не поместится.", False, 130e9),
        ("130 ГБ (не влезет)", False, 130e9),
        ("130 ГБ, поэтому не хватит", False, 130e9),
        ("15 ГБ, да", True, 15e9),
        ("Ответ: нет, 130 ГБ", False, 130e9),
        ("ответ: да, 15 ГБ.", True, 15e9),
        ("нет (нужно 130 ГБ)", False, 130e9),
        ("нет (130 ГБ).", False, 130e9),
        ("нет, потребуется 130 ГБ", False, 130e9),
        ("нет, не хватит, 130 ГБ", False, 130e9),
        *((f"{verb}, 15 ГБ", True, 15e9) for verb in ("помещается", "влезает", "влезет", "хватит", "хватает", "fits")),
        *((f"не {verb}, 130 ГБ", False, 130e9) for verb in ("помещается", "влезает", "хватит", "хватает", "войдёт")),
        ("не помещается", False, None),
    ],
)
def test_reading_a_conclusion(text: str, fits: bool | None, value: float | None) -> None:
    found = read(text, SIZE)
    assert (found.trouble, found.fits) == ("", fits)
    assert found.value == (value if value is None else pytest.approx(value))


@pytest.mark.parametrize("text", ["не знаю", "Не знаю.", "я не помню", "не знаю, 15 ГБ"])
def test_giving_up_is_not_a_no(text: str) -> None:
    for kind in ("kv", "fit"):
        verdict = judge(problem(1, 2, kind), text)
        assert verdict.state == "unclear"
        assert "подсказку или решение" in verdict.text


@pytest.mark.parametrize(
    ("text", "dimension", "said"),
    [
        ("2 месяца", TIME, "в месяце от 28 до 31 суток"),
        ("57,36 G", SIZE, "«G» может быть и ГБ, и ГиБ"),
        ("да, 15 ГБ, нет", SIZE, "и «да», и «нет»"),
        ("да, не поместится, 15 ГБ", SIZE, "и «да», и «нет»"),
        ("не 15 ГБ", SIZE, "не вижу числа"),
        ("14. нет, 15 ГБ", SIZE, "не знаю единицы"),
    ],
)
def test_trouble_is_named(text: str, dimension: Dimension, said: str) -> None:
    assert said in read(text, dimension).trouble


@pytest.mark.parametrize(
    "text", ["42 попугая", "много", "ГБ", "16 ГБ или 17", "14-15 ГиБ", "1,2,3 ГБ", "16 ГБ 5", "x", "٣ ГБ", "=", "e9"]
)
def test_unclear_is_said(text: str) -> None:
    """Чего не прочесть, о том говорится, а ожидаемый вид называется."""
    verdict = judge(problem(1, 2, "kv"), text)
    assert verdict.state == "unclear"
    assert "12,5\u00a0ГиБ" in verdict.hint


@pytest.mark.parametrize("dimension", ALL, ids=lambda one: one.name)
def test_every_spelling_is_reachable(dimension: Dimension) -> None:
    for spelling, scale in dimension.spellings.items():
        if spelling:
            assert read(f"3 {spelling}", dimension).scale == scale


# --- два смысла ---------------------------------------------------------------------------------


def cache_of(size: float) -> Problem:
    """Задача о кеше в ГиБ, в которой верный ответ — `size` байт."""
    task = problem(1, 2, "kv")
    task.answer, task.mistakes = size, ()
    return task


@pytest.mark.parametrize("text", ["65,536 Б", "65.536 Б", "≈ 65,536 байт"])
def test_the_right_one_of_two_readings_is_taken(text: str) -> None:
    assert judge(cache_of(65536), text).state == "correct"
    assert judge(cache_of(65.5), text).state == "correct"


@pytest.mark.parametrize("text", ["65,536 Б", "65.536 Б", "65,536"])
def test_neither_of_two_readings_is_guessed(text: str) -> None:
    verdict = judge(cache_of(3e15), text)
    assert (verdict.state, verdict.mistake) == ("unclear", "")
    assert f"{text[:6]} — это 65\u00a0536 или 65,5?" in verdict.text


@pytest.mark.parametrize(("text", "word"), [("65,536 ГБ", "меньше"), ("5.625 ПБ", "больше")])
def test_fraction_of_a_large_unit_is_judged(text: str, word: str) -> None:
    """«5,625 ГиБ» разрядами не бывает: перед крупной единицей запятая — дробь."""
    verdict = judge(cache_of(3e15), text)
    assert verdict.state == "wrong"
    assert word in verdict.text


def test_wrong_conclusion_is_named_beside_a_wrong_number() -> None:
    task = problem(5, 2, "fit")
    right, wrong = ("да", "нет") if task.fits else ("нет", "да")
    number = f"{task.answer * 7.3 / 2**30:.2f} ГиБ".replace(".", ",")
    assert "И вывод тоже неверен." in judge(task, f"{wrong}, {number}").hint
    assert "вывод" not in judge(task, f"{right}, {number}").hint
    assert "Нужен и вывод" in judge(task, number).hint


def test_two_bytes_instead_of_one_have_a_name() -> None:
    task = next(one for one in (problem(seed, 1, "kv") for seed in range(200)) if "fp8" in one.text)
    verdict = judge(task, f"{2 * task.answer:.0f} Б")
    assert (verdict.state, verdict.mistake) == ("wrong", "bf16-for-dtype")


def test_bare_twofold_number() -> None:
    assert judge(cache_of(65.5 * 2**30), "65,536").state == "correct"
    assert judge(cache_of(65536 * 2**30), "65,536").state == "correct"
    # Верны оба смысла: 65 536 Б и 65,536 кБ.
    assert judge(cache_of(65536), "65,536").state == "unclear"


@pytest.mark.parametrize("text", ["65 536 Б", "65,54 Б", "65,5360 Б", "65,536e0 Б", "0,536 Б", "1,065,536 Б"])
def test_one_reading_is_judged_as_wrong(text: str) -> None:
    assert judge(cache_of(3e15), text).state == "wrong"


def test_mistake_is_recognised_in_one_of_two_readings() -> None:
    task = problem(1, 2, "kv")
    one = task.mistakes[0]
    task.answer, one.value, task.mistakes = 3e15, 8.874 * 2**30, (one,)
    assert judge(task, "8,874 ГиБ").mistake == one.id


# --- приговор -----------------------------------------------------------------------------------


def written(task: Problem, value: float, unit: str) -> str:
    """Ответ, как его написал бы учащийся."""
    text = task.dimension.shown(value, unit)
    return text if task.fits is None else f"{'да' if task.fits else 'нет'}, {text}"


@pytest.mark.parametrize(("kind", "level"), EVERY)
def test_right_answer_in_every_unit(kind: str, level: int) -> None:
    for seed in range(12):
        task = problem(seed, level, kind)
        for unit in task.units:
            assert judge(task, written(task, task.answer, unit)).state == "correct", (task.question, unit)


@pytest.mark.parametrize(("kind", "level"), EVERY)
def test_every_mistake_is_named(kind: str, level: int) -> None:
    for seed in range(30):
        task = problem(seed, level, kind)
        for one in task.mistakes:
            verdict = judge(task, written(task, one.value, task.unit))
            named = verdict.mistake
            assert (verdict.state, named) == ("wrong", one.id) or (not task.unit and verdict.state == "unclear"), (
                task.question
            )
            assert verdict.text == one.meaning or named != one.id


@pytest.mark.parametrize(("kind", "level"), EVERY)
def test_tolerance_is_what_is_promised(kind: str, level: int) -> None:
    task = problem(5, level, kind)
    for share, state in ((0.98, "correct"), (-0.98, "correct"), (1.02, "wrong"), (-1.02, "wrong")):
        amount = task.answer * (1 + task.tolerance * share) / task.dimension.units[task.unit]
        text = f"{amount:.9e} {task.unit}"
        verdict = judge(task, text if task.fits is None else f"{'да' if task.fits else 'нет'}, {text}")
        assert verdict.state == state, (text, verdict)
    assert task.accuracy in task.question


def test_bare_number_is_taken_in_the_asked_unit_and_it_is_said() -> None:
    task = problem(1, 2, "kv")
    gib = f"{task.answer / 2**30:.4f}"
    verdict = judge(task, gib)
    assert verdict.state == "correct"
    assert "ГиБ" in verdict.hint
    assert judge(task, f"{gib} ГиБ").hint == ""


def test_bare_number_right_in_another_unit() -> None:
    task = problem(1, 2, "kv")
    for unit in ("ГБ", "Б", "МиБ"):
        verdict = judge(task, f"{task.answer / task.dimension.units[unit]:.6g}".replace("e+", "e"))
        assert verdict.state == "unclear"
        assert f"если это {unit}." in verdict.text


def test_parameters_may_be_bare() -> None:
    task = problem(1, 2, "params")
    assert judge(task, str(task.answer)).state == "correct"
    assert judge(task, str(task.answer)).hint == ""
    assert judge(task, f"{task.answer / 1e9:.4g}").state == "correct"


@pytest.mark.parametrize(
    ("kind", "unit", "name"), [("params", "ГБ", "память"), ("kv", "млрд параметров", "число параметров"),
                               ("flops", "FLOP/s", "скорость"), ("days", "ГБ", "память")],
)  # fmt: skip
def test_foreign_unit(kind: str, unit: str, name: str) -> None:
    """Верное число с единицей другой величины — неверно, и сказано почему; неверное число просто не читается."""
    task = problem(1, 2, kind)
    amount = task.answer / task.dimension.units[task.unit]
    verdict = judge(task, f"{amount:.4g} {unit}")
    assert (verdict.state, verdict.mistake) == ("wrong", "foreign-unit")
    assert "Число верное" in verdict.text
    assert name in verdict.text
    assert judge(task, f"{amount * 2.2:.4g} {unit}").state == "unclear"


def test_right_number_wrong_unit_of_the_same_quantity() -> None:
    task = problem(1, 2, "kv")
    verdict = judge(task, f"{task.answer / 2**30:.4g} МиБ")
    assert (verdict.state, verdict.mistake) == ("wrong", "wrong-unit")
    assert "ГиБ" in verdict.text


def test_power_of_ten() -> None:
    task = problem(1, 2, "crossover")
    assert judge(task, f"{task.answer * 10:.9g}").mistake == "power-of-ten"
    assert judge(task, f"{task.answer / 1000:.6g}").mistake == "power-of-ten"


def test_nameless_mistake_says_the_direction_and_gives_a_hint() -> None:
    task = problem(1, 2, "crossover")
    more, less = judge(task, f"{task.answer * 1.37:.6g}"), judge(task, f"{task.answer / 1.37:.6g}")
    assert (more.state, more.mistake, less.state, less.mistake) == ("wrong", "", "wrong", "")
    assert "больше верного" in more.text
    assert "меньше верного" in less.text
    assert more.hint == task.hints[0]


def test_wrong_verdict_does_not_tell_the_answer() -> None:
    for kind, level in EVERY:
        task = problem(3, level, kind)
        amount = task.dimension.shown(task.answer, task.unit)
        for one in task.mistakes:
            assert amount not in str(judge(task, written(task, one.value, task.unit)))


@pytest.mark.parametrize("level", LEVELS)
def test_conclusion(level: int) -> None:
    for seed in range(10):
        task = problem(seed, level, "fit")
        amount = task.dimension.shown(task.answer, task.unit)
        right, wrong = ("да", "нет") if task.fits else ("нет", "да")
        assert judge(task, f"{right}, {amount}").state == "correct"
        assert judge(task, f"{wrong}, {amount}").mistake == "wrong-conclusion"
        assert judge(task, right).state == judge(task, wrong).state == judge(task, amount).state == "unclear"
        # По приговору о голом «да» не угадать, верно ли оно.
        assert str(judge(task, right)) == str(judge(task, wrong))


def test_wrong_number_alone_reminds_of_the_conclusion() -> None:
    """Не ответили «да» или «нет» — об этом сказано и тогда, когда число неверно."""
    for seed in range(10):
        task = problem(seed, 2, "fit")
        for value in (task.answer * 1.37, task.mistakes[0].value):
            amount = f"{value / task.dimension.units[task.unit]:.5f} {task.unit}"
            alone, whole = judge(task, amount), judge(task, f"нет, {amount}")
            assert alone.state == whole.state == "wrong"
            assert "«да» или «нет»" in alone.hint
            assert "«да» или «нет»" not in whole.hint
    assert "«да»" not in str(judge(problem(1, 2, "kv"), "1 КиБ"))


def test_conclusion_where_nobody_asked() -> None:
    assert judge(problem(1, 1, "kv"), "да").state == "unclear"


# --- любой текст --------------------------------------------------------------------------------

TASKS = [problem(seed, level, kind) for kind, level in EVERY for seed in (1, 2)]
PIECES = st.sampled_from(
    ["да", "нет", "не ", ",", ".", " ", "\u00a0", "1", "12", "10^", "^", "**", "e", "E9", "·", "*", "x", "х", "⁹", "⁻",
     "-", "+", "млрд", "тыс.", "ГиБ", "GB", "B", "FLOPs", "/s", "сут", "∞", "nan", "inf", "(", ")", "9" * 30,
     "\x00", "\ud800"]
)  # fmt: skip


def assert_judged(task: Problem, text: str) -> None:
    verdict = judge(task, text)
    assert verdict.state in ("correct", "wrong", "unclear")
    assert verdict.text
    assert len(str(verdict)) < 600


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(TASKS), st.text(max_size=200))
def test_any_text_is_judged(task: Problem, text: str) -> None:
    assert_judged(task, text)


@settings(max_examples=1200, deadline=None)
@given(st.sampled_from(TASKS), st.lists(PIECES, max_size=14).map("".join))
def test_any_likely_text_is_judged(task: Problem, text: str) -> None:
    assert_judged(task, text)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(TASKS), st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 30))
def test_any_number_in_any_unit_is_judged(task: Problem, amount: float, index: int) -> None:
    units = list(task.dimension.units)
    assert_judged(task, f"{amount!r} {units[index % len(units)]}")


@pytest.mark.parametrize(
    "text",
    ["9" * 10_000_000, "1e999999999 ГБ", "10^999999999999 ГБ", "0^-1 ГБ", "10^-99999999999 ГБ", "1e-9999 ГБ", "1·" * 50,
     "(" * 100, "9^9^9^9", "10^999·0 ГБ", "1 " * 60, "да" * 60, "1e5" * 30],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_huge_input_is_bounded(text: str) -> None:
    started = time.perf_counter()
    assert_judged(problem(1, 2, "kv"), text)
    assert time.perf_counter() - started < 0.5


def test_longest_answer_has_a_limit() -> None:
    assert read("1" * (LONGEST + 1), SIZE).trouble
    assert not read("1" * (LONGEST - 3) + " ГБ", SIZE).trouble


def test_session_parts_are_judged_separately() -> None:
    parts = session(4, 2).parts
    verdicts = [judge(part, part.expected) for part in parts]
    assert [one.state for one in verdicts] == ["correct"] * 4
