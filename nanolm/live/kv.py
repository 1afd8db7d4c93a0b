"""Кеш KV против весов: два ползунка, кривая и точка, в которой кеш догоняет веса.

Веса читаются один раз на весь пакет и от него не зависят, а кеш растёт и с пакетом, и с контекстом. Пока кеш мал,
шаг генерации стоит чтения весов, и лишняя последовательность почти бесплатна; за точкой пересечения — наоборот.
Обе оси логарифмические, поэтому ползунки хранят показатели степени двойки, а кривая кеша — прямая; у слоёв с
окном она ломается там, где контекст перерастает окно.
"""

from __future__ import annotations

from nanolm import budget, units
from nanolm.live import chart, models, rows
from nanolm.live import form as forms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from nanolm.spec import Spec

    State = dict[str, str]

NAME = "kv"


def _power(exponent: int) -> str:
    return units.number(2**exponent)


BATCH = forms.Field("logB", "пакет", "range", "4", letter="B", low=0, high=12, word=_power)
CONTEXT = forms.Field("logS", "контекст", "range", "13", letter="S", low=7, high=20, word=_power)
#: Дальше этого контекста пересечение не ищется.
FARTHEST = 2**36
_AXES = {"B": "пакет", "S": "контекст"}


def _dtypes() -> forms.Options:
    return {"": [(name, f"{name}: {8 * size} бит") for name, size in budget.DTYPES.items()]}


FORM = forms.Form(
    NAME,
    (
        forms.Group(
            "Кеш и веса",
            (
                forms.Field("preset", "модель", "select", "llama-3-8b", options=models.options),
                BATCH,
                CONTEXT,
                forms.Field("dtype", "точность весов", "select", "bf16", options=_dtypes),
                forms.Field("kv_dtype", "точность кеша", "select", "bf16", options=_dtypes),
                forms.Field("axis", "по горизонтали", "select", "B", options=lambda: {"": list(_AXES.items())}),
            ),
        ),
    ),
)


class Scene:
    """Что показать: модель, пакет, контекст, точности и ось; счета — по запросу."""

    def __init__(self, state: State) -> None:
        name = state["preset"] or FORM.fields["preset"].default
        self.spec: Spec = models.spec(name)
        self.title = models.title(name)
        self.B, self.S = (2 ** int(forms.slider(state, field)) for field in (BATCH, CONTEXT))
        self.dtype = forms.choice(state, "dtype", budget.DTYPES, "bf16")
        self.kv_dtype = forms.choice(state, "kv_dtype", budget.DTYPES, "bf16")
        self.axis = forms.choice(state, "axis", _AXES, "B")
        self.memory = budget.inference_memory(self.spec, self.B, self.S, self.dtype, self.kv_dtype)
        self.weights, self.cache = self.memory["weights"], self.memory["kv_cache"]

    def cache_at(self, B: int, S: int) -> int:
        """Кеш в байтах при другом пакете или контексте."""
        return budget.kv_cache_bytes(self.spec, B, S, self.kv_dtype).total

    @property
    def crossover(self) -> float:
        """Пакет, при котором кеш равен весам."""
        if self.dtype == self.kv_dtype:
            return budget.crossover_batch(self.spec, self.S, self.dtype)
        return self.weights / self.cache_at(1, self.S)

    @property
    def crossover_context(self) -> int | None:
        """Контекст, при котором кеш догоняет веса; `None` — окно этого не даёт."""
        # Пока окно не мешает, кеш растёт как S.
        guess = min(FARTHEST, -(-self.weights // self.cache_at(self.B, 1)))
        return budget._smallest(lambda S: self.cache_at(self.B, S) >= self.weights, FARTHEST, guess)

    @property
    def meeting(self) -> float | None:
        """Точка пересечения на выбранной оси."""
        return self.crossover if self.axis == "B" else self.crossover_context

    def along(self) -> tuple[forms.Field, Callable[[int], int]]:
        """Поле оси и кеш как функция её значения."""
        if self.axis == "B":
            return BATCH, lambda B: self.cache_at(B, self.S)
        return CONTEXT, lambda S: self.cache_at(self.B, S)


def default() -> State:
    """Llama 3 8B, 16 последовательностей по 8192 токена."""
    return FORM.default()


def form(state: State) -> str:
    """Список моделей, ползунки, точности."""
    scene = Scene(state)
    return FORM.html(state, {"logB": units.number(scene.B), "logS": units.number(scene.S)})


def answer(state: State, action: str | None = None) -> dict[str, Any]:
    """График, числа и то, что стоит рядом с ползунками."""
    state = FORM.complete(state)
    found: dict[str, Any] = {"errors": {}, "query": FORM.query(state)}
    if action == "load":
        found["state"] = state
    try:
        scene = Scene(state)
    except ValueError as error:
        return found | {"errors": {FORM.blame(str(error)): str(error)}}
    return found | {
        "slots": {
            "logB-value": units.number(scene.B),
            "logS-value": units.number(scene.S),
            "chart": _chart(scene),
            "numbers": _numbers(scene),
        }
    }


def page(state: State) -> str:
    """Форма, под ней график и числа."""
    found = answer(state)["slots"]
    places = "".join(f'<div data-slot="{name}">{found[name]}</div>' for name in ("chart", "numbers"))
    return f'<form class="nanolm-form">{form(state)}</form>{places}'


# --- График -------------------------------------------------------------------------------------


def _chart(scene: Scene) -> str:
    """Прямая весов, кривая кеша, пересечение и нынешнее положение."""
    field, cache = scene.along()
    sizes = [2**power for power in range(int(field.low), int(field.high) + 1)]
    points = [(float(size), float(cache(size))) for size in sizes]
    low, high = min(points[0][1], scene.weights) / 2, max(points[-1][1], scene.weights) * 4
    y = chart.Axis(low, high, "байтов", chart.powers(low, high, 32, 6, _short), log=True)
    name, base = f"{_AXES[scene.axis]} {scene.axis}", 4 if scene.axis == "B" else 8
    x = chart.Axis(sizes[0], sizes[-1], name, chart.powers(sizes[0], sizes[-1], base, 7, units.number), log=True)
    now = scene.B if scene.axis == "B" else scene.S
    marks = [(float(now), float(scene.cache), f"сейчас: {_short(scene.cache)}", False)]
    meeting = scene.meeting
    if meeting is not None and sizes[0] <= meeting <= sizes[-1]:
        marks.append((meeting, float(scene.weights), f"кеш = веса: {scene.axis} = {_value(scene, meeting)}", True))
    weights = [(float(size), float(scene.weights)) for size in (sizes[0], sizes[-1])]
    curves = [("кеш KV", points), (f"веса, {_short(scene.weights)}", weights)]
    about = f"{scene.title}. Веса {_short(scene.weights)}; кеш {_short(scene.cache)}. {_meets(scene)}"
    return chart.lines("kv-chart", f"Кеш KV и веса: {scene.title}", about, curves, x, y, marks)


def _short(size: float) -> str:
    """Байты коротко: целые — без дробной части."""
    return units.binary_bytes(int(size), 3).replace(",00", "").replace(",0", "")


def _value(scene: Scene, meeting: float) -> str:
    return units.decimal(meeting) if scene.axis == "B" else units.number(meeting)


def _meets(scene: Scene) -> str:
    meeting = scene.meeting
    if meeting is None:
        return "Кеш весов не догоняет: у слоёв с окном он дальше не растёт."
    return f"Кеш равен весам при {scene.axis} = {_value(scene, meeting)}."


# --- Числа --------------------------------------------------------------------------------------


def _numbers(scene: Scene) -> str:
    """Сколько весят кеш и веса, и во сколько раз."""
    one = scene.cache_at(1, scene.S)
    equation = rows.equation(
        "веса / кеш одной последовательности", "веса / кеш(B = 1)",
        f"{units.number(scene.weights)} / {units.number(one)}", units.decimal(scene.crossover),
    )  # fmt: skip
    crossover = rows.row("kv/crossover", "кеш равен весам при B", units.decimal(scene.crossover), [equation])
    account = rows.account("kv", scene.memory, rows.size)
    words = f"{rows.against(scene.cache, scene.weights)}. {_meets(scene)}"
    return f'<p>{words}</p>{account}<div class="nanolm-rows">{crossover}</div>'
