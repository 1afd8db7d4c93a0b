"""Чем уменьшают память: ручки, которые умеет крутить `fit`, и чем за каждую платят.

Ручка — функция: по задаче даёт список изменений, от слабого к сильному; пустой — крутить нечего. Изменение
знает новые значения аргументов счёта, риск для качества и умеет назвать себя и свою цену словами.
Всё, что в цене — число, считается по тем же счетам: FLOPs пересчёта, трафик, токены в секунду.
"""

from __future__ import annotations

from nanolm import units
from nanolm.budget import DTYPES
from nanolm.sharding import STAGES, tensor_parallel_cards, traffic_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from nanolm.fit import Goal, Inference, Training

    Plan = dict[str, Any]
    Words = Callable[[Any, Plan], tuple[str, str]]

#: Риск для качества: 0 — ответ тот же, 1 — обычно незаметно, 2 — бывает заметно, 3 — это уже другое обучение.
SAME, SLIGHT, VISIBLE, OTHER = range(4)

#: Сколько разных пакетов пробовать: каждый следующий — не больше половины прежнего.
BATCHES = 5

#: Сколько токенов контекста заполнять за раз, когда весь сразу не помещается.
CHUNKS = (8192, 2048, 512)


class Change:
    """Одно изменение плана.

    `settings` — новые значения; `quality` — риск; `traffic` — сколько раз веса едут по сети сверх обычного;
    `words(problem, plan)` — что сделать и чем за это платят.
    """

    __slots__ = ("quality", "settings", "traffic", "words")

    def __init__(self, settings: Plan, words: Words, quality: int = SAME, traffic: float = 0) -> None:
        self.settings, self.words, self.quality, self.traffic = settings, words, quality, traffic


def _counted(count: int, one: str, few: str, many: str) -> str:
    """«3 карты»: число со словом в нужной форме."""
    return f"{units.number(count)} {units.plural(count, one, few, many)}"


def _cards(count: int) -> str:
    return _counted(count, "карту", "карты", "карт")


def _bought(problem: Goal, cards: int) -> str:
    """«ещё 3 карты; » — или ничего, если хватает своих."""
    more = cards - problem.cards
    return f"ещё {_counted(more, 'карта', 'карты', 'карт')}; " if more > 0 else ""


def _fixed(what: str, price: str) -> Words:
    return lambda problem, plan: (what, price)


def _flops(problem: Training, **settings: Any) -> str:
    """Цена пересчёта словами."""
    extra = problem.extra_flops({**problem.plan, **settings})
    return f"FLOPs {'+' if extra >= 0 else '−'}{units.percent(abs(extra))}"


# --- Обучение -----------------------------------------------------------------------------------


def _smaller_batches(problem: Goal) -> list[int]:
    """Делители пакета, каждый не больше половины прежнего."""
    B, found = int(problem.plan["B"]), list[int]()
    bound = B // 2
    while bound and len(found) < BATCHES:
        divisor = next(b for b in range(bound, 0, -1) if B % b == 0) if bound < 10**6 else 1
        found.append(divisor)
        bound = divisor // 2
    return found


def _accumulate(problem: Goal) -> list[Change]:
    def words(problem: Goal, plan: Plan) -> tuple[str, str]:
        steps = problem.plan["B"] // plan["B"]
        passes = _counted(steps, "проход", "прохода", "проходов")
        return (
            f"микропакет {plan['B']} вместо {problem.plan['B']}, накопление градиентов",
            f"{passes} вместо одного; FLOPs и результат те же, но матрицы мельче, и доля пика может упасть",
        )

    return [Change({"B": b}, words) for b in _smaller_batches(problem)]


def _fused(problem: Training) -> list[Change]:
    if problem.plan["attention"] != "naive":
        return []
    price = f"ответ тот же до округления; обратный проход считает оценки ещё раз: {_flops(problem, attention='fused')}"
    return [Change({"attention": "fused"}, _fixed("слитое ядро внимания", price))]


def _checkpoint(problem: Training) -> list[Change]:
    # Выборочного у transformers нет.
    kinds = ("none", "selective", "full") if problem.plan["implementation"] == "nanolm" else ("none", "full")
    titles = {"selective": "выборочный чекпоинтинг (ядро внимания)", "full": "полный чекпоинтинг слоёв"}
    return [
        Change(
            {"checkpointing": kind},
            _fixed(titles[kind], f"пересчёт: {_flops(problem, checkpointing=kind)}; результат тот же"),
        )
        for kind in kinds[kinds.index(problem.plan["checkpointing"]) + 1 :]
    ]


def _moments(problem: Training) -> list[Change]:
    if problem.plan["optimizer"] != "adamw":
        return []
    price = "моменты округлены до 8 бит по блокам из 256 значений; обычно незаметно (Dettmers et al. 2021)"
    return [Change({"optimizer": "adamw8bit"}, _fixed("8-битные моменты AdamW", price), SLIGHT)]


#: Ранг, с которого начинают: его хватает, чтобы дообучить стиль и формат.
LORA_RANK = 16


def _lora(problem: Training) -> list[Change]:
    """Адаптеры поверх замороженной модели и, сильнее, поверх квантованной; описаны они только для transformers."""
    if problem.plan["implementation"] == "nanolm" or problem.plan["weights"] is not None:
        return []
    price = "учатся только адаптеры: градиентов матриц основы нет, качество ниже полного дообучения — проверьте"
    packed = {"weights": "nf4-double"}
    packed_price = "основа округлена до 4 бит и распаковывается в каждом произведении: шаг дольше, качество ещё ниже"
    if problem.plan["lora_rank"]:
        return [Change(packed, _fixed("QLoRA: основа в nf4-double", packed_price), VISIBLE)]
    rank = {"lora_rank": LORA_RANK}
    return [
        Change(rank, _fixed(f"LoRA ранга {LORA_RANK} на проекциях внимания", price), OTHER),
        Change({**rank, **packed}, _fixed(f"QLoRA ранга {LORA_RANK}", f"{price}; {packed_price}"), OTHER),
    ]


#: Рецепт → рецепты легче его; что назвать, цена и риск.
_LIGHTER = {"fp32": ("mixed", "bf16"), "autocast": ("mixed", "bf16"), "mixed": ("bf16",), "bf16": ()}
_RECIPE_WORDS = {
    "mixed": (
        "рецепт mixed: вычисления в bf16, мастер-веса в fp32",
        "активации вдвое короче и точность вычислений ниже; состояние на параметр столько же",
        SLIGHT,
    ),
    "bf16": (
        "рецепт bf16: всё состояние в bf16",
        "fp32-копии нет, и обновления меньше примерно 1/512 веса пропадают при округлении; нужна проверка качества",
        VISIBLE,
    ),
}


def _recipe(problem: Training) -> list[Change]:
    return [
        Change({"recipe": name}, _fixed(*_RECIPE_WORDS[name][:2]), _RECIPE_WORDS[name][2])
        for name in _LIGHTER[problem.plan["recipe"]]
        # Учить в bf16 карта без таких ядер может, но считает во много раз медленнее: это не лекарство.
        if problem.card.best_16bit == "bf16"
    ]


def _shard(problem: Training) -> list[Change]:
    if problem.card.unified:
        return []
    titles = {
        "zero1": "ZeRO-1: состояние оптимизатора по частям",
        "zero2": "ZeRO-2: ещё и градиенты по частям",
        "zero3": "ZeRO-3 (FSDP): ещё и веса по частям",
    }

    def words(problem: Training, plan: Plan) -> tuple[str, str]:
        stage, cards = plan["stage"], plan["cards"]
        whole = problem.account({**plan, "stage": "", "cards": 1})
        moved = traffic_bytes(whole, cards, stage)
        link = problem.card.link_bytes_per_s
        # Полоса связи — сумма обоих направлений, а передача идёт в одном.
        least = f", не быстрее {units.duration(2 * moved / link)}" if link else ""
        bigger = f"общий пакет больше в {_counted(cards, 'раз', 'раза', 'раз')}"
        price = f"{_bought(problem, cards)}за шаг карта передаёт {units.binary_bytes(moved)}{least}; {bigger}"
        return f"{titles[stage]}, на {_cards(cards)}", price

    return [
        Change({"stage": stage, "cards": 0}, words, traffic=times + (stage == "zero3"))
        for stage, (_, times) in STAGES.items()
    ]


# --- Вывод --------------------------------------------------------------------------------------


def _portions(problem: Inference) -> list[Change]:
    if problem.plan["implementation"] != "nanolm":  # transformers заполняет контекст одним проходом
        return []
    tokens = problem.plan["B"] * problem.plan["S"]
    before = problem.plan["chunk"] or tokens

    def words(problem: Goal, plan: Plan) -> tuple[str, str]:
        count = -(-tokens // plan["chunk"])
        return (
            f"заполнять контекст по {units.number(plan['chunk'])} токенов",
            f"веса читаются {_counted(count, 'раз', 'раза', 'раз')} за заполнение; FLOPs и ответ те же",
        )

    return [Change({"chunk": chunk}, words) for chunk in CHUNKS if chunk < min(tokens, before)]


def _theory(problem: Inference) -> list[Change]:
    kv, spec = problem.plan["kv"], problem.spec
    if kv == "engine" and any(window is not None and window < problem.plan["S"] for window in spec.windows):
        price = "нужен движок, который отпускает токены за окном; ответ тот же"
        return [Change({"kv": "theory"}, _fixed("кеш слоёв с окном — по окну", price))]
    if kv == "uncompressed" and spec.kv_rank:
        price = "нужны ядра латентного внимания; ответ тот же до округления"
        return [Change({"kv": "theory"}, _fixed("кеш латентного внимания — сжатым", price))]
    return []


def _shorter(problem: Inference, field: str) -> list[str]:
    """Форматы короче нынешнего: 16 бит, если было 32, и тот из 8-битных, который карта умеет считать."""
    size = DTYPES[problem.plan[field]]
    eight = "fp8" if "fp8" in problem.card.flops_per_s else "int8"
    return [name for name in (problem.card.best_16bit, eight) if DTYPES[name] < size]


def _cache_dtype(problem: Inference) -> list[Change]:
    if problem.plan["implementation"] != "nanolm":  # кеш transformers лежит в точности модели
        return []
    price = "ключи и значения округлены до {} бит; обычно незаметно, на длинном контексте проверьте"
    return [
        Change({"kv_dtype": name}, _fixed(f"кеш KV в {name}", price.format(8 * DTYPES[name])), SLIGHT)
        for name in _shorter(problem, "kv_dtype")
    ]


def _weight_dtype(problem: Inference) -> list[Change]:
    price = "веса и выходы слоёв округлены до {} бит; обычно незаметно, проверьте на своей задаче"
    names = _shorter(problem, "dtype")
    if problem.plan["implementation"] != "nanolm":
        # У transformers вместе с весами короче становится и кеш, а 8 бит — уже квантование.
        price = price.replace("веса и", "веса, кеш и")
        settings = {name: {"dtype": name, "kv_dtype": name} for name in names if DTYPES[name] == 2}
    else:
        settings = {name: {"dtype": name} for name in names}
    return [
        Change(change, _fixed(f"веса в {name}", price.format(8 * DTYPES[name])), SLIGHT)
        for name, change in settings.items()
    ]


#: Квантование до 4 бит: сначала то, что точнее; второе упакует матрицу любого размера.
_FOUR_BITS = {
    "awq-4-128": "4 бита на вес и масштаб на 128 входов (Lin et al. 2023)",
    "nf4-double": "4 бита на вес и масштаб на 64 веса (Dettmers et al. 2023)",
}


def _quantize(problem: Inference) -> list[Change]:
    if problem.plan["weights"] is not None or DTYPES[problem.plan["dtype"]] == 1:
        return []
    for name, words in _FOUR_BITS.items():
        try:
            problem.account({**problem.plan, "weights": name})
        except ValueError:  # такую матрицу формат не упакует
            continue
        price = f"{words}; кеш и вычисления прежние, качество падает: проверьте на своей задаче"
        return [Change({"weights": name}, _fixed(f"матрицы слоёв в {name}", price), VISIBLE)]
    return []


def _in_turns(problem: Inference) -> list[Change]:
    def words(problem: Inference, plan: Plan) -> tuple[str, str]:
        turns = problem.plan["B"] // plan["B"]
        before, after = problem.tokens_per_s(problem.plan), problem.tokens_per_s(plan)
        loss = f"; токенов в секунду не больше {units.percent(after / before)} прежних" if before and after else ""
        what = f"по {plan['B']} вместо {problem.plan['B']} последовательностей за раз"
        return what, f"очередь из {_counted(turns, 'части', 'частей', 'частей')}{loss}"

    return [Change({"B": b}, words) for b in _smaller_batches(problem)]


def _tensor_parallel(problem: Inference) -> list[Change]:
    if problem.card.unified or len(tensor_parallel_cards(problem.spec, problem.spec.N)) < 2:
        return []

    def words(problem: Goal, plan: Plan) -> tuple[str, str]:
        cards = plan["cards"]
        tokens = 2 * problem.spec.L * problem.spec.D * 2
        return (
            f"тензорное деление на {_cards(cards)}",
            f"{_bought(problem, cards)}на каждый токен карты складывают по сети {units.binary_bytes(tokens)} выходов",
        )

    return [Change({"cards": 0}, words, traffic=1)]


#: Порядок ручек — порядок рассказа: сначала то, что не меняет ответа.
TRAINING_KNOBS = (_fused, _accumulate, _checkpoint, _moments, _recipe, _lora, _shard)
INFERENCE_KNOBS = (_portions, _theory, _cache_dtype, _weight_dtype, _quantize, _in_turns, _tensor_parallel)
