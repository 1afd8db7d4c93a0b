"""Неделя 9: числа страницы против формул из учебника, упражнения глазами учащегося, сверка с измерением.

Ожидаемые числа — из геометрии Llama-3-8B и правил, а не из `nanolm`: ошибка в счёте не спрячется за собой же.
"""

from __future__ import annotations

import ast
import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from lesson_run import Run, attempt, cells, defined, execute, run_lesson, tags

from nanolm import exercises, records

LESSON = "week_09_buhgalteriya"
WEEK = Path(__file__).resolve().parent.parent / "lessons" / f"{LESSON}.py"
#: Упражнение → имя функции учащегося, в порядке урока.
EXERCISES = {
    "9/swiglu-width": "swiglu_width",
    "9/params": "count_params",
    "9/flops-rule": "flops_rule",
    "9/flops-per-token": "flops_per_token",
    "9/training-time": "training_days",
    "9/kv-cache": "kv_cache_bytes",
    "9/crossover-batch": "crossover_batch",
    "9/moe-active": "moe_params",
    "9/moe-costs": "moe_costs",
}


@pytest.fixture(scope="module")
def built() -> Run:
    """Урок, выполненный так, как его выполняет сборка."""
    return run_lesson(LESSON)


@pytest.fixture(scope="module")
def week(built: Run) -> dict[str, Any]:
    """Числа, переданные в текст; ключ «» — имена урока."""
    return {**built.prose, "": built.names}


def without_torch(learner: dict[str, str] | None = None) -> Run:
    """Выполнить урок там, где PyTorch не установлен."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", None)
        return run_lesson(LESSON, learner=learner)


@pytest.fixture(scope="module")
def untouched() -> Run:
    """Учащийся без PyTorch нажал «Выполнить всё», ничего не вписав."""
    return without_torch({})


# --- числа страницы -------------------------------------------------------------------------------------------

#: Геометрия Llama-3-8B из config.json и формулы из учебника: ничего из nanolm.
V, D, L, N, K, H, F, S = 128256, 4096, 32, 32, 8, 128, 14336, 8192
LAYERS = L * (2 * D * N * H + 2 * D * K * H + 3 * D * F)
TOTAL = 2 * V * D + LAYERS + (2 * L + 1) * D


def ru(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".translate({44: "\u00a0", 46: ","})


EXPECTED = {
    # шаг 1
    "p_rule": ru((2 * V * D + 12 * L * D**2) / 1e9, 2) + "\u00a0млрд",
    "p_rule_vocab": ru(2 * V * D / 1e9, 2) + "\u00a0млрд",
    "p_rule_layers": ru(12 * L * D**2 / 1e9, 2) + "\u00a0млрд",
    "p_exact": ru(TOTAL / 1e9, 2) + "\u00a0млрд",
    "p_attn": ru(L * (2 * D * N * H + 2 * D * K * H) / 1e9, 2) + "\u00a0млрд",
    "p_attn_rule": ru(4 * L * D**2 / 1e9, 2) + "\u00a0млрд",
    "p_ffn": ru(3 * L * D * F / 1e9, 2) + "\u00a0млрд",
    "p_ffn_rule": ru(8 * L * D**2 / 1e9, 2) + "\u00a0млрд",
    "p_f_over_d": "3,5",
    "gpt2_border": ru(6 * 12 * 768, 0),
    "gpt2_share": ru(100 * 50257 * 768 / 124_439_808, 0) + "\u00a0%",
    # шаг 2
    "f_head": ru(6 * V * D / 1e9, 2) + "\u00a0млрд",
    "s_rule": ru(6 * D, 0),
    "s_full": ru(LAYERS * 6 / (12 * L * D), 0),
    "s_head": ru((LAYERS + V * D) * 6 / (12 * L * D), 0),
    "s_causal": ru(2 * LAYERS * 6 / (12 * L * D) - 1, 0),
    "chinchilla_ratio": "20",
    "t_lab_mfu": "41\u00a0%",
    "t_llama_ratio": ru(15e12 / TOTAL, 0),
    "t_llama_times": ru(15e12 / TOTAL / 20, 0) + "\u00a0раза",
    # шаг 3
    "m_seven_gb": "112\u00a0ГБ",
    "m_seven_gib": ru(16 * 7e9 / 2**30, 1) + "\u00a0ГиБ",
    "m_states": ru(16 * TOTAL / 2**30, 1) + "\u00a0ГиБ",
    "m_gib_gap": "7,4\u00a0%",
    "a_expanded": "384\u00a0ГиБ",
    "a_all": "348\u00a0ГиБ",
    "a_all_d": "21,75",
    "a_naive": ru(2 * 8 * N * S**2 * L / 2**30, 0) + "\u00a0ГиБ",
    "kv_token": "128",
    "kv_full": "1\u00a0ГиБ",
    "kv_mha": "4\u00a0ГиБ",
    "kv_equal": ru(2 * TOTAL / (2 * S * L * K * H * 2), 2),
    "kv_equal_round": "15",
    "kv_equal_short": "30",
    # собеседование и смесь экспертов
    "i_states": "112\u00a0ГБ",
    "i_eight": "14\u00a0ГБ",
    "i_8bit": "70\u00a0ГБ",
    "i_block": ru((2 * (7 * 4096 + 4 * 11008) + 4 * (32 + 2)) * 4096 / 1e9, 1) + "\u00a0ГБ",
    "i_adapters": ru(32 * 16 * (8 * 4096 + 3 * (4096 + 11008)) / 1e6, 1) + "\u00a0млн",
    "b_block": ru((2 * (20.5 - 1) * D + 4 * (N + 2)) * S / 2**30, 1) + "\u00a0ГиБ",
    "b_logits": ru((4 + 4 + 2) * S * V / 2**30, 1) + "\u00a0ГиБ",
    "x_big_d": "20,5",
    "moe_total": "12,0\u00a0млрд",
    "moe_active": "3,36\u00a0млрд",
    "moe_ratio": "3,6",
    "moe_weights": "24\u00a0ГБ",
    "moe_states": "192\u00a0ГБ",
    "moe_flops": "2·10¹⁰",
    "moe_deepseek": "18",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_tells_the_right_number(week: dict[str, Any], name: str) -> None:
    assert week[name] == EXPECTED[name]


def test_guards_its_key_numbers_on_the_page(week: dict[str, Any]) -> None:
    """Проверки видны читателю и стоят в ячейках, которые выполняет сборка."""
    guards = "\n".join(cell.source for cell in cells(LESSON))
    for number in ("8_030_261_248", "3_152_019_456", "26_624", "124_439_808", "== 384", "== 348", "== GIB"):
        assert re.search(rf"assert .*{re.escape(number)}", guards), number
    assert week[""]["exact"].total == TOTAL == 8_030_261_248


def test_head_share_depends_on_the_convention(week: dict[str, Any]) -> None:
    head, products = 6 * V * D, 6 * (LAYERS + V * D)
    expected = [
        head / products,
        head / (products + 12 * L * D * (S + 1) / 2),
        head / (products + 12 * L * D * S),
    ]
    shown = [head / total for total in week[""]["conventions"].values()]
    assert shown == pytest.approx(expected, rel=1e-9)
    assert [ru(100 * share, 1) for share in shown] == ["7,0", "6,1", "5,4"]


def test_names_every_classic_mistake() -> None:
    source = WEEK.read_text(encoding="utf-8")
    for mistake in (
        "F = 4D у SwiGLU", "связанная голова посчитана дважды", "2N: забыт обратный проход", "4N: забыт один",
        "эмбеддинг внутри 6N", "кеш по N головам", "забыта двойка", "биты вместо байт",
        "моменты Adam посчитаны один раз", "ГБ приняты за ГиБ",
        "в активациях забыт пакет", "в активациях забыты слои", "FLOPs смеси по полному числу",
        "память смеси по активному числу",
    ):  # fmt: skip
        assert f'"{mistake}' in source, mistake


def test_estimate_agrees_with_the_account(week: dict[str, Any]) -> None:
    names = week[""]
    by_hand = 6 * 7e9 * 1e12 / (64 * 4.5e14) / 86_400
    assert names["by_hand"] == pytest.approx(by_hand)
    assert names["plans"][64].days == pytest.approx(by_hand, rel=0.15)
    assert names["plans"][8].cost == pytest.approx(names["plans"][512].cost)


def test_critical_batch_of_the_mixture(week: dict[str, Any]) -> None:
    critical = week[""]["critical"]
    ratio = critical["смесь экспертов"] / critical["плотный двойник"]
    assert 3.4 < ratio < 12 / 3.36  # голова модели одинакова у обеих и сближает их


def test_cures_only_help(week: dict[str, Any]) -> None:
    totals = [account.total for account in week[""]["budgets"].values()]
    assert totals == sorted(totals, reverse=True)
    assert totals[-1] > week[""]["h100"].usable_bytes  # даже со всеми мерами на одну карту не помещается


def test_peak_names_its_moment_and_the_block_is_not_added_to_it(week: dict[str, Any]) -> None:
    names = week[""]
    with_blocks, kept, saved = names["checkpointed"], names["without"], L * names["block"]
    assert with_blocks.total == with_blocks.moments[with_blocks.moment] == max(with_blocks.moments.values())
    # В пике чекпоинтинг сберёг все активации, кроме входов слоёв.
    assert kept.moments[with_blocks.moment] - with_blocks.total == pytest.approx(saved)
    # А внутри последнего слоя он уже пересчитан, и сбережено на один слой меньше.
    inside = "градиент полносвязного блока"
    assert kept.moments[inside] - with_blocks.moments[inside] == pytest.approx(saved - names["block"], rel=0.01)


# --- сверка с измерением --------------------------------------------------------------------------------------

#: Геометрия крошечной модели урока.
MINI = {"V": 131, "D": 96, "L": 3, "N": 6, "K": 2, "H": 24, "F": 160, "S": 128}


def value(cell: str) -> int:
    """Целое из ячейки таблицы, без разницы в скобках."""
    return int(cell.partition("(")[0].replace("\u00a0", "").replace("−", "-"))


def textbook() -> tuple[int, int]:
    """Параметры и FLOPs прямого прохода крошечной модели: формулы с доски."""
    v, d, layers, n, k, h, f, s = MINI.values()
    matrices = layers * (2 * d * n * h + 2 * d * k * h + 3 * d * f)
    parameters = 2 * v * d + matrices + (2 * layers + 1) * d
    tokens = 2 * s
    return parameters, tokens * (2 * (matrices + v * d) + 4 * layers * s * n * h)


def test_every_variant_is_measured_and_agrees(built: Run) -> None:
    assert set(built.table("Параметры и FLOPs")) == set(built.table("Память, байт")) == set(built.names["variants"])
    assert set(built.table("Пик памяти, байт")) == set(built.names["variants"])
    rows = [row for rows in built.names["verified"].values() for row in rows]
    assert len(rows) > 100
    assert all(row.measured == row.predicted for row in rows if row.exact)
    assert {row.name for row in rows if not row.exact} == {"peak"}
    assert all(abs(row.measured / row.predicted - 1) < 0.02 for row in rows)


def test_measured_work_equals_the_formulas_of_the_board(built: Run) -> None:
    parameters, forward = textbook()
    rows = built.table("Параметры и FLOPs")
    for name in ("fp32", "bf16", "наивное внимание", "полный чекпоинтинг"):
        assert [value(cell) for cell in rows[name][:3]] == [parameters, forward, 2 * forward]
    assert value(rows["связанная голова, mixed"][0]) == parameters - MINI["V"] * MINI["D"]
    assert value(rows["связанная голова, mixed"][1]) == forward
    # Наивное внимание ничего не пересчитывает. Чекпоинтинг повторяет прямой проход слоёв — без головы
    # и без последнего произведения слоя: его результат обратному проходу не нужен.
    assert value(rows["наивное внимание"][3]) == 2 * forward
    tokens = 2 * MINI["S"]
    head = 2 * tokens * MINI["V"] * MINI["D"]
    down = 2 * tokens * MINI["L"] * MINI["D"] * MINI["F"]
    assert value(rows["полный чекпоинтинг"][3]) - value(rows["fp32"][3]) == forward - head - down


def test_measured_memory_equals_the_formulas_of_the_board(built: Run) -> None:
    parameters, _ = textbook()
    rows = built.table("Память, байт")
    cache = 2 * 2 * MINI["S"] * MINI["L"] * MINI["K"] * MINI["H"]
    assert [value(rows[name][1]) for name in ("fp32", "bf16")] == [8 * parameters, 4 * parameters]
    assert [value(rows[name][2]) for name in ("fp32", "bf16")] == [4 * cache, 2 * cache]
    assert value(rows["полный чекпоинтинг"][0]) < value(rows["fp32"][0]) < value(rows["наивное внимание"][0])
    peaks = built.table("Пик памяти, байт")
    # Урок говорит о трёх разных моментах, и последний — внутри пересчитанного слоя.
    told = [peaks[name][1] for name in ("fp32", "наивное внимание", "полный чекпоинтинг")]
    assert len(set(told)) == 3
    assert told[2] in ("градиент полносвязного блока", "градиент матрицы сжатия", "градиент внимания")
    states = 4 * parameters + 4 * parameters + 8 * parameters
    assert value(peaks["fp32"][0]) > states + value(rows["fp32"][0])
    # С чекпоинтингом пик — не состояния и сохранённое, а ещё и пересчитанный слой.
    assert value(peaks["полный чекпоинтинг"][0]) > states + value(rows["полный чекпоинтинг"][0])


def test_llama_on_the_meta_device(built: Run) -> None:
    forward = S * (2 * (LAYERS + V * D) + 4 * L * S * N * H)
    assert built.names["large"]["flops.forward"] == (forward, forward)
    assert built.names["large"]["parameters"] == (TOTAL, TOTAL)
    assert f"{ru(forward, 0)} = {ru(forward, 0)}" in built.printed


def test_blind_spots_are_shown_and_closed(built: Run) -> None:
    rows = built.table("FLOPs прямого прохода на процессоре")
    assert {row[0] for row in rows.values()} == {"0"}
    assert [value(row[1]) for row in rows.values()] == [4 * 4 * 16**2 * 32, 2 * 24 * 16 * 8]
    assert all(row[1] == row[2] for row in rows.values())


def test_guard_of_the_page_notices_a_wrong_forecast(built: Run) -> None:
    """Ячейка со сверкой падает, стоит одному прогнозу ошибиться на единицу."""
    from dataclasses import replace

    (guard,) = [cell.source for cell in cells(LESSON) if "assert not row.exact" in cell.source]
    rows = built.names["verified"]["fp32"]
    execute(guard, Run(names={"verified": {"fp32": rows}}), "guard")
    wrong = [replace(rows[0], predicted=rows[0].predicted + 1), *rows[1:]]
    with pytest.raises(AssertionError):
        execute(guard, Run(names={"verified": {"fp32": wrong}}), "guard")


def test_figure_of_the_forecast_repeats(built: Run) -> None:
    """Второе измерение даёт те же числа, пик памяти тоже, а значит, и те же байты рисунка."""
    from nanolm.probe import verify

    spec, options = built.names["variants"]["наивное внимание"]
    again = [row for row in verify(spec, B=2, **options) if row.name != "peak.with_scratch"]
    assert again == built.names["verified"]["наивное внимание"]
    figure = built.figure("forecast-and-measurement")
    assert figure.svg.count("<use") > len(built.names["checked"])
    assert f"{len(built.names['checked'])} точек" in figure.alt


def test_lesson_reads_without_torch() -> None:
    run = without_torch()
    assert "PyTorch не установлен" in run.printed
    assert run.prose["p_exact"] == EXPECTED["p_exact"]
    assert run.prose["v_exact"] == run.prose["v_gap"] == "—"
    assert len(run.checks()) == 9


# --- запись с видеокарты --------------------------------------------------------------------------------------


def card_cells(names: dict[str, Any], folder: Path, patch: pytest.MonkeyPatch) -> Run:
    """Выполнить ячейки о записи так, будто урок открыт в этой папке."""
    patch.chdir(folder)
    run = Run(names=dict(names))
    sources = [cell.source for cell in cells(LESSON) if "card_spec" in cell.source and "gpu" not in tags(cell)]
    with redirect_stdout(io.StringIO()):
        for index, source in enumerate(sources):
            execute(source, run, f"card[{index}]")
    return run


def card_record(spec: Any, **sizes: int) -> dict[str, Any]:
    return records.build(
        "verify",
        machine={"name": "Пробная карта", "memory_bytes": 16 * 10**9, "driver": "1"},
        software={"python": "3.11", "torch": "2.13.0", "cuda": "13.0"},
        spec=spec.to_dict(),
        workload={"B": 8, "S": 1024, "recipe": "mixed"},
        samples_s={},
        sizes=sizes,
        probe_version=1,
    )


def test_without_a_record_the_page_shows_only_the_forecast(built: Run, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        run = card_cells(built.names, tmp_path, patch)
    rows = run.table("Измерения на видеокарте ещё нет")
    assert {row[1] for row in rows.values()} == {"—"}
    v, d, layers, f = 32_000, 768, 12, 2048
    parameters = 2 * v * d + layers * (2 * d * 768 + 2 * d * 256 + 3 * d * f) + (2 * layers + 1) * d
    names = ("веса", "мастер-веса", "градиенты", "состояние оптимизатора")
    assert [value(rows[name][0]) for name in names] == [2 * parameters, 4 * parameters, 2 * parameters, 8 * parameters]


def test_record_stands_next_to_the_forecast(built: Run, tmp_path: Path) -> None:
    spec = built.names["card_spec"]
    half = built.names["card_forecast"]()["weights"][1] // 2
    records.write(card_record(spec, weights=half), tmp_path / "records" / "week_09_verify.json")
    with pytest.MonkeyPatch.context() as patch:
        run = card_cells(built.names, tmp_path, patch)
    rows = run.table("Пробная карта")
    assert (value(rows["веса"][1]), rows["веса"][2]) == (half, "0,5000")
    assert rows["градиенты"][1:] == ("—", "—")


def test_record_of_another_model_is_not_shown(built: Run, tmp_path: Path) -> None:
    other = built.names["card_spec"].replace(L=11)
    records.write(card_record(other, weights=1), tmp_path / "records" / "week_09_verify.json")
    with pytest.MonkeyPatch.context() as patch:
        run = card_cells(built.names, tmp_path, patch)
    assert run.table("Измерения на видеокарте ещё нет")


def test_card_cell_measures_and_writes(built: Run, tmp_path: Path) -> None:
    """Ячейка с картой: torch подменён так, что карта «есть», а проба — так, что мерит на процессоре."""
    from nanolm import probe

    (cell,) = [cell for cell in cells(LESSON) if "gpu" in tags(cell)]
    commands: list[list[str]] = []
    record = tmp_path / "record.json"

    def main(argv: list[str]) -> int:
        commands.append(argv)
        small = ["--V", "97", "--D", "32", "--L", "1", "--N", "2", "--K", "1", "--H", "8", "--F", "32", "--S", "16"]
        where = argv.index("--record")
        return probe_main(["verify", *small, "--recipe", "mixed", "--device", "cpu", *argv[where : where + 2]])

    probe_main = probe.main
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()):
        patch.setattr("torch.cuda.is_available", lambda: True)
        patch.setattr(probe, "main", main)
        execute(cell.source, Run(names={**built.names, "RECORD": record}), "gpu")
    assert {"--V", "--device", "cuda", "mixed", str(record)} <= set(commands[0])
    assert commands[0][commands[0].index("--S") + 1] == "1024"
    found = records.load(record)
    assert {"weights", "gradients", "optimizer", "saved", "kv_cache", "peak"} <= set(found["bytes"])


def test_card_cell_survives_a_card_that_is_too_small(built: Run, tmp_path: Path) -> None:
    from nanolm import probe

    (cell,) = [cell for cell in cells(LESSON) if "gpu" in tags(cell)]
    output = io.StringIO()

    def refuse(_argv: list[str]) -> int:
        raise SystemExit(2)

    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output):
        patch.setattr("torch.cuda.is_available", lambda: True)
        patch.setattr(probe, "main", refuse)
        execute(cell.source, Run(names={**built.names, "RECORD": tmp_path / "record.json"}), "gpu")
    assert "не удалось" in output.getvalue()


def test_the_same_measurement_does_not_touch_the_record(built: Run, tmp_path: Path) -> None:
    """Иначе каждая сборка с картой меняла бы отпечаток всех уроков; другое измерение запись меняет."""
    spec, path = built.names["card_spec"], tmp_path / "record.json"
    first = {**card_record(spec, peak=1), "measured_at": "2026-01-01T00:00:00+00:00"}
    records.write(first, path)
    records.write(card_record(spec, peak=1), path)
    assert records.load(path)["measured_at"].startswith("2026-01-01T00")
    records.write(card_record(spec, peak=2), path)
    assert records.load(path)["bytes"] == {"peak": 2}


# --- упражнения -----------------------------------------------------------------------------------------------


def test_build_checks_the_folded_solutions(built: Run) -> None:
    assert {id_: result.status for id_, result in built.checks().items()} == dict.fromkeys(EXERCISES, "correct")


def test_every_exercise_of_the_week_stands_in_the_lesson(built: Run) -> None:
    assert set(built.checks()) == {exercise.id for exercise in exercises.exercises("9")}
    assert list(built.checks()) == list(EXERCISES)


def test_untouched_stubs_are_not_started_and_nothing_below_breaks(untouched: Run) -> None:
    statuses = {id_: result.status for id_, result in untouched.checks().items()}
    assert statuses == dict.fromkeys(EXERCISES, "not_started")
    assert untouched.prose["kv_full"] == EXPECTED["kv_full"]
    assert untouched.prose["moe_ratio"] == EXPECTED["moe_ratio"]


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_exercise_is_three_cells_in_order(exercise_id: str) -> None:
    name = EXERCISES[exercise_id]
    kinds = {"exercise", "solution", "check"}
    order = [
        next(iter(tags(c) & kinds)) for c in cells(LESSON) if tags(c) & kinds and re.search(rf"\b{name}\b", c.source)
    ]
    assert order == ["exercise", "solution", "check"]
    calls = [ast.unparse(ast.parse(cell.source).body[0]) for cell in cells(LESSON) if "check" in tags(cell)]
    assert f"check('{exercise_id}', {name})" in calls
    assert any(defined(cell.source) == {name} for cell in cells(LESSON) if "exercise" in tags(cell))


@pytest.mark.parametrize("name", EXERCISES.values())
def test_the_lesson_leaves_the_names_of_exercises_free(name: str) -> None:
    """Имена упражнений те же, что в `nanolm.budget`: урок не должен ни занять их, ни звать ответ учащегося."""
    for cell in cells(LESSON):
        if not tags(cell) & {"exercise", "solution", "check"}:
            free = [node.id for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)]
            imported = [
                alias.name
                for node in ast.walk(ast.parse(cell.source))
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            ]
            assert name not in [*free, *imported], cell.source[:60]


#: Упражнение → слова ответа, которых до проверки быть не должно.
ANSWERS = {
    "9/swiglu-width": r"8}{3}D",
    "9/params": "2DNH",
    "9/flops-per-token": "12LSD",
    "9/training-time": r"\frac{6PT}",
    "9/kv-cache": r"2 \cdot B \cdot S",
    "9/crossover-batch": "Весь расчёт точки равенства",
    "9/moe-costs": "память считают по полному",
}


@pytest.mark.parametrize("exercise_id", ANSWERS)
def test_the_answer_stands_after_the_check(exercise_id: str) -> None:
    text = WEEK.read_text(encoding="utf-8")
    place = text.index(f'check("{exercise_id}"')
    assert ANSWERS[exercise_id] not in text[:place]
    assert ANSWERS[exercise_id] in text[place:]


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_hint_is_within_reach(exercise_id: str) -> None:
    text = WEEK.read_text(encoding="utf-8")
    assert f'hint("{exercise_id}")' in text
    start = text.index(f"def {EXERCISES[exercise_id]}(")
    assert "<summary>С чего начать</summary>" in text[start : text.index(f'check("{exercise_id}"')]


#: (упражнение, аргументы, тело, итог, названная ошибка)
PARAMS = "V, D, L, N, K, H, F, tie_embeddings"
KV = "B, S, L, N, K, H, bytes_per_value"
TIME = "n_params, tokens, gpus, peak_flops_per_s, mfu"
LAYER = "(2 * D * N * H + 2 * D * K * H + 3 * D * F + 2 * D)"
ATTEMPTS = [
    ("9/swiglu-width", "D", "return (16 * D + 3) // 6", "correct", None),
    ("9/swiglu-width", "D", "return 4 * D", "wrong", "four-d"),
    ("9/swiglu-width", "D", "return int(8 * D / 3)", "wrong", "floor"),
    ("9/swiglu-width", "D", "return 8 * D / 3", "wrong", "fraction"),
    ("9/swiglu-width", "D", "return ...", "not_started", None),
    ("9/params", PARAMS, f"return (1 if tie_embeddings else 2) * V * D + L * {LAYER} + D", "correct", None),
    ("9/params", PARAMS, f"return 2 * V * D + L * {LAYER} + D", "wrong", "tied-counted-twice"),
    ("9/params", PARAMS, "return (2 - tie_embeddings) * V * D + 12 * L * D**2", "wrong", "rule-of-thumb"),
    (
        "9/params", PARAMS,
        f"return (2 - tie_embeddings) * V * D + L * {LAYER.replace('D * K', 'D * N')} + D", "wrong", "gqa-ignored",
    ),
    ("9/params", "V, D, L", "return 2 * V * D + 12 * L * D**2", "error", "wrong-arity"),
    ("9/flops-rule", "total_params, V, D, tie_embeddings", "return 6 * total_params", "wrong", "embeddings-in-6n"),
    (
        "9/flops-rule", "total_params, V, D, tie_embeddings",
        "return 2 * (total_params - (2 - tie_embeddings) * V * D)", "wrong", "forward-only",
    ),
    ("9/flops-per-token", "n_params, L, S, D", "return 6 * n_params + 12 * L * S * D", "correct", None),
    ("9/flops-per-token", "n_params, L, S, D", "return 6 * n_params", "wrong", "attention-forgotten"),
    (
        "9/flops-per-token", "n_params, L, S, D", "return 6 * n_params + 4 * L * S * D",
        "wrong", "attention-forward-only",
    ),
    (
        "9/training-time", TIME, "return 6 * n_params * tokens / (gpus * peak_flops_per_s * mfu) / 86400",
        "correct", None,
    ),
    (
        "9/training-time", TIME, "return 6 * n_params * tokens / (gpus * peak_flops_per_s) / 86400",
        "wrong", "mfu-forgotten",
    ),
    (
        "9/training-time", TIME, "return 6 * n_params * tokens / (gpus * peak_flops_per_s * mfu)",
        "wrong", "seconds",
    ),
    ("9/kv-cache", KV, "return 2 * B * S * L * K * H * bytes_per_value", "correct", None),
    ("9/kv-cache", KV, "return 2 * B * S * L * N * H * bytes_per_value", "wrong", "query-heads"),
    ("9/kv-cache", KV, "return B * S * L * K * H * bytes_per_value", "wrong", "factor-two-forgotten"),
    ("9/kv-cache", KV, "print(2 * B * S * L * K * H * bytes_per_value)", "wrong", "printed-not-returned"),
    ("9/kv-cache", KV, "return 2 * B * S * L * K * h * bytes_per_value", "error", None),
    (
        "9/crossover-batch", "weight_bytes, S, L, K, H, bytes_per_value",
        "return weight_bytes / (S * L * K * H * bytes_per_value)", "wrong", "factor-two-forgotten",
    ),
    (
        "9/moe-active", "L, attention, expert, E, k",
        "return L * (attention + E * expert), L * (attention + k * expert)", "correct", None,
    ),
    (
        "9/moe-active", "L, attention, expert, E, k",
        "return L * E * (attention + expert), L * k * (attention + expert)", "wrong", "attention-per-expert",
    ),
    ("9/moe-active", "L, attention, expert, E, k", "return ..., ...", "not_started", None),
    (
        "9/moe-costs", "total_params, active_params, bytes_per_param",
        "return total_params * bytes_per_param, 6 * total_params", "wrong", "flops-by-total",
    ),
    (
        "9/moe-costs", "total_params, active_params, bytes_per_param",
        "return active_params * bytes_per_param, 6 * active_params", "wrong", "memory-by-active",
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
