"""Задачи о памяти: состояния обучения, вес модели, помещается ли она на карту.

Обучение AdamW в смешанной точности хранит 16 байт на параметр: вес и градиент в bf16, мастер-копию и два момента
в fp32. Вывод — веса и кеш. На карте сравнивают с доступной памятью: часть паспортной занимает система.
"""

from __future__ import annotations

from nanolm import units
from nanolm.budget import (
    DTYPES,
    OPTIMIZERS,
    RECIPES,
    TITLES,
    Account,
    inference_memory,
    kv_cache_bytes,
    parameter_breakdown,
    training_memory,
)
from nanolm.hardware import Gpu
from nanolm.interview import models
from nanolm.interview.cache import in_binary, precision
from nanolm.interview.models import edited, given, token_batch
from nanolm.interview.params import used
from nanolm.interview.problem import Mistake, Problem, Row, rows_of, short, shown, summed
from nanolm.interview.quantity import SIZE
from nanolm.sharding import STAGES, shard_training
from nanolm.spec import Spec
from nanolm.units import GB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nanolm.interview.draw import Dice

#: То, что пропорционально числу параметров.
STATES = ("weights", "gradients", "master_weights", "optimizer")
_RECIPE_TITLES = {
    "mixed": "смешанная: bf16 и мастер-копия весов в fp32", "fp32": "чистая fp32",
    "bf16": "чистая bf16, без мастер-копии", "autocast": "autocast: веса в fp32, вычисления в bf16",
}  # fmt: skip
_OPTIMIZER_TITLES = {"adamw": "AdamW", "sgd": "SGD без момента", "momentum": "SGD с моментом"}
_STAGE_TITLES = {"zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3"}


# --- Состояния обучения -------------------------------------------------------------------------


def sixteen(dice: Dice) -> Problem:
    """16 байт на параметр."""
    title, spec = models.dense(dice)
    return states_of(title, spec, "mixed", "adamw", tolerance=0.05)


def recipes(dice: Dice) -> Problem:
    """Другой рецепт или оптимизатор."""
    title, spec = models.dense(dice)
    return states_of(title, spec, dice.choice(tuple(_RECIPE_TITLES)), dice.choice(tuple(_OPTIMIZER_TITLES)))


def states_of(title: str, spec: Spec, recipe: str, optimizer: str, tolerance: float = 0.03) -> Problem:
    """Состояния обучения плотной модели."""
    account = _states(spec, recipe, optimizer)
    total = parameter_breakdown(spec).total
    coefficients = [value // total for value in account.values() if value]
    return Problem(
        title="Состояние обучения",
        text=f"{models.about_count(title, total)} Сколько памяти занимает состояние обучения: веса, "
        f"градиенты, мастер-копия, если она есть, и состояние оптимизатора? Точность — {_RECIPE_TITLES[recipe]}; "
        f"оптимизатор — {_OPTIMIZER_TITLES[optimizer]}. Активации не считайте. Ответ — в ГБ.",
        given=[("P", "параметров", short(total))],
        dimension=SIZE, unit="ГБ", answer=account.total, tolerance=tolerance, rows=_in_gb(_state_rows(account, total)),
        advice=f"На параметр — {' + '.join(map(str, coefficients))} = "
        f"{units.counted(sum(coefficients), 'байт', 'байта', 'байт')}. Миллиарды на байты — сразу гигабайты: "
        f"{sum(coefficients)} · {short(total / GB)}.",
        hints=(
            "Сколько чисел хранится на один параметр и сколько байт в каждом?",
            _bytes_hint(recipe, optimizer),
            "Сложите байты и умножьте на P.",
        ),
        mistakes=[*_state_mistakes(account), Mistake("mixed-recipe", 16 * total, required=False)],
    )  # fmt: skip


def _bytes_hint(recipe: str, optimizer: str) -> str:
    one, count = RECIPES[recipe], OPTIMIZERS[optimizer][0]
    return (
        f"Байтов на вес — {one.weights}, на градиент — {one.gradients}, на мастер-копию — {one.master}; "
        f"{_OPTIMIZER_TITLES[optimizer]} помнит величин на параметр: {count}."
    )


def _states(spec: Spec, recipe: str, optimizer: str) -> Account:
    """Строки состояний из счёта памяти обучения."""
    lines = training_memory(spec, 1, 1, recipe, optimizer).details
    return Account("Состояние обучения", "байт", STATES, [line for line in lines if line.component in STATES])


def _state_rows(account: Account, total: int, letter: str = "P") -> list[Row]:
    """По строке на компонент: байты на параметр умножить на параметры."""
    rows = []
    for name, size in account.items():
        if size:
            times = size // total
            rows.append(Row(TITLES[name], f"{times}·{letter}", f"{times}·{units.number(total)}", size, "Б"))
    return rows


def _in_gb(rows: Sequence[Row]) -> list[Row]:
    full = summed(rows)
    total = full[-1].value
    return [*full, Row("ответ", "", f"{shown(total)} / 10⁹", total / GB, "ГБ")]


def _state_mistakes(account: Account) -> list[Mistake | None]:
    parts = (
        ("optimizer-forgotten", "optimizer"), ("master-forgotten", "master_weights"),
        ("gradients-forgotten", "gradients"),
    )  # fmt: skip
    found = [Mistake(id_, account.total - account[name], name == "optimizer") for id_, name in parts if account[name]]
    return [Mistake("weights-only", account["weights"]), *found]


def mixture_states(dice: Dice) -> Problem:
    """Смесь: оптимизатору нужны все параметры, а не активные."""
    title, spec = models.mixture(dice)
    account, parameters = _states(spec, "mixed", "adamw"), parameter_breakdown(spec)
    active = parameters.active
    return Problem(
        title="Состояние обучения смеси",
        text=f"{models.about_count(title, parameters.total)} Это смесь экспертов. Сколько памяти занимает состояние её "
        f"обучения: веса, градиенты, мастер-копия и состояние AdamW? Точность — {_RECIPE_TITLES['mixed']}. "
        "Ответ — в ГБ.",
        given=[("P", "всего параметров", short(parameters.total)), ("", "активных на токен", short(active)),
               *given(spec, "Ek")],
        dimension=SIZE, unit="ГБ", answer=account.total, tolerance=0.03,
        rows=_in_gb(_state_rows(account, parameters.total)),
        advice=f"Градиент и моменты нужны каждому эксперту, кого бы ни выбрал токен: 16 байт на все параметры, "
        f"16 · {short(parameters.total)}.",
        hints=(
            "Какие параметры обучаются: те, что видит один токен, или все?",
            "На параметр — 2 + 2 + 4 + 4 + 4 байта.",
            "Умножьте на все параметры.",
        ),
        mistakes=[Mistake("active-for-total", 16 * active), *_state_mistakes(account)],
    )  # fmt: skip


def sharded(dice: Dice) -> Problem:
    """Состояние на одной карте при ZeRO."""
    title, spec = models.dense(dice)
    stage, cards = dice.choice(tuple(STAGES)), dice.choice((4, 8, 16, 32, 64))
    account, total = _states(spec, "mixed", "adamw"), parameter_breakdown(spec).total
    shares = shard_training(training_memory(spec, 1, 1), cards, stage)
    # Собранный слой — строки `gathered_…`: он живёт, только пока считается.
    lines = [line for line in shares.details if line.component in STATES and not line.name.startswith("gathered_")]
    mine = Account("", "байт", STATES, lines)
    divided = STAGES[stage][0]
    rows = []
    for name, size in mine.items():
        times, over = account[name] // total, f" / {cards}" if name in divided else ""
        rows.append(Row(TITLES[name], f"{times}·P{over}", f"{times}·{units.number(total)}{over}", size, "Б"))
    return Problem(
        title="Состояние обучения на одной карте",
        text=f"{models.about_count(title, total)} Её обучают AdamW в смешанной точности на "
        f"{units.counted(cards, 'карте', 'картах', 'картах')} с {_STAGE_TITLES[stage]}. Сколько памяти занимает "
        "состояние обучения на каждой карте? Слой, собранный на время счёта, и активации не считайте. Ответ — в ГБ.",
        given=[("P", "параметров", short(total)), ("", "карт", units.number(cards))],
        dimension=SIZE, unit="ГБ", answer=mine.total, tolerance=0.03, rows=_in_gb(rows),
        advice="Из 16 байт на параметр делится: при ZeRO-1 — 12 (мастер-копия и моменты), при ZeRO-2 — 14, при "
        "ZeRO-3 — все 16.",
        hints=(
            f"Что {_STAGE_TITLES[stage]} раскладывает по картам, а что есть на каждой целиком?",
            "ZeRO-1 делит мастер-копию и моменты, ZeRO-2 — ещё и градиенты, ZeRO-3 — ещё и веса.",
            "Сложите целое и поделённое: байты на параметр, потом на P.",
        ),
        mistakes=[
            Mistake("not-sharded", account.total),
            None if stage == "zero3" else Mistake("all-sharded", account.total / cards),
            Mistake("optimizer-forgotten", mine.total - mine["optimizer"], required=False),
            Mistake("weights-only", mine["weights"], required=False),
        ],
    )  # fmt: skip


# --- Вес модели и карта -------------------------------------------------------------------------


def _weight_precision(dtype: str) -> str:
    return precision(dtype).replace("значение", "параметр")


def weights_of(title: str, spec: Spec, dtype: str) -> Problem:
    """Сколько занимают веса."""
    total = parameter_breakdown(spec).total
    size = inference_memory(spec, 1, 1, dtype)["weights"]
    row = Row("веса", f"{DTYPES[dtype]}·P", f"{DTYPES[dtype]}·{units.number(total)}", size, "Б")
    return Problem(
        title="Веса",
        text=f"{models.about_count(title, total)} Сколько памяти займут её веса {_weight_precision(dtype)}? "
        "Ответ — в ГБ.",
        given=[("P", "параметров", short(total))],
        dimension=SIZE, unit="ГБ", answer=size, tolerance=0.05, rows=_in_gb([row]),
        advice="Миллиарды параметров на байты — сразу гигабайты.",
        hints=("Сколько байт в одном параметре?", "Умножьте P на байты параметра."),
        mistakes=[
            Mistake("bytes-forgotten", total, required=DTYPES[dtype] > 1),
            Mistake("fp32-for-dtype", 4 * total),
            Mistake("bits-for-bytes", 8 * size),
        ],
    )  # fmt: skip


def fit_weights(dice: Dice) -> Problem | None:
    """Одни веса против карты."""
    title, spec = models.dense(dice)
    dtype = dice.choice(("bf16", "bf16", "int8", "fp32"))
    card = models.card(dice, models.SERVING_CARDS)
    draft = weights_of(title, spec, dtype)
    question = f"Поместятся ли её веса {_weight_precision(dtype)},"
    return _against(draft, card, draft.text.partition(" Сколько")[0], question)


def fit_cache(dice: Dice) -> Problem | None:
    """Веса и кеш против карты."""
    title, spec = models.dense(dice, gqa=True)
    B, S = dice.choice((1, 4, 8, 16, 32)), 1024 * dice.choice((4, 8, 16, 32))
    return fit_of(title, spec, B, S, models.card(dice, models.SERVING_CARDS))


def fit_mixture(dice: Dice) -> Problem | None:
    """Смесь против карты: место нужно всем экспертам."""
    title, spec = models.mixture(dice)
    B, S = dice.choice((1, 2, 4, 8)), 1024 * dice.choice((4, 8, 16))
    return fit_of(title, spec, B, S, models.card(dice, models.SERVING_CARDS), dtype=dice.choice(("bf16", "fp8")))


def fit_of(title: str, spec: Spec, B: int, S: int, card: Gpu, dtype: str = "bf16") -> Problem | None:
    """Веса и кеш этой модели на этой карте; `None` — случай у самого края, ответа «да» или «нет» на нём нет."""
    parameters = parameter_breakdown(spec)
    account = inference_memory(spec, B, S, dtype)
    cache = kv_cache_bytes(spec, B, S, dtype)
    weights = account["weights"]
    rows = [
        Row("веса", f"{DTYPES[dtype]}·P", f"{DTYPES[dtype]}·{units.number(parameters.total)}", weights, "Б"),
        *rows_of(cache.details, "Б"),
    ]
    heads = kv_cache_bytes(spec.replace(K=spec.N), B, S, dtype).total
    active = sum(line.value for line in used(parameters.details, spec.experts_per_token)) * DTYPES[dtype]
    size = {f"байт[{dtype}]": 4.0}
    mixed = bool(spec.experts)
    count = [("P", "всего параметров" if mixed else "параметров", short(parameters.total))]
    if mixed:
        count.append(("", "активных на токен", short(parameters.active)))
    draft = Problem(
        title="", text="", given=[*count, *given(spec, "LNKHEk"), *token_batch(B, S)],
        dimension=SIZE, unit="ГиБ", answer=account.total, tolerance=0.03, rows=in_binary(rows, "ГиБ"),
        advice=f"Веса — {units.gib(weights, 1)}, кеш — {units.gib(cache.total, 1)}. Сравнивают с доступной памятью, "
        "а не с паспортной.",
        hints=(
            "На карте лежат две вещи: одна не зависит от пакета, другая растёт вместе с ним.",
            "Веса — байты на все параметры; кеш — 2·B·S·L·K·H·байты.",
            "Сложите и сравните с доступной памятью карты.",
        ),
        mistakes=[
            Mistake("cache-forgotten", weights),
            Mistake("weights-forgotten", cache.total),
            Mistake("query-heads", weights + heads) if spec.K < spec.N else None,
            Mistake("active-for-total", active + cache.total) if mixed else None,
            Mistake("fp32-for-dtype", 4 * parameters.total + edited(cache.details, swap=size), required=False),
        ],
    )  # fmt: skip
    question = f"Веса и кеш — {precision(dtype)}. Поместится ли она вместе {models.together(B, S)}"
    return _against(draft, card, models.about(title), question, peak=account.peak)


def _against(draft: Problem, card: Gpu, about: str, question: str, peak: int = 0) -> Problem | None:
    """Сравнить с картой и задать вопрос «поместится ли»."""
    need, room = draft.answer, card.usable_bytes
    fits = max(need, peak) < room
    # У края ответ зависел бы от округления, от буферов или от того, с какой памятью сравнивать.
    if need > 0.93 * room if fits else need < 1.05 * card.memory_bytes:
        return None
    draft.title, draft.fits = "Поместится ли?", fits
    draft.text = (
        f"{about} {question} на карту {card.title}? Ответьте «да» или «нет» и назовите, сколько нужно, "
        f"в {'ГиБ' if draft.unit == 'ГиБ' else draft.unit}."
    )
    draft.given = (*draft.given, *models.card_rows(card, "memory"))
    comparison = "меньше" if fits else "больше"
    draft.advice += f" Доступно {units.both_bytes(room)}: нужно {comparison}, ответ «{'да' if fits else 'нет'}»."
    return draft
