"""Лабораторная 7.3: числа страницы против независимой арифметики, опыты, упражнения глазами учащегося."""

from __future__ import annotations

import sys

import pytest
from lesson_run import Run, attempt, cells, run_lesson, tags

from nanolm import wall

LESSON = "lab_7_3_stena"
NBSP = "\u00a0"
GIB = 2**30
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="предел адресного пространства есть на Linux")

#: Геометрия Gemma 3 из config.json: ничего из nanolm.
V, D, L, N, K, H, F = 262_208, 2560, 34, 8, 4, 256, 10_240
LAYER = D * (2 * N + 2 * K) * H + 3 * D * F + 4 * D + 2 * H
P = V * D + L * LAYER + D
T4 = 14.74 * GIB


@pytest.fixture(scope="module")
def page() -> Run:
    return run_lesson(LESSON)


def ru(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".translate({44: NBSP, 46: ","})


def test_the_arithmetic_of_this_file_is_the_model():
    assert P == 3_880_263_168


FACTS = {
    "b_round": "14,90\u00a0ГиБ",
    "b_round_gb": "16,0\u00a0ГБ",
    "b_real": ru(4 * P / GIB, 2) + "\u00a0ГиБ",
    "b_card": "14,74\u00a0ГиБ",
    "b_part": "13,27\u00a0ГиБ",
    "b_params": ru(P, 0),
    "f_layers": "30",
    "f_whole": "13,05\u00a0ГиБ",
    "f_bytes": ru(4 * D * F, 0),
    "s_size": ru(4 * V * D / GIB, 2) + "\u00a0ГиБ",
    "l_params": ru(L * 16 * (2 * (D + N * H) + 2 * (D + K * H)), 0),
    "l_bf16": ru(2 * P / GIB, 2) + "\u00a0ГиБ",
    "l_bf16_states": ru(8 * P / GIB, 2) + "\u00a0ГиБ",
    "g_all_gb": "62\u00a0ГБ",
    "g_12": "43,83\u00a0ГиБ",
    "g_12_round": "44,70\u00a0ГиБ",
}


@pytest.mark.parametrize("name", FACTS)
def test_the_page_tells_the_right_number(page, name):
    assert page.prose[name] == FACTS[name]


def test_14_455_gib_of_weights_fit_a_whole_t4_but_not_its_share():
    assert round(4 * P / GIB, 3) == 14.455
    assert 0.9 * T4 < 4 * P < T4 < 4 * P + 4 * V * D


@linux
def test_every_wall_is_where_the_forecast_put_it(page):
    walks = page.names["everything"]
    assert len(walks) == 7
    for name, walk in walks.items():
        assert walk.message.startswith("RuntimeError"), name
        assert walk.refused == walk.expected, name
        assert str(walk.refused.nbytes) in walk.message, name
        assert walk.granted <= walk.cap < walk.granted + walk.refused.nbytes, name


@linux
def test_lora_dies_where_full_training_does(page):
    walks = page.names["everything"]
    assert walks["LoRA fp32, доля T4"].refused == walks["fp32, доля T4"].refused
    assert walks["LoRA fp32, вся T4"].refused.stage == wall.ACTIVATIONS
    assert page.prose["l_same"] == "тот же"


@linux
def test_lazy_allocation_keeps_the_real_footprint_small(page):
    walks = page.names["everything"].values()
    assert max(walk.readings[-1].occupied for walk in walks) > 28 * GIB
    assert max(walk.resident for walk in walks) < 800 * 10**6


@linux
def test_the_message_of_the_allocator_is_on_the_page(page):
    assert "DefaultCPUAllocator: can't allocate memory" in page.printed
    assert "you tried to allocate 104857600 bytes" in page.printed
    assert "layers.30.ffn.up.weight" in page.page


def test_the_first_pair_is_shown(page):
    assert "<start_of_turn>user\nСтрана Андорра: какая там валюта?<end_of_turn>" in page.printed
    assert "<start_of_turn>model\nевро<end_of_turn>" in page.printed


@linux
def test_figures_show_the_climb(page):
    figure = page.figure("two-walls")
    assert "13,20" in figure.alt
    assert page.figure("bigger-card").svg.startswith("<svg")


def test_without_a_cap_the_lesson_says_so_and_still_forecasts(monkeypatch):
    monkeypatch.setattr(wall, "unsupported", lambda: "здесь предел не поставить")
    monkeypatch.setattr(wall, "_device", lambda: "cpu")
    run = run_lesson(LESSON)
    assert "здесь предел не поставить" in run.printed
    assert "только прогноз" in run.page
    for name in ("f_layers", "f_whole", "f_bytes", "s_size", "g_12"):
        assert run.prose[name] == FACTS[name]
    assert run.names["first"].readings == ()


def test_exercises_pass_with_the_folded_solutions(page):
    assert {id_: result.status for id_, result in page.checks().items()} == {
        "7.3/format-question": "correct",
        "7.3/layers": "correct",
    }


STUBS = {"format_question": "7.3/format-question", "layers_before_wall": "7.3/layers"}
ANSWERS = [
    ("format_question", "def format_question(question, sot, eot):\n    return question", "markers-forgotten"),
    (
        "format_question",
        "def format_question(question, sot, eot):\n    return f'{eot}user\\n{question}{sot}\\n{eot}model\\n'",
        "markers-swapped",
    ),
    (
        "layers_before_wall",
        "def layers_before_wall(cap, embedding, layer):\n    return cap // layer",
        "embedding-forgotten",
    ),
    (
        "layers_before_wall",
        "def layers_before_wall(cap, embedding, layer):\n    return max(0, cap - embedding) / layer",
        "not-whole",
    ),
]  # fmt: skip


@pytest.mark.parametrize("name", STUBS)
def test_an_untouched_stub_is_not_started(name):
    stub = next(cell.source for cell in cells(LESSON) if "exercise" in tags(cell) and name in cell.source)
    assert attempt(LESSON, name, stub, STUBS[name]).status == "not_started"


@pytest.mark.parametrize(("name", "text", "misconception"), ANSWERS)
def test_a_wrong_answer_is_named(name, text, misconception):
    result = attempt(LESSON, name, text, STUBS[name])
    assert (result.status, result.misconception) == ("wrong", misconception)


def test_a_learner_who_skips_the_exercises_reaches_the_end():
    run = run_lesson(LESSON, learner={})
    assert {result.status for result in run.checks().values()} == {"not_started"}
    assert "everything" in run.names
