"""Три минуты: классический вопрос собеседования из четырёх связанных частей.

«Модель X, карта Y: сколько весят веса, сколько займёт кеш, поместится ли это, сколько суток её обучать». Части судятся
отдельно: ошибка в первой не портит третью. В конце — итог: сколько верно, что было не так, уложились ли в три минуты.
"""

from __future__ import annotations

from nanolm.hardware import Gpu
from nanolm.interview import cache, memory, models, work
from nanolm.interview.draw import Dice
from nanolm.interview.judging import CORRECT, Verdict
from nanolm.interview.kinds import ATTEMPTS, LAST_SEED, LEVELS
from nanolm.interview.problem import Problem, settled
from nanolm.spec import Spec, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

#: Столько обычно и дают.
SECONDS = 180


class Session:
    """Вопрос собеседования: `title` — о какой модели и карте, `parts` — задачи по порядку."""

    __slots__ = ("level", "parts", "seed", "title")

    def __init__(self, seed: int, level: int, title: str, parts: Sequence[Problem]) -> None:
        self.seed, self.level, self.title, self.parts = seed, level, title, tuple(parts)

    def summary(self, verdicts: Sequence[Verdict | None], seconds: float | None = None) -> str:
        """Итог: сколько частей верно, за сколько, и что было не так. `None` — на часть не ответили."""
        right = sum(one is not None and one.state == CORRECT for one in verdicts)
        lines = [f"Верно {right} из {len(self.parts)}{_spent(seconds)}."]
        for part, verdict in zip(self.parts, verdicts, strict=True):
            if verdict is None or verdict.state != CORRECT:
                title = part.title if part.title.endswith("?") else f"{part.title}."
                lines.append(f"{title} {'Ответа нет.' if verdict is None else verdict.text}")
        return "\n".join(lines)


def _spent(seconds: float | None) -> str:
    """«, за 2:41» или «, за 3:20 — дольше трёх минут»."""
    if seconds is None:
        return ""
    late = " — дольше трёх минут" if seconds > SECONDS else ""
    return f", за {clock(seconds)}{late}"


def clock(seconds: float) -> str:
    """Время на часах: «3:00»."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"


def session(seed: int, level: int = 1) -> Session:
    """Вопрос собеседования по зерну. Уровень 1 — модель без GQA, 2 — с GQA, 3 — смесь экспертов.

    Ошибки: `ValueError`, если зерно не целое от 0 до миллиарда или уровня такого нет.
    """
    seed = whole("seed", seed, minimum=0, limit=LAST_SEED)
    if whole("level", level) not in LEVELS:
        raise ValueError(f"level = {level}: нужно одно из: {', '.join(map(str, LEVELS))}")
    for attempt in range(ATTEMPTS):
        dice = Dice("session", level, seed, attempt)
        title, spec = _MODELS[level - 1](dice)
        card = models.card(dice, models.SERVING_CARDS)
        drafts = _parts(dice, title, spec, card)
        parts = [draft and settled(draft) for draft in drafts]
        ready = [part for part in parts if part is not None]
        if len(ready) == len(parts):
            for part, kind in zip(ready, ("weights", "kv", "fit", "days"), strict=True):
                part.seed, part.level, part.kind = seed, level, kind
            return Session(seed, level, _title(title, card), ready)
    raise AssertionError(f"вопрос не сложился: уровень {level}, зерно {seed}")


def _full_heads(dice: Dice) -> models.Named:
    return models.preset(dice, ("llama-2-7b", "llama-2-13b", "smollm2-1.7b", "olmo-2-7b"))


_MODELS = (_full_heads, lambda dice: models.dense(dice, gqa=True), models.mixture)


def _title(title: str, card: Gpu) -> str:
    return f"{f'Модель {title}' if title else 'Модель из таблицы'} и карта {card.title}"


def _parts(dice: Dice, title: str, spec: Spec, card: Gpu) -> list[Problem | None]:
    B, S = dice.choice((1, 4, 8, 16, 32)), 1024 * dice.choice((2, 4, 8, 16))
    tokens = dice.choice((300, 500, 1000, 2000, 5000, 15_000)) * 10**9
    trainer = models.card(dice, models.TRAINING_CARDS)
    gpus, mfu = 2 ** (5 + dice.below(7)), dice.choice((0.35, 0.4, 0.45, 0.5))
    return [
        memory.weights_of(title, spec, "bf16"),
        cache.cache_of(title, spec, B, S, "bf16"),
        memory.fit_of(title, spec, B, S, card),
        work.days_of(title, spec, tokens, trainer, gpus, mfu),
    ]
