"""Задачи о кеше KV: байты токена, байты пакета, пакет, при котором кеш весит столько же, сколько веса.

Кеш — это ключ и значение на каждый токен, слой и голову K: 2·B·S·L·K·H·байт. Окно урезает S, латентное внимание
заменяет 2KH сжатым вектором C + R.
"""

from __future__ import annotations

from nanolm import units
from nanolm.budget import DTYPES, crossover_batch, kv_cache_bytes, parameter_breakdown
from nanolm.interview import models
from nanolm.interview.models import edited, given, token_batch
from nanolm.interview.problem import Mistake, Problem, Row, rows_of, short, shown, summed
from nanolm.interview.quantity import BATCH, SIZE, trimmed
from nanolm.spec import Spec
from nanolm.units import GIB, KIB, MIB, NBSP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nanolm.budget import Account, Line
    from nanolm.interview.draw import Dice

_POWERS = {"КиБ": (KIB, "2¹⁰"), "МиБ": (MIB, "2²⁰"), "ГиБ": (GIB, "2³⁰"), "ТиБ": (1024**4, "2⁴⁰")}


def unit_for(size: float) -> str:
    """Самая крупная двоичная единица, в которой есть хотя бы одна целая."""
    return next((name for name, (step, _) in reversed(_POWERS.items()) if size >= step), "КиБ")


def in_binary(rows: Sequence[Row], unit: str) -> list[Row]:
    """Строки, сумма и она же в двоичных единицах."""
    full = summed(rows)
    step, mark = _POWERS[unit]
    total = full[-1].value
    return [*full, Row("ответ", "", f"{shown(total)} / {mark}", total / step, unit)]


def precision(dtype: str) -> str:
    """«в bf16, по 2 байта на значение»."""
    size = DTYPES[dtype]
    return f"в {dtype}, по {'одному байту' if size == 1 else f'{size}{NBSP}байта'} на значение"


# --- Кеш ----------------------------------------------------------------------------------------


def per_token(dice: Dice) -> Problem:
    """Байты одного токена: круглая модель, K = N."""
    _, spec = models.classic(dice)
    dtype = dice.choice(("bf16", "bf16", "fp16", "fp8"))
    return cache_of("", spec, 1, 1, dtype, one_token=True)


def round_batch(dice: Dice) -> Problem:
    """Пакет круглой модели."""
    _, spec = models.classic(dice)
    return cache_of("", spec, dice.choice((2, 4, 8, 16, 32)), 1024 * dice.choice((2, 4, 8, 16)), "bf16")


def grouped(dice: Dice) -> Problem:
    """Пакет модели с GQA."""
    title, spec = models.dense(dice, gqa=True)
    B, S = dice.choice((1, 4, 6, 8, 12, 16, 24, 32, 48, 64)), 1024 * dice.choice((2, 4, 6, 8, 16, 32))
    return cache_of(title, spec, B, S, dice.choice(("bf16", "bf16", "fp16", "fp8")))


def cache_of(title: str, spec: Spec, B: int, S: int, dtype: str, one_token: bool = False) -> Problem:
    """Кеш обычного внимания без окон."""
    account = kv_cache_bytes(spec, B, S, dtype)
    answer, unit = account.total, unit_for(account.total)
    question = (
        "Сколько памяти добавляет к кешу KV каждый новый токен"
        if one_token
        else f"Сколько памяти займёт кеш KV {models.sequences(B, S)}"
    )
    token = kv_cache_bytes(spec, 1, 1, dtype).total
    scale = "" if one_token else f"Токенов B·S = {units.number(B * S)}: умножьте на них."
    return Problem(
        title="Кеш KV одного токена" if one_token else "Кеш KV",
        text=f"{models.about(title)} {question}? Кеш хранится {precision(dtype)}. Ответ — в {unit}.",
        given=[*given(spec, "DLNKH"), *([] if one_token else token_batch(B, S))],
        dimension=SIZE, unit=unit, answer=answer, tolerance=0.05 if spec.K == spec.N else 0.03,
        rows=in_binary(rows_of(account.details, "Б"), unit),
        advice=f"На токен: 2·L·K·H·{DTYPES[dtype]} = {trimmed(units.binary_bytes(token))}. {scale}".rstrip(),
        hints=(
            "Что модель хранит о прошлых токенах, чтобы не считать заново?",
            "На каждый токен, в каждом слое и в каждой из K голов лежат два вектора длины H.",
            "Перемножьте 2, " + ("" if one_token else "B, S, ") + "L, K, H и байты значения.",
        ),
        mistakes=_cache_mistakes(spec, B, S, dtype, account),
    )  # fmt: skip


def _cache_mistakes(spec: Spec, B: int, S: int, dtype: str, account: Account) -> list[Mistake | None]:
    lines = account.details
    size = f"байт[{dtype}]"
    heads = kv_cache_bytes(spec.replace(K=spec.N), B, S, dtype).total
    return [
        Mistake("query-heads", heads) if spec.K < spec.N else None,
        Mistake("factor-two-forgotten", account["key"]),
        Mistake("layers-forgotten", edited(lines, drop=("L",))),
        Mistake("batch-forgotten", edited(lines, drop=("B",)), required=False) if B > 1 else None,
        Mistake("length-forgotten", edited(lines, drop=("S",)), required=False) if S > 1 else None,
        Mistake("fp32-for-dtype", edited(lines, swap={size: 4}), required=False),
        Mistake("bf16-for-dtype", edited(lines, swap={size: 2}), required=False) if DTYPES[dtype] == 1 else None,
        Mistake("bytes-forgotten", edited(lines, drop=(size,)), required=False) if DTYPES[dtype] > 1 else None,
        Mistake("bits-for-bytes", 8 * account.total, required=False),
    ]


def sliding(dice: Dice) -> Problem:
    """Кеш модели с окнами: сколько нужно вниманию или сколько резервирует движок."""
    title, spec = models.windowed(dice)
    B, S = dice.choice((1, 2, 4, 8, 16)), 1024 * dice.choice((8, 16, 32, 64))
    kv = dice.choice(("theory", "theory", "engine"))
    account = kv_cache_bytes(spec, B, S, kv=kv)
    theory, engine = (kv_cache_bytes(spec, B, S, kv=name) for name in ("theory", "engine"))
    W = next(width for width in spec.windows if width)
    full = sum(width is None for width in spec.windows)
    rule = (
        "Слой с окном хранит только последние W токенов."
        if kv == "theory"
        else "Движок об окнах не знает и резервирует весь контекст в каждом слое."
    )
    unit = unit_for(account.total)
    only = sum(line.value for line in theory.details if not any("всё" in letter for letter, _ in line.factors))
    return Problem(
        title="Кеш KV с окнами",
        text=f"{models.about(title)} {units.counted(full, 'слой видит', 'слоя видят', 'слоёв видят')} весь контекст, "
        f"остальные — окно W. {rule} Сколько памяти займёт кеш KV {models.sequences(B, S)}? "
        f"Кеш хранится {precision('bf16')}. Ответ — в {unit}.",
        given=[*given(spec, "LNKH"), ("W", "ширина окна", units.number(W)), *token_batch(B, S)],
        dimension=SIZE, unit=unit, answer=account.total, tolerance=0.03,
        rows=in_binary(rows_of(account.details, "Б"), unit),
        advice=f"Токен-слоёв без окна {full}·S, с окном {spec.L - full}·min(S, W); каждый стоит 2·K·H·2 байта."
        if kv == "theory"
        else "Когда движок не знает об окнах, это обычная формула: 2·B·S·L·K·H·2.",
        hints=(
            "Разделите слои на две группы: с окном и без.",
            "Слой без окна держит S токенов, с окном — min(S, W), если место не зарезервировано целиком.",
            "Токен в одном слое стоит 2·K·H·2 байта.",
        ),
        mistakes=[
            Mistake("window-ignored", engine.total) if kv == "theory" else Mistake("window-assumed", theory.total),
            Mistake("window-everywhere", kv_cache_bytes(spec.replace(window=W), B, S).total),
            Mistake("window-layers-only", only),
            Mistake("query-heads", kv_cache_bytes(spec.replace(K=spec.N), B, S, kv=kv).total),
            Mistake("factor-two-forgotten", account["key"], required=False),
            Mistake("batch-forgotten", account.total / B, required=False) if B > 1 else None,
        ],
    )  # fmt: skip


def latent(dice: Dice) -> Problem:
    """Кеш латентного внимания: сжатый или восстановленный."""
    title, spec = models.latent(dice)
    B, S = dice.choice((1, 4, 8, 16, 32)), 1024 * dice.choice((4, 8, 16, 32, 64))
    squeezed = bool(dice.below(3))
    kv = "theory" if squeezed else "uncompressed"
    account = kv_cache_bytes(spec, B, S, kv=kv)
    unit, answer = unit_for(account.total), account.total
    other = kv_cache_bytes(spec, B, S, kv="uncompressed" if squeezed else "theory").total
    rule = (
        "Хранится сжатый вектор: C чисел и ещё R чисел ключа, одни на все головы."
        if squeezed
        else "Сжатием не пользуются: хранятся восстановленные ключ (H + R) и значение (U) каждой головы."
    )
    lines = account.details
    if squeezed:
        mistakes = [
            Mistake("latent-uncompressed", other),
            Mistake("latent-doubled", 2 * answer),
            Mistake("rope-forgotten", edited(lines, swap={"(C+R)": spec.kv_rank}), required=False),
        ]
    else:
        mistakes = [Mistake("latent-compressed", other), Mistake("factor-two-forgotten", account["key"], False)]
    return Problem(
        title="Кеш латентного внимания",
        text=f"{models.about(title)} {rule} Сколько памяти займёт кеш {models.sequences(B, S)}? "
        f"Кеш хранится {precision('bf16')}. Ответ — в {unit}.",
        given=[*given(spec, "LNHCRU"), *token_batch(B, S)],
        dimension=SIZE, unit=unit, answer=answer, tolerance=0.03, rows=in_binary(rows_of(lines, "Б"), unit),
        advice="На токен и слой — C + R чисел, двойки перед ними нет: ключ и значение получаются из одного вектора."
        if squeezed
        else "На токен, слой и голову — H + R чисел ключа и U чисел значения.",
        hints=(
            "Что лежит в кеше по условию: сжатый вектор или ключи и значения голов?",
            "Посчитайте числа на один токен в одном слое.",
            "Умножьте на B, S, L и байты значения" + ("; головы в формулу не входят." if squeezed else " и на N."),
        ),
        mistakes=[
            *mistakes,
            Mistake("layers-forgotten", edited(lines, drop=("L",))),
            Mistake("batch-forgotten", answer / B, required=False) if B > 1 else None,
            Mistake("fp32-for-dtype", edited(lines, swap={"байт[bf16]": 4}), required=False),
        ],
    )  # fmt: skip


# --- Пакет, при котором кеш равен весам ---------------------------------------------------------


def crossover_round(dice: Dice) -> Problem:
    """Веса и кеш токена даны числами: остаётся поделить."""
    _, spec = models.classic(dice, S=1024 * dice.choice((1, 2, 4, 8)))
    token = kv_cache_bytes(spec, 1, 1).total
    row = ("", "кеш KV одного токена", trimmed(units.binary_bytes(token)))
    return _crossover("", spec, [row], tolerance=0.05)


def crossover(dice: Dice) -> Problem:
    """Настоящая геометрия с GQA."""
    title, spec = models.dense(dice, gqa=True)
    spec = spec.replace(S=1024 * dice.choice((2, 4, 8, 16, 32)))
    return _crossover(models.about(title), spec, given(spec, "LNKH"))


def crossover_unusual(dice: Dice) -> Problem:
    """Окна или латентное внимание."""
    kind = dice.choice((models.windowed, models.latent))
    title, spec = kind(dice)
    spec = spec.replace(S=1024 * dice.choice((4, 8, 16, 32)))
    rows = given(spec, "LNHCRU" if spec.kv_rank else "LNKH")
    widths = [width for width in spec.windows if width]
    if widths:
        full = units.counted(spec.L - len(widths), "слой", "слоя", "слоёв")
        rows += [("W", "ширина окна", units.number(widths[0])), ("", "видят весь контекст", full)]
    return _crossover(models.about(title), spec, rows)


def _crossover(about: str, spec: Spec, rows: list[models.Given], tolerance: float = 0.03) -> Problem:
    total = parameter_breakdown(spec).total
    account = kv_cache_bytes(spec, 1)
    answer, weights = crossover_batch(spec), total * DTYPES["bf16"]
    lines: Sequence[Line] = account.details
    cache = summed(rows_of(lines, "Б"), "кеш одной последовательности")
    solution = [
        Row("веса", "2·P", f"2·{units.number(total)}", weights, "Б"),
        *cache,
        Row("ответ", "веса / кеш", f"{units.number(weights)} / {units.number(account.total)}", answer, ""),
    ]
    return Problem(
        title="Когда кеш догонит веса",
        text=f"{about} При каком размере пакета B кеш KV занимает столько же, сколько веса? "
        f"Контекст S = {units.number(spec.S)}; веса и кеш в bf16. Округлять до целого не надо.".strip(),
        given=[("P", "параметров", short(total)), *rows, ("S", "длина последовательности", units.number(spec.S))],
        dimension=BATCH, unit="", answer=answer, tolerance=tolerance, rows=solution,
        advice=f"Кеш одной последовательности — {trimmed(units.binary_bytes(account.total))}, веса — "
        f"{trimmed(units.binary_bytes(weights))}: сколько раз первое укладывается во второе.",
        hints=(
            "Веса одни на весь пакет, а кеш у каждой последовательности свой.",
            "Посчитайте байты весов и байты кеша одной последовательности.",
            "Во сколько раз веса больше этого кеша? Столько последовательностей и нужно.",
        ),
        mistakes=_crossover_mistakes(spec, answer, weights, total),
    )  # fmt: skip


def _crossover_mistakes(spec: Spec, answer: float, weights: int, total: int) -> list[Mistake | None]:
    heads = crossover_batch(spec.replace(K=spec.N)) if spec.K < spec.N else None
    ordinary = kv_cache_bytes(spec, 1, kv="uncompressed").total if spec.kv_rank else None
    windows = any(spec.windows) and kv_cache_bytes(spec, 1, kv="engine").total
    per_token = kv_cache_bytes(spec, 1, 1).total
    return [
        None if spec.kv_rank else Mistake("factor-two-forgotten", 2 * answer),
        Mistake("query-heads", heads) if heads else None,
        Mistake("latent-uncompressed", weights / ordinary) if ordinary else None,
        Mistake("latent-doubled", answer / 2) if spec.kv_rank else None,
        Mistake("window-ignored", weights / windows) if windows else None,
        Mistake("inverted", 1 / answer, required=False),
        Mistake("length-forgotten", weights / per_token),
        Mistake("weight-bytes-forgotten", total / (weights / answer), required=False),
        Mistake("bits-for-bytes", answer / 8, required=False),
    ]
