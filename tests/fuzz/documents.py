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

from nanolm import zoo
from nanolm.zoo import FAMILIES, WRAPPERS, presets

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

#: Все имена полей, которые читает `zoo`: новое поле попадает под обстрел само.
FIELDS = sorted(set(re.findall(r'"([a-z_]+)"', Path(zoo.__file__).read_text(encoding="utf-8"))))
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


def config(random: Random) -> Any:
    """Испорченный config.json как объект."""
    if random.random() < 0.02:
        return value(random)
    made = dict(random.choice(MODELS))
    if random.random() < 0.15:
        made = {"model_type": random.choice(list(WRAPPERS)), "text_config": made, "tie_word_embeddings": True}
    target = made["text_config"] if "text_config" in made and random.random() < 0.8 else made
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
