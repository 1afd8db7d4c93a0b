"""Проверка словаря «сценарий → FLOPs»: каждая запись отдельно, с точностью 1 %.

Названия узнаются по началу и без учёта знаков: «T5 large», «t5» и «T5-large» — одна запись. Лишняя запись
не проходит молча: «верно» значит, что проверено всё, что дано.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from nanolm import units
from nanolm.exercises.answer import Problem, close, contains_ellipsis, pair, read, shown
from nanolm.exercises.formulas import SCENARIOS
from nanolm.exercises.result import Finding, Result
from nanolm.exercises.task import Exercise, Number

#: Расхождение, которое ещё похоже на слишком грубое округление.
ROUGH = Fraction(1, 10)


class Entry(NamedTuple):
    """Запись словаря: сценарий, исход и все подходящие объяснения, вероятные — раньше."""

    name: str
    status: str
    findings: tuple[Finding, ...]
    got: str = ""
    expected: str = ""


def judge(exercise: Exercise, answer: Any, seed: int) -> Result:
    """Проверить словарь."""
    refusal = _refuse(exercise, answer)
    if refusal is not None:
        return refusal
    given, unknown = _recognised(dict(answer.items()))
    entries = [_entry(exercise, name, given) for name in SCENARIOS] + [_stranger(name) for name in unknown]
    for status in ("not_started", "wrong"):
        chosen = [entry for entry in entries if entry.status == status]
        if chosen:
            return _summary(exercise, status, chosen, entries)
    return _summary(exercise, "correct", [], entries)


def _refuse(exercise: Exercise, answer: Any) -> Result | None:
    if answer is None or answer is ...:
        return Result(exercise.id, exercise.title, "not_started", "Словарь ещё не заполнен.")
    # У класса dict метод items есть, а записей нет.
    if isinstance(answer, Mapping) or (hasattr(answer, "items") and not isinstance(answer, type)):
        return None
    what = "передана функция" if callable(answer) else f"получено {shown(answer)}"
    what = f"передан класс {answer.__name__}" if isinstance(answer, type) else what
    names = ", ".join(SCENARIOS)
    return Result(
        exercise.id, exercise.title, "error", f"Нужен {exercise.signature}, а {what}.", "wrong-type",
        f"Ключи словаря: {names}.",
    )  # fmt: skip


def _recognised(answer: dict[Any, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Записи под нашими названиями и ключи, которых мы не узнали (повторы — тоже)."""
    given: dict[str, Any] = {}
    unknown: list[Any] = []
    for key, value in answer.items():
        name = _scenario(key)
        if name is None or name in given:
            unknown.append(key)
        else:
            given[name] = value
    return given, unknown


def _scenario(key: Any) -> str | None:
    letters = _letters(key) if isinstance(key, str) else ""
    fits = [name for name in SCENARIOS if letters and _letters(name)[: len(letters)] == letters[: len(_letters(name))]]
    return fits[0] if len(fits) == 1 else None


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()


def _stranger(key: Any) -> Entry:
    meaning = "такого сценария в таблице нет, или он записан дважды."
    return Entry(shown(key), "wrong", (Finding("unknown-scenario", meaning, f"Сценарии: {', '.join(SCENARIOS)}."),))


def _entry(exercise: Exercise, name: str, given: dict[str, Any]) -> Entry:
    """Исход одной записи."""
    if name not in given:
        return Entry(name, "wrong", (Finding("missing-scenario", "записи нет.", f"Добавьте ключ «{name}»."),))
    value = given[name]
    if value is None or contains_ellipsis(value):
        return Entry(name, "not_started", (Finding(None, "ещё не посчитано."),))
    answer = read(value, ())
    if isinstance(answer, Problem):
        return Entry(name, "wrong", (Finding(answer.id, answer.text),), shown(value))
    right = (exercise.solve()[name],)
    if close(answer, right, exercise.tolerance):
        return Entry(name, "correct", ())
    return Entry(name, "wrong", tuple(_diagnose(exercise, name, answer[0])), *pair(answer[0], right[0]))


def _diagnose(exercise: Exercise, name: str, got: Number) -> Iterator[Finding]:
    """Почему число не то: ошибка формулы, чужая строка, потерянная приставка, грубое округление."""
    for mistake in exercise.mistakes:
        if close((got,), (mistake.wrong(*SCENARIOS[name]),), exercise.tolerance):
            yield Finding(mistake.id, mistake.meaning, mistake.hint)
    right = exercise.solve()
    for other, value in right.items():
        if close((got,), (value,), exercise.tolerance):
            yield Finding("other-scenario", f"это ответ для сценария {other}.", "Сверьте строки таблицы.")
    if close((got,), (right[name],), ROUGH):
        yield Finding("too-rough", "порядок верен, но округлено слишком грубо: нужна точность 1\u00a0%.", _KEEP)
    power = _power_of_ten(got, right[name], exercise.tolerance)
    if power:
        more = "больше" if power > 0 else "меньше"
        times = units.scientific(10.0 ** abs(power), 0).replace("1·", "")
        yield Finding("power-of-ten", f"число {more} верного ровно в {times} раз.", _PREFIX)
    yield Finding(None, "число не то.", f'Подсказка: hint("{exercise.id}").')


_KEEP = "Округляйте в самом конце и оставляйте три значащие цифры."
_PREFIX = "Проверьте приставки: млн — 10⁶, млрд — 10⁹, трлн — 10¹². В коде 3,3 млрд — это 3.3e9, а не 3.3."


def _power_of_ten(got: Number, right: Number, tolerance: Fraction) -> int:
    if got <= 0:
        return 0
    ratio = Fraction(got) / Fraction(right)
    # Логарифм дроби берётся по частям: сама она может не поместиться в float.
    power = round(math.log10(ratio.numerator) - math.log10(ratio.denominator))
    return power if close((ratio,), (Fraction(10) ** power,), tolerance) else 0


def _summary(exercise: Exercise, status: str, chosen: list[Entry], entries: list[Entry]) -> Result:
    """Общий итог: имя ошибки названо, если она одна на все записи."""
    passed = sum(entry.status == "correct" for entry in entries)
    if status == "correct":
        text = f"Все сценарии сошлись с точностью 1\u00a0%: {passed} из {len(entries)}."
        return Result(exercise.id, exercise.title, status, text, passed=passed, total=len(entries))
    common = _common(chosen)
    findings = [next(f for f in entry.findings if common in (None, f.id)) for entry in chosen]
    pairs = zip(chosen, findings, strict=True)
    first, given = chosen[0], SCENARIOS.get(chosen[0].name)
    return Result(
        exercise.id, exercise.title, status,
        "\n".join(f"{entry.name}: {_uncapitalized(finding.meaning)}" for entry, finding in pairs),
        common, findings[0].hint, _written(first.name, given) if given and status == "wrong" else "",
        first.got, first.expected, passed=passed, total=len(entries),
    )  # fmt: skip


def _common(chosen: list[Entry]) -> str | None:
    """Ошибка, которая объясняет все записи: совпадение в одной строке бывает случайным."""
    sets = [{finding.id for finding in entry.findings} for entry in chosen]
    return next((f.id for f in chosen[0].findings if f.id and all(f.id in ids for ids in sets)), None)


def _uncapitalized(text: str) -> str:
    """С прописной начинаются предложения; сокращение вроде FLOPs остаётся как есть."""
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def _written(name: str, given: tuple[float, float]) -> str:
    parameters, tokens = map(units.short, given)
    return f"{name}: параметров {parameters}, токенов {tokens}"
