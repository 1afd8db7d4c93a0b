"""Лабораторная 7.1: качество, память и упражнения. Время здесь не проверяется: оно у каждой машины своё.

Модели берутся из хранилища сборки; если их там ещё нет, они обучаются — это около двух минут.
"""

from __future__ import annotations

from html import escape

import pytest
from lesson_run import Run, cells, execute, run_lesson, tags

from nanolm import gemma
from nanolm.facts import PROMPTS, facts
from nanolm.figures import table

pytestmark = pytest.mark.slow
LESSON = "lab_7_1_razmery"
NBSP = "\u00a0"


@pytest.fixture(scope="module")
def page() -> Run:
    return run_lesson(LESSON)


def whole_percent(text: str) -> int:
    return int(text.removesuffix(NBSP + "%"))


def test_the_large_model_recalls_at_least_thirty_points_more(page):
    small, large = page.names["small_recall"], page.names["large_recall"]
    assert len(small) == len(large) == len(facts())
    assert sum(large) / len(large) - sum(small) / len(small) >= 0.30
    assert int(page.prose["r_gap"]) >= 30


def test_the_small_one_cannot_hold_the_facts_and_the_large_one_can(page):
    assert sum(page.names["small_recall"]) / len(facts()) < 0.6
    assert sum(page.names["large_recall"]) / len(facts()) > 0.85
    assert page.names["small_losses"][-1] > 2 * page.names["large"].losses[-1]


def test_parameters_are_counted_by_hand(page):
    rows = page.table("Словарь, данные")
    shapes = {"малая": (24, 2, 64, 1024), "большая": (128, 4, 341, 1024)}
    for place, (D, L, F, V) in enumerate(shapes.values()):
        total = V * D + L * (4 * D * D + 3 * D * F + 2 * D) + D
        assert rows["параметров"][place] == f"{total:,}".replace(",", NBSP)


def test_ten_answers_stand_side_by_side_and_wrong_ones_are_marked(page):
    rows = page.table("Десять запросов")
    assert len(rows) == len(PROMPTS) == 10
    for truth, small, large in rows.values():
        for answer in (small, large):
            assert answer.startswith("✓ ") == (answer[2:] == truth)
            assert answer[0] in "✓✗"
    assert sum(large.startswith("✓") for _, _, large in rows.values()) > sum(
        small.startswith("✓") for _, small, _ in rows.values()
    )


def test_shares_by_relation_add_up(page):
    rows = page.table("Доля фактов")
    counts = [int(row[0].replace(NBSP, "")) for name, row in rows.items() if name != "всего"]
    assert sum(counts) == len(facts()) == int(rows["всего"][0].replace(NBSP, ""))
    assert whole_percent(rows["всего"][1]) < whole_percent(rows["всего"][2])


def test_memory_is_predicted_to_the_byte(page):
    for name, account in page.names["accounts"].items():
        assert page.names["held"][name] == (account["weights"], account["kv_cache"])


def test_time_is_marked_as_measured_here(page):
    rows = page.table("Время ответа: измерено на этой машине при этой сборке")
    assert set(rows) >= {"прогноз по рулайну, на токен", "измерено, на токен", "токенов в секунду"}
    assert page.table("Качество и цена; время измерено на этой машине")


def test_output_of_a_model_is_text_never_html():
    html = table(["запрос", "малая"], [("x", "<img src=x onerror=alert(1)>")], "")._repr_html_()
    assert "<img" not in html
    assert escape("<img src=x onerror=alert(1)>") in html


def test_there_is_no_gemma_record_and_the_page_says_so(page):
    if gemma.recorded() is None:
        assert "Измерения ещё нет" in page.page
        assert "Ответов настоящих моделей ещё нет" in page.printed
    rows = page.table("Измерения ещё нет" if gemma.recorded() is None else "Прогноз для T4 и запись")
    assert rows["параметров"] == ("999 885 952".replace(" ", NBSP), "3 880 263 168".replace(" ", NBSP))


def test_a_recorded_run_replaces_the_note(monkeypatch, page):
    answers = {
        name: gemma.Answers(f"gemma-{name}", 10, 20, ["<b>да</b>"] * 20, [0.5] * 20, 1000) for name in gemma.VARIABLES
    }
    record = {
        "machine": {"name": "Tesla T4"},
        "measured_at": "2026-01-02T03:04:05",
        "workload": {"prompts": list(gemma.PROMPTS)},
    }
    monkeypatch.setattr(gemma, "recorded", lambda: (record, answers))
    run = run_lesson(LESSON)
    rows = run.table("Прогноз для T4 и запись: Tesla T4, 2026-01-02")
    assert rows["измерено, на токен"] == ("10,0 мс".replace(" ", NBSP),) * 2
    replies = run.table("Двадцать запросов")
    assert len(replies) == 20
    assert "<b>" not in next(
        item for item in run.shown if getattr(item, "caption", "").startswith("Двадцать")
    )._repr_html_().replace("&lt;b&gt;", "")


def test_exercises_pass_with_the_folded_solutions(page):
    assert {id_: result.status for id_, result in page.checks().items()} == {
        "7.1/collect": "correct",
        "7.1/duration": "correct",
    }
    assert "Верно: ответы большой модели собраны" in page.printed


STUBS = {"collect_generations": "7.1/collect", "format_duration": "7.1/duration"}


@pytest.mark.parametrize("name", STUBS)
def test_an_untouched_stub_is_not_started(name):
    stub = next(cell.source for cell in cells(LESSON) if "exercise" in tags(cell) and f"def {name}" in cell.source)
    assert short_attempt(name, stub).status == "not_started"


def short_attempt(name: str, text: str):
    """Только ячейки этого упражнения: модели ему не нужны."""
    run = Run()
    chosen = [cell for cell in cells(LESSON) if {"exercise", "solution", "check"} & tags(cell) and name in cell.source]
    execute(cells(LESSON)[0].source, run, LESSON)
    for cell in chosen:
        if "large" not in cell.source:
            execute(text if "exercise" in tags(cell) else cell.source, run, LESSON)
    return run.checks()[STUBS[name]]


TIMED_INSIDE = """
def collect_generations(generate, prompts):
    answers = []
    for prompt in prompts:
        start = time.perf_counter()
        answers.append(generate(prompt))
    return answers, time.perf_counter() - start
"""
LAST_ONLY = """
def collect_generations(generate, prompts):
    start = time.perf_counter()
    for prompt in prompts:
        answers = [generate(prompt)]
    return answers, time.perf_counter() - start
"""
ONE_FORM = """
def format_duration(seconds):
    minutes = f"{seconds // 60} минут " if seconds > 59 else ""
    return f"{minutes}{seconds % 60} секунд"
"""


@pytest.mark.parametrize(
    ("name", "text", "misconception"),
    [
        ("collect_generations", TIMED_INSIDE, "one-call-timed"),
        ("collect_generations", LAST_ONLY, "last-only"),
        ("format_duration", ONE_FORM, "one-form"),
    ],
)
def test_a_wrong_answer_is_named(name, text, misconception):
    result = short_attempt(name, text)
    assert (result.status, result.misconception) == ("wrong", misconception)


def test_a_learner_who_skips_the_exercises_reaches_the_end():
    run = run_lesson(LESSON, learner={})
    assert {result.status for result in run.checks().values()} == {"not_started"}
    assert "Ещё не начато: вызовите collect_generations" in run.printed
    assert "g_ratio" in run.prose
