"""Лабораторная 7.4: числа страницы против независимой арифметики, упражнения глазами учащегося.

Ожидаемые числа — из условия задачи, деления на 1024³ и геометрии Gemma 3 4B из её config.json.
"""

from __future__ import annotations

import ast
import sys

import pytest
from lesson_run import Run, attempt, cells, defined, execute, run_lesson, tags

from nanolm.budget import training_memory
from nanolm.exercises import formulas
from nanolm.hardware import gpu, gpus
from nanolm.zoo import preset

LESSON = "lab_7_4_pamyat"
NBSP, GIB = "\u00a0", 1024**3
EXERCISES = {
    "7.4/params": "calculate_param_memory",
    "7.4/input": "calculate_input_data_memory",
    "7.4/gradients": "calculate_gradient_memory",
    "7.4/optimizer": "calculate_optimizer_memory",
    "7.4/activations": "calculate_activation_memory",
}


@pytest.fixture(scope="module")
def built() -> Run:
    """Урок, выполненный так, как его выполняет сборка."""
    return run_lesson(LESSON)


def value(cell: str) -> float:
    """Число из ячейки таблицы: с неразрывными пробелами, запятой и минусом."""
    return float(cell.replace(NBSP, "").replace(",", ".").replace("−", "-"))


# --- таблица условия ------------------------------------------------------------------------------------------

#: Слагаемое → значений (не байт), fp32 и bf16, ГиБ.
FACTS = {
    "параметры": (4 * 10**9, "14,90", "7,45"),
    "входной пакет": (8 * 1024, "0,000031", "0,000015"),
    "активации": (8 * 1024 * 32 * 2560, "2,50", "1,25"),
    "градиенты": (4 * 10**9, "14,90", "7,45"),
    "состояние Adam": (2 * 4 * 10**9, "29,80", "14,90"),
}


@pytest.mark.parametrize("name", FACTS)
def test_component_of_the_calculator(built: Run, name: str) -> None:
    count, fp32, bf16 = FACTS[name]
    assert built.table("Память сценария")[name][:2] == (fp32, bf16)
    assert built.names["fp32"][name] == pytest.approx(4 * count / GIB, rel=1e-12)
    assert built.names["bf16"][name] == pytest.approx(2 * count / GIB, rel=1e-12)


def test_inference_and_training_totals(built: Run) -> None:
    rows = built.table("Память сценария")
    assert rows["вывод: параметры, вход, активации"][:2] == ("17,40", "8,70")
    assert rows["обучение: всё"][:2] == ("62,10", "31,05")


def test_reference_formulas_give_the_table() -> None:
    scenario = {"batch_size": 8, "max_length": 1024}
    assert round(formulas.calculate_param_memory(4e9, 4), 2) == 14.90
    assert round(formulas.calculate_gradient_memory(4e9, 2), 2) == 7.45
    assert round(formulas.calculate_optimizer_memory(4e9, 4), 2) == 29.80
    assert round(formulas.calculate_input_data_memory(**scenario, bytes_per_token_id=4), 6) == 0.000031
    activations = formulas.calculate_activation_memory(**scenario, num_layers=32, embedding_dim=2560, bytes_per_param=4)
    assert activations == 2.5


def test_the_account_agrees_about_sixteen_bytes(built: Run) -> None:
    """16 байт на параметр счёт даёт сам, из рецепта, а не из формулы урока."""
    gemma = preset("gemma-3-4b")
    states = ("weights", "master_weights", "gradients", "optimizer")
    for recipe, bytes_each in (("fp32", 16), ("mixed", 16), ("bf16", 8)):
        account = training_memory(gemma, recipe=recipe)
        assert sum(account[part] for part in states) == bytes_each * 3_880_263_168
    assert built.prose["c_states"] == f"64{NBSP}ГБ"
    assert built.prose["c_states_gib"] == f"59,60{NBSP}ГиБ"
    assert {row[-2] for row in built.table("Байт на параметр").values()} == {"16", "8"}


def test_largest_item_is_the_state_of_the_optimizer(built: Run) -> None:
    assert max(built.names["fp32"], key=built.names["fp32"].get) == "состояние Adam"
    assert built.prose["c_share"] == f"48{NBSP}%"


def test_scenario_and_the_real_model_stand_side_by_side(built: Run) -> None:
    rows = built.table("Условная модель")
    assert rows["параметров"] == (f"4{NBSP}000{NBSP}000{NBSP}000", f"3{NBSP}880{NBSP}263{NBSP}168")
    assert rows["слоёв"] == ("32", "34")


# --- вердикты -------------------------------------------------------------------------------------------------


def test_verdicts_follow_from_usable_memory(built: Run) -> None:
    needs = (17.40, 8.70, 62.10, 31.05)
    rows = built.table("Поместится ли")
    for card in (card for key, card in gpus().items() if key in built.names["CARDS"]):
        _, *verdicts = rows[card.title.removeprefix("NVIDIA ").removeprefix("GeForce ")]
        for need, verdict in zip(needs, verdicts, strict=True):
            left = card.usable_bytes / GIB - need
            assert verdict.startswith("да" if left > 0 else "нет")
            assert value(verdict[verdict.index("(") + 1 : -1].replace("+", "")) == pytest.approx(left, abs=0.011)


def test_sixteen_and_thirty_two_gigabytes(built: Run) -> None:
    rows = built.table("Поместится ли")
    assert [cell.split()[0] for cell in rows["T4"][1:]] == ["нет", "да", "нет", "нет"]
    assert [cell.split()[0] for cell in rows["RTX 5090"][1:]] == ["да", "да", "нет", "да"]
    assert gpu("t4").usable_bytes < 16 * GIB, "вердикт — по доступной памяти, а не по коробке"


def test_estimated_memory_is_marked(built: Run) -> None:
    rows = built.table("Поместится ли")
    assert {name for name, row in rows.items() if row[0].startswith("≈")} == {"RTX 4080"}


def test_t4_has_no_bfloat16(built: Run) -> None:
    assert "bf16" not in gpu("t4").flops_per_s
    assert built.prose["v_fp16"] == str(round(65 / 8.1))


# --- честные замечания ----------------------------------------------------------------------------------------


def test_real_activations_are_an_order_above_the_formula(built: Run) -> None:
    for name, L in (("геометрия сценария", 32), ("Gemma 3 4B", 34)):
        _, by_formula, kept, times, _ = built.table("Активации обучения")[name]
        assert value(by_formula) == pytest.approx(8 * 1024 * L * 2560 * 4 / GIB, abs=0.006)
        assert value(kept) > 10 * value(by_formula)
        assert value(times) == pytest.approx(value(kept) / value(by_formula), rel=0.01)


def test_inference_keeps_less_but_has_a_cache(built: Run) -> None:
    _, scenario = built.names["inference_rows"][0][0], built.names["inference_rows"][0][1:]
    by_formula, buffers, cache = scenario
    assert buffers < by_formula
    assert cache == 2 * by_formula == 5.0  # 2·B·S·L·D·4 / 2³⁰ при K·H = D
    gemma_cache = built.names["inference_rows"][1][3]
    assert gemma_cache == pytest.approx(2 * 8 * 1024 * 34 * 4 * 256 * 4 / GIB)


def test_token_numbers_do_not_shrink(built: Run) -> None:
    assert built.names["inputs"] == {"fp32": 2 * 8 * 8 * 1024, "bf16": 2 * 8 * 8 * 1024}


def test_gigabytes_are_not_gibibytes(built: Run) -> None:
    assert built.prose["u_gap"] == f"7,4{NBSP}%"
    assert built.prose["u_sixteen"] == f"14,90{NBSP}ГиБ"
    assert built.prose["g_gemma"] == f"14,455{NBSP}ГиБ"
    assert round(3_880_263_168 * 4 / GIB, 3) == 14.455
    assert built.prose["g_share"] == f"13,3{NBSP}ГиБ"
    assert f"16,00{NBSP}ГБ = 14,90{NBSP}ГиБ" in built.printed


def test_whole_account_of_gemma(built: Run) -> None:
    rows = built.table("Обучение Gemma 3 4B, пакет")
    for column, recipe in enumerate(("fp32", "mixed", "bf16")):
        total = training_memory(preset("gemma-3-4b"), B=8, S=1024, recipe=recipe).total
        assert value(rows["всего"][column]) == pytest.approx(total / GIB, abs=0.006)
        assert sum(value(row[column]) for name, row in rows.items() if name != "всего") == pytest.approx(
            total / GIB, abs=0.03
        )


def test_figures_tell_the_same_numbers(built: Run) -> None:
    assert "62,10" in built.figure("calculator").alt
    assert "31,05" in built.figure("calculator").alt
    assert built.prose["r_fp32"] in built.figure("gemma-training").alt


# --- измерение ------------------------------------------------------------------------------------------------


def test_forecast_equals_the_measurement_component_by_component(built: Run) -> None:
    rows = built.table("NanoLM, шаг обучения")
    exact = {"параметры", "вход", "активации", "логиты", "градиенты", "моменты Adam"}
    assert set(rows) == exact | {"пик шага"}
    for forecast, measured, difference in (rows[name] for name in exact):
        assert forecast == measured
        assert difference == "0"
    assert value(rows["параметры"][1]) == 4 * sum(
        # V·D дважды, слои, последняя норма: геометрия маленькой модели урока.
        (2 * 1000 * 192, 4 * (2 * 192 * 192 + 2 * 192 * 64 + 3 * 192 * 512 + 2 * 192), 192)
    )
    assert built.prose["p_result"] == "сошлись до байта"


def test_peak_of_the_step_is_within_the_tolerance(built: Run) -> None:
    forecast, measured, _ = built.table("NanoLM, шаг обучения")["пик шага"]
    assert value(measured) == pytest.approx(value(forecast), rel=0.02)
    assert built.prose["p_tolerance"] == f"2{NBSP}%"


def test_page_would_notice_a_wrong_forecast(built: Run) -> None:
    """Прогноз, который ошибся на байт, роняет ячейку сверки — а с ней и сборку."""
    (check,) = [cell.source for cell in cells(LESSON) if "measured[name] == predicted[name]" in cell.source]
    predicted = dict(built.names["predicted"])
    execute(check, Run(names={"measured": built.names["measured"], "predicted": predicted}), "check")
    predicted["активации"] += 1
    with pytest.raises(AssertionError, match="активации"):
        execute(check, Run(names={"measured": built.names["measured"], "predicted": predicted}), "check")
    assert built.names["measured"]["активации"] > 10 * built.names["by_formula"]


def test_lesson_reads_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "nanolm.probe", raising=False)  # уже загруженная проба torch не ищет
    run = run_lesson(LESSON)
    assert "PyTorch не установлен" in run.printed
    assert {row[1] for row in run.table("NanoLM, шаг обучения").values()} == {"—"}
    assert "не удалось" in run.prose["p_result"]


# --- что поможет ----------------------------------------------------------------------------------------------


def test_every_measure_helps(built: Run) -> None:
    totals = [value(row[0]) for row in built.table("Обучение всех весов").values()]
    assert len(totals) == 6
    assert totals == sorted(totals, reverse=True)
    assert len(set(totals)) == 6


def test_smallest_card_holds_and_the_smaller_one_does_not(built: Run) -> None:
    ladder = [gpu(key) for key in built.names["LADDER"]]
    titles = [card.title.removeprefix("NVIDIA ").removeprefix("GeForce ") for card in ladder]
    for total, _, _, title, left in built.table("Обучение всех весов").values():
        if title not in titles:
            assert all(card.usable_bytes / GIB < value(total) for card in ladder)
            continue
        index = titles.index(title)
        assert ladder[index].usable_bytes / GIB - value(total) == pytest.approx(value(left.split(NBSP)[0]), abs=0.06)
        assert ladder[index].usable_bytes / GIB > value(total) - 0.01
        assert all(card.usable_bytes / GIB < value(total) for card in ladder[:index])


# --- упражнения -----------------------------------------------------------------------------------------------


def test_build_checks_the_folded_solutions(built: Run) -> None:
    assert {id_: result.status for id_, result in built.checks().items()} == dict.fromkeys(EXERCISES, "correct")


def test_untouched_stubs_are_not_started_and_nothing_below_breaks() -> None:
    """Учащийся нажал «Выполнить всё»: решения не подменили заготовок, остальной урок выполнился."""
    run = run_lesson(LESSON, learner={})
    assert {id_: result.status for id_, result in run.checks().items()} == dict.fromkeys(EXERCISES, "not_started")
    assert run.prose["c_training"] == f"62,10{NBSP}ГиБ"


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_exercise_is_three_cells_in_order(exercise_id: str) -> None:
    name = EXERCISES[exercise_id]
    kinds = {"exercise", "solution", "check"}
    order = [next(iter(tags(c) & kinds)) for c in cells(LESSON) if tags(c) & kinds and name in c.source]
    assert order == ["exercise", "solution", "check"]
    calls = [ast.unparse(ast.parse(cell.source).body[0]) for cell in cells(LESSON) if "check" in tags(cell)]
    assert f"check('{exercise_id}', {name})" in calls
    assert any(defined(cell.source) == {name} for cell in cells(LESSON) if "exercise" in tags(cell))


PARAM = "param_count, bytes_per_param"
TOKENS = "batch_size, max_length, bytes_per_token_id"
ALL = "batch_size, max_length, num_layers, embedding_dim, bytes_per_param"
#: (упражнение, аргументы, тело, итог, названная ошибка)
ATTEMPTS = [
    ("7.4/params", PARAM, "return param_count * bytes_per_param / 1024**3", "correct", None),
    ("7.4/params", PARAM, "return param_count * bytes_per_param / 1e9", "wrong", "gb-for-gib"),
    ("7.4/params", PARAM, "return param_count * bytes_per_param", "wrong", "bytes-for-gib"),
    ("7.4/params", PARAM, "return param_count * bytes_per_param * 8 / 1024**3", "wrong", "bits-for-bytes"),
    ("7.4/params", PARAM, "return 14.901161193847656", "wrong", "constant"),
    ("7.4/params", PARAM, "return ...", "not_started", None),
    ("7.4/params", PARAM, "return param_count / 0", "error", None),
    ("7.4/input", TOKENS, "return batch_size * max_length * bytes_per_token_id / 2**30", "correct", None),
    ("7.4/input", TOKENS, "return max_length * bytes_per_token_id / 2**30", "wrong", "batch-forgotten"),
    ("7.4/gradients", PARAM, "return 2 * param_count * bytes_per_param / 2**30", "wrong", None),
    ("7.4/gradients", PARAM, "print(param_count * bytes_per_param / 2**30)", "wrong", "printed-not-returned"),
    ("7.4/optimizer", PARAM, "return 2 * param_count * bytes_per_param / 2**30", "correct", None),
    ("7.4/optimizer", PARAM, "return param_count * bytes_per_param / 2**30", "wrong", "moments-once"),
    ("7.4/activations", ALL, f"return {ALL.replace(', ', ' * ')} / 2**30", "correct", None),
    (
        "7.4/activations", ALL, "return batch_size * max_length * embedding_dim * bytes_per_param / 2**30",
        "wrong", "layers-forgotten",
    ),
    (
        "7.4/activations", ALL, "return max_length * num_layers * embedding_dim * bytes_per_param / 2**30",
        "wrong", "batch-forgotten",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("exercise_id", "arguments", "body", "status", "misconception"), ATTEMPTS)
def test_learner_tries(exercise_id: str, arguments: str, body: str, status: str, misconception: str | None) -> None:
    name = EXERCISES[exercise_id]
    result = attempt(LESSON, name, f"def {name}({arguments}):\n    {body}\n", exercise_id)
    assert result.status == status, str(result)
    if misconception:
        assert result.misconception == misconception, str(result)
    assert "Traceback" not in str(result)
