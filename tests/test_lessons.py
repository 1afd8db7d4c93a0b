"""Уроки как тексты и как программы: разметка, ссылки, числа из расчёта; значения недели 9 — независимой формулой.

Урок — один файл py:percent. Его беды — не ошибки Python: забытая решётка превращает прозу в код, число,
набранное руками, врёт после первой же правки, ссылка на термин ведёт в никуда. Всё это ловится чтением.
"""

from __future__ import annotations

import ast
import io
import re
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import jupytext
import pytest

from nanolm import figures

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted(path for pattern in ("lab_*.py", "week_*.py") for path in (ROOT / "lessons").glob(pattern))
WEEK = ROOT / "lessons" / "week_09_buhgalteriya.py"
TAGS = {
    "exercise", "solution", "check", "gpu",
    "skip-execution", "sliders", "hide-input", "hide-output",
    "remove-cell", "remove-input", "remove-output", "raises-exception",
}  # fmt: skip
#: Десятичные дроби, которые в тексте урока — данные источника, а не результат расчёта.
GIVEN = {
    "lab_7_2_flops": {"2,5", "3,3", "97,5"},  # токены обучения, млрд; пик RTX 4080, TFLOPS
    "lab_7_4_pamyat": {"0,9"},  # доля карты, которую отдали распределителю
}

each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def cells(path: Path, kind: str) -> list[Any]:
    notebook = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def markdown(path: Path) -> str:
    return "\n\n".join(cell.source for cell in cells(path, "markdown"))


def prose_only(text: str) -> str:
    """Текст без кода, формул, ролей и адресов: то, что набрано рукой автора."""
    text = re.sub(r"(?ms)^```.*?^```$", " ", text)
    text = re.sub(r"(?s)\$\$.*?\$\$", " ", text)
    return re.sub(r"\{[a-z:]+\}`[^`]*`|`[^`]*`|\$[^$]+\$|\]\([^)]*\)|<[^>]+>", " ", text)


def glued(path: Path) -> list[str]:
    """Имена, которые ячейки передают в текст вызовом `prose`."""
    names = []
    for cell in cells(path, "code"):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "prose":
                names += [keyword.arg for keyword in node.keywords if keyword.arg]
    return names


def test_there_are_lessons() -> None:
    assert WEEK in LESSONS


@each_lesson
def test_file_is_plain_utf8(path: Path) -> None:
    raw = path.read_bytes()
    assert not raw.startswith(b"\xef\xbb\xbf"), "BOM в начале файла"
    assert b"\r" not in raw, "концы строк не LF"
    raw.decode("utf-8")


@each_lesson
def test_markdown_cells_are_comments_to_the_last_line(path: Path) -> None:
    inside = False
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if line.startswith("# %%"):
            inside = "[markdown]" in line
        elif inside and line.strip():
            assert line.startswith("#"), f"строка {number}: код сразу после текста, забыта строка «# %%»"


@each_lesson
def test_every_cell_has_something_and_known_tags(path: Path) -> None:
    for cell in [*cells(path, "markdown"), *cells(path, "code")]:
        assert cell.source.strip(), "пустая ячейка"
        assert set(cell.metadata.get("tags", [])) <= TAGS, cell.metadata["tags"]


@each_lesson
def test_fences_formulas_and_folds_are_closed(path: Path) -> None:
    for cell in cells(path, "markdown"):
        opened: list[str] = []
        for line in cell.source.split("\n"):
            fence = re.match(r"(:{3,}|`{3,})(.*)", line)
            if fence and opened and opened[-1] == fence[1] and not fence[2].strip():
                opened.pop()
            elif fence:
                opened.append(fence[1])
        assert opened == [], cell.source[:60]
        assert cell.source.count("$$") % 2 == 0, cell.source[:60]
        assert len(re.findall(r"<details\b", cell.source)) == cell.source.count("</details>"), cell.source[:60]


@each_lesson
def test_numbers_in_the_text_are_computed(path: Path) -> None:
    typed = set(re.findall(r"(?<![\d.])\d+,\d+", prose_only(markdown(path))))
    assert typed <= GIVEN.get(path.stem, set()), "дробь набрана руками: её должен передать prose()"


@each_lesson
def test_text_and_cells_agree_on_the_names_of_numbers(path: Path) -> None:
    given = glued(path)
    used = set(re.findall(r"\{glue:text\}`([^`]+)`", markdown(path)))
    assert len(given) == len(set(given)), "одно имя передано дважды"
    assert used - set(given) == set(), "в тексте есть имя, которого никто не передал"
    assert set(given) - used == set(), "переданное число в тексте не нужно"


@each_lesson
def test_figures_have_descriptions_and_names_of_their_own(path: Path) -> None:
    names = []
    for cell in cells(path, "code"):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("bars", "stacked_bars", "lines", "scatter"):
                keywords = {keyword.arg: keyword.value for keyword in node.keywords}
                assert {"name", "title", "alt"} <= set(keywords), ast.unparse(node)[:80]
                names.append(ast.literal_eval(keywords["name"]))
    assert len(names) == len(set(names))


@each_lesson
def test_references_and_terms_exist(path: Path) -> None:
    text = markdown(path)
    keys = {key.strip() for found in re.findall(r"\{cite[a-z:]*\}`([^`]+)`", text) for key in found.split(",")}
    known = set(re.findall(r"(?m)^@\w+\{([^,]+),", (ROOT / "docs" / "references.bib").read_text(encoding="utf-8")))
    assert keys <= known, keys - known
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = {line.strip() for line in glossary.split("\n") if re.match(r"[^\s:`#]", line)}
    wanted = {re.sub(r".*<(.+)>$", r"\1", " ".join(term.split())) for term in re.findall(r"\{term\}`([^`]+)`", text)}
    assert wanted <= terms, wanted - terms


@each_lesson
def test_typography(path: Path) -> None:
    text = prose_only(markdown(path))
    assert not re.search(r'[а-яё]"|"[а-яё]', text, re.IGNORECASE), "прямые кавычки вместо «ёлочек»"
    assert not re.search(r"[а-яё\d)] - [а-яё\d(]", text), "дефис вместо тире"
    assert not re.search(r"\b(?:еще|счет|счетчик|объем|учет|расчет|дает|берет|идет|ведет|растет|четырех)\b", text)
    # Число и единица стоят через неразрывный пробел, иначе их разорвёт конец строки.
    assert not re.search(r"\d (?:%|ГБ|ГиБ|КиБ|МиБ|байта?|часов|ч|мс|млрд|млн|трлн)(?!\w)", text), (
        "нужен неразрывный пробел"
    )


@each_lesson
def test_nothing_names_this_machine(path: Path) -> None:
    assert not re.search(r"/(?:work|tmp|root|home)/", path.read_text(encoding="utf-8"))


# --- неделя 9: значения ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def week() -> dict[str, Any]:
    """Выполнить урок сверху вниз и собрать всё, что он передал в текст; ключ «» — имена урока."""
    given: dict[str, Any] = {}
    original = figures.prose
    figures.prose = lambda **values: given.update(values)  # type: ignore[assignment]
    namespace: dict[str, Any] = {"__name__": "lesson"}
    started = time.process_time()
    try:
        with redirect_stdout(io.StringIO()) as output:
            for cell in cells(WEEK, "code"):
                exec(compile(cell.source, WEEK.name, "exec"), namespace)
    finally:
        figures.prose = original
    return {**given, "": namespace, "seconds": time.process_time() - started, "printed": output.getvalue()}


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
    "i_adapters": ru(32 * 16 * (8 * 4096 + 3 * (4096 + 11008)) / 1e6, 1) + "\u00a0млн",
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
def test_week_9_tells_the_right_number(week: dict[str, Any], name: str) -> None:
    assert week[name] == EXPECTED[name]


def test_week_9_runs_without_torch_in_ten_seconds(week: dict[str, Any]) -> None:
    assert week["seconds"] < 10
    assert "torch" not in WEEK.read_text(encoding="utf-8").replace("torch.cuda", "").replace("torch.mps", "")


def test_week_9_guards_its_key_numbers_on_the_page(week: dict[str, Any]) -> None:
    """Проверки видны читателю и стоят в ячейках, которые выполняет сборка."""
    guards = "\n".join(cell.source for cell in cells(WEEK, "code"))
    for number in ("8_030_261_248", "3_152_019_456", "26_624", "124_439_808", "== 384", "== 348", "== GIB"):
        assert re.search(rf"assert .*{re.escape(number)}", guards), number
    assert week[""]["exact"].total == TOTAL == 8_030_261_248


def test_week_9_head_share_depends_on_the_convention(week: dict[str, Any]) -> None:
    head, products = 6 * V * D, 6 * (LAYERS + V * D)
    expected = [
        head / products,
        head / (products + 12 * L * D * (S + 1) / 2),
        head / (products + 12 * L * D * S),
    ]
    shown = [head / total for total in week[""]["conventions"].values()]
    assert shown == pytest.approx(expected, rel=1e-9)
    assert [ru(100 * share, 1) for share in shown] == ["7,0", "6,1", "5,4"]


def test_week_9_names_every_classic_mistake() -> None:
    source = WEEK.read_text(encoding="utf-8")
    for mistake in (
        "F = 4D у SwiGLU", "связанная голова посчитана дважды", "2N: забыт обратный проход", "4N: забыт один",
        "эмбеддинг внутри 6N", "кеш по N головам", "забыта двойка", "биты вместо байт",
        "моменты Adam посчитаны один раз", "ГБ приняты за ГиБ",
        "в активациях забыт пакет", "в активациях забыты слои", "FLOPs смеси по полному числу",
        "память смеси по активному числу",
    ):  # fmt: skip
        assert f'"{mistake}' in source, mistake


def test_week_9_estimate_agrees_with_the_account(week: dict[str, Any]) -> None:
    names = week[""]
    by_hand = 6 * 7e9 * 1e12 / (64 * 4.5e14) / 86_400
    assert names["by_hand"] == pytest.approx(by_hand)
    assert names["plans"][64].days == pytest.approx(by_hand, rel=0.15)
    assert names["plans"][8].cost == pytest.approx(names["plans"][512].cost)


def test_week_9_critical_batch_of_the_mixture(week: dict[str, Any]) -> None:
    critical = week[""]["critical"]
    ratio = critical["смесь экспертов"] / critical["плотный двойник"]
    assert 3.4 < ratio < 12 / 3.36  # голова модели одинакова у обеих и сближает их


def test_week_9_cures_only_help(week: dict[str, Any]) -> None:
    totals = [account.total for account in week[""]["budgets"].values()]
    assert totals == sorted(totals, reverse=True)
    assert totals[-1] > week[""]["h100"].usable_bytes  # даже со всеми мерами на одну карту не помещается
