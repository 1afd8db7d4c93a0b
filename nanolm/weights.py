"""Веса: папка Hugging Face семейства Llama в NanoLM и обратно.

Файл safetensors — заголовок с именами и формами, за ним сами числа подряд. Поэтому всё, что может
не сойтись, проверяется по заголовкам, до первого байта весов. Читаются они отображением файла в
память: модель строится на мета-устройстве без памяти, и её параметры становятся страницами файла.
Второй копии нет, и неиспользованное даже не читается с диска.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from nanolm import units
from nanolm.checks import ROPE_FIELDS, positive
from nanolm.machine import total_bytes
from nanolm.model import NanoLM
from nanolm.spec import shown
from nanolm.zoo import load as load_config

if TYPE_CHECKING:
    from nanolm.spec import Spec

#: Имя части параметра в NanoLM → в файле transformers. Остальные части совпадают.
_PARTS = {
    "embedding": "model.embed_tokens", "layers": "model.layers", "norm": "model.norm", "head": "lm_head",
    "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attention": "self_attn", "query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj",
    "query_norm": "q_norm", "key_norm": "k_norm",
    "ffn": "mlp", "gate": "gate_proj", "up": "up_proj", "down": "down_proj",
}  # fmt: skip
#: У Mixtral матрицы экспертов пронумерованы, а gate — это маршрутизатор.
_MIXTRAL = {"ffn": "block_sparse_moe", "router": "gate", "gate": "w1", "down": "w2", "up": "w3"}

#: Семейство → что подставляет transformers, если в config.json нет rms_norm_eps и rope_theta.
_DEFAULTS = {
    "llama": (1e-6, 10_000.0), "mistral": (1e-6, 10_000.0), "mixtral": (1e-5, 1_000_000.0),
    "qwen2": (1e-6, 10_000.0), "qwen3": (1e-6, 10_000.0),
}  # fmt: skip

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
#: Какие числа нужны каждому способу растянуть RoPE.
_ROPE_FIELDS: dict[str, tuple[str, ...]] = {"default": (), **ROPE_FIELDS}

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"


def file_name(parameter: str, spec: Spec) -> str:
    """Имя параметра NanoLM → имя тензора в файле: «layers.0.attention.query.weight» и подобные."""
    parts = {**_PARTS, **_MIXTRAL} if spec.experts else _PARTS
    return ".".join(parts.get(part, part) for part in parameter.split("."))


# --- Чтение --------------------------------------------------------------------------------------


def load(
    folder: str | Path,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    S: int | None = None,
    attention: str = "fused",
    checkpointing: str = "none",
) -> NanoLM:
    """Прочитать папку: config.json и safetensors, один файл или части с указателем.

    Семейства: llama, mistral, mixtral, qwen2, qwen3. `dtype` — тип весов (по умолчанию как в файле),
    `S` — меньший контекст, чем в config.json: от него зависят таблицы RoPE и предел длины.

    Ошибки: `ValueError` с именем файла, поля или тензора — до того, как потрачена память.
    """
    folder = Path(folder)
    _check_dtype(dtype)
    device = _device(device)
    spec, numerics = _read_config(folder)
    if S is not None:
        spec = spec.replace(S=S)
    _check_tables(spec, device)
    with ExitStack() as stack:
        files = {path: stack.enter_context(_open(path)) for path in _shards(folder)}
        places = _places(files)
        _check_layers(folder, spec, len(places))
        with torch.device("meta"):
            model = NanoLM(spec, attention=attention, checkpointing=checkpointing, **numerics)
        names = {file_name(name, spec): name for name, _ in model.named_parameters()}
        _check_names(folder, names, places, spec)
        for tensor, parameter in names.items():
            _check_tensor(files[places[tensor]], places[tensor], tensor, model.get_parameter(parameter).shape)
        weights = {
            parameter: files[places[tensor]].get_tensor(tensor).to(device, dtype) for tensor, parameter in names.items()
        }
    model.load_state_dict(weights, assign=True)
    model.build_tables(model.embedding.weight.device, model.embedding.weight.dtype)
    return model


def _read_config(folder: Path) -> tuple[Spec, dict[str, Any]]:
    """Геометрия и числа, которых в ней нет: ε нормы и основание RoPE."""
    path = folder / "config.json"
    spec, compressed = load_config(path)
    if compressed is not None:
        raise ValueError(f"{path}: quantization_config: NanoLM читает только обычные веса, а здесь {compressed.name}")
    config = json.loads(path.read_text(encoding="utf-8-sig"))
    family = config["model_type"]
    if family not in _DEFAULTS:
        raise ValueError(f"{path}: model_type = {family!r}: веса читаются у {', '.join(_DEFAULTS)}")
    if config.get("hidden_act", "silu") != "silu":
        raise ValueError(f"{path}: hidden_act = {config['hidden_act']!r}: NanoLM умеет только silu")
    eps, base = _DEFAULTS[family]
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise ValueError(f"{path}: rope_parameters: нужен объект с полями rope_type и rope_theta")
    base = rope.get("rope_theta", config.get("rope_theta", base))
    numerics = {
        "norm_eps": _number(path, "rms_norm_eps", config.get("rms_norm_eps", eps)),
        "rope_base": _number(path, "rope_theta", base),
        "rope_scaling": _rope_scaling(path, rope),
    }
    return spec, numerics


def _rope_scaling(path: Path, rope: dict[str, Any]) -> dict[str, Any] | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if not isinstance(kind, str) or kind not in _ROPE_FIELDS:
        raise ValueError(f"{path}: rope_type = {kind!r}: NanoLM умеет {', '.join(_ROPE_FIELDS)}")
    if rope.get("partial_rotary_factor", 1) != 1:
        value = rope["partial_rotary_factor"]
        raise ValueError(f"{path}: partial_rotary_factor = {value!r}: NanoLM поворачивает голову целиком")
    if kind == "default":
        return None
    return {"rope_type": kind, **{name: _number(path, name, rope.get(name)) for name in _ROPE_FIELDS[kind]}}


def _number(path: Path, field: str, value: object) -> float:
    return positive(f"{path}: {field}", value)


def _check_dtype(dtype: object) -> None:
    known = set(_DTYPES.values())
    if dtype is not None and (not isinstance(dtype, torch.dtype) or dtype not in known):
        raise ValueError(f"dtype = {shown(dtype)}: нужно None или одно из {', '.join(sorted(map(str, known)))}")


def _device(device: torch.device | str) -> torch.device:
    """Устройство, на котором и правда можно что-то создать: имени для этого мало."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError, ValueError):
        raise ValueError(f"device = {shown(device)}: такого устройства на этой машине нет") from None


def _check_tables(spec: Spec, device: torch.device) -> None:
    """Таблицы RoPE поместятся: размер у них от S, и в файле весов его ничто не сдерживает."""
    need, have = 2 * 4 * spec.S * spec.H, 0 if device.type == "meta" else total_bytes(device)
    if have and need > have:
        raise ValueError(
            f"S = {spec.S}: таблицы RoPE займут {units.both_bytes(need)}, а памяти {units.both_bytes(have)}; "
            "задайте меньший S"
        )


def _check_layers(folder: Path, spec: Spec, tensors: int) -> None:
    """Тензоров хватит хотя бы по одному на слой и эксперта: иначе незачем строить и саму модель."""
    if spec.L * max(1, spec.experts) > tensors:
        experts = f" по num_local_experts = {spec.experts}" if spec.experts else ""
        raise ValueError(
            f"{folder / 'config.json'}: num_hidden_layers = {spec.L}{experts}: в файлах весов всего {tensors} тензоров"
        )


def _shards(folder: Path) -> list[Path]:
    """Файлы весов: из указателя или один; каждый должен существовать."""
    index = folder / INDEX
    if not index.is_file():
        if not (folder / SINGLE).is_file():
            raise ValueError(f"{folder}: нет весов: нужен {SINGLE} или {INDEX} с частями")
        return [folder / SINGLE]
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{index}: нужен JSON-объект с полем weight_map: имя тензора → имя файла") from None
    for name in names:
        # Имя из чужого файла не должно уводить из папки.
        if not isinstance(name, str) or Path(name).name != name:
            raise ValueError(f"{index}: weight_map: {name!r}: нужно имя файла из той же папки")
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name}: нет части весов, на которую ссылается {INDEX}")
    return [folder / name for name in names]


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        size = path.stat().st_size
        raise ValueError(f"{path}: файл повреждён или обрезан ({size} байт на диске): {error}") from None


def _places(files: dict[Path, Any]) -> dict[str, Path]:
    """Имя тензора → файл, в котором он лежит."""
    places: dict[str, Path] = {}
    for path, file in files.items():
        for name in file.keys():  # noqa: SIM118 — это не словарь
            if name in places:
                raise ValueError(f"{path}: тензор {name} уже есть в {places[name].name}")
            places[name] = path
    return places


def _check_names(folder: Path, names: dict[str, str], places: dict[str, Path], spec: Spec) -> None:
    missing = [name for name in names if name not in places]
    if missing:
        raise ValueError(f"{folder}: нет тензора {missing[0]} (всего не хватает: {len(missing)})")
    # Связанная голова в файле — копия эмбеддинга; частоты RoPE старые файлы хранили, мы их считаем.
    spare = {"lm_head.weight"} if spec.tie_embeddings else set()
    extra = [
        name for name in places if name not in names and name not in spare and not name.endswith("rotary_emb.inv_freq")
    ]
    if extra:
        raise ValueError(
            f"{places[extra[0]]}: лишний тензор {extra[0]} (всего лишних: {len(extra)}): "
            "в модели с таким config.json его нет"
        )


def _check_tensor(file: Any, path: Path, name: str, expected: torch.Size) -> None:
    header = file.get_slice(name)
    shape, dtype = tuple(header.get_shape()), header.get_dtype()
    if shape != tuple(expected):
        raise ValueError(f"{path}: тензор {name}: форма {shape}, а по config.json должна быть {tuple(expected)}")
    if dtype not in _DTYPES:
        raise ValueError(f"{path}: тензор {name}: тип {dtype}; читаются {', '.join(_DTYPES)}")


# --- Запись --------------------------------------------------------------------------------------


def save(model: NanoLM, folder: str | Path, *, max_shard_bytes: int = 5 * 10**9) -> None:
    """Записать config.json и веса так, чтобы их прочитал transformers.

    Части не больше `max_shard_bytes`; если часть одна, указателя нет.

    Ошибки: `ValueError`, если такой модели в transformers нет (например, с обучаемыми позициями).
    """
    config = _config(model)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shards = list(_split(model, max_shard_bytes))
    total = len(shards)
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        name = SINGLE if total == 1 else f"model-{number:05d}-of-{total:05d}.safetensors"
        # Старый файл может быть отображён в память самой этой моделью: пишем рядом и переименовываем.
        save_file(shard, folder / f"{name}.part", metadata={"format": "pt"})
        os.replace(folder / f"{name}.part", folder / name)
        weight_map.update(dict.fromkeys(shard, name))
    _remove_stale(folder, set(weight_map.values()))
    if total > 1:
        size = sum(parameter.nbytes for parameter in model.parameters())
        _write_json(folder / INDEX, {"metadata": {"total_size": size}, "weight_map": weight_map})
    _write_json(folder / "config.json", config)


def _split(model: NanoLM, limit: int) -> Iterator[dict[str, torch.Tensor]]:
    """Параметры под именами файла, порциями не больше `limit` байт (но хотя бы по одному)."""
    shard: dict[str, torch.Tensor] = {}
    size = 0
    for name, parameter in model.named_parameters():
        if shard and size + parameter.nbytes > limit:
            yield shard
            shard, size = {}, 0
        shard[file_name(name, model.spec)] = parameter.detach().contiguous()
        size += parameter.nbytes
    yield shard


def _remove_stale(folder: Path, current: set[str]) -> None:
    """Убрать части прошлой записи: иначе указатель и файлы разойдутся."""
    (folder / INDEX).unlink(missing_ok=True)
    for path in folder.iterdir():
        if re.fullmatch(r"model(-\d{5}-of-\d{5})?\.safetensors", path.name) and path.name not in current:
            path.unlink()


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _config(model: NanoLM) -> dict[str, Any]:
    """config.json модели: семейство выбирает геометрия."""
    spec = model.spec
    family = _family(spec)
    names = {"llama": "Llama", "mistral": "Mistral", "mixtral": "Mixtral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    rope = {"rope_type": "default", **(model.rope_scaling or {}), "rope_theta": model.rope_base}
    config = {
        "architectures": [f"{names[family]}ForCausalLM"], "model_type": family,
        "dtype": str(model.embedding.weight.dtype).removeprefix("torch."),
        "vocab_size": spec.V, "hidden_size": spec.D, "num_hidden_layers": spec.L,
        "num_attention_heads": spec.N, "num_key_value_heads": spec.K, "head_dim": spec.H,
        "intermediate_size": spec.F, "max_position_embeddings": spec.S,
        "hidden_act": "silu", "rms_norm_eps": model.norm_eps, "rope_parameters": rope,
        "tie_word_embeddings": spec.tie_embeddings,
        # Номера служебных токенов знает токенизатор, а не модель.
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    }  # fmt: skip
    return {**config, **_family_fields(family, spec)}


def _family(spec: Spec) -> str:
    """Семейство transformers с такими же блоками; `ValueError`, если его нет."""
    plain = not (spec.qkv_bias or spec.out_bias or spec.ffn_bias or spec.qk_norm)
    uniform = len(set(spec.windows)) == 1
    rules = {
        "mixtral": spec.experts > 0 and plain and uniform,
        "qwen3": not spec.experts and spec.qk_norm and spec.qkv_bias == spec.out_bias and not spec.ffn_bias,
        "qwen2": not spec.experts and not spec.qk_norm and spec.qkv_bias
        and not spec.out_bias and not spec.ffn_bias,
        # Llama в transformers требует, чтобы D делилось на N; блоки Mistral те же, а требования нет.
        "mistral": not spec.experts and plain and uniform and (spec.window is not None or spec.D % spec.N > 0),
        "llama": not spec.experts and not spec.qk_norm and spec.window is None
        and spec.qkv_bias == spec.out_bias and spec.D % spec.N == 0,
    }  # fmt: skip
    # Одна ширина окна на модель: больше config.json не вмещает.
    narrow = len({window for window in spec.windows if window is not None}) <= 1
    if spec.gated_ffn and not spec.norm_bias and not spec.learned_positions and narrow:
        for family, fits in rules.items():
            if fits:
                return family
    raise ValueError(f"{spec!r}: у transformers нет семейства Llama с таким сочетанием блоков")


def _family_fields(family: str, spec: Spec) -> dict[str, Any]:
    if family == "llama":
        return {"attention_bias": spec.qkv_bias, "mlp_bias": spec.ffn_bias}
    if family == "mistral":
        return {"sliding_window": spec.windows[0]}
    if family == "mixtral":
        experts = {"num_local_experts": spec.experts, "num_experts_per_tok": spec.experts_per_token}
        return {"sliding_window": spec.windows[0], **experts}
    widths = [window for window in spec.windows if window is not None]
    fields: dict[str, Any] = {
        "use_sliding_window": bool(widths),
        "sliding_window": widths[0] if widths else None,
        "layer_types": [f"{'full' if window is None else 'sliding'}_attention" for window in spec.windows],
    }
    return {**fields, "attention_bias": spec.qkv_bias} if family == "qwen3" else fields
