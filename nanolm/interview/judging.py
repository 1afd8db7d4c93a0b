"""Суд над ответом: верно, неверно или не прочитать.

Сначала ответ сравнивается с верным, потом с числами названных ошибок, потом с верным числом в чужой единице, и лишь
тогда говорится просто «неверно». Верного числа приговор не выдаёт: решение учащийся откроет сам.

У записи «65,536» два смысла. Если верен или узнан ровно один, то он и имелся в виду. Иначе крупная единица значит,
что это дробь («5,625 ГиБ»), а без неё ответ не угадывается.
"""

from __future__ import annotations

from nanolm import units
from nanolm.interview.problem import NARROWER, shown
from nanolm.interview.quantity import Reading, read, trimmed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nanolm.interview.problem import Mistake, Problem

CORRECT, WRONG, UNCLEAR = "correct", "wrong", "unclear"


class Verdict:
    """Приговор: `.state` («correct», «wrong», «unclear»), `.text` — что сказать, `.hint` — на что посмотреть,
    `.mistake` — имя ошибки, если она узнана."""

    __slots__ = ("hint", "mistake", "state", "text")

    def __init__(self, state: str, text: str, hint: str = "", mistake: str = "") -> None:
        self.state, self.text, self.hint, self.mistake = state, text, hint, mistake

    def __str__(self) -> str:
        return f"{self.text} {self.hint}".strip()

    def __repr__(self) -> str:
        return f"Verdict({self.state!r}, {self.mistake!r}: {self.text})"


def judge(problem: Problem, text: str) -> Verdict:
    """Верен ли ответ `text`. Годится любая строка: исключений не бывает."""
    reading = read(str(text), problem.dimension)
    verdict = _unreadable(problem, reading) or _twofold(problem, reading) or _number(problem, reading)
    concluded = problem.fits is None or reading.fits is problem.fits or verdict.mistake == "wrong-conclusion"
    if verdict.state == WRONG and not concluded:
        more = "Нужен и вывод: «да» или «нет»." if reading.fits is None else "И вывод тоже неверен."
        verdict.hint = f"{verdict.hint} {more}".lstrip()
    return verdict


def _unreadable(problem: Problem, reading: Reading) -> Verdict | None:
    """Чего в ответе не хватает, чтобы его судить."""
    expected = f"Нужен ответ вида «{problem.example}»."
    if reading.gave_up:
        return Verdict(UNCLEAR, "Тогда посмотрите подсказку или решение.")
    if reading.trouble:
        return Verdict(UNCLEAR, f"Не понял: {reading.trouble}.", expected)
    if reading.number is None:
        if reading.fits is not None and problem.fits is not None:
            return Verdict(UNCLEAR, "А сколько памяти нужно? Вывод без числа не проверить.", expected)
        return Verdict(UNCLEAR, "Ответа нет." if reading.fits is None else "Это не число.", expected)
    return None


def _twofold(problem: Problem, reading: Reading) -> Verdict | None:
    """Выбрать смысл числа, у которого их два, и записать его в `reading`; не выбрать — сказать об этом."""
    if reading.number is None or reading.other is None:
        return None
    fraction, grouped = reading.number, reading.other
    of_fraction, of_grouped = (_familiar(problem, reading, number) for number in (fraction, grouped))
    reading.number = grouped if of_grouped > of_fraction else fraction
    if of_grouped != of_fraction or reading.foreign or (not of_fraction and (reading.scale or 1) > 1):
        return None
    small, large = trimmed(units._significant(abs(fraction), 3)), shown(round(abs(grouped)))
    text = f"Не понял: {reading.written.strip()} — это {large} или {small}?"
    return Verdict(UNCLEAR, text, "Разряды отделяйте пробелом, а дробь округлите до двух знаков.")


def _familiar(problem: Problem, reading: Reading, number: float) -> int:
    """Насколько знакомо число: верное — 3, число ошибки — 2, верное в другой единице — 1, иное — 0."""
    reading.number = number
    value, _ = _taken(problem, reading)
    if _right(problem, value):
        return 3
    if _mistake(problem, value) is not None:
        return 2
    return int(_other_unit(problem, number) is not None)


def _taken(problem: Problem, reading: Reading) -> tuple[float, str]:
    """Величина в основных единицах и замечание. Без единицы число читается в той, о которой спросили."""
    assert reading.number is not None
    value = reading.value
    if value is not None and (reading.unit or _right(problem, value)):
        return value, ""
    note = f"Единицу называйте всегда: принял за {problem.unit}." if problem.unit else ""
    return reading.number * problem.dimension.units[problem.unit], note


def _number(problem: Problem, reading: Reading) -> Verdict:
    """Приговор числу: с единицей, с чужой единицей или без неё."""
    assert reading.number is not None
    if reading.foreign:
        return _foreign(problem, reading)
    bare = not reading.unit
    value, note = _taken(problem, reading)
    if _right(problem, value):
        return _conclusion(problem, reading, note)
    mistake = _mistake(problem, value)
    if bare and (mistake is None or not mistake.required):
        other = _other_unit(problem, reading.number)
        if other is not None:
            hint = f"Нужен ответ вида «{problem.example}»."
            return Verdict(UNCLEAR, f"Число верное, если это {other}. Назовите единицу.", hint)
    if mistake is not None:
        return Verdict(WRONG, mistake.meaning, mistake.hint, mistake.id)
    return _nameless(problem, reading, value)


def _right(problem: Problem, value: float) -> bool:
    return _near(value, problem.answer, problem.tolerance)


def _near(value: float, target: float, tolerance: float) -> bool:
    return abs(value - target) <= tolerance * abs(target)


def _mistake(problem: Problem, value: float) -> Mistake | None:
    """Ошибка, чьё число совпало; отрезки ошибок не пересекаются, поэтому она одна."""
    narrow = problem.tolerance * NARROWER
    return next((one for one in problem.mistakes if _near(value, one.value, narrow)), None)


def _conclusion(problem: Problem, reading: Reading, note: str) -> Verdict:
    """Число верное; если спрашивали «поместится ли», то верен ли и вывод."""
    if problem.fits is None:
        return Verdict(CORRECT, f"Верно: {problem.expected}.", note)
    if reading.fits is None:
        return Verdict(UNCLEAR, "Число верное. А поместится ли?", f"Нужен ответ вида «{problem.example}».")
    if reading.fits is not problem.fits:
        hint = "Сравните его с доступной памятью карты, и в одних единицах: ГиБ и ГБ — разные."
        return Verdict(WRONG, "Число верное, а вывод нет.", hint, "wrong-conclusion")
    return Verdict(CORRECT, f"Верно: {problem.expected}.", note)


def _foreign(problem: Problem, reading: Reading) -> Verdict:
    """Единица другой величины: «16 ГБ» там, где спросили параметры."""
    assert reading.number is not None
    asked = f"Спрашивали {problem.dimension.name}, а «{reading.unit}» — {reading.foreign}."
    expected = f"Нужен ответ вида «{problem.example}»."
    if _other_unit(problem, reading.number) is None:
        return Verdict(UNCLEAR, asked, expected)
    return Verdict(WRONG, f"Число верное, а единица нет. {asked}", expected, "foreign-unit")


def _other_unit(problem: Problem, number: float) -> str | None:
    """Единица, с которой это число было бы верным."""
    for unit, scale in problem.dimension.units.items():
        if _right(problem, number * scale):
            return unit or "штуки"
    return None


def _nameless(problem: Problem, reading: Reading, value: float) -> Verdict:
    """Неверно, но почему — не узнать: может быть, хотя бы единица, знак или порядок."""
    assert reading.number is not None
    other = _other_unit(problem, reading.number)
    if other is not None:
        text = f"Число верное, а единица нет: так выходит, если это {other}."
        return Verdict(WRONG, text, "Пересчитайте или назовите другую единицу.", "wrong-unit")
    if value <= 0:
        return Verdict(WRONG, "Неверно: ответ — положительное число.", problem.hints[0])
    for step, word in ((1000.0, "тысячу"), (1e6, "миллион"), (1e9, "миллиард"), (10.0, "десять"), (100.0, "сто")):
        for factor, more in ((step, "больше"), (1 / step, "меньше")):
            if _right(problem, value / factor):
                text = f"Неверно: ответ {more} верного в {word} раз, потеряна или добавлена приставка."
                return Verdict(WRONG, text, "Проверьте порядок числа.", "power-of-ten")
    direction = "больше" if value > problem.answer else "меньше"
    return Verdict(WRONG, f"Неверно: ваш ответ {direction} верного.", problem.hints[0])
