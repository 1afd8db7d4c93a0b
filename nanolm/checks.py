"""Отказы модели: что проверяется до того, как потрачена память.

Каждая ошибка называет поле, значение и правило. Модель остаётся читаемой: вычисления там, условия здесь.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from nanolm.cache import KVCache
from nanolm.spec import Spec, shown

ATTENTION = ("fused", "naive")
CHECKPOINTING = ("none", "selective", "full")
#: Способ растянуть RoPE → какие числа ему нужны.
ROPE_FIELDS = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}  # fmt: skip

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


def check_numerics(rope_base: object, rope_scaling: object, norm_eps: object) -> None:
    """Числа, от которых зависят значения: с неверными модель построится, но ответит NaN."""
    positive("rope_base", rope_base)
    positive("norm_eps", norm_eps)
    if rope_scaling is None:
        return
    kind = rope_scaling.get("rope_type") if isinstance(rope_scaling, Mapping) else None
    if not isinstance(rope_scaling, Mapping) or not isinstance(kind, str) or kind not in ROPE_FIELDS:
        known = " или ".join(ROPE_FIELDS)
        raise ValueError(f"rope_scaling = {shown(rope_scaling)}: нужно None или словарь, в нём rope_type — {known}")
    for name in ROPE_FIELDS[kind]:
        positive(f"rope_scaling: {name}", rope_scaling.get(name))
    if kind == "llama3" and rope_scaling["high_freq_factor"] <= rope_scaling["low_freq_factor"]:
        low, high = rope_scaling["low_freq_factor"], rope_scaling["high_freq_factor"]
        raise ValueError(f"rope_scaling: high_freq_factor = {high}: нужно больше, чем low_freq_factor = {low}")


def positive(name: str, value: object) -> float:
    """Положительное число, которое помещается в float."""
    try:
        number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
    except OverflowError:  # целое больше самого большого float
        number = 0.0
    if not 0 < number < float("inf"):
        raise ValueError(f"{name} = {shown(value)}: нужно положительное число, конечное в float64")
    return number


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


def check_targets(spec: Spec, tokens_BT: Tensor, targets_BT: Tensor, ignored: int) -> None:
    """Ответ есть у каждого токена: номер из словаря или `ignored`."""
    if targets_BT.shape != tokens_BT.shape or targets_BT.dtype != torch.int64:
        was = f"форма {tuple(targets_BT.shape)}, тип {targets_BT.dtype}"
        raise ValueError(f"targets: {was}; нужна форма tokens {tuple(tokens_BT.shape)} и тип torch.int64")
    if targets_BT.device.type != "cpu" or not targets_BT.numel():
        return
    low, high = (int(edge) for edge in targets_BT.aminmax())
    if low < 0:
        # Пропуск лежит вне словаря нарочно; остальные отрицательные номера — ошибка.
        kept = targets_BT[targets_BT != ignored]
        low = int(kept.min()) if kept.numel() else 0
    if low < 0 or high >= spec.V:
        wrong = low if low < 0 else high
        raise ValueError(f"targets: номер {wrong} вне словаря; нужно от 0 до V - 1 = {spec.V - 1} или {ignored}")


def check_tokens(name: str, tokens: Tensor, V: int) -> None:
    """Все номера токенов лежат в словаре."""
    low, high = (int(edge) for edge in tokens.aminmax())
    if low < 0 or high >= V:
        wrong = low if low < 0 else high
        raise ValueError(f"{name}: номер {wrong} вне словаря; нужно от 0 до V - 1 = {V - 1}")
