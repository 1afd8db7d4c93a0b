"""Упражнения лаборатории 7.2: FLOPs обучения."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from nanolm.exercises.formulas import compute_num_flops, scenario_flops
from nanolm.exercises.mistakes import forgotten, overflow
from nanolm.exercises.task import Argument, Exercise, Misconception


def _times(factor: int) -> Any:
    return lambda param_count, num_tokens: factor * param_count * num_tokens


#: Ошибки правила 6PN: те же и в функции, и в таблице сценариев.
MISTAKES = (
    Misconception(
        "forward-only",
        _times(2),
        "Множитель 2 — это один прямой проход; обратный не посчитан.",
        "Обратный проход считает два градиента: по входу слоя и по весам. Во сколько раз он дороже прямого?",
    ),
    Misconception(
        "backward-only",
        _times(4),
        "Множитель 4 — это один обратный проход без прямого (или оба прохода по цене прямого).",
        "Сложите цену прямого прохода и цену обратного: они не равны.",
    ),
    Misconception(
        "macs",
        _times(3),
        "Умножение со сложением посчитаны за одну операцию.",
        "В этом курсе «умножить и накопить» — две операции, а не одна.",
    ),
    Misconception(
        "factor-forgotten",
        _times(1),
        "Параметры и токены перемножены, но цена одной такой пары не учтена.",
        "Сколько операций делает один параметр на одном токене: при прямом проходе и при обратном?",
    ),
    Misconception(
        "recompute-counted",
        _times(8),
        "Прибавлен второй прямой проход — пересчёт активаций.",
        "Пересчёт делает карта, но полезной работой он не считается. Оставьте один прямой проход и один обратный.",
    ),
    forgotten(
        compute_num_flops,
        1,
        "tokens-forgotten",
        "Токены не вошли в ответ: это работа на один токен.",
        "Модель читает каждый токен обучения. Что изменится, если токенов станет вдвое больше?",
    ),
    forgotten(
        compute_num_flops,
        0,
        "params-forgotten",
        "Параметры не вошли в ответ.",
        "На каждом токене работает каждый параметр. Что изменится, если модель вырастет вдвое?",
    ),
    Misconception(
        "added-not-multiplied",
        lambda param_count, num_tokens: 6 * (param_count + num_tokens),
        "Параметры и токены сложены, а не перемножены.",
        "Каждый токен проходит через каждый параметр.",
    ),
)

#: В таблице оба числа под рукой, и их легко взять не из того столбца.
_MIXED = tuple(
    Misconception(
        "columns-mixed",
        wrong,
        "Взят не тот столбец: параметры и токены перепутаны.",
        "В произведение входит по одному числу из каждого столбца.",
    )
    for wrong in (lambda param_count, num_tokens: 6 * param_count**2, lambda param_count, num_tokens: 6 * num_tokens**2)
)

EXERCISES = (
    Exercise(
        id="7.2/flops",
        title="FLOPs обучения за эпоху",
        lesson="7.2",
        solve=compute_num_flops,
        unit="FLOPs",
        arguments=(
            Argument("param_count", "число параметров", 10**6, 2 * 10**9),
            Argument("num_tokens", "число токенов", 10**6, 2 * 10**9),
        ),
        given=((1_000_003, 30_011), (124_439_809, 2_000_003), (1_900_000_043, 2_000_000_089)),
        mistakes=(*MISTAKES, overflow(compute_num_flops), overflow(compute_num_flops, bits=64)),
        hints=(
            "Начните с одного токена и одного параметра: сколько операций они вызывают?",
            (
                "Прямой проход — умножение и сложение на каждый параметр. Обратный считает два градиента вместо одного "
                "ответа, поэтому стоит вдвое дороже."
            ),
            (
                "Сложите цену прямого и обратного прохода для пары «параметр и токен», а потом учтите, что каждый "
                "токен проходит через каждый параметр."
            ),
        ),
        tolerance=Fraction(1, 10**9),
    ),
    Exercise(
        id="7.2/scenarios",
        title="FLOPs известных моделей",
        lesson="7.2",
        solve=scenario_flops,
        unit="FLOPs",
        mistakes=(*MISTAKES, *_MIXED),
        hints=(
            "Новая формула не нужна: подойдёт функция из прошлого упражнения.",
            (
                "Переведите слова в числа: миллион — это 1e6, миллиард — 1e9, триллион — 1e12. Дробная часть "
                "отделяется точкой."
            ),
            (
                "Для каждого сценария вызовите свою функцию с числом параметров и числом токенов из его строки "
                "таблицы. Проверка допускает расхождение в 1\u00a0%."
            ),
        ),
        tolerance=Fraction(1, 100),
    ),
)
