"""Закрытые формулы: независимая проверка счетов.

Счета `nanolm` складываются из таблицы операций. Здесь та же величина выписана формулой из учебника,
без таблицы: если таблица и формула расходятся, ошиблась одна из них. Из `nanolm` берётся только `Spec`.

Буквы — те же, что в курсе: см. `nanolm.spec.NOTATION`.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanolm.spec import Spec

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}


# --- Параметры ----------------------------------------------------------------------------------


def attention_parameters(s: Spec) -> int:
    """Проекции одного слоя со смещениями и стоками."""
    if s.kv_rank:  # латентное внимание: сжатие и восстановление вместо прямых проекций
        query = s.H + s.rope_H
        through = s.q_rank * (s.D + s.N * query) if s.q_rank else s.D * s.N * query
        latent = s.D * (s.kv_rank + s.rope_H) + s.kv_rank * s.N * (s.H + s.value_H) + s.N * s.value_H * s.D
        # Смещения есть только у сжатий и у выхода.
        biases = s.qkv_bias * (s.q_rank + s.kv_rank + s.rope_H) + s.out_bias * s.D
        return through + latent + biases + s.sinks * s.N
    matrices = 2 * s.D * s.N * s.H + 2 * s.D * s.K * s.H
    return matrices + s.qkv_bias * (s.N + 2 * s.K) * s.H + s.out_bias * s.D + s.sinks * s.N


def block_parameters(s: Spec, width: int) -> int:
    """Один полносвязный блок ширины `width` со смещениями."""
    inner = 2 if s.gated_ffn else 1
    return (inner + 1) * s.D * width + s.ffn_bias * (inner * width + s.D)


def norm_parameters(s: Spec) -> int:
    """Все нормы модели."""
    wide = s.D * (2 if s.norm_bias else 1)
    layer = (s.pre_norms + 2 * s.post_norms) * wide
    if s.qk_norm:
        layer += (s.N + s.K) * s.H if s.qk_norm_wide else 2 * s.H
    if s.kv_rank:
        layer += s.kv_rank + s.q_rank
    return s.L * layer + wide


def _ffn(s: Spec, experts: int) -> int:
    if not s.experts:
        return s.L * block_parameters(s, s.F)
    shared = block_parameters(s, s.shared_F) if s.shared_F else 0
    mixture = experts * block_parameters(s, s.F) + shared
    dense = s.dense_layers * block_parameters(s, s.dense_F) if s.dense_layers else 0
    return (s.L - s.dense_layers) * mixture + dense


def parameters(s: Spec, active: bool = False) -> dict[str, int]:
    """Параметры по компонентам: все или только те, через которые проходит токен."""
    router = (s.L - s.dense_layers) * (s.D + s.router_bias) * s.experts
    return {
        "embedding": s.V * s.D,
        "positions": s.learned_positions * s.D,
        "attention": s.L * attention_parameters(s),
        "ffn": _ffn(s, s.experts_per_token if active else s.experts),
        "router": router,
        "norms": norm_parameters(s),
        "lm_head": 0 if s.tie_embeddings else s.V * s.D,
    }


# --- FLOPs --------------------------------------------------------------------------------------


def visible_pairs(T: int, S: int, causal: bool, window: int | None) -> int:
    """Пары «запрос — ключ» перебором маски; T запросов — последние из S токенов."""
    width = S if window is None else window
    if not causal:
        return T * min(S, width)
    return sum(1 for q in range(S - T, S) for k in range(S) if k <= q and q - k < width)


def keys_per_query(S: int, window: int | None, convention: str) -> Fraction:
    """Сколько ключей в среднем видит запрос при этом соглашении."""
    width = S if window is None else min(S, window)
    if convention == "full":
        return Fraction(S)
    if convention == "windowed":
        return Fraction(width)
    return Fraction(sum(min(place, width) for place in range(1, S + 1)), S)


def forward_flops(s: Spec, S: int, convention: str = "full") -> dict[str, Fraction]:
    """Прямой проход на токен: два действия на каждый вес матрицы и на каждую пару каждой головы."""
    bare = s.replace(qkv_bias=False, out_bias=False, ffn_bias=False, sinks=False, router_bias=False)
    matrices = parameters(bare, active=True)
    per_key = s.N * (s.H + s.rope_H + s.value_H if s.kv_rank else 2 * s.H)
    seen = sum((keys_per_query(S, window, convention) for window in s.windows), Fraction(0))
    flops = {name: Fraction(2 * matrices[name]) for name in ("attention", "ffn", "router")}
    return {"embedding": Fraction(0), **flops, "scores": 2 * per_key * seen, "lm_head": Fraction(2 * s.V * s.D)}


# --- Память -------------------------------------------------------------------------------------


def cached_values(s: Spec, S: int, kv: str = "theory") -> int:
    """Сколько величин лежит в кеше одной последовательности."""
    per_token = s.kv_rank + s.rope_H if s.kv_rank else 2 * s.K * s.H
    total = 0
    for window in s.windows:
        held = S
        if window is not None and window <= S and kv != "engine":
            held = window if kv == "theory" else window - 1
        total += per_token * held
    return total


def saved_activations(
    s: Spec, B: int, S: int, recipe: str = "mixed", attention: str = "fused", checkpointing: str = "none"
) -> tuple[int, int]:
    """Что autograd держит до обратного прохода у обычного внимания: активации и логиты, байты."""
    compute = 4 if recipe == "fp32" else 2
    stream = 2 if recipe in ("mixed", "bf16") else 4
    norm = 8 if s.norm_bias else 4  # обратное отклонение и, у LayerNorm, среднее — по fp32 на строку
    tokens = B * S
    outside = tokens * (s.D * (stream + compute) + norm)
    logits = tokens * s.V * 4  # логарифмы вероятностей в fp32
    if checkpointing == "full":
        return outside + s.L * tokens * s.D * stream, logits
    layer = 2 * (s.D * (stream + compute) + norm)
    layer += compute * (2 * s.N * s.H + 2 * s.K * s.H)  # повёрнутые q и k, значения, выход внимания
    if s.qk_norm:
        layer += compute * (s.N + s.K) * s.H + 4 * (s.N + s.K)
    if checkpointing == "none":
        layer += s.N * S * compute if attention == "naive" else s.N * 4
    layer += _ffn_activations(s, compute)
    masks = _masks(s, S, attention, checkpointing) * S * S * compute
    return outside + s.L * tokens * layer + masks + _rotation(s, S, recipe), logits


def _ffn_activations(s: Spec, compute: int) -> int:
    widths = (4 if s.gated_ffn else 2) * s.F * compute
    if not s.experts:
        return widths
    # Номер эксперта, прямая и обратная перестановка — int64; веса — fp32 и, если считаем не в fp32, ещё раз.
    routing = 3 * 8 + 4 + (compute if compute != 4 else 0)
    return s.experts_per_token * (widths + routing + 2 * s.D * compute)


def _masks(s: Spec, S: int, attention: str, checkpointing: str) -> int:
    if attention == "naive":
        return len(set(s.windows)) if checkpointing == "selective" else 0
    return len({window for window in s.windows if window is not None and window < S})


def _rotation(s: Spec, S: int, recipe: str) -> int:
    """Копии таблиц косинусов и синусов: их делает только autocast и только у RoPE."""
    return 0 if recipe != "autocast" or s.learned_positions else 2 * S * s.H * 2
