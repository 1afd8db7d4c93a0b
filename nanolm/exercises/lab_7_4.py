"""Упражнения лаборатории 7.4: калькулятор памяти, ответы в гибибайтах."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from nanolm.exercises.formulas import (
    calculate_activation_memory,
    calculate_gradient_memory,
    calculate_input_data_memory,
    calculate_optimizer_memory,
    calculate_param_memory,
)
from nanolm.exercises.mistakes import Formula, forgotten, gibibytes, scaled
from nanolm.exercises.task import Argument, Exercise, Misconception
from nanolm.units import GIB

#: Границы числа параметров: само оно помещается в int32, а его байты — уже нет.
_PARAM_COUNT = Argument("param_count", "число параметров", 10**6, 2 * 10**9)
_BYTES = Argument("bytes_per_param", "байтов на параметр", 3, 13)
_GIVEN = ((1_000_003, 3), (124_439_809, 7), (1_900_000_043, 5))

_WIDTH = (
    "bytes-forgotten",
    "Байты на значение не учтены: количество принято за размер.",
    "Сколько места займёт одно значение, если вместо bf16 взять fp32?",
)
_ADDED = ("added-not-multiplied", "Аргументы сложены, а не перемножены.")


def _product(*args: Any) -> Any:
    total = 1
    for value in args:
        total *= value
    return total


def _mistakes(solve: Formula, copies: int = 1) -> tuple[Misconception, ...]:
    """Ошибки, общие для всех пяти функций; `copies` — сколько величин хранится на параметр."""
    return (
        *gibibytes(lambda *args: copies * _product(*args)),
        Misconception(
            _ADDED[0],
            lambda *args: copies * sum(args) / GIB,
            _ADDED[1],
            "Значений столько-то, и каждое занимает столько-то байт. Какое действие это описывает?",
        ),
    )


_UNITS_HINT = "Ответ нужен в гибибайтах: поделите байты на 1024 в кубе. Гигабайт (миллиард байт) — другая единица."

EXERCISES = (
    Exercise(
        id="7.4/params",
        title="Память параметров",
        lesson="7.4",
        solve=calculate_param_memory,
        unit="ГиБ",
        arguments=(_PARAM_COUNT, _BYTES),
        given=_GIVEN,
        mistakes=(
            *_mistakes(calculate_param_memory),
            forgotten(calculate_param_memory, 1, *_WIDTH),
            scaled(
                calculate_param_memory,
                4,
                "whole-training",
                "Посчитаны веса вместе с градиентами и состоянием Adam.",
                "Здесь нужны одни веса; остальному отведены свои функции.",
            ),
        ),
        hints=(
            "Каждый параметр — одно число. Сколько байт занимает одно число, вам передали.",
            "Сначала найдите размер в байтах, потом переведите его в нужную единицу.",
            _UNITS_HINT,
        ),
        tolerance=Fraction(1, 10**6),
    ),
    Exercise(
        id="7.4/input",
        title="Память входного пакета",
        lesson="7.4",
        solve=calculate_input_data_memory,
        unit="ГиБ",
        arguments=(
            Argument("batch_size", "последовательностей в пакете", 3, 4099),
            Argument("max_length", "длина последовательности", 101, 131_101),
            Argument("bytes_per_token_id", "байтов на номер токена", 3, 13),
        ),
        given=((7, 1_021, 3), (61, 8_191, 5), (4_099, 131_101, 11)),
        mistakes=(
            *_mistakes(calculate_input_data_memory),
            forgotten(
                calculate_input_data_memory,
                0,
                "batch-forgotten",
                "Пакет не учтён: это одна последовательность.",
                "Сколько последовательностей лежит на карте сразу?",
            ),
            forgotten(
                calculate_input_data_memory,
                1,
                "length-forgotten",
                "Длина не учтена: на последовательность пришёлся один токен.",
                "Сколько токенов в одной последовательности?",
            ),
            forgotten(calculate_input_data_memory, 2, *_WIDTH),
            scaled(
                calculate_input_data_memory,
                2,
                "targets-counted",
                "Ответ вдвое больше: вместе с входом посчитаны и ответы.",
                "Здесь нужен один входной пакет.",
            ),
        ),
        hints=(
            "Пакет — таблица номеров токенов: по строке на последовательность.",
            "Сколько номеров в таблице всего? Каждый занимает столько байт, сколько вам передали.",
            _UNITS_HINT,
        ),
        tolerance=Fraction(1, 10**6),
    ),
    Exercise(
        id="7.4/gradients",
        title="Память градиентов",
        lesson="7.4",
        solve=calculate_gradient_memory,
        unit="ГиБ",
        arguments=(_PARAM_COUNT, _BYTES),
        given=_GIVEN,
        mistakes=(
            *_mistakes(calculate_gradient_memory),
            forgotten(calculate_gradient_memory, 1, *_WIDTH),
            scaled(
                calculate_gradient_memory,
                2,
                "weights-counted",
                "Ответ вдвое больше: вместе с градиентами посчитаны веса или лишняя копия.",
                "Градиент — одно число на параметр. Веса уже посчитаны своей функцией.",
            ),
        ),
        hints=(
            "Градиент говорит, куда сдвинуть параметр. Сколько таких чисел на один параметр?",
            "Считаем, что градиент хранится в том же формате, что и сам параметр.",
            _UNITS_HINT,
        ),
        tolerance=Fraction(1, 10**6),
    ),
    Exercise(
        id="7.4/optimizer",
        title="Память состояния Adam",
        lesson="7.4",
        solve=calculate_optimizer_memory,
        unit="ГиБ",
        arguments=(_PARAM_COUNT, _BYTES),
        given=_GIVEN,
        mistakes=(
            *_mistakes(calculate_optimizer_memory, copies=2),
            forgotten(calculate_optimizer_memory, 1, *_WIDTH),
            scaled(
                calculate_optimizer_memory,
                Fraction(1, 2),
                "moments-once",
                "На параметр пришлось одно значение: моменты Adam посчитаны один раз.",
                "Adam помнит среднее градиента и среднее его квадрата.",
            ),
            scaled(
                calculate_optimizer_memory,
                Fraction(3, 2),
                "three-values",
                "На параметр пришлось три значения: к моментам добавлен градиент или мастер-копия весов.",
                "Здесь нужно только то, что помнит сам Adam.",
            ),
            scaled(
                calculate_optimizer_memory,
                2,
                "whole-training",
                "На параметр пришлось четыре значения: веса, градиент и оба момента сразу.",
                "Веса и градиенты посчитаны своими функциями; здесь нужно только состояние Adam.",
            ),
        ),
        hints=(
            "Что Adam помнит о каждом параметре между шагами?",
            (
                "Adam хранит скользящее среднее градиента и скользящее среднее его квадрата — в том же формате, что и "
                "параметры."
            ),
            _UNITS_HINT,
        ),
        tolerance=Fraction(1, 10**6),
    ),
    Exercise(
        id="7.4/activations",
        title="Память активаций, упрощённо",
        lesson="7.4",
        solve=calculate_activation_memory,
        unit="ГиБ",
        arguments=(
            Argument("batch_size", "последовательностей в пакете", 3, 67),
            Argument("max_length", "длина последовательности", 101, 16_411),
            Argument("num_layers", "число слоёв", 5, 97),
            Argument("embedding_dim", "ширина модели", 127, 8_209),
            Argument("bytes_per_param", "байтов на значение", 3, 13),
        ),
        given=((7, 1_021, 31, 2_557, 3), (5, 8_191, 13, 769, 11), (17, 4_099, 61, 5_119, 7)),
        mistakes=(
            *_mistakes(calculate_activation_memory),
            forgotten(
                calculate_activation_memory,
                0,
                "batch-forgotten",
                "Пакет не учтён: это одна последовательность.",
                "Активации нужны каждой последовательности пакета.",
            ),
            forgotten(
                calculate_activation_memory,
                1,
                "length-forgotten",
                "Длина не учтена: на последовательность пришёлся один токен.",
                "Свой вектор есть у каждого токена.",
            ),
            forgotten(
                calculate_activation_memory,
                2,
                "layers-forgotten",
                "Слои не учтены: это активации одного слоя.",
                "До обратного прохода хранятся активации всех слоёв.",
            ),
            forgotten(
                calculate_activation_memory,
                3,
                "width-forgotten",
                "Ширина не учтена: вместо вектора взято одно число.",
                "Сколько чисел в векторе одного токена?",
            ),
            forgotten(calculate_activation_memory, 4, *_WIDTH),
            scaled(
                calculate_activation_memory,
                2,
                "doubled",
                "Ответ вдвое больше: к активациям добавлены их градиенты или второй тензор слоя.",
                "В этой упрощённой модели слой хранит один вектор на токен, не больше.",
            ),
        ),
        hints=(
            "В упрощённой модели каждый слой хранит по одному вектору на каждый токен пакета.",
            "Сколько токенов в пакете? Сколько у каждого векторов? Сколько чисел в векторе?",
            "Перемножьте все размеры и байты на значение. " + _UNITS_HINT,
        ),
        tolerance=Fraction(1, 10**6),
    ),
)
