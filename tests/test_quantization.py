"""Квантованные веса: байты из тензоров настоящих форматов, размеры опубликованных файлов, разбор quantization_config.

Независимый ответ — правила упаковки, выписанные здесь по формам тензоров (`FORMATS`), модули fp8 и mxfp4 самого
transformers и опубликованные разбивки: сколько значений какого типа лежит в файлах модели.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanolm.budget import (
    crossover_batch,
    decode_step_time,
    inference_memory,
    kv_cache_bytes,
    parameter_breakdown,
)
from nanolm.latency import decode_time, prefill_time
from nanolm.ops import multiply, parameter_shapes, table
from nanolm.quantization import NAMES, Quantization, named
from nanolm.quantization_config import _FUSED, _MODULES, _PLACES, _matcher, _module
from nanolm.spec import Spec
from nanolm.units import GIB
from nanolm.zoo import FAMILIES, from_config, load, preset, presets, quantization

if TYPE_CHECKING:
    from collections.abc import Callable

LLAMA, MIXTRAL, DEEPSEEK = preset("llama-3-8b"), preset("mixtral-8x7b"), preset("deepseek-v3")
TIED = Spec(V=512, D=256, L=3, N=8, K=2, F=768, S=64, tie_embeddings=True, qkv_bias=True)
MIXTURE = Spec(
    V=512, D=256, L=4, N=8, F=128, S=64, H=64, experts=6, experts_per_token=2, shared_F=256, dense_layers=1,
    dense_F=512, kv_rank=64, q_rank=128, rope_H=32, value_H=32,
)  # fmt: skip


# --- правила упаковки: формы тензоров ------------------------------------------------------------


def ceil(a: int, b: int) -> int:
    return math.ceil(a / b)


def gptq(out: int, inp: int, bits: int, group: int | None) -> dict[str, tuple[tuple[int, ...], int]]:
    """Буферы QuantLinear из AutoGPTQ: форма и байтов на элемент."""
    groups = 1 if group is None else ceil(inp, group)
    return {
        "qweight": ((inp // 32 * bits, out), 4), "qzeros": ((groups, out // 32 * bits), 4),
        "scales": ((groups, out), 2), "g_idx": ((inp,), 4),
    }  # fmt: skip


def awq(out: int, inp: int, bits: int, group: int | None) -> dict[str, tuple[tuple[int, ...], int]]:
    """Буферы WQLinear_GEMM из AutoAWQ."""
    group = group or inp
    return {
        "qweight": ((inp, out // (32 // bits)), 4), "qzeros": ((inp // group, out // (32 // bits)), 4),
        "scales": ((inp // group, out), 2),
    }  # fmt: skip


def bnb4(out: int, inp: int, double: bool) -> dict[str, tuple[tuple[int, ...], int]]:
    """Тензоры Params4bit и его QuantState: сверено с bitsandbytes 0.50 на процессоре."""
    blocks = ceil(out * inp, 64)
    found = {"weight": ((ceil(out * inp, 2), 1), 1), "quant_map": ((16,), 4), "absmax": ((blocks,), 1 if double else 4)}
    nested = {"nested_absmax": ((ceil(blocks, 256),), 4), "nested_quant_map": ((256,), 4), "nested_offset": ((), 4)}
    return {**found, **(nested if double else {})}


FORMATS: dict[str, Callable[[int, int], dict[str, tuple[tuple[int, ...], int]]]] = {
    **{
        f"gptq-{bits}-{group or 'none'}": lambda out, inp, bits=bits, group=group: gptq(out, inp, bits, group)  # type: ignore[misc]
        for bits in (2, 3, 4, 8)
        for group in (32, 128, None)
    },
    "awq-4-64": lambda out, inp: awq(out, inp, 4, 64),
    "awq-4-none": lambda out, inp: awq(out, inp, 4, None),
    "nf4": lambda out, inp: bnb4(out, inp, False),
    "fp4": lambda out, inp: bnb4(out, inp, False),
    "nf4-double": lambda out, inp: bnb4(out, inp, True),
    "int8": lambda out, inp: {"weight": ((out, inp), 1), "SCB": ((out,), 4)},
    "fp8-block": lambda out, inp: {
        "weight": ((out, inp), 1), "weight_scale_inv": ((ceil(out, 128), ceil(inp, 128)), 4),
    },
    "fp8-row": lambda out, inp: {"weight": ((out, inp), 1), "weight_scale": ((out, 1), 4)},
    "fp8-tensor": lambda out, inp: {"weight": ((out, inp), 1), "weight_scale": ((), 4)},
    "mxfp4": lambda out, inp: {"blocks": ((out, inp // 32, 16), 1), "scales": ((out, inp // 32), 1)},
}  # fmt: skip


def stored_bytes(name: str, spec: Spec) -> int:
    """Вес модели по формам её тензоров: каждый параметр NanoLM — отдельно, без множителей таблицы."""
    total = 0
    for path, shape in parameter_shapes(spec).items():
        matrix = len(shape) == 2 and path.startswith("layers.") and "router" not in path
        if name == "mxfp4" and spec.experts and ".experts." not in path:
            matrix = False
        if matrix:
            total += sum(math.prod(form) * size for form, size in FORMATS[name](*shape).values())
        else:
            total += 2 * math.prod(shape)
    return total


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("spec", [TIED, MIXTURE], ids=["dense", "mixture"])
def test_bytes_are_those_of_the_real_tensors(name: str, spec: Spec) -> None:
    assert inference_memory(spec, weights=name)["weights"] == stored_bytes(name, spec)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(FORMATS)), st.integers(1, 5), st.integers(1, 4), st.integers(1, 9), st.integers(1, 6))
def test_bytes_of_any_shape(name: str, d: int, heads: int, f: int, layers: int) -> None:
    spec = Spec(V=77, D=64 * d, L=layers, N=heads, H=64, F=64 * f, S=8)
    assert inference_memory(spec, weights=name)["weights"] == stored_bytes(name, spec)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["nf4", "nf4-double", "int8", "fp8-block", "fp8-row"]), st.integers(1, 99), st.integers(1, 400))
def test_block_formats_take_odd_shapes(name: str, d: int, f: int) -> None:
    """Матрица, которая не делится на блок, хранит неполный блок."""
    spec = Spec(V=7, D=d, L=2, N=1, F=f, S=8)
    assert inference_memory(spec, weights=name)["weights"] == stored_bytes(name, spec)


@pytest.mark.parametrize("name", NAMES)
def test_lines_sum_to_the_total_and_explain_themselves(name: str) -> None:
    spec = MIXTRAL
    account = inference_memory(spec, weights=name)
    assert sum(line.value for line in account.details if line.component == "weights") == account["weights"]
    assert all(multiply(line.factors) % line.over == 0 for line in account.details)
    assert "масштаб" in account.explain("weights")
    # Короче bf16, а параметров столько же: квантование геометрии не меняет.
    assert account["weights"] < inference_memory(spec)["weights"] == 2 * parameter_breakdown(spec).total


def test_what_is_not_compressed() -> None:
    """Эмбеддинг, позиции, нормы, смещения, маршрутизатор и голова остаются как были."""
    spec = preset("gpt-oss-20b")
    touched = {op.name for op in table(spec) if named("int8", spec).layers(op)}
    assert touched == {"query", "key", "value", "output", "gate", "up", "down"}
    assert {op.name for op in table(spec) if named("mxfp4", spec).layers(op)} == {"gate", "up", "down"}


# --- опубликованные размеры ----------------------------------------------------------------------


def counts(spec: Spec, compressed: Quantization) -> Counter[str]:
    """Сколько элементов каждого вида: сами значения, масштабы, нетронутые."""
    found: Counter[str] = Counter()
    for op in table(spec):
        if not op.weight or op.shared:
            continue
        for title, factors, _ in compressed.rows(op, spec, ("", 1)):
            kind = "значения" if title == op.title else title.removeprefix(f"{op.title}: ")
            kind = kind if compressed.layers(op) else "как есть"
            found[kind] += int(multiply([factor for factor in factors if not factor[0].startswith(("байт", "бит"))]))
    return found


FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
MXFP4 = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
}


def test_deepseek_v3_counts_are_exact() -> None:
    """Разбивка файлов DeepSeek-V3 по типам: https://huggingface.co/api/models/deepseek-ai/DeepSeek-V3?expand=safetensors.

    В файлах лежит ещё модуль MTP: слой смеси, проекция 2D → D, копии эмбеддинга и головы, три нормы; и поправки
    маршрутизатора, которые transformers держит буфером.
    """
    config = {**presets()["deepseek-v3"]["config"], "quantization_config": FP8}
    spec, compressed = load(config)
    assert compressed is not None
    one = counts(spec, compressed)
    with_layer = counts(spec.replace(L=spec.L + 1), compressed)
    mtp = 2 * spec.V * spec.D + 2 * spec.D**2 + 3 * spec.D
    routers = (spec.L + 1 - spec.dense_layers) * spec.experts
    assert with_layer["значения"] == 680_571_043_840
    assert with_layer["масштабы блоков"] + routers == 41_555_600
    assert with_layer["как есть"] + mtp == 3_918_786_560
    assert one["значения"] + one["как есть"] == parameter_breakdown(spec).total


def test_qwen3_32b_fp8_counts_are_exact() -> None:
    """https://huggingface.co/api/models/Qwen/Qwen3-32B-FP8?expand=safetensors.

    Масштабы этого файла в bf16, у DeepSeek — в fp32; счёт берёт fp32: так их заводит transformers.
    """
    spec, compressed = load({**presets()["qwen3-32b"]["config"], "quantization_config": FP8})
    assert compressed is not None
    found = counts(spec, compressed)
    assert found["значения"] == 31_205_621_760
    assert found["как есть"] + found["масштабы блоков"] == 1_558_406_144


@pytest.mark.parametrize(("changes", "gib"), [({}, 12.8), ({"num_hidden_layers": 36, "num_local_experts": 128}, 60.8)])
def test_gpt_oss_checkpoints(changes: dict[str, Any], gib: float) -> None:
    """Размер файлов — таблица 1 описания gpt-oss (arXiv:2508.10925): 12,8 и 60,8 ГиБ."""
    config = {**presets()["gpt-oss-20b"]["config"], "layer_types": None, **changes, "quantization_config": MXFP4}
    spec, compressed = load(config)
    assert round(inference_memory(spec, weights=compressed)["weights"] / GIB, 1) == gib


def test_gpt_oss_20b_counts_are_exact() -> None:
    """https://huggingface.co/api/models/openai/gpt-oss-20b?expand=safetensors: в bf16 и квантованы."""
    spec, compressed = load({**presets()["gpt-oss-20b"]["config"], "quantization_config": MXFP4})
    assert compressed is not None
    found = counts(spec, compressed)
    assert (found["как есть"], found["значения"]) == (1_804_459_584, 19_110_297_600)


PUBLISHED = [
    # Геометрия Mistral 7B: https://huggingface.co/TheBloke/Synthia-7B-v1.3-GPTQ и TheBloke/Mistral-7B-v0.1-AWQ.
    ("mistral-7b-v0.1", {}, "gptq-4-128", 4.16),
    ("mistral-7b-v0.1", {}, "gptq-4-32", 4.57),
    ("mistral-7b-v0.1", {}, "gptq-8-none", 7.52),
    ("mistral-7b-v0.1", {}, "gptq-8-128", 7.68),
    ("mistral-7b-v0.1", {}, "awq-4-128", 4.15),
    # Геометрия Llama 2 7B со словарём 151 936: https://huggingface.co/TheBloke/CausalLM-7B-GPTQ, две ветки.
    ("llama-2-7b", {"V": 151_936}, "gptq-4-128", 5.86),
    ("llama-2-7b", {"V": 151_936}, "gptq-4-64", 5.99),
]


@pytest.mark.parametrize(("model", "changes", "name", "gigabytes"), PUBLISHED)
def test_published_files(model: str, changes: dict[str, Any], name: str, gigabytes: float) -> None:
    """Размер файла, округлённый до 10 МБ. Сверх наших тензоров там заголовок и, у части файлов, нулевые смещения."""
    spec = preset(model).replace(**changes)
    ours = inference_memory(spec, weights=name)["weights"] / 1e9
    biases = sum(2 * op.layers * shape for op, shape in outputs(spec)) / 1e9
    assert ours - 0.005 < gigabytes < ours + biases + 0.005


def outputs(spec: Spec) -> list[tuple[Any, int]]:
    """Строки с матрицами слоёв и число их выходов."""
    shapes = parameter_shapes(spec)
    found = [op for op in table(spec) if op.product and op.weight and op.param.startswith("layers.")]
    return [(op, shapes[op.param.replace("{i}", "0")][0]) for op in found]


# --- разбор quantization_config -------------------------------------------------------------------


def compressed_llama(**fields: Any) -> Quantization:
    found = quantization({**presets()["llama-3-8b"]["config"], "quantization_config": fields})
    assert found is not None
    return found


def linear(form: str = "pack-quantized", inputs: Any = None, **weights: Any) -> dict[str, Any]:
    """quantization_config формата compressed-tensors с одной группой правил."""
    rules = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    groups = {"group_0": rules}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, "ignore": ["lm_head"]}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True}, "gptq-4-128"),
        ({"quant_method": "gptq", "bits": 3, "group_size": -1, "checkpoint_format": "gptq"}, "gptq-3-none"),
        ({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "GEMM", "zero_point": True}, "awq-4-64"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}, "nf4-double"),
        ({"load_in_4bit": True}, "fp4"),
        (FP8, "fp8-block"),
        ({**FP8, "weight_block_size": None}, "fp8-tensor"),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "fp8-row"),
    ],
)
def test_config_and_name_mean_the_same_bytes(fields: dict[str, Any], name: str) -> None:
    compressed = compressed_llama(**fields)
    assert compressed.name == name
    assert inference_memory(LLAMA, weights=compressed)["weights"] == inference_memory(LLAMA, weights=name)["weights"]


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        # weight_packed, weight_scale, weight_shape и, где есть, нули и порядок групп.
        (
            linear(num_bits=4, type="int", strategy="group", group_size=128, symmetric=True),
            lambda o, i: o * i // 8 * 4 + o * i // 128 * 2 + 16,
        ),
        (
            linear(num_bits=4, type="int", strategy="group", group_size=128, symmetric=False, actorder="group"),
            lambda o, i: o * i // 8 * 4 + o * i // 128 * 2 + 16 + o // 8 * (i // 128) * 4 + 4 * i,
        ),
        (
            linear("int-quantized", {"dynamic": True}, num_bits=8, type="int", strategy="channel"),
            lambda o, i: o * i + 2 * o,
        ),
        (
            linear("float-quantized", {"dynamic": False}, num_bits=8, type="float", strategy="tensor"),
            lambda o, i: o * i + 6,
        ),
    ],
)
def test_compressed_tensors(fields: dict[str, Any], shape: Callable[[int, int], int]) -> None:
    compressed = compressed_llama(**fields)
    matrices = sum(
        shape(*form) for path, form in parameter_shapes(LLAMA).items() if len(form) == 2 and path.startswith("layers.")
    )
    rest = sum(
        2 * math.prod(form) for path, form in parameter_shapes(LLAMA).items() if len(form) == 1 or "layers." not in path
    )
    assert inference_memory(LLAMA, weights=compressed)["weights"] == matrices + rest


def test_dense_sparsity_changes_nothing() -> None:
    fields = linear(num_bits=4, strategy="channel")
    dense = {**fields, "sparsity_config": {"format": "dense", "global_sparsity": 0.1, "ignore": []}}
    one, other = (inference_memory(LLAMA, weights=compressed_llama(**given)) for given in (fields, dense))
    assert one["weights"] == other["weights"]


def test_static_activations_add_a_scale_for_every_matrix() -> None:
    """activation_scheme = static: по одному fp32 на матрицу."""
    moving, static = (compressed_llama(**{**FP8, "activation_scheme": kind}) for kind in ("dynamic", "static"))
    sizes = [inference_memory(LLAMA, weights=one)["weights"] for one in (moving, static)]
    assert sizes[1] - sizes[0] == 4 * 7 * LLAMA.L


def test_scales_of_one_byte() -> None:
    usual, short = (compressed_llama(**{**FP8, "scale_fmt": kind}) for kind in ("float", "ue8m0"))
    blocks = counts(LLAMA, usual)["масштабы блоков"]
    assert (
        inference_memory(LLAMA, weights=usual)["weights"] - inference_memory(LLAMA, weights=short)["weights"]
        == 3 * blocks
    )


def test_exceptions_are_counted_layer_by_layer() -> None:
    """Слой, оставленный как есть, весит полностью; остальные — квантованы."""
    skip = ["model.layers.0.mlp.down_proj", "model.layers.31", "lm_head"]
    compressed = compressed_llama(**{**FP8, "modules_to_not_convert": skip})
    assert compressed.kept == dict.fromkeys(("query", "key", "value", "output", "gate", "up"), 1) | {"down": 2}
    everything = compressed_llama(**FP8)
    whole, less = (inference_memory(LLAMA, weights=one)["weights"] for one in (everything, compressed))
    last = [shape for path, shape in parameter_shapes(LLAMA).items() if path.startswith("layers.31.")]
    left = sum(math.prod(shape) for shape in last if len(shape) == 2)
    left += LLAMA.D * LLAMA.F
    assert less - whole == left - 4 * left // 128**2


def test_the_head_is_compressed_unless_named() -> None:
    """Список исключений без lm_head квантует и голову; без списка вовсе голова остаётся. Как у transformers."""
    bare, with_list = (compressed_llama(**{**FP8, "modules_to_not_convert": names}) for names in (None, ["model.norm"]))
    assert (bare.head, with_list.head) == (False, True)
    assert compressed_llama(quant_method="gptq", bits=4, lm_head=True).head
    config = presets()["llama-3.2-1b"]["config"]
    tied, compressed = load({**config, "quantization_config": {**FP8, "modules_to_not_convert": []}})
    sizes = [inference_memory(tied, weights=one)["weights"] for one in (compressed, "fp8-block")]
    assert sizes[0] == sizes[1], "у связанной головы своей матрицы нет"


def test_only_listed_modules_of_gptq() -> None:
    inside = [["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], ["self_attn.o_proj"]]
    compressed = compressed_llama(quant_method="gptq", bits=4, modules_in_block_to_quantize=inside)
    assert {op.name for op in table(LLAMA) if compressed.layers(op)} == {"query", "key", "value", "output"}


@pytest.mark.parametrize("name", ["gptq-4-32", "nf4", "nf4-double", "fp8-block", "fp8-tensor"])
def test_matrices_of_one_tensor_are_packed_together(name: str) -> None:
    """q, k и v, ворота и расширение одним тензором: порядок групп и таблица — одни на всех, блок на стыке — общий."""
    spec = Spec(V=64, D=96, L=2, N=3, K=1, H=32, F=160, S=8)
    joined = Quantization(name, named(name, spec).parts, fused=_FUSED["phi3"])
    shapes = [((3 + 1 + 1) * 32, 96), (96, 96), (2 * 160, 96), (96, 160)]
    matrices = sum(math.prod(form) * size for shape in shapes for form, size in FORMATS[name](*shape).values())
    rest = parameter_breakdown(spec).total - spec.L * sum(map(math.prod, shapes))
    assert inference_memory(spec, weights=joined)["weights"] == spec.L * matrices + 2 * rest
    assert inference_memory(spec, weights=joined)["weights"] < inference_memory(spec, weights=name)["weights"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"quant_method": "hqq"}, "quant_method = 'hqq': такое квантование не поддерживается; есть gptq, awq"),
    ({"bits": 4}, "quant_method = None"),
    ({"quant_method": "gptq"}, "bits = None: нужно одно из: 2, 3, 4, 8"),
    ({"quant_method": "gptq", "bits": 5}, "bits = 5: нужно одно из: 2, 3, 4, 8"),
    ({"quant_method": "gptq", "bits": 4.0}, "bits = 4.0"),
    ({"quant_method": "gptq", "bits": True}, "bits = True"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size = 0"),
    ({"quant_method": "gptq", "bits": 4, "sym": "да"}, "sym = 'да': нужно true или false"),
    ({"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*": {}}}, "dynamic = "),
    ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, "checkpoint_format = 'marlin'"),
    ({"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": [3]}, "modules_in_block_to_quantize: нужен"),
    ({"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": []}, "quantize = []: ни одно"),
    (
        {"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": [["attn.c_attn"]]},
        "modules_in_block_to_quantize = [['attn.c_attn']]: ни одно имя не подходит; модули слоя: self_attn.q_proj, ",
    ),
    ({"quant_method": "awq", "version": "gemv"}, "version = 'gemv': нужно одно из: gemm"),
    ({"quant_method": "awq", "bits": 3}, "bits = 3"),
    ({"load_in_4bit": True, "load_in_8bit": True}, "ровно у одного из двух"),
    ({"quant_method": "bitsandbytes"}, "ровно у одного из двух"),
    ({"load_in_8bit": True, "llm_int8_has_fp16_weight": True}, "llm_int8_has_fp16_weight = True"),
    ({"quant_method": "fp8"}, "weight_block_size: назовите поле"),
    ({**FP8, "weight_block_size": [128]}, "weight_block_size = [128]"),
    ({**FP8, "weight_block_size": [128, -1]}, "weight_block_size = -1"),
    ({**FP8, "expert_dtype": "fp4"}, "expert_dtype = 'fp4'"),
    ({**FP8, "dequantize": True}, "dequantize = true"),
    ({**FP8, "modules_to_not_convert": "lm_head"}, "modules_to_not_convert: нужен список имён"),
    ({**FP8, "modules_to_not_convert": ["(a+)+$"]}, "шаблон сложнее имени"),
    ({**FP8, "modules_to_not_convert": ["***"]}, "шаблон сложнее имени"),
    ({**FP8, "modules_to_not_convert": ["**"]}, "это не имя модуля и не шаблон"),
    ({**FP8, "modules_to_not_convert": [""]}, "шаблон сложнее имени"),
    ({**FP8, "modules_to_not_convert": ["model.layers.3.mlp.experts.7.up_proj"]}, "исключения отдельных экспертов"),
    ({**FP8, "modules_to_not_convert": [f"m.*{i}.*" for i in range(10_000)]}, "список слишком длинный"),
    ({"quant_method": "mxfp4"}, "квантует экспертов, а у модели их нет"),
    ({"quant_method": "compressed-tensors"}, "config_groups: нужна ровно одна группа"),
    ({**linear(num_bits=4), "config_groups": {"a": {"targets": ["Linear"]}}}, "config_groups: нужны weights"),
    (linear("nvfp4-pack-quantized", num_bits=4), "format = 'nvfp4-pack-quantized'"),
    ({**linear(num_bits=4), "kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme"),
    ({**linear(num_bits=4), "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config = "),
    ({**linear(num_bits=4), "sparsity_config": "dense"}, "sparsity_config = 'dense'"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_refusals_name_the_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        compressed_llama(**fields)
    assert "quantization_config: " in str(caught.value)
    assert len(str(caught.value)) < 300


def test_quantization_config_that_is_not_an_object() -> None:
    with pytest.raises(ValueError, match=r"quantization_config = \[4\]: нужен объект"):
        from_config({**presets()["llama-3-8b"]["config"], "quantization_config": [4]})


@pytest.mark.parametrize(
    "name", ["", "gptq", "gptq-5-128", "gptq-4-", "gptq-4-0", "awq-8-128", "gptq-4-١٢٨", 4, None, "q"]
)
def test_unknown_names_are_refused(name: Any) -> None:
    if name is None:
        assert inference_memory(LLAMA, weights=None)["weights"] == 2 * parameter_breakdown(LLAMA).total
        return
    with pytest.raises(ValueError, match=r"weights = |group_size = 0"):
        inference_memory(LLAMA, weights=name)


def test_matrix_the_format_cannot_pack_is_refused() -> None:
    spec = Spec(V=100, D=40, L=2, N=4, F=96)
    with pytest.raises(
        ValueError, match=r"weights = gptq-4-128: проекция запроса: число входов матрицы — 40, .* по 32"
    ):
        inference_memory(spec, weights="gptq-4-128")


# --- сверка с transformers ------------------------------------------------------------------------

PATTERNS = [
    "lm_head", "gate", "mlp.gate", "model.layers.1", "model.layers.1.mlp", "model.layers.*.self_attn", "q_proj",
    "self_attn.q_proj", "model.layers.1*", "layers.1.mlp.up_proj", "mlp", "model", "model.layers.10.mlp.gate_proj",
    r"model\.layers\.2", "proj", ".*down_proj", "model.layers.2$", "1.mlp.up_proj", "model.layers.1.", "model.layers",
    "model_layers.1", "self.attn.q_proj", "....self_attn", "model.layers.1.self.attn", "m.del.layers.1.mlp",
]  # fmt: skip
MODULES = [
    f"model.layers.{i}.{name}"
    for i in (0, 1, 2, 10, 11)
    for name in ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "mlp.gate")
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_exceptions_match_as_in_transformers(pattern: str) -> None:
    theirs = pytest.importorskip("transformers.quantizers.quantizers_utils").should_convert_module
    ours = _matcher({"skip": [pattern]}, "skip")
    for module in (*MODULES, "lm_head"):
        assert ours(module) is not theirs(module, [pattern]), module


#: Вид исключения, его запись, сколько слоёв оно оставляет как есть и какой длины список уже слишком длинный.
LONG: list[tuple[str, str, int, float]] = [
    ("names", "model.layers.{}.input_layernorm", 0, math.inf),
    ("dots", "model.layers.{}.", 32, math.inf),
    ("escaped", r"model\.layers\.{}\.mlp", 32, 10_000),
    ("ends", "model.layers.{}$", 0, 10_000),
    ("stars", "model.layers.{}.*mlp", 32, 513),
    ("regex", "re:model.layers.{}.mlp", 32, 10_000),
]


@pytest.mark.parametrize("count", [513, 10_000])
@pytest.mark.parametrize(("kind", "name", "layers", "most"), LONG, ids=[row[0] for row in LONG])
def test_long_lists_are_answered_or_refused_promptly(
    kind: str, name: str, layers: int, most: float, count: int
) -> None:
    """Длиннее кеша модуля re (512): каждое правило собирается один раз, имена сравниваются без него."""
    items = [name.format(i) for i in range(count)]
    exact = {**linear("int-quantized", num_bits=8, strategy="channel"), "ignore": items}
    fields = exact if kind == "regex" else {**FP8, "modules_to_not_convert": items}
    started = time.process_time()
    if count >= most:
        with pytest.raises(ValueError, match="список слишком длинный"):
            compressed_llama(**fields)
    else:
        assert set(compressed_llama(**fields).kept.values()) == ({layers} if layers else set())
    assert time.process_time() - started < 2


def test_long_list_of_exact_names() -> None:
    """У compressed-tensors имя без «re:» — это имя целиком."""
    items = [f"model.layers.{i}.input_layernorm" for i in range(10_000)]
    fields = linear("int-quantized", num_bits=8, strategy="channel")
    started = time.process_time()
    assert compressed_llama(**{**fields, "ignore": items}).kept == {}
    inside = [*items, *(f"model.layers.{i}.mlp.up_proj" for i in range(7)), "model.layers.9"]
    assert compressed_llama(**{**fields, "ignore": inside}).kept == {"up": 7}
    assert time.process_time() - started < 2


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text("model.layers10_pq-", min_size=1, max_size=9), min_size=1, max_size=6), st.sampled_from(MODULES)
)
def test_names_match_as_the_regular_expression_would(items: list[str], module: str) -> None:
    """Независимый ответ — выражение, которым имя проверяет transformers: точка в нём значит «любой знак»."""
    items = [*items, module[: len(items[0]) * 4]]
    expected = any(re.match(rf"(?:{item})(?:(?<=\.)|(?=\.|$))", module) or module.endswith(item) for item in items)
    assert _matcher({"skip": items}, "skip")(module) is expected


SMALL = {
    "vocab_size": 101, "hidden_size": 192, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
    "intermediate_size": 320, "max_position_embeddings": 64, "pad_token_id": None,
}  # fmt: skip
NAMED_FAMILIES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}), ("qwen2", {}), ("qwen3", {"head_dim": 32}), ("phi3", {}), ("olmo2", {}), ("smollm3", {}),
    ("gemma3_text", {"head_dim": 32}),
    ("gpt_neox", {"num_key_value_heads": None}), ("opt", {"ffn_dim": 320, "word_embed_proj_dim": 192}),
]  # fmt: skip


@pytest.mark.parametrize(("family", "extra"), NAMED_FAMILIES, ids=[name for name, _ in NAMED_FAMILIES])
def test_fp8_model_of_transformers_has_our_bytes(family: str, extra: dict[str, Any]) -> None:
    """transformers сам заменяет матрицы модели на fp8: имена модулей, исключения, масштабы и байты — его.

    Матрицы GPT-2 и Falcon — свои классы, их замена не трогает, и сверять там нечего.
    """
    transformers = pytest.importorskip("transformers")
    import torch
    from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear

    fields = {**SMALL, **extra}
    place = _PLACES.get(family, "model.layers")
    skip = ["lm_head", "embed_out", f"{place}.1"]
    config = transformers.AutoConfig.for_model(family, **fields)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.tie_weights()
    rules = transformers.FineGrainedFP8Config(modules_to_not_convert=skip)
    model = replace_with_fp8_linear(model, skip, rules, pre_quantized=True)
    # Смещения замен заводятся в fp32, но из файла приходят в точности модели.
    sizes = {"weight_scale_inv": 4}
    theirs = {
        id(tensor): tensor.numel() * (1 if tensor.element_size() == 1 else sizes.get(name.rpartition(".")[2], 2))
        for name, tensor in model.named_parameters()
    }
    given = {**FP8, "modules_to_not_convert": skip}
    written = {**_written(config), "quantization_config": given}
    spec, compressed = load(written)
    assert compressed is not None
    assert sum(compressed.kept.values()) > 0
    assert inference_memory(spec, weights=compressed)["weights"] == sum(theirs.values())


def _written(config: Any) -> dict[str, Any]:
    import json

    return json.loads(config.to_json_string(use_diff=False))  # type: ignore[no-any-return]


def test_mxfp4_experts_of_transformers_have_our_bytes() -> None:
    """Эксперты gpt-oss в mxfp4: формы из transformers; масштабы — байт на 32 входа."""
    pytest.importorskip("transformers")
    import torch
    from transformers import GptOssConfig
    from transformers.integrations.mxfp4 import Mxfp4GptOssExperts

    config = GptOssConfig(
        num_local_experts=4, hidden_size=128, intermediate_size=96, num_hidden_layers=2, head_dim=16,
        num_attention_heads=8, num_key_value_heads=2, vocab_size=100,
    )  # fmt: skip
    with torch.device("meta"):
        experts = Mxfp4GptOssExperts(config)
    spec, compressed = load({**_written(config), "quantization_config": MXFP4})
    assert compressed is not None
    values = sum(t.numel() for name, t in experts.named_parameters() if not name.endswith("bias"))
    found = counts(spec, compressed)
    assert found["значения"] == 2 * values * spec.L
    assert found["масштабы блоков"] == values * spec.L * 2 // 32


def test_every_family_names_its_modules() -> None:
    """У каждой квантуемой строки каждого семейства есть имя модуля: иначе исключение прошло бы мимо."""
    for entry in presets().values():
        family = entry["config"]["model_type"]
        for op in table(from_config(entry["config"])):
            if op.product and op.weight and op.component in ("attention", "ffn"):
                assert "." in _module(op, family) or family == "opt"
    assert set(_MODULES) <= set(FAMILIES)


# --- что читает шаг и где нужен формат весов ----------------------------------------------------


@pytest.mark.parametrize("name", ["gptq-4-128", "nf4", "fp8-block"])
@pytest.mark.parametrize("spec", [LLAMA, MIXTRAL, DEEPSEEK], ids=["llama", "mixtral", "deepseek"])
def test_decode_reads_the_stored_bytes(spec: Spec, name: str) -> None:
    """Пакет, который тронул всех экспертов, читает все веса; из эмбеддинга — строки токенов."""
    B = 4096
    step = decode_step_time(spec, B, 1, "h100-sxm", weights=name)
    table_bytes = 2 * spec.V * spec.D
    assert step.weight_bytes == pytest.approx(
        inference_memory(spec, weights=name)["weights"] - table_bytes + 2 * B * spec.D, rel=1e-9
    )
    assert step.compute_dtype == "bf16"
    assert step.flops == decode_step_time(spec, B, 1, "h100-sxm").flops


def test_expert_reading_is_by_the_distinct_experts() -> None:
    """Один токен читает k экспертов из E и в квантованном виде."""
    one = decode_step_time(MIXTRAL, 1, 1, "h100-sxm", weights="awq-4-128").weight_bytes
    shapes = [(MIXTRAL.F, MIXTRAL.D), (MIXTRAL.F, MIXTRAL.D), (MIXTRAL.D, MIXTRAL.F)]
    expert = sum(sum(math.prod(form) * size for form, size in awq(*shape, 4, 128).values()) for shape in shapes)
    account = inference_memory(MIXTRAL, weights="awq-4-128")
    idle = MIXTRAL.L * (MIXTRAL.experts - MIXTRAL.experts_per_token) * expert
    assert one == account["weights"] - idle - 2 * (MIXTRAL.V - 1) * MIXTRAL.D


def test_latency_and_crossover_follow_the_weights() -> None:
    plain, short = (decode_time(LLAMA, 1, 1024, "h100-sxm", weights=name) for name in (None, "gptq-4-128"))
    saved = inference_memory(LLAMA)["weights"] - inference_memory(LLAMA, weights="gptq-4-128")["weights"]
    assert [a - b for a, b in zip(plain.bytes, short.bytes, strict=True)] == [saved] * 3
    first, packed = (prefill_time(LLAMA, 1, 1024, "h100-sxm", chunk=256, weights=name) for name in (None, "gptq-4-128"))
    assert first.bytes[1] - packed.bytes[1] == 4 * saved
    ratio = crossover_batch(LLAMA, 8192, weights="gptq-4-128") / crossover_batch(LLAMA, 8192)
    assert ratio == inference_memory(LLAMA, weights="gptq-4-128")["weights"] / inference_memory(LLAMA)["weights"]
    assert crossover_batch(LLAMA, 8192, weights="nf4") * kv_cache_bytes(LLAMA, 1, 8192).total == pytest.approx(
        inference_memory(LLAMA, weights="nf4")["weights"]
    )
