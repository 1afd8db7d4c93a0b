"""Почему ответ неверен: от названных ошибок упражнения к общим приметам.

Правила пробуются по порядку, побеждает первое. Сначала — таблица ошибок упражнения: ответ обязан совпасть
с неверной функцией во всех точках. Потом приметы любой формулы: перепутанные аргументы, константа, аргумент,
который ни на что не влияет, округление, лишний множитель.

Приметы смотрят на поведение, а не на текст программы, поэтому не зависят от того, как она написана.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from nanolm import units
from nanolm.exercises import attempt
from nanolm.exercises.answer import Problem, close, read
from nanolm.exercises.result import Finding
from nanolm.exercises.task import Exercise, Number, Point

#: Точность, с которой отношение двух ответов считается постоянным.
STEADY = Fraction(1, 10**6)
#: Точность float с запасом на десяток действий.
FLOAT = Fraction(1, 10**9)

_EXACT = "Считайте в целых числах Python: они не теряют разрядов. float32 хранит около семи цифр."

Answer = tuple[Number, ...]


class Trial(NamedTuple):
    """Функция учащегося, точки, её ответы и верные ответы. `call` зовёт функцию ещё раз."""

    exercise: Exercise
    function: Callable[..., Any]
    points: tuple[Point, ...]
    answers: tuple[Answer, ...]
    expected: tuple[Answer, ...]
    call: Callable[[Sequence[Any], Sequence[str]], attempt.Outcome]

    def again(self, point: Sequence[Any], by_name: bool = False) -> Answer | None:
        """Ответ в ещё одной точке; None, если его нет."""
        outcome = self.call(point, self.exercise.names if by_name else ())
        answer = read(outcome.value, self.exercise.returns)
        return None if outcome.error or isinstance(answer, Problem) else answer

    def matches(self, wrong: Callable[..., Any]) -> bool:
        """Совпадает ли ответ с функцией `wrong` во всех точках."""
        return all(self._same(evaluate(wrong, p), answer) for p, answer in zip(self.points, self.answers, strict=True))

    def _same(self, theirs: Answer | None, answer: Answer) -> bool:
        # Неверная функция бывает дробной и там, где верный ответ целый: ей нужен допуск на float.
        return theirs is not None and close(answer, theirs, max(self.exercise.tolerance, FLOAT))


def evaluate(function: Callable[..., Any], point: Sequence[Any]) -> Answer | None:
    """Значение нашей функции в точке как кортеж; None, если она там не определена."""
    try:
        value = function(*point)
    except ArithmeticError:
        return None
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def diagnose(trial: Trial) -> Finding | None:
    """Первая примета, которая подошла."""
    return next(filter(None, (_applied(rule, trial) for rule in RULES)), None)


def _applied(rule: Callable[[Trial], Finding | None], trial: Trial) -> Finding | None:
    """Ответ вроде 10⁴⁰⁰ не помещается в float: такому правилу он просто не подошёл."""
    try:
        return rule(trial)
    except ArithmeticError:
        return None


# --- Правила ------------------------------------------------------------------------------------


def _named(trial: Trial) -> Finding | None:
    """Ошибка из таблицы упражнения."""
    for mistake in trial.exercise.mistakes:
        if trial.matches(mistake.wrong):
            return Finding(mistake.id, mistake.meaning, mistake.hint)
    return None


def _reordered(trial: Trial) -> Finding | None:
    """Параметры названы верно, но стоят в другом порядке."""
    theirs, names = attempt.parameters(trial.function), trial.exercise.names
    if theirs is None or theirs == names or sorted(theirs) != sorted(names):
        return None
    answers = [trial.again(point, by_name=True) for point in trial.points]
    if not all(close(a or (), b, trial.exercise.tolerance) for a, b in zip(answers, trial.expected, strict=True)):
        return None
    return Finding(
        "swapped-arguments",
        f"Формула верна, но параметры функции стоят в другом порядке: {', '.join(theirs)}.",
        f"Проверка передаёт числа по порядку: {trial.exercise.signature}.",
    )


def _swapped(trial: Trial) -> Finding | None:
    """Два аргумента поменялись местами."""
    arguments = trial.exercise.arguments
    for i, j in combinations(range(len(arguments)), 2):
        if trial.matches(swapped(trial.exercise.solve, i, j)):
            return Finding(
                "swapped-arguments",
                f"Аргументы перепутаны: {arguments[i].name} стоит там, где нужен {arguments[j].name}, и наоборот.",
                "Проговорите формулу словами: что на что умножается и почему.",
            )
    return None


def swapped(function: Callable[..., Any], i: int, j: int) -> Callable[..., Any]:
    """Та же функция, у которой аргументы `i` и `j` поменялись местами."""

    def wrong(*args: Any) -> Any:
        mixed = list(args)
        mixed[i], mixed[j] = mixed[j], mixed[i]
        return function(*mixed)

    return wrong


def _constant(trial: Trial) -> Finding | None:
    """Ответ не зависит ни от чего."""
    if len(set(trial.answers)) > 1:
        return None
    return Finding(
        "constant",
        "Функция всегда отвечает одно и то же число, какие бы аргументы ей ни дали.",
        "Ответ для одного примера — ещё не формула. Выразите его через аргументы.",
    )


def _ignored(trial: Trial) -> Finding | None:
    """Аргумент, который меняется, а ответ — нет."""
    names = [argument.name for i, argument in enumerate(trial.exercise.arguments) if _has_no_effect(trial, i)]
    if not names:
        return None
    what = "Аргумент не влияет" if len(names) == 1 else "Аргументы не влияют"
    return Finding(
        "ignored-argument",
        f"{what} на ответ: {', '.join(names)}.",
        "Поищите в формуле число или глобальную переменную, которые стоят на месте аргумента.",
    )


def _has_no_effect(trial: Trial, index: int) -> bool:
    """Меняем один аргумент и смотрим: верный ответ меняется, ответ учащегося — нет."""
    moved_any = False
    for (point, other), answer, expected in zip(
        pairwise(trial.points[:4]), trial.answers, trial.expected, strict=False
    ):
        changed = (*point[:index], _other(point[index], other[index]), *point[index + 1 :])
        if evaluate(trial.exercise.solve, changed) == expected:
            continue
        moved_any = True
        if trial.again(changed) != answer:
            return False
    return moved_any


def _other(value: Any, candidate: Any) -> Any:
    return not value if isinstance(value, bool) else candidate


def _rounded(trial: Trial) -> Finding | None:
    """Ответ верен, но округлён: до целого вниз, вверх или до нескольких знаков."""
    if not trial.exercise.tolerance or not any(map(trial.matches, rounded(trial.exercise.solve))):
        return None
    return Finding(
        "rounded",
        "Формула верна, но ответ округлён внутри функции: малые величины так превращаются в ноль.",
        "Возвращайте точное значение (деление — `/`, без round и int), а округляйте при печати.",
    )


def rounded(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """Та же функция с разным округлением."""
    ways: list[Callable[[Any], Any]] = [math.floor, math.ceil, *(lambda x, d=d: round(x, d) for d in range(7))]
    return [lambda *args, way=way: way(function(*args)) for way in ways]


def _factor(trial: Trial) -> Finding | None:
    """Ответ всюду отличается в одно и то же число раз."""
    factor = steady(ratios(trial.answers, trial.expected))
    if not factor:
        return None
    if factor < 0:
        return Finding("wrong-sign", "У ответа не тот знак: он отрицателен.", "Проверьте вычитания.")
    if close((factor,), (1,), STEADY):
        return Finding("imprecise", "Ответ почти верен, но неточен: здесь нужно точное целое число.", _EXACT)
    more = "больше" if factor > 1 else "меньше"
    times = max(factor, 1 / factor)
    power = _power_of_ten(times)
    if power:
        name = units.scientific(10.0**power, 0).replace("1·", "")
        return Finding(
            "power-of-ten",
            f"Ответ всюду {more} верного ровно в {name} раз: потеряна или добавлена приставка.",
            f"Ответ нужен в основных единицах: {trial.exercise.unit}.",
        )
    return Finding(
        "constant-factor",
        f"Зависимость от аргументов верна, но ответ всюду {more} верного в {_times(times)}.",
        "Пересчитайте постоянный множитель: из каких слагаемых он складывается?",
    )


def _times(factor: Fraction) -> str:
    """«2 раза», «6 раз», «1,5 раза»."""
    if factor.denominator == 1:
        return units.number(int(factor)) + units.NBSP + units.plural(int(factor), "раз", "раза", "раз")
    return units.number(float(factor), 4).rstrip("0").rstrip(",") + units.NBSP + "раза"


def _power_of_ten(factor: Fraction) -> int:
    power = round(math.log10(factor))
    return power if power and close((factor,), (Fraction(10) ** power,), STEADY) else 0


#: Показатель, с которым аргумент вошёл в отношение ответов → (id, что это значит).
_POWERS = {
    1: ("extra-factor", "Лишний множитель:"),
    -1: ("extra-factor", "Лишний делитель:"),
    2: ("inverted-argument", "Вместо деления стоит умножение на"),
    -2: ("inverted-argument", "Вместо умножения стоит деление на"),
}


def _argument_power(trial: Trial) -> Finding | None:
    """Аргумент вошёл не в той степени: повторён или попал не на ту сторону дроби."""
    got = ratios(trial.answers, trial.expected)
    if got is None:
        return None
    parts = len(got) // len(trial.points)
    for index, argument in enumerate(trial.exercise.arguments):
        values = [Fraction(point[index]) for point in trial.points for _ in range(parts)]
        for power, (id_, what) in _POWERS.items():
            if argument.kind != "bool" and steady([r / v**power for r, v in zip(got, values, strict=True)]):
                return Finding(
                    id_,
                    f"{what} {argument.name} ({argument.title}).",
                    f"Как изменится верный ответ, если {argument.name} вырастет вдвое? А ваш?",
                )
    return None


def ratios(answers: Iterable[Answer], expected: Iterable[Answer]) -> list[Fraction] | None:
    """Отношения полученного к верному по всем частям; None, если делить не на что."""
    pairs = [(a, b) for got, right in zip(answers, expected, strict=True) for a, b in zip(got, right, strict=True)]
    if any(not b or not a for a, b in pairs):
        return None
    return [Fraction(a) / Fraction(b) for a, b in pairs]


def steady(values: Sequence[Fraction] | None) -> Fraction | None:
    """Общее значение, если все равны с точностью `STEADY`."""
    if values and all(close((value,), (values[0],), STEADY) for value in values):
        return values[0].limit_denominator(10**9) or values[0]
    return None


def _unstable(trial: Trial) -> Finding | None:
    """На одни и те же числа функция отвечает по-разному."""
    if trial.again(trial.points[0]) == trial.answers[0]:
        return None
    return Finding(
        "unstable",
        "На одни и те же аргументы функция отвечает по-разному.",
        "Проверьте, не копит ли она результат в глобальной переменной и нет ли в ней случайных чисел.",
    )


RULES: tuple[Callable[[Trial], Finding | None], ...] = (
    _reordered, _named, _swapped, _rounded, _constant, _ignored, _factor, _argument_power, _unstable,
)  # fmt: skip
