"""Обратная задача и разница счетов: ответы сверяются с самими счетами, соседними значениями и ручными формулами."""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from nanolm import cli, diff_cli
from nanolm.budget import (
    OPTIMIZERS,
    RECIPES,
    Spec,
    flops_per_token,
    hardware_flops_per_token,
    inference_memory,
    kv_cache_bytes,
    parameter_breakdown,
    training_memory,
)
from nanolm.fit import Fit, diff, fit
from nanolm.hardware import gpu
from nanolm.sharding import STAGES, shard_inference, shard_training, tensor_parallel_cards, traffic_bytes
from nanolm.summary import Question, document, text
from nanolm.units import GIB
from nanolm.zoo import load, preset, presets

if TYPE_CHECKING:
    from collections.abc import Callable

LLAMA, LLAMA_1B, GEMMA = preset("llama-3-8b"), preset("llama-3.2-1b"), preset("gemma-3-4b")
MIXTRAL, DEEPSEEK = preset("mixtral-8x7b"), preset("deepseek-v3")
SPECS = {"llama": LLAMA, "gemma": GEMMA, "mixtral": MIXTRAL, "gpt2": preset("gpt2")}
CARD = gpu("h100-sxm")


def training(spec: Spec, plan: dict[str, Any]) -> int:
    """Пик одной карты по плану, мимо `fit`: прямо из счетов."""
    names = ("B", "S", "recipe", "optimizer", "attention", "checkpointing")
    account = training_memory(spec, **{name: plan[name] for name in names})
    return (shard_training(account, plan["cards"], plan["stage"]) if plan["stage"] else account).total


def inference(spec: Spec, plan: dict[str, Any]) -> int:
    names = ("B", "S", "dtype", "kv_dtype", "kv", "chunk", "weights", "block")
    return shard_inference(inference_memory(spec, **{name: plan[name] for name in names}), spec, plan["cards"]).peak


PEAKS: dict[str, Callable[[Spec, dict[str, Any]], int]] = {"training": training, "inference": inference}

CASES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("llama", "h100-sxm", "training", {"B": 1, "S": 2048}),
    ("llama", "h100-sxm", "training", {"B": 4, "S": 8192, "gpus": 8, "attention": "naive"}),
    ("llama", "rtx-4090", "inference", {"B": 16, "S": 8192}),
    ("gemma", "rtx-4090", "training", {"B": 8, "S": 1024, "recipe": "fp32"}),
    ("gemma", "t4", "inference", {"B": 8, "S": 65_536, "kv": "engine"}),
    ("mixtral", "a100-80", "training", {"B": 2, "S": 4096, "recipe": "autocast"}),
    ("mixtral", "a100-80", "inference", {"B": 24, "S": 32_768}),
    ("gpt2", "t4", "training", {"B": 64}),
    ("llama", "rtx-4090", "inference", {"B": 2, "S": 4096, "dtype": "fp32"}),
]
IDS = [f"{name}-{card}-{goal}" for name, card, goal, _ in CASES]


@pytest.fixture(scope="module")
def answers() -> list[Fit]:
    return [fit(SPECS[name], card, goal, **options) for name, card, goal, options in CASES]


# --- пределы ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", range(len(CASES)), ids=IDS)
def test_limits_are_the_last_values_that_fit(answers: list[Fit], case: int) -> None:
    """Найденное помещается, на единицу больше — уже нет; проверяют сами счета."""
    answer, spec = answers[case], SPECS[CASES[case][0]]
    peak = PEAKS[answer.goal]
    assert answer.need == peak(spec, answer.plan)
    assert answer.fits is (answer.need <= answer.capacity)
    for name, limit in (("B", answer.largest_batch), ("S", answer.largest_context)):
        assert limit is not None
        if limit:
            assert peak(spec, {**answer.plan, name: limit}) <= answer.capacity
        if name == "B" or limit != spec.learned_positions:
            assert peak(spec, {**answer.plan, name: limit + 1}) > answer.capacity


@pytest.mark.parametrize("case", range(len(CASES)), ids=IDS)
def test_fewest_cards_is_the_smallest_number_that_fits(answers: list[Fit], case: int) -> None:
    answer, spec = answers[case], SPECS[CASES[case][0]]
    plan = {**answer.plan, "stage": "zero3"}
    possible = tensor_parallel_cards(spec, spec.N) if answer.goal == "inference" else list(range(1, 200))
    enough = [n for n in possible if PEAKS[answer.goal](spec, {**plan, "cards": n}) <= answer.capacity]
    assert answer.fewest_cards == (enough[0] if enough else None)


def test_context_of_learned_positions_is_limited_by_them() -> None:
    assert fit(preset("gpt2"), "h100-sxm", B=1).largest_context == 1024


def test_constant_memory_has_no_context_limit() -> None:
    """Окно во всех слоях и заполнение порциями: с контекстом не растёт ничего."""
    spec = Spec(V=100, D=64, L=2, N=2, F=128, window=16)
    assert fit(spec, "t4", "inference", chunk=32).largest_context is None
    assert fit(spec, "t4", "inference").largest_context is not None


def test_reserve_is_not_for_the_model() -> None:
    free, busy = (fit(LLAMA_1B, "t4", "inference", S=1024, reserve=reserve) for reserve in (0, 4 * GIB))
    assert busy.capacity == free.capacity - 4 * GIB
    assert (busy.largest_batch or 0) < (free.largest_batch or 0)


# --- наборы изменений ---------------------------------------------------------------------------


@pytest.mark.parametrize("case", range(len(CASES)), ids=IDS)
def test_every_remedy_fits_and_says_its_figure(answers: list[Fit], case: int) -> None:
    answer, spec = answers[case], SPECS[CASES[case][0]]
    assert not answer.fits
    assert answer.remedies
    assert answer.closest is None
    for remedy in answer.remedies:
        assert remedy.need == PEAKS[answer.goal](spec, remedy.plan) <= answer.capacity
        assert remedy.saved == answer.need - remedy.need > 0
        changed = {name for name in answer.plan if answer.plan[name] != remedy.plan[name]} - {"stage"}
        assert len(changed) == len(remedy.changes)
        assert all(what and price for what, price in remedy.changes)
        if answer.goal == "training":
            flops = [
                hardware_flops_per_token(spec, p["S"], p["attention"], p["checkpointing"]).total
                for p in (answer.plan, remedy.plan)
            ]
            assert remedy.extra_flops == pytest.approx(flops[1] / flops[0] - 1, abs=1e-12)


@pytest.mark.parametrize("case", range(len(CASES)), ids=IDS)
def test_remedies_go_from_cheap_to_dear_and_none_beats_another(answers: list[Fit], case: int) -> None:
    costs = [remedy.cost for remedy in answers[case].remedies]
    assert costs == sorted(costs)
    for a, b in itertools.permutations(costs, 2):
        assert not all(x <= y for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("case", range(len(CASES)), ids=IDS)
def test_every_change_of_a_remedy_is_needed(answers: list[Fit], case: int) -> None:
    """Убери любое изменение — и память снова не сойдётся: лишнего в наборе нет."""
    answer, spec = answers[case], SPECS[CASES[case][0]]
    for remedy in answer.remedies:
        changed = [n for n in answer.plan if answer.plan[n] != remedy.plan[n] and n != "stage"]
        for name in changed:
            undone = {**remedy.plan, name: answer.plan[name]}
            if name == "cards":
                undone["stage"] = ""
            assert PEAKS[answer.goal](spec, undone) > answer.capacity, (remedy, name)


def test_full_finetuning_of_8b_on_one_h100_needs_eight_bit_moments() -> None:
    """Вопрос с собеседования: 16 байт на параметр не помещаются; на одной карте спасают моменты или рецепт."""
    answer = fit(LLAMA, "h100-sxm", B=1, S=2048)
    single = [remedy for remedy in answer.remedies if remedy.cards == 1]
    assert [(r.plan["checkpointing"], r.plan["optimizer"], r.plan["recipe"]) for r in single] == [
        ("full", "adamw8bit", "mixed"), ("none", "adamw", "bf16"),
    ]  # fmt: skip
    assert answer.fewest_cards == 2


def test_cards_at_hand_are_cheaper_than_new_ones() -> None:
    """Восемь карт есть: деление между ними ничего не стоит и идёт раньше покупки и потери качества."""
    best = fit(LLAMA, "h100-sxm", B=1, S=2048, gpus=8).remedies[0]
    assert (best.cards, best.quality, best.cost[0]) == (8, 0, 0)


def test_sixteen_bits_are_enough_before_eight() -> None:
    """Веса fp32 на 24 ГБ не помещаются, bf16 — да: без нужды до 8 бит не округляем."""
    answer = fit(LLAMA, "rtx-4090", "inference", B=1, S=2048, dtype="fp32")
    assert not answer.fits
    assert {r.plan["dtype"] for r in answer.remedies if r.cards == 1} == {"bf16"}


def test_what_fits_needs_no_remedies() -> None:
    answer = fit(preset("gpt2"), "h100-sxm", B=1)
    assert answer.fits
    assert answer.remedies == ()
    assert "помещается" in str(answer)
    assert "Что поможет" not in str(answer)


def test_hopeless_case_shows_the_closest() -> None:
    """Один токен DeepSeek-V3 на T4: слой не собрать ни на скольких картах, и ответ честно об этом говорит."""
    answer = fit(DEEPSEEK, "t4", B=1, S=1)
    assert (answer.largest_batch, answer.largest_context, answer.fewest_cards, answer.remedies) == (0, 0, None, ())
    assert answer.closest is not None
    assert answer.closest.need > answer.capacity
    assert answer.closest.need < answer.need / 10
    assert "Ни один набор изменений не помог" in str(answer)


def test_hundreds_of_layers_and_odd_batches() -> None:
    """Простой пакет делится только на единицу; большой — на немногие пробуемые делители."""
    for B in (1, 2, 7, 10_007, 2**20, 720_720):
        for remedy in fit(GEMMA, "rtx-4090", B=B, S=512).remedies:
            assert B % remedy.plan["B"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"goal": "обучение"}, "goal = 'обучение': нужно одно из: training, inference"),
        ({"B": 0}, "B = 0: нужно целое число не меньше 1"),
        ({"S": 1.5}, "S = 1.5: нужно целое число"),
        ({"gpus": 0}, "gpus = 0: нужно целое число не меньше 1"),
        ({"reserve": -1}, "reserve = -1: нужно целое число не меньше 0"),
        ({"recipe": "fp8"}, "recipe = 'fp8': нужно одно из"),
        ({"goal": "inference", "kv": "paged"}, "kv = 'paged': нужно одно из"),
        ({"goal": "inference", "chunk": 0}, "chunk = 0: нужно целое число не меньше 1"),
        ({"gpu": "h1000"}, "gpu = 'h1000': такой карты нет"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        fit(LLAMA_1B, **{"gpu": "t4", **options})


def test_text_html_and_json_say_the_same(answers: list[Fit]) -> None:
    for answer in answers:
        words, page = str(answer), answer._repr_html_()
        document_ = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
        assert document_["fits"] is answer.fits
        assert len(document_["remedies"]) == len(answer.remedies)
        for remedy in answer.remedies:
            for what, price in remedy.changes:
                assert what in words
                assert price in words
                assert what in page


# --- деление между картами ----------------------------------------------------------------------


@pytest.mark.parametrize("cards", [2, 3, 8, 64])
@pytest.mark.parametrize("spec", [LLAMA, GEMMA, MIXTRAL], ids=["llama", "gemma", "mixtral"])
def test_states_by_zero_stages(spec: Spec, cards: int) -> None:
    """Формулы статьи ZeRO для рецепта mixed: 4 + 12/n, 2 + 14/n и 16/n байт на параметр."""
    P = parameter_breakdown(spec).total
    account = training_memory(spec, 1, 128)
    expected = {"zero1": 4 * P + 12 * P / cards, "zero2": 2 * P + 14 * P / cards, "zero3": 16 * P / cards}
    for stage, states in expected.items():
        part = shard_training(account, cards, stage)
        found = sum(part[name] for name in ("weights", "master_weights", "gradients", "optimizer"))
        # Строки делятся с округлением вверх: меньше байта на карту у каждой.
        assert states <= found < states + len(account.details)
        for name in ("input", "activations", "logits"):
            assert part[name] == account[name]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_one_card_is_not_divided(recipe: str, optimizer: str) -> None:
    account = training_memory(LLAMA_1B, 2, 64, recipe, optimizer)
    for stage in STAGES:
        assert dict(shard_training(account, 1, stage)) == dict(account)


def test_gathered_layer_by_hand() -> None:
    """FSDP: два слоя весов и градиент одного, всё вне слоёв — целиком."""
    spec = Spec(V=97, D=24, L=5, N=4, K=2, F=40)
    layer = 2 * 24 + 24 * 24 * 2 + 2 * 24 * 12 + 3 * 24 * 40
    root = 2 * 97 * 24 + 24
    account = training_memory(spec, 1, 8)
    part = shard_training(account, 4, "zero3")
    assert parameter_breakdown(spec).total == 5 * layer + root
    assert part["workspace"] - account["workspace"] == 2 * (2 * layer + root) + 2 * (layer + root)
    part = shard_training(account, 4, "zero2")
    assert part["workspace"] - account["workspace"] == 2 * (layer + root)


def test_gathered_layer_of_a_mixture_is_the_heaviest() -> None:
    """У DeepSeek слои двух видов: собирают самый большой, с экспертами, а плотный не прибавляют."""
    account = training_memory(DEEPSEEK, 1, 8)
    part = shard_training(account, 8, "zero3")
    names = {line.name for line in part.details if line.name.startswith("gathered_weights_")}
    assert "gathered_weights_gate" in names
    assert not any("dense" in name for name in names)


def test_traffic_by_hand() -> None:
    """По кольцу карта передаёт (n − 1)/n градиентов и весов; у ZeRO-3 веса едут дважды."""
    account = training_memory(LLAMA_1B, 1, 8)
    P = parameter_breakdown(LLAMA_1B).total
    assert traffic_bytes(account, 4, "zero1") == (2 * P + 2 * P) * 3 // 4
    assert traffic_bytes(account, 4, "zero3") == (2 * P + 4 * P) * 3 // 4


def test_tensor_parallel_by_hand() -> None:
    """Матрицы делятся, нормы нет; кеш — по головам K, и дальше K уже не делится."""
    account = inference_memory(LLAMA, 2, 512)
    norms = (2 * 32 + 1) * 4096 * 2
    for cards in (2, 8):
        part = shard_inference(account, LLAMA, cards)
        assert part["weights"] == (account["weights"] - norms) // cards + norms
        assert part["kv_cache"] == account["kv_cache"] // cards
    wide = shard_inference(account, LLAMA, 32)
    assert wide["kv_cache"] == account["kv_cache"] // 8
    projections = 2 * 32 * 4096 * 1024 * 2
    assert wide["weights"] == (account["weights"] - norms - projections) // 32 + projections // 8 + norms


def test_latent_cache_is_on_every_card() -> None:
    account = inference_memory(DEEPSEEK, 2, 512)
    assert shard_inference(account, DEEPSEEK, 16)["kv_cache"] == account["kv_cache"]


def test_impossible_divisions_are_refused() -> None:
    spec = Spec(V=100, D=96, L=2, N=24, K=8)
    assert tensor_parallel_cards(spec, 24) == [1, 2, 4, 8, 24]
    with pytest.raises(ValueError, match="cards = 3: головы N = 24, K = 8 делятся поровну на 1, 2, 4, 8, 24"):
        shard_inference(inference_memory(spec), spec, 3)
    with pytest.raises(ValueError, match="stage = 'zero4': нужно одно из: zero1, zero2, zero3"):
        shard_training(training_memory(spec), 2, "zero4")
    with pytest.raises(ValueError, match="cards = 0"):
        shard_training(training_memory(spec), 0, "zero1")


def test_share_shows_its_divisor() -> None:
    part = shard_training(training_memory(LLAMA_1B, 1, 8), 3, "zero3")
    line = next(line for line in part.details if line.component == "optimizer")
    assert line.letters.endswith(" / 3")
    assert line.numbers.endswith(" / 3")
    assert "/ 3 = " in part.explain("optimizer")


def test_chunk_limits_the_buffers() -> None:
    """Порция меньше пакета: буферы — на её токены, веса и кеш те же; больше пакета — ничего не меняет."""
    all_at_once, portion = inference_memory(LLAMA, 4, 1024), inference_memory(LLAMA, 4, 1024, chunk=512)
    logits = 4 * 128_256 * 4
    assert dict(portion) == dict(all_at_once)
    assert (all_at_once.peak - all_at_once.total - logits) == 8 * (portion.peak - portion.total - logits)
    assert inference_memory(LLAMA, 4, 1024, chunk=10**6).peak == all_at_once.peak


# --- разница ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (training_memory(LLAMA, 1, 512), training_memory(LLAMA, 3, 512)),
        (training_memory(LLAMA, 1, 512), training_memory(LLAMA, 1, 512, "fp32", "adamw8bit", "naive", "selective")),
        (training_memory(LLAMA, 1, 512), training_memory(MIXTRAL, 2, 256)),
        (training_memory(LLAMA, 1, 512), shard_training(training_memory(LLAMA, 1, 512), 8, "zero3")),
        (kv_cache_bytes(GEMMA), kv_cache_bytes(LLAMA)),
        (kv_cache_bytes(DEEPSEEK), kv_cache_bytes(DEEPSEEK, kv="uncompressed")),
        (flops_per_token(LLAMA, 100), flops_per_token(MIXTRAL, 8192, attention="causal")),
        (parameter_breakdown(LLAMA), parameter_breakdown(DEEPSEEK)),
    ],
)
def test_rows_add_up_to_the_difference(a: Any, b: Any) -> None:
    found = diff(a, b)
    assert found.total == b.total - a.total == sum(found.components.values())
    for name, value in found.components.items():
        assert value == b[name] - a[name]
    sizes = [abs(row.value) for row in found.rows]
    assert sizes == sorted(sizes, reverse=True)
    assert min(sizes) > 0
    assert all(row.reason for row in found.rows)
    assert diff(b, a).total == -found.total
    assert "всего" in str(found)
    assert "<table" in found._repr_html_()


def test_reason_names_the_factor() -> None:
    rows = {row.name: row for row in diff(kv_cache_bytes(LLAMA, 1, 512), kv_cache_bytes(LLAMA, 8, 1024)).rows}
    assert rows["key"].reason == "B 1 → 8, S 512 → 1024"
    latent = diff(kv_cache_bytes(DEEPSEEK), kv_cache_bytes(DEEPSEEK, kv="uncompressed"))
    assert latent.rows[0].reason.startswith("новая: B·S·L·N·")


def test_three_gibibytes_more() -> None:
    """Вопрос задачи: «почему на 3 ГиБ больше» — окно 32 768 вместо 8192 у той же геометрии кеша."""
    found = diff(kv_cache_bytes(LLAMA, 1), kv_cache_bytes(preset("mistral-7b-v0.3"), 1))
    assert found.total == 3 * GIB
    assert [row.reason for row in found.rows] == ["S 8192 → 32768"] * 2


def test_inference_is_compared_by_the_peak() -> None:
    a, b = inference_memory(LLAMA, 1, 512), inference_memory(LLAMA, 4, 512)
    assert diff(a, b).total == b.peak - a.peak


def test_same_accounts_differ_in_nothing() -> None:
    found = diff(training_memory(LLAMA), training_memory(LLAMA))
    assert (found.rows, found.total, found.components) == ((), 0, {})
    assert "разницы нет" in str(found)


def test_accounts_of_different_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="счета разного вида"):
        diff(training_memory(LLAMA), kv_cache_bytes(LLAMA))
    with pytest.raises(ValueError, match="два счёта или два вопроса"):
        diff(training_memory(LLAMA), Question(LLAMA))


def test_questions_are_compared_in_all_accounts() -> None:
    found = diff(Question(LLAMA, S=512), Question(LLAMA, S=512, optimizer="sgd"))
    assert {name: one.total for name, one in found.items() if one.total} == {
        "training": -8 * parameter_breakdown(LLAMA).total
    }


# --- командная строка ---------------------------------------------------------------------------


def run(main: Callable[[list[str], str], int], words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    try:
        code = main(words.split(), "nanolm")
    except SystemExit as stop:
        code = int(stop.code or 0)
    caught = capsys.readouterr()
    return code, caught.out, caught.err


def test_fit_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--preset llama-3.2-1b --gpu rtx-4090 --B 8 --S 2048 --fit training"
    question = Question(LLAMA_1B, B=8, S=2048, gpu="rtx-4090", fit="training")
    assert run(cli.budget, words, capsys) == (0, text(question) + "\n", "")
    code, output, _ = run(cli.budget, f"{words} --json", capsys)
    answer = json.loads(output)["fit"]
    assert code == 0
    assert answer == json.loads(json.dumps(document(question)))["fit"]
    assert answer["training"] is answer["fits"] is False
    assert answer["remedies"][0]["need_bytes"] <= answer["capacity_bytes"]


def test_fit_needs_a_card(capsys: pytest.CaptureFixture[str]) -> None:
    code, output, errors = run(cli.budget, "--preset gpt2 --fit training", capsys)
    assert (code, output) == (2, "")
    assert "--fit: чтобы ответить, что поместится, назовите карту ключом --gpu" in errors
    code, output, errors = run(cli.budget, "--preset gpt2 --gpu t4 --fit обучение", capsys)
    assert (code, output, len(errors.splitlines())) == (2, "", 1)
    assert "--fit: 'обучение': нужно одно из" in errors


def test_diff_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, output, errors = run(diff_cli.main, "--preset llama-3-8b --S 2048 --vs --B 8", capsys)
    expected = diff(Question(LLAMA, S=2048), Question(LLAMA, S=2048, B=8))
    assert (code, errors) == (0, "")
    assert output == "\n\n".join(str(expected[name]) for name in ("kv_cache", "inference", "training")) + "\n"


@pytest.mark.parametrize(
    "words",
    [
        "--preset llama-3-8b --B 2 --of kv_cache --json --vs --preset mistral-7b-v0.3",
        "--preset=llama-3-8b --B 2 --json --vs --preset=mistral-7b-v0.3 --of kv_cache",
    ],
)
def test_diff_inherits_all_but_the_model(capsys: pytest.CaptureFixture[str], words: str) -> None:
    code, output, _ = run(diff_cli.main, words, capsys)
    assert code == 0
    expected = diff(kv_cache_bytes(LLAMA, 2), kv_cache_bytes(preset("mistral-7b-v0.3"), 2))
    assert json.loads(output) == {"kv_cache": json.loads(json.dumps(expected.to_dict()))}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--preset gpt2", "нужен ровно один ключ --vs"),
        ("--preset gpt2 --vs --B 2 --vs --B 3", "нужен ровно один ключ --vs"),
        ("--preset gpt2 --vs --K 5", "--K = 5: N = 12 должно делиться на K"),
        ("--vs --preset gpt2", "не хватает ключей --V"),
        ("--preset gpt2 --vs --of всё", "--of"),
    ],
)
def test_bad_diff_is_one_line(capsys: pytest.CaptureFixture[str], words: str, message: str) -> None:
    code, output, errors = run(diff_cli.main, words, capsys)
    assert (code, output, len(errors.splitlines())) == (2, "", 1)
    assert message in errors


# --- квантованные веса --------------------------------------------------------------------------


def test_four_bit_weights_are_a_remedy_with_a_price() -> None:
    answer = fit(MIXTRAL, "rtx-4090", "inference", S=4096)
    best = answer.remedies[0]
    assert best.plan["weights"] == "awq-4-128"
    assert "матрицы слоёв в awq-4-128" in best.title
    assert "проверьте на своей задаче" in best.price
    assert best.quality > 0
    # Второй раз квантовать нечего.
    packed = fit(MIXTRAL, "rtx-4090", "inference", S=4096, weights="awq-4-128")
    assert packed.need < answer.need
    assert all(remedy.plan["weights"] == "awq-4-128" for remedy in packed.remedies)


def test_odd_matrices_are_offered_the_format_that_packs_them() -> None:
    """Ширина 4100 не делится на группу 128: вместо AWQ — блоки bitsandbytes."""
    spec = MIXTRAL.replace(D=4100)
    plans = [remedy.plan["weights"] for remedy in fit(spec, "rtx-4090", "inference", S=4096).remedies]
    assert "nf4-double" in plans
    assert "awq-4-128" not in plans


def test_quantization_of_a_config_is_named_in_the_answer() -> None:
    given = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    spec, weights = load({**presets()["llama-3-8b"]["config"], "quantization_config": given})
    answer = json.loads(json.dumps(fit(spec, "t4", "inference", B=64, S=8192, weights=weights).to_dict()))
    assert {remedy["plan"]["weights"] for remedy in answer["remedies"]} == {"fp8-block"}


# --- адаптеры -----------------------------------------------------------------------------------


def test_adapters_are_offered_where_they_are_described() -> None:
    """LoRA и QLoRA — только у transformers: у NanoLM адаптеров нет."""
    spec = preset("llama-3-8b")
    ours, theirs = (fit(spec, "rtx-4090", S=2048, implementation=name) for name in ("nanolm", "transformers"))
    assert not any("LoRA" in remedy.title for remedy in ours.remedies)
    found = [remedy for remedy in theirs.remedies if "LoRA" in remedy.title]
    assert found
    for remedy in found:
        assert remedy.need <= gpu("rtx-4090").usable_bytes
        assert remedy.plan["lora_rank"] == 16
        assert remedy.quality >= 3
        assert "качество ниже полного дообучения" in remedy.price


def test_selective_checkpointing_is_not_offered_to_transformers() -> None:
    found = fit(preset("llama-3-8b"), "h200", S=8192, B=4, implementation="transformers")
    assert not any("выборочный" in remedy.title for remedy in found.remedies)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("attention", ["fused", "naive"])
def test_transformers_is_offered_only_what_it_can_do(dtype: str, attention: str) -> None:
    """Порций заполнения и кеша другой точности у transformers нет: наборы их и не предлагают."""
    found = fit(
        preset("qwen3-4b"), "rtx-4090", "inference", B=64, S=4096, dtype=dtype, attention=attention,
        implementation="transformers",
    )  # fmt: skip
    assert not found.fits
    assert found.remedies or found.closest
    for remedy in (*found.remedies, *filter(None, [found.closest])):
        assert remedy.plan["chunk"] is None
        assert remedy.plan["kv_dtype"] == remedy.plan["dtype"]
