"""Упражнения недели 9, часть вторая: кеш KV, смесь экспертов, время обучения."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from nanolm.exercises.formulas import (
    SECONDS_PER_DAY,
    crossover_batch,
    kv_cache_bytes,
    moe_costs,
    moe_params,
    training_days,
)
from nanolm.exercises.mistakes import forgotten, overflow, plain_bytes, scaled, wrap
from nanolm.exercises.task import Argument, Exercise, Misconception
from nanolm.exercises.week_9_model import HEAD, KV_HEADS, LAYERS, LENGTH, QUERY_HEADS
from nanolm.units import GIB

#: Приближённые ответы: столько хватает и float32.
_ROUGH = Fraction(1, 10**6)

_BATCH = Argument("B", "последовательностей в пакете", 3, 67)
_VALUE = Argument("bytes_per_value", "байтов на значение", 3, 13)


# --- Кеш KV -------------------------------------------------------------------------------------

_KV = Exercise(
    id="9/kv-cache",
    title="Размер кеша KV",
    lesson="9",
    solve=kv_cache_bytes,
    unit="байты",
    arguments=(_BATCH, LENGTH, LAYERS, QUERY_HEADS, KV_HEADS, HEAD, _VALUE),
    given=((3, 1_021, 7, 55, 11, 67, 5), (7, 8_191, 31, 39, 13, 127, 3), (17, 32_771, 61, 55, 11, 257, 5)),
    mistakes=(
        Misconception(
            "query-heads",
            lambda B, S, L, N, K, H, b: 2 * B * S * L * N * H * b,
            "Кеш посчитан по N голов запроса вместо K.",
            "Запросы прошлых токенов больше не нужны. Что же хранится и по скольку голов?",
        ),
        Misconception(
            "factor-two-forgotten",
            lambda B, S, L, N, K, H, b: B * S * L * K * H * b,
            "Двойка забыта: посчитаны одни ключи или одни значения.",
            "Что именно хранит кеш на каждый токен?",
        ),
        Misconception(
            "query-heads-and-factor-two",
            lambda B, S, L, N, K, H, b: B * S * L * N * H * b,
            "Ошибок две: взято N голов вместо K, и забыта двойка.",
            "Расшифруйте название кеша: что в нём лежит и сколько голов у этих проекций?",
        ),
        forgotten(
            kv_cache_bytes,
            0,
            "batch-forgotten",
            "Пакет не учтён: это кеш одной последовательности.",
            "Свой кеш есть у каждой последовательности.",
        ),
        forgotten(
            kv_cache_bytes,
            1,
            "length-forgotten",
            "Длина не учтена: это кеш одного токена.",
            "Сколько прошлых токенов надо помнить?",
        ),
        forgotten(
            kv_cache_bytes,
            2,
            "layers-forgotten",
            "Слои не учтены: это кеш одного слоя.",
            "Ключи и значения есть в каждом слое.",
        ),
        forgotten(
            kv_cache_bytes,
            4,
            "heads-forgotten",
            "Головы не учтены: это кеш одной головы.",
            "Сколько голов у проекций ключа и значения?",
        ),
        forgotten(
            kv_cache_bytes,
            5,
            "head-size-forgotten",
            "Размер головы не учтён.",
            "Сколько чисел в одном ключе одной головы?",
        ),
        forgotten(
            kv_cache_bytes,
            6,
            "bytes-forgotten",
            "Байты не учтены: это количество значений.",
            "Сколько байт занимает одно значение?",
        ),
        *plain_bytes(kv_cache_bytes),
        overflow(kv_cache_bytes),
    ),
    hints=(
        "Что модель хранит о прошлых токенах, чтобы не считать заново?",
        "На каждый токен, в каждом слое и в каждой голове ключа и значения лежат два вектора: ключ и значение.",
        (
            "Один из аргументов на ответ не влияет: подумайте, у каких проекций сколько голов. Остальные размеры "
            "перемножаются; не забудьте, что векторов два."
        ),
    ),
)


def _overflowed_crossover(weight_bytes: int, S: int, L: int, K: int, H: int, b: int) -> float:
    return weight_bytes / wrap(2 * S * L * K * H * b, 32)


_CROSSOVER = Exercise(
    id="9/crossover-batch",
    title="Пакет, при котором кеш равен весам",
    lesson="9",
    solve=crossover_batch,
    unit="последовательности",
    arguments=(Argument("weight_bytes", "байты весов", 10**9, 10**12), LENGTH, LAYERS, KV_HEADS, HEAD, _VALUE),
    given=(
        (16_060_522_499, 8_191, 31, 7, 127, 3),
        (1_000_003, 1_021, 5, 11, 67, 7),
        (141_107_412_997, 4_099, 79, 13, 131, 5),
    ),
    mistakes=(
        scaled(
            crossover_batch,
            2,
            "factor-two-forgotten",
            "Двойка забыта: в кеше посчитаны одни ключи или одни значения.",
            "Что именно хранит кеш на каждый токен?",
        ),
        Misconception(
            "inverted",
            lambda *args: 1 / crossover_batch(*args),
            "Дробь перевёрнута: это доля весов, которую занимает одна последовательность.",
            "Сколько раз кеш одной последовательности укладывается в веса?",
        ),
        Misconception(
            "gib-for-bytes",
            lambda *args: crossover_batch(*args) / GIB,
            "Веса переведены в гибибайты, а кеш остался в байтах.",
            "Обе величины должны быть в одних единицах.",
        ),
        Misconception(
            "gib-for-bytes",
            lambda *args: crossover_batch(*args) * GIB,
            "Кеш переведён в гибибайты, а веса остались в байтах.",
            "Обе величины должны быть в одних единицах.",
        ),
        scaled(
            crossover_batch,
            Fraction(1, 8),
            "bits-for-bytes",
            "Кеш посчитан в битах, а веса — в байтах.",
            "Размер значения уже дан в байтах.",
        ),
        forgotten(
            crossover_batch,
            1,
            "length-forgotten",
            "Длина не учтена: кеш посчитан для одного токена.",
            "Сколько токенов помнит одна последовательность?",
        ),
        forgotten(
            crossover_batch,
            2,
            "layers-forgotten",
            "Слои не учтены: кеш посчитан для одного слоя.",
            "Ключи и значения есть в каждом слое.",
        ),
        forgotten(
            crossover_batch,
            3,
            "heads-forgotten",
            "Головы не учтены: кеш посчитан для одной головы.",
            "Сколько голов у проекций ключа и значения?",
        ),
        forgotten(
            crossover_batch,
            4,
            "head-size-forgotten",
            "Размер головы не учтён.",
            "Сколько чисел в одном ключе одной головы?",
        ),
        forgotten(
            crossover_batch,
            5,
            "bytes-forgotten",
            "Байты не учтены: кеш посчитан в значениях, а веса — в байтах.",
            "Сколько байт занимает одно значение?",
        ),
        Misconception(
            "int32-overflow",
            _overflowed_crossover,
            "Переполнение: размер кеша посчитан в int32, а он кончается на 2,1 млрд.",
            "Целые Python не переполняются: не переводите аргументы в целые numpy или берите float64.",
        ),
    ),
    hints=(
        (
            "Сравните две величины: байты весов, которые читаются один раз на шаг, и байты кеша, которых тем больше, "
            "чем больше пакет."
        ),
        "Посчитайте кеш одной последовательности — той же формулой, что в упражнении о кеше KV.",
        "Во сколько раз веса больше этого кеша? Столько последовательностей и нужно. Округлять не надо.",
    ),
    tolerance=_ROUGH,
)


# --- Смесь экспертов ----------------------------------------------------------------------------

_BY_ROLE = "Память считают по всем параметрам, работу — по активным."


def _both(total: Any, active: Any = None) -> Any:
    """Пара из двух неверных счётов; `active` по умолчанию — тот же счёт с k вместо E."""

    def wrong(L: int, attention: int, expert: int, E: int, k: int) -> tuple[Any, Any]:
        return total(L, attention, expert, E), (active or total)(L, attention, expert, k)

    return wrong


_MOE = Exercise(
    id="9/moe-active",
    title="Все и активные параметры",
    lesson="9",
    solve=moe_params,
    unit="параметров",
    arguments=(
        Argument("L", "число слоёв", 3, 127),
        Argument("attention", "параметров внимания в слое", 10**6, 10**9),
        Argument("expert", "параметров одного эксперта", 10**6, 10**9),
        Argument("E", "число экспертов", 17, 257),
        Argument("k", "экспертов на токен", 3, 13),
    ),
    given=((23, 20_000_003, 60_000_011, 11, 3), (31, 1_009, 10_007, 17, 5), (7, 33_555_433, 14_155_777, 257, 13)),
    mistakes=(
        Misconception(
            "order-swapped",
            lambda *args: moe_params(*args)[::-1],
            "Числа верны, но стоят в обратном порядке.",
            "Сначала все параметры, потом активные: активных не может быть больше.",
        ),
        Misconception(
            "active-by-total",
            lambda *args: (moe_params(*args)[0],) * 2,
            "Активные параметры посчитаны по всем экспертам.",
            "Сколько экспертов видит один токен?",
        ),
        Misconception(
            "total-by-active",
            lambda *args: (moe_params(*args)[1],) * 2,
            "Все параметры посчитаны по активным экспертам.",
            "Хранить приходится и тех экспертов, которые этому токену не нужны.",
        ),
        Misconception(
            "attention-per-expert",
            _both(lambda L, a, e, n: L * n * (a + e)),
            "Внимание умножено на число экспертов.",
            "Внимание в слое одно, повторяется только полносвязный блок.",
        ),
        Misconception(
            "attention-forgotten",
            _both(lambda L, a, e, n: L * n * e),
            "Внимание не посчитано.",
            "Через что ещё, кроме экспертов, проходит токен в слое?",
        ),
        Misconception(
            "attention-once",
            _both(lambda L, a, e, n: a + L * n * e),
            "Внимание посчитано один раз, а не в каждом слое.",
            "В каждом слое — своё внимание и свои эксперты.",
        ),
        Misconception(
            "experts-once",
            _both(lambda L, a, e, n: L * a + n * e),
            "Эксперты посчитаны один раз, а не в каждом слое.",
            "В каждом слое — своё внимание и свои эксперты.",
        ),
        Misconception(
            "one-expert-active",
            _both(lambda L, a, e, n: L * (a + n * e), lambda L, a, e, n: L * (a + e)),
            "Активным посчитан один эксперт.",
            "Сколько экспертов выбирает маршрутизатор на один токен?",
        ),
        forgotten(moe_params, 0, "layers-forgotten", "Слои не учтены: это один слой.", "Сколько таких слоёв в модели?"),
        Misconception(
            "int32-overflow",
            lambda *args: tuple(wrap(value, 32) for value in moe_params(*args)),
            "Переполнение: счёт шёл в целых int32, а они кончаются на 2,1 млрд.",
            "Целые Python не переполняются: не переводите аргументы в целые numpy.",
        ),
    ),
    hints=(
        "Нужны два числа: сколько параметров хранится и через сколько проходит один токен.",
        "В каждом слое — одно внимание и набор экспертов. Хранятся все эксперты, а работают только выбранные.",
        (
            "Два счёта отличаются лишь числом экспертов в слое. Верните их парой через запятую: сначала все, потом "
            "активные."
        ),
    ),
    returns=("все", "активные"),
)


def _costs(memory: Any, work: Any) -> Any:
    return lambda total, active, b: (memory(total, active, b), work(total, active))


_COSTS = Exercise(
    id="9/moe-costs",
    title="Смесь экспертов: память и работа",
    lesson="9",
    solve=moe_costs,
    unit="байты и FLOPs на токен",
    arguments=(
        Argument("total_params", "все параметры", 5 * 10**9, 10**12),
        Argument("active_params", "активные параметры", 10**8, 4 * 10**9),
        Argument("bytes_per_param", "байтов на параметр", 3, 13),
    ),
    given=(
        (12_000_000_019, 3_360_000_001, 3),
        (46_702_792_709, 12_879_925_249, 5),
        (671_026_404_353, 37_552_282_627, 7),
    ),
    mistakes=(
        Misconception(
            "flops-by-total",
            _costs(lambda t, a, b: t * b, lambda t, a: 6 * t),
            "FLOPs посчитаны по всем параметрам.",
            f"Через невыбранных экспертов токен не проходит. {_BY_ROLE}",
        ),
        Misconception(
            "memory-by-active",
            _costs(lambda t, a, b: a * b, lambda t, a: 6 * a),
            "Память посчитана по активным параметрам.",
            f"Следующему токену могут понадобиться другие эксперты. {_BY_ROLE}",
        ),
        Misconception(
            "roles-swapped",
            _costs(lambda t, a, b: a * b, lambda t, a: 6 * t),
            "Память посчитана по активным параметрам, а FLOPs — по всем.",
            f"Наоборот. {_BY_ROLE}",
        ),
        Misconception(
            "order-swapped",
            lambda *args: moe_costs(*args)[::-1],
            "Числа верны, но стоят в обратном порядке.",
            "Сначала байты, потом FLOPs.",
        ),
        Misconception(
            "forward-only",
            _costs(lambda t, a, b: t * b, lambda t, a: 2 * a),
            "FLOPs посчитаны только для прямого прохода.",
            "Обучение — это прямой проход и обратный.",
        ),
        Misconception(
            "backward-only",
            _costs(lambda t, a, b: t * b, lambda t, a: 4 * a),
            "FLOPs посчитаны только для обратного прохода.",
            "Прибавьте прямой.",
        ),
        Misconception(
            "bytes-forgotten",
            _costs(lambda t, a, b: t, lambda t, a: 6 * a),
            "Байты не учтены: количество принято за размер.",
            "Сколько байт занимает один параметр?",
        ),
        Misconception(
            "bits-for-bytes",
            _costs(lambda t, a, b: 8 * t * b, lambda t, a: 6 * a),
            "Память посчитана в битах.",
            "Размер значения уже дан в байтах.",
        ),
        Misconception(
            "gib-for-bytes",
            _costs(lambda t, a, b: t * b / GIB, lambda t, a: 6 * a),
            "Память переведена в гибибайты, а нужны байты.",
            "Основная единица курса — байт.",
        ),
        Misconception(
            "int32-overflow",
            lambda *args: tuple(wrap(int(value), 32) for value in moe_costs(*args)),
            "Переполнение: счёт шёл в целых int32, а они кончаются на 2,1 млрд.",
            "Целые Python не переполняются: не переводите аргументы в целые numpy.",
        ),
    ),
    hints=(
        "Что надо держать в памяти: всех экспертов или только выбранных? А через кого проходит токен?",
        _BY_ROLE,
        (
            "Память — параметры на байты. Работа — правило 6N, где N — то, через что проходит токен. Верните пару: "
            "сначала байты."
        ),
    ),
    returns=("байты", "FLOPs"),
)


# --- Время обучения -----------------------------------------------------------------------------


def _reached(gpus: int, peak: float, mfu: float) -> float:
    return gpus * peak * mfu


def _days(work: int = 6, speed: Any = _reached, period: int = SECONDS_PER_DAY) -> Any:
    return lambda n, tokens, gpus, peak, mfu: work * n * tokens / speed(gpus, peak, mfu) / period


_TIME = Exercise(
    id="9/training-time",
    title="Время обучения в сутках",
    lesson="9",
    solve=training_days,
    unit="сутки",
    arguments=(
        Argument("n_params", "число параметров", 10**8, 10**11),
        Argument("tokens", "токенов обучения", 10**9, 10**13),
        Argument("gpus", "число карт", 3, 4_099),
        Argument("peak_flops_per_s", "пик одной карты, FLOP/s", 10**13, 10**15),
        Argument("mfu", "доля пика", 0.21, 0.69, "float"),
    ),
    given=(
        (125_000_003, 2_500_000_001, 7, 97_500_000_000_011, 0.41),
        (6_979_588_117, 15_000_000_000_017, 2_049, 989_000_000_000_017, 0.43),
        (1_000_000_007, 20_000_000_089, 5, 312_000_000_000_013, 0.37),
    ),
    mistakes=(
        Misconception(
            "forward-only", _days(2), "Посчитан только прямой проход.", "Обратный проход вдвое дороже прямого."
        ),
        Misconception(
            "backward-only", _days(4), "Множитель 4 — это обратный проход без прямого.", "Сложите оба прохода."
        ),
        Misconception(
            "factor-forgotten",
            _days(1),
            "Параметры умножены на токены, но цена такой пары не учтена.",
            "Сколько операций на параметр и токен стоят прямой проход и обратный?",
        ),
        Misconception(
            "mfu-forgotten",
            _days(speed=lambda gpus, peak, mfu: gpus * peak),
            "MFU не учтено: карты работают на пике.",
            "До пика обучение не доходит. Какая доля достаётся полезной работе?",
        ),
        Misconception(
            "mfu-inverted",
            _days(speed=lambda gpus, peak, mfu: gpus * peak / mfu),
            "MFU вошло не с той стороны дроби.",
            "Чем меньше MFU, тем дольше обучение. Как у вас?",
        ),
        Misconception(
            "mfu-percent",
            _days(speed=lambda gpus, peak, mfu: gpus * peak * mfu / 100),
            "MFU принято за проценты.",
            "MFU — доля от нуля до единицы, делить её на сто не надо.",
        ),
        Misconception(
            "gpus-forgotten",
            _days(speed=lambda gpus, peak, mfu: peak * mfu),
            "Число карт не учтено: это GPU-сутки.",
            "Карты работают одновременно.",
        ),
        Misconception(
            "gpus-inverted",
            _days(speed=lambda gpus, peak, mfu: peak * mfu / gpus),
            "Число карт вошло не с той стороны дроби.",
            "Больше карт — быстрее обучение. Как у вас?",
        ),
        Misconception("seconds", _days(period=1), "Это секунды, а нужны сутки.", "Сколько секунд в сутках?"),
        Misconception("minutes", _days(period=60), "Это минуты, а нужны сутки.", "Сколько минут в сутках?"),
        Misconception("hours", _days(period=3_600), "Это часы, а нужны сутки.", "Сколько часов в сутках?"),
        forgotten(
            training_days,
            1,
            "tokens-forgotten",
            "Токены не учтены: это время на один токен.",
            "Сколько токенов видит модель за обучение?",
        ),
        forgotten(training_days, 0, "params-forgotten", "Параметры не учтены.", "Работа растёт и с размером модели."),
        overflow(
            lambda n, tokens, *rest: 6 * n * tokens,
            lambda work, n, tokens, gpus, peak, mfu: work / (gpus * peak * mfu) / SECONDS_PER_DAY,
            bits=64,
        ),
    ),
    hints=(
        "Время — это работа, делённая на скорость. Найдите их по отдельности.",
        "Работа — правило из лаборатории 7.2. Скорость — пик всех карт, но не весь, а его доля.",
        "Поделите работу на достигнутую скорость всех карт: получатся секунды. Осталось перевести их в сутки.",
    ),
    tolerance=_ROUGH,
)

EXERCISES = (_KV, _CROSSOVER, _MOE, _COSTS, _TIME)
