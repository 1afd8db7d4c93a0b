"""Порождение текста: один проход по запросу (prefill), дальше по токену за шаг (decode).

Prefill упирается в вычисления: все токены запроса идут одним произведением. Decode читает все веса
и весь кеш ради одного токена и упирается в память: поэтому пакет из восьми запросов почти не дольше
одного. Запросы разной длины идут одним пакетом с теми же позициями, что и поодиночке, так что
жадное порождение даёт те же токены.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nanolm.checks import check_tokens
from nanolm.spec import shown, whole

if TYPE_CHECKING:
    from nanolm.cache import KVCache
    from nanolm.model import NanoLM


#: Холоднее не бывает: и соседние числа fp32 при такой температуре разводит до вероятностей 1 и 0.
_COLDEST = 1e-30


@dataclass(frozen=True)
class Sampling:
    """Как выбирать токен. Температура 0 — жадно; иначе сначала `top_k`, потом `top_p`.

    - `temperature` делит логиты: меньше 1 — осторожнее, больше — разнообразнее;
    - `top_k` оставляет k самых вероятных токенов;
    - `top_p` — самые вероятные, пока их сумма не достигнет p.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not _is_number(self.temperature) or not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature = {shown(self.temperature)}: нужно конечное число не меньше 0")
        if self.top_k is not None:
            whole("top_k", self.top_k)
        if self.top_p is not None and (not _is_number(self.top_p) or not 0 < self.top_p <= 1):
            raise ValueError(f"top_p = {shown(self.top_p)}: нужно число больше 0 и не больше 1")

    def choose(self, logits_BV: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
        """Следующий токен каждой строки, `token_B`. У строки свой генератор: соседи на неё не влияют."""
        if self.temperature == 0:
            return logits_BV.argmax(-1)
        count = min(self.top_k or logits_BV.shape[-1], logits_BV.shape[-1])
        top_Bk, token_Bk = logits_BV.float().topk(count, dim=-1)
        # Сначала вычесть максимум: тогда деление на малую температуру уводит в -∞ только проигравших. При ещё
        # меньшей, чем _COLDEST, выбор тот же самый, а в fp32 она обратилась бы в ноль.
        share_Bk = ((top_Bk - top_Bk[:, :1]) / max(self.temperature, _COLDEST)).softmax(-1)
        if self.top_p is not None:
            # Токен остаётся, если более вероятные ещё не набрали p: первый остаётся всегда.
            spent_Bk = share_Bk.cumsum(-1) - share_Bk >= self.top_p
            spent_Bk[:, 0] = False
            share_Bk = share_Bk.masked_fill(spent_Bk, 0)
        pairs = zip(share_Bk, generators, strict=True)
        index_B1 = torch.stack([torch.multinomial(share_k, 1, generator=own) for share_k, own in pairs])
        return token_Bk.gather(1, index_B1)[:, 0]


def stream(
    model: NanoLM,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    end_token: int | None = None,
    cache: KVCache | None = None,
) -> Iterator[list[int | None]]:
    """Порождать по шагу: список из токена каждого запроса, `None` — запрос уже закончен.

    Запрос кончается на `end_token` (сам он выдаётся последним) или через `max_new_tokens`. Случайный
    выбор в строке i идёт от `seed + i`: пакет даёт то же, что одиночные запросы с такими `seed`.

    Ошибки: `ValueError` — пустой запрос, номер вне словаря, запрос с продолжением длиннее S, малый кеш.
    Проверки идут сразу при вызове, до выделения памяти.
    """
    sampling = Sampling(temperature, top_k, top_p)
    max_new_tokens = whole("max_new_tokens", max_new_tokens)
    rows = _check_prompts(model, prompts, max_new_tokens)
    lengths = [len(row) for row in rows]
    # Генератор torch принимает 64 бита; у последней строки номер самый большой.
    seed = whole("seed", seed, -(2**63), 2**64 - len(rows))
    needed = max(lengths) + max_new_tokens - 1
    if cache is None:
        cache = model.new_cache(len(rows), needed)
    elif cache.length < needed:
        raise ValueError(f"cache: length = {cache.length} позиций, а запросу с продолжением нужно {needed}")
    elif cache.position:
        raise ValueError(f"cache: в нём уже {cache.position} позиций; для нового запроса нужен пустой")
    device = model.embedding.weight.device
    generators = [torch.Generator(device).manual_seed(seed + row) for row in range(len(rows))]
    padded = [[*row, *[0] * (max(lengths) - len(row))] for row in rows]
    tokens_BT = torch.tensor(padded, device=device)
    return _steps(model, tokens_BT, lengths, max_new_tokens, sampling, generators, end_token, cache)


def _steps(
    model: NanoLM,
    tokens_BT: Tensor,
    lengths: list[int],
    max_new_tokens: int,
    sampling: Sampling,
    generators: list[torch.Generator],
    end_token: int | None,
    cache: KVCache,
) -> Iterator[list[int | None]]:
    done = [False] * len(lengths)
    logits_BV = model.prefill(tokens_BT, cache, lengths)
    for step in range(max_new_tokens):
        token_B = sampling.choose(logits_BV, generators)
        tokens = token_B.tolist()
        yield [None if over else token for over, token in zip(done, tokens, strict=True)]
        done = [over or token == end_token for over, token in zip(done, tokens, strict=True)]
        if all(done) or step == max_new_tokens - 1:
            return
        # Законченные строки считаются дальше вхолостую: пакет остаётся прямоугольным.
        logits_BV = model.decode(token_B, cache)


def generate(
    model: NanoLM, prompts: Sequence[Sequence[int]], max_new_tokens: int, **options: object
) -> list[list[int]]:
    """Продолжения запросов целиком: только новые токены, `end_token` — последним. Параметры — у `stream`."""
    # Сначала проверки: у того, что не список, может не быть и длины.
    steps = stream(model, prompts, max_new_tokens, **options)  # type: ignore[arg-type]
    rows: list[list[int]] = [[] for _ in range(len(prompts))]
    for tokens in steps:
        for row, token in zip(rows, tokens, strict=True):
            if token is not None:
                row.append(token)
    return rows


def _check_prompts(model: NanoLM, prompts: object, max_new_tokens: int) -> list[list[int]]:
    """Запросы списками номеров; отказ, пока не потрачена память."""
    rows = _listed("prompts", prompts, "список запросов")
    if not rows:
        raise ValueError("prompts: пустой список; нужен хотя бы один запрос")
    checked = []
    for row, prompt in enumerate(rows):
        name = f"prompts[{row}]"
        tokens = _listed(name, prompt, "список номеров токенов")
        _check_length(name, len(tokens), max_new_tokens, model.spec.S)
        checked.append([whole(name, token, 0) for token in tokens])
        check_tokens(name, torch.tensor(checked[-1]), model.spec.V)
    return checked


def _check_length(name: str, length: int, max_new_tokens: int, S: int) -> None:
    if not length:
        raise ValueError(f"{name}: пустой запрос; нужен хотя бы один токен")
    if length > S:
        raise ValueError(f"{name}: запрос из {length} токенов длиннее контекста S = {S}")
    total = length + max_new_tokens
    if total > S:
        parts = f"{length} токенов и max_new_tokens = {max_new_tokens}"
        raise ValueError(f"{name}: {parts} дают {total}, а контекст S = {S}")


def _listed(name: str, value: object, what: str) -> list[Any]:
    """Список из списка, кортежа, массива или тензора: у остального нет ни длины, ни порядка."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(plain, Sequence) or isinstance(plain, (str, bytes)):
        raise ValueError(f"{name} = {shown(value)}: нужен {what}")
    return list(plain)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
