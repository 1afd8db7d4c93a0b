"""Виды задач: имя, название и генераторы по уровням.

Уровень 1 — круглые числа и одна формула, в уме. Уровень 2 — настоящие геометрии с GQA, ГиБ и ГБ. Уровень 3 — смеси
экспертов, окна, латентное внимание, соглашения.
"""

from __future__ import annotations

from nanolm.interview import cache, memory, params, work
from nanolm.interview.draw import Dice
from nanolm.interview.problem import Problem, settled
from nanolm.spec import whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Generator = Callable[[Dice], Problem | None]

LEVELS = {1: "в уме", 2: "настоящие модели", 3: "смеси, окна, соглашения"}

KINDS = {
    "params": "параметры модели",
    "kv": "кеш KV",
    "fit": "поместится ли на карту",
    "memory": "память обучения",
    "flops": "FLOPs",
    "days": "время обучения",
    "crossover": "когда кеш догонит веса",
    "moe": "смесь экспертов",
    "decode": "шаг генерации",
}

_GENERATORS: dict[str, tuple[tuple[Generator, ...], ...]] = {
    "params": ((params.stack, params.vocabulary), (params.whole, params.without_tables),
               (params.latent_attention, params.odd_heads)),
    "kv": ((cache.per_token, cache.round_batch), (cache.grouped,), (cache.sliding, cache.latent)),
    "fit": ((memory.fit_weights,), (memory.fit_cache,), (memory.fit_mixture,)),
    "memory": ((memory.sixteen,), (memory.recipes,), (memory.mixture_states, memory.sharded)),
    "flops": ((work.forward, work.whole_training), (work.exact,), (work.conventions,)),
    "days": ((work.days_rule,), (work.days_exact,), (work.days_mixture, work.days_long)),
    "crossover": ((cache.crossover_round,), (cache.crossover,), (cache.crossover_unusual,)),
    "moe": ((params.experts,), (params.mixture,), (params.shared,)),
    "decode": ((work.step_one,), (work.step_batch,), (work.step_mixture,)),
}  # fmt: skip

#: Больше зерна не бывает: оно помещается в адрес и в голову.
LAST_SEED = 10**9
#: Сколько набросков перебрать. Подходит обычно один из трёх; столько подряд неудачных не бывает.
ATTEMPTS = 500


def problem(seed: int, level: int = 1, kind: str | None = None) -> Problem:
    """Задача по зерну: то же зерно, уровень и вид — та же задача на любой версии Python.

    `kind` — имя из `KINDS`; `None` — вид выбирает зерно.

    Ошибки: `ValueError`, если зерно не целое от 0 до миллиарда, уровня или вида такого нет.
    """
    seed = whole("seed", seed, minimum=0, limit=LAST_SEED)
    if whole("level", level) not in LEVELS:
        raise ValueError(f"level = {level}: нужно одно из: {', '.join(map(str, LEVELS))}")
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind = {kind!r}: нужно одно из: {', '.join(KINDS)}")
    kind = kind or Dice("kind", seed, level).choice(tuple(KINDS))
    for attempt in range(ATTEMPTS):
        dice = Dice("problem", kind, level, seed, attempt)
        draft = dice.choice(_GENERATORS[kind][level - 1])(dice)
        ready = settled(draft) if draft is not None else None
        if ready is not None:
            ready.seed, ready.level, ready.kind = seed, level, kind
            return ready
    raise AssertionError(f"задача не сложилась: {kind}, уровень {level}, зерно {seed}")
