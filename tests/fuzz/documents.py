"""Случайные config.json: испорченные настоящие. Одно и то же зерно — один и тот же документ.

Совсем случайный JSON отвергается на первом же поле и ничего не проверяет. Поэтому берётся настоящая модель и
портится в нескольких местах: не те типы, огромные и отрицательные числа, чужие и пропавшие поля, вложенность,
другое семейство, языковая часть внутри обёртки. Потом портятся и сами байты: обрыв, лишний байт, другая кодировка.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanolm import quantization_config, zoo
from nanolm.zoo import FAMILIES, WRAPPERS, presets

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


def names(module: Any) -> list[str]:
    """Все имена полей, которые читает модуль: новое поле попадает под обстрел само."""
    return sorted(set(re.findall(r'"([a-z0-9_]+)"', Path(module.__file__).read_text(encoding="utf-8"))))


FIELDS = [name for name in names(zoo) if not re.search(r"\d", name)]
COMPRESSED = names(quantization_config)
MODELS = [entry["config"] for entry in presets().values()]


def number(random: Random) -> Any:
    """Число: обычное, на границе, огромное, отрицательное, дробное, не число."""
    digits = random.choice((1, 2, 3, 6, 12, 13, 40, 400))
    ordinary = random.choice((0, 1, 2, 3, 8, 64, 128, 4096, 32_000, 99_999, 100_000, 100_001))
    return random.choice((
        ordinary, -ordinary, random.randint(-9, 10**digits), -random.randint(0, 10**digits), 10**12, 10**12 + 1,
        random.uniform(-5, 5), 1e300, float(ordinary), float("nan"), float("inf"), float("-inf"), -0.0,
    ))  # fmt: skip


def text(random: Random) -> str:
    """Строка: имя семейства или вида слоя, мусор, управляющие знаки, одинокий суррогат, длинная."""
    return random.choice((
        "", "full_attention", "sliding_attention", "llama", "true", "8", "12.5", "\n\r\u2028", "\x00\x1b[31m", "ёж",
        "\ud800", "None", "'", "х" * random.randint(1, 5000), *random.sample(list(FAMILIES), 2),
    ))  # fmt: skip


def value(random: Random, depth: int = 3) -> Any:
    """Значение любого вида; вложенность ограничена."""
    kinds: list[Callable[[], Any]] = [
        lambda: number(random),
        lambda: number(random),
        lambda: text(random),
        lambda: random.choice((None, True, False)),
    ]
    if depth:
        kinds += [
            lambda: [value(random, depth - 1) for _ in range(random.choice((0, 1, 3, 32)))],
            lambda: [random.choice(("full_attention", "sliding_attention"))] * random.choice((1, 2, 26, 32)),
            lambda: {random.choice(FIELDS): value(random, depth - 1) for _ in range(random.randint(0, 4))},
            lambda: deep(random.choice((5, 200, 900))),
        ]
    return random.choice(kinds)()


def deep(levels: int) -> Any:
    """Список в списке."""
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


#: Настоящие quantization_config, которые потом портятся.
SOUND: list[dict[str, Any]] = [
    {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True},
    {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "modules_to_not_convert": ["gate"]},
    {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    {"load_in_8bit": True, "llm_int8_skip_modules": ["lm_head", "model.layers.0"]},
    {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"},
    {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["model.layers.*.self_attn"]},
    {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
    {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head", "re:.*gate$"],
        "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "strategy": "channel"}}},
    },
]  # fmt: skip


def pattern(random: Random) -> str:
    """Исключение: имя модуля, шаблон, опасное регулярное выражение."""
    return random.choice((
        "lm_head", "gate", f"model.layers.{random.randint(0, 99)}", "model.layers.*.mlp", "(a+)+$", "(.*)*x", "[", "\\",
        "re:.*", "a{1,99999}", ".*" * random.randint(1, 30), "model.layers.1.mlp.experts.3.up_proj", text(random),
    ))  # fmt: skip


def compressed(random: Random) -> Any:
    """quantization_config: настоящий, испорченный в нескольких местах, или что попало."""
    if random.random() < 0.1:
        return value(random)
    made = dict(random.choice(SOUND))
    for _ in range(random.choice((0, 0, 1, 2, 4))):
        name = random.choice(COMPRESSED if random.random() < 0.5 else list(made) or COMPRESSED)
        action = random.random()
        if action < 0.2:
            made.pop(name, None)
        elif action < 0.5:
            made[name] = [pattern(random) for _ in range(random.choice((0, 1, 3, 100, 3000)))]
        else:
            made[name] = random.choice((random.choice(COMPRESSED), value(random)))
    return made


def config(random: Random) -> Any:
    """Испорченный config.json как объект."""
    if random.random() < 0.02:
        return value(random)
    made = dict(random.choice(MODELS))
    if random.random() < 0.15:
        made = {"model_type": random.choice(list(WRAPPERS)), "text_config": made, "tie_word_embeddings": True}
    target = made["text_config"] if "text_config" in made and random.random() < 0.8 else made
    if random.random() < 0.4:
        target["quantization_config"] = compressed(random)
    for _ in range(random.choice((0, 1, 1, 2, 3, 8))):
        name = random.choice(FIELDS if random.random() < 0.7 else list(target) or FIELDS)
        action = random.random()
        if action < 0.15:
            target.pop(name, None)
        elif action < 0.25:
            target["model_type"] = random.choice(list(FAMILIES))
        elif action < 0.32:
            target[f"{name}_{random.randint(0, 9)}"] = value(random)
        else:
            target[name] = value(random)
    return made


def document(random: Random) -> bytes:
    """Испорченный config.json как байты файла."""
    data = json.dumps(config(random), ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    action = random.random()
    if action < 0.1:
        return data[: random.randint(0, len(data))]
    if action < 0.2:
        place = random.randint(0, len(data))
        return data[:place] + random.randbytes(random.randint(1, 9)) + data[place + random.randint(0, 3) :]
    if action < 0.23:
        return data.decode("utf-8", "replace").encode(random.choice(("utf-16", "utf-8-sig", "utf-32")))
    if action < 0.25:
        return data + data
    return data
