"""Упражнения лаборатории 7.1: собрать ответы модели, засечь время, напечатать его по-человечески."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nanolm.exercises.phrase import Phrase
from nanolm.exercises.task import Misconception
from nanolm.units import plural

_MINUTE, _SECOND = ("минута", "минуты", "минут"), ("секунда", "секунды", "секунд")
#: Сколько длится один вызов поддельной модели, с. Последний дольше: так видно, засекли весь цикл или его конец.
_NAP = 0.004


def format_duration(seconds: int) -> str:
    """«1 минута 5 секунд»; минуты называются, только если они есть, секунды — всегда."""
    minutes, rest = divmod(seconds, 60)
    parts = [f"{minutes} {plural(minutes, *_MINUTE)}"] if minutes else []
    return " ".join([*parts, f"{rest} {plural(rest, *_SECOND)}"])


def _spelled(form: Callable[..., str], carry: bool = True) -> Callable[[int], str]:
    """Тот же текст с другим правилом формы слова; без `carry` — не выделяя минут."""

    def wrong(seconds: int) -> str:
        minutes, rest = divmod(seconds, 60) if carry else (0, seconds)
        parts = [f"{minutes} {form(minutes, *_MINUTE)}"] if minutes else []
        return " ".join([*parts, f"{rest} {form(rest, *_SECOND)}"])

    return wrong


def _last_digit(count: int, one: str, few: str, many: str) -> str:
    return {1: one, 2: few, 3: few, 4: few}.get(count % 10, many)


def _swapped(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    return format_duration(rest * 60 + minutes) if rest else f"{minutes} {plural(minutes, *_SECOND)}"


def _seconds(draw: random.Random) -> Iterator[tuple[int]]:
    """Случайные длительности: и меньше минуты, и больше часа."""
    for top in (60, 60, 60, 600, 600, 600, 3600, 3600, 7200, 7200):
        yield (draw.randrange(top),)


_DURATION = Phrase(
    id="7.1/duration",
    title="длительность словами",
    name="format_duration",
    arguments=("seconds",),
    solve=format_duration,
    given=((0,), (1,), (62,), (5,), (71,), (121,), (131,), (672,)),
    generated=_seconds,
    mistakes=(
        Misconception(
            "last-digit-only", _spelled(_last_digit), "Форма слова выбрана только по последней цифре.",
            "Скажите вслух: 11 секунд, 12 секунд, но 21 секунда, 22 секунды. Чем числа от 11 до 14 особенны?",
        ),
        Misconception(
            "two-forms", _spelled(lambda count, one, few, many: one if count == 1 else many),
            "Форм две, как в английском: единственное и множественное число.",
            "По-русски форм три: 1 секунда, 2 секунды, 5 секунд.",
        ),
        Misconception(
            "one-form", _spelled(lambda count, one, few, many: many), "Форма слова не зависит от числа.",
            "Сравните: 1 секунда, 2 секунды, 5 секунд.",
        ),
        Misconception(
            "minutes-not-separated", _spelled(plural, carry=False), "Минуты не выделены: всё осталось в секундах.",
            "Сколько целых минут в 131 секунде и сколько секунд остаётся? Помогут // и % — или divmod.",
        ),
        Misconception(
            "swapped", _swapped, "Минуты и секунды поменялись местами.",
            "divmod возвращает сначала частное, потом остаток. Что из них минуты?",
        ),
        Misconception(
            "minutes-always",
            lambda s: f"{s // 60} {plural(s // 60, *_MINUTE)} {s % 60} {plural(s % 60, *_SECOND)}",
            "Минуты названы, даже когда их нет.", "Пять секунд — это «5 секунд», а не «0 минут 5 секунд».",
        ),
        Misconception(
            "rest-forgotten",
            lambda s: f"{s // 60} {plural(s // 60, *_MINUTE)}" if s >= 60 else f"{s} {plural(s, *_SECOND)}",
            "Секунды сверх целых минут потеряны.", "В 131 секунде две минуты — и сколько ещё?",
        ),
    ),
    hints=(
        "Разделите задачу: сначала минуты и остаток, потом форма слова для каждого числа.",
        "Минуты — целая часть деления на 60, секунды — остаток: divmod(seconds, 60).",
        "Форма слова — функция от числа. Сначала отсейте 11–14, потом смотрите на последнюю цифру: 1, 2–4, остальное.",
    ),
)  # fmt: skip


# --- Собрать ответы и засечь время ----------------------------------------------------------------


def collect_generations(generate: Callable[[str], str], prompts: Sequence[str]) -> tuple[list[str], float]:
    """Ответы по порядку запросов и время всего цикла, с."""
    start = time.perf_counter()
    answers = [generate(prompt) for prompt in prompts]
    return answers, time.perf_counter() - start


def _watched(function: Callable[..., Any], point: tuple[Any, ...]) -> Any:
    """Позвать функцию с поддельной моделью; время заменить словом — что именно засекли."""
    prompts = list(point[0])
    durations: list[float] = []

    def generate(prompt: Any) -> str:
        start = time.perf_counter()
        time.sleep(_NAP * (3 if len(durations) == len(prompts) - 1 else 1))
        durations.append(time.perf_counter() - start)
        return f"ответ на «{prompt}»"

    before = time.perf_counter()
    value = function(generate, prompts)
    whole = time.perf_counter() - before
    if isinstance(value, _Labelled):
        return tuple(value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], (int, float)):
        return value[0], _measured(float(value[1]), durations, whole)
    return value


def _measured(seconds: float, durations: Sequence[float], whole: float) -> str:
    """Что засёк учащийся. Цикл не короче своих вызовов и не длиннее всей функции."""
    calls, slack = sum(durations), 0.001
    if calls - slack <= seconds <= whole + slack:
        return "весь цикл"
    if (calls - slack) * 1000 <= seconds <= (whole + slack) * 1000:
        return "миллисекунды"
    if seconds < 0:
        return "меньше нуля"
    last = durations[-1] if durations else 0.0
    # Между отсчётами процесс могли вытеснить, поэтому граница — посередине, а не впритык.
    if len(durations) > 1 and last - slack <= seconds <= (last + calls) / 2:
        return "один вызов"
    return "почти ничего" if seconds < calls / 10 else "что-то другое"


def _answers(value: Any) -> str | None:
    """Нужна пара «список, число секунд»."""
    if not isinstance(value, tuple) or len(value) != 2 or not isinstance(value[1], str):
        return "Нужна пара: список ответов и время в секундах — return answers, seconds."
    if not isinstance(value[0], (list, tuple)):
        return f"Ответы собирают в список, а получено {type(value[0]).__name__}."
    return None


def _timed(label: str) -> Callable[..., Any]:
    """Ответы верны, а засечено не то: слово `label` подставит сама проверка."""

    def wrong(generate: Callable[[str], str], prompts: Sequence[str]) -> _Labelled:
        return _Labelled([generate(prompt) for prompt in prompts], label)

    return wrong


class _Labelled(tuple[list[str], str]):
    """Готовая пара «ответы, слово»: её не надо измерять."""

    __slots__ = ()

    def __new__(cls, answers: list[str], label: str) -> _Labelled:
        return super().__new__(cls, (answers, label))


def _gathered(choose: Callable[[Callable[[str], str], Sequence[str]], Any]) -> Callable[..., Any]:
    """Время верно, а собрано не то."""
    return lambda generate, prompts: _Labelled(choose(generate, prompts), "весь цикл")


def _prompts(draw: random.Random) -> Iterator[tuple[list[str]]]:
    """Случайные запросы; среди них есть повтор: словарь его потеряет."""
    for count in (2, 3):
        names = [f"запрос {draw.randrange(10**6)}" for _ in range(count)]
        yield ([*names, names[0]],)


_COLLECT = Phrase(
    id="7.1/collect",
    title="собрать ответы и засечь время",
    name="collect_generations",
    arguments=("generate", "prompts"),
    solve=collect_generations,
    given=((["Кения", "Гана", "Кения"],), (["Мали", "Чад"],)),
    generated=_prompts,
    call=_watched,
    complain=_answers,
    mistakes=(
        Misconception(
            "last-only", _gathered(lambda generate, prompts: [[generate(p) for p in prompts][-1]]),
            "Остался только последний ответ.", "Список создают до цикла, а внутри цикла дополняют.",
        ),
        Misconception(
            "first-only", _gathered(lambda generate, prompts: [generate(prompts[0])]),
            "Собран только первый ответ.", "Не стоит ли return внутри цикла?",
        ),
        Misconception(
            "reversed", _gathered(lambda generate, prompts: [generate(p) for p in prompts][::-1]),
            "Ответы идут в обратном порядке.", "Порядок ответов — порядок запросов.",
        ),
        Misconception(
            "duplicates-lost", _gathered(lambda generate, prompts: list({p: generate(p) for p in prompts}.values())),
            "Повторный запрос потерян: у словаря один ответ на ключ.", "Сколько ответов должно быть на три запроса?",
        ),
        Misconception(
            "prompts-returned", _gathered(lambda generate, prompts: [(generate(p), p)[1] for p in prompts]),
            "Собраны запросы, а не ответы.", "Что возвращает generate(prompt)?",
        ),
        Misconception(
            "one-call-timed", _timed("один вызов"), "Засечён один вызов, а не весь цикл.",
            "Начало отсчёта ставят перед циклом, конец — после него.",
        ),
        Misconception(
            "nothing-timed", _timed("почти ничего"),
            "Время почти нулевое: засечено не ожидание ответа.",
            "Начало — до цикла, конец — после. И нужны часы, которые идут всегда: time.perf_counter(); "
            "time.process_time() считает только занятое процессором время.",
        ),
        Misconception(
            "negative-time", _timed("меньше нуля"), "Время отрицательное.", "Из конца вычитают начало.",
        ),
        Misconception(
            "milliseconds", _timed("миллисекунды"), "Время в миллисекундах, а нужны секунды.",
            "perf_counter() уже возвращает секунды.",
        ),
    ),
    hints=(
        "Три шага: запомнить время, пройти цикл, вычесть.",
        "До цикла заведите пустой список и start = time.perf_counter(); в цикле дополняйте список ответом.",
        "После цикла верните пару: список и time.perf_counter() - start.",
    ),
)  # fmt: skip

EXERCISES = (_COLLECT, _DURATION)
