"""Калькулятор на странице: те же вопрос и ответ, что у `python -m nanolm.budget`.

Своих правил и своих формул здесь нет: форму и её чтение даёт `nanolm.live.question`, числа — `nanolm.summary`,
а модуль раскладывает их по местам страницы. Содержимое файла модели никуда не уходит: его нет ни в адресе, ни в
скачиваемом документе.

Перебор изменений («что сделать, чтобы поместилось») занимает сотни миллисекунд, поэтому выполняется по кнопке —
действия «fit-training» и «fit-inference», — а приговор «влезет / не влезет» есть всегда. Документ JSON тоже нужен
не каждому ответу: его составляют «export», «export-training» и «export-inference», с перебором или без.
"""

from __future__ import annotations

from html import escape

from nanolm import budget, summary, units
from nanolm.live import chart, models, rows
from nanolm.live.question import FORM, NAME, ask, command, placeholders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from nanolm.fit import Fit, Remedy
    from nanolm.latency import Latency
    from nanolm.summary import Question

    State = dict[str, str]

__all__ = ["NAME", "answer", "command", "default", "form", "page"]


def default() -> State:
    """Состояние по умолчанию: Llama 3 8B на H100."""
    return FORM.default()


def form(state: State) -> str:
    """Поля формы; в пустых бледно написано, что подставится."""
    question, _ = ask(state)
    return FORM.html(state, placeholders(state, question))


# --- Ответ --------------------------------------------------------------------------------------


def answer(state: State, action: str | None = None) -> dict[str, Any]:
    """Куски страницы, ошибки, адрес, файл и строка команды."""
    state = FORM.shared(state) if action == "load" else FORM.complete(state)
    verb, _, last = (action or "").partition("-")
    goal = last if last in ("training", "inference") else None
    question, errors = ask(state, goal)
    found: dict[str, Any] = {"errors": errors, "query": FORM.query(state)}
    found["placeholders"] = placeholders(state, question)
    if action == "load":
        found["state"] = state
    if question is None:
        return found
    line = command(state, goal)
    found |= {"slots": {**slots(state, question), "export": _export(line, goal)}, "copies": {"command": line}}
    return found | ({"files": {"nanolm.json": document(question)}} if verb == "export" else {})


def document(question: Question) -> str:
    """Документ JSON, байт в байт тот, что печатает командная строка."""
    import json

    return json.dumps(summary.document(question), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


# --- Куски страницы -----------------------------------------------------------------------------

_PART_NAMES = {**budget.TITLES, "buffers": "рабочие буферы вывода"}


def slots(state: State, question: Question) -> State:
    """Все места страницы, кроме строки команды."""
    q = question
    return {
        "brief": _brief(q),
        "source": _source(state, q),
        "verdict": _verdict(q),
        "fit": "" if q.fit is None else _fit(q.fit),
        "memory": _memory(q),
        "parameters": _parameters(q),
        "flops": _flops(q),
        "cache": _cache(q),
        "speed": _speed(q),
        "time": _time(q),
    }


def _source(state: State, q: Question) -> str:
    """Откуда модель и её размеры."""
    if state["config"].strip():
        name = "из файла config.json"
    else:
        name = models.title(state["preset"]) if state["preset"] else "свои размеры"
    geometry = summary._geometry(q).removeprefix("Модель: ")
    remarks = [*summary._source_remarks(q), *summary._storage_remarks(q)]
    return f'<p class="nanolm-source"><b>{escape(name)}</b>: {escape(geometry)}</p>{_said(remarks)}'


def _brief(q: Question) -> str:
    """Главное в одну строку: её видно, пока правят форму."""
    parts = [f"<span>параметры <b>{units.short(q.parameters.total)}</b></span>"]
    for _, title, need in q.fits():
        verdict = ""
        if q.card is not None:
            kind, words = ("yes", "влезет") if need <= q.card.usable_bytes else ("no", "не влезет")
            verdict = f' — <span class="nanolm-{kind}">{words}</span>'
        parts.append(f"<span>{title} <b>{units.binary_bytes(need)}</b>{verdict}</span>")
    return f"<p>{''.join(parts)}</p>"


def _verdict(q: Question) -> str:
    if q.card is None:
        return "<p>Выберите видеокарту — и станет ясно, поместится ли модель.</p>"
    card = q.card
    assumed = " (допущение: 92\u00a0% паспортной памяти)" if card.usable_is_assumed else ""
    lines = [_fits(key, title, need, card.usable_bytes) for key, title, need in q.fits()]
    if q.gpus > 1:
        lines.append(f"<p>{escape(summary._sharded(q, card))}.</p>")
    have = f"<p>{escape(card.title)}: доступно {units.both_bytes(card.usable_bytes)}{assumed}.</p>"
    return "".join([*lines, have])


def _fits(key: str, title: str, need: int, have: int) -> str:
    """Приговор одной задаче и кнопка обратной."""
    kind, words, ask = (
        ("yes", "влезет", "Наибольший пакет и контекст")
        if need <= have
        else ("no", "не влезет", "Что сделать, чтобы поместилось")
    )
    rest = f"{'остаётся' if need <= have else 'не хватает'} {units.binary_bytes(abs(have - need))}"
    return (
        f'<div class="nanolm-verdict nanolm-{kind}"><p><b>{title.capitalize()}: {words}.</b> '
        f"Нужно {units.both_bytes(need)}, {rest}.</p>"
        f'<button type="button" data-action="fit-{key}">{ask}</button></div>'
    )


def _fit(fit: Fit) -> str:
    """Ответ обратной задачи: пределы и наборы изменений."""
    first, *limits = fit._facts()
    items = "".join(f"<li>{escape(line)}</li>" for line in limits)
    return (
        f'<section class="nanolm-fit" aria-label="Что поместится"><h3>Что поместится</h3><p>{escape(first)}</p>'
        f"<ul>{items}</ul>{_remedies(fit)}</section>"
    )


def _remedies(fit: Fit) -> str:
    if fit.fits:
        return ""
    if fit.closest is not None:
        return f"<p>Ни один набор изменений не помогает. Ближе всех: {_remedy(fit.closest)}</p>"
    items = "".join(f"<li>{_remedy(remedy)}</li>" for remedy in fit.remedies)
    return f"<p>Чтобы поместилось, от дешёвого к дорогому:</p><ol>{items}</ol>"


def _remedy(remedy: Remedy) -> str:
    prices = "".join(f"<li>{escape(price)}</li>" for _, price in remedy.changes)
    return (
        f"<b>{escape(remedy.title)}</b> — {units.both_bytes(remedy.need)} на карту"
        f'<ul class="nanolm-prices">{prices}</ul>'
    )


def _memory(q: Question) -> str:
    """Полосы памяти с чертой карты и строки обоих счетов."""
    buffers = q.inference.peak - q.inference.total
    bars = [
        (f"вывод: {units.binary_bytes(q.inference.peak)}", [*q.inference.items(), ("buffers", buffers)]),
        (f"обучение: {units.binary_bytes(q.training.total)}", list(q.training.items())),
    ]
    limit = None
    if q.card is not None:
        limit = (q.card.usable_bytes, f"доступно {units.binary_bytes(q.card.usable_bytes)}")
    about = "; ".join(text for text, _ in bars) + (f"; предел {limit[1]}" if limit else "")
    drawn = chart.stacked_bars("calculator-memory", "Память вывода и обучения", about, bars, limit, _PART_NAMES)
    inference = rows.account("inference", q.inference, rows.size, parts=True)
    work = rows.row("inference/buffers", "рабочие буферы заполнения", rows.size(buffers),
                    map(rows.formula, q.inference.buffers), part="buffers")  # fmt: skip
    peak = rows.plain_row("пик", rows.size(q.inference.peak))
    moment = f"<p>Пик шага — {escape(q.training.moment)}.</p>"
    return (
        f'{drawn}<h3>Память вывода</h3>{inference}<div class="nanolm-rows">{work}{peak}</div>'
        f"<h3>Память обучения</h3>{rows.account('training', q.training, rows.size, parts=True)}{moment}"
    )


def _parameters(q: Question) -> str:
    found = q.parameters
    facts = [("всего", found.total)]
    if found.active != found.total:
        facts.append(("работает на один токен", found.active))
    facts.append(("N из 6N: без эмбеддинга и головы", found.active_non_embedding))
    shown = "".join(f"<dt>{name}</dt><dd>{units.number(value)} ({units.short(value)})</dd>" for name, value in facts)
    return f"<dl>{shown}</dl>{rows.account('parameters', found, units.number)}"


def _flops(q: Question) -> str:
    facts = (
        ("прямой проход", units.prefixed(q.forward.total, "FLOPs")),
        ("прямой и обратный", units.prefixed(q.flops.total, "FLOPs")),
        ("внимание догоняет матрицы слоёв", _context(q.attention_crossover)),
    )
    shown = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts)
    return f"<dl>{shown}</dl>{_said(summary._work_remarks(q))}{rows.account('flops', q.flops, units.number)}"


def _said(remarks: Iterable[str]) -> str:
    """Оговорки сводки: каждая — абзац."""
    return "".join(f"<p>{escape(line)}.</p>" for line in remarks)


def _context(crossover: int | None) -> str:
    return "не догоняет" if crossover is None else f"при S = {units.number(crossover)}"


def _cache(q: Question) -> str:
    """Кеш против весов."""
    weights, cache = q.inference["weights"], q.inference["kv_cache"]
    one = budget.kv_cache_bytes(q.spec, 1, q.S, q.dtype, q.kv, q.block).total
    ratio = rows.row(
        "cache/crossover",
        "кеш равен весам при пакете",
        units.decimal(q.crossover_batch),
        [
            rows.equation(
                "веса / кеш одной последовательности", "веса / кеш(B = 1)",
                f"{units.number(weights)} / {units.number(one)}", units.decimal(q.crossover_batch),
            )
        ],
    )  # fmt: skip
    compared = f"{rows.against(cache, weights)}, {units.binary_bytes(q.kv_token)} на токен"
    return f'<p>{compared}.</p>{rows.account("cache", q.kv_cache, rows.size)}<div class="nanolm-rows">{ratio}</div>'


def _speed(q: Question) -> str:
    if q.latency is None or q.decode is None or q.card is None:
        return "<p>Время считается, когда выбрана карта с известной скоростью.</p>"
    prefill, decode = q.latency
    step = q.decode
    lines = [
        rows.equation(
            "прочитать веса и кеш", "(веса + кеш) / полоса",
            f"({units.number(round(step.weight_bytes))} + {units.number(step.cache_bytes)}) / "
            f"{units.number(q.card.bandwidth_bytes_per_s)}",
            units.duration(step.memory_seconds),
        ),
        rows.equation(
            f"сосчитать в {step.compute_dtype}", "FLOPs / пик",
            f"{units.number(step.flops)} / {units.scientific(q.card.rate(step.compute_dtype))}",
            units.duration(step.compute_seconds),
        ),
    ]  # fmt: skip
    tokens = f"{units.counted(step.tokens_per_s, 'токен', 'токена', 'токенов')}/с на пакет"
    body = (
        _interval("speed/prefill", "заполнение контекста", prefill),
        _interval("speed/decode", "шаг декодирования", decode),
        rows.row("speed/least", "шаг не быстрее", f"{units.duration(step.seconds)}, {tokens}", lines),
    )
    return f'<div class="nanolm-rows">{"".join(body)}</div>{_said(summary._rate_remarks(q))}'


def _interval(key: str, title: str, found: Latency) -> str:
    """Обычный случай, а внутри — края интервала, что ограничивает и какие доли полосы и пика допущены."""
    from nanolm.latency import COMPUTE_EFFICIENCY, MEMORY_EFFICIENCY

    low, typical, high = map(units.duration, (found.low, found.typical, found.high))
    edges = f"от {low} до {high}; ограничивает {found.bound}"
    work = f"работа: {units.prefixed(found.flops, 'FLOPs')}, прочитать {units.binary_bytes(found.bytes[1])}"
    memory, compute = (" / ".join(units.percent(s, 0) for s in t) for t in (MEMORY_EFFICIENCY, COMPUTE_EFFICIENCY))
    assumed = f"допущение, лучший / обычный / худший случай: доля полосы {memory}, доля пика {compute}"
    return rows.row(key, title, f"{typical} <small>({low} … {high})</small>", [edges, work, assumed])


def _time(q: Question) -> str:
    if q.time is None or q.card is None:
        return "<p>Назовите число токенов обучения и видеокарту — появятся время и цена.</p>"
    time, tokens = q.time, q.tokens or 0
    lines = [
        rows.equation(
            "полезные FLOPs", "FLOPs на токен · токены", f"{q.flops.total} · {tokens}", units.scientific(time.flops)
        ),
        rows.equation(
            "время", "FLOPs / (карты · пик · MFU)",
            f"{units.scientific(time.flops)} / ({time.gpus} · {units.scientific(q.card.rate(time.dtype))} · "
            f"{units.decimal(time.mfu)})",
            units.duration(time.seconds),
        ),
    ]  # fmt: skip
    cost = "" if time.cost is None else rows.plain_row("цена в валюте GPU-часа", units.estimate(time.cost, 2))
    hours = rows.plain_row("GPU-часов", units.estimate(time.gpu_hours))
    spent = rows.row("time/seconds", "время обучения", units.duration(time.seconds), lines)
    return f'<div class="nanolm-rows">{spent}{hours}{cost}</div>{_said(summary._adapter_remarks(q))}'


def _export(line: str, goal: str | None) -> str:
    """Команда и кнопки; документ повторит и перебор, если его просили."""
    action = f"export-{goal}" if goal else "export"
    return (
        f'<pre class="nanolm-command"><code>{escape(line)}</code></pre>'
        '<p class="nanolm-buttons"><button type="button" data-copy="command">Скопировать команду</button>'
        f'<button type="button" data-action="{action}" data-download="nanolm.json">Скачать JSON</button>'
        '<button type="button" data-link>Скопировать ссылку</button>'
        '<button type="button" data-reset>Сбросить</button></p>'
    )


# --- Страница -----------------------------------------------------------------------------------

_SECTIONS = (
    ("memory", "Память"),
    ("parameters", "Параметры"),
    ("flops", "FLOPs на токен"),
    ("cache", "Кеш KV против весов"),
    ("speed", "Время ответа"),
    ("time", "Время и цена обучения"),
    ("export", "Унести с собой"),
)


def page(state: State) -> str:
    """Форма, приговор и разделы с ответом для этого состояния."""
    found = answer(state)["slots"]
    # Приговор короткий и главный: о его смене программа экранного доступа скажет сама.
    spoken = {"verdict": ' aria-live="polite"'}
    place = {name: f'<div data-slot="{name}"{spoken.get(name, "")}>{html}</div>' for name, html in found.items()}
    sections = "".join(
        f'<section class="nanolm-part" aria-label="{title}"><h2>{title}</h2>{place[name]}</section>'
        for name, title in _SECTIONS
    )
    return (
        f'<form class="nanolm-form">{form(state)}</form>'
        f'<div class="nanolm-brief" data-slot="brief">{found["brief"]}</div>'
        f'<section class="nanolm-part" aria-label="Влезет ли"><h2>Влезет ли</h2>{place["source"]}{place["verdict"]}'
        f"{place['fit']}</section>{sections}"
    )
