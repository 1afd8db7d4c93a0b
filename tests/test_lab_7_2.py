"""Лабораторная 7.2: числа страницы против независимой арифметики, упражнения глазами учащегося.

Ожидаемые числа здесь — из условий задач и школьного умножения. Урок обязан получить их сам, из `nanolm`.
"""

from __future__ import annotations

import ast
import sys
import types
from typing import Any

import pytest
from lesson_run import Run, attempt, cells, defined, execute, run_lesson, tags

from nanolm.exercises import formulas
from nanolm.hardware import gpu
from nanolm.units import scientific

LESSON = "lab_7_2_flops"
NBSP = "\u00a0"
EXERCISES = {"7.2/flops": "compute_num_flops", "7.2/scenarios": "scenario_flops"}


@pytest.fixture(scope="module")
def built() -> Run:
    """Урок, выполненный так, как его выполняет сборка."""
    return run_lesson(LESSON)


# --- числа страницы -------------------------------------------------------------------------------------------


def test_twenty_by_hand_and_twenty_four_by_convention(built: Run) -> None:
    names = built.names
    assert (names["multiplications"], names["additions"]) == (2 * 2 * 3, 2 * 2 * 2)
    assert names["by_convention"] == names["by_counter"] == 2 * 2 * 3 * 2
    assert "12 умножений + 8 сложений = 20 операций" in built.printed
    assert names["result"] == [[22, 28], [49, 64]]


@pytest.mark.parametrize("k", [3, 128, 4096])
def test_difference_dies_out_with_the_length(built: Run, k: int) -> None:
    by_hand, by_convention, more = built.table("Операций на один элемент")[str(k)]
    assert int(by_hand.replace(NBSP, "")) == 2 * k - 1
    assert int(by_convention.replace(NBSP, "")) == 2 * k
    assert float(more.rstrip("%").strip().replace(",", ".")) == pytest.approx(100 / (2 * k - 1), abs=0.006)


def test_work_divided_by_speed_is_time(built: Run) -> None:
    assert f"1000 FLOPs при 100 FLOP/s: 10,0{NBSP}с" in built.printed
    assert "2·10¹⁴ операций в секунду" in built.printed


def test_counter_confirms_two_and_four(built: Run) -> None:
    forward, backward = built.table("Один слой").values()
    assert forward == (f"81{NBSP}920",) * 2
    assert backward == (f"163{NBSP}840",) * 2
    assert 2 * 64**2 * 10 == 81_920


#: Таблица условия: модель → параметры, токены, FLOPs.
FACTS = {
    "BERT-base": (110e6, 3.3e9, "2,18·10¹⁸"),
    "T5-large": (770e6, 1e12, "4,62·10²¹"),
    "Gemma-1B": (1e9, 30e3, "1,80·10¹⁴"),
    "PaLM": (540e9, 780e9, "2,53·10²⁴"),
}


@pytest.mark.parametrize("name", FACTS)
def test_scenario_table(built: Run, name: str) -> None:
    params, tokens, shown = FACTS[name]
    assert built.table("Работа четырёх обучений")[name][2] == shown
    assert formulas.scenario_flops()[name] == pytest.approx(6 * params * tokens, rel=1e-12)
    assert built.names["work"][name] == formulas.scenario_flops()[name]


def test_lesson_rule_is_the_reference_rule(built: Run) -> None:
    for params, tokens in ((7, 11), (8_030_261_248, 15 * 10**12)):
        assert built.names["training_flops"](params, tokens) == formulas.compute_num_flops(params, tokens)


def test_what_you_noticed(built: Run) -> None:
    assert built.prose["w_palm_bert"] == f"1,16{NBSP}млн"
    ratio = 540e9 * 780e9 / (110e6 * 3.3e9)
    assert round(ratio / 1e6, 2) == 1.16
    assert int(built.prose["w_palm_years"]) == round(6 * 540e9 * 780e9 / 200e12 / (365.25 * 86_400))
    assert built.prose["w_gemma_seconds"] == f"900{NBSP}мс"


def test_figure_covers_eighteen_decades_and_names_the_models(built: Run) -> None:
    figure = built.figure("flops-decades")
    assert built.names["highest"] / built.names["lowest"] > 1e18
    assert int(built.prose["f_decades"]) >= 18
    for name in ("BERT-base", "T5-large", "Gemma-1B", "PaLM", "Chinchilla"):
        assert name in figure.alt
        assert f">{name}<" in figure.svg, "подпись точки — настоящий текст"
    assert "20 токенов" in figure.svg
    assert built.names["curves"]["20 токенов\nна параметр"][3] == (1e9, pytest.approx(1.2e20))


def test_time_of_the_example(built: Run) -> None:
    assert 6 * 125e6 * 2.5e9 == 1.875e18
    assert built.names["seconds"] == pytest.approx(46_875)
    assert built.prose["t_work"] == "1,875·10¹⁸"
    assert built.prose["t_seconds"] == "4,69·10⁴"
    assert built.prose["t_hours"] == f"13{NBSP}ч"
    assert built.prose["t_mfu"] == f"41{NBSP}%"
    assert gpu("rtx-4080").rate("bf16") == 97.5e12


@pytest.mark.parametrize("key", ["t4", "rtx-4080", "rtx-4090", "a100-80", "h100-sxm"])
def test_estimate_of_days_energy_and_money(built: Run, key: str) -> None:
    card, price = gpu(key), built.names["PRICES"][key]
    title = card.title.removeprefix("NVIDIA ").removeprefix("GeForce ")
    dtype, _, days, energy, _, money = built.table("1 млрд параметров")[title]
    hours = 6 * 1e9 * 20e9 / (0.45 * card.flops_per_s[dtype]) / 3600
    assert float(days.replace(",", ".")) == pytest.approx(hours / 24, abs=0.051)
    assert card.watts is not None
    assert float(energy.replace(NBSP, "")) == pytest.approx(hours * card.watts / 1000, abs=0.51)
    assert float(money.replace(NBSP, "")) == pytest.approx(hours * price, abs=0.51)


def test_t4_is_estimated_with_fp16(built: Run) -> None:
    assert built.table("1 млрд параметров")["T4"][0] == "fp16"


def test_where_the_rule_and_the_account_disagree(built: Run) -> None:
    """Llama-3-8B по config.json: матрицы слоёв, голова и оценки — школьными формулами."""
    layers = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    total = 2 * 128256 * 4096 + layers + 65 * 4096
    for context in (1024, 8192):
        exact = 6 * layers + 6 * 128256 * 4096 + 12 * 32 * context * 4096
        row = built.table("GFLOPs на токен")[f"Llama-3-8B, {context} токена"]
        expected = (6 * total, 6 * layers, 6 * 128256 * 4096, 12 * 32 * context * 4096, exact)
        assert [float(cell.replace(",", ".")) for cell in row[:-1]] == pytest.approx(
            [value / 1e9 for value in expected], abs=0.006
        )
    # При коротком контексте правило завышает, при длинном занижает: об этом и говорит текст.
    assert not built.table("GFLOPs на токен")["Llama-3-8B, 1024 токена"][-1].startswith("−")
    assert built.table("GFLOPs на токен")["Llama-3-8B, 8192 токена"][-1] == f"−17{NBSP}%"


# --- ползунки -------------------------------------------------------------------------------------------------


def slider_cell() -> str:
    (cell,) = [cell for cell in cells(LESSON) if "sliders" in tags(cell)]
    return str(cell.source)


def test_default_position_is_printed(built: Run) -> None:
    assert "10⁹ параметров, 10¹⁴ токенов\n→ 6·10²³ FLOPs" in built.printed


def test_table_of_exponents_holds_every_position(built: Run) -> None:
    rows = built.table("FLOPs за одну эпоху")
    assert len(rows) == 7
    for i, row in enumerate(rows.values()):
        # Шаг по любому ползунку меняет показатель на единицу: строка — сдвиг предыдущей.
        assert row == tuple(scientific(6 * 10 ** (6 + i + t), 0) for t in range(9, 15))


def test_sliders_appear_where_ipywidgets_is_installed(built: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}
    fake = types.ModuleType("ipywidgets")
    fake.IntSlider = lambda value, low, high, description: (value, low, high)  # type: ignore[attr-defined]
    fake.interact = lambda function, **sliders: made.update(sliders, function=function)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ipywidgets", fake)
    run = Run(names=dict(built.names))
    execute(slider_cell(), run, "sliders")
    assert made["log_params"] == (9, 6, 12)
    assert made["log_tokens"] == (14, 9, 14)
    assert made["function"] is run.names["show_flops"]


# --- без torch ------------------------------------------------------------------------------------------------


def test_lesson_reads_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    run = run_lesson(LESSON)
    assert "PyTorch не установлен" in run.printed
    assert [row[1] for row in run.table("Один слой").values()] == ["—", "—"]
    assert run.prose["c_convention"] == "24"


# --- упражнения -----------------------------------------------------------------------------------------------


def test_build_checks_the_folded_solutions(built: Run) -> None:
    assert {id_: result.status for id_, result in built.checks().items()} == dict.fromkeys(EXERCISES, "correct")


def test_untouched_stubs_are_not_started_and_nothing_below_breaks() -> None:
    """Учащийся нажал «Выполнить всё»: решения не подменили заготовок, остальной урок выполнился."""
    run = run_lesson(LESSON, learner={})
    assert {id_: result.status for id_, result in run.checks().items()} == dict.fromkeys(EXERCISES, "not_started")
    assert run.prose["t_hours"] == f"13{NBSP}ч"


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_exercise_is_three_cells_in_order(exercise_id: str) -> None:
    name = EXERCISES[exercise_id]
    order = [
        next(iter(tags(cell) & {"exercise", "solution", "check"}))
        for cell in cells(LESSON)
        if tags(cell) & {"exercise", "solution", "check"} and name in cell.source
    ]
    assert order == ["exercise", "solution", "check"]
    calls = [ast.unparse(ast.parse(cell.source).body[0]) for cell in cells(LESSON) if "check" in tags(cell)]
    assert f"check('{exercise_id}', {name})" in calls
    assert any(defined(cell.source) == {name} for cell in cells(LESSON) if "exercise" in tags(cell))


def function(body: str) -> str:
    return f"def compute_num_flops(param_count, num_tokens):\n    {body}\n"


ATTEMPTS = {
    "верно": (function("return 6 * param_count * num_tokens"), "correct", None),
    "верно, иначе": (function("return num_tokens * (2 + 4) * param_count"), "correct", None),
    "только прямой проход": (function("return 2 * param_count * num_tokens"), "wrong", "forward-only"),
    "только обратный": (function("return 4 * param_count * num_tokens"), "wrong", "backward-only"),
    "константа": (function("return 2.178e18"), "wrong", "constant"),
    "забыты токены": (function("return 6 * param_count"), "wrong", "tokens-forgotten"),
    "печать вместо return": (function("print(6 * param_count * num_tokens)"), "wrong", "printed-not-returned"),
    "многоточие внутри": (function("x = ...; return 6 * param_count * x"), "not_started", None),
    "опечатка": (function("return 6 * param_cuont * num_tokens"), "error", None),
    "один аргумент": ("def compute_num_flops(param_count):\n    return 6 * param_count\n", "error", None),
}


@pytest.mark.parametrize("title", ATTEMPTS)
def test_learner_tries_the_function(title: str) -> None:
    text, status, misconception = ATTEMPTS[title]
    result = attempt(LESSON, "compute_num_flops", text, "7.2/flops")
    assert result.status == status, str(result)
    if misconception:
        assert result.misconception == misconception
    assert "Traceback" not in str(result)


SCENARIO_ATTEMPTS = {
    "верно": ("6 * 110e6 * 3.3e9, 6 * 770e6 * 1e12, 6 * 1e9 * 30e3, 6 * 540e9 * 780e9", "correct"),
    "с точностью процента": ("2.18e18, 4.62e21, 1.8e14, 2.53e24", "correct"),
    "забыт обратный проход": ("2 * 110e6 * 3.3e9, 4.62e21, 1.8e14, 2.53e24", "wrong"),
    "миллиарды потеряны": ("6 * 110e6 * 3.3, 4.62e21, 1.8e14, 2.53e24", "wrong"),
    "не начато": ("..., ..., ..., ...", "not_started"),
}


@pytest.mark.parametrize("title", SCENARIO_ATTEMPTS)
def test_learner_fills_the_table(title: str) -> None:
    values, status = SCENARIO_ATTEMPTS[title]
    text = f"scenario_flops = dict(zip(['BERT-base', 'T5-large', 'Gemma-1B', 'PaLM'], [{values}]))"
    result = attempt(LESSON, "scenario_flops", text, "7.2/scenarios")
    assert result.status == status, str(result)
