"""Поле quantization_config файла config.json → `Quantization`: в каком формате веса и какие матрицы не тронуты.

Правило то же, что у семейств: незнакомый способ квантования или поле, которое меняет байты, — отказ с именем, а не
догадка. Исключения (`modules_to_not_convert`, `ignore`, `llm_int8_skip_modules`) записаны именами модулей
Hugging Face; здесь они сводятся к строкам таблицы операций и числу слоёв, которые остались как есть.
Совпадение имени проверяется так же, как в transformers 5.24 (`should_convert_module`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nanolm.ops import table
from nanolm.quantization import (
    Quantization,
    awq,
    bnb4,
    fp8,
    gptq,
    mxfp4,
    packed_int32,
    per_matrix,
    per_row,
    with_input_scale,
)
from nanolm.spec import Spec, shown
from nanolm.zoo import _Fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator
    from typing import Any

    from nanolm.ops import Op
    from nanolm.quantization import Parts

    Given = Mapping[str, Any]
    #: Остаётся ли модуль с таким именем как есть.
    Skip = Callable[[str], bool]


def read(given: object, spec: Spec, family: str) -> Quantization:
    """Разобрать quantization_config модели этой геометрии; `family` — её model_type.

    Ошибки: `ValueError` с именем поля, значением и правилом.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"quantization_config = {shown(given)}: нужен объект")
    try:
        method = _method(given)
        if given.get("dequantize"):
            raise ValueError("dequantize = true: веса при загрузке распаковываются; уберите quantization_config")
        return _METHODS[method](given, spec, family)
    except ValueError as error:
        raise ValueError(f"quantization_config: {error}") from None


def _method(given: Given) -> str:
    method = given.get("quant_method")
    # В старых файлах bitsandbytes себя не называет.
    if method is None and (given.get("load_in_4bit") or given.get("load_in_8bit")):
        return "bitsandbytes"
    if not isinstance(method, str) or method not in _METHODS:
        raise ValueError(
            f"quant_method = {shown(method)}: такое квантование не поддерживается; есть {', '.join(_METHODS)}; "
            "без квантования модель посчитает --quantize none"
        )
    return method


def _one_of(given: Given, name: str, allowed: tuple[object, ...], default: object) -> Any:
    """Значение поля из списка; регистр строк не важен."""
    value = given.get(name)
    value = default if value is None else value.lower() if isinstance(value, str) else value
    if not any(type(value) is type(choice) and value == choice for choice in allowed):
        raise ValueError(f"{name} = {shown(value)}: нужно одно из: {', '.join(map(str, allowed))}")
    return value


def _plain(given: Given, *names: str) -> None:
    """Отказать полям, которые меняют байты так, как мы не считаем."""
    for name in names:
        if given.get(name):
            raise ValueError(f"{name} = {shown(given[name])}: такое квантование не поддерживается")


def _group(given: Given, default: int | None = 128) -> int | None:
    """Размер группы; −1 — одна группа на строку."""
    value = given.get("group_size")
    if value is None:
        return default
    return None if value == -1 and not isinstance(value, bool) else _Fields(given).size("group_size", limit=2**20)


def _label(group: int | None) -> str:
    return "none" if group is None else str(group)


# --- Способы квантования ------------------------------------------------------------------------


def _read_gptq(given: Given, spec: Spec, family: str) -> Quantization:
    bits, group, fields = _one_of(given, "bits", (2, 3, 4, 8), None), _group(given), _Fields(given)
    for flag in ("desc_act", "sym"):  # байтов не меняют: нули и порядок групп лежат в файле всегда
        fields.flag(flag, default=True)
    _plain(given, "dynamic")
    for name in ("checkpoint_format", "format"):
        _one_of(given, name, ("gptq", "gptq_v2"), "gptq")
    _one_of(given, "pack_dtype", ("int32", "torch.int32"), "int32")
    head = fields.flag("lm_head", default=False)
    chosen = given.get("modules_in_block_to_quantize")
    kept = {} if chosen is None else _outside(spec, family, "modules_in_block_to_quantize", chosen)
    fused = _FUSED.get(family, ())
    return Quantization(f"gptq-{bits}-{_label(group)}", gptq(bits, group), head=head, kept=kept, fused=fused)


def _flat(name: str, value: object) -> set[str]:
    """Список имён или список списков имён."""
    rows = value if isinstance(value, list) else [value]
    names = [item for row in rows for item in (row if isinstance(row, list) else [row])]
    found = {item for item in names if isinstance(item, str)}
    if len(found) != len(names):
        raise ValueError(f"{name}: нужен список разных имён модулей")
    return found


def _outside(spec: Spec, family: str, name: str, value: object) -> dict[str, int]:
    """Строки таблицы, которых в списке нет: они остаются как есть во всех слоях."""
    chosen, modules = _flat(name, value), {op.name: _module(op, family) for op in _matrices(spec)}
    if chosen.isdisjoint(modules.values()):
        known = ", ".join(dict.fromkeys(modules.values()))
        raise ValueError(f"{name} = {shown(value)}: ни одно имя не подходит; модули слоя: {known}")
    return {op.name: op.layers for op in _matrices(spec) if modules[op.name] not in chosen}


def _read_awq(given: Given, spec: Spec, family: str) -> Quantization:
    bits, group = _one_of(given, "bits", (4,), 4), _group(given)
    _one_of(given, "version", ("gemm",), "gemm")
    _Fields(given).flag("zero_point", default=True)
    kept, _ = _kept(spec, family, _matcher(given, "modules_to_not_convert"))
    fused = _FUSED.get(family, ())
    return Quantization(f"awq-{bits}-{_label(group)}", awq(bits, group), kept=kept, fused=fused)


def _read_bitsandbytes(given: Given, spec: Spec, family: str) -> Quantization:
    fields = _Fields(given)
    four, eight = (fields.flag(name, default=False) for name in ("load_in_4bit", "load_in_8bit"))
    if four == eight:
        raise ValueError("load_in_4bit, load_in_8bit: нужно true ровно у одного из двух")
    _plain(given, "llm_int8_has_fp16_weight", "bnb_4bit_blocksize")
    kind = _one_of(given, "bnb_4bit_quant_type", ("nf4", "fp4"), "fp4") if four else "int8"
    double = four and fields.flag("bnb_4bit_use_double_quant", default=False)
    name = f"{kind}-double" if double else kind
    return _converted(name, bnb4(double) if four else per_row("int8", "fp32"), given, spec, family)


def _read_fp8(given: Given, spec: Spec, family: str) -> Quantization:
    if "weight_block_size" not in given:
        raise ValueError("weight_block_size: назовите поле: без него transformers ждёт блоки, а vLLM — один масштаб")
    _plain(given, "modules_to_convert")
    _one_of(given, "expert_dtype", ("fp8",), "fp8")
    scale = {"float": "fp32", "ue8m0": "e8m0"}[_one_of(given, "scale_fmt", ("float", "ue8m0"), "float")]
    block = _block(given["weight_block_size"])
    parts = fp8(block, scale)
    if _one_of(given, "activation_scheme", ("dynamic", "static"), "dynamic") == "static":
        parts = with_input_scale(parts)
    return _converted("fp8-tensor" if block is None else "fp8-block", parts, given, spec, family)


def _block(value: object) -> tuple[int, int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"weight_block_size = {shown(value)}: нужно null или два целых числа")
    sizes = [_Fields({"weight_block_size": size}).size("weight_block_size", limit=2**20) for size in value]
    return sizes[0], sizes[1]


def _read_fbgemm(given: Given, spec: Spec, family: str) -> Quantization:
    return _converted("fp8-row", per_row("fp8", "fp32"), given, spec, family)


def _converted(name: str, parts: Parts, given: Given, spec: Spec, family: str) -> Quantization:
    """Квантовано всё, кроме списка исключений; без списка не тронута выходная голова."""
    field = next((field for field in _SKIP_LISTS if given.get(field) is not None), None)
    kept, head = _kept(spec, family, _matcher(given, field)) if field else ({}, False)
    return Quantization(name, parts, head=head, kept=kept, fused=_FUSED.get(family, ()))


def _read_mxfp4(given: Given, spec: Spec, family: str) -> Quantization:
    """Квантуются только эксперты: так устроен gpt-oss, и другого mxfp4 в transformers нет."""
    if not spec.experts:
        raise ValueError("quant_method = 'mxfp4': квантует экспертов, а у модели их нет")
    kept, _ = _kept(spec, family, _matcher(given, "modules_to_not_convert"))
    return Quantization("mxfp4", mxfp4, experts_only=True, kept=kept, fused=_FUSED.get(family, ()))


def _read_compressed(given: Given, spec: Spec, family: str) -> Quantization:
    """compressed-tensors с одной группой правил на все линейные слои."""
    _plain(given, "kv_cache_scheme", "transform_config")
    sparsity = given.get("sparsity_config")
    if not isinstance(sparsity, Mapping) or sparsity.get("format") != "dense":  # плотные веса байтов не меняют
        _plain(given, "sparsity_config")
    groups = given.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise ValueError("config_groups: нужна ровно одна группа правил")
    rules = next(iter(groups.values()))
    weights = rules.get("weights") if isinstance(rules, Mapping) else None
    if not isinstance(weights, Mapping) or rules.get("targets") != ["Linear"]:
        raise ValueError('config_groups: нужны weights и targets = ["Linear"]')
    inputs = rules.get("input_activations")
    moving = not isinstance(inputs, Mapping) or inputs.get("dynamic") is True or inputs.get("dynamic") == "local"
    name, parts = _scheme(given, weights)
    kept, head = _kept(spec, family, _matcher(given, "ignore", exact=True))
    fused = _FUSED.get(family, ())
    return Quantization(name, parts if moving else with_input_scale(parts), head=head, kept=kept, fused=fused)


def _scheme(given: Given, weights: Given) -> tuple[str, Parts]:
    """Имя и тензоры по правилам весов compressed-tensors."""
    form = _one_of(given, "format", ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized"), None)
    strategy = _one_of(weights, "strategy", ("tensor", "channel", "group"), None)
    kind = _one_of(weights, "type", ("int", "float"), "int")
    bits = _one_of(weights, "num_bits", (4, 8) if form == "pack-quantized" else (8,), None)
    symmetric = _Fields(weights).flag("symmetric", default=True)
    if form == "pack-quantized":
        if strategy == "tensor":
            raise ValueError("strategy = 'tensor': упакованные веса квантуют по группам или по строкам")
        group = _group(weights, None) if strategy == "group" else None
        ordered = _one_of(weights, "actorder", ("group", "weight", "static"), "weight") == "group"
        return f"int{bits}-{_label(group)}", packed_int32(bits, group, symmetric, ordered)
    if strategy == "group":
        raise ValueError("strategy = 'group': у восьмибитных весов масштаб — на матрицу или на строку")
    dtype = "fp8" if kind == "float" else "int8"
    by = per_matrix if strategy == "tensor" else per_row
    return f"{dtype}-{'tensor' if strategy == 'tensor' else 'row'}", by(dtype, "bf16", "" if symmetric else dtype)


_METHODS: dict[str, Callable[[Given, Spec, str], Quantization]] = {
    "gptq": _read_gptq,
    "awq": _read_awq,
    "bitsandbytes": _read_bitsandbytes,
    "fp8": _read_fp8,
    "fbgemm_fp8": _read_fbgemm,
    "mxfp4": _read_mxfp4,
    "compressed-tensors": _read_compressed,
}

#: Под каким именем разные способы пишут список исключений.
_SKIP_LISTS = ("modules_to_not_convert", "llm_int8_skip_modules", "ignored_layers")


# --- Исключения: имена модулей → строки таблицы --------------------------------------------------

#: Строка таблицы → модуль слоя у Llama и её потомков.
_LLAMA = {
    "query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj", "output": "self_attn.o_proj",
    "query_down": "self_attn.q_a_proj", "query_up": "self_attn.q_b_proj", "kv_up": "self_attn.kv_b_proj",
    "kv_down": "self_attn.kv_a_proj_with_mqa",
    "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
}  # fmt: skip
_JOINED = dict.fromkeys(("query", "key", "value"), "attention.query_key_value")
_WIDE = {"output": "attention.dense", "up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h"}
#: Семейство → его имена, где они другие.
_MODULES: dict[str, dict[str, str]] = {
    "phi3": {
        **dict.fromkeys(("query", "key", "value"), "self_attn.qkv_proj"),
        **dict.fromkeys(("gate", "up"), "mlp.gate_up_proj"),
    },
    "gpt2": {
        **dict.fromkeys(("query", "key", "value"), "attn.c_attn"),
        "output": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj",
    },
    "gpt_neox": {**_JOINED, **_WIDE},
    "falcon": {name: module.replace("attention.", "self_attention.") for name, module in {**_JOINED, **_WIDE}.items()},
    "opt": {"output": "self_attn.out_proj", "up": "fc1", "down": "fc2"},
    "mixtral": {name: f"block_sparse_moe.experts.0.{w}" for name, w in (("gate", "w1"), ("up", "w3"), ("down", "w2"))},
    "gpt_oss": dict.fromkeys(("gate", "up", "down"), "mlp.experts"),
}  # fmt: skip
#: Где у семейства стоят слои и как зовут голову; остальные — как у Llama. Обёртки с картинками добавляют своё имя.
_PLACES = {"gpt2": "transformer.h", "falcon": "transformer.h", "gpt_neox": "gpt_neox.layers",
           "opt": "model.decoder.layers"}  # fmt: skip
_WRAPPED = ("model.layers", "language_model.model.layers", "model.language_model.layers")
_HEADS = {"gpt_neox": ("embed_out", "lm_head")}

#: Матрицы, которые файл хранит одним тензором.
_QKV = (("query", "key", "value"),)
_FUSED: dict[str, tuple[tuple[str, ...], ...]] = {
    "phi3": (*_QKV, ("gate", "up")), "gpt2": _QKV, "gpt_neox": _QKV, "falcon": _QKV, "gpt_oss": (("gate", "up"),),
}  # fmt: skip

#: Сколько сравнений имён со списком исключений делать самое большее: настоящим спискам хватает тысяч.
MOST_CHECKS = 10**6


def _matrices(spec: Spec) -> Iterator[Op]:
    """Строки слоя с матрицами, которые вообще бывают квантованы."""
    return (op for op in table(spec) if op.weight and op.product and op.component in ("attention", "ffn"))


def _module(op: Op, family: str) -> str:
    """Имя модуля внутри слоя."""
    kind, name = "", op.name
    for prefix in ("dense_", "shared_"):
        if name.startswith(prefix):
            kind, name = prefix, name.removeprefix(prefix)
    module = (_LLAMA if kind else {**_LLAMA, **_MODULES.get(family, {})})[name]
    if op.expert and family not in ("mixtral", "gpt_oss"):
        return module.replace("mlp.", "mlp.experts.0.")
    return module.replace("mlp.", "mlp.shared_experts.") if kind == "shared_" else module


def _kept(spec: Spec, family: str, skip: Skip) -> tuple[dict[str, int], bool]:
    """Сколько слоёв каждой строки исключено и квантована ли выходная голова."""
    places = (_PLACES[family],) if family in _PLACES else _WRAPPED
    found = {}
    for op in _matrices(spec):
        module, layers = _module(op, family), range(op.first, op.first + op.layers)
        found[op.name] = sum(any(skip(f"{place}.{i}.{module}") for place in places) for i in layers)
    heads = _HEADS.get(family, ("lm_head", "language_model.lm_head"))
    return {name: count for name, count in found.items() if count}, not any(map(skip, heads))


def _matcher(given: Given, field: str, exact: bool = False) -> Skip:
    """Проверка имени по списку исключений; `exact` — правила compressed-tensors, иначе — transformers."""
    patterns = given.get(field)
    if patterns is None:
        return lambda name: False
    if not isinstance(patterns, list) or not all(isinstance(item, str) for item in patterns):
        raise ValueError(f"{field}: нужен список имён модулей")
    items = list(dict.fromkeys(patterns))
    for item in items:
        _check_item(field, item, exact)
    plain = {item for item in items if (not item.startswith("re:") if exact else set(item) <= _NAME)}
    programs = [item for item in items if item not in plain]
    shapes = {} if exact else _shapes(plain)
    cost = sum(1 + len(shape) // 8 for shape in shapes) + sum(40 ** item.count("*") for item in programs)
    if len(programs) > MOST_PROGRAMS or cost > MOST_CHECKS:
        raise ValueError(f"{field}: {_TOO_LONG}")
    rules = [_compiled(field, item, exact) for item in programs]
    budget = [MOST_CHECKS]

    def skip(name: str) -> bool:
        budget[0] -= cost
        if budget[0] < 0:
            raise ValueError(f"{field}: {_TOO_LONG}")
        if exact and name in plain:
            return True
        return (not exact and _among(name, plain, shapes)) or any(rule.match(name) for rule in rules)

    return skip


_TOO_LONG = "список слишком длинный для модели с таким числом слоёв"
#: Сколько шаблонов собирать самое большее: сборка одного — десятая доля миллисекунды.
MOST_PROGRAMS = 1500
#: Знаки имени модуля. Точка — тоже имя, хотя для transformers она значит «любой знак».
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
#: Знаки простого шаблона. Остальное — уже программа на регулярных выражениях.
_PLAIN = _NAME | frozenset("*$^\\")


def _shapes(items: Iterable[str]) -> dict[tuple[int, ...], set[str]]:
    """Имена по длинам их частей между точками: «layers.10» — (6, 2). Форм мало, даже если имён тысячи."""
    found: dict[tuple[int, ...], set[str]] = {}
    for item in items:
        found.setdefault(tuple(map(len, item.split("."))), set()).add(item)
    return found


def _among(name: str, items: set[str], shapes: Mapping[tuple[int, ...], set[str]]) -> bool:
    """Исключено ли имя списком простых имён.

    Ответ тот же, что у transformers: имя кончается исключением или начинается с него, причём дальше — конец или
    точка. Точка исключения подходит к любому знаку, поэтому начало имени режется по форме исключения.
    """
    if any(name[at:] in items for at in range(len(name))):
        return True
    for shape, known in shapes.items():
        end = sum(shape) + len(shape) - 1
        if end <= len(name) and (name[end : end + 1] in ("", ".") or name[end - 1] == "."):
            at, parts = 0, []
            for length in shape:
                parts.append(name[at : at + length])
                at += length + 1
            if ".".join(parts) in known:
                return True
    return False


def _check_item(field: str, item: str, exact: bool) -> None:
    """Шаблон приходит из чужого файла, поэтому принимаются имена и «*»: скобки и повторы могли бы считаться вечно."""
    pattern = item.removeprefix("re:") if exact else item
    if not pattern or not set(pattern) <= _PLAIN or pattern.count("*") > 2 or len(pattern) > 200:
        raise ValueError(f"{field}: {shown(item)}: шаблон сложнее имени с «*» не поддерживается")
    if ".experts." in pattern and pattern.partition(".experts.")[2][:1].isdigit():
        raise ValueError(f"{field}: {shown(item)}: исключения отдельных экспертов не поддерживаются")


def _compiled(field: str, item: str, exact: bool) -> re.Pattern[str]:
    """Исключение → регулярное выражение от начала имени. Собирается один раз: тысячи строк кеш модуля re не держит."""
    import re

    rule = item.removeprefix("re:") if exact else rf"(?:{item})(?:(?<=\.)|(?=\.|$))"
    try:
        return re.compile(rule)
    except (re.error, OverflowError):
        raise ValueError(f"{field}: {shown(item)}: это не имя модуля и не шаблон") from None
