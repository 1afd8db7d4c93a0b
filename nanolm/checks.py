"""Отказы модели: что проверяется до того, как потрачена память.

Каждая ошибка называет поле, значение и правило. Модель остаётся читаемой: вычисления там, условия здесь.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nanolm.cache import KVCache
from nanolm.spec import Spec

ATTENTION = ("fused", "naive")
CHECKPOINTING = ("none", "selective", "full")

#: Поля Spec, которые счёт понимает, а NanoLM не строит: поле → единственное значение, которое ей подходит.
PLAIN = {
    "kv_rank": 0, "q_rank": 0, "rope_H": 0, "value_H": 0, "shared_F": 0, "dense_layers": 0, "dense_F": 0,
    "router_bias": False, "qk_norm_wide": False, "sinks": False, "pre_norms": 2, "post_norms": False,
}  # fmt: skip


def check_options(spec: Spec, attention: str, checkpointing: str) -> None:
    """Такую модель можно построить."""
    for name, value, known in (
        ("attention", attention, ATTENTION),
        ("checkpointing", checkpointing, CHECKPOINTING),
    ):
        if value not in known:
            raise ValueError(f"{name} = {value!r}: нужно одно из {', '.join(known)}")
    for name, plain in PLAIN.items():
        value = getattr(spec, name)
        if value != plain:
            raise ValueError(f"{name} = {value!r}: счёт такую модель знает, а NanoLM строит только {plain!r}")
    if spec.learned_positions == 0 and spec.H % 2:
        raise ValueError(f"H = {spec.H}: для RoPE нужно чётное число")
    if 0 < spec.learned_positions < spec.S:
        raise ValueError(f"S = {spec.S}: больше, чем learned_positions = {spec.learned_positions}")


def check_input(spec: Spec, tokens_BT: Tensor, cache: KVCache | None) -> None:
    """Вход по форме и типу, номера токенов в словаре, позиции в контексте и в кеше."""
    whole = tokens_BT.dtype in (torch.int64, torch.int32)
    if tokens_BT.dim() != 2 or tokens_BT.numel() == 0 or not whole:
        shown = f"форма {tuple(tokens_BT.shape)}, тип {tokens_BT.dtype}"
        raise ValueError(f"tokens: {shown}; нужна непустая таблица целых номеров токенов B×T")
    B, T = tokens_BT.shape
    start = 0 if cache is None else cache.position
    if start + T > spec.S:
        raise ValueError(f"tokens: позиций {start + T}, а контекст модели S = {spec.S}")
    if cache is not None:
        cache.check(B, T)
    # На CUDA проверка номеров остановила бы конвейер; там её делает generate, пока номера ещё на CPU.
    if tokens_BT.device.type == "cpu":
        check_tokens("tokens", tokens_BT, spec.V)


def check_tokens(name: str, tokens: Tensor, V: int) -> None:
    """Все номера токенов лежат в словаре."""
    low, high = (int(edge) for edge in tokens.aminmax())
    if low < 0 or high >= V:
        wrong = low if low < 0 else high
        raise ValueError(f"{name}: номер {wrong} вне словаря; нужно от 0 до V - 1 = {V - 1}")
