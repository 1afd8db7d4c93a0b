"""Задачи о параметрах: плотная модель и смесь экспертов.

В уме считают слой: 4D² у внимания без GQA и 8D² у полносвязного блока. Всё остальное — поправки к этому: головы K
вместо N, три матрицы вместо двух, таблица словаря, эксперты.
"""

from __future__ import annotations

from nanolm import units
from nanolm.budget import Line, parameter_breakdown
from nanolm.interview import models
from nanolm.interview.models import component, edited, given, value
from nanolm.interview.problem import Mistake, Problem, Row, rows_of, short, summed
from nanolm.interview.quantity import COUNT
from nanolm.spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nanolm.interview.draw import Dice


def unit_for(amount: float) -> str:
    """Слово, в котором просим ответ."""
    return "млрд" if amount >= 1e9 else "млн"


def as_words(rows: Sequence[Row]) -> list[Row]:
    """Строки, сумма и она же словом: «8,03 млрд»."""
    full = summed(rows)
    total = full[-1].value
    unit = unit_for(total)
    power, mark = (10**9, "10⁹") if unit == "млрд" else (10**6, "10⁶")
    return [*full, Row("ответ", "", f"{units.number(int(total))} / {mark}", total / power, unit)]


# --- Плотная модель -----------------------------------------------------------------------------


def stack(dice: Dice) -> Problem:
    """12LD²: матрицы всех слоёв круглой модели."""
    _, spec = models.classic(dice)
    account = parameter_breakdown(spec)
    lines = component(account.details, "attention", "ffn")
    answer, square = value(lines), spec.D**2
    return Problem(
        title="Параметры слоёв",
        text="Сколько параметров в матрицах всех слоёв? Нормы, эмбеддинг и выходную голову не считайте. "
        f"Головы не урезаны: NH = KH = D. Ответ — в {unit_for(answer)}.",
        given=[*given(spec, "LDNKHF"), models.blocks(spec)],
        dimension=COUNT, unit=unit_for(answer), answer=answer, tolerance=0.05, rows=as_words(rows_of(lines)),
        advice="Без GQA внимание — четыре матрицы D × D, простой блок с F = 4D — две по 4D²: вместе 12D² на слой. "
        f"D² ≈ {short(square)}, двенадцать таких — {short(12 * square)}, умножить на L = {spec.L} — {short(answer)}.",
        hints=(
            "Посчитайте один слой и умножьте на их число.",
            "В слое четыре матрицы внимания и две матрицы полносвязного блока.",
            "Внимание — 4D², блок при F = 4D — ещё 8D².",
        ),
        mistakes=[
            Mistake("attention-forgotten", account["ffn"]),
            Mistake("ffn-forgotten", account["attention"]),
            Mistake("layers-forgotten", edited(lines, drop=("L",))),
            Mistake("ffn-width", answer - account["ffn"] + parameter_breakdown(spec.replace(F=spec.D))["ffn"]),
            Mistake("ffn-three-matrices", edited(lines) + account["ffn"] / 2),
        ],
    )  # fmt: skip


def vocabulary(dice: Dice) -> Problem:
    """2VD: таблица словаря на входе и на выходе."""
    _, spec = models.classic(dice)
    lines = component(parameter_breakdown(spec).details, "embedding", "lm_head")
    answer = value(lines)
    return Problem(
        title="Таблицы словаря",
        text="Сколько параметров в эмбеддинге и выходной голове вместе? Это две отдельные матрицы. "
        f"Ответ — в {unit_for(answer)}.",
        given=given(spec, "VDL"), dimension=COUNT, unit=unit_for(answer), answer=answer, tolerance=0.05,
        rows=as_words(rows_of(lines)),
        advice=f"V·D = {short(spec.V)} · {short(spec.D)} ≈ {short(answer / 2)}, и таких матриц две.",
        hints=("Какого размера таблица, в которой у каждого токена словаря своя строка?", "Таблиц две, V × D каждая."),
        mistakes=[
            Mistake("head-forgotten", answer / 2),
            Mistake("embedding-per-layer", answer * spec.L),
        ],
    )  # fmt: skip


def whole(dice: Dice) -> Problem:
    """Все параметры плотной модели с SwiGLU."""
    title, spec = models.dense(dice)
    return whole_of(title, spec)


def whole_of(title: str, spec: Spec) -> Problem:
    """Все параметры этой модели."""
    account = parameter_breakdown(spec)
    thumb = spec.replace(K=spec.N, H=spec.D // spec.N, F=4 * spec.D, gated_ffn=False)
    table = short(account["embedding"])
    tables = f"одна таблица словаря, {table}" if spec.tie_embeddings else f"две таблицы словаря по {table}"
    return Problem(
        title="Параметры модели",
        text=f"{models.about(title)} Сколько у неё параметров? Смещений нет, нормами можно пренебречь. "
        f"Ответ — в {unit_for(account.total)}.",
        given=[*given(spec, "VDLNKHF"), models.blocks(spec), models.tied(spec)],
        dimension=COUNT, unit=unit_for(account.total), answer=account.total, tolerance=0.01,
        rows=as_words(rows_of(account.details)),
        advice=f"Внимание — 2DH(N + K) на слой, SwiGLU — 3DF, {tables}. По частям: внимание "
        f"{short(account['attention'])}, полносвязные блоки {short(account['ffn'])}; нормы на четвёртом знаке.",
        hints=(
            "Разбейте модель на части: таблица словаря, внимание, полносвязные блоки, выходная голова.",
            "Матрицы запроса и выхода — D × NH, ключа и значения — D × KH, три матрицы SwiGLU — D × F.",
            "На слой: 2DH(N + K) + 3DF. Умножьте на L и прибавьте V·D один раз или два.",
        ),
        mistakes=[*_whole_mistakes(spec), Mistake("rule-of-thumb", parameter_breakdown(thumb).total, required=False)],
    )  # fmt: skip


def _whole_mistakes(spec: Spec) -> list[Mistake | None]:
    account = parameter_breakdown(spec)
    table = account["embedding"]
    return [
        Mistake("tied-counted-twice", account.total + table)
        if spec.tie_embeddings
        else Mistake("head-forgotten", account.total - table),
        Mistake("embeddings-forgotten", account.total - table - account["lm_head"], not spec.tie_embeddings),
        Mistake("gqa-ignored", parameter_breakdown(spec.replace(K=spec.N)).total) if spec.K < spec.N else None,
        Mistake("ffn-two-matrices", parameter_breakdown(spec.replace(gated_ffn=False)).total),
        Mistake("layers-forgotten", edited(account.details, drop=("L",))),
        Mistake("attention-forgotten", account.total - account["attention"], required=False),
        Mistake("output-forgotten", edited(line for line in account.details if line.name != "output"), required=False),
    ]


def without_tables(dice: Dice) -> Problem:
    """N из правила 6N: без эмбеддинга и головы."""
    title, spec = models.dense(dice)
    account = parameter_breakdown(spec)
    lines = component(account.details, "attention", "ffn", "norms")
    answer = value(lines)
    return Problem(
        title="Параметры для правила 6N",
        text=f"{models.about(title)} Сколько в ней параметров без эмбеддинга и выходной головы? Столько и стоит в "
        f"правиле 6N; буквой N в таблице названо другое — головы. Смещений нет. Ответ — в {unit_for(answer)}.",
        given=[*given(spec, "VDLNKHF"), models.blocks(spec)],
        dimension=COUNT, unit=unit_for(answer), answer=answer, tolerance=0.01, rows=as_words(rows_of(lines)),
        advice=f"На слой: 2DH(N + K) ≈ {short(account['attention'] // spec.L)} и 3DF ≈ "
        f"{short(account['ffn'] // spec.L)}; умножить на L = {spec.L}.",
        hints=(
            "Словарь в этот счёт не входит: остаются слои.",
            "На слой: внимание 2DH(N + K) и SwiGLU 3DF.",
            "Сложите и умножьте на L; нормы на ответ не влияют.",
        ),
        mistakes=[
            Mistake("embeddings-in-6n", account.total),
            Mistake("gqa-ignored", _layers_of(spec.replace(K=spec.N))) if spec.K < spec.N else None,
            Mistake("ffn-two-matrices", _layers_of(spec.replace(gated_ffn=False))),
            Mistake("layers-forgotten", edited(lines, drop=("L",))),
            Mistake("attention-forgotten", answer - account["attention"]),
        ],
    )  # fmt: skip


def _layers_of(spec: Spec) -> int:
    return value(component(parameter_breakdown(spec).details, "attention", "ffn", "norms"))


def odd_heads(dice: Dice) -> Problem | None:
    """Модель, у которой размер головы не равен D/N."""
    title, spec = models.windowed(dice)
    spec = spec.replace(window=None, H=256, F=256 * (spec.F // 256))
    if title or spec.D % spec.N or spec.H == spec.D // spec.N:
        return None
    draft = whole_of("", spec.replace(tie_embeddings=True))
    draft.mistakes += (Mistake("head-size-from-width", parameter_breakdown(
        spec.replace(tie_embeddings=True, H=spec.D // spec.N)).total),)  # fmt: skip
    return draft


def latent_attention(dice: Dice) -> Problem:
    """Параметры латентного внимания всех слоёв."""
    title, spec = models.latent(dice)
    lines = component(parameter_breakdown(spec).details, "attention")
    answer = value(lines)
    plain = spec.replace(kv_rank=0, q_rank=0, rope_H=0, value_H=0)
    query = "запрос сжат до Q и восстановлен" if spec.q_rank else "запрос не сжат: проекция D × N(H + R)"
    return Problem(
        title="Латентное внимание",
        text=f"{models.about(title)} Внимание латентное: ключ и значение сжаты до C, ещё R чисел ключа идут мимо "
        f"сжатия. Сколько параметров в матрицах внимания всех слоёв? Ответ — в {unit_for(answer)}.",
        given=given(spec, "DLNHCQRU"), dimension=COUNT, unit=unit_for(answer), answer=answer, tolerance=0.02,
        rows=as_words(rows_of(lines)),
        advice=f"По пути сигнала: {query}; сжатие D × (C + R); восстановление C × N(H + U); выход NU × D. "
        f"На слой выходит {short(answer // spec.L)}.",
        hints=(
            "Выпишите матрицы по пути сигнала: запрос, сжатие ключа и значения, восстановление, выход.",
            "Восстановление превращает C чисел в ключ (H) и значение (U) каждой из N голов.",
            query[0].upper() + query[1:] + "; сжатие D × (C + R); восстановление C × N(H + U); выход NU × D.",
        ),
        mistakes=[
            Mistake("latent-as-ordinary", parameter_breakdown(plain)["attention"]),
            Mistake("restoration-forgotten", edited(line for line in lines if line.name != "kv_up")),
            Mistake("output-forgotten", edited(line for line in lines if line.name != "output")),
            Mistake("layers-forgotten", edited(lines, drop=("L",))),
        ],
    )  # fmt: skip


# --- Смесь экспертов ----------------------------------------------------------------------------


def used(lines: Sequence[Line], k: int) -> list[Line]:
    """Строки одного токена: вместо E экспертов — k. Маршрутизатор смотрит на всех, его строка прежняя."""
    found = []
    for line in lines:
        mixed = ("E", "k") if line.component == "ffn" else ()
        factors = [("k", k) if letter in mixed else (letter, count) for letter, count in line.factors]
        found.append(Line(line.name, line.component, line.title, factors, line.over))
    return found


def experts(dice: Dice) -> Problem:
    """Только эксперты круглой смеси: все или активные."""
    D, E = dice.choice((2048, 4096, 8192)), dice.choice((8, 16, 32, 64))
    k = dice.choice((1, 2, 4)) if E > 8 else dice.choice((1, 2))
    F = dice.choice((1024, 2048, 4096))
    spec = Spec(V=32_000, D=D, L=dice.choice((16, 24, 32, 48, 60)), N=D // 128, F=F, experts=E, experts_per_token=k)
    return _mixture(dice, "", spec, only_experts=True)


def mixture(dice: Dice) -> Problem:
    """Вся смесь."""
    title, spec = models.mixture(dice)
    return _mixture(dice, title, spec)


def shared(dice: Dice) -> Problem:
    """Смесь с общим экспертом и плотными слоями."""
    title, spec = models.shared_mixture(dice)
    return _mixture(dice, title, spec)


def _mixture(dice: Dice, title: str, spec: Spec, only_experts: bool = False) -> Problem:
    everything = parameter_breakdown(spec)
    lines = component(everything.details, "ffn") if only_experts else list(everything.details)
    active, k = bool(dice.below(2)), spec.experts_per_token
    asked = used(lines, k) if active else lines
    answer, other = value(asked), value(lines if active else used(lines, k))
    what = "активных параметров, тех, через которые проходит один токен," if active else "всего параметров"
    where = "в экспертах всех слоёв" if only_experts else "у этой смеси экспертов"
    letters = "DLFEk" if only_experts else "VDLNKHFEk" + "CQRU" * bool(spec.kv_rank)
    return Problem(
        title="Смесь экспертов",
        text=f"{models.about(title)} Сколько {what} {where}? Эксперт — SwiGLU из трёх матриц D × F. "
        f"Ответ — в {unit_for(answer)}.",
        given=[*given(spec, letters), *_structure(spec, only_experts)],
        dimension=COUNT, unit=unit_for(answer), answer=answer, tolerance=0.05 if only_experts else 0.02,
        rows=as_words(rows_of(asked)),
        advice=_mixture_advice(spec, active, asked),
        hints=(
            "Хранятся все эксперты, а работают только выбранные. О чём вопрос?",
            "Один эксперт — три матрицы D × F.",
            f"Умножьте эксперта на {'k' if active else 'E'} и на число слоёв смеси"
            + ("." if only_experts else "; внимание и таблицы словаря прибавьте один раз."),
        ),
        mistakes=_mixture_mistakes(spec, lines, active, answer, other, only_experts),
    )  # fmt: skip


def _mixture_advice(spec: Spec, active: bool, asked: Sequence[Line]) -> str:
    """Эксперт, сколько их, что выходит, и что прибавить."""
    count = f"k = {spec.experts_per_token}" if active else f"E = {spec.experts}"
    layers = spec.L - spec.dense_layers
    alone = [line for line in asked if line.component == "ffn" and {"E", "k"} & dict(line.factors).keys()]
    rest = value(asked) - value(alone)
    more = f", остальное — ещё {short(rest)}" if rest else ""
    return (
        f"Один эксперт — 3DF = {short(value(used(alone, 1)) // layers)}. Умножить на {count} и на "
        f"{units.counted(layers, 'слой', 'слоя', 'слоёв')} смеси — {short(value(alone))}{more}."
    )


def _structure(spec: Spec, only_experts: bool) -> list[models.Given]:
    rows = [] if only_experts else [models.tied(spec)]
    if spec.dense_layers:
        width = units.number(spec.dense_F)
        rows.append(("", "плотные слои, первые", units.counted(spec.dense_layers, "слой", "слоя", "слоёв")))
        rows.append(("", "ширина плотного блока", width))
    if spec.shared_F:
        rows.append(("", "общий эксперт в слоях смеси, ширина", units.number(spec.shared_F)))
    return rows


def _mixture_mistakes(
    spec: Spec, lines: Sequence[Line], active: bool, answer: float, other: float, only_experts: bool
) -> list[Mistake | None]:
    E, k = spec.experts, spec.experts_per_token
    count = k if active else E
    plain = spec.replace(shared_F=0) if spec.shared_F else None
    mixed = spec.replace(dense_layers=0, dense_F=0) if spec.dense_layers else None

    def again(changed: Spec) -> int:
        details = parameter_breakdown(changed).details
        return value(used(details, k) if active else details)

    attention = parameter_breakdown(spec)["attention"]
    return [
        Mistake("total-for-active" if active else "active-for-total", other),
        Mistake("one-expert", value(used(lines, 1)), required=k > 1 or not active) if count > 1 else None,
        Mistake("layers-forgotten", edited(lines, drop=("L", "L[смесь]", "L[плотные]"),
                                           swap={"E": k} if active and only_experts else None), only_experts),
        Mistake("attention-per-expert", answer + (count - 1) * attention, not active) if not only_experts else None,
        Mistake("shared-forgotten", again(plain), active) if plain else None,
        Mistake("dense-as-mixture", again(mixed), not active) if mixed else None,
        Mistake("gqa-ignored", again(spec.replace(K=spec.N)), required=False) if spec.K < spec.N else None,
    ]  # fmt: skip
