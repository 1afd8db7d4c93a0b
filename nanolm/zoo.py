"""Из config.json модели Hugging Face — в `Spec`; известные модели по имени.

Правило одно: семейство, которое мы не разобрали до последнего параметра, — отказ с его именем, а не догадка.
Поле, которое меняет число параметров и которого мы не знаем, — тоже отказ.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from nanolm.spec import LIMIT, Spec, shown, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from nanolm.quantization import Quantization

    Config = Mapping[str, Any]

#: config.json больше этого — не config.json: настоящие занимают килобайты.
MAX_CONFIG_BYTES = 4 * 1024 * 1024

#: Окна записываются по слоям, и выдуманный миллиард слоёв съел бы всю память.
MAX_LAYERS = 100_000
#: Глубже config.json не бывает.
MAX_DEPTH = 100


def from_config(source: str | os.PathLike[str] | Config) -> Spec:
    """Разобрать config.json: путь к файлу, папка с ним, «-» (стандартный ввод) или готовый словарь.

    У модели, которая читает и картинки, разбирается её языковая часть (`text_config`).

    Ошибки: `ValueError` с именем файла или поля, если файл не читается, это не JSON-объект, семейство
    (`model_type`) неизвестно или поле имеет недопустимое значение.
    """
    return load(source)[0]


def quantization(source: str | os.PathLike[str] | Config) -> Quantization | None:
    """Как квантованы веса этого файла (`quantization_config`); `None` — никак. Источник — как у `from_config`."""
    return load(source)[1]


def load(source: str | os.PathLike[str] | Config) -> tuple[Spec, Quantization | None]:
    """Геометрия и формат весов за одно чтение; стандартный ввод дважды не прочесть.

    Ошибки: те же, что у `from_config`; ещё — способ квантования или поле quantization_config, которых мы не знаем.
    """
    found = describe(source)
    return found.spec, found.weights()


class Described:
    """Прочитанный config.json: геометрия `spec`, семейство `family`, одна ли это языковая часть (`text_only`).

    `longest` — контекст, на который рассчитана модель; `None` — в файле он не записан.
    Формат весов разбирается, когда его спросят: без квантования модель считается и с незнакомым способом.
    """

    __slots__ = ("_compressed", "_given", "_where", "family", "longest", "spec", "text_only")

    def __init__(
        self, spec: Spec, family: str, text_only: bool, longest: int | None, given: object, where: str
    ) -> None:
        self.spec, self.family, self.text_only, self.longest = spec, family, text_only, longest
        self._given, self._where = given, where
        self._compressed: Quantization | None = None

    def weights(self) -> Quantization | None:
        """Как квантованы веса; `None` — никак.

        Ошибки: `ValueError` с именем файла и поля, если способ или поле quantization_config незнакомы.
        """
        if self._given:
            # Импорт здесь: у большинства моделей веса не квантованы.
            from nanolm.quantization_config import read

            try:
                self._compressed = read(self._given, self.spec, self.family)
            except ValueError as error:
                raise ValueError(f"{self._where}: {error}") from None
            self._given = None
        return self._compressed


def describe(source: str | os.PathLike[str] | Config) -> Described:
    """То же чтение, что у `load`, но формат весов пока не разобран.

    Ошибки: те же, что у `from_config`, кроме ошибок quantization_config.
    """
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        return _model(_read(path), _label(path))
    if not isinstance(source, Mapping):
        raise ValueError(f"config = {shown(source)}: нужен путь или словарь")
    return _model(source, "config")


def _read(path: str) -> Config:
    if path != "-" and os.path.isdir(path):
        path = os.path.join(path, "config.json")
    return _parsed(_bytes(path), _label(path))


def from_text(text: str, where: str = "config.json") -> Described:
    """То же, что `describe`, из содержимого файла: на странице его читает браузер. `where` — имя для ошибки.

    Ошибки: те же, что у `describe`.
    """
    if len(text) > MAX_CONFIG_BYTES:
        raise ValueError(f"{where}: больше {MAX_CONFIG_BYTES // 1024**2} МиБ, это не config.json")
    return _model(_parsed(text.encode("utf-8", "surrogatepass"), where), where)


def _parsed(data: bytes, path: str) -> Config:
    import json

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: файл не в кодировке UTF-8") from None
    _check_depth(text, path)
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: это не JSON: строка {error.lineno}, столбец {error.colno}") from None
    except ValueError:  # целое длиннее, чем Python согласен разобрать
        raise ValueError(f"{path}: слишком длинное число") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path}: в файле должен быть JSON-объект")
    return config


def _check_depth(text: str, path: str) -> None:
    """Разбор JSON рекурсивен, и в браузере слишком вложенный файл губит не разбор, а весь Python."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    import re

    depth = 0
    for mark in re.findall(r"[][{}]", re.sub(r'"(?:[^"\\]|\\.)*"', "", text)):
        depth += 1 if mark in "[{" else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"{path}: слишком глубокая вложенность")


def _bytes(path: str) -> bytes:
    """Содержимое файла. Предел — по прочитанному: у канала и устройства размера заранее нет."""
    try:
        if path == "-":
            data = _standard_input(MAX_CONFIG_BYTES + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{_label(path)}: файл не читается: {_reason(error)}") from None
    except ValueError:  # нулевой байт или знак, которого нет в кодировке файловой системы
        raise ValueError(f"{_label(path)}: это не имя файла") from None
    if len(data) > MAX_CONFIG_BYTES:
        raise ValueError(f"{_label(path)}: больше {MAX_CONFIG_BYTES // 1024**2} МиБ, это не config.json")
    return data


def _standard_input(size: int) -> bytes:
    """Не больше `size` байтов стандартного ввода; у программы без консоли его может и не быть."""
    import sys

    if getattr(sys.stdin, "buffer", None) is None:
        raise OSError
    return sys.stdin.buffer.read(size)


def _label(path: str) -> str:
    """Как назвать источник в сообщении: одной строкой разумной длины."""
    name = "стандартный ввод" if path == "-" else " ".join(path.split()) or "«»"
    return name if len(name) <= 200 else "…" + name[-199:]


def _reason(error: OSError) -> str:
    reasons = {"ENOENT": "такого файла нет", "EACCES": "нет прав", "EISDIR": "это папка"}
    import errno

    return reasons.get(errno.errorcode.get(error.errno or 0, ""), "ошибка ввода-вывода")


def _model(config: Config, where: str) -> Described:
    compressed, pictures = config.get("quantization_config"), bool(config.get("vision_config"))
    family = config.get("model_type")
    if isinstance(family, str) and family in WRAPPERS:
        config = _text_part(config, family, where)
        family, pictures = config["model_type"], True
    if not isinstance(family, str) or family not in FAMILIES:
        raise ValueError(
            f"{where}: model_type = {shown(family)}: семейство не поддерживается; "
            f"есть {', '.join((*FAMILIES, *WRAPPERS))}"
        )
    compressed = compressed or config.get("quantization_config")
    try:
        spec = FAMILIES[family](_Fields({**ABSENT.get(family, {}), **config}))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    longest = spec.S if any(name in config for name in _LONGEST) else None
    return Described(spec, family, pictures, longest, compressed, where)


#: Где записан контекст, на который рассчитана модель.
_LONGEST = ("max_position_embeddings", "n_positions")


#: Модель с картинками → семейство языковой части, если она его не называет; связан ли эмбеддинг, если об этом
#: не сказано (`None` — версии transformers расходятся); хватает ли слова одного из двух уровней.
WRAPPERS: dict[str, tuple[str, bool | None, bool]] = {
    "gemma3": ("gemma3_text", True, False),
    "paligemma": ("gemma", True, False),
    "llava": ("llama", False, True),
    "llava_next": ("llama", False, False),
    "mistral3": ("mistral", None, False),
}

_NAMES = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "max_position_embeddings",
)  # fmt: skip

#: Во вложенном `text_config` пишут только то, что отличается от умолчаний семейства: вот они.
TEXT_DEFAULTS: dict[str, dict[str, int]] = {
    name: dict(zip(_NAMES, values, strict=True))
    for name, values in {
        "gemma3_text": (262_208, 2304, 9216, 26, 8, 4, 131_072),
        "gemma": (256_000, 3072, 24_576, 28, 16, 16, 8192),
        "gemma2": (256_000, 2304, 9216, 26, 8, 4, 8192),
        "llama": (32_000, 4096, 11_008, 32, 32, 32, 2048),
        "mistral": (32_000, 4096, 14_336, 32, 32, 8, 131_072),
    }.items()
}


#: Что значит отсутствие поля, если семейство понимает его не так, как Llama. Сверено с transformers 5.24; null —
#: другое: «голов ключа столько же, сколько голов запроса», «сжатия запроса нет».
ABSENT: dict[str, dict[str, int]] = {
    "mistral": {"num_key_value_heads": 8},
    "mixtral": {"num_key_value_heads": 8},
    "qwen2": {"num_key_value_heads": 32},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128},
    "qwen3_moe": {"num_key_value_heads": 4},
    "gemma": {"num_key_value_heads": 16, "head_dim": 256},
    "gemma2": {"num_key_value_heads": 4, "head_dim": 256},
    "gemma3_text": {"num_key_value_heads": 4, "head_dim": 256},
    "smollm3": {"num_key_value_heads": 4},
    "glm4_moe": {"num_key_value_heads": 8},
    "gpt_oss": {"num_key_value_heads": 8, "head_dim": 64},
    "deepseek_v2": {"q_lora_rank": 1536},
    "deepseek_v3": {"q_lora_rank": 1536},
    "kimi_k2": {"q_lora_rank": 1536},
}


def _text_part(config: Config, family: str, where: str) -> dict[str, Any]:
    """Языковая часть: её поля, умолчания семейства и связь эмбеддинга, которую называет обёртка."""
    text = config.get("text_config")
    if not isinstance(text, Mapping):
        raise ValueError(f"{where}: text_config = {shown(text)}: нужен объект с полями языковой части")
    inner = WRAPPERS[family][0]
    name = inner if text.get("model_type") is None else text["model_type"]
    defaults = dict(TEXT_DEFAULTS.get(name, {})) if isinstance(name, str) else {}
    if text.get("num_attention_heads") is not None and name in ("llama", "gemma"):
        # У этих семейств умолчание K — столько же, сколько голов запроса.
        defaults.pop("num_key_value_heads", None)
    given = {field: value for field, value in text.items() if value is not None}
    return {**defaults, **given, "model_type": name, "tie_word_embeddings": _tied(config, text, family, where)}


def _tied(config: Config, text: Config, family: str, where: str) -> object:
    """Связан ли эмбеддинг: решает обёртка. Если она молчит, а часть с её умолчанием спорит, догадки нет."""
    tied, joined = WRAPPERS[family][1:]
    outer, inner = config.get("tie_word_embeddings"), text.get("tie_word_embeddings")
    if joined:
        return outer or inner or tied
    if outer is None and (tied is None or inner not in (None, tied)):
        raise ValueError(f"{where}: tie_word_embeddings: назовите поле на верхнем уровне: без него ответ неоднозначен")
    return tied if outer is None else outer


class _Fields:
    """Поля config.json с проверкой: имя поля попадает в сообщение об ошибке."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def size(self, name: str, default: int | None = None, minimum: int = 1, limit: int = LIMIT) -> int:
        value = self._config.get(name)
        if value is None:
            if default is None:
                raise ValueError(f"{name}: обязательное поле не задано")
            return default
        return whole(name, value, minimum, limit)

    def flag(self, name: str, default: bool) -> bool:
        value = self._config.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ValueError(f"{name} = {shown(value)}: нужно true или false")
        return value

    def experts(self, default: int) -> int:
        """Число экспертов: одно и то же поле разные версии transformers записывают под двумя именами."""
        name = "num_experts" if self._config.get("num_experts") is not None else "num_local_experts"
        return self.size(name, default)

    def window(self, missing: int | None = None) -> int | None:
        """Ширина окна: null и 0 — окна нет, а если поля нет вовсе — как у семейства по умолчанию."""
        if "sliding_window" not in self._config:
            return missing
        return self.size("sliding_window", default=0, minimum=0) or None

    def numbers(self, name: str) -> frozenset[int]:
        value = self._config.get(name)
        if not isinstance(value, list | None) or not all(isinstance(item, int) for item in value or ()):
            raise ValueError(f"{name}: нужен список номеров слоёв")
        return frozenset(value or ())

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
        "L": fields.size("num_hidden_layers", limit=MAX_LAYERS),
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
    return Spec(**_base(fields), window=fields.window(missing=4096))


def _mixtral(fields: _Fields) -> Spec:
    return Spec(
        **_base(fields),
        window=fields.window(),
        experts=fields.experts(default=8),
        experts_per_token=fields.size("num_experts_per_tok", default=2),
    )


def _by_kind(fields: _Fields, L: int, window: int) -> tuple[int | None, ...] | None:
    """Окна по списку `layer_types`, если он есть; незнакомый вид слоя — отказ."""
    kinds = fields.layers("layer_types", L)
    known = {"sliding_attention": window, "full_attention": None}
    for kind in kinds or ():
        if not isinstance(kind, str) or kind not in known:
            raise ValueError(f"layer_types: {shown(kind)}: нужно одно из: {', '.join(known)}")
    return None if kinds is None else tuple(known[kind] for kind in kinds)


def _qwen_window(fields: _Fields, L: int) -> tuple[int | None, ...] | None:
    """У Qwen окно включает флаг, и первые `max_window_layers` слоёв его не имеют."""
    if not fields.flag("use_sliding_window", default=False):
        return None
    window = fields.size("sliding_window", default=4096)
    first = fields.size("max_window_layers", default=28, minimum=0)
    return _by_kind(fields, L, window) or tuple(window if i >= first else None for i in range(L))


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
    return _by_kind(fields, L, window) or tuple(None if (i + 1) % pattern == 0 else window for i in range(L))


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
    if fields.flag("add_cross_attention", default=False):
        raise ValueError("add_cross_attention: перекрёстное внимание не поддерживается")
    return Spec(
        V=fields.size("vocab_size"), D=D, L=fields.size("n_layer"), N=fields.size("n_head"),
        F=fields.size("n_inner", default=4 * D), S=S, learned_positions=S,
        tie_embeddings=fields.flag("tie_word_embeddings", default=True),
        gated_ffn=False, qkv_bias=True, out_bias=True, ffn_bias=True, norm_bias=True,
    )  # fmt: skip


def _phi3(fields: _Fields) -> Spec:
    return Spec(**_base(fields), window=fields.window())


def _olmo2(fields: _Fields) -> Spec:
    """Нормы стоят только на выходах, а нормы запроса и ключа — по всей ширине проекции."""
    bias = fields.flag("attention_bias", default=False)
    return Spec(
        **_base(fields), qkv_bias=bias, out_bias=bias, pre_norms=0, post_norms=True, qk_norm=True, qk_norm_wide=True
    )


def _smollm3(fields: _Fields) -> Spec:
    base = _base(fields)
    bias, wide = fields.flag("attention_bias", default=False), fields.flag("mlp_bias", default=False)
    base["tie_embeddings"] = fields.flag("tie_word_embeddings", default=True)
    window = None
    if fields.flag("use_sliding_window", default=False):
        window = _by_kind(fields, base["L"], fields.size("sliding_window"))
    return Spec(**base, qkv_bias=bias, out_bias=bias, ffn_bias=wide, window=window)


def _gpt_neox(fields: _Fields) -> Spec:
    bias = fields.flag("attention_bias", default=True)
    return Spec(
        **_base(fields), gated_ffn=False, qkv_bias=bias, out_bias=bias, ffn_bias=True, norm_bias=True,
    )  # fmt: skip


def _opt(fields: _Fields) -> Spec:
    """Позиций на две больше контекста: первые две OPT не использует, но хранит."""
    D, S = fields.size("hidden_size"), fields.size("max_position_embeddings", default=2048)
    if fields.size("word_embed_proj_dim", default=D) != D:
        raise ValueError("word_embed_proj_dim: проекция эмбеддинга не поддерживается, нужно равенство hidden_size")
    if not fields.flag("do_layer_norm_before", default=True) or fields.flag("_remove_final_layer_norm", default=False):
        raise ValueError("do_layer_norm_before: поддерживается только норма перед блоком и в конце")
    if not fields.flag("layer_norm_elementwise_affine", default=True):
        raise ValueError("layer_norm_elementwise_affine: нормы без весов не поддерживаются")
    bias = fields.flag("enable_bias", default=True)
    return Spec(
        V=fields.size("vocab_size"), D=D, L=fields.size("num_hidden_layers", limit=MAX_LAYERS),
        N=fields.size("num_attention_heads"), F=fields.size("ffn_dim"), S=S, learned_positions=S + 2,
        tie_embeddings=fields.flag("tie_word_embeddings", default=True),
        gated_ffn=False, qkv_bias=bias, out_bias=bias, ffn_bias=bias, norm_bias=True,
    )  # fmt: skip


def _falcon(fields: _Fields) -> Spec:
    D, N = fields.size("hidden_size"), fields.size("num_attention_heads")
    modern = fields.flag("new_decoder_architecture", default=False)
    parallel = modern or fields.flag("parallel_attn", default=True)
    shared = fields.flag("multi_query", default=True)
    # Старая архитектура num_kv_heads не читает: голов ключа либо одна, либо N.
    K = fields.size("num_kv_heads", default=N) if modern else 1 if shared else N
    norms = fields.size("num_ln_in_parallel_attn", default=2 if modern else 1) if parallel else 2
    bias = fields.flag("bias", default=False)
    return Spec(
        V=fields.size("vocab_size"), D=D, L=fields.size("num_hidden_layers", limit=MAX_LAYERS), N=N, K=K,
        F=fields.size("ffn_hidden_size", default=4 * D), S=fields.size("max_position_embeddings", default=2048),
        tie_embeddings=fields.flag("tie_word_embeddings", default=True),
        gated_ffn=False, qkv_bias=bias, out_bias=bias, ffn_bias=bias, norm_bias=True, pre_norms=norms,
    )  # fmt: skip


def _qwen3_moe(fields: _Fields) -> Spec:
    """Слой без экспертов — из списка `mlp_only_layers` или не кратный `decoder_sparse_step`."""
    base = _base(fields)
    bias, L, E = fields.flag("attention_bias", default=False), base["L"], fields.experts(default=128)
    step, only = fields.size("decoder_sparse_step", default=1), fields.numbers("mlp_only_layers")
    dense = sum(i in only or (i + 1) % step != 0 for i in range(L))
    base["F"] = fields.size("moe_intermediate_size")
    return Spec(
        **base, experts=E, experts_per_token=fields.size("num_experts_per_tok", default=8),
        dense_layers=dense, dense_F=fields.size("intermediate_size") if dense else 0,
        qkv_bias=bias, out_bias=bias, qk_norm=True, window=_qwen_window(fields, L),
    )  # fmt: skip


def _olmoe(fields: _Fields) -> Spec:
    bias = fields.flag("attention_bias", default=False)
    return Spec(
        **_base(fields), experts=fields.experts(default=64),
        experts_per_token=fields.size("num_experts_per_tok", default=8),
        qkv_bias=bias, out_bias=bias, qk_norm=True, qk_norm_wide=True,
    )  # fmt: skip


def _gpt_oss(fields: _Fields) -> Spec:
    base = _base(fields)
    bias = fields.flag("attention_bias", default=True)
    window = fields.size("sliding_window", default=128)
    kinds = _by_kind(fields, base["L"], window)
    alternating = tuple(window if i % 2 == 0 else None for i in range(base["L"]))
    return Spec(
        **base, experts=fields.experts(default=128),
        experts_per_token=fields.size("num_experts_per_tok", default=4), router_bias=True,
        qkv_bias=bias, out_bias=bias, ffn_bias=True, sinks=True, window=alternating if kinds is None else kinds,
    )  # fmt: skip


def _shared_mixture(fields: _Fields, dense: int, shared: int) -> dict[str, Any]:
    """Смесь DeepSeek и GLM: первые слои плотные, в остальных часть экспертов работает всегда."""
    width = fields.size("moe_intermediate_size")
    dense = min(fields.size("first_k_dense_replace", default=dense, minimum=0), fields.size("num_hidden_layers"))
    if fields.size("moe_layer_freq", default=1) != 1:
        raise ValueError("moe_layer_freq: поддерживается только 1, эксперты в каждом слое после плотных")
    return {
        "F": width,
        "experts": fields.size("n_routed_experts"),
        "experts_per_token": fields.size("num_experts_per_tok"),
        "shared_F": width * fields.size("n_shared_experts", default=shared, minimum=0),
        "dense_layers": dense,
        "dense_F": fields.size("intermediate_size") if dense else 0,
    }


def _glm4_moe(fields: _Fields) -> Spec:
    base = _base(fields) | _shared_mixture(fields, 1, 1)
    bias = fields.flag("attention_bias", default=False)
    return Spec(**base, qkv_bias=bias, qk_norm=fields.flag("use_qk_norm", default=False))


def _deepseek(fields: _Fields, dense: int, shared: int) -> Spec:
    """Латентное внимание и смесь с общими экспертами: DeepSeek-V2, V3, Kimi K2."""
    base = _base(fields) | _shared_mixture(fields, dense, shared)
    bias = fields.flag("attention_bias", default=False)
    base |= {"K": base["N"], "H": fields.size("qk_nope_head_dim", default=128)}
    if fields.flag("mlp_bias", default=False):
        raise ValueError("mlp_bias: смещения только у части экспертов не поддерживаются")
    return Spec(
        **base, qkv_bias=bias, out_bias=bias,
        kv_rank=fields.size("kv_lora_rank", default=512), q_rank=fields.size("q_lora_rank", default=0, minimum=0),
        rope_H=fields.size("qk_rope_head_dim", default=64), value_H=fields.size("v_head_dim", default=128),
    )  # fmt: skip


def _deepseek_v2(fields: _Fields) -> Spec:
    return _deepseek(fields, dense=0, shared=2)


def _deepseek_v3(fields: _Fields) -> Spec:
    return _deepseek(fields, dense=3, shared=1)


#: Семейства, которые разобраны до последнего параметра.
FAMILIES: dict[str, Callable[[_Fields], Spec]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "phi3": _phi3,
    "olmo2": _olmo2,
    "olmoe": _olmoe,
    "smollm3": _smollm3,
    "glm4_moe": _glm4_moe,
    "gpt_oss": _gpt_oss,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "kimi_k2": _deepseek_v3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "opt": _opt,
    "falcon": _falcon,
}


def presets() -> dict[str, dict[str, Any]]:
    """Известные модели: имя → title, source, total и config, по порядку файла."""
    return _data("models.toml")


def aliases() -> dict[str, dict[str, Any]]:
    """Другие имена тех же геометрий: имя → preset, repos и, если отличается, config."""
    return _data("aliases.toml")


def _data(name: str) -> dict[str, dict[str, Any]]:
    import tomllib

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", name)
    with open(path, "rb") as file:
        return tomllib.load(file)


def preset(name: str) -> Spec:
    """Известная модель по имени: «llama-3-8b», «llama-3.1-8b» или репозиторий «meta-llama/Llama-3.1-8B».

    Ошибки: `ValueError` с похожими именами, если такой нет.
    """
    return describe_preset(name).spec


def describe_preset(name: str) -> Described:
    """Известная модель вместе с семейством. Ошибки: те же, что у `preset`."""
    return describe(_preset_config(name))


def _preset_config(name: str) -> Config:
    """config.json пресета по любому из его имён."""
    known = presets()
    wanted = str(name).strip().lower()
    if wanted in known:
        return known[wanted]["config"]  # type: ignore[no-any-return]
    others = aliases()
    names = {key: [_repo(entry["source"])] for key, entry in known.items()}
    names |= {key: entry["repos"] for key, entry in others.items()}
    for key, repos in names.items():
        if wanted == key or any(wanted in (repo.lower(), repo.lower().rpartition("/")[2]) for repo in repos):
            entry = others.get(key, {"preset": key})
            return {**known[entry["preset"]]["config"], **entry.get("config", {})}
    import difflib

    short = wanted.rpartition("/")[2]
    close = difflib.get_close_matches(short, names, n=3) or list(known)[:5]
    raise ValueError(f"preset = {shown(name)}: такой модели нет; похожие: {', '.join(close)}")


def _repo(source: str) -> str:
    """Репозиторий из адреса config.json: «https://huggingface.co/gpt2/blob/…» → «gpt2»."""
    return source.partition("://")[2].partition("/")[2].partition("/blob/")[0]
