"""Из чего состоит задача: условие, верный ответ, решение по строкам, ошибки с именами.

Ошибка — это число, которое получит тот, кто ошибся именно так. Чтобы по числу узнать ошибку, числа обязаны
различаться: правильный ответ принимается с допуском, ошибка узнаётся в своём, более узком, и эти отрезки не
пересекаются. Задачу, где основные ошибки слились, генератор бросает и тянет следующую (`settled`).
"""

from __future__ import annotations

from nanolm import units
from nanolm.interview.mistakes import MISTAKES
from nanolm.interview.quantity import trimmed
from nanolm.units import NBSP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nanolm.budget import Line
    from nanolm.interview.quantity import Dimension

#: Во сколько раз уже допуска ответа отрезок, в котором узнаётся ошибка.
NARROWER = 0.4


class Row:
    """Строка решения: формула буквами, она же числами и результат.

    `numbers` — выражение, которое можно пересчитать: числа, «·», «/», «+», «−», скобки и степени.
    """

    __slots__ = ("letters", "numbers", "title", "unit", "value")

    def __init__(self, title: str, letters: str, numbers: str, value: float, unit: str = "") -> None:
        self.title, self.letters, self.numbers = title, letters, numbers
        self.value, self.unit = value, unit

    @property
    def result(self) -> str:
        """Результат с единицей."""
        return shown(self.value) + (NBSP + self.unit if self.unit else "")

    def __str__(self) -> str:
        parts = [self.letters] if self.letters and self.letters != self.numbers else []
        if self.numbers != shown(self.value):
            parts.append(self.numbers)
        return f"{self.title}: {' = '.join((*parts, self.result))}"


def shown(value: float) -> str:
    """Число решения: целое — до последней цифры, дробное — до пяти значащих."""
    if isinstance(value, int):
        return units.number(value)
    return trimmed(units._significant(value, 5) if 1e-3 <= abs(value) < 1e15 else units.scientific(value, 4))


def short(value: float) -> str:
    """Крупное количество словом, без лишних нулей: «8,03 млрд», «2 трлн»."""
    return trimmed(units.short(value))


def rows_of(lines: Iterable[Line], unit: str = "") -> list[Row]:
    """Строки счёта как строки решения; нулевые не нужны."""
    return [Row(line.title, line.letters, line.numbers, line.value, unit) for line in lines if line.value]


def summed(rows: Sequence[Row], title: str = "всего") -> list[Row]:
    """Те же строки и их сумма, если складывать есть что."""
    if len(rows) < 2:
        return list(rows)
    numbers = " + ".join(shown(row.value) for row in rows)
    return [*rows, Row(title, "", numbers, sum(row.value for row in rows), rows[0].unit)]


class Mistake:
    """Ошибка с именем: сколько получится у того, кто её сделал, в основных единицах."""

    __slots__ = ("hint", "id", "meaning", "required", "value")

    def __init__(self, id_: str, value: float, required: bool = True, text: tuple[str, str] | None = None) -> None:
        self.id, self.value, self.required = id_, value, required
        self.meaning, self.hint = text or MISTAKES[id_]

    def __repr__(self) -> str:
        return f"Mistake({self.id!r}, {self.value!r})"


class Problem:
    """Задача.

    - `seed`, `level`, `kind` — чем она задана; `title` — о чём она;
    - `text` — условие; `given` — таблица (буква, что это, значение);
    - `dimension`, `unit` — что за величина и в чём её просят назвать;
    - `answer` — точный ответ в основных единицах, `fits` — ответ «да» или «нет», если спрашивают и об этом;
    - `tolerance` — относительный допуск, он же назван в условии;
    - `rows` — решение по строкам, `advice` — как посчитать в уме;
    - `hints` — подсказки от общей к точной, `mistakes` — ошибки, которые мы узнаём.
    """

    __slots__ = (  # noqa: RUF023 — порядок рассказа, а не алфавит
        "seed", "level", "kind", "title", "text", "given", "dimension", "unit", "answer", "fits", "tolerance",
        "rows", "advice", "hints", "mistakes",
    )  # fmt: skip

    def __init__(
        self,
        *,
        title: str,
        text: str,
        given: Iterable[tuple[str, str, str]],
        dimension: Dimension,
        unit: str,
        answer: float,
        tolerance: float,
        rows: Iterable[Row],
        advice: str,
        hints: Iterable[str],
        mistakes: Iterable[Mistake | None],
        fits: bool | None = None,
    ) -> None:
        self.seed, self.level, self.kind = 0, 0, ""
        self.title, self.text, self.given = title, text, tuple(given)
        self.dimension, self.unit = dimension, unit
        self.answer, self.fits, self.tolerance = answer, fits, tolerance
        self.rows, self.advice, self.hints = tuple(rows), advice, tuple(hints)
        self.mistakes = tuple(found for found in mistakes if found is not None)

    @property
    def units(self) -> tuple[str, ...]:
        """Единицы, в которых ответ тоже примут."""
        return tuple(self.dimension.units)

    @property
    def accuracy(self) -> str:
        """Допуск словами: «5 %»."""
        return units.percent(self.tolerance, 0)

    @property
    def example(self) -> str:
        """Как записать ответ. Число условно, к задаче отношения не имеет."""
        sample = self.dimension.sample(self.unit)
        return sample if self.fits is None else f"да, {sample}"

    @property
    def expected(self) -> str:
        """Верный ответ словами."""
        value = self.dimension.shown(self.answer, self.unit)
        return value if self.fits is None else f"{'да' if self.fits else 'нет'}, {value}"

    @property
    def solution(self) -> str:
        """Решение текстом: строка за строкой, потом — как посчитать в уме."""
        return "\n".join([*map(str, self.rows), "", f"Ответ: {self.expected}.", self.advice])

    @property
    def question(self) -> str:
        """Условие текстом: задача, данные, что принимается."""
        given = [f"  {letter:<8} {value:<22} {title}".rstrip() for letter, title, value in self.given]
        return "\n".join([self.text, *given, f"Допуск {self.accuracy}. Пример записи: {self.example}"])

    def __repr__(self) -> str:
        return f"Problem({self.seed}, {self.level}, {self.kind!r}: {self.expected})"


def apart(a: float, width_a: float, b: float, width_b: float) -> bool:
    """Не пересекаются ли отрезки вокруг двух чисел с такими относительными допусками."""
    low, high = sorted(((a, width_a), (b, width_b)))
    return low[0] * (1 + low[1]) < high[0] * (1 - high[1])


def settled(draft: Problem) -> Problem | None:
    """Задача, в которой все ошибки различимы; `None` — слились основные, нужна другая.

    Второстепенная ошибка, которую не отличить, из списка выпадает: лучше не назвать, чем назвать не ту.
    """
    narrow = draft.tolerance * NARROWER
    kept: list[Mistake] = []
    for mistake in sorted((*draft.mistakes, *_unit_mistakes(draft)), key=lambda one: not one.required):
        distinct = mistake.value > 0 and apart(mistake.value, narrow, draft.answer, draft.tolerance)
        if distinct and all(apart(mistake.value, narrow, other.value, narrow) for other in kept):
            kept.append(mistake)
        elif mistake.required:
            return None
    draft.mistakes = tuple(kept)
    return draft if len(kept) > 1 else None


def _unit_mistakes(draft: Problem) -> Iterable[Mistake]:
    """Верное число, но в другой единице: ГБ за ГиБ, часы за сутки."""
    table = draft.dimension.units
    for other, id_ in draft.dimension.confused(draft.unit):
        text = (
            f"Число верное, если это {other}, а названа другая единица: {draft.unit}.",
            draft.dimension.ratio(draft.unit, other),
        )
        yield Mistake(id_, draft.answer / table[other] * table[draft.unit], required=False, text=text)
