"""Счета против закрытых формул, против чисел настоящих моделей и против измеренных FLOPs.

Каждая классическая ошибка названа: тест показывает и верное число, и то, которое даёт ошибка.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import oracles
import pytest

from nanolm import budget, units
from nanolm.budget import (
    Spec,
    attention_crossover,
    critical_batch,
    crossover_batch,
    decode_step_time,
    flops_per_token,
    inference_memory,
    kv_cache_bytes,
    parameter_breakdown,
    saved_tensor_bytes,
    training_memory,
    training_time,
)
from nanolm.hardware import gpu
from nanolm.units import GB, GIB
from nanolm.zoo import FAMILIES, from_config, preset, presets

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parent / "golden"
MODELS: dict[str, Any] = json.loads((GOLDEN / "models.json").read_text(encoding="utf-8"))
MEASURED: dict[str, Any] = json.loads((GOLDEN / "flops_measured.json").read_text(encoding="utf-8"))

LLAMA = Spec(V=128256, D=4096, L=32, N=32, K=8, F=14336, S=8192)
MIXTRAL = preset("mixtral-8x7b")
LLAMA_2_7B, LLAMA_2_13B = preset("llama-2-7b"), preset("llama-2-13b")

#: Взаимно простые размеры: перестановка или потеря множителя не может дать то же число.
PRIMES = Spec(V=1009, D=60, L=7, N=6, K=2, H=13, F=101, S=53)
PRIME_MOE = PRIMES.replace(experts=5, experts_per_token=2)
VARIANTS = {
    "dense": PRIMES,
    "plain": PRIMES.replace(gated_ffn=False, norm_bias=True, learned_positions=97, tie_embeddings=True),
    "biased": PRIMES.replace(qkv_bias=True, out_bias=True, ffn_bias=True, sinks=True),
    "normed": PRIMES.replace(qk_norm=True, post_norms=True),
    "wide norm": PRIMES.replace(qk_norm=True, qk_norm_wide=True, pre_norms=0, post_norms=True),
    "parallel": PRIMES.replace(pre_norms=1),
    "windowed": PRIMES.replace(window=(5, None, 17, 5, None, 5, 60)),
    "moe": PRIME_MOE,
    "shared experts": PRIME_MOE.replace(shared_F=31, dense_layers=2, dense_F=211, router_bias=True),
    "latent": Spec(V=1009, D=60, L=7, N=6, H=13, F=101, S=53, kv_rank=29, rope_H=8, value_H=11),
    "latent query": Spec(V=1009, D=60, L=7, N=6, H=13, F=101, S=53, kv_rank=29, q_rank=23, rope_H=8, value_H=11),
}
every_variant = pytest.mark.parametrize("spec", VARIANTS.values(), ids=VARIANTS)


# --- параметры ----------------------------------------------------------------------------------


def test_llama3_8b_parameter_count() -> None:
    account = parameter_breakdown(LLAMA)
    assert account.total == account.active == 8_030_261_248
    assert dict(account) == {
        "embedding": 525_336_576,
        "positions": 0,
        "attention": 1_342_177_280,
        "ffn": 5_637_144_576,
        "router": 0,
        "norms": 266_240,
        "lm_head": 525_336_576,
    }
    assert account.non_embedding == 8_030_261_248 - 2 * 525_336_576


def test_rule_of_12LD2_and_why_llama_has_more() -> None:
    """2VD + 12LD² даёт 7,49 млрд; GQA убавляет внимание, F = 3,5D прибавляет полносвязный блок."""
    D, L, V = LLAMA.D, LLAMA.L, LLAMA.V
    rule = 2 * V * D + 12 * L * D**2
    assert round(rule / 1e9, 2) == 7.49
    account = parameter_breakdown(LLAMA)
    assert account["attention"] / (4 * L * D**2) == 0.625
    assert account["ffn"] / (8 * L * D**2) == 1.3125
    assert account.total == rule - 0.375 * 4 * L * D**2 + 0.3125 * 8 * L * D**2 + (2 * L + 1) * D


def test_rule_of_12LD2_is_exact_for_its_own_model() -> None:
    """MHA с N·H = D и SwiGLU с F = 8D/3: внимание 4D², полносвязный блок 8D²."""
    spec = Spec(V=1000, D=96, L=7, N=8)
    account = parameter_breakdown(spec)
    assert account["attention"] == 4 * 7 * 96**2
    assert account["ffn"] == 8 * 7 * 96**2
    assert account.total == 2 * 1000 * 96 + 12 * 7 * 96**2 + 15 * 96


def test_embedding_share() -> None:
    """Эмбеддинги перевешивают слои при V > 6LD (отдельная голова) и V > 12LD (связанная)."""
    L, D = 12, 768
    for tied, bound in ((False, 6 * L * D), (True, 12 * L * D)):
        for V, heavier in ((bound + 1, True), (bound - 1, False)):
            account = parameter_breakdown(Spec(V=V, D=D, L=L, N=12, tie_embeddings=tied))
            assert (account["embedding"] + account["lm_head"] > account["attention"] + account["ffn"]) is heavier
    gpt2 = parameter_breakdown(preset("gpt2"))
    assert gpt2["embedding"] / gpt2.total == pytest.approx(0.31, abs=0.005)


@every_variant
def test_parameters_against_closed_formulas(spec: Spec) -> None:
    account = parameter_breakdown(spec)
    assert dict(account) == oracles.parameters(spec)
    assert account.total == sum(oracles.parameters(spec).values())
    assert account.active == sum(oracles.parameters(spec, active=True).values())
    inside = ("attention", "ffn", "router", "norms")
    assert account.non_embedding == sum(oracles.parameters(spec)[name] for name in inside)


def test_tied_embeddings_are_counted_once() -> None:
    """Ошибка «связанная матрица дважды» завышает Qwen2.5-1.5B до 1 777 088 000."""
    account = parameter_breakdown(preset("qwen2.5-1.5b"))
    assert account.total == 1_543_714_304
    assert account["embedding"] == 151_936 * 1_536
    assert account["lm_head"] == 0
    assert account.total == 1_777_088_000 - 151_936 * 1_536
    # А N правила 6N вычитает её тоже один раз.
    assert account.non_embedding == account.total - 151_936 * 1_536


def test_moe_total_and_active() -> None:
    """24 слоя, внимание 20 млн, восемь экспертов по 60 млн, два на токен: 12,0 млрд и 3,36 млрд."""
    spec = Spec(V=1, D=2000, L=24, N=20, H=125, F=10_000, experts=8, experts_per_token=2)
    account = parameter_breakdown(spec)
    rest = account.total - account["attention"] - account["ffn"]
    assert account["attention"] == 24 * 20_000_000
    assert account.total - rest == 12_000_000_000
    assert account.active - rest == 3_360_000_000
    flops = flops_per_token(spec)
    assert flops["attention"] + flops["ffn"] == 6 * 3_360_000_000
    memory = inference_memory(spec, B=1, S=1)
    assert memory["weights"] == 2 * account.total > 24 * GB


@pytest.mark.parametrize("name", MODELS)
def test_golden_parameter_counts(name: str) -> None:
    """До единицы: всего, на токен, входной эмбеддинг, отдельная голова. Чужое семейство — отказ с именем."""
    model = MODELS[name]
    family = model["config"]["model_type"]
    if family not in FAMILIES:
        with pytest.raises(ValueError, match=f"model_type = '{family}'"):
            from_config(model["config"])
        return
    account = parameter_breakdown(from_config(model["config"]))
    assert account.total == model["total"]
    assert account.active == model["active"]
    assert account["embedding"] == model["input_embedding"]
    assert account["lm_head"] == model["untied_head"]


def test_golden_covers_the_families_of_the_zoo() -> None:
    assert set(FAMILIES) >= {"llama", "mistral", "mixtral", "qwen2", "qwen3", "gpt2"}
    assert {model["config"]["model_type"] for model in MODELS.values()} >= {"llama", "mistral", "mixtral", "qwen2"}


@pytest.mark.parametrize("name", presets())
def test_presets_have_exactly_the_published_total(name: str) -> None:
    assert parameter_breakdown(preset(name)).total == presets()[name]["total"]


def test_mixtral_active_parameters() -> None:
    """Память — по всем 46,7 млрд, FLOPs — по 12,88 млрд; перепутать их — ошибка в 3,6 раза."""
    account = parameter_breakdown(MIXTRAL)
    assert account.total == 46_702_792_704
    assert account.active == 12_879_925_248
    assert inference_memory(MIXTRAL)["weights"] == 2 * account.total
    assert flops_per_token(MIXTRAL)["ffn"] == 6 * account["ffn"] * 2 // 8


# --- FLOPs --------------------------------------------------------------------------------------


def test_flops_rule_of_6N() -> None:
    """6N — по матрицам слоёв: 2 прямой проход, 4 обратный. Эмбеддинг в N не входит, голова — своя строка."""
    spec = Spec(V=1000, D=96, L=7, N=8, K=4, F=250)
    account, parameters = flops_per_token(spec), parameter_breakdown(spec)
    N = parameters.non_embedding - parameters["norms"]
    assert account["attention"] + account["ffn"] == 6 * N
    forward = flops_per_token(spec, training=False)
    assert forward["attention"] + forward["ffn"] == 2 * N
    assert {name: 3 * value for name, value in forward.items()} == dict(account)
    # Эмбеддинг — поиск по таблице: считать его произведением значит завысить работу.
    assert account["embedding"] == 0
    assert account["lm_head"] == 6 * spec.V * spec.D
    assert account.total - account["scores"] == 6 * (parameters.total - parameters["norms"] - parameters["embedding"])
    assert account.total - account["scores"] != 6 * parameters.total


def test_flops_of_a_training_run() -> None:
    """1 млрд параметров на 20 млрд токенов — 1,2·10²⁰; 4N и 2N дали бы 0,8 и 0,4."""
    spec = Spec(V=1, D=2000, L=20, N=20, H=125, F=5000)
    parameters = parameter_breakdown(spec)
    account = flops_per_token(spec)
    assert parameters["attention"] + parameters["ffn"] == 1_000_000_000
    assert (account["attention"] + account["ffn"]) * 20 * 10**9 == 12 * 10**19


@pytest.mark.parametrize("attention", ["full", "windowed", "causal"])
@every_variant
def test_flops_against_closed_formulas(spec: Spec, attention: str) -> None:
    account = flops_per_token(spec, training=False, attention=attention)
    for name, exact in oracles.forward_flops(spec, spec.S, attention).items():
        # Средние пары при маске дробные: каждая строка округляется до единицы.
        assert abs(account[name] - exact) <= len([line for line in account.details if line.component == name]) / 2
    if attention != "causal":
        assert dict(account) == oracles.forward_flops(spec, spec.S, attention)


def test_attention_is_12LSD_a_token() -> None:
    """4·S·N·H на слой прямым проходом, с обратным 12·L·S·D при N·H = D."""
    assert flops_per_token(LLAMA)["scores"] == 12 * 32 * 8192 * 4096
    assert flops_per_token(LLAMA, training=False)["scores"] == 4 * 32 * 8192 * 4096


def test_gqa_does_not_shrink_attention_flops() -> None:
    """Голов ключа меньше, но каждая голова запроса по-прежнему смотрит на все ключи."""
    for K in (1, 2, 8, 32):
        assert flops_per_token(LLAMA.replace(K=K))["scores"] == 12 * 32 * 8192 * 32 * 128


def test_tying_does_not_change_flops() -> None:
    """Связанная голова — то же произведение D×V; ошибка «эмбеддинг 2VD, головы нет» его теряет."""
    assert dict(flops_per_token(PRIMES)) == dict(flops_per_token(PRIMES.replace(tie_embeddings=True)))


def test_llama3_8b_head_and_its_share() -> None:
    """3,15 GFLOPs на токен: 7,0 % без внимания, 6,1 % с причинной половиной, 5,4 % с квадратом."""
    full, causal = flops_per_token(LLAMA), flops_per_token(LLAMA, attention="causal")
    assert full["lm_head"] == 3_152_019_456
    assert full["lm_head"] / (full.total - full["scores"]) == pytest.approx(0.070, abs=0.0005)
    assert causal["lm_head"] / causal.total == pytest.approx(0.061, abs=0.0005)
    assert full["lm_head"] / full.total == pytest.approx(0.054, abs=0.0005)


def test_causal_counts_the_diagonal() -> None:
    """В среднем (S + 1)/2 ключей, а не S/2: у квадрата 4×4 это 10 пар, а не 8."""
    spec = Spec(V=7, D=8, L=1, N=2, F=8)
    full, causal = (flops_per_token(spec, 4, attention=kind)["scores"] for kind in ("full", "causal"))
    assert Fraction(causal, full) == Fraction(10, 16)


def measured(family: str, attention: str = "eager") -> list[tuple[int, int, dict[str, int]]]:
    rows = []
    for key, row in MEASURED["measured"].items():
        name, kind, B, S = key.split("|")
        if (name, kind) == (family, attention):
            rows.append((int(B), int(S), row))
    assert len(rows) == 2
    return rows


MEASURED_SPECS = {
    name: from_config(MEASURED["configs"][name]) for name in ("llama", "qwen2", "qwen3", "gpt2", "mixtral")
} | {
    # Семейство, которого счётчик видит не всё: собрано вручную по его config.json.
    "qwen3moe": Spec(
        V=1000, D=64, L=3, N=4, K=2, H=32, F=48, S=512, experts=8, experts_per_token=2, qk_norm=True
    ),
    # GeGLU — те же три матрицы; окно 16 счётчик не замечает и считает весь квадрат.
    "gemma3": Spec(
        V=1000, D=64, L=3, N=4, K=2, H=32, F=160, S=512, tie_embeddings=True, qk_norm=True, post_norms=True,
        window=(16, 16, None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", MEASURED_SPECS)
def test_measured_models_have_these_parameters(family: str) -> None:
    for _, _, row in measured(family):
        assert parameter_breakdown(MEASURED_SPECS[family]).total == row["params"]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gpt2", "gemma3"])
def test_measured_flops_of_dense_families(family: str) -> None:
    """Прямой проход равен счёту до единицы, обратный — ровно вдвое больше."""
    for B, S, row in measured(family):
        forward = flops_per_token(MEASURED_SPECS[family], S, training=False).total
        training = flops_per_token(MEASURED_SPECS[family], S).total
        assert B * S * forward == row["fwd"]
        assert B * S * training == row["fwd"] + row["bwd"]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gpt2", "gemma3", "mixtral", "qwen3moe"])
def test_measured_difference_is_the_attention_alone(family: str) -> None:
    """Слитое ядро счётчик не видит, и разница двух измерений — ровно строка scores."""
    for (B, S, eager), (_, _, fused) in zip(measured(family), measured(family, "sdpa"), strict=True):
        scores = flops_per_token(MEASURED_SPECS[family], S, training=False)["scores"]
        assert B * S * scores == eager["fwd"] - fused["fwd"]


@pytest.mark.parametrize("family", ["mixtral", "qwen3moe"])
def test_measured_flops_of_mixtures_without_experts(family: str) -> None:
    """Групповое умножение экспертов счётчик не видит: измерено всё, кроме них, маршрутизатор в том числе."""
    for B, S, row in measured(family):
        forward = flops_per_token(MEASURED_SPECS[family], S, training=False)
        assert forward["router"] > 0
        assert B * S * (forward.total - forward["ffn"]) == row["fwd"]


# --- кеш KV и память вывода ---------------------------------------------------------------------


def test_kv_cache_size_formula() -> None:
    """2·B·S·L·K·H·байт: два — ключ и значение; голов K, а не N."""
    for B, S, dtype in ((1, 53, "bf16"), (5, 17, "fp32"), (3, 2, "fp8")):
        size = oracles.BYTES[dtype]
        account = kv_cache_bytes(PRIMES, B, S, dtype)
        assert account.total == 2 * B * S * 7 * 2 * 13 * size
        assert account["key"] == account["value"] == account.total // 2
        assert account.total != B * S * 7 * 2 * 13 * size  # забыта двойка
        assert account.total != 2 * B * S * 7 * 6 * 13 * size  # N вместо K
        assert account.total != 2 * B * S * 2 * 13 * size  # забыты слои


@pytest.mark.parametrize("kv", ["theory", "transformers", "engine"])
@every_variant
def test_kv_cache_against_closed_formula(spec: Spec, kv: str) -> None:
    for S in (1, 5, 6, 16, 17, 18, 53):
        values = oracles.cached_values(spec, S, kv)
        assert kv_cache_bytes(spec, 3, S, "fp32", kv).total == 3 * 4 * values
        assert inference_memory(spec, 3, S, "bf16", "fp8", kv)["kv_cache"] == 3 * values


@pytest.mark.parametrize(
    ("spec", "S", "mib"),
    [
        (LLAMA, 8192, 1024),
        (LLAMA.replace(K=32), 8192, 4096),
        (LLAMA_2_7B, 4096, 2048),
        (LLAMA_2_7B, 32_768, 16_384),
        (LLAMA_2_13B, 8192, 6400),
        (preset("qwen3-4b"), 8192, 1152),
        (Spec(V=131_072, D=5120, L=40, N=32, K=8, H=128), 8192, 1280),  # Mistral-Nemo: H не D/N
        (Spec(V=256_000, D=3072, L=28, N=16, H=256), 8192, 3584),  # Gemma-7B: H = 256, а не 192
        (Spec(V=201_088, D=2880, L=24, N=64, K=8, H=64, window=(128, None) * 12), 8192, 195),  # gpt-oss-20b
    ],
)
def test_kv_cache_of_known_models(spec: Spec, S: int, mib: int) -> None:
    """Публичные ошибки калькуляторов: без двойки, N вместо K, H = D/N, окно у всех слоёв."""
    assert kv_cache_bytes(spec, 1, S).total == mib * 1024**2


def test_kv_cache_per_token_of_known_models() -> None:
    assert kv_cache_bytes(LLAMA, 1, 1).total == 128 * 1024
    assert kv_cache_bytes(LLAMA_2_7B, 1, 1).total == 524_288
    assert kv_cache_bytes(preset("qwen3-4b"), 1, 1).total == 147_456
    if "deepseek-v3" in presets():
        assert kv_cache_bytes(preset("deepseek-v3"), 1, 1).total == 61 * 576 * 2


def test_kv_conventions_answer_different_questions() -> None:
    """32 диалога по 8192 у модели с окном в половине слоёв: 6,09 ГиБ нужно, 12,0 зарезервирует движок."""
    spec = Spec(V=201_088, D=2880, L=24, N=64, K=8, H=64, window=(128, None) * 12)
    theory, held, reserved = (
        kv_cache_bytes(spec, 32, 8192, kv=kind).total for kind in ("theory", "transformers", "engine")
    )
    assert theory / GIB == 6.09375
    assert reserved / GIB == 12.0
    assert theory - held == 32 * 12 * 2 * 8 * 64 * 2


@pytest.mark.parametrize("kv", ["theory", "transformers", "engine"])
@pytest.mark.parametrize("block", [1, 4, 16, 64])
@every_variant
def test_kv_blocks_are_taken_whole(spec: Spec, kv: str, block: int) -> None:
    """Слой держит столько целых страниц, чтобы поместились его токены: перебором страниц, по слою."""
    for S in (1, 4, 5, 16, 17, 53):
        pages = 0
        for window in spec.windows:
            alone = kv_cache_bytes(spec.replace(L=1, dense_layers=0, dense_F=0, window=window), 1, S, "int8", kv)
            one = kv_cache_bytes(spec.replace(L=1, dense_layers=0, dense_F=0, window=None), 1, 1, "int8", kv)
            held = alone.total // one.total
            pages += one.total * len(range(0, held, block))
        assert kv_cache_bytes(spec, 3, S, "bf16", kv, block).total == 3 * 2 * block * pages
        assert inference_memory(spec, 3, S, kv=kv, block=block)["kv_cache"] == 3 * 2 * block * pages


def test_last_block_of_every_sequence_is_whole() -> None:
    """64 диалога по 1025 токенов в страницах по 16: каждый занимает 65 страниц, последнюю — ради одного токена."""
    exact, paged = (kv_cache_bytes(LLAMA, 64, 1025, block=block) for block in (1, 16))
    assert paged.total - exact.total == 64 * 15 * 131_072
    assert "⌈S/16⌉·16" in paged.explain()
    assert paged.total == kv_cache_bytes(LLAMA, 64, 1040).total


def test_llama_13b_cache_is_6_71_GB_and_6_25_GiB() -> None:
    """То же число под двумя единицами: назвать 6,7 гибибайтами значит ошибиться на 7,4 %."""
    size = kv_cache_bytes(LLAMA_2_13B, 1, 8192).total
    assert units.gb(size).replace("\u00a0", " ") == "6,71 ГБ"
    assert units.gib(size).replace("\u00a0", " ") == "6,25 ГиБ"


def test_crossover_batch_counts_the_pages_of_the_cache() -> None:
    """Кеш страницами тяжелее, и веса он догоняет раньше: у одной последовательности в один токен — страница целиком."""
    assert crossover_batch(LLAMA, 1, block=16) == crossover_batch(LLAMA, 1) / 16
    assert crossover_batch(LLAMA, 8192, block=16) == crossover_batch(LLAMA, 8192)


def test_crossover_batch_of_llama() -> None:
    """Около 15 последовательностей по 8k, около 30 по 4k: дальше шаг читает больше кеша, чем весов."""
    assert crossover_batch(LLAMA) == pytest.approx(8_030_261_248 * 2 / 2**30, rel=1e-15)
    assert 14.957 < crossover_batch(LLAMA, 8192) < 14.958
    assert crossover_batch(LLAMA, 4096) == pytest.approx(29.9, abs=0.05)
    assert crossover_batch(LLAMA_2_13B, 8192) == pytest.approx(3.88, abs=0.005)
    B = crossover_batch(LLAMA)
    below, above = (inference_memory(LLAMA, round_(B)) for round_ in (math.floor, math.ceil))
    assert below["kv_cache"] < below["weights"] == above["weights"] < above["kv_cache"]


def test_inference_memory_is_weights_and_cache() -> None:
    account = inference_memory(LLAMA)
    assert dict(account) == {"weights": 16_060_522_496, "kv_cache": 2**30}
    assert account.total == 16_060_522_496 + 2**30
    assert inference_memory(LLAMA, dtype="fp8")["weights"] == 8_030_261_248
    assert inference_memory(LLAMA, dtype="fp32")["weights"] == 4 * 8_030_261_248


def test_peak_adds_buffers_of_one_layer_and_the_last_logits() -> None:
    """Слои считаются по очереди: буфер — одного слоя, а логиты нужны одному токену."""
    account = inference_memory(LLAMA, B=2, S=1000)
    assert account.peak == account.total + sum(line.value for line in account.buffers)
    tokens = 2 * 1000 * 2
    widest = 4 * 14336 + 4096 * 2
    extra = account.peak - account.total
    assert 2 * 128_256 * 4 < extra <= tokens * (2 * 4096 + widest) + 2 * 128_256 * 4
    assert inference_memory(LLAMA.replace(L=64), B=2, S=1000).peak > account.peak
    deeper = inference_memory(LLAMA.replace(L=64), B=2, S=1000)
    assert deeper.peak - deeper.total == extra


@pytest.mark.parametrize(
    ("spec", "widest"),
    [
        (PRIMES, 4 * 101),  # ворота, расширение, активация, произведение
        (PRIMES.replace(F=50), 3 * 6 * 13 + 3 * 2 * 13),  # q и k до и после поворота, v, выход внимания
        (PRIMES.replace(gated_ffn=False, F=200), 2 * 200),
        (PRIME_MOE, 2 * 4 * 101),  # токен проходит k экспертов
    ],
    ids=["ffn", "attention", "plain ffn", "moe"],
)
def test_inference_buffers_by_hand(spec: Spec, widest: int) -> None:
    """Поток, выход нормы и самая широкая половина блока на токен, fp32-логиты последнего токена."""
    for B, S, dtype in ((1, 53, "bf16"), (3, 7, "fp32")):
        account = inference_memory(spec, B, S, dtype)
        expected = B * S * (2 * 60 + widest) * oracles.BYTES[dtype] + B * 1009 * 4
        assert account.peak - account.total == expected


# --- память обучения ----------------------------------------------------------------------------

STATES = ("weights", "master_weights", "gradients", "optimizer")


@pytest.mark.parametrize(
    ("recipe", "per_parameter"),
    [("mixed", (2, 4, 2, 8)), ("fp32", (4, 0, 4, 8)), ("bf16", (2, 0, 2, 4)), ("autocast", (4, 0, 4, 8))],
)
@every_variant
def test_states_by_recipe(spec: Spec, recipe: str, per_parameter: tuple[int, ...]) -> None:
    """16 байт на параметр и в смешанной точности, и в чистой fp32: смешанная экономит не состояния."""
    count = sum(oracles.parameters(spec).values())
    account = training_memory(spec, recipe=recipe)
    assert tuple(account[name] for name in STATES) == tuple(count * size for size in per_parameter)


def test_seven_billion_do_not_fit_one_80_GB_card() -> None:
    """7 млрд · 16 байт = 112 ГБ ещё до первой активации; моменты Adam — два, а не один."""
    spec = Spec(V=1, D=4096, L=1, N=32, F=8192)
    count = parameter_breakdown(spec).total
    account = training_memory(spec)
    assert sum(account[name] for name in STATES) == 16 * count
    assert account["optimizer"] == 2 * 4 * count != 4 * count
    assert 16 * 7 * 10**9 == 112 * GB > gpu("h100-sxm").memory_bytes


@pytest.mark.parametrize(("optimizer", "moments"), [("adamw", 2), ("momentum", 1), ("sgd", 0)])
def test_moments_by_optimizer(optimizer: str, moments: int) -> None:
    count = parameter_breakdown(LLAMA).total
    assert training_memory(LLAMA, optimizer=optimizer)["optimizer"] == moments * 4 * count
    assert training_memory(LLAMA, optimizer=optimizer, recipe="bf16")["optimizer"] == moments * 2 * count


def test_8bit_adam_by_hand() -> None:
    """Байт на момент и fp32-масштаб на 256 значений; тензоры меньше 4096 остаются в fp32."""
    spec = Spec(V=101, D=64, L=3, N=4, F=103)  # матрицы сжимаются, нормы по 64 — нет; блоки не целые
    tensors = [101 * 64] * 2 + [64 * 64] * 4 * 3 + [64 * 103] * 3 * 3
    compressed = sum(2 * (size + 4 * math.ceil(size / 256)) for size in tensors)
    assert training_memory(spec, optimizer="adamw8bit")["optimizer"] == compressed + 7 * 64 * 2 * 4
    experts = Spec(V=1, D=64, L=1, N=1, H=1, F=63, experts=1000, experts_per_token=1)
    # Эксперт меньше порога, хотя все вместе они больше: порог — на тензор.
    ffn = [line for line in training_memory(experts, optimizer="adamw8bit").details if line.name == "up"]
    assert [line.value for line in ffn if line.component == "optimizer"] == [1000 * 64 * 63 * 2 * 4]


def test_training_has_no_kv_cache() -> None:
    assert "kv_cache" not in training_memory(LLAMA)


@pytest.mark.parametrize(("activations", "gib"), [("expanded", 384), ("all", 348)])
def test_textbook_activation_counts(activations: str, gib: int) -> None:
    """Llama-3-8B, 8 × 8192, bf16: (10D + 4F) значений на токен и слой; с K головами — 21,75D."""
    account = training_memory(LLAMA, B=8, S=8192, activations=activations)
    assert account["activations"] == gib * GIB
    per_token = account["activations"] // (2 * 32 * 8 * 8192)
    assert per_token == {"expanded": 10 * 4096 + 4 * 14336, "all": int(21.75 * 4096)}[activations]


def test_naive_attention_adds_a_square_a_layer() -> None:
    """Один bf16-тензор B·N·S² на слой — 1024 ГиБ у Llama-3-8B при 8 × 8192."""
    naive, fused = (
        training_memory(LLAMA, B=8, S=8192, attention=kind, activations="all")["activations"]
        for kind in ("naive", "fused")
    )
    assert naive - fused == 1024 * GIB == 32 * 8 * 32 * 8192**2 * 2


def test_states_of_llama_are_120_GiB() -> None:
    account = training_memory(LLAMA)
    states = sum(account[name] for name in STATES)
    assert states == 16 * 8_030_261_248
    assert round(states / GIB, 1) == 119.7


@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
@pytest.mark.parametrize("attention", ["fused", "naive"])
@pytest.mark.parametrize("recipe", ["fp32", "mixed", "bf16", "autocast"])
@pytest.mark.parametrize("name", ["dense", "plain", "biased", "qk norm", "windowed", "moe"])
def test_saved_activations_against_the_measured_list(
    name: str, recipe: str, attention: str, checkpointing: str
) -> None:
    """Список тензоров, которые autograd держал у NanoLM, выписан в `oracles` вручную."""
    spec = PRIMES.replace(qk_norm=True) if name == "qk norm" else VARIANTS[name]
    account = training_memory(spec, 3, 19, recipe, attention=attention, checkpointing=checkpointing)
    expected = oracles.saved_activations(spec, 3, 19, recipe, attention, checkpointing)
    assert (account["activations"], account["logits"]) == expected
    saved = saved_tensor_bytes(spec, 3, 19, recipe, attention, checkpointing)
    assert (saved["activations"], saved["logits"], saved["input"]) == (*expected, account["input"])


@pytest.mark.parametrize("field", ["B", "L", "S"])
def test_activations_grow_with_batch_layers_and_context(field: str) -> None:
    """Забытый множитель B, L или S: вдвое больше — вдвое больше активаций слоёв."""

    def layers(B: int = 2, S: int = 16, L: int = 4) -> int:
        account = training_memory(Spec(V=50, D=32, L=L, N=4, F=64), B, S)
        return sum(line.value for line in account.details if line.component == "activations" and "L" in line.letters)

    base = {"B": 2, "S": 16, "L": 4}
    assert layers(**{**base, field: 2 * base[field]}) == 2 * layers(**base)


def test_token_ids_are_int64_in_every_recipe() -> None:
    """Номера токенов и ответов не ужимаются вместе с весами: bf16 их не касается."""
    for recipe in budget.RECIPES:
        assert training_memory(LLAMA, 8, 1024, recipe)["input"] == 2 * 8 * 1024 * 8


def test_logits_are_fp32() -> None:
    """256 токенов по 151 665 логитов: 155,3 МБ в fp32, а не 77,7 в bf16."""
    spec = Spec(V=151_665, D=8, L=1, N=1, F=8)
    for recipe in budget.RECIPES:
        assert training_memory(spec, 1, 256, recipe)["logits"] == 256 * 151_665 * 4


def test_autocast_copies_every_matrix_once() -> None:
    """bf16-копия каждой матрицы, что стоит в произведении: эмбеддинга среди них нет, пока голова своя."""

    def copies(spec: Spec, recipe: str) -> int:
        return saved_tensor_bytes(spec, 1, 1, recipe)["copies"]

    for spec in (PRIMES, PRIMES.replace(tie_embeddings=True, qkv_bias=True)):
        matrices = oracles.forward_flops(spec, 1)
        expected = sum(matrices[name] for name in ("attention", "ffn", "router", "lm_head"))
        assert copies(spec, "autocast") == expected  # по два байта на вес — столько же, сколько FLOPs на токен
        assert all(copies(spec, recipe) == 0 for recipe in ("mixed", "fp32", "bf16"))


@pytest.mark.parametrize("checkpointing", ["selective", "full"])
@pytest.mark.parametrize("spec", [LLAMA, preset("gpt2"), MIXTRAL], ids=["llama", "gpt2", "mixtral"])
def test_checkpointing_lowers_the_peak_of_real_models(spec: Spec, checkpointing: str) -> None:
    none, saved = (training_memory(spec, 4, checkpointing=kind).total for kind in ("none", checkpointing))
    assert saved < none


# --- пересечения --------------------------------------------------------------------------------


@pytest.mark.parametrize(("attention", "S"), [("full", 26_624), ("causal", 53_247)])
def test_attention_crossover_of_llama(attention: str, S: int) -> None:
    """26 624 по полному квадрату (правило 6D дало бы 24 576); причинная половина — вдвое дальше."""
    assert attention_crossover(LLAMA, attention) == S
    account = parameter_breakdown(LLAMA)
    assert (account["attention"] + account["ffn"]) / (2 * LLAMA.L * LLAMA.D) == 26_624


@pytest.mark.parametrize("edge", [1, 2, 3, 64, 100, 2**20, 2**20 + 1])
def test_search_does_not_depend_on_the_guess(edge: int) -> None:
    for guess in {1, max(1, edge - 1), edge, edge + 1, 5 * edge, 1000}:
        assert budget._smallest(lambda value: value >= edge, guess=guess) == edge
        assert budget._smallest(lambda value: False, guess=guess) is None
    # Хорошая догадка стоит двух проверок, а не двух десятков.
    asked: list[int] = []
    budget._smallest(lambda value: asked.append(value) is None and value >= edge, guess=edge)
    assert len(asked) <= 2


def test_attention_crossover_of_the_rule_model() -> None:
    """У модели с 12LD² внимание догоняет матрицы ровно при S = 6D."""
    assert attention_crossover(Spec(V=10, D=96, L=3, N=4)) == 6 * 96


@pytest.mark.parametrize("attention", ["full", "windowed", "causal"])
@every_variant
def test_attention_crossover_by_definition(spec: Spec, attention: str) -> None:
    """Наименьший контекст, с которого scores не меньше матриц: проверяются обе стороны."""

    def reached(S: int) -> bool:
        exact = oracles.forward_flops(spec, S, attention)
        return round(exact["scores"]) >= exact["attention"] + exact["ffn"] + exact["router"]

    S = attention_crossover(spec, attention)
    if S is None:
        assert attention != "full"
        assert not reached(5000)
    else:
        assert reached(S)
        assert not reached(S - 1)


def test_attention_never_catches_up_inside_a_window() -> None:
    assert attention_crossover(LLAMA.replace(window=512), "causal") is None
    assert attention_crossover(LLAMA.replace(window=512), "full") == 26_624


# --- время и деньги -----------------------------------------------------------------------------


def test_training_time_by_hand() -> None:
    card = gpu("h100-sxm")
    answer = training_time(LLAMA, 10**12, card, gpus=64, mfu=0.4, price=3)
    flops = flops_per_token(LLAMA).total * 10**12
    assert answer.flops == flops
    assert answer.seconds == pytest.approx(flops / (64 * card.flops_per_s["bf16"] * 0.4), rel=1e-12)
    assert answer.gpu_hours == pytest.approx(64 * answer.seconds / 3600, rel=1e-12)
    assert answer.days == pytest.approx(answer.seconds / 86_400, rel=1e-12)
    assert answer.cost == pytest.approx(3 * answer.gpu_hours, rel=1e-12)
    assert answer.dtype == "bf16"


def test_training_time_defaults() -> None:
    """MFU 45 %, одна карта, полный квадрат, без цены."""
    answer = training_time(LLAMA, 10**9, "h100-sxm")
    assert answer.mfu == 0.45
    assert answer.gpus == 1
    assert answer.cost is None
    assert answer.seconds == pytest.approx(
        flops_per_token(LLAMA).total * 1e9 / (0.45 * gpu("h100-sxm").flops_per_s["bf16"]), rel=1e-12
    )
    causal = training_time(LLAMA, 10**9, "h100-sxm", attention="causal")
    assert causal.seconds < answer.seconds


def test_training_time_uses_the_16_bit_rate_the_card_has() -> None:
    """У T4 нет bf16: считается fp16 — и это видно в ответе."""
    assert training_time(LLAMA, 10**9, "t4").dtype == "fp16"
    fp32 = training_time(LLAMA, 10**9, "h100-sxm", dtype="fp32")
    assert fp32.seconds > training_time(LLAMA, 10**9, "h100-sxm").seconds


def test_training_on_trillions_of_tokens_is_not_too_much() -> None:
    """15 трлн токенов — настоящее обучение Llama 3; предел размеров модели к токенам не относится."""
    assert training_time(LLAMA, 15 * 10**12, "h100-sxm").gpu_hours > 5e5


def test_decode_step_by_hand() -> None:
    """Веса читаются раз на пакет, из эмбеддинга — B строк, кеш — у каждой последовательности."""
    card, B, S = gpu("h100-sxm"), 7, 3000
    step = decode_step_time(LLAMA, B, S, card)
    parameters = parameter_breakdown(LLAMA)
    assert step.weight_bytes == 2 * (parameters.total - parameters["embedding"] + B * LLAMA.D)
    assert step.cache_bytes == B * S * 131_072
    matrices = parameters["attention"] + parameters["ffn"] + parameters["lm_head"]
    assert step.flops == B * (2 * matrices + 4 * S * 32 * 32 * 128)
    assert step.memory_seconds == (step.weight_bytes + step.cache_bytes) / card.bandwidth_bytes_per_s
    assert step.compute_seconds == step.flops / card.flops_per_s["bf16"]
    assert step.seconds == max(step.memory_seconds, step.compute_seconds)
    assert step.tokens_per_s == B / step.seconds
    assert step.bound == "память"


def test_decode_reads_the_tied_head_too() -> None:
    """Матрица хранится один раз, но шаг читает её всю: связанная голова не быстрее отдельной."""
    tied, untied = (decode_step_time(PRIMES.replace(tie_embeddings=kind), 3, 10, "t4") for kind in (True, False))
    assert tied.weight_bytes == untied.weight_bytes


def test_decode_of_a_mixture_reads_distinct_experts() -> None:
    """Mixtral при пакете 16 читает почти всех экспертов: не двух и не ровно восемь."""
    parameters = parameter_breakdown(MIXTRAL)
    rest = parameters.total - parameters["ffn"] - parameters["embedding"]
    for B, experts in ((1, 2.0), (16, 8 * (1 - 0.75**16)), (10_000, 8.0)):
        expected = rest + parameters["ffn"] / 8 * experts + B * MIXTRAL.D
        assert decode_step_time(MIXTRAL, B, 128, "h200").weight_bytes == pytest.approx(2 * expected, rel=1e-12)
    # 28,2 мс на H100 (публичная ошибка: 8,33 мс — при двух экспертах на весь пакет).
    step = decode_step_time(MIXTRAL, 16, 2048, "h100-sxm")
    assert 0.027 < step.memory_seconds < 0.030


def test_decode_sees_only_the_window() -> None:
    narrow = LLAMA.replace(window=1024)
    full, windowed = (decode_step_time(spec, 4, 8192, "h100-sxm") for spec in (LLAMA, narrow))
    assert windowed.cache_bytes * 8 == full.cache_bytes
    assert full.flops - windowed.flops == 4 * 4 * (8192 - 1024) * 32 * 32 * 128


def test_decode_stores_what_it_cannot_compute() -> None:
    """fp8-веса на A100 читаются по байту, а считаются в bf16; fp32 читается по четыре."""
    for dtype, size, compute in (("fp8", 1, "bf16"), ("int8", 1, "bf16"), ("fp32", 4, "fp32"), ("bf16", 2, "bf16")):
        step = decode_step_time(LLAMA, 1, 100, "a100-80", dtype)
        assert step.weight_bytes == size * (8_030_261_248 - 128_256 * 4096 + 4096)
        assert (step.dtype, step.compute_dtype) == (dtype, compute)
        assert step.compute_seconds == step.flops / gpu("a100-80").flops_per_s[compute]
    assert decode_step_time(LLAMA, 1, 100, "h100-sxm", "fp8").compute_dtype == "fp8"
    assert decode_step_time(LLAMA, 1, 100, "t4", "bf16").compute_dtype == "fp16"
    mixed = decode_step_time(LLAMA, 1, 100, "a100-80", "bf16", kv_dtype="fp8")
    assert mixed.cache_bytes == 100 * 131_072 // 2


@pytest.mark.parametrize("card", ["h100-sxm", "t4"])
@pytest.mark.parametrize("spec", [LLAMA, MIXTRAL, PRIMES], ids=["llama", "mixtral", "primes"])
def test_critical_batch_by_definition(spec: Spec, card: str) -> None:
    batch = critical_batch(spec, 1, card)
    assert batch is not None
    assert batch > 1
    assert decode_step_time(spec, batch, 1, card).bound == "вычисления"
    assert decode_step_time(spec, batch - 1, 1, card).bound == "память"


def test_critical_batch_of_a_mixture_is_higher() -> None:
    """Читает все веса, считает активными: критический пакет выше примерно в total/active раз."""
    spec = Spec(V=1000, D=2000, L=24, N=20, H=125, F=10_000, experts=8, experts_per_token=2)
    dense = spec.replace(experts=0, experts_per_token=0, F=20_000)
    mixture, plain = (critical_batch(model, 1, "h100-sxm") for model in (spec, dense))
    assert mixture is not None
    assert plain is not None
    assert mixture / plain == pytest.approx(12 / 3.36, rel=0.05)


def test_long_context_has_no_critical_batch() -> None:
    assert critical_batch(LLAMA, 8192, "h100-sxm") is None


# --- счёт как объект ----------------------------------------------------------------------------

ACCOUNTS: dict[str, Callable[[Spec], budget.Account]] = {
    "parameters": parameter_breakdown,
    "flops": flops_per_token,
    "training": training_memory,
    "inference": inference_memory,
    "kv_cache": kv_cache_bytes,
}
CONTRACT = {
    "parameters": "embedding positions attention ffn router norms lm_head",
    "flops": "embedding attention scores ffn router lm_head",
    "training": "weights master_weights gradients optimizer input activations logits workspace",
    "inference": "weights kv_cache",
}


@pytest.mark.parametrize("name", CONTRACT)
@every_variant
def test_components_and_their_order_are_the_contract(spec: Spec, name: str) -> None:
    """Компонент, которого у модели нет, всё равно присутствует — с нулём."""
    account = ACCOUNTS[name](spec)
    assert list(account) == CONTRACT[name].split()
    assert all(type(value) is int and value >= 0 for value in account.values())
    assert len(account) == len(list(account))
    assert account.total == sum(account.values()) == sum(line.value for line in account.details)
    with pytest.raises(KeyError):
        account["нет такого"]


def evaluate(numbers: str) -> Fraction:
    """Посчитать формулу с числами заново: «2·32·8 / 3»."""
    product, _, over = numbers.partition(" / ")
    value = Fraction(1)
    for factor in product.split("·"):
        value *= Fraction(factor.replace(",", "."))
    return value / int(over or 1)


@pytest.mark.parametrize("name", ACCOUNTS)
@every_variant
def test_every_line_explains_itself(spec: Spec, name: str) -> None:
    """Числа в формуле перемножаются в результат, букв столько же, сколько чисел."""
    account = ACCOUNTS[name](spec)
    for line in account.details:
        assert abs(evaluate(line.numbers) - line.value) <= Fraction(1, 2)
        assert len(line.letters.split("·")) == len(line.numbers.split("·"))
        assert line.title
        assert f"{line.letters} = {line.numbers} = {units.number(line.value)}" in account.explain()
    assert len(account.explain().splitlines()) == len(account.details)


@pytest.mark.parametrize("optimizer", ["adamw8bit", "sgd"])
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_lines_of_the_peak_explain_themselves(optimizer: str, checkpointing: str) -> None:
    """Пик приходится на один из экспертов: строк у него ⌈BSk/E⌉, и напечатанные числа перемножаются точно."""
    spec = Spec(V=8, D=64, L=2, N=4, F=2000, experts=7, experts_per_token=2)
    account = training_memory(spec, 1, 4096, optimizer=optimizer, checkpointing=checkpointing)
    assert any("⌈BSk/E⌉" in line.letters for line in account.details)
    for line in account.details:
        assert evaluate(line.numbers) == line.value
        assert len(line.letters.split("·")) == len(line.numbers.split("·"))


def test_letters_of_a_line_name_the_fields() -> None:
    """Буква в формуле — это поле модели с тем же значением."""
    for line in parameter_breakdown(PRIMES).details:
        for letter, number in zip(line.letters.split("·"), line.numbers.split("·"), strict=True):
            assert getattr(PRIMES, letter) == int(number)


def test_explain_one_component() -> None:
    account = parameter_breakdown(LLAMA)
    text = account.explain("attention")
    assert "проекция ключа: L·K·H·D = 32·8·128·4096 = 134\u00a0217\u00a0728" in text.splitlines()
    assert len(text.splitlines()) == 4
    with pytest.raises(ValueError, match=r"компонент 'голова': в счёте есть embedding, positions"):
        account.explain("голова")


def test_printed_table_shows_values_shares_and_total() -> None:
    text = str(parameter_breakdown(LLAMA)).replace("\u00a0", " ")
    lines = text.splitlines()
    assert lines[0].split() == ["Параметры", "параметров", "доля"]
    assert any(line.split() == ["выходная", "голова", "525", "336", "576", "6,5", "%"] for line in lines)
    assert lines[-1].split() == ["всего", "8", "030", "261", "248", "100,0", "%"]
    assert len({len(line) for line in lines if "─" in line}) == 1


def test_printed_memory_says_bytes_and_GiB() -> None:
    """14,96 ГиБ — это 16,06 ГБ; подпись «14,96 ГБ» под тем же числом была бы ошибкой."""
    text = str(inference_memory(LLAMA)).replace("\u00a0", " ")
    assert "16 060 522 496 Б (14,96 ГиБ)" in text
    assert "14,96 ГБ" not in text
    assert "16,06 ГиБ" not in text


def test_html_table_is_accessible() -> None:
    html = inference_memory(LLAMA)._repr_html_()
    assert html.count('<th scope="col">') == 3
    assert html.count('<th scope="row">') == 3
    assert html.index("<tfoot>") < html.index("всего")
    assert "16\u00a0060\u00a0522\u00a0496" in html


def test_empty_share_is_not_a_division_by_zero() -> None:
    account = budget.Account("Пусто", "байт", ("weights",), ())
    assert account.total == 0
    assert "—" in str(account)


# --- отказы -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: flops_per_token(LLAMA, 0), "S = 0: нужно целое число не меньше 1"),
        (lambda: flops_per_token(LLAMA, attention="half"), "attention = 'half': нужно одно из: full, windowed, causal"),
        (lambda: attention_crossover(LLAMA, "half"), "attention = 'half'"),
        (lambda: kv_cache_bytes(LLAMA, 0), "B = 0: нужно целое число не меньше 1"),
        (lambda: kv_cache_bytes(LLAMA, 1, 1.5), "S = 1.5: нужно целое число"),
        (lambda: kv_cache_bytes(LLAMA, dtype="bf8"), "dtype = 'bf8': нужно одно из: fp32, bf16, fp16, fp8, int8"),
        (lambda: kv_cache_bytes(LLAMA, block=0), "block = 0: нужно целое число не меньше 1"),
        (lambda: kv_cache_bytes(LLAMA, block=2.5), "block = 2.5: нужно целое число"),
        (lambda: kv_cache_bytes(LLAMA, kv="paged"), "kv = 'paged': нужно одно из: theory, transformers, engine"),
        (lambda: crossover_batch(LLAMA, dtype="bf8"), "dtype = 'bf8'"),
        (lambda: inference_memory(LLAMA, dtype="bf8"), "dtype = 'bf8'"),
        (lambda: inference_memory(LLAMA, kv_dtype="bf8"), "kv_dtype = 'bf8'"),
        (lambda: training_memory(LLAMA, -1), "B = -1"),
        (lambda: training_memory(LLAMA, recipe="fp8"), "recipe = 'fp8': нужно одно из: mixed, fp32, bf16, autocast"),
        (lambda: training_memory(LLAMA, optimizer="lion"), "optimizer = 'lion': нужно одно из: adamw, sgd, momentum"),
        (lambda: training_memory(LLAMA, attention="flash"), "attention = 'flash': нужно одно из: fused, naive"),
        (lambda: training_memory(LLAMA, checkpointing="yes"), "checkpointing = 'yes': нужно одно из: none, selective"),
        (lambda: training_memory(LLAMA, activations="some"), "activations = 'some': нужно одно из: saved, all"),
        (lambda: training_time(LLAMA, 0, "t4"), "tokens = 0"),
        (lambda: training_time(LLAMA, 10**30, "t4"), "tokens = число из 25 шестнадцатеричных цифр: больше предела"),
        (lambda: training_time(LLAMA, 1, "t4", gpus=0), "gpus = 0"),
        (lambda: training_time(LLAMA, 1, "t4", mfu=0), "mfu = 0: доля пика, нужно число от 0,000001 до 1"),
        (lambda: training_time(LLAMA, 1, "t4", mfu=45), "mfu = 45: доля пика"),
        (lambda: training_time(LLAMA, 1, "t4", mfu=math.nan), "mfu = nan: доля пика"),
        (lambda: training_time(LLAMA, 1, "t4", mfu="x"), "mfu = 'x': нужно число"),  # type: ignore[arg-type]
        (lambda: training_time(LLAMA, 1, "t4", price=math.inf), "price = inf: нужно положительное число"),
        (lambda: training_time(LLAMA, 1, "t4", price=-1), "price = -1: нужно положительное число"),
        (lambda: training_time(LLAMA, 1, "t5"), "gpu = 't5': такой карты нет"),
        (lambda: training_time(LLAMA, 1, "t4", dtype="fp8"), "dtype = 'fp8': у карты t4 нет такой скорости"),
        (lambda: decode_step_time(LLAMA, 0, 1, "t4"), "B = 0"),
        (lambda: decode_step_time(LLAMA, 1, 1, "t4", "bf8"), "dtype = 'bf8'"),
        (lambda: decode_step_time(LLAMA, 1, 1, "t4", "bf16", "bf8"), "kv_dtype = 'bf8'"),
        (lambda: critical_batch(LLAMA, 1, ""), "gpu = ''"),
    ],
)
def test_wrong_arguments_are_refused_by_name(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 — сообщение сверяется целиком, без шаблона
        call()
    assert message in str(caught.value)


def test_everything_of_the_contract_is_importable() -> None:
    promised = {
        "Spec", "NOTATION", "parameter_breakdown", "flops_per_token", "training_memory", "inference_memory",
        "kv_cache_bytes", "training_time", "decode_step_time", "crossover_batch", "attention_crossover",
        "critical_batch", "report",
    }  # fmt: skip
    assert promised <= set(budget.__all__)
    assert all(getattr(budget, name) is not None for name in budget.__all__)
