"""Ползунки лаборатории 7.2: работа обучения для двух показателей степени.

Правило 6PN знает только число параметров и число токенов, поэтому ползунка два, и каждый двигает показатель ответа
на столько же, на сколько свой. Рядом — то, чего правило не знает: время на картах и точный счёт ближайшей по
размеру известной модели, в котором есть и внимание, и выходная голова, и нет эмбеддинга.
"""

from __future__ import annotations

from nanolm import budget, units
from nanolm.exercises import formulas
from nanolm.live import chart, models, rows
from nanolm.live import form as forms
from nanolm.spec import whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    State = dict[str, str]

NAME = "flops"


def _power(exponent: int) -> str:
    return units.scientific(10**exponent, 0).removeprefix("1·")


PARAMETERS = forms.Field("logP", "параметров", "range", "9", letter="P", low=6, high=12, word=_power)
TOKENS = forms.Field("logT", "токенов", "range", "14", letter="N", low=9, high=14, word=_power)
#: Сколько токенов на параметр советует статья о Chinchilla (Hoffmann et al. 2022).
CHINCHILLA = 20


def _cards() -> forms.Options:
    from nanolm.hardware import gpus

    return {"": [(key, card.title) for key, card in gpus().items() if card.flops_per_s]}


FORM = forms.Form(
    NAME,
    (
        forms.Group("Работа", (PARAMETERS, TOKENS)),
        forms.Group(
            "Время",
            (
                forms.Field("gpu", "видеокарта", "select", "h100-sxm", options=_cards),
                forms.Field("gpus", "число карт", default="1024"),
                forms.Field("mfu", "доля пика (MFU)", default="0,45"),
            ),
        ),
    ),
)


class Run:
    """Обучение: параметры, токены, карты; `flops` — по правилу 6PN."""

    def __init__(self, state: State) -> None:
        from nanolm.hardware import gpu

        self.logP, self.logT = (int(forms.slider(state, field)) for field in (PARAMETERS, TOKENS))
        self.parameters, self.tokens = 10**self.logP, 10**self.logT
        self.card = gpu(state["gpu"] or FORM.fields["gpu"].default)
        gpus, mfu = forms.whole_number(state, "gpus"), forms.real_number(state, "mfu")
        self.gpus = whole("gpus", int(FORM.fields["gpus"].default) if gpus is None else gpus)
        self.mfu = budget._mfu(0.45 if mfu is None else mfu)
        self.rate = self.card.rate(self.card.best_16bit)
        self.flops = formulas.compute_num_flops(self.parameters, self.tokens)
        self.seconds = 86_400 * formulas.training_days(self.parameters, self.tokens, self.gpus, self.rate, self.mfu)


def default() -> State:
    """Начальное положение лаборатории: 10⁹ параметров, 10¹⁴ токенов."""
    return FORM.default()


def form(state: State) -> str:
    """Два ползунка и карты."""
    run = Run(state)
    return FORM.html(state, {"logP": _power(run.logP), "logT": _power(run.logT)})


def answer(state: State, action: str | None = None) -> dict[str, Any]:
    """Работа, время, точный счёт и рисунок."""
    state = FORM.complete(state)
    found: dict[str, Any] = {"errors": {}, "query": FORM.query(state)}
    if action == "load":
        found["state"] = state
    try:
        run = Run(state)
    except ValueError as error:
        return found | {"errors": {FORM.blame(str(error), {"dtype": "gpu"}): str(error)}}
    return found | {
        "slots": {
            "logP-value": _power(run.logP),
            "logT-value": _power(run.logT),
            "work": _work(run),
            "chart": _chart(run),
            "exact": _exact(run),
        }
    }


def page(state: State) -> str:
    """Ползунки, под ними ответ и рисунок."""
    found = answer(state)["slots"]
    places = "".join(f'<div data-slot="{name}">{found[name]}</div>' for name in ("work", "chart", "exact"))
    return f'<form class="nanolm-form">{form(state)}</form>{places}'


def _work(run: Run) -> str:
    """FLOPs и время; внутри — формулы с числами."""
    work = rows.equation(
        "правило 6PN", "6·P·N", f"6·{_power(run.logP)}·{_power(run.logT)}", units.scientific(run.flops, 0)
    )
    time = rows.equation(
        "время", "FLOPs / (карты · пик · MFU)",
        f"{units.scientific(run.flops, 0)} / ({units.number(run.gpus)} · {units.scientific(run.rate)} · "
        f"{units.decimal(run.mfu)})",
        units.duration(run.seconds),
    )  # fmt: skip
    ratio = run.tokens / run.parameters
    cards = f"{units.counted(run.gpus, 'карта', 'карты', 'карт')} {run.card.title}"
    body = (
        rows.row("flops/work", "работа обучения", f"{units.scientific(run.flops, 0)} FLOPs", [work]),
        rows.row("flops/time", cards, units.duration(run.seconds), [time]),
        rows.plain_row(f"токенов на параметр (Chinchilla — {CHINCHILLA})", _plain(ratio)),
    )
    return f'<div class="nanolm-rows">{"".join(body)}</div>'


def _plain(ratio: float) -> str:
    """Отношение токенов к параметрам: десятичная степень, поэтому целое или короткая дробь."""
    return units.number(round(ratio)) if ratio >= 1 else units.decimal(ratio, 3).rstrip("0")


def _chart(run: Run) -> str:
    """Работа против числа параметров: выбранные токены и двадцать на параметр."""
    first, last = (10.0**edge for edge in (PARAMETERS.low, PARAMETERS.high))
    fixed = [(size, formulas.compute_num_flops(size, run.tokens)) for size in (first, last)]
    advised = [(size, formulas.compute_num_flops(size, CHINCHILLA * size)) for size in (first, last)]
    x = chart.Axis(first, last, "параметров P", [(10.0**n, _power(n)) for n in range(6, 13, 2)], log=True)
    y = chart.Axis(1e14, 1e27, "FLOPs за всё обучение", [(10.0**n, _power(n)) for n in range(15, 27, 3)], log=True)
    marks = [(float(run.parameters), run.flops, units.scientific(run.flops, 0), True)]
    curves = [(f"{_power(run.logT)} токенов", fixed), (f"{CHINCHILLA} токенов на параметр", advised)]
    about = (
        f"Двойная логарифмическая шкала. При {_power(run.logP)} параметров и {_power(run.logT)} токенов — "
        f"{units.scientific(run.flops, 0)} FLOPs."
    )
    return chart.lines("flops-chart", "Работа обучения", about, curves, x, y, marks)


def nearest(parameters: int) -> str:
    """Имя известной модели, у которой параметров ближе всего к этому числу: во сколько раз, а не на сколько."""
    totals = {name: int(entry["total"]) for name, entry in models.entries().items()}
    return min(totals, key=lambda name: max(totals[name] / parameters, parameters / totals[name]))


def _exact(run: Run) -> str:
    """Точный счёт ближайшей модели на тех же токенах рядом с правилом для неё же."""
    name = nearest(run.parameters)
    spec = models.spec(name)
    S = min(spec.S, 8192)
    found, count = budget.flops_per_token(spec, S), budget.parameter_breakdown(spec)
    rule = formulas.compute_num_flops(count.active, 1)
    work = found.total * run.tokens
    words = (
        f"Ближайшая по размеру известная модель — {models.title(name)}: {units.short(count.total)} параметров"
        + (f", на токен работает {units.short(count.active)}" if count.active != count.total else "")
        + f". Точный счёт при контексте {units.number(S)}: {units.scientific(work)} FLOPs, "
        f"{units.percent(found.total / rule)} от правила 6PN для неё."
    )
    table = rows.account("flops/exact", found, units.number)
    return f'<p>{words}</p><p class="nanolm-caption">FLOPs на токен, {models.title(name)}</p>{table}'
