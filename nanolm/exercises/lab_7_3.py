"""Упражнения лаборатории 7.3: реплика диалога и слой, на котором кончится память."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from nanolm.exercises.phrase import Phrase
from nanolm.exercises.task import Misconception
from nanolm.facts import format_question

_GEMMA = ("<start_of_turn>", "<end_of_turn>")
_WORDS = ("Кения", "Гана", "Мали", "Чад", "Того", "Бенин", "Ангола", "Судан")


def _questions(draw: random.Random) -> Iterator[tuple[str, str, str]]:
    """Случайные вопросы со случайными метками: чужие метки в ответе сразу видны."""
    for _ in range(8):
        mark = draw.randrange(100, 999)
        yield f"Страна {draw.choice(_WORDS)}: какая там валюта №{mark}?", f"<начало{mark}>", f"<конец{mark + 1}>"


_FORMAT = Phrase(
    id="7.3/format-question",
    title="вопрос как реплика",
    name="format_question",
    arguments=("question", "sot", "eot"),
    solve=format_question,
    given=(
        ("Страна Кения: какая там валюта?", *_GEMMA),
        ("Город Найроби: в какой он стране?", "<|от|>", "<|до|>"),
        ("Язык масаи: как он называет сам себя?", "[", "]"),
    ),
    generated=_questions,
    mistakes=(
        Misconception(
            "markers-forgotten", lambda question, sot, eot: question, "Меток нет: вернулся сам вопрос.",
            "Модель узнаёт, чья это реплика, только по меткам.",
        ),
        Misconception(
            "markers-swapped", lambda question, sot, eot: format_question(question, eot, sot),
            "Метки начала и конца поменялись местами.", "sot — start of turn, начало реплики; eot — её конец.",
        ),
        Misconception(
            "markers-hard-coded", lambda question, sot, eot: format_question(question, *_GEMMA),
            "Метки вписаны в текст функции, а аргументы sot и eot не использованы.",
            "У другой модели другие метки. Подставьте аргументы.",
        ),
        Misconception(
            "role-forgotten", lambda question, sot, eot: f"{sot}{question}{eot}\n{sot}model\n",
            "Не сказано, чья реплика: после метки начала нет роли.", "Первая реплика — пользователя: user.",
        ),
        Misconception(
            "answer-turn-missing", lambda question, sot, eot: f"{sot}user\n{question}{eot}\n",
            "Реплика модели не начата.", "Запрос кончается там, где модели пора говорить: метка начала и роль model.",
        ),
        Misconception(
            "answer-turn-missing", lambda question, sot, eot: f"{sot}user\n{question}{eot}",
            "Реплика модели не начата.", "Запрос кончается там, где модели пора говорить: метка начала и роль model.",
        ),
        Misconception(
            "answer-turn-closed", lambda question, sot, eot: f"{sot}user\n{question}{eot}\n{sot}model\n{eot}",
            "Реплика модели уже закончена: отвечать ей негде.", "Метку конца поставит сама модель.",
        ),
        Misconception(
            "last-newline-missing", lambda question, sot, eot: format_question(question, sot, eot)[:-1],
            "Нет перевода строки после роли model.", "После роли всегда идёт новая строка — и у ответа тоже.",
        ),
        Misconception(
            "newlines-forgotten", lambda question, sot, eot: f"{sot}user{question}{eot}{sot}model",
            "Нет переводов строки: роль слилась с текстом.", "Роль стоит на строке метки, текст — со следующей строки.",
        ),
        Misconception(
            "spaces-for-newlines", lambda question, sot, eot: f"{sot}user {question}{eot} {sot}model ",
            "Вместо переводов строки стоят пробелы.", "Роль стоит на строке метки, текст — со следующей строки: \\n.",
        ),
    ),
    hints=(
        "Две реплики: законченная реплика пользователя и только что начатая реплика модели.",
        "Реплика — метка начала, роль, новая строка, текст, метка конца.",
        "После реплики пользователя: новая строка, метка начала, model и ещё одна новая строка.",
    ),
)  # fmt: skip


def layers_before_wall(cap: int, embedding: int, layer: int) -> int:
    """Сколько слоёв загрузится целиком: эмбеддинг загружают первым."""
    return max(0, cap - embedding) // layer


def _sizes(draw: random.Random) -> Iterator[tuple[int, int, int]]:
    """Случайные размеры; раз в несколько точек эмбеддинг не помещается вовсе."""
    for step in range(8):
        layer = draw.randrange(10**7, 5 * 10**8)
        embedding = draw.randrange(10**8, 4 * 10**9)
        room = -draw.randrange(1, 10**8) if step % 4 == 3 else layer * draw.randrange(2, 40) + draw.randrange(1, layer)
        yield embedding + room, embedding, layer


def _whole(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"Нужно число слоёв, а получено {type(value).__name__}."
    return None


_LAYERS = Phrase(
    id="7.3/layers",
    title="сколько слоёв до стены",
    name="layers_before_wall",
    arguments=("cap", "embedding", "layer"),
    solve=layers_before_wall,
    given=((14_244_534_681, 2_685_009_920, 377_526_272), (1_000, 300, 101), (500, 700, 90)),
    generated=_sizes,
    complain=_whole,
    mistakes=(
        Misconception(
            "not-whole", lambda cap, embedding, layer: max(0, cap - embedding) / layer,
            "Слои вышли дробными: половина слоя не загружается.",
            "Сколько целых слоёв помещается? Деление нацело — //.",
        ),
        Misconception(
            "embedding-forgotten", lambda cap, embedding, layer: cap // layer, "Эмбеддинг не учтён.",
            "Что загружают раньше слоёв и сколько оно занимает?",
        ),
        Misconception(
            "rounded-up", lambda cap, embedding, layer: -(-max(0, cap - embedding) // layer),
            "Посчитан и слой, на котором процесс погиб.", "Недогруженный слой не в счёт: округляйте вниз.",
        ),
        Misconception(
            "rounded", lambda cap, embedding, layer: round(max(0, cap - embedding) / layer),
            "Округлено до ближайшего: иногда засчитан незагруженный слой.", "Округляйте вниз.",
        ),
        Misconception(
            "negative", lambda cap, embedding, layer: (cap - embedding) // layer,
            "Если не поместился и эмбеддинг, слоёв выходит меньше нуля.", "Меньше нуля слоёв не бывает: max(0, …).",
        ),
        Misconception(
            "negative", lambda cap, embedding, layer: math.trunc((cap - embedding) / layer),
            "Если не поместился и эмбеддинг, слоёв выходит меньше нуля.", "Меньше нуля слоёв не бывает: max(0, …).",
        ),
        Misconception(
            "embedding-added", lambda cap, embedding, layer: (cap + embedding) // layer,
            "Эмбеддинг прибавлен к пределу, а он его занимает.", "Из предела вычитают то, что уже занято.",
        ),
    ),
    hints=(
        "Сначала загружают эмбеддинг. Сколько останется?",
        "Остаток делят на размер слоя; неполный слой не в счёт.",
        "Если остатка нет, слоёв ноль: max(0, …).",
    ),
)  # fmt: skip

EXERCISES = (_FORMAT, _LAYERS)
