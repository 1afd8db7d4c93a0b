"""Порождение текста: один проход по запросу (prefill), дальше по токену за шаг (decode).

Prefill упирается в вычисления: все токены запроса идут одним произведением. Decode читает все веса
и весь кеш ради одного токена и упирается в память: поэтому пакет из восьми запросов почти не дольше
одного. Запросы разной длины идут одним пакетом с теми же позициями, что и поодиночке, так что
жадное порождение даёт те же токены.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nanolm.checks import check_tokens

if TYPE_CHECKING:
    from nanolm.cache import KVCache
    from nanolm.model import NanoLM


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
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature = {self.temperature}: нужно конечное число не меньше 0")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k = {self.top_k}: нужно целое число не меньше 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p = {self.top_p}: нужно число больше 0 и не больше 1")

    def choose(self, logits_BV: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
        """Следующий токен каждой строки, `token_B`. У строки свой генератор: соседи на неё не влияют."""
        if self.temperature == 0:
            return logits_BV.argmax(-1)
        count = min(self.top_k or logits_BV.shape[-1], logits_BV.shape[-1])
        top_Bk, token_Bk = (logits_BV.float() / self.temperature).topk(count, dim=-1)
        share_Bk = top_Bk.softmax(-1)
        if self.top_p is not None:
            # Токен остаётся, если более вероятные ещё не набрали p: первый остаётся всегда.
            share_Bk = share_Bk.masked_fill(share_Bk.cumsum(-1) - share_Bk >= self.top_p, 0)
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

    Errors: `ValueError` — пустой запрос, номер вне словаря, запрос с продолжением длиннее S, малый кеш.
    Проверки идут сразу при вызове, до выделения памяти.
    """
    sampling = Sampling(temperature, top_k, top_p)
    lengths = _check_prompts(model, prompts, max_new_tokens)
    needed = max(lengths) + max_new_tokens - 1
    if cache is None:
        cache = model.new_cache(len(prompts), needed)
    elif cache.length < needed:
        raise ValueError(f"cache: length = {cache.length} позиций, а запросу с продолжением нужно {needed}")
    elif cache.position:
        raise ValueError(f"cache: в нём уже {cache.position} позиций; для нового запроса нужен пустой")
    device = model.embedding.weight.device
    generators = [torch.Generator(device).manual_seed(seed + row) for row in range(len(prompts))]
    padded = [[*prompt, *[0] * (max(lengths) - len(prompt))] for prompt in prompts]
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
    rows: list[list[int]] = [[] for _ in prompts]
    for tokens in stream(model, prompts, max_new_tokens, **options):  # type: ignore[arg-type]
        for row, token in zip(rows, tokens, strict=True):
            if token is not None:
                row.append(token)
    return rows


def _check_prompts(model: NanoLM, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[int]:
    """Длины запросов; отказ, пока не потрачена память."""
    S, V = model.spec.S, model.spec.V
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens = {max_new_tokens}: нужно целое число не меньше 1")
    if not len(prompts):
        raise ValueError("prompts: пустой список; нужен хотя бы один запрос")
    for row, prompt in enumerate(prompts):
        if not len(prompt):
            raise ValueError(f"prompts[{row}]: пустой запрос; нужен хотя бы один токен")
        if len(prompt) > S:
            raise ValueError(f"prompts[{row}]: запрос из {len(prompt)} токенов длиннее контекста S = {S}")
        if len(prompt) + max_new_tokens > S:
            total = len(prompt) + max_new_tokens
            raise ValueError(
                f"prompts[{row}]: {len(prompt)} токенов и max_new_tokens = {max_new_tokens} дают {total}, "
                f"а контекст S = {S}"
            )
        check_tokens(f"prompts[{row}]", torch.as_tensor(prompt), V)
    return [len(prompt) for prompt in prompts]
