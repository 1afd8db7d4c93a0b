"""Из config.json модели Hugging Face — в `Spec`; известные модели по имени.

Правило одно: семейство, которое мы не разобрали до последнего параметра, — отказ с его именем, а не догадка.
Поле, которое меняет число параметров и которого мы не знаем, — тоже отказ.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from nanolm.spec import Spec, shown, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Config = Mapping[str, Any]

#: config.json больше этого — не config.json: настоящие занимают килобайты.
MAX_CONFIG_BYTES = 4 * 1024 * 1024


def from_config(source: str | os.PathLike[str] | Config) -> Spec:
    """Разобрать config.json: путь к файлу, папка с ним или готовый словарь.

    Errors: `ValueError` с именем файла или поля, если файл не читается, это не JSON-объект, семейство
    (`model_type`) неизвестно или поле имеет недопустимое значение.
    """
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        return _spec(_read(path), path)
    if not isinstance(source, Mapping):
        raise ValueError(f"config = {shown(source)}: нужен путь или словарь")
    return _spec(source, "config")


def _read(path: str) -> Config:
    import json

    if os.path.isdir(path):
        path = os.path.join(path, "config.json")
    data = _bytes(path)
    try:
        config = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError(f"{path}: файл не в кодировке UTF-8") from None
    except RecursionError:
        raise ValueError(f"{path}: слишком глубокая вложенность") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: это не JSON: строка {error.lineno}, столбец {error.colno}") from None
    except ValueError:  # целое длиннее, чем Python согласен разобрать
        raise ValueError(f"{path}: слишком длинное число") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path}: в файле должен быть JSON-объект")
    return config


def _bytes(path: str) -> bytes:
    """Содержимое файла. Предел — по прочитанному: у канала и устройства размера заранее нет."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path}: файл не читается: {_reason(error)}") from None
    if len(data) > MAX_CONFIG_BYTES:
        raise ValueError(f"{path}: больше {MAX_CONFIG_BYTES // 1024**2} МиБ, это не config.json")
    return data


def _reason(error: OSError) -> str:
    reasons = {"ENOENT": "такого файла нет", "EACCES": "нет прав", "EISDIR": "это папка"}
    import errno

    return reasons.get(errno.errorcode.get(error.errno or 0, ""), "ошибка ввода-вывода")


def _spec(config: Config, where: str) -> Spec:
    family = config.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise ValueError(f"{where}: model_type = {shown(family)}: семейство не поддерживается; есть {', '.join(FAMILIES)}")
    if config.get("quantization_config"):
        raise ValueError(f"{where}: quantization_config: сжатые веса пока не поддерживаются")
    try:
        return FAMILIES[family](_Fields(config))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


class _Fields:
    """Поля config.json с проверкой: имя поля попадает в сообщение об ошибке."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def size(self, name: str, default: int | None = None, minimum: int = 1) -> int:
        value = self._config.get(name)
        if value is None:
            if default is None:
                raise ValueError(f"{name}: обязательное поле не задано")
            return default
        return whole(name, value, minimum)

    def flag(self, name: str, default: bool) -> bool:
        value = self._config.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ValueError(f"{name} = {shown(value)}: нужно true или false")
        return value

    def layers(self, name: str, length: int) -> list[str] | None:
        value = self._config.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length:
            raise ValueError(f"{name}: нужен список из {length} значений, по одному на слой")
        return value


def _base(fields: _Fields) -> dict[str, Any]:
    """Общее всем потомкам Llama: имена полей у них одинаковы."""
    N = fields.size("num_attention_heads")
    D = fields.size("hidden_size")
    head = fields.size("head_dim", default=D // N if D % N == 0 else None)
    return {
        "V": fields.size("vocab_size"),
        "D": D,
        "L": fields.size("num_hidden_layers"),
        "N": N,
        "K": fields.size("num_key_value_heads", default=N),
        "H": head,
        "F": fields.size("intermediate_size"),
        "S": fields.size("max_position_embeddings", default=2048),
        "tie_embeddings": fields.flag("tie_word_embeddings", default=False),
    }


def _llama(fields: _Fields) -> Spec:
    bias = fields.flag("attention_bias", default=False)
    return Spec(**_base(fields), qkv_bias=bias, out_bias=bias, ffn_bias=fields.flag("mlp_bias", default=False))


def _mistral(fields: _Fields) -> Spec:
    return Spec(**_base(fields), window=fields.size("sliding_window", default=0, minimum=0) or None)


def _mixtral(fields: _Fields) -> Spec:
    return Spec(
        **_base(fields),
        window=fields.size("sliding_window", default=0, minimum=0) or None,
        experts=fields.size("num_local_experts", default=8),
        experts_per_token=fields.size("num_experts_per_tok", default=2),
    )


def _qwen_window(fields: _Fields, L: int) -> tuple[int | None, ...] | None:
    """У Qwen окно включает флаг, и первые `max_window_layers` слоёв его не имеют."""
    if not fields.flag("use_sliding_window", default=False):
        return None
    window = fields.size("sliding_window", default=4096)
    first = fields.size("max_window_layers", default=28, minimum=0)
    kinds = fields.layers("layer_types", L)
    if kinds is not None:
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    return tuple(window if i >= first else None for i in range(L))


def _qwen2(fields: _Fields) -> Spec:
    base = _base(fields)
    return Spec(**base, qkv_bias=True, window=_qwen_window(fields, base["L"]))


def _qwen3(fields: _Fields) -> Spec:
    base = _base(fields)
    bias = fields.flag("attention_bias", default=False)
    base["H"] = fields.size("head_dim", default=128)
    window = _qwen_window(fields, base["L"])
    return Spec(**base, qkv_bias=bias, out_bias=bias, qk_norm=True, window=window)


def _gemma(fields: _Fields) -> Spec:
    return Spec(**_gemma_base(fields))


def _gemma_base(fields: _Fields) -> dict[str, Any]:
    """У Gemma голова всегда своя по размеру, а эмбеддинг по умолчанию связан."""
    bias = fields.flag("attention_bias", default=False)
    head = fields.size("head_dim", default=256)
    tied = fields.flag("tie_word_embeddings", default=True)
    return {**_base(fields), "H": head, "tie_embeddings": tied, "qkv_bias": bias, "out_bias": bias}


def _alternating(fields: _Fields, L: int, pattern: int, window: int) -> tuple[int | None, ...]:
    """Окно у всех слоёв, кроме каждого `pattern`-го; список `layer_types` важнее."""
    kinds = fields.layers("layer_types", L)
    if kinds is not None:
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    return tuple(None if (i + 1) % pattern == 0 else window for i in range(L))


def _gemma2(fields: _Fields) -> Spec:
    base = _gemma_base(fields)
    window = _alternating(fields, base["L"], 2, fields.size("sliding_window", default=4096))
    return Spec(**base, post_norms=True, window=window)


def _gemma3(fields: _Fields) -> Spec:
    base = _gemma_base(fields)
    pattern = fields.size("sliding_window_pattern", default=6)
    window = _alternating(fields, base["L"], pattern, fields.size("sliding_window", default=4096))
    return Spec(**base, post_norms=True, qk_norm=True, window=window)


def _gpt2(fields: _Fields) -> Spec:
    D, S = fields.size("n_embd"), fields.size("n_positions", default=1024)
    return Spec(
        V=fields.size("vocab_size"), D=D, L=fields.size("n_layer"), N=fields.size("n_head"),
        F=fields.size("n_inner", default=4 * D), S=S, learned_positions=S,
        tie_embeddings=fields.flag("tie_word_embeddings", default=True),
        gated_ffn=False, qkv_bias=True, out_bias=True, ffn_bias=True, norm_bias=True,
    )  # fmt: skip


#: Семейства, которые разобраны до последнего параметра.
FAMILIES: dict[str, Callable[[_Fields], Spec]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
}


def presets() -> dict[str, dict[str, Any]]:
    """Известные модели: имя → title, source, total и config, по порядку файла."""
    import tomllib

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "models.toml")
    with open(path, "rb") as file:
        return tomllib.load(file)


def preset(name: str) -> Spec:
    """Известная модель по имени, например «llama-3-8b».

    Errors: `ValueError` с похожими именами, если такой нет.
    """
    known = presets()
    entry = known.get(str(name).lower())
    if entry is None:
        import difflib

        close = difflib.get_close_matches(str(name).lower(), known, n=3) or list(known)[:5]
        raise ValueError(f"preset = {name!r}: такой модели нет; похожие: {', '.join(close)}")
    return from_config(entry["config"])
