"""Упражнения недели 9, часть первая: параметры, ширина SwiGLU, FLOPs на токен."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from nanolm.exercises.formulas import (
    count_params,
    flops_per_token,
    flops_rule,
    swiglu_width,
)
from nanolm.exercises.mistakes import forgotten, overflow
from nanolm.exercises.task import Argument, Exercise, Misconception

# Аргументы, общие для упражнений недели.
VOCABULARY = Argument("V", "размер словаря", 1_009, 131_101)
WIDTH = Argument("D", "ширина модели", 67, 8_209)
LAYERS = Argument("L", "число слоёв", 3, 127)
KV_HEADS = Argument("K", "голов ключа и значения", 3, 13)
QUERY_HEADS = Argument("N", "голов запроса", 3, 13, times="K")
HEAD = Argument("H", "размер головы", 31, 257)
LENGTH = Argument("S", "длина последовательности", 1_009, 32_771)
TIED = Argument("tie_embeddings", "связаны ли эмбеддинги", kind="bool")


# --- Параметры ----------------------------------------------------------------------------------


def _parts(*, tables: Any = None, attention: Any = None, ffn: Any = None, norms: int = 2, final: bool = True) -> Any:
    """Неверный счёт параметров: одна часть заменена, остальные верны.

    `tables(tied)` — сколько таблиц V·D, `attention(D, N, K, H)`, `ffn(D, F)`, `norms` — норм в слое,
    `final` — есть ли норма в конце.
    """
    tables = tables or (lambda tied: 1 if tied else 2)
    attention = attention or (lambda D, N, K, H: 2 * D * H * (N + K))
    ffn = ffn or (lambda D, F: 3 * D * F)

    def wrong(V: int, D: int, L: int, N: int, K: int, H: int, F: int, tied: bool) -> Any:
        return tables(tied) * V * D + L * (attention(D, N, K, H) + ffn(D, F) + norms * D) + (D if final else 0)

    return wrong


def _rule_of_thumb(V: int, D: int, L: int, N: int, K: int, H: int, F: int, tied: bool) -> int:
    return (1 if tied else 2) * V * D + 12 * L * D * D


_PARAMS_MISTAKES = (
    Misconception(
        "tied-counted-twice",
        _parts(tables=lambda tied: 2),
        "Связанный эмбеддинг посчитан дважды.",
        "Если эмбеддинги связаны, вход и выход делят одну матрицу: хранится она один раз.",
    ),
    Misconception(
        "head-forgotten",
        _parts(tables=lambda tied: 1),
        "Отдельная выходная голова не посчитана.",
        "Если эмбеддинги не связаны, у модели есть ещё одна матрица того же размера.",
    ),
    Misconception(
        "tie-inverted",
        _parts(tables=lambda tied: 2 if tied else 1),
        "Условие tie_embeddings перевёрнуто.",
        "При каком значении флага матрица общая, а при каком их две?",
    ),
    Misconception(
        "embeddings-forgotten",
        _parts(tables=lambda tied: 0),
        "Эмбеддинг и выходная голова не посчитаны.",
        "Таблица словаря — тоже параметры, хотя в правило 6N она не входит.",
    ),
    Misconception(
        "gqa-ignored",
        _parts(attention=lambda D, N, K, H: 4 * D * N * H),
        "Ключи и значения посчитаны по N голов вместо K: GQA не учтено.",
        "Сколько голов у проекций ключа и значения?",
    ),
    Misconception(
        "query-by-kv-heads",
        _parts(attention=lambda D, N, K, H: 4 * D * K * H),
        "Запрос и выход внимания посчитаны по K голов вместо N.",
        "У каких проекций голов N, а у каких K?",
    ),
    Misconception(
        "head-size-from-width",
        _parts(attention=lambda D, N, K, H: 2 * D * (D // N) * (N + K)),
        "Размер головы H не использован: взято D/N.",
        "H задан отдельно и не обязан быть равен D/N.",
    ),
    Misconception(
        "head-size-from-width",
        _parts(attention=lambda D, N, K, H: 2 * D * D * (1 + Fraction(K, N))),
        "Размер головы H не использован: взято D/N.",
        "H задан отдельно и не обязан быть равен D/N.",
    ),
    Misconception(
        "attention-4d2",
        _parts(attention=lambda D, N, K, H: 4 * D * D),
        "Внимание посчитано правилом 4D²: головы N, K и H не учтены.",
        "Правило верно, когда N·H и K·H равны D. Здесь это не так: выпишите четыре матрицы.",
    ),
    Misconception(
        "kv-once",
        _parts(attention=lambda D, N, K, H: D * H * (2 * N + K)),
        "Из проекций ключа и значения посчитана одна.",
        "Сколько матриц в блоке внимания? Назовите каждую.",
    ),
    Misconception(
        "output-forgotten",
        _parts(attention=lambda D, N, K, H: D * H * (N + 2 * K)),
        "Выходная проекция внимания не посчитана.",
        "Что происходит с выходами голов после смешивания?",
    ),
    Misconception(
        "ffn-two-matrices",
        _parts(ffn=lambda D, F: 2 * D * F),
        "В полносвязном блоке посчитаны две матрицы.",
        "Это SwiGLU: кроме входной и выходной матриц есть матрица ворот.",
    ),
    Misconception(
        "ffn-4d",
        _parts(ffn=lambda D, F: 8 * D * D),
        "Полносвязный блок посчитан с шириной 4D и двумя матрицами.",
        "Ширина блока задана аргументом F. Сколько матриц такой ширины у SwiGLU?",
    ),
    Misconception(
        "ffn-4d",
        _parts(ffn=lambda D, F: 12 * D * D),
        "Полносвязный блок посчитан с шириной 4D вместо F.",
        "Ширина блока задана аргументом F.",
    ),
    Misconception(
        "rule-of-thumb",
        _rule_of_thumb,
        "Это правило 12LD² с таблицами словаря, а не точный счёт.",
        "Правило не знает ни GQA, ни ширины F, ни норм. Выпишите матрицы слоя с их размерами.",
    ),
    Misconception(
        "norms-forgotten",
        _parts(norms=0, final=False),
        "Нормы не посчитаны.",
        "У каждой нормы есть вектор весов. Сколько норм в слое и есть ли норма после последнего слоя?",
    ),
    Misconception(
        "layer-norms-forgotten",
        _parts(norms=0),
        "Нормы внутри слоёв не посчитаны.",
        "Что стоит перед вниманием и перед полносвязным блоком?",
    ),
    Misconception(
        "final-norm-forgotten",
        _parts(final=False),
        "Последняя норма не посчитана.",
        "Что стоит между последним слоем и выходной головой?",
    ),
    Misconception(
        "one-norm-per-layer",
        _parts(norms=1),
        "В слое посчитана одна норма.",
        "В слое две части: внимание и полносвязный блок. Перед каждой — своя норма.",
    ),
    forgotten(
        count_params,
        2,
        "layers-forgotten",
        "Слои не учтены: блок посчитан один раз.",
        "Какие матрицы повторяются в каждом слое, а какие есть в модели один раз?",
    ),
    overflow(count_params),
)

_PARAMS = Exercise(
    id="9/params",
    title="Параметры модели",
    lesson="9",
    solve=count_params,
    unit="параметров",
    arguments=(
        VOCABULARY,
        WIDTH,
        LAYERS,
        QUERY_HEADS,
        KV_HEADS,
        HEAD,
        Argument("F", "ширина полносвязного блока", 127, 32_771),
        TIED,
    ),
    given=(
        (1_009, 97, 3, 21, 7, 13, 257, False),
        (32_003, 509, 11, 15, 5, 31, 1_361, True),
        (128_257, 4_099, 31, 33, 11, 127, 14_341, False),
    ),
    mistakes=_PARAMS_MISTAKES,
    hints=(
        "Разбейте модель на части: таблица словаря, слои, последняя норма, выходная голова.",
        (
            "В слое четыре матрицы внимания (запрос и выход — по N голов, ключ и значение — по K), три матрицы SwiGLU "
            "и две нормы."
        ),
        (
            "Матрица внимания — это ширина модели на число голов на размер головы; матрица SwiGLU — ширина модели на "
            "ширину блока; норма — ширина модели. Слоёв L; голова отдельна, только если эмбеддинги не связаны."
        ),
    ),
)


# --- Ширина SwiGLU ------------------------------------------------------------------------------


def _multiple_of_256(D: int) -> int:
    return 256 * -(-int(8 * D / 3) // 256)


_SWIGLU = Exercise(
    id="9/swiglu-width",
    title="Ширина SwiGLU",
    lesson="9",
    solve=swiglu_width,
    unit="целое число",
    arguments=(Argument("D", "ширина модели", 67, 20_011),),
    given=((97,), (509,), (4_099,)),
    mistakes=(
        Misconception(
            "four-d",
            lambda D: 4 * D,
            "Это 4D — ширина простого блока из двух матриц.",
            "У SwiGLU матриц три. Какой должна быть ширина, чтобы параметров осталось столько же?",
        ),
        Misconception(
            "floor",
            lambda D: 8 * D // 3,
            "Ответ округлён вниз, а нужно до ближайшего целого.",
            "int и // отбрасывают дробную часть. Чем они отличаются от округления?",
        ),
        Misconception(
            "ceil",
            lambda D: -(-8 * D // 3),
            "Ответ округлён вверх, а нужно до ближайшего целого.",
            "Ближайшее целое бывает и снизу.",
        ),
        Misconception(
            "fraction",
            lambda D: Fraction(8 * D, 3),
            "Ответ дробный, а ширина матрицы — целое число.",
            "Округлите до ближайшего целого.",
        ),
        Misconception(
            "eight-d",
            lambda D: 8 * D,
            "Это 8D: число матриц не учтено.",
            "На сколько матриц делится бюджет параметров блока?",
        ),
        Misconception(
            "three-halves",
            lambda D: 6 * D,
            "Ширина выросла, а должна уменьшиться: отношение перевёрнуто.",
            "Матриц стало больше, параметров столько же. Шире или уже стала каждая?",
        ),
        Misconception(
            "two-thirds-of-width",
            lambda D: (4 * D + 3) // 6,
            "Это две трети D, а уменьшать нужно ширину простого блока.",
            "Какой была ширина блока до SwiGLU? Она больше D.",
        ),
        Misconception(
            "multiple-of-256",
            _multiple_of_256,
            "Ответ округлён вверх до кратного 256, как делают для скорости.",
            "Здесь нужна сама формула: до ближайшего целого.",
        ),
    ),
    hints=(
        "Простой блок — две матрицы ширины 4D. SwiGLU — три матрицы. Параметров должно остаться столько же.",
        "Запишите равенство: три матрицы неизвестной ширины весят столько же, сколько две матрицы ширины 4D.",
        "Решите его относительно ширины и округлите до ближайшего целого; round подойдёт.",
    ),
)


# --- FLOPs --------------------------------------------------------------------------------------


def _rule(factor: int, tables: Any = lambda tied: 1 if tied else 2) -> Any:
    return lambda total, V, D, tied: factor * (total - tables(tied) * V * D)


_RULE = Exercise(
    id="9/flops-rule",
    title="Правило 6N: что такое N",
    lesson="9",
    solve=flops_rule,
    unit="FLOPs на токен",
    arguments=(Argument("total_params", "всего параметров", 2 * 10**9, 10**10), VOCABULARY, WIDTH, TIED),
    given=((1_000_003, 1_009, 97, False), (124_439_809, 50_261, 769, True), (8_030_261_261, 128_257, 4_099, False)),
    mistakes=(
        Misconception(
            "embeddings-in-6n",
            _rule(6, lambda tied: 0),
            "В N вошли эмбеддинг и выходная голова.",
            "Выбор строки из таблицы — не произведение матриц. А выходную голову курс считает отдельной строкой.",
        ),
        Misconception(
            "head-in-6n",
            _rule(6, lambda tied: 1),
            "Эмбеддинг вычтен, а отдельная выходная голова осталась в N.",
            "Если эмбеддинги не связаны, таблиц словаря две.",
        ),
        Misconception(
            "tied-counted-twice",
            _rule(6, lambda tied: 2),
            "Связанный эмбеддинг вычтен дважды.",
            "Если эмбеддинги связаны, таблица одна: сколько раз её можно вычесть?",
        ),
        Misconception(
            "tie-inverted",
            _rule(6, lambda tied: 2 if tied else 1),
            "Условие tie_embeddings перевёрнуто.",
            "При каком значении флага таблица одна, а при каком их две?",
        ),
        Misconception(
            "forward-only", _rule(2), "Множитель 2 — это один прямой проход.", "Обратный проход тоже входит в обучение."
        ),
        Misconception(
            "backward-only", _rule(4), "Множитель 4 — это один обратный проход без прямого.", "Сложите оба прохода."
        ),
        Misconception(
            "factor-forgotten",
            _rule(1),
            "Это само N, а нужны операции.",
            "Сколько операций приходится на один параметр?",
        ),
        Misconception(
            "width-forgotten",
            lambda total, V, D, tied: 6 * (total - (1 if tied else 2) * V),
            "Вычтено число строк таблицы, а не число параметров в ней.",
            "В каждой строке таблицы словаря — вектор.",
        ),
        overflow(flops_rule),
    ),
    hints=(
        "В правиле 6N стоят не все параметры, а те, что участвуют в произведениях матриц внутри слоёв.",
        "Эмбеддинг — выбор строки, а выходная голова считается отдельно. Обе таблицы в N не входят.",
        (
            "Найдите, сколько у модели таблиц словаря (одна или две), вычтите их параметры и умножьте остаток на цену "
            "прямого и обратного прохода вместе."
        ),
    ),
)


def _two_terms(weights: int, scores: int) -> Any:
    return lambda n_params, L, S, D: weights * n_params + scores * L * S * D


_FLOPS = Exercise(
    id="9/flops-per-token",
    title="FLOPs на токен с вниманием",
    lesson="9",
    solve=flops_per_token,
    unit="FLOPs на токен",
    arguments=(
        Argument("n_params", "параметров без эмбеддинга", 10**7, 10**9),
        LAYERS._replace(low=11),
        LENGTH,
        WIDTH._replace(low=509),
    ),
    given=((1_000_003, 7, 1_021, 97), (124_439_809, 13, 8_191, 769), (6_979_588_117, 31, 26_627, 4_099)),
    mistakes=(
        Misconception(
            "attention-forgotten",
            _two_terms(6, 0),
            "Внимание не учтено: это правило 6N.",
            "Веса — не всё: запрос умножается на ключи, а вероятности — на значения. Эта работа растёт с контекстом.",
        ),
        Misconception(
            "params-forgotten",
            _two_terms(0, 12),
            "Посчитано одно внимание: параметры не учтены.",
            "На каждый параметр тоже приходится работа — правило 6N.",
        ),
        Misconception(
            "half-attention",
            _two_terms(6, 6),
            "Внимание посчитано наполовину: одно произведение из двух или причинная половина квадрата.",
            "Здесь принят полный квадрат, а произведений два: оценки и смешивание.",
        ),
        Misconception(
            "attention-forward-only",
            _two_terms(6, 4),
            "Внимание посчитано только на прямом проходе.",
            "У произведений внимания тоже есть обратный проход, и он вдвое дороже прямого.",
        ),
        Misconception(
            "forward-only", _two_terms(2, 4), "Это один прямой проход.", "Обучение — это прямой проход и обратный."
        ),
        Misconception(
            "forward-only",
            _two_terms(2, 12),
            "Параметры посчитаны только на прямом проходе.",
            "На каждый параметр приходится прямой проход и обратный.",
        ),
        Misconception("backward-only", _two_terms(4, 8), "Это один обратный проход.", "Прибавьте прямой."),
        Misconception(
            "backward-only", _two_terms(4, 12), "Параметры посчитаны только на обратном проходе.", "Прибавьте прямой."
        ),
        Misconception(
            "macs",
            _two_terms(3, 6),
            "Умножение со сложением посчитаны за одну операцию.",
            "В этом курсе «умножить и накопить» — две операции.",
        ),
        Misconception(
            "sequence-not-token",
            lambda n_params, L, S, D: S * (6 * n_params + 12 * L * S * D),
            "Это работа на всю последовательность.",
            "Нужна работа на один токен: на сколько токенов делится общая?",
        ),
        Misconception(
            "length-squared",
            lambda n_params, L, S, D: 6 * n_params + 12 * L * S * S * D,
            "Внимание посчитано на всю последовательность, а параметры — на один токен.",
            "Один токен смотрит на S ключей, а не на S в квадрате.",
        ),
        Misconception(
            "layers-forgotten",
            lambda n_params, L, S, D: 6 * n_params + 12 * S * D,
            "Слои не учтены: внимание посчитано в одном слое.",
            "В N слои уже есть, а во втором слагаемом?",
        ),
        Misconception(
            "length-forgotten",
            lambda n_params, L, S, D: 6 * n_params + 12 * L * D,
            "Длина не учтена: токен смотрит на один ключ.",
            "На сколько ключей смотрит один токен?",
        ),
        Misconception(
            "width-forgotten",
            lambda n_params, L, S, D: 6 * n_params + 12 * L * S,
            "Ширина не учтена.",
            "Какой длины векторы запроса и ключа во всех головах вместе?",
        ),
        Misconception(
            "rule-of-thumb",
            lambda n_params, L, S, D: 72 * L * D * D + 12 * L * S * D,
            "Вместо n_params взято правило 12LD².",
            "Число параметров уже дано аргументом.",
        ),
        overflow(flops_per_token),
    ),
    hints=(
        "Работа делится на две части: произведения с весами и произведения внимания, в которых весов нет.",
        (
            "Первая часть — правило 6N. Вторая: в каждом слое токен сравнивается с S ключами и смешивает S значений; "
            "оба произведения идут по ширине D."
        ),
        (
            "Одно произведение стоит две операции на каждую пару чисел. Произведений два, а обратный проход добавляет "
            "ещё две цены прямого. Умножьте на слои, длину и ширину и сложите с первой частью."
        ),
    ),
)

EXERCISES = (_PARAMS, _SWIGLU, _RULE, _FLOPS)
