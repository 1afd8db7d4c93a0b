"""«Галерея ошибок» и «Соглашения»: текст по правилам уроков, каждое число страницы — независимой формулой.

Неверные числа галереи — чужие и опубликованы, поэтому записаны как есть. Верные выведены здесь же из config.json
и учебника: ничего из nanolm, кроме выполненной страницы, в ожиданиях нет.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import lesson_run
import pytest
import test_lessons as rules

from nanolm import figures

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
MISTAKES, CONVENTIONS = (ROOT / "docs" / f"{name}.py" for name in ("mistakes", "conventions"))

#: Дроби, которые названы в источнике: это данные случая, а не результат расчёта.
PUBLISHED = {
    "mistakes": {"33,2", "6,7", "7,6", "4,82", "0,58", "6,8", "29,01"},
    "conventions": {"17,51", "30,26", "10,13"},
}

each_page = pytest.mark.parametrize("path", [MISTAKES, CONVENTIONS], ids=lambda path: path.stem)


@each_page
@pytest.mark.parametrize(
    "rule",
    [
        rules.test_file_is_plain_utf8,
        rules.test_markdown_cells_are_comments_to_the_last_line,
        rules.test_every_cell_has_something_and_known_tags,
        rules.test_fences_formulas_and_folds_are_closed,
        rules.test_text_and_cells_agree_on_the_names_of_numbers,
        rules.test_references_and_terms_exist,
        rules.test_typography,
        rules.test_nothing_names_this_machine,
    ],
    ids=lambda rule: rule.__name__.removeprefix("test_"),
)
def test_page_obeys_the_rules_of_lessons(path: Path, rule: Callable[[Path], None]) -> None:
    rule(path)


@each_page
def test_numbers_in_the_text_are_computed_or_published(path: Path) -> None:
    typed = set(re.findall(r"(?<![\d.])\d+,\d+", rules.prose_only(rules.markdown(path))))
    assert typed <= PUBLISHED[path.stem], typed - PUBLISHED[path.stem]


# --- галерея ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gallery() -> lesson_run.Run:
    return lesson_run.run_lesson("../docs/mistakes")


def ru(value: float, digits: int = 0) -> str:
    return f"{value:,.{digits}f}".translate({44: "\u00a0", 46: ","})


def unit(digits: int, divisor: float, name: str) -> Callable[[float], str]:
    return lambda value: f"{ru(value / divisor, digits)}\u00a0{name}"


GIB, MIB = 2**30, 2**20
gib, gb, mib = unit(2, GIB, "ГиБ"), unit(2, 1e9, "ГБ"), unit(1, MIB, "МиБ")
giga, milliard = unit(2, 1e9, "GFLOPs"), unit(3, 1, "млрд")


def llama(V: int, D: int, L: int, N: int, K: int, F: int, H: int = 0, head: bool = True) -> int:
    """Параметры декодера с SwiGLU по учебнику: эмбеддинг, голова, слои, нормы."""
    H = H or D // N
    layer = 2 * D * N * H + 2 * D * K * H + 3 * D * F + 2 * D
    return (1 + head) * V * D + L * layer + D


LLAMA3 = llama(128256, 4096, 32, 32, 8, 14336)
LLAMA3_70 = llama(128256, 8192, 80, 64, 8, 28672)
MIXTRAL_REST = llama(32000, 4096, 32, 32, 8, 0) + 32 * 4096 * 8  # без экспертов, с маршрутизатором
MIXTRAL_EXPERT = 32 * 3 * 4096 * 14336
MOE_30B = 30_532_122_624
MOE_30B_NORMS = 48 * (2 * 2048 + 2 * 128) + 2048
SCORES = 12 * 32 * 4096 * 8192  # Llama 3 8B, обучение, полный квадрат
PRODUCTS = LLAMA3 - 128256 * 4096 - 65 * 4096  # матрицы, на которые умножает Llama 3 8B
SMALL = llama(128256, 2048, 16, 32, 8, 8192, 64, head=False)
SMALL_FLOPS = 6 * (SMALL - 33 * 2048) + 12 * 16 * 2048 * 2048
TINY_FLOPS = 6 * (llama(32000, 2048, 22, 32, 4, 5632) - 32000 * 2048 - 45 * 2048) + 12 * 22 * 2048 * 2048
LLAMA2_STATES = 16 * llama(32000, 4096, 32, 32, 32, 11008)
MLA_TOKEN = 61 * (512 + 64) * 2
MOE_READ = MIXTRAL_REST - 32000 * 4096 + 16 * 4096 + MIXTRAL_EXPERT * 8 * (1 - (6 / 8) ** 16)
MOE_KEPT = 2 * 32 * 8 * 128 * 1024 * 16 * 2  # кеш Mixtral, 16 последовательностей по 1024 токена

#: Случай → (неверно, верно) так, как они стоят на странице.
EXPECTED = {
    "Голова и эмбеддинг — одна матрица": (ru(1_777_088_000), ru(1_777_088_000 - 151_936 * 1536)),
    "Связанная голова не добавляет параметров": (ru(124_439_808 + 50_257 * 768), ru(124_439_808)),
    "Отдельная голова принята за связанную": (ru(7_504_924_672), ru(LLAMA3)),
    "Модель без головы, ГиБ под именем ГБ": ("27,96\u00a0ГБ", gb(4 * LLAMA3)),
    "Смещение, которого нет": (ru(7_615_716_864), ru(7_615_716_864 - 28 * 3584)),
    "Нормы запроса и ключа": (ru(4_022_458_880), ru(4_022_458_880 + 2 * 36 * 128)),
    "Нормы на выходе блоков": (ru(9_241_404_928), ru(9_241_404_928 + 2 * 42 * 3584)),
    "Параметры в двоичных миллиардах": (milliard(7.628), milliard(8.190735360)),
    "Смесь прочитана плотной моделью": (
        ru(llama(32000, 4096, 32, 32, 8, 14336, head=False)),
        ru(MIXTRAL_REST + 8 * MIXTRAL_EXPERT),
    ),
    "Активные параметры как доля всех": (ru(0.12 * 116_829_156_672), ru(5_711_982_912)),
    "Ключ и значение — это два тензора": (gib(GIB), gib(2 * 32 * 32 * 128 * 4096 * 2)),
    "Голов кеша K, а не N": (gib(2 * GIB), gib(2 * 32 * 8 * 128 * 8192 * 2)),
    "Кеш читается раз на группу голов": (gib(4 * GIB), gib(2 * 32 * 8 * 128 * 8192 * 2)),
    "Головы посчитаны дважды": (ru(2 * 32 * 32 * 4096 * 4 // 8), ru(2 * 32 * 32 * 128 * 2)),
    "Размер головы не равен D/N": (mib(720 * MIB), mib(2 * 36 * 8 * 128 * 8192 * 2)),
    "У MLA кеш не на голову": (ru(1_748_992), ru(MLA_TOKEN)),
    "У MLA нет головы размера D/N": ("2,08\u00a0ГиБ", gib(MLA_TOKEN * 163_840)),
    "У MLA вектор один, но с вращаемой частью": (ru(2 * 61 * 512 * 2), ru(MLA_TOKEN)),
    "Кеш одного слоя вместо всех": (mib(17.875 * MIB), mib(61 * 576 * 65_536 / 2)),
    "Окно есть не в каждом слое": (mib(6 * MIB), mib(12 * 2 * 8 * 64 * 2 * (8192 + 128))),
    "Слой с окном тоже хранит кеш": (ru(36_864), ru(36 * 2 * 8 * 64 * 2)),
    "Кеш одной головы": (gib(512 * MIB), gib(2 * 32 * 32 * 128 * 2 * 32_768)),
    "ГБ названы ГиБ": ("6,71\u00a0ГиБ", gib(2 * 40 * 40 * 128 * 8192 * 2)),
    "Поиск в таблице — не произведение": (
        "35,0\u00a0%",
        ru(35 * TINY_FLOPS / (TINY_FLOPS + 6 * 32000 * 2048), 1) + "\u00a0%",
    ),
    "Связанная голова всё равно умножает": (giga(SMALL_FLOPS - 6 * 128256 * 2048), giga(SMALL_FLOPS)),
    "Оценок внимания N, а не K": (giga(SCORES / 4), giga(SCORES)),
    "Двойка взята дважды": (ru(65_536), ru(4 * 64 * 128)),
    "Пары запросов и ключей": (ru(1920), ru(2 * (7 + 8 + 9 + 10) * (8 + 16))),
    "Слитое внимание пропущено": (giga(2 * PRODUCTS), giga(2 * PRODUCTS + SCORES / 3)),
    "F принято, но не использовано": ("38,65\u00a0GFLOPs", giga(6 * 3 * 4096 * 14336 * 32)),
    "У SwiGLU три матрицы": (giga(2 * 2 * 2560 * 9728 * 36), giga(2 * 3 * 2560 * 9728 * 36)),
    "Обратный проход головы": ("1,05\u00a0GFLOPs", giga(6 * 128256 * 4096)),
    "Работают k экспертов из E": (giga(192_856_412_160), giga(37_578_559_488 - 6 * MOE_30B_NORMS)),
    "Пик с разреженностью": ("24,3\u00a0%", ru(100 * 480 / 989.5, 1) + "\u00a0%"),
    "Пик чужой карты": ("104,0\u00a0%", ru(104 * 312 / 989.5, 1) + "\u00a0%"),
    "Плотный пик A100": ("156,0\u00a0TFLOP/s", "312,0\u00a0TFLOP/s"),
    "Экспертов выбирает каждый токен": (
        "8,33\u00a0мс",
        ru((2 * MOE_READ + MOE_KEPT) / 3.35e12 * 1e3, 1) + "\u00a0мс",
    ),
    "Хранят всех экспертов": (gib(37_552_282_624 * 0.58 * 1.1), gib(671_026_404_352 * 0.58 * 1.1)),
    "Бит на вес больше четырёх": (gb(LLAMA3_70 / 2), gb(LLAMA3_70 * 4.82 / 8)),
    "Не те байты на значение": ("310,6\u00a0МБ", "155,3\u00a0МБ"),
    "ГиБ названы ГБ": ("29,01\u00a0ГБ", gb(4 * 131e6 + 18 * 6805e6 / 4)),
}
#: Пик обучения по учебнику не выведешь: у этих случаев проверяется разность или отношение.
MEASURED = {"Кеша при обучении нет", "Выборочный пересчёт принят за полный"}


def summary(run: lesson_run.Run) -> dict[str, tuple[str, ...]]:
    (found,) = [item for item in run.shown if isinstance(item, figures.Table) and item.head[0] == "ошибка"]
    return {row[0]: row[1:] for row in found.rows}


@pytest.mark.parametrize("name", EXPECTED)
def test_mistake_and_truth(gallery: lesson_run.Run, name: str) -> None:
    assert summary(gallery)[name][1:3] == EXPECTED[name]


def test_every_case_is_expected(gallery: lesson_run.Run) -> None:
    assert set(summary(gallery)) == set(EXPECTED) | MEASURED
    assert gallery.prose["count"] == str(len(EXPECTED) + len(MEASURED))


def test_cases_whose_truth_is_the_account(gallery: lesson_run.Run) -> None:
    cases = summary(gallery)
    wrong, right = (number(text) for text in cases["Кеша при обучении нет"][1:3])
    assert wrong - right == pytest.approx(2.0, abs=0.011)  # кеш 4096 токенов, ГиБ
    assert right > LLAMA2_STATES / GIB
    wrong, right = (number(text) for text in cases["Выборочный пересчёт принят за полный"][1:3])
    assert wrong == 34 * 2048 * 4096 * 32 / GIB
    assert 0.5 < right < 0.55


def number(text: str) -> float:
    return float(re.sub(r"[^\d,]", "", text).replace(",", "."))


def test_twenty_cases_name_a_repository_and_a_thread(gallery: lesson_run.Run) -> None:
    threads = [place for place, *_ in summary(gallery).values() if re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", place)]
    assert len(set(threads)) >= 20
    text = rules.markdown(MISTAKES)
    for place in threads:
        repository, thread = place.split("#")
        assert re.search(rf"\[{re.escape(place)}\]\(https://github\.com/{repository}/(?:issues|pull)/{thread}\)", text)


def test_every_case_has_its_own_section_and_reason(gallery: lesson_run.Run) -> None:
    cells = [cell for cell in lesson_run.cells("../docs/mistakes") if re.search(r"(?m)^case\(", cell.source)]
    sections = re.split(r"(?m)^### ", rules.markdown(MISTAKES))[1:]
    assert len(sections) == len(cells) == len(summary(gallery))
    assert [s.split("\n")[0] for s in sections if len(s) < 200] == []


def test_a_case_without_a_mistake_is_refused(gallery: lesson_run.Run) -> None:
    with pytest.raises(AssertionError, match="не видно"):
        gallery.names["case"]("повтор", "нигде", 1, 1)


# --- соглашения ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def conventions() -> lesson_run.Run:
    return lesson_run.run_lesson("../docs/conventions")


def column(run: lesson_run.Run, head: str, index: int, which: int = 0) -> list[str]:
    """Столбец таблицы, чей первый заголовок — `head`; `which` — какая по счёту из таких таблиц."""
    found = [item for item in run.shown if isinstance(item, figures.Table) and item.head[0] == head]
    return [row[index] for row in found[which].rows]


GPT2_NORMS_AND_BIASES = 25 * 2 * 768 + 12 * (3 * 768 + 768 + 3072 + 768)


def test_six_n(conventions: lesson_run.Run) -> None:
    head, gpt2 = 128256 * 4096, 124_439_808
    large = [LLAMA3, LLAMA3 - head, LLAMA3 - 2 * head, PRODUCTS]
    positions = 1024 * 768
    blocks = gpt2 - 50_257 * 768 - positions
    small = [gpt2, gpt2 - positions, blocks, gpt2 - positions - GPT2_NORMS_AND_BIASES]
    assert column(conventions, "что в N", 1) == [ru(6 * n / 1e9, 2) for n in large]
    assert column(conventions, "что в N", 2) == [ru(n / LLAMA3, 3) for n in large]
    assert column(conventions, "что в N", 3) == [ru(6 * n / 1e9, 2) for n in small]
    assert column(conventions, "что в N", 4) == [ru(n / gpt2, 3) for n in small]
    assert conventions.prose["n_large"] == ru(100 * 2 * head / LLAMA3) + "\u00a0%"
    assert conventions.prose["n_small"] == ru(100 * (1 - blocks / gpt2)) + "\u00a0%"


def test_attention_factors(conventions: lesson_run.Run) -> None:
    S, W = 8192, 4096
    causal, narrow = (S + 1) / 2, W - W * (W - 1) / (2 * S)
    full = [12, 12, 12 * causal / S, 14 * causal / S]
    window = [12, 12 * W / S, 12 * narrow / S, 14 * narrow / S]
    assert column(conventions, "соглашение", 2) == [ru(x, 2) for x in full]
    assert column(conventions, "соглашение", 4) == [ru(x, 2) for x in window]
    assert column(conventions, "соглашение", 1) == [ru(x * 32 * 4096 * S / 1e9, 2) for x in full]
    share, half = SCORES / (6 * PRODUCTS + SCORES), SCORES / 2 / (6 * PRODUCTS + SCORES / 2)
    assert conventions.prose["att_share"] == ru(100 * share) + "\u00a0%"
    assert conventions.prose["att_causal"] == ru(100 * half) + "\u00a0%"


def test_bytes_per_parameter(conventions: lesson_run.Run) -> None:
    sizes = [8, 12, 16, 16, 18, 20]
    assert column(conventions, "соглашение", 6, which=1) == [ru(n * LLAMA3 / 1e9, 1) for n in sizes]
    assert column(conventions, "соглашение", 7, which=1) == [ru(n * LLAMA3 / GIB, 1) for n in sizes]
    assert conventions.prose["b_gap"] == ru(2 * LLAMA3 / 1e9) + "\u00a0ГБ"


def test_gigabytes_and_gibibytes(conventions: lesson_run.Run) -> None:
    assert column(conventions, "что", 1)[0] == gb(2 * LLAMA3)
    assert column(conventions, "что", 2)[0] == gib(2 * LLAMA3)
    assert set(column(conventions, "что", 3)) == {ru(2**30 / 1e9, 3)}
    assert column(conventions, "что", 1)[1:] == [gb(size * GIB) for size in (24, 80, 80)]


def test_caches(conventions: lesson_run.Run) -> None:
    S = 8192
    token = {"mistral": 2 * 8 * 128 * 2, "gemma": 2 * 4 * 256 * 2, "oss": 2 * 8 * 64 * 2}  # байт на слой
    theory = [
        32 * token["mistral"] * S,
        32 * token["mistral"] * 4096,
        token["gemma"] * (5 * S + 29 * 1024),
        token["oss"] * 12 * (S + 128),
        MLA_TOKEN * S,
    ]
    held = [theory[0], theory[1] - 32 * token["mistral"], theory[2] - 29 * token["gemma"],
            theory[3] - 12 * token["oss"], theory[4]]  # fmt: skip
    engine = [theory[0], 2 * theory[1], token["gemma"] * 34 * S, token["oss"] * 24 * S, theory[4]]
    for index, sizes in enumerate((theory, held, engine), 1):
        assert column(conventions, "модель, МиБ", index) == [ru(size / MIB, 1) for size in sizes]
    full = 61 * 128 * (128 + 64 + 128) * 2 * S
    assert column(conventions, "модель, МиБ", 4) == ["—"] * 4 + [ru(full / MIB, 1)]
    assert conventions.prose["k_mla"] == ru(full / theory[4])
    assert conventions.prose["k_theory"] == gib(32 * theory[3])
    assert conventions.prose["k_engine"] == gib(32 * engine[3])


def test_mixtures(conventions: lesson_run.Run) -> None:
    stored = column(conventions, "модель", 1)
    assert stored == ["46,7\u00a0млрд", "20,9\u00a0млрд", "30,5\u00a0млрд", "671\u00a0млрд"]
    assert column(conventions, "модель", 2) == [f"{x}\u00a0млрд" for x in ("12,9", "4,19", "3,35", "37,6")]
    read = MIXTRAL_REST - 32000 * 4096
    expected = [read + B * 4096 + MIXTRAL_EXPERT * 8 * (1 - (6 / 8) ** B) for B in (1, 16, 256)]
    shown = [column(conventions, "модель", index)[0] for index in (3, 4, 5)]
    assert shown == [ru(count / 1e9, 1) + "\u00a0млрд" for count in expected]
    active = 37_552_282_624
    assert conventions.prose["x_with"] == ru(active / 1e9, 2) + "\u00a0млрд"
    assert conventions.prose["x_without"] == ru((active - 129_280 * 7168) / 1e9, 2) + "\u00a0млрд"
    assert conventions.prose["x_lite_without"] == ru((2_661_150_208 - 102_400 * 2048) / 1e9, 2) + "\u00a0млрд"


def test_shares_of_the_peak(conventions: lesson_run.Run) -> None:
    peak, speed, S = 989.5e12, 8000, 8192
    useful = 6 * PRODUCTS + SCORES
    causal = 6 * PRODUCTS + SCORES * (S + 1) / (2 * S)
    fused = useful + SCORES / 6
    # Пересчёт слоя: все матрицы, кроме сжатия, и слитое ядро ещё раз.
    again = 2 * (PRODUCTS - 128256 * 4096 - 32 * 4096 * 14336) + SCORES / 3
    shares = [flops * speed / peak for flops in (useful, causal, fused, fused + again)]
    assert column(conventions, "соглашение", 1, which=2) == [ru(100 * x, 1) + "\u00a0%" for x in shares]
    dense = [shares[0], shares[0] / 2, shares[0] * 989.5 / 1979]
    assert column(conventions, "соглашение", 1, which=3) == [ru(100 * x, 1) + "\u00a0%" for x in dense]
    assert conventions.prose["u_full"] == ru(100 * (shares[3] / shares[0] - 1)) + "\u00a0%"


def test_activations(conventions: lesson_run.Run) -> None:
    values = column(conventions, "соглашение", 1, which=4)
    assert values[1:4] == [f"{x}\u00a0ГиБ" for x in ("348,00", "384,00", "1\u00a0408,00")]
    assert number(values[0]) < 348
    assert number(values[4]) == pytest.approx(16 + 1, abs=0.01)  # входы слоёв и последняя норма
    assert conventions.prose["a_naive"] == "1\u00a0024\u00a0ГиБ"


def test_implementations_of_one_step(conventions: lesson_run.Run) -> None:
    """Три строки из шести измерены на карте: tests/golden/gpu_memory_measured.json."""
    totals = [number(value) for value in column(conventions, "реализация, ГБ", 5)]
    for row, gigabytes in ((2, 17.51), (3, 30.26), (4, 10.13)):
        assert totals[row] == pytest.approx(gigabytes, rel=0.002)
    assert conventions.prose["h_logits"] == ru(14 * 2048 * 128_256 / 1e9, 2) + "\u00a0ГБ"
    # Ключи и значения 32 голов вместо 8 и слагаемое маски, bf16, 16 слоёв.
    masks = 16 * 2048 * (2 * (32 - 8) * 64 + 2048) * 2
    assert conventions.prose["h_masks"] == ru(masks / 1e9, 2) + "\u00a0ГБ"


def test_every_question_ends_with_what_to_name() -> None:
    sections = re.split(r"(?m)^## ", rules.markdown(CONVENTIONS))[1:-1]
    assert len(sections) == 10
    for section in sections:
        assert "**Вопрос.**" in section, section[:40]
        assert "**Что называть.**" in section, section[:40]
