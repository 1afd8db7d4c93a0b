"""Счётчик FLOPs: считает `torch.utils.flop_counter`, а слепые пятна закрыты здесь.

Счётчик смотрит на операции, которые дошли до ядер, и умножает их размеры. Какой операции он не знает,
за ту он молча пишет ноль. На процессоре это слитое внимание, у смесей экспертов transformers —
сгруппированные произведения. Формулы для них — те же произведения матриц.

Соглашения счётчика: умножить и сложить — две операции; внимание — весь прямоугольник T·S, маска не
вычитается. Считает он работу ядер, а не модели: слитое внимание в обратном проходе заново получает
оценки, а чекпоинтинг повторяет прямой проход, и всё это входит в счёт.

На мета-устройстве тензоры не имеют памяти, а размеры имеют: так считается и модель, которой эта
машина не вместит.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

Shape = tuple[int, ...]


def attention_flops(query: Shape, key: Shape, value: Shape) -> int:
    """Два произведения внимания: запрос на ключ и вероятности на значение, по N головам запроса."""
    B, N, T, H = query
    return 2 * B * N * T * key[-2] * (H + value[-1])


def _forward(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return attention_flops(query, key, value)


def _backward(grad: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    """Пять произведений вместо двух: оценки заново, градиенты значений, вероятностей, запросов, ключей."""
    B, N, T, H = query
    scores = 2 * B * N * T * key[-2] * H
    return 2 * attention_flops(query, key, value) + scores


def grouped_flops(left: Shape, right: Shape, *_: Any, **__: Any) -> int:
    """Сгруппированное произведение: у каждой группы своя матрица, строк всего столько, сколько их в `left`."""
    if len(left) == 2 and len(right) == 2:
        # Градиент весов: группы режут ось, по которой складывают.
        return 2 * left[0] * left[1] * right[1]
    rows, inner = left[-2] * (left[0] if len(left) == 3 and len(right) == 3 else 1), left[-1]
    return 2 * rows * inner * right[-1]


def _names(template: str) -> list[Any]:
    """Операции torch с таким именем; чего в этой версии нет, того и считать не надо."""
    found = [getattr(torch.ops.aten, template.format(kind), None) for kind in _KINDS]
    return [operation for operation in found if operation is not None]


_KINDS = ("flash_attention_for_cpu", "flash_attention", "efficient_attention", "cudnn_attention")

#: Операция → формула по формам аргументов.
FORMULAS: Mapping[Any, Callable[..., int]] = {
    **dict.fromkeys(_names("_scaled_dot_product_{}"), _forward),
    **dict.fromkeys(_names("_scaled_dot_product_{}_backward"), _backward),
    **dict.fromkeys([torch.ops.aten._grouped_mm] if hasattr(torch.ops.aten, "_grouped_mm") else [], grouped_flops),
}


def count(function: Callable[[], object]) -> int:
    """FLOPs всего, что делает `function`, вместе с обратными проходами внутри неё."""
    with FlopCounterMode(display=False, custom_mapping=dict(FORMULAS)) as mode:
        function()
    return int(mode.get_total_flops())
