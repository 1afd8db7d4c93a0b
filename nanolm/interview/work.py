"""Задачи о работе и времени: FLOPs, сутки обучения, шаг генерации.

Обучение стоит шесть операций на параметр и токен: две на прямой проход и четыре на обратный. Внимание и выходная
голова — отдельные слагаемые. Время — работа, делённая на достигнутую скорость; шаг генерации обычно ждёт память.
"""

from __future__ import annotations

from nanolm import units
from nanolm.budget import (
    DTYPES,
    Line,
    decode_step_time,
    flops_per_token,
    kv_cache_bytes,
    parameter_breakdown,
    training_time,
)
from nanolm.hardware import Gpu
from nanolm.interview import models
from nanolm.interview.models import component, given, value
from nanolm.interview.params import used
from nanolm.interview.problem import Mistake, Problem, Row, rows_of, short, shown, summed
from nanolm.interview.quantity import TIME, WORK
from nanolm.ops import distinct_experts
from nanolm.spec import Spec
from nanolm.units import GB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nanolm.budget import Account
    from nanolm.interview.draw import Dice

DAY = 86_400


def plain_rate(rate: float) -> str:
    """Скорость числом для решения: «989,5·10¹²»."""
    return units.decimal(rate / 10**12, 1).removesuffix(",0") + "·10¹²"


# --- FLOPs --------------------------------------------------------------------------------------


def matrices(spec: Spec) -> list[Line]:
    """Строки матриц слоёв, через которые проходит токен: их сумма и есть N из 6N, без норм и смещений."""
    lines = parameter_breakdown(spec).details
    return component(used(lines, spec.experts_per_token), "attention", "ffn", "router")


def six_n(spec: Spec, training: bool = True) -> int:
    """FLOPs на токен без внимания и головы: по счёту это 6N, а прямой проход — 2N."""
    account = flops_per_token(spec, 1, training=training)
    return account["attention"] + account["ffn"] + account["router"]


def forward(dice: Dice) -> Problem:
    """2N: прямой проход на токен."""
    _, spec = models.classic(dice)
    N, answer = value(matrices(spec)), six_n(spec, training=False)
    return Problem(
        title="FLOPs прямого прохода",
        text="Сколько FLOPs стоит прямой проход на один токен? Внимание к контексту и выходную голову не считайте: "
        "нужны только матрицы слоёв. Ответ — в GFLOPs.",
        given=[("Nпар", "параметров в матрицах слоёв", short(N))],
        dimension=WORK, unit="GFLOPs", answer=answer, tolerance=0.05,
        rows=[
            Row("прямой проход", "2·Nпар", f"2·{units.number(N)}", answer, "FLOPs"),
            Row("ответ", "", f"{units.number(answer)} / 10⁹", answer / GB, "GFLOPs"),
        ],
        advice=f"Каждый параметр матрицы — одно умножение и одно сложение: 2 · {short(N)}.",
        hints=("Что делает токен с каждым параметром матрицы?", "Умножить и сложить — две операции на параметр."),
        mistakes=[
            Mistake("macs", answer / 2),
            Mistake("training-for-forward", six_n(spec)),
            Mistake("backward-only", 2 * answer),
        ],
    )  # fmt: skip


def whole_training(dice: Dice) -> Problem:
    """6·N·T: всё обучение."""
    _, spec = models.classic(dice)
    tokens = dice.choice((100, 200, 300, 500, 1000, 1500, 2000, 3000, 5000, 10_000, 15_000)) * 10**9
    N = value(matrices(spec))
    answer = six_n(spec) * tokens
    return Problem(
        title="FLOPs обучения",
        text=f"Сколько FLOPs стоит обучение на {short(tokens)} токенов по правилу 6N? Ответ — в FLOPs.",
        given=[("Nпар", "параметров в матрицах слоёв", short(N)), ("", "токенов обучения", short(tokens))],
        dimension=WORK, unit="FLOPs", answer=answer, tolerance=0.05,
        rows=[Row("обучение", "6·Nпар·токены", f"6·{units.number(N)}·{units.number(tokens)}", answer, "FLOPs")],
        advice=f"Миллиард на триллион — 10²¹. Здесь 6 · {short(N)} · {short(tokens)} ≈ {units.scientific(answer, 1)}.",
        hints=(
            "Сколько операций на параметр и токен стоят прямой проход и обратный вместе?",
            "Прямой — 2, обратный вдвое дороже — 4.",
            "Шесть, умноженное на параметры и на токены.",
        ),
        mistakes=[
            Mistake("forward-only", answer / 3),
            Mistake("backward-only", answer * 2 / 3),
            Mistake("macs", answer / 2),
            Mistake("factor-forgotten", answer / 6),
            Mistake("tokens-forgotten", answer / tokens, required=False),
        ],
    )  # fmt: skip


def exact(dice: Dice) -> Problem:
    """Обучение на токен со вниманием и головой."""
    title, spec = models.dense(dice)
    return _exact(title, spec, 1024 * dice.choice((4, 8, 16, 32)), "full")


def conventions(dice: Dice) -> Problem:
    """То же под причинной маской или у смеси."""
    if dice.below(2):
        title, spec = models.dense(dice)
        return _exact(title, spec, 1024 * dice.choice((8, 16, 32, 64)), "causal")
    title, spec = models.mixture(dice)
    return _exact(title, spec, 1024 * dice.choice((4, 8, 16)), dice.choice(("full", "causal")))


_ATTENTION = {
    "full": "внимание по полному квадрату, то есть запрос умножается на все S ключей",
    "causal": "внимание под причинной маской, то есть запрос видит в среднем (S + 1)/2 ключей",
}


def _exact(title: str, spec: Spec, S: int, attention: str) -> Problem:
    account = flops_per_token(spec, S, attention=attention)
    answer = account.total
    other = "causal" if attention == "full" else "full"
    mixed = bool(spec.experts)
    return Problem(
        title="FLOPs на токен",
        text=f"{models.about(title)} Сколько FLOPs на токен стоит обучение, прямой и обратный проход, при контексте "
        f"S = {units.number(S)}? Соглашение — {_ATTENTION[attention]}. Выходная голова входит. Ответ — в GFLOPs.",
        given=[*given(spec, "VDLNKHFEk"), ("S", "длина последовательности", units.number(S))],
        dimension=WORK, unit="GFLOPs", answer=answer, tolerance=0.03, rows=_work_rows(account),
        advice=_exact_advice(account, attention),
        hints=(
            "Работа — это произведения с весами слоёв, произведения внимания и выходная голова.",
            "С весами слоёв — 6N" + (", где N — активные параметры" if mixed else "") + "; голова — ещё 6VD.",
            "Внимание: два произведения на слой, каждое — 2·NH операций на ключ, и всё это трижды.",
        ),
        mistakes=[
            Mistake("scores-forgotten", answer - account["scores"]),
            Mistake("head-work-forgotten", answer - account["lm_head"], required=False),
            Mistake("forward-only", answer / 3),
            Mistake("macs", answer / 2),
            Mistake("backward-only", answer * 2 / 3, required=False),
            Mistake(f"{other}-for-{attention}", flops_per_token(spec, S, attention=other).total),
            Mistake("total-for-active", answer + 6 * _idle(spec)) if mixed else None,
            Mistake("embeddings-in-6n", answer + 6 * spec.V * spec.D, required=False),
        ],
    )  # fmt: skip


def _work_rows(account: Account) -> list[Row]:
    rows = summed(rows_of(account.details, "FLOPs"), "всего на токен")
    total = rows[-1].value
    return [*rows, Row("ответ", "", f"{shown(total)} / 10⁹", total / GB, "GFLOPs")]


def _exact_advice(account: Account, attention: str) -> str:
    layers = account["attention"] + account["ffn"] + account["router"]
    half = "" if attention == "full" else " (половина квадрата)"
    return (
        f"6N — {short(layers)}, внимание{half} — {short(account['scores'])}, голова 6VD — {short(account['lm_head'])}."
    )


def _idle(spec: Spec) -> int:
    """Параметры экспертов, которых токен не выбрал."""
    details = component(parameter_breakdown(spec).details, "ffn")
    return value(details) - value(used(details, spec.experts_per_token))


# --- Время обучения -----------------------------------------------------------------------------


def days_rule(dice: Dice) -> Problem | None:
    """Правило 6N, круглая модель."""
    _, spec = models.classic(dice)
    return _rule(dice, "", spec, 0.05)


def days_mixture(dice: Dice) -> Problem | None:
    """Правило 6N у смеси: N — активные параметры."""
    title, spec = models.mixture(dice)
    return _rule(dice, title, spec, 0.03)


def _setup(dice: Dice) -> tuple[int, Gpu, int, float]:
    tokens = dice.choice((100, 200, 300, 500, 1000, 1500, 2000, 3000, 5000, 10_000, 15_000)) * 10**9
    card = models.card(dice, models.TRAINING_CARDS)
    return tokens, card, 2 ** (3 + dice.below(9)), dice.choice((0.3, 0.35, 0.4, 0.45, 0.5))


def _rule(dice: Dice, title: str, spec: Spec, tolerance: float) -> Problem | None:
    tokens, card, gpus, mfu = _setup(dice)
    N, rows = value(matrices(spec)), [_six_n_row(spec, tokens)]
    count = [("Nпар", "параметров в матрицах слоёв", short(N))]
    idle = _idle(spec) if spec.experts else 0
    if idle:
        count = [("", "параметров в матрицах слоёв, всего", short(N + idle)), ("Nпар", "из них активных", short(N))]
    extra = Mistake("total-for-active", 1 + idle / N) if idle else None
    about = models.about(title) if title else ""
    return _days(about, count, rows, (tokens, card, gpus, mfu), "по правилу 6N", tolerance, [extra])


def days_exact(dice: Dice) -> Problem | None:
    """Полный счёт: внимание и голова."""
    title, spec = models.dense(dice)
    return _days_exact(title, spec, 1024 * dice.choice((4, 8, 16)), "full", _setup(dice))


def days_long(dice: Dice) -> Problem | None:
    """Длинный контекст под причинной маской."""
    title, spec = models.dense(dice)
    return _days_exact(title, spec, 1024 * dice.choice((16, 32, 64)), "causal", _setup(dice))


def days_of(title: str, spec: Spec, tokens: int, card: Gpu, gpus: int, mfu: float) -> Problem | None:
    """Сутки обучения этой модели по правилу 6N."""
    what = "активных параметров в матрицах слоёв" if spec.experts else "параметров в матрицах слоёв"
    count = [("Nпар", what, short(value(matrices(spec))))]
    setup = (tokens, card, gpus, mfu)
    return _days(models.about(title), count, [_six_n_row(spec, tokens)], setup, "по правилу 6N", 0.05, [])


def _six_n_row(spec: Spec, tokens: int) -> Row:
    """Работа обучения по правилу 6N."""
    N = value(matrices(spec))
    return Row("работа", "6·Nпар·токены", f"6·{units.number(N)}·{units.number(tokens)}", six_n(spec) * tokens, "FLOPs")


def _days_exact(title: str, spec: Spec, S: int, attention: str, setup: tuple[int, Gpu, int, float]) -> Problem | None:
    tokens, card, gpus, mfu = setup
    account = flops_per_token(spec, S, attention=attention)
    answer = training_time(spec, tokens, card, gpus, mfu, S, attention)
    rows = summed(rows_of(account.details, "FLOPs"), "на токен")
    numbers = f"{units.number(account.total)}·{units.number(tokens)}"
    rows.append(Row("работа", "FLOPs на токен · токены", numbers, answer.flops, "FLOPs"))
    other = "causal" if attention == "full" else "full"
    extra = [
        Mistake("scores-forgotten", 1 - account["scores"] / account.total),
        Mistake(f"{other}-for-{attention}", flops_per_token(spec, S, attention=other).total / account.total),
    ]
    count = [*given(spec, "VDLNKHF"), ("S", "длина последовательности", units.number(S))]
    how = f"при контексте S = {units.number(S)}: {_ATTENTION[attention]}; выходная голова входит"
    return _days(models.about(title), count, rows, setup, how, 0.03, extra)


def _days(
    about: str, count: list[models.Given], work: list[Row], setup: tuple[int, Gpu, int, float], how: str,
    tolerance: float, extra: Sequence[Mistake | None],
) -> Problem | None:  # fmt: skip
    """Время обучения. `extra` — ошибки этого варианта, их числа — доли верного ответа."""
    tokens, card, gpus, mfu = setup
    rate = card.rate(card.best_16bit)
    answer = work[-1].value / (gpus * rate * mfu)
    if not 3 * 3600 < answer < 2000 * DAY:
        return None
    unit, step = ("сут", DAY) if answer >= 2 * DAY else ("ч", 3600)
    speed = f"{gpus}·{plain_rate(rate)}·{units.decimal(mfu)}"
    rows = [
        *work,
        Row("скорость", "карты·пик·MFU", speed, gpus * rate * mfu, "FLOP/s"),
        Row("время", "работа / скорость", f"{_plain(work[-1].value)} / ({_plain(gpus * rate * mfu)})", answer, "с"),
        Row("ответ", "", f"{shown(answer)} / {units.number(step)}", answer / step, unit),
    ]
    extra = [one and Mistake(one.id, one.value * answer, one.required) for one in extra]
    cards = units.counted(gpus, "карта", "карты", "карт")
    return Problem(
        title="Время обучения",
        text=f"{about} Сколько длится обучение на {short(tokens)} токенов, если работают {cards} {card.title}? "
        f"Считайте {how}. Ответ — в {'сутках' if unit == 'сут' else 'часах'}.".strip(),
        given=[*count, ("", "токенов обучения", short(tokens)), ("", "карт", units.number(gpus)),
               *models.card_rows(card, "rate"), ("MFU", "доля пика на полезную работу", units.percent(mfu, 0))],
        dimension=TIME, unit=unit, answer=answer, tolerance=tolerance, rows=rows,
        advice=f"Работа {units.scientific(work[-1].value, 1)}, скорость {units.scientific(gpus * rate * mfu, 1)}: "
        f"степени вычитаются. {'В сутках 8,64·10⁴ секунд' if unit == 'сут' else 'В часе 3,6·10³ секунд'}.",
        hints=(
            "Время — это работа, делённая на скорость. Найдите их по отдельности.",
            "Скорость — пик всех карт, но не весь, а его доля MFU.",
            (
                f"Поделите работу на скорость: выйдут секунды. В {'сутках' if unit == 'сут' else 'часе'} их "
                f"{units.number(step)}."
            ),
        ),
        mistakes=[
            *extra,
            Mistake("forward-only", answer / 3),
            Mistake("mfu-forgotten", answer * mfu),
            Mistake("gpus-forgotten", answer * gpus),
            Mistake("mfu-inverted", answer * mfu * mfu, required=False),
            Mistake("backward-only", answer * 2 / 3, required=False),
            Mistake("factor-forgotten", answer / 6, required=False),
            Mistake("macs", answer / 2, required=False),
        ],
    )  # fmt: skip


def _plain(value: float) -> str:
    """Большое число для решения: «1,2345·10²²»."""
    return units.scientific(value, 4)


# --- Шаг генерации ------------------------------------------------------------------------------


def step_one(dice: Dice) -> Problem | None:
    """Один запрос с коротким контекстом: время — чтение весов."""
    title, spec = models.dense(dice)
    return _step(title, spec, 1, 16, models.card(dice, models.SERVING_CARDS), 0.05)


def step_batch(dice: Dice) -> Problem | None:
    """Пакет с длинным контекстом: веса и кеш."""
    title, spec = models.dense(dice, gqa=True)
    B, S = dice.choice((8, 16, 32, 64)), 1024 * dice.choice((2, 4, 8, 16))
    return _step(title, spec, B, S, models.card(dice, models.SERVING_CARDS), 0.03)


def step_mixture(dice: Dice) -> Problem | None:
    """Смесь: читаются только выбранные эксперты."""
    title, spec = models.mixture(dice)
    if not title:  # выдуманной смеси хватит и половины слоёв, а то она не поместится ни на одну карту
        spec = spec.replace(L=max(8, spec.L // 4))
    B, S = dice.choice((1, 2, 4, 8, 16, 32)), 1024 * dice.choice((1, 2, 4))
    return _step(title, spec, B, S, models.card(dice, models.SERVING_CARDS[-3:]), 0.03)


def _step(title: str, spec: Spec, B: int, S: int, card: Gpu, tolerance: float) -> Problem | None:
    step = decode_step_time(spec, B, S, card, "bf16")
    held = parameter_breakdown(spec).total * DTYPES["bf16"] + step.cache_bytes
    if step.bound != "память" or held > card.usable_bytes:
        return None
    light = S < 100
    cache, weights, band = (0 if light else step.cache_bytes), step.weight_bytes, card.bandwidth_bytes_per_s
    answer = (weights + cache) / band
    base, one = _reading(spec, B, weights)
    rows = _read_rows(spec, B, weights, base, one)
    if not light:
        rows += summed(rows_of(kv_cache_bytes(spec, B, S).details, "Б"), "кеш KV")
        rows.append(Row("прочитать", "веса + кеш", f"{shown(weights)} + {shown(cache)}", weights + cache, "Б"))
    rows += [
        Row("время", "байты / полоса", f"{_plain(weights + cache)} / ({_plain(band)})", answer, "с"),
        Row("ответ", "", f"{_plain(answer)}·10³", answer * 1000, "мс"),
    ]
    context = (
        "контекст короткий, кешем можно пренебречь"
        if light
        else f"контекст — {units.counted(S, 'токен', 'токена', 'токенов')}"
    )
    about = models.about(title) if title or not light else ""
    batch = "одного запроса" if B == 1 else f"пакета из {units.counted(B, 'запроса', 'запросов', 'запросов')}"
    return Problem(
        title="Шаг генерации",
        text=f"{about} За сколько карта {card.title} прочитает всё, что нужно одному шагу генерации {batch}? Веса "
        f"и кеш в bf16; {context}. Вычисления идут одновременно и быстрее. Ответ — в мс.".strip(),
        given=[*_read_given(spec, base, one), *([] if light else [*given(spec, "LNKH"), *models.token_batch(B, S)]),
               *models.card_rows(card, "bandwidth")],
        dimension=TIME, unit="мс", answer=answer, tolerance=tolerance, rows=rows,
        advice=f"Гигабайты на ТБ/с — сразу миллисекунды: {short((weights + cache) / GB)} / {short(band / 10**12)}.",
        hints=(
            "Шаг генерации обычно ждёт память: сколько байт надо прочитать?",
            "Веса читаются один раз на шаг" + ("." if light else ", кеш — у каждой последовательности свой."),
            "Поделите байты на полосу памяти карты.",
        ),
        mistakes=_step_mistakes(spec, B, S, cache, weights, band, base, one),
    )  # fmt: skip


def _reading(spec: Spec, B: int, weights: float) -> tuple[int, int]:
    """Параметры, которые читает шаг: вне экспертов и у одного эксперта во всех слоях. `weights` — все его байты."""
    if not spec.experts:
        return round(weights / DTYPES["bf16"]), 0
    lines = [line for line in parameter_breakdown(spec).details if line.component == "ffn"]
    one = value(used([line for line in lines if "E" in dict(line.factors)], 1))
    return round(weights / DTYPES["bf16"] - distinct_experts(spec.experts, spec.experts_per_token, B) * one), one


def _read_given(spec: Spec, base: int, one: int) -> list[models.Given]:
    """Что прочитать из весов: всё, кроме таблицы эмбеддинга, а у смеси — отдельно эксперт."""
    if not spec.experts:
        return [("", "параметров, которые читает шаг", short(base))]
    return [("", "параметров вне экспертов, которые читает шаг", short(base)),
            ("", "параметров у одного эксперта во всех слоях", short(one)), *given(spec, "Ek")]  # fmt: skip


def _read_rows(spec: Spec, B: int, weights: float, base: int, one: int) -> list[Row]:
    if not spec.experts:
        return [Row("веса", "2·P", f"2·{units.number(base)}", base * DTYPES["bf16"], "Б")]
    E, k = spec.experts, spec.experts_per_token
    count = distinct_experts(E, k, B)
    power = str(B).translate(_RAISED)
    return [
        Row("разных экспертов", "E·(1 − (1 − k/E)^B)", f"{E}·(1 − (1 − {k}/{E}){power})", count),
        Row(
            "веса",
            "2·(P + эксперты·P₁)",
            f"2·({units.number(base)} + {shown(count)}·{units.number(one)})",
            weights,
            "Б",
        ),
    ]


_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def _step_mistakes(
    spec: Spec, B: int, S: int, cache: int, weights: float, band: int, base: int, one: int
) -> list[Mistake | None]:
    E, k, size = spec.experts, spec.experts_per_token, DTYPES["bf16"]
    heads = kv_cache_bytes(spec.replace(K=spec.N), B, S).total if cache else 0
    both = weights + cache

    def experts(count: float) -> float:
        return ((base + count * one) * size + cache) / band

    found: list[Mistake | None] = [
        Mistake("fp32-for-dtype", 2 * both / band),
        Mistake("bytes-forgotten", both / 2 / band),
        Mistake("bits-for-bytes", 8 * both / band, required=False),
    ]
    if cache:
        found += [
            Mistake("cache-forgotten", weights / band, not E),
            Mistake("weights-forgotten", cache / band, required=False),
            Mistake("query-heads", (weights + heads) / band, not E),
            Mistake("cache-batch-forgotten", (weights + cache / B) / band, not E) if B > 1 else None,
            Mistake("weights-per-sequence", (weights * B + cache) / band, not E) if B > 1 else None,
        ]
    if E:
        found += [
            Mistake("all-experts", experts(E)),
            Mistake("k-experts", experts(k)) if B > 1 else None,
            Mistake("every-choice", experts(min(E, B * k)), required=False) if B > 1 else None,
        ]
    return found
