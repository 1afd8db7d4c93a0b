"""Задержка вывода интервалом: сколько ждать первого токена и каждого следующего.

Roofline даёт нижнюю границу: байты на полосу памяти против FLOPs на пик. Настоящая программа медленнее, и
насколько — заранее неизвестно, поэтому ответ — три числа: лучший, обычный и худший случай. Догадка о доле
полосы и доле пика, которые достаются работе, — аргументы `memory` и `compute` с названными умолчаниями;
для карты, чью полосу и скорость измерила `python -m nanolm.probe roofline`, доли ближе к единице.

Второй источник неопределённости — смесь экспертов. Сколько разных экспертов тронет пакет, зависит от
текста: в лучшем случае все токены выбрали одних и тех же k, в худшем — не повторились.
"""

from __future__ import annotations

from nanolm import units
from nanolm.budget import (
    DTYPES,
    _batch,
    _card,
    _choice,
    _compression,
    _context,
    _decode_flops,
    _dtype_factor,
    _real,
    _weights_read,
    flops_per_token,
    kv_cache_bytes,
)
from nanolm.ops import distinct_experts
from nanolm.spec import Spec, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nanolm.hardware import Gpu
    from nanolm.quantization import Quantization

    #: Лучший, обычный, худший случай.
    Three = tuple[float, float, float]

#: Доля полосы памяти, которая достаётся чтению весов и кеша: лучший, обычный, худший случай. Допущение.
MEMORY_EFFICIENCY: Three = (0.90, 0.75, 0.50)

#: Доля плотного пика в матричных произведениях. Допущение; хорошо настроенное обучение получает 35–50 %.
COMPUTE_EFFICIENCY: Three = (0.80, 0.55, 0.30)


class Latency:
    """Интервал времени: `.low`, `.typical`, `.high`, секунды.

    `.bound` — что ограничивает обычный случай: «память» или «вычисления»; `.flops` — работа; `.bytes` — сколько
    прочитать в лучшем, обычном и худшем случае; `.tokens` — сколько токенов получено за это время.
    """

    __slots__ = ("bound", "bytes", "flops", "high", "low", "tokens", "typical")

    def __init__(
        self, flops: int, read: Three, tokens: int, card: Gpu, dtype: str, memory: Three, compute: Three
    ) -> None:
        self.flops, self.bytes, self.tokens = flops, read, tokens
        # Чего карта не умеет, то она хранит как есть, а считает в 16 битах.
        rate = card.rate(dtype if dtype in card.flops_per_s else card.best_16bit)
        reading = [size / (card.bandwidth_bytes_per_s * share) for size, share in zip(read, memory, strict=True)]
        counting = [flops / (rate * share) for share in compute]
        self.low, self.typical, self.high = map(max, reading, counting)
        self.bound = "память" if reading[1] >= counting[1] else "вычисления"

    @property
    def tokens_per_s(self) -> float:
        """Токенов в секунду в обычном случае."""
        return self.tokens / self.typical

    def to_dict(self) -> dict[str, object]:
        """Для JSON."""
        return {
            "low_seconds": self.low,
            "typical_seconds": self.typical,
            "high_seconds": self.high,
            "bound": {"память": "memory", "вычисления": "compute"}[self.bound],
        }

    def __str__(self) -> str:
        low, typical, high = map(units.duration, (self.low, self.typical, self.high))
        return f"{typical} (от {low} до {high}), ограничивает {self.bound}"

    def __repr__(self) -> str:
        return f"Latency({self.low:.3g} … {self.typical:.3g} … {self.high:.3g} с, {self.bound})"


def prefill_time(
    spec: Spec,
    B: int,
    S: int | None,
    gpu: str | Gpu,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    chunk: int | None = None,
    memory: Three = MEMORY_EFFICIENCY,
    compute: Three = COMPUTE_EFFICIENCY,
    weights: str | Quantization | None = None,
) -> Latency:
    """Время до первого токена: прямой проход по B·S токенам, голова — только у последнего каждой последовательности.

    Внимание считается по видимым парам: ядра пропускают то, что закрыла причинная маска. Читаются веса — по разу на
    порцию из `chunk` токенов — и пишется кеш; порция читает и кеш предыдущих. Обмен активациями внутри слоя не учтён.
    `weights` — формат весов, как у `inference_memory`.

    Ошибки: `ValueError` с именем поля, значением и правилом.
    """
    B, S, card = _batch(B), _context(spec, S), _card(gpu)
    dtype = dtype or card.best_16bit
    size, compressed = _dtype_factor(dtype), _compression(weights, spec)
    tokens = B * S if chunk is None else min(B * S, whole("chunk", chunk))
    portions = -(-B * S // tokens)
    forward = flops_per_token(spec, S, training=False, attention="causal")
    flops = B * (S * (forward.total - forward["lm_head"]) + forward["lm_head"])
    cache = kv_cache_bytes(spec, B, S, _choice("kv_dtype", kv_dtype or dtype, DTYPES)).total
    moved = cache * (1 + portions) / 2
    read = [
        portions * _weights_read(spec, tokens, size, compressed, experts) + moved for experts in _experts(spec, tokens)
    ]
    return Latency(
        flops, (read[0], read[1], read[2]), B, card, dtype, _three("memory", memory), _three("compute", compute)
    )


def decode_time(
    spec: Spec,
    B: int,
    S: int | None,
    gpu: str | Gpu,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    memory: Three = MEMORY_EFFICIENCY,
    compute: Three = COMPUTE_EFFICIENCY,
    weights: str | Quantization | None = None,
) -> Latency:
    """Время шага декодирования, интервалом: те же байты и FLOPs, что у `decode_step_time`, с долями полосы и пика.

    У смеси лучший случай читает k экспертов, обычный — среднее число различных, худший — min(E, B·k).

    Ошибки: `ValueError` с именем поля, значением и правилом.
    """
    B, S, card = _batch(B), _context(spec, S), _card(gpu)
    dtype = dtype or card.best_16bit
    size, compressed = _dtype_factor(dtype), _compression(weights, spec)
    cache = kv_cache_bytes(spec, B, S, _choice("kv_dtype", kv_dtype or dtype, DTYPES)).total
    read = [_weights_read(spec, B, size, compressed, experts) + cache for experts in _experts(spec, B)]
    flops = _decode_flops(spec, B, S)
    return Latency(
        flops, (read[0], read[1], read[2]), B, card, dtype, _three("memory", memory), _three("compute", compute)
    )


def _experts(spec: Spec, tokens: int) -> Three:
    """Сколько разных экспертов тронут токены: все выбрали одних; в среднем; не повторились, пока хватало."""
    E, k = spec.experts, spec.experts_per_token
    return (k, distinct_experts(E, k, tokens), min(E, tokens * k)) if E else (0, 0, 0)


def _three(name: str, shares: Three) -> Three:
    """Три доли от лучшей к худшей."""
    rule = "доля, нужно число от 0,000001 до 1"
    if not isinstance(shares, (tuple, list)) or len(shares) != 3:
        raise ValueError(f"{name}: нужны три доли: лучший, обычный и худший случай")
    best, usual, worst = (_real(name, share, 1e-6, 1, rule) for share in shares)
    if not best >= usual >= worst:
        raise ValueError(f"{name} = {shares!r}: доли идут от лучшей к худшей")
    return best, usual, worst
