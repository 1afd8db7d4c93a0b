"""Обратная задача: дана карта — что на неё поместится и что изменить, если не помещается.

`fit` отвечает на три прямых вопроса (наибольший пакет, наибольший контекст, наименьшее число карт) и на
один обратный: самые дешёвые наборы изменений, после которых память сходится. Решает он перебором по тем
же счетам, что и всё остальное: своей формулы памяти здесь нет.

Цена набора — пять чисел, по порядку важности: лишние карты, риск для качества, добавка FLOPs, на сколько
частей разрезан шаг, сколько раз веса едут по сети. Набор, который не дешевле другого ни по одному числу
и дороже хотя бы по одному, отбрасывается; остальные идут от дешёвых к дорогим.

Память карты — доступная программам (`usable_bytes`), память модели — пик: у обучения `.total`, у вывода
`.peak`. Пакет B — на одну карту: у шага на n картах он в n раз больше.
"""

from __future__ import annotations

from itertools import combinations, product

from nanolm import units
from nanolm.budget import (
    LORA_TARGETS,
    Account,
    InferenceMemory,
    _card,
    _smallest,
    decode_step_time,
    hardware_flops_per_token,
    html_table,
    inference_memory,
    training_memory,
)
from nanolm.difference import Difference, DifferenceRow, diff
from nanolm.remedies import INFERENCE_KNOBS, TRAINING_KNOBS
from nanolm.sharding import CARDS_LIMIT, shard_inference, shard_training, tensor_parallel_cards
from nanolm.spec import LIMIT, Spec, shown, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from nanolm.hardware import Gpu
    from nanolm.quantization import Quantization
    from nanolm.remedies import Change

    Plan = dict[str, Any]

__all__ = ["GOALS", "Difference", "DifferenceRow", "Fit", "Goal", "Remedy", "diff", "fit"]

#: Сколько изменений бывает в одном наборе и сколько наборов показывать.
MOST_CHANGES, MOST_REMEDIES = 4, 8

#: Пакет и контекст ищутся до этого предела: дальше ограничивает уже не память.
REACH = 2**30


class Goal:
    """Что считаем и на чём: модель, карта, исходный план. План — имена аргументов счёта и их значения."""

    goal = ""
    knobs: tuple[Callable[[Any], list[Change]], ...] = ()

    def __init__(self, spec: Spec, card: Gpu, plan: Plan, cards: int, reserve: int) -> None:
        self.spec, self.card, self.plan, self.cards = spec, card, plan, cards
        #: Сколько байтов карты может занять модель.
        self.capacity = card.usable_bytes - reserve
        self._known: dict[tuple[object, ...], Account] = {}

    def account(self, plan: Plan) -> Account:
        """Счёт одной карты при этом плане; одинаковые счета не повторяются."""
        options = {name: value for name, value in plan.items() if name not in ("stage", "cards")}
        key = tuple(options.values())
        if key not in self._known:
            self._known[key] = self.whole_account(options)
        return self.share(self._known[key], plan)

    def whole_account(self, options: Plan) -> Account:
        """Счёт неразделённой модели."""
        raise NotImplementedError

    def share(self, account: Account, plan: Plan) -> Account:
        """Доля одной карты."""
        raise NotImplementedError

    def need(self, plan: Plan) -> int:
        """Пик памяти одной карты, байтов."""
        return self.account(plan).total

    def fits(self, plan: Plan) -> bool:
        """Помещается ли."""
        return self.need(plan) <= self.capacity

    def most_cards(self, limit: int) -> int:
        """Наибольшее число карт не больше `limit`, на которое модель делится."""
        raise NotImplementedError

    def fewest(self, plan: Plan) -> int | None:
        """Наименьшее число карт, при котором план помещается; `None` — ни при каком."""
        raise NotImplementedError

    def extra_flops(self, plan: Plan) -> float:
        """На какую долю план считает больше исходного."""
        return 0.0

    def pieces(self, plan: Plan) -> float:
        """На сколько частей разрезан исходный шаг."""
        return float(self.plan["B"] / plan["B"])


class Training(Goal):
    """Шаг обучения; делится по ZeRO."""

    goal = "training"
    knobs = TRAINING_KNOBS

    def whole_account(self, options: Plan) -> Account:
        """Память шага без деления."""
        return training_memory(self.spec, **options)

    def share(self, account: Account, plan: Plan) -> Account:
        """Доля карты при ступени плана."""
        return shard_training(account, plan["cards"], plan["stage"]) if plan["stage"] else account

    def most_cards(self, limit: int) -> int:
        """Любое число карт годится."""
        return limit

    def fewest(self, plan: Plan) -> int | None:
        """Память карты с числом карт не растёт, начиная с двух: одна карта обходится без сборки слоёв."""
        if self.fits({**plan, "cards": 1}):
            return 1
        # Большинству планов мешает то, что не делится: об этом скажет одна проба вместо двадцати.
        if not self.fits({**plan, "cards": CARDS_LIMIT // 2 + 1}):
            return None
        rest = _smallest(lambda n: self.fits({**plan, "cards": n + 1}), limit=CARDS_LIMIT // 2)
        return None if rest is None else rest + 1

    def extra_flops(self, plan: Plan) -> float:
        """Пересчёт: выполненные FLOPs плана против исходных."""
        return self._executed(plan) / self._executed(self.plan) - 1

    def _executed(self, plan: Plan) -> int:
        return hardware_flops_per_token(self.spec, plan["S"], plan["attention"], plan["checkpointing"]).total


class Inference(Goal):
    """Вывод: заполнение контекста и генерация; делится тензорно."""

    goal = "inference"
    knobs = INFERENCE_KNOBS

    def whole_account(self, options: Plan) -> Account:
        """Память вывода без деления."""
        return inference_memory(self.spec, **options)

    def share(self, account: Account, plan: Plan) -> Account:
        """Доля карты."""
        assert isinstance(account, InferenceMemory)
        return shard_inference(account, self.spec, plan["cards"])

    def need(self, plan: Plan) -> int:
        """Веса, кеш и рабочие буферы."""
        account = self.account(plan)
        assert isinstance(account, InferenceMemory)
        return account.peak

    def most_cards(self, limit: int) -> int:
        """Столько, чтобы головы поделились поровну."""
        return tensor_parallel_cards(self.spec, limit)[-1]

    def fewest(self, plan: Plan) -> int | None:
        """Перебор допустимых чисел карт: их немного."""
        return next((n for n in tensor_parallel_cards(self.spec, self.spec.N) if self.fits({**plan, "cards": n})), None)

    def pieces(self, plan: Plan) -> float:
        """Очередь последовательностей. Порции заполнения почти бесплатны (слой занят счётом) и лишь решают ничью."""
        return super().pieces(plan) + self._portions(plan) * 1e-6

    @staticmethod
    def _portions(plan: Plan) -> int:
        tokens = int(plan["B"] * plan["S"])
        return -(-tokens // min(tokens, int(plan["chunk"] or tokens)))

    def tokens_per_s(self, plan: Plan) -> float | None:
        """Токенов в секунду на одной карте по roofline; `None`, если скоростей карты не знаем."""
        if not self.card.flops_per_s:
            return None
        types = {name: plan[name] for name in ("dtype", "kv_dtype", "weights")}
        step = decode_step_time(self.spec, plan["B"], plan["S"], self.card, **types)
        return step.tokens_per_s


GOALS: dict[str, type[Goal]] = {"training": Training, "inference": Inference}
_TITLES = {"training": "обучение", "inference": "вывод"}


class Remedy:
    """Набор изменений, после которого память сходится.

    `.changes` — пары «что изменить, чем за это платят»; `.need` — новый пик карты в байтах; `.plan` — новые
    значения; `.cards` — карт; `.extra_flops` — добавка FLOPs; `.quality` — риск для качества, 0 — его нет.
    """

    __slots__ = ("account", "cards", "changes", "cost", "extra_flops", "need", "plan", "quality", "saved")

    def __init__(self, problem: Goal, changes: tuple[Change, ...], plan: Plan) -> None:
        self.plan, self.cards = plan, int(plan["cards"])
        self.account, self.need = problem.account(plan), problem.need(plan)
        #: Сколько байтов освободилось на карте.
        self.saved = problem.need(problem.plan) - self.need
        self.extra_flops = problem.extra_flops(plan)
        self.quality = sum(change.quality for change in changes)
        self.changes = tuple(change.words(problem, plan) for change in changes)
        extra, traffic = max(0, self.cards - problem.cards), sum(change.traffic for change in changes)
        #: Цена: лишние карты, риск, FLOPs, части шага, обмен.
        self.cost = (extra, self.quality, round(self.extra_flops, 6), problem.pieces(plan), traffic)

    @property
    def title(self) -> str:
        """Что изменить, одной строкой."""
        return " + ".join(what for what, _ in self.changes)

    @property
    def price(self) -> str:
        """Чем платят, одной строкой."""
        return "; ".join(price for _, price in self.changes)

    def to_dict(self) -> dict[str, object]:
        """Для JSON: байты, доли, слова."""
        return {
            "changes": [{"change": what, "price": price} for what, price in self.changes],
            "plan": {name: getattr(value, "name", value) for name, value in self.plan.items()},
            "need_bytes": self.need,
            "saved_bytes": self.saved,
            "cards": self.cards,
            "extra_flops": self.extra_flops,
            "quality": self.quality,
        }

    def __repr__(self) -> str:
        return f"Remedy({self.title}: {self.need} байт)"


class Fit:
    """Ответ `fit`.

    `.fits`, `.need`, `.capacity` — помещается ли, сколько нужно и сколько есть; `.largest_batch` и
    `.largest_context` — пределы при остальном неизменном (0 — не помещается и одна последовательность,
    `None` — память не ограничивает); `.fewest_cards` — наименьшее число карт при делении ZeRO-3 или тензорном;
    `.remedies` — наборы изменений, от дешёвых к дорогим; `.closest` — когда не помогает ни один.
    """

    def __init__(self, problem: Goal) -> None:
        self.goal, self.card, self.capacity = problem.goal, problem.card, problem.capacity
        self.plan, self.cards = dict(problem.plan), problem.cards
        self.account, self.need = problem.account(problem.plan), problem.need(problem.plan)
        self.largest_batch = _largest(problem, "B", REACH)
        self.largest_context = _largest(problem, "S", problem.spec.learned_positions or REACH)
        self.fewest_cards = problem.fewest({**problem.plan, "stage": "zero3"})
        self.remedies: tuple[Remedy, ...] = ()
        self.closest: Remedy | None = None
        if not self.fits:
            self.remedies, self.closest = _remedies(problem)

    @property
    def fits(self) -> bool:
        """Помещается ли исходный план."""
        return self.need <= self.capacity

    def to_dict(self) -> dict[str, object]:
        """Для JSON: основные единицы."""
        return {
            "goal": self.goal,
            "gpu": self.card.key,
            "need_bytes": self.need,
            "capacity_bytes": self.capacity,
            "fits": self.fits,
            "largest_batch": self.largest_batch,
            "largest_context": self.largest_context,
            "fewest_cards": self.fewest_cards,
            "remedies": [remedy.to_dict() for remedy in self.remedies],
            "closest": None if self.closest is None else self.closest.to_dict(),
        }

    def _facts(self) -> list[str]:
        verdict = "помещается" if self.fits else "не помещается"
        balance = f"Нужно {units.both_bytes(self.need)}, доступно {units.both_bytes(self.capacity)}"
        gap = f"{'свободно' if self.fits else 'не хватает'} {units.binary_bytes(abs(self.capacity - self.need))}"
        split = "ZeRO-3" if self.goal == "training" else "тензорное деление"
        batch = _limit(self.largest_batch, "одна последовательность")
        context = _limit(self.largest_context, "один токен")
        return [
            f"{_TITLES[self.goal].capitalize()} на {self.card.title}: {verdict}. {balance}, {gap}.",
            f"наибольший пакет при S = {units.number(self.plan['S'])}: {batch}",
            f"наибольший контекст при B = {units.number(self.plan['B'])}: {context}",
            f"наименьшее число карт ({split}): {self.fewest_cards or 'без других изменений не хватит никакого'}",
        ]

    def _table(self) -> list[tuple[str, ...]]:
        found = self.remedies or ((self.closest,) if self.closest else ())
        return [
            (f"{place}. {what}" if first else f"   + {what}", units.binary_bytes(remedy.need) if first else "", price)
            for place, remedy in enumerate(found, 1)
            for first, (what, price) in ((i == 0, change) for i, change in enumerate(remedy.changes))
        ]

    def __str__(self) -> str:
        lines = self._facts()
        if self.remedies:
            lines += ["", "Что поможет, от дешёвого к дорогому:", *_listing(self.remedies)]
        elif self.closest is not None:
            lines += ["", "Ни один набор изменений не помог. Ближе всего:", *_listing((self.closest,))]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts = "".join(f"<p>{line}</p>" for line in self._facts())
        if not (rows := self._table()):
            return facts
        total = ("доступно на карте", units.binary_bytes(self.capacity), "")
        return facts + html_table(("что изменить", "станет", "цена"), [*rows, total])


def _listing(remedies: Iterable[Remedy]) -> Iterator[str]:
    for place, remedy in enumerate(remedies, 1):
        yield f"{place}. {remedy.title} — {units.both_bytes(remedy.need)} на карту"
        for _, price in remedy.changes:
            yield f"   {price}"


def _limit(value: int | None, least: str) -> str:
    if value is None:
        return "память не ограничивает"
    return units.number(value) if value else f"не помещается и {least}"


def fit(
    spec: Spec,
    gpu: str | Gpu,
    goal: str = "training",
    *,
    B: int = 1,
    S: int | None = None,
    gpus: int = 1,
    reserve: int = 0,
    recipe: str = "mixed",
    optimizer: str = "adamw",
    attention: str = "fused",
    checkpointing: str = "none",
    dtype: str = "bf16",
    kv_dtype: str | None = None,
    kv: str = "theory",
    chunk: int | None = None,
    weights: str | Quantization | None = None,
    block: int = 1,
    implementation: str = "nanolm",
    lora_rank: int = 0,
    lora_targets: Iterable[str] = LORA_TARGETS,
) -> Fit:
    """Что помещается на карту и что изменить, если не помещается.

    `goal` — «training» или «inference»; аргументы обучения и вывода — те же, что у счетов. `gpus` — сколько карт
    есть: деление между ними дешевле покупки новых. `reserve` — сколько байтов карты занято другим (контекст CUDA,
    соседние программы). `B` — пакет одной карты.

    Ошибки: `ValueError` с именем поля, значением и правилом.
    """
    if goal not in GOALS:
        raise ValueError(f"goal = {shown(goal)}: нужно одно из: {', '.join(GOALS)}")
    context = spec.S if S is None else whole("S", S)
    plan: Plan = {"B": whole("B", B), "S": context}
    if goal == "training":
        plan |= {"recipe": recipe, "optimizer": optimizer, "attention": attention, "checkpointing": checkpointing}
        plan |= {"implementation": implementation, "lora_rank": lora_rank, "lora_targets": tuple(lora_targets)}
        plan |= {"weights": weights if lora_rank else None}
    else:
        plan |= {"dtype": dtype, "kv_dtype": kv_dtype or dtype, "kv": kv, "chunk": chunk}
        plan |= {"weights": weights, "block": block, "implementation": implementation, "attention": attention}
    plan |= {"stage": "", "cards": 1}
    reserve = whole("reserve", reserve, minimum=0, limit=LIMIT * 1000)
    return Fit(GOALS[goal](spec, _card(gpu), plan, whole("gpus", gpus, limit=CARDS_LIMIT), reserve))


def _largest(problem: Goal, name: str, reach: int) -> int | None:
    """Наибольшее значение размера, при котором план помещается: 0 — ни при каком, `None` — при любом."""
    least = _smallest(lambda size: size > reach or not problem.fits({**problem.plan, name: size}), limit=4 * REACH)
    if least is None or (least > reach == REACH):
        return None
    return least - 1


# --- Поиск --------------------------------------------------------------------------------------


def _remedies(problem: Goal) -> tuple[tuple[Remedy, ...], Remedy | None]:
    """Дешёвые наборы изменений; если не помогает ни один — тот, что подошёл ближе всех."""
    found: list[Remedy] = []
    closest: Remedy | None = None
    for size in range(1, MOST_CHANGES + 1):
        for changes, plan in _plans(problem, size):
            if problem.fits(plan):
                found.append(Remedy(problem, changes, plan))
            elif closest is None or problem.need(plan) < closest.need:
                closest = Remedy(problem, changes, plan)
        # Четыре изменения сразу — крайнее средство: когда меньшим числом не обойтись.
        if found and size >= MOST_CHANGES - 1:
            break
    kept = _cheapest(found)
    return kept[:MOST_REMEDIES], None if kept else closest


def _plans(problem: Goal, size: int) -> Iterator[tuple[tuple[Change, ...], Plan]]:
    """Все наборы из `size` изменений разных ручек и планы, которые из них выходят."""
    ways = [found for found in (knob(problem) for knob in problem.knobs) if found]
    for chosen in combinations(ways, size):
        for changes in product(*chosen):
            plan = dict(problem.plan)
            for change in changes:
                plan |= change.settings
            if plan["cards"] != 1:
                plan["cards"] = _how_many(problem, plan)
            yield changes, plan


def _how_many(problem: Goal, plan: Plan) -> int:
    """Сколько карт взять: все, что есть, а если их мало — наименьшее достаточное."""
    owned = problem.most_cards(problem.cards)
    if owned > 1 and problem.fits({**plan, "cards": owned}):
        return owned
    return problem.fewest(plan) or problem.most_cards(max(problem.cards, 8))


def _cheapest(found: list[Remedy]) -> tuple[Remedy, ...]:
    """Наборы, которых не перебивает другой, от дешёвых к дорогим."""
    ordered = sorted(found, key=lambda remedy: (*remedy.cost, len(remedy.changes)))
    kept: list[Remedy] = []
    for remedy in ordered:
        if not any(_no_dearer(better, remedy) for better in kept):
            kept.append(remedy)
    return tuple(kept)


def _no_dearer(better: Remedy, remedy: Remedy) -> bool:
    return all(mine <= theirs for mine, theirs in zip(better.cost, remedy.cost, strict=True))
