"""NanoLM: декодер современной языковой модели, который можно прочесть за один вечер.

Файл читается сверху вниз: нормировка, позиции, внимание, кеш, полносвязный блок, смесь экспертов,
слой, модель. Каждый блок стоит рядом со строками счёта: имена и формы весов — те же, что у таблицы
`nanolm.ops`, и тест сравнивает их как словари. Тензоры, которые autograd держит до обратного
прохода, тоже выбраны сознательно: о них говорят комментарии «хранит».

Последние буквы имени тензора — его оси:

    B пакет          T токены на входе       S токены, на которые смотрит внимание
    V словарь        D ширина модели         F ширина полносвязного блока
    N головы запроса K головы ключа/значения G = N/K головы запроса на одну голову ключа
    H размер головы  E эксперты              M = B·T токены подряд
    k эксперты токена                        R = M·k пары «токен — эксперт»

Например, `q_BTNH` — запросы: пакет, токен, голова, компонента. Сложение с другой формой в имени
или лишняя перестановка осей сразу видны глазом.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nanolm import budget
from nanolm.cache import KVCache
from nanolm.checks import check_input, check_numerics, check_options, check_targets
from nanolm.spec import Spec

# Нормировка. В счёте: D весов. Хранит вход и по одному числу fp32 на токен.


class _RMSNorm(torch.autograd.Function):
    """RMSNorm с обратным проходом по формуле: y = x·r·w, где r = (mean(x²) + ε)^(-1/2).

    Если собрать норму из отдельных операций, autograd сохранит ещё и x·r — лишний тензор шириной D,
    в bf16 к тому же в fp32. Здесь он восстанавливается из x и r, как в слитом ядре CUDA.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, scale, weight)
        return (wide * scale).mul_(weight).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x, scale, weight = ctx.saved_tensors
        # scale в fp32, поэтому и произведения в fp32, даже если x и градиент в bf16.
        normed = x * scale
        grad_weight = (grads[0] * normed).flatten(0, -2).sum(0)
        inner = grads[0] * weight.float()
        # Производная r по x вычитает из градиента его проекцию на сам x.
        mean = (inner * normed).mean(-1, keepdim=True)
        grad_x = inner.addcmul_(normed, mean, value=-1).mul_(scale)
        return grad_x.to(x.dtype), grad_weight.to(weight.dtype), None


def compute_dtype(x: Tensor) -> torch.dtype:
    """Тип, в котором пойдут произведения: тип входа, а под `torch.autocast` — пониженный."""
    kind = x.device.type
    if x.is_meta or not torch.is_autocast_enabled(kind):
        return x.dtype
    return torch.get_autocast_dtype(kind)


class RMSNorm(nn.Module):
    """Делит вектор на его среднеквадратичное и умножает на обучаемый вес (по последней оси)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        # У CUDA есть слитое ядро, и хранит оно то же, что и _RMSNorm: вход и r.
        if x.is_cuda or not torch.is_grad_enabled():
            y: Tensor = functional.rms_norm(x, self.weight.shape, self.weight, self.eps)
        else:
            y = _RMSNorm.apply(x, self.weight, self.eps)  # type: ignore[no-untyped-call]
        # Под autocast приводим тип здесь, один раз: иначе каждая проекция сохранит свою копию входа.
        return y.to(compute_dtype(x))


class _LayerNorm(torch.autograd.Function):
    """LayerNorm со статистиками в fp32, как в ядре CUDA: на процессоре родная хранит их в типе входа."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        y, mean, scale = torch.native_layer_norm(x.float(), weight.shape, weight.float(), bias.float(), eps)
        ctx.save_for_backward(x, mean, scale, weight, bias)
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, mean, scale, weight, bias = ctx.saved_tensors
        found = torch.ops.aten.native_layer_norm_backward(
            grads[0].float(), x.float(), weight.shape, mean, scale, weight.float(), bias.float(), [True] * 3
        )
        return *(grad.to(x.dtype) for grad in found), None


class LayerNorm(nn.LayerNorm):
    """Норма GPT-2: ещё вычитает среднее и прибавляет обучаемое смещение. Хранит на число больше."""

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda or not torch.is_grad_enabled():
            y = super().forward(x)
        else:
            y = _LayerNorm.apply(x, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]
        return y.to(compute_dtype(x))


def _norm(spec: Spec, eps: float) -> nn.Module:
    return LayerNorm(spec.D, eps) if spec.norm_bias else RMSNorm(spec.D, eps)


# Позиции. RoPE поворачивает пары компонент на угол, растущий с номером токена: весов и FLOPs
# произведений нет. Поворот линеен, поэтому autograd не хранит ни q, ни k — только общие таблицы.


def rope_tables(
    S: int, H: int, base: float, scaling: dict[str, Any] | None, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Косинусы и синусы углов `cos_S1H`, `sin_S1H` для позиций 0 … S-1.

    Компонента i вращается в паре с i + H/2 (порядок Llama). Первая половина синусов взята с минусом:
    тогда поворот — это x·cos + (x, сдвинутый на H/2)·sin.
    """
    frequency_H = base ** -(torch.arange(0, H, 2, device=device) / H)
    if scaling is not None:
        frequency_H = _scale_frequencies(frequency_H, scaling)
    angle_SH = torch.outer(torch.arange(S, device=device, dtype=torch.float32), frequency_H)
    cos_SH, sin_SH = angle_SH.cos(), angle_SH.sin()
    return torch.cat((cos_SH, cos_SH), -1)[:, None], torch.cat((-sin_SH, sin_SH), -1)[:, None]


def _scale_frequencies(frequency_H: Tensor, scaling: dict[str, Any]) -> Tensor:
    """Растянуть RoPE на длинный контекст: `linear` — все углы, `llama3` — только медленные."""
    slow_H: Tensor = frequency_H / scaling["factor"]
    if scaling["rope_type"] == "linear":
        return slow_H
    # Сколько оборотов делает компонента на исходном контексте: быстрые остаются, медленные тормозятся,
    # между ними — линейный переход.
    turns_H = frequency_H * scaling["original_max_position_embeddings"] / (2 * math.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    keep_H: Tensor = ((turns_H - low) / (high - low)).clamp(0, 1)
    return keep_H * frequency_H + (1 - keep_H) * slow_H


def rotate(x_BTNH: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Повернуть каждую голову: таблицы — срезы `cos_T1H` и `sin_T1H` для нужных позиций."""
    return torch.addcmul(x_BTNH * cos, x_BTNH.roll(x_BTNH.shape[-1] // 2, -1), sin)


def causal_mask(T: int, window: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Маска-слагаемое `mask_TS`: 0, где токен виден, и -∞ для будущего и для всего старше окна."""
    mask_TS = torch.full((T, T), -math.inf, dtype=dtype, device=device).triu_(1)
    if window is not None:
        # Треугольники не пересекаются: бесконечность складывается только с нулём.
        mask_TS += torch.full_like(mask_TS, -math.inf).tril_(-window)
    return mask_TS


# Внимание. Четыре проекции — D·N·H, D·K·H, D·K·H, N·H·D весов. Запрос, ключ и значение читают один
# вход, он хранится один раз. Произведения QKᵀ и PV весов не имеют.


def fused_attention(q_BTNH: Tensor, k_BKSH: Tensor, v_BKSH: Tensor, mask: Tensor | None) -> Tensor:
    """Слитое ядро: матрица весов S×S не возникает. Хранит q, k, v, выход и логарифм суммы (fp32).

    Головы ключа не размножаются: ядро само раздаёт одну голову K на G голов запроса.
    """
    causal = mask is None and q_BTNH.shape[1] > 1
    out_BNTH = functional.scaled_dot_product_attention(
        q_BTNH.transpose(1, 2), k_BKSH, v_BKSH, attn_mask=mask, is_causal=causal, enable_gqa=True
    )
    return out_BNTH.transpose(1, 2)


def naive_attention(q_BTNH: Tensor, k_BKSH: Tensor, v_BKSH: Tensor, mask: Tensor | None) -> Tensor:
    """Внимание по определению: softmax(q·kᵀ/√H)·v. Хранит q, k, v и веса B·N·T·S — цену наивности.

    Запросы G голов одной группы ложатся строками одной матрицы G·T×H и умножаются на общий ключ:
    k и v до N голов не расширяются.
    """
    (B, T, N, H), K = q_BTNH.shape, k_BKSH.shape[1]
    q_BKRH = (q_BTNH * H**-0.5).transpose(1, 2).reshape(B, K, N // K * T, H)
    score_BNTS = (q_BKRH @ k_BKSH.mT).view(B, N, T, -1)
    # Маска складывается: сложение, в отличие от masked_fill, ничего не хранит.
    weight_BNTS = (score_BNTS if mask is None else score_BNTS + mask).softmax(-1)
    out_BKRH: Tensor = weight_BNTS.view(B, K, N // K * T, -1) @ v_BKSH
    return out_BKRH.view(B, N, T, H).transpose(1, 2)


@dataclass
class Step:
    """Что слои знают о месте токенов: таблицы поворота для их позиций, маска каждого слоя, кеш."""

    cos: Tensor | None
    sin: Tensor | None
    masks: Sequence[Tensor | None]
    cache: KVCache | None


class Attention(nn.Module):
    """Внимание с группами запросов (GQA): N голов запроса делят K голов ключа и значения."""

    def __init__(self, spec: Spec, layer: int, norm_eps: float, attention: str, checkpointing: str) -> None:
        super().__init__()
        D, N, K, H = spec.D, spec.N, spec.K, spec.H
        self.query = nn.Linear(D, N * H, bias=spec.qkv_bias)
        self.key = nn.Linear(D, K * H, bias=spec.qkv_bias)
        self.value = nn.Linear(D, K * H, bias=spec.qkv_bias)
        self.output = nn.Linear(N * H, D, bias=spec.out_bias)
        self.query_norm = RMSNorm(H, norm_eps) if spec.qk_norm else None
        self.key_norm = RMSNorm(H, norm_eps) if spec.qk_norm else None
        self.N, self.K, self.H = N, K, H
        self.layer = layer
        self.core = fused_attention if attention == "fused" else naive_attention
        self.recompute_core = checkpointing == "selective"

    def forward(self, x_BTD: Tensor, step: Step) -> Tensor:
        B, T, _ = x_BTD.shape
        q_BTNH = self.query(x_BTD).view(B, T, self.N, self.H)
        k_BTKH = self.key(x_BTD).view(B, T, self.K, self.H)
        v_BTKH = self.value(x_BTD).view(B, T, self.K, self.H)
        if self.query_norm is not None and self.key_norm is not None:
            q_BTNH, k_BTKH = self.query_norm(q_BTNH), self.key_norm(k_BTKH)
        if step.cos is not None and step.sin is not None:
            q_BTNH, k_BTKH = rotate(q_BTNH, step.cos, step.sin), rotate(k_BTKH, step.cos, step.sin)
        k_BKSH, v_BKSH = k_BTKH.transpose(1, 2), v_BTKH.transpose(1, 2)
        if step.cache is not None:
            k_BKSH, v_BKSH = step.cache.update(self.layer, k_BKSH, v_BKSH)
        out_BTNH = self._attend(q_BTNH, k_BKSH, v_BKSH, step.masks[self.layer])
        return self.output(out_BTNH.reshape(B, T, self.N * self.H))  # type: ignore[no-any-return]

    def _attend(self, q_BTNH: Tensor, k_BKSH: Tensor, v_BKSH: Tensor, mask: Tensor | None) -> Tensor:
        """Ядро внимания; при выборочных контрольных точках (Korthikanti и др., 2022) его пересчитывают."""
        if self.recompute_core and torch.is_grad_enabled():
            return _recompute(self.core, q_BTNH, k_BKSH, v_BKSH, mask)
        return self.core(q_BTNH, k_BKSH, v_BKSH, mask)


def _recompute(function: Callable[..., Tensor], *args: object) -> Tensor:
    """Хранить только аргументы, а промежуточное посчитать ещё раз в обратном проходе."""
    # Случайных чисел внутри нет, поэтому состояние генератора не сохраняем.
    return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)  # type: ignore[no-any-return]


# Полносвязный блок. SwiGLU — 3·D·F весов; хранит вход и четыре тензора ширины F.


class FeedForward(nn.Module):
    """SwiGLU: down(SiLU(gate(x)) · up(x)), или простой блок из двух матриц: down(GELU(up(x)))."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.gate = nn.Linear(spec.D, spec.F, bias=spec.ffn_bias) if spec.gated_ffn else None
        self.up = nn.Linear(spec.D, spec.F, bias=spec.ffn_bias)
        self.down = nn.Linear(spec.F, spec.D, bias=spec.ffn_bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(functional.gelu(self.up(x)))  # type: ignore[no-any-return]
        return self.down(functional.silu(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


class MixtureOfExperts(nn.Module):
    """Смесь экспертов: маршрутизатор посылает токен k экспертам из E, остальные не считаются.

    Хранятся все E·3·D·F весов, работает k/E их часть. Веса сложения — softmax по логитам выбранных
    экспертов (порядок Mixtral). Токены сортируются по экспертам, так что строк всегда ровно M·k,
    как бы неровно их ни раздал маршрутизатор: от этого не зависят ни FLOPs, ни сохранённые байты.
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.router = nn.Linear(spec.D, spec.experts, bias=False)
        self.experts = nn.ModuleList(FeedForward(spec) for _ in range(spec.experts))
        self.per_token = spec.experts_per_token

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_MD, k = x_BTD.flatten(0, 1), self.per_token
        logit_Mk, expert_Mk = self.router(x_MD).topk(k, dim=-1)
        weight_Mk = logit_Mk.softmax(-1, dtype=torch.float32).to(x_MD.dtype)
        order_R = expert_Mk.flatten().argsort(stable=True)
        parts = torch.split(x_MD.index_select(0, order_R // k), self._counts(expert_Mk))
        # В обучении считает и эксперт без токенов: его градиент — нули, и оптимизатор ведёт всех E.
        idle = torch.is_grad_enabled()
        used = [expert(x_RD) for expert, x_RD in zip(self.experts, parts, strict=True) if idle or len(x_RD)]
        # Обратная перестановка возвращает ответы k экспертов каждого токена на соседние места.
        out_MkD = torch.cat(used).index_select(0, order_R.argsort()).view(*expert_Mk.shape, -1)
        mixed_MD: Tensor = (out_MkD * weight_Mk[..., None]).sum(1)
        return mixed_MD.view_as(x_BTD)

    def _counts(self, expert_Mk: Tensor) -> list[int]:
        """Сколько строк досталось каждому эксперту."""
        E, R = len(self.experts), expert_Mk.numel()
        if expert_Mk.is_meta:
            # Без данных выбора нет: делим поровну, сумма — а с ней и FLOPs — та же.
            return [R // E + (e < R % E) for e in range(E)]
        counts: list[int] = expert_Mk.flatten().bincount(minlength=E).tolist()
        return counts


# Слой и модель.


class Block(nn.Module):
    """Слой: x + внимание(норма(x)), затем x + полносвязный(норма(x)). Сложения ничего не хранят."""

    def __init__(self, spec: Spec, layer: int, norm_eps: float, attention: str, checkpointing: str) -> None:
        super().__init__()
        self.attention_norm = _norm(spec, norm_eps)
        self.attention = Attention(spec, layer, norm_eps, attention, checkpointing)
        self.ffn_norm = _norm(spec, norm_eps)
        self.ffn = MixtureOfExperts(spec) if spec.experts else FeedForward(spec)

    def forward(self, x_BTD: Tensor, step: Step) -> Tensor:
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD), step)
        return x_BTD + self.ffn(self.ffn_norm(x_BTD))  # type: ignore[no-any-return]


#: Ответ, который в потери не входит; то же число, что у torch.
IGNORED = -100


class _CrossEntropy(torch.autograd.Function):
    """Кросс-энтропия: −log p верного токена, в среднем. Хранит логарифмы вероятностей, M·V чисел fp32.

    Градиент по логитам — вероятности минус единица на месте ответа. Он считается на одном новом тензоре,
    а `functional.cross_entropy` заводит два: ещё и градиент логарифмов, почти весь из нулей.
    """

    @staticmethod
    def forward(ctx: Any, logits_MV: Tensor, targets_M: Tensor) -> Tensor:
        log_p_MV = functional.log_softmax(logits_MV, -1, dtype=torch.float32)
        ctx.save_for_backward(log_p_MV, targets_M)
        ctx.dtype = logits_MV.dtype
        counted_M = targets_M != IGNORED
        right_M = log_p_MV.gather(1, targets_M.clamp(min=0)[:, None])[:, 0]
        return -(right_M * counted_M).sum() / counted_M.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        log_p_MV, targets_M = ctx.saved_tensors
        counted_M = targets_M != IGNORED
        grad_MV = log_p_MV.exp()
        grad_MV.scatter_add_(1, targets_M.clamp(min=0)[:, None], grad_MV.new_full((len(grad_MV), 1), -1))
        return grad_MV.mul_((grads[0] * counted_M / counted_M.sum())[:, None]).to(ctx.dtype), None


class NanoLM(nn.Module):
    """Модель по геометрии `Spec`: эмбеддинг, L слоёв, норма, голова.

    - `rope_base`, `rope_scaling`, `norm_eps` — числа, от которых зависят значения, но не размеры;
    - `attention` — "fused" (слитое ядро) или "naive" (матрица весов целиком);
    - `checkpointing` — "none", "selective" (пересчитывается ядро внимания) или "full" (весь слой).

    Ошибки: `ValueError` с именем поля, значением и правилом.
    """

    cos_S1H: Tensor
    sin_S1H: Tensor

    def __init__(
        self,
        spec: Spec,
        *,
        rope_base: float = 10_000.0,
        rope_scaling: dict[str, Any] | None = None,
        norm_eps: float = 1e-5,
        attention: str = "fused",
        checkpointing: str = "none",
    ) -> None:
        super().__init__()
        check_options(spec, attention, checkpointing)
        check_numerics(rope_base, rope_scaling, norm_eps)
        self.spec, self.rope_base, self.rope_scaling, self.norm_eps = spec, rope_base, rope_scaling, norm_eps
        self.attention, self.checkpointing = attention, checkpointing
        self.embedding = nn.Embedding(spec.V, spec.D)
        self.positions = nn.Embedding(spec.learned_positions, spec.D) if spec.learned_positions else None
        self.layers = nn.ModuleList(Block(spec, layer, norm_eps, attention, checkpointing) for layer in range(spec.L))
        self.norm = _norm(spec, norm_eps)
        # Связанная голова — та же матрица, что и эмбеддинг: весов ноль, произведение остаётся.
        self.head = None if spec.tie_embeddings else nn.Linear(spec.D, spec.V, bias=False)
        self._reset()

    def _reset(self) -> None:
        """Начальные веса GPT-2: σ = 0,02, у выходов в остаточный поток — в √(2L) раз меньше."""
        self.build_tables(self.embedding.weight.device, self.embedding.weight.dtype)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                residual = name.endswith(("output.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * self.spec.L) if residual else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def build_tables(self, device: torch.device, dtype: torch.dtype) -> None:
        """Посчитать таблицы RoPE: постоянные буферы, живут с моделью, а не до обратного прохода."""
        if self.positions is None:
            tables = rope_tables(self.spec.S, self.spec.H, self.rope_base, self.rope_scaling, device)
            for name, table in zip(("cos_S1H", "sin_S1H"), tables, strict=True):
                self.register_buffer(name, table.to(dtype), persistent=False)

    def forward(self, tokens_BT: Tensor, cache: KVCache | None = None) -> Tensor:
        """Логиты `logits_BTV` для каждого токена; с кешем — продолжить его."""
        return self.logits(self.hidden(tokens_BT, cache))

    def hidden(self, tokens_BT: Tensor, cache: KVCache | None = None) -> Tensor:
        """Выход последней нормы `x_BTD`. С кешем: сначала запрос целиком, потом по одному токену."""
        check_input(self.spec, tokens_BT, cache)
        T = tokens_BT.shape[1]
        place = _place(T, cache)
        x_BTD = self.embedding(tokens_BT)
        if self.positions is not None:
            x_BTD = x_BTD + self.positions.weight[place]
        step = self._step(T, place, cache, compute_dtype(x_BTD))
        whole = self.checkpointing == "full" and torch.is_grad_enabled()
        for block in self.layers:
            x_BTD = _recompute(block, x_BTD, step) if whole else block(x_BTD, step)
        if cache is not None:
            cache.advance(T)
        return self.norm(x_BTD)  # type: ignore[no-any-return]

    def logits(self, x: Tensor) -> Tensor:
        """Логиты: произведение D×V на каждый токен."""
        return functional.linear(x, self.embedding.weight) if self.head is None else self.head(x)

    def loss(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """Средняя кросс-энтропия по токенам, кроме ответов `IGNORED`."""
        check_targets(self.spec, tokens_BT, targets_BT, IGNORED)
        logits_BTV = self(tokens_BT)
        loss: Tensor = _CrossEntropy.apply(logits_BTV.flatten(0, 1), targets_BT.flatten())  # type: ignore[no-untyped-call]
        return loss

    def _step(self, T: int, place: slice | Tensor, cache: KVCache | None, dtype: torch.dtype) -> Step:
        """Таблицы и маски — общие для всех слоёв, поэтому считаются один раз на проход."""
        cos = sin = None
        if self.positions is None:
            cos, sin = self.cos_S1H[place].to(dtype), self.sin_S1H[place].to(dtype)
        if T == 1:
            return Step(cos, sin, [None] * self.spec.L if cache is None else cache.masks(dtype), cache)
        masks: dict[int | None, Tensor | None] = {}
        for window in set(self.spec.windows):
            # Слитому ядру маска нужна лишь для окна короче T: треугольник оно знает само.
            plain = self.attention == "fused" and (window is None or window >= T)
            masks[window] = None if plain else causal_mask(T, window, dtype, self.embedding.weight.device)
        return Step(cos, sin, [masks[window] for window in self.spec.windows], cache)

    def new_cache(self, batch: int, length: int | None = None) -> KVCache:
        """Пустой кеш на `batch` запросов по `length` позиций (по умолчанию S)."""
        weight = self.embedding.weight
        return KVCache(self.spec, batch, self.spec.S if length is None else length, weight.dtype, weight.device)

    @torch.inference_mode()
    def prefill(self, tokens_BT: Tensor, cache: KVCache, lengths: Sequence[int] | None = None) -> Tensor:
        """Прочесть запросы в пустой кеш и вернуть логиты `logits_BV` последнего токена каждого.

        Запросы разной длины дополняют справа чем угодно и называют `lengths`: внимание смотрит только
        назад, поэтому дополнение не влияет на настоящие токены, а позиции те же, что и поодиночке.
        """
        B, T = tokens_BT.shape
        if lengths is None or set(lengths) == {T}:
            return self.logits(self.hidden(tokens_BT, cache)[:, -1])
        if len(lengths) != B or max(lengths) != T or min(lengths) < 1:
            raise ValueError(f"lengths = {list(lengths)}: нужно {B} длин от 1 до {T}, самая большая — {T}")
        check_input(self.spec, tokens_BT, cache)
        cache.position_B = torch.tensor(lengths, device=tokens_BT.device)
        x_BTD = self.hidden(tokens_BT, cache)
        return self.logits(x_BTD[torch.arange(B, device=x_BTD.device), cache.position_B - 1])

    @torch.inference_mode()
    def decode(self, tokens_B: Tensor, cache: KVCache) -> Tensor:
        """Один шаг порождения: новый токен каждого запроса → логиты `logits_BV` следующего."""
        return self.logits(self.hidden(tokens_B[:, None], cache)[:, 0])

    @torch.no_grad()
    def lay_out_for_decoding(self) -> None:
        """Переложить высокие матрицы по столбцам; имена, формы и значения не меняются.

        Шаг порождения умножает матрицу на один вектор и упирается в чтение весов. В fp32 на CPU матрица, у которой
        выходов больше, чем входов, читается по столбцам примерно вдвое быстрее, а у остальных — наоборот. Вызывать
        перед долгим порождением: веса переезжают из файла в память, а обучение от этого не ускоряется.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear) and module.out_features > module.in_features:
                module.weight.data = module.weight.data.t().contiguous().t()

    def generate(self, prompts: Sequence[Sequence[int]], max_new_tokens: int, **options: Any) -> list[list[int]]:
        """Продолжения запросов (только новые токены). Параметры — у `nanolm.generate.stream`."""
        from nanolm.generate import generate

        return generate(self, prompts, max_new_tokens, **options)

    def stream(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, **options: Any
    ) -> Iterator[list[int | None]]:
        """То же по мере порождения: на каждом шаге — токен каждого запроса."""
        from nanolm.generate import stream

        return stream(self, prompts, max_new_tokens, **options)

    @classmethod
    def from_pretrained(cls, folder: str | Path, **options: Any) -> NanoLM:
        """Модель семейства Llama из папки Hugging Face. Параметры — у `nanolm.weights.load`."""
        from nanolm.weights import load

        return load(folder, **options)

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Записать папку, которую читает transformers. Параметры — у `nanolm.weights.save`."""
        from nanolm.weights import save

        save(self, folder, **options)

    def num_parameters(self) -> int:
        """Число параметров по счёту; тест сверяет его с самой моделью."""
        return int(budget.parameter_breakdown(self.spec).total)

    def flops_per_token(self, S: int | None = None, training: bool = True) -> int:
        """FLOPs на токен при длине S: обучение (прямой и обратный проходы) или один прямой."""
        return int(budget.flops_per_token(self.spec, S, training=training).total)

    def kv_cache_bytes(self, B: int = 1, S: int | None = None) -> int:
        """Байты кеша B запросов длины S в типе весов модели."""
        dtype = _SHORT[self.embedding.weight.dtype]
        return int(budget.kv_cache_bytes(self.spec, B, S, dtype=dtype).total)


_SHORT = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def _place(T: int, cache: KVCache | None) -> slice | Tensor:
    """Позиции токенов: срез таблиц, а если у строк пакета они разные — номера `place_B1`."""
    start = 0 if cache is None else cache.position
    if cache is None or cache.position_B is None or start == 0:
        return slice(start, start + T)
    return cache.position_B[:, None]
