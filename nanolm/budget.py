"""Счета модели: параметры, FLOPs, память, кеш KV, время и деньги.

Каждый счёт — свёртка таблицы операций (`nanolm.ops`): для каждой строки берутся её множители,
перемножаются и складываются по компонентам. Закрытых формул вроде 12LD² здесь нет: они живут
в тестах как независимая проверка.

Счёт — упорядоченное отображение «компонент → целое число в основных единицах» с `.total`;
строки, из которых он сложен, лежат в `.details`, и каждая показывает свою формулу буквами и числами.

    >>> from nanolm.budget import Spec, parameter_breakdown
    >>> llama = Spec(V=128256, D=4096, L=32, N=32, K=8, F=14336, S=8192)
    >>> parameter_breakdown(llama).total
    8030261248

Модуль и всё, что он импортирует, — только стандартная библиотека.
"""

from __future__ import annotations

if __name__ == "__main__":  # раньше определений: иначе модуль загрузился бы дважды
    import gc
    import sys

    gc.disable()  # процесс живёт миг: сборщик мусора стоил бы десятую часть всего запуска
    from nanolm.cli import budget

    try:
        sys.exit(budget(sys.argv[1:], "python -m nanolm.budget"))
    finally:
        gc.freeze()  # и на выходе обходить объекты незачем

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from nanolm import units
from nanolm.moments import GROUPS, Moment, copied, group_bytes, mask_count, moments
from nanolm.ops import (
    Op,
    Tensor,
    anywhere,
    axis_factors,
    copy_factors,
    distinct_experts,
    inside_layer,
    layer_factor,
    least,
    multiply,
    pairs,
    product_factors,
    table,
    weight_factors,
    window_groups,
)
from nanolm.spec import LIMIT, NOTATION, Spec, shown, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from nanolm.hardware import Gpu
    from nanolm.ops import Factor
    from nanolm.quantization import Quantization

__all__ = [
    "ATTENTION_CONVENTIONS", "DTYPES", "NOTATION", "OPTIMIZERS", "RECIPES", "Account", "DecodeStep", "Line", "Spec",
    "TrainingTime", "attention_crossover", "critical_batch", "crossover_batch", "decode_step_time", "flops_per_token",
    "hardware_flops_per_token", "inference_memory", "kv_cache_bytes", "parameter_breakdown", "report",
    "saved_tensor_bytes", "training_memory", "training_time",
]  # fmt: skip

#: Байтов на значение.
DTYPES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}

COMPONENTS = {
    "parameters": ("embedding", "positions", "attention", "ffn", "router", "norms", "lm_head"),
    "flops": ("embedding", "attention", "scores", "ffn", "router", "lm_head"),
    "training": (
        "weights", "master_weights", "gradients", "optimizer", "input", "activations", "logits", "workspace",
    ),
    "inference": ("weights", "kv_cache"),
    "kv_cache": ("key", "value", "latent"),
}  # fmt: skip

TITLES = {
    "embedding": "эмбеддинг", "positions": "позиции", "attention": "внимание", "scores": "оценки внимания",
    "ffn": "полносвязные блоки", "router": "маршрутизатор", "norms": "нормы", "lm_head": "выходная голова",
    "weights": "веса", "master_weights": "мастер-веса", "gradients": "градиенты", "optimizer": "состояние оптимизатора",
    "input": "входные токены", "activations": "активации", "logits": "логиты", "workspace": "рабочие буферы",
    "kv_cache": "кеш KV", "key": "ключи", "value": "значения", "latent": "сжатые ключи и значения",
}  # fmt: skip


#: Типы чисел, которые перемножаются как есть; остальное может оказаться массивом.
PLAIN_NUMBERS = {int, float}


# --- Счёт и его строки --------------------------------------------------------------------------


class Line:
    """Строка счёта: произведение именованных множителей.

    `.letters` — формула буквами, `.numbers` — она же с числами, `.value` — результат, целое число.
    Делитель `over` нужен средним (пары на токен): результат округляется до целого.
    """

    __slots__ = ("component", "factors", "name", "over", "title", "value")
    value: int

    def __init__(self, name: str, component: str, title: str, factors: Iterable[Factor], over: int = 1) -> None:
        self.name, self.component, self.title = name, component, title
        self.factors, self.over = tuple(factors), over
        # Строк сотни на один вопрос: обычные числа узнаются разом, а не по одному.
        if not {type(value) for _, value in self.factors} <= PLAIN_NUMBERS and any(
            hasattr(value, "ndim") for _, value in self.factors
        ):
            from nanolm.arrays import product as product_of_arrays

            self.value = product_of_arrays(self.factors, over)
            return
        product = multiply(self.factors)
        # Целые делятся без float: у больших моделей произведение длиннее 53 бит.
        self.value = (2 * product + over) // (2 * over) if isinstance(product, int) else round(product / over)

    @property
    def letters(self) -> str:
        """Формула буквами: «2·L·K·H·D»."""
        return "·".join(symbol for symbol, _ in self.factors)

    @property
    def numbers(self) -> str:
        """Формула числами: «2·32·8·128·4096»."""
        shown = [
            str(value) if isinstance(value, int) else units.decimal(value, 3).rstrip("0").rstrip(",")
            for _, value in self.factors
        ]
        return "·".join(shown) + (f" / {self.over}" if self.over > 1 else "")

    def __repr__(self) -> str:
        return f"Line({self.component}/{self.name}: {self.letters} = {self.numbers} = {self.value})"


class Account(Mapping[str, int]):
    """Счёт: компонент → целое число в основных единицах (параметры, FLOPs, байты).

    Читается как словарь, печатается таблицей, в блокноте показывается таблицей HTML.
    `.total` — сумма компонентов; `.details` — строки (`Line`); `explain()` — откуда каждое число.
    Компонент, которого у модели нет, присутствует с нулём.
    """

    def __init__(self, title: str, unit: str, components: Iterable[str], lines: Iterable[Line]) -> None:
        self.title, self.unit = title, unit
        self.details = tuple(lines)
        self._values = dict.fromkeys(components, 0)
        for line in self.details:
            # Не «+=»: массивы B и S могут быть разной формы.
            self._values[line.component] = self._values[line.component] + line.value

    @property
    def total(self) -> int:
        """Сумма компонентов."""
        return sum(self._values.values())

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def explain(self, name: str | None = None) -> str:
        """Формула каждой строки: буквами, числами и результат. `name` — только один компонент."""
        if name is not None and name not in self._values:
            raise ValueError(f"компонент {name!r}: в счёте есть {', '.join(self._values)}")
        lines = [line for line in self.details if name in (None, line.component)]
        return "\n".join(
            f"{line.title}: {line.letters} = {line.numbers} = {units.number(line.value)}" for line in lines
        )

    def rows(self) -> list[tuple[str, ...]]:
        """Строки таблицы: название, величина, доля; последняя — итог."""
        total = self.total
        body: list[tuple[str, ...]] = [
            (TITLES[name], self._shown(value), _share(value, total)) for name, value in self._values.items()
        ]
        return [*body, ("всего", self._shown(total), _share(total, total))]

    def _shown(self, value: int) -> str:
        if hasattr(value, "ndim"):
            from nanolm.arrays import span

            return span(value, self._shown)
        return units.number(value) + (f"{units.NBSP}Б ({units.binary_bytes(value)})" if self.unit == "байт" else "")

    def __str__(self) -> str:
        return text_table((self.title, self.unit, "доля"), self.rows())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.title}: {dict(self._values)}, total={self.total})"

    def _repr_html_(self) -> str:
        return html_table((self.title, self.unit, "доля"), self.rows())


class Parameters(Account):
    """Счёт параметров: ещё `.active` и `.non_embedding`."""

    def __init__(self, lines: Iterable[Line], active: Iterable[Line]) -> None:
        super().__init__("Параметры", "параметров", COMPONENTS["parameters"], lines)
        #: Сколько параметров работает на один токен: у смеси — k экспертов из E.
        self.active = sum(line.value for line in active)

    @property
    def non_embedding(self) -> int:
        """N из правила 6N: без эмбеддинга, позиций и отдельной выходной головы."""
        return self.total - self._outside

    @property
    def active_non_embedding(self) -> int:
        """То же для одного токена: у смеси во FLOPs входят только k экспертов из E."""
        return self.active - self._outside

    @property
    def _outside(self) -> int:
        return self["embedding"] + self["positions"] + self["lm_head"]


class InferenceMemory(Account):
    """Память вывода: `.total` — веса и кеш; `.peak` добавляет рабочие буферы."""

    def __init__(self, title: str, lines: Iterable[Line], buffers: Iterable[Line]) -> None:
        super().__init__(title, "байт", COMPONENTS["inference"], lines)
        #: Строки рабочих буферов: выходы самой тяжёлой части блока и логиты последнего токена.
        self.buffers = tuple(buffers)

    @property
    def peak(self) -> int:
        """Веса, кеш и рабочие буферы: столько памяти нужно на карте."""
        return self.total + sum(line.value for line in self.buffers)


def _share(value: int, total: int) -> str:
    """Доля итога; у массива её одной нет."""
    return "—" if hasattr(total, "ndim") or not total else units.percent(value / total)


def text_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Таблица для терминала: первый столбец влево, остальные вправо, итог под чертой."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row: tuple[str, ...]) -> str:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        return "  ".join(cells).rstrip()

    rule = "  ".join("─" * width for width in widths)
    return "\n".join([line(head), rule, *map(line, rows[:-1]), rule, line(rows[-1])])


def html_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Та же таблица для блокнота и сайта: заголовки со `scope`, итог в `tfoot`."""

    def row(cells: tuple[str, ...]) -> str:
        return f'<tr><th scope="row">{cells[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in cells[1:]) + "</tr>"

    columns = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(map(row, rows[:-1]))
    return (
        f'<table class="nanolm-account"><thead><tr>{columns}</tr></thead>'
        f"<tbody>{body}</tbody><tfoot>{row(rows[-1])}</tfoot></table>"
    )


def _choice(field: str, value: str, allowed: Iterable[str]) -> str:
    """Значение из списка; иначе `ValueError` со всем списком."""
    if value not in allowed:
        raise ValueError(f"{field} = {value!r}: нужно одно из: {', '.join(allowed)}")
    return value


# --- Параметры ----------------------------------------------------------------------------------


def parameter_breakdown(spec: Spec) -> Parameters:
    """Параметры по компонентам, точно до единицы.

    Смещения входят в свой компонент. При связанных эмбеддингах `lm_head` = 0: матрица уже посчитана.

    Источник: строки `nanolm.ops.table`; сверено с числом параметров настоящих моделей.
    """
    stored = [op for op in table(spec) if op.weight and not op.shared]
    k: Factor = ("k", spec.experts_per_token)
    return Parameters(
        (Line(op.name, op.component, op.title, weight_factors(op, spec)) for op in stored),
        (Line(op.name, op.component, op.title, weight_factors(op, spec, k)) for op in stored),
    )


# --- FLOPs --------------------------------------------------------------------------------------

#: Какие пары «запрос — ключ» считать: (маска, окно). Соглашение всегда названо.
ATTENTION_CONVENTIONS = {
    "full": (False, False),  # весь квадрат S×S: так считают счётчики и большинство статей
    "windowed": (False, True),  # квадрат, но слой с окном видит не больше W ключей
    "causal": (True, True),  # ровно те пары, которые оставляют причинная маска и окно
}


def _keys_per_query(S: int, window: int | None, convention: str) -> tuple[Factor, int]:
    """Средние ключи на запрос: числитель (пары) с записью буквами и делитель S."""
    causal, windowed = ATTENTION_CONVENTIONS[convention]
    width = window if windowed else None
    count = pairs(S, S, causal, width)
    narrow = width is not None and anywhere(width < S)
    if not causal:
        return ((f"min(S, W={width})" if narrow else "S", count // S), 1)
    letters = f"(W − W(W−1)/2S), W={width}" if narrow else "(S+1)/2"
    return ((letters, count), S) if anywhere(count % S) else ((letters, count // S), 1)


def _product_lines(
    ops: Iterable[Op], spec: Spec, S: int, convention: str, passes: Callable[[Op], int]
) -> Iterator[Line]:
    """FLOPs одного токена: строка на произведение; `passes` — сколько раз за шаг оно считается."""
    for op in ops:
        if op.lookup:
            yield Line(op.name, "embedding", op.title, (("0", 0),))
        if not op.product:
            continue
        (_, two), *factors = product_factors(op, spec)
        head: Factor = (str(two * passes(op)), two * passes(op))
        if not op.pairs:
            yield Line(op.name, op.component, op.title, (head, *factors))
            continue
        for layers, window in window_groups(spec):
            keys, over = _keys_per_query(S, window, convention)
            yield Line(op.name, op.component, op.title, (head, layers, *factors[1:], keys), over)


def flops_per_token(spec: Spec, S: int | None = None, training: bool = True, attention: str = "full") -> Account:
    """FLOPs на токен при контексте S, по компонентам.

    `training=True` — прямой и обратный проход (втрое больше прямого: у каждого произведения два
    градиента), `False` — только прямой. `attention` — соглашение о парах: «full» — весь квадрат,
    «windowed» — квадрат в пределах окна, «causal» — только видимые под маской пары.

    Поиск в эмбеддинге — не произведение, поэтому он даёт 0; выходная голова — своя строка.
    Пересчёт при чекпоинтинге сюда не входит: это полезные FLOPs модели.
    """
    S = _context(spec, S)
    _choice("attention", attention, ATTENTION_CONVENTIONS)
    title = "FLOPs на токен, прямой и обратный" if training else "FLOPs на токен, прямой проход"
    lines = _product_lines(table(spec), spec, S, attention, lambda op: 3 if training else 1)
    return Account(title, "FLOPs", COMPONENTS["flops"], lines)


def hardware_flops_per_token(
    spec: Spec, S: int | None = None, kernel: str = "fused", checkpointing: str = "none", attention: str = "full"
) -> Account:
    """FLOPs на токен, которые выполняет машина: полезные и повторные. Из них складывается HFU, а не MFU.

    Повторяют два места. Слитое внимание (`kernel`) не хранит вероятностей и в обратном проходе считает
    оценки ещё раз. Чекпоинтинг повторяет прямой проход: «full» — слоя, «selective» — ядра внимания;
    он останавливается, как только восстановил последний нужный тензор, и последнее произведение не считает.
    """
    S = spec.S if S is None else whole("S", S)
    for field, value, allowed in (
        ("kernel", kernel, ATTENTION_KERNELS),
        ("checkpointing", checkpointing, CHECKPOINTING),
        ("attention", attention, ATTENTION_CONVENTIONS),
    ):
        _choice(field, value, allowed)

    def passes(op: Op) -> int:
        again = kernel == "fused" and op.name == "scores"
        return 3 + again + _recomputed(op, spec, kernel, checkpointing)

    lines = _product_lines(table(spec), spec, S, attention, passes)
    return Account("FLOPs на токен, выполненные машиной", "FLOPs", COMPONENTS["flops"], lines)


def _recomputed(op: Op, spec: Spec, kernel: str, checkpointing: str) -> bool:
    """Повторяет ли чекпоинтинг это произведение.

    Последнее произведение участка ничего не добавляет к сохранённому: у плотного слоя это матрица сжатия
    (ответы экспертов смесь хранит), у наивного ядра — смесь значений, а слитое ядро возвращает всё сразу.
    """
    if checkpointing == "selective":
        return op.pairs and (kernel == "fused" or op.name == "scores")
    return checkpointing == "full" and inside_layer(op) and (op.expert or not op.name.endswith("down"))


def attention_crossover(spec: Spec, attention: str = "full") -> int | None:
    """Наименьший контекст, при котором оценки внимания стоят не меньше матриц слоёв.

    Сравниваются произведения `scores` с `attention + ffn + router` (N из 6N; голова не входит).
    Для Llama-3-8B: 26 624 по полному квадрату. `None` — если окно не даёт оценкам догнать матрицы.
    """

    _choice("attention", attention, ATTENTION_CONVENTIONS)
    scores = [op for op in table(spec) if op.pairs]
    matrices = [op for op in table(spec) if op.product and not op.pairs and op.component != "lm_head"]
    target = _forward_flops(matrices, spec, 1, attention)

    def reached(S: int) -> bool:
        return _forward_flops(scores, spec, S, attention) >= target

    # Без маски и окон оценки растут как S, и первая догадка — уже ответ.
    return _smallest(reached, guess=-(-target // max(1, _forward_flops(scores, spec, 1, attention))))


def _forward_flops(ops: Iterable[Op], spec: Spec, S: int, convention: str) -> int:
    return sum(line.value for line in _product_lines(ops, spec, S, convention, lambda op: 1))


def _smallest(reached: Callable[[int], bool], limit: int = 2**40, guess: int = 1) -> int | None:
    """Наименьшее целое, с которого монотонное условие верно; `None` — если не раньше `limit`.

    `guess` — с чего начать: чем ближе догадка, тем меньше проверок.
    """
    low, high = guess, guess
    if reached(guess):
        low -= 1
        while low and reached(low):
            low, high = low // 2, low
    else:
        high *= 2
        while high <= limit and not reached(high):
            low, high = high, high * 2
        if high > limit:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


# --- Кеш KV и память вывода ---------------------------------------------------------------------

#: Сколько токенов держит слой с окном W при контексте S и сжаты ли они: соглашение всегда названо.
KV_CONVENTIONS: dict[str, tuple[Callable[[int, int], int], bool]] = {
    "theory": (least, True),  # нужно вниманию
    "transformers": (lambda S, W: least(S, W - 1), True),  # держит библиотека transformers между шагами
    "engine": (lambda S, W: S, True),  # резервирует движок, который не знает про окна
    "uncompressed": (least, False),  # латентное внимание, восстановленное по головам
}


def _cached_tokens(S: int, window: int | None, convention: str, block: int) -> Factor:
    """Сколько токенов держит слой; движок отводит их целыми блоками по `block`."""
    letters, count = "S", S
    if window is not None and anywhere(window <= S):
        count = KV_CONVENTIONS[convention][0](S, window)
        if anywhere(count != S):
            letters = f"min(S, {window if convention == 'theory' else window - 1})"
    return (letters, count) if block == 1 else (f"⌈{letters}/{block}⌉·{block}", -(-count // block) * block)


def _dtype_factor(dtype: str, field: str = "dtype") -> Factor:
    return (f"байт[{dtype}]", DTYPES[_choice(field, dtype, DTYPES)])


def _size(field: str, value: int) -> int:
    """Целое; B и S могут быть и массивами numpy, тогда и ответы — массивы."""
    if getattr(value, "ndim", 0):
        from nanolm.arrays import is_array, wholes

        if is_array(value):
            return wholes(field, value)  # type: ignore[no-any-return]
    return whole(field, value)


def _batch(B: int) -> int:
    return _size("B", B)


def _context(spec: Spec, S: int | None) -> int:
    return spec.S if S is None else _size("S", S)


#: Страниц длиннее не бывает.
BLOCK_LIMIT = 2**20

#: Строка таблицы → компонент кеша.
_CACHE_PARTS = {"key": "key", "value": "value", "kv_down": "latent", "scores": "key", "mix": "value"}


def kv_cache_bytes(
    spec: Spec, B: int = 1, S: int | None = None, dtype: str = "bf16", kv: str = "theory", block: int = 1
) -> Account:
    """Кеш KV в байтах: 2·B·S·L·K·H·байт, по слоям с окном — меньше.

    `kv` — соглашение: «theory» — min(S, W) у слоёв с окном, «transformers» — как держит эта библиотека
    (W − 1), «engine» — полный контекст, «uncompressed» — латентное внимание без сжатия. Голов K, а не N:
    в этом и выигрыш GQA. У латентного внимания сжатый вектор C + R один на все головы.

    `block` — страницы движка (PagedAttention, Kwon et al. 2023): память отводится блоками по столько токенов, и
    последний блок каждой последовательности занят целиком, даже если в нём один токен.
    """
    B, S = _batch(B), _context(spec, S)
    _choice("kv", kv, KV_CONVENTIONS)
    block = whole("block", block, limit=BLOCK_LIMIT)
    size = _dtype_factor(dtype)
    compressed = KV_CONVENTIONS[kv][1]
    batch: Factor = ("B", B)
    lines = []
    for op in table(spec):
        axes = op.cached if compressed else op.uncompressed
        for layers, window in window_groups(spec) if axes else ():
            factors = (batch, _cached_tokens(S, window, kv, block), layers, *axis_factors(axes, spec), size)
            lines.append(Line(op.name, _CACHE_PARTS[op.name], op.title, factors))
    return Account("Кеш KV", "байт", COMPONENTS["kv_cache"], lines)


def crossover_batch(
    spec: Spec,
    S: int | None = None,
    dtype: str = "bf16",
    weights: str | Quantization | None = None,
    kv: str = "theory",
    block: int = 1,
) -> float:
    """Пакет, при котором кеш KV весит столько же, сколько веса. Для Llama-3-8B при 8192 — 14,96.

    `weights` — формат весов, `kv` и `block` — как отведён кеш: всё как у `inference_memory`. Квантованные веса кеш
    догоняет раньше.
    """
    lines = _weight_lines(spec, "weights", _dtype_factor(dtype), weights=_compression(weights, spec))
    return sum(line.value for line in lines) / kv_cache_bytes(spec, 1, S, dtype, kv, block).total


def inference_memory(
    spec: Spec,
    B: int = 1,
    S: int | None = None,
    dtype: str = "bf16",
    kv_dtype: str | None = None,
    kv: str = "theory",
    chunk: int | None = None,
    weights: str | Quantization | None = None,
    block: int = 1,
    implementation: str = "nanolm",
    attention: str = "fused",
) -> InferenceMemory:
    """Память вывода: веса и кеш KV; `.peak` добавляет рабочие буферы заполнения контекста.

    `weights` — формат квантованных матриц слоёв (`nanolm.quantization`): имя вроде «gptq-4-128» или то, что вернул
    `zoo.quantization`. Остальные веса, кеш и буферы остаются в `dtype`. `kv` и `block` — как у `kv_cache_bytes`.

    Буферы — остаточный поток, выход нормы и выходы самой тяжёлой половины блока для B·S токенов
    (нормы, проекции или полносвязный блок) и логиты последнего токена каждой последовательности в fp32.
    `chunk` — сколько токенов пакета заполняется за раз; `None` — все сразу.

    `implementation` — чьи буферы: «transformers» отдаёт логиты каждой позиции и держит больше временных тензоров;
    `attention` — ядро внимания, у NanoLM при выводе всегда слитое.
    """
    B, S = _batch(B), _context(spec, S)
    _choice("implementation", implementation, IMPLEMENTATIONS)
    _choice("attention", attention, ATTENTION_KERNELS)
    if implementation != "nanolm":
        from nanolm.transformers_memory import inference

        _whole_prefill(chunk, block, implementation)
        return inference(spec, B, S, dtype, kv_dtype, kv, attention, implementation, weights)
    compressed = _compression(weights, spec)
    stored = _weight_lines(spec, "weights", _dtype_factor(dtype), weights=compressed)
    cache = kv_cache_bytes(spec, B, S, _choice("kv_dtype", kv_dtype or dtype, DTYPES), kv, block)
    lines = [*stored, *(Line(line.name, "kv_cache", line.title, line.factors) for line in cache.details)]
    title = f"Память вывода, {dtype}" + (f", веса {compressed.name}" if compressed else "")
    return InferenceMemory(title, lines, _inference_buffers(spec, _portion(B, S, chunk), B, dtype))


def _whole_prefill(chunk: int | None, block: int, implementation: str) -> None:
    """Порции и страницы — приёмы движков, у самой библиотеки их нет."""
    if chunk is not None:
        raise ValueError(f"chunk = {chunk}: у implementation = {implementation!r} контекст заполняется одним проходом")
    if block != 1:
        raise ValueError(f"block = {block}: кеш implementation = {implementation!r} не страничный")


def _compression(weights: str | Quantization | None, spec: Spec) -> Quantization | None:
    """Формат весов по имени или он сам. Импорт здесь: обычным весам он не нужен."""
    if weights is None:
        return None
    from nanolm.quantization import named

    return named(weights, spec)


def _weight_lines(
    spec: Spec,
    component: str,
    size: Factor,
    prefix: str = "",
    weights: Quantization | None = None,
    used: Factor | None = None,
) -> Iterator[Line]:
    """Строка на каждый хранимый вес, помноженный на байты; у квантованного — на каждый его тензор.

    `used` — вместо E экспертов только эти.
    """
    for op in table(spec):
        if not op.weight or op.shared:
            continue
        if weights is None:
            yield Line(op.name, component, prefix + op.title, (*weight_factors(op, spec, used), size))
            continue
        for title, factors, over in weights.rows(op, spec, size, used):
            yield Line(op.name, component, prefix + title, factors, over)


def _portion(B: int, S: int, chunk: int | None) -> list[Factor]:
    """Сколько токенов проходит слой за раз: весь пакет или его порция."""
    if chunk is None:
        return [("B", B), ("S", S)]
    chunk = whole("chunk", chunk)
    return [("min(BS, порция)", least(B * S, chunk))]


def _inference_buffers(spec: Spec, tokens: list[Factor], B: int, dtype: str) -> list[Line]:
    """Что живо в пике заполнения контекста: поток, норма и половина блока с наибольшими выходами."""
    size = _dtype_factor(dtype)
    halves: dict[str, list[Line]] = {"attention": [], "ffn": []}
    for op in table(spec):
        half = "attention" if op.component in ("attention", "scores") else op.component
        if half not in halves:
            continue
        for tensor in op.keeps:
            if tensor.dtype == "compute" and tensor.only != "naive" and not tensor.once:
                used: list[Factor] = [("k", spec.experts_per_token)] if op.expert else []
                factors = (*tokens, *used, *axis_factors(tensor.axes, spec), size)
                halves[half].append(Line(tensor.name, "buffers", f"буфер: {tensor.title}", factors))
    # Токены у всех строк одни и те же: половины сравниваются по байтам одного токена.
    heaviest = max(halves.values(), key=lambda lines: sum(multiply(line.factors[len(tokens) :]) for line in lines))
    stream = [
        Line(name, "buffers", title, (*tokens, ("D", spec.D), size))
        for name, title in (("stream", "остаточный поток"), ("normed", "выход нормы"))
    ]
    logits = Line("logits", "buffers", "логиты последнего токена", (("B", B), ("V", spec.V), ("байт[fp32]", 4)))
    return [*stream, *heaviest, logits]


# --- Память обучения ----------------------------------------------------------------------------


class Recipe:
    """Рецепт точности: байты на параметр и точность вычислений."""

    __slots__ = ("compute", "copies", "gradients", "master", "state", "stream", "title", "weights")

    def __init__(
        self, title: str, *, weights: int, gradients: int, master: int, state: int, compute: int, stream: int
    ) -> None:
        self.title = title
        #: Байтов на вес, на градиент, на fp32-копию веса и на одну величину состояния оптимизатора.
        self.weights, self.gradients, self.master, self.state = weights, gradients, master, state
        #: Байтов на значение в вычислениях и в остаточном потоке.
        self.compute, self.stream = compute, stream
        #: При autocast вес приводится к точности вычислений, и копию держит autograd.
        self.copies = weights != compute


RECIPES = {
    "mixed": Recipe("bf16 + fp32-копия", weights=2, gradients=2, master=4, state=4, compute=2, stream=2),
    "fp32": Recipe("чистая fp32", weights=4, gradients=4, master=0, state=4, compute=4, stream=4),
    "bf16": Recipe("чистая bf16", weights=2, gradients=2, master=0, state=2, compute=2, stream=2),
    "autocast": Recipe("fp32 с autocast в bf16", weights=4, gradients=4, master=0, state=4, compute=2, stream=4),
}

#: Сколько величин состояния на параметр и сжаты ли они до 8 бит.
OPTIMIZERS = {"adamw": (2, False), "sgd": (0, False), "momentum": (1, False), "adamw8bit": (2, True)}

#: 8-битный оптимизатор хранит fp32-масштаб на каждые 256 значений, а тензоры меньше 4096 не сжимает.
BLOCK_8BIT, SMALLEST_8BIT = 256, 4096

#: Чья память: NanoLM или библиотеки transformers (4.57 отличается от нынешней маской, см. `transformers_memory`).
IMPLEMENTATIONS = ("nanolm", "transformers", "transformers-4.57")

#: На каких матрицах по умолчанию стоят адаптеры LoRA.
LORA_TARGETS = ("query", "key", "value", "output")

ATTENTION_KERNELS = ("fused", "naive")
CHECKPOINTING = ("none", "selective", "full")
ACTIVATIONS = ("saved", "all", "expanded")


def training_memory(
    spec: Spec,
    B: int = 1,
    S: int | None = None,
    recipe: str = "mixed",
    optimizer: str = "adamw",
    attention: str = "fused",
    checkpointing: str = "none",
    activations: str = "saved",
    implementation: str = "nanolm",
    lora_rank: int = 0,
    lora_targets: Iterable[str] = LORA_TARGETS,
    weights: str | Quantization | None = None,
) -> TrainingMemory:
    """Память шага обучения по компонентам, в байтах; сумма — пик шага.

    Градиенты считаются живыми всё время (как при накоплении), оптимизатор — слитым, без временных копий.
    Пик наступает в одном из моментов шага (`nanolm.moments`): `.moment` называет его, `.moments` даёт байты всех.
    Рабочие буферы — то, что в пике сверх остального; строки со знаком минус — что к нему уже отпущено.

    - `recipe`: «mixed» 2 + 2 + 4 + 4 + 4, «fp32» 4 + 4 + 8, «bf16» 2 + 2 + 4, «autocast» 4 + 4 + 8
      и bf16-копии весов на время шага;
    - `optimizer`: «adamw», «sgd», «momentum», «adamw8bit»;
    - `attention`: «fused» не хранит вероятности, «naive» хранит B·N·S² на слой;
    - `checkpointing`: «none»; «selective» пересчитывает ядро внимания (Korthikanti et al. 2022); «full» оставляет
      только входы блоков;
    - `activations`: «saved» — что держит autograd в NanoLM; «all» — все промежуточные тензоры блока,
      как в учебном подсчёте; «expanded» — то же, но k и v размножены до N голов;
    - `implementation`: «nanolm»; «transformers» — что держит эта библиотека (`nanolm.transformers_memory`):
      оптимизатор в ней не слитый, в итог входит и рабочая память cuBLAS;
    - `lora_rank`, `lora_targets` — ранг адаптеров LoRA (0 — учится вся модель) и матрицы, на которых они стоят;
      `weights` — квантование замороженной основы, «nf4-double» и другие веса bitsandbytes: QLoRA. Адаптеры есть
      только у transformers.
    """
    B, S = _batch(B), _context(spec, S)
    for field, value, allowed in (
        ("recipe", recipe, RECIPES),
        ("optimizer", optimizer, OPTIMIZERS),
        ("attention", attention, ATTENTION_KERNELS),
        ("checkpointing", checkpointing, CHECKPOINTING),
        ("activations", activations, ACTIVATIONS),
        ("implementation", implementation, IMPLEMENTATIONS),
    ):
        _choice(field, value, allowed)
    if implementation != "nanolm":
        _only_saved(activations, implementation)
        from nanolm.transformers_memory import training

        options = (recipe, optimizer, attention, checkpointing, implementation, lora_rank, lora_targets, weights)
        return training(spec, B, S, *options)
    _without_adapters(lora_rank, weights)
    tokens: tuple[Factor, ...] = (("B", B), ("S", S))
    policy = Policy(RECIPES[recipe], attention, checkpointing, activations)
    lines = [
        *_state_lines(spec, RECIPES[recipe], optimizer),
        *_input_lines(tokens),
        *_activation_lines(spec, tokens, policy),
        *_copy_lines(spec, policy),
    ]
    return _at_peak(f"Память обучения, {recipe}", spec, tokens, policy, lines)


def _only_saved(activations: str, implementation: str) -> None:
    """Учебные подсчёты активаций — про блок вообще, а не про реализацию."""
    if activations != "saved":
        raise ValueError(f"activations = {activations!r}: у implementation = {implementation!r} считается только saved")


def _without_adapters(lora_rank: int, weights: object) -> None:
    """У NanoLM адаптеров и квантованных весов нет."""
    if whole("lora_rank", lora_rank, minimum=0):
        raise ValueError(f"lora_rank = {lora_rank}: адаптеры описаны для transformers, задайте implementation")
    if weights is not None:
        raise ValueError("weights: квантованная основа (QLoRA) есть у transformers, задайте implementation и lora_rank")


def saved_tensor_bytes(
    spec: Spec,
    B: int = 1,
    S: int | None = None,
    recipe: str = "mixed",
    attention: str = "fused",
    checkpointing: str = "none",
    implementation: str = "nanolm",
    lora_rank: int = 0,
    lora_targets: Iterable[str] = LORA_TARGETS,
    weights: str | Quantization | None = None,
) -> dict[str, int]:
    """Что autograd держит до обратного прохода: компонент → байты. Те же строки, что у `training_memory`.

    «copies» — копии матриц, которые под autocast держит граф. Параметры и буферы модели не входят.
    """
    if implementation != "nanolm":
        _choice("implementation", implementation, IMPLEMENTATIONS)
        from nanolm.transformers_memory import saved

        options = (recipe, attention, checkpointing, implementation, lora_rank, lora_targets, weights)
        return saved(spec, _batch(B), _context(spec, S), *options)
    _without_adapters(lora_rank, weights)
    account = training_memory(spec, B, S, recipe, "sgd", attention, checkpointing)
    found = {name: account[name] for name in ("input", "activations", "logits")}
    policy = Policy(RECIPES[recipe], attention, checkpointing, "saved")
    return {**found, "copies": sum(line.value for line in _copy_lines(spec, policy))}


def _state_lines(spec: Spec, recipe: Recipe, optimizer: str) -> Iterator[Line]:
    """Веса, мастер-веса, градиенты, моменты: всё, что пропорционально числу параметров."""
    for component, size in (
        ("weights", recipe.weights),
        ("master_weights", recipe.master),
        ("gradients", recipe.gradients),
    ):
        if size:
            yield from _weight_lines(spec, component, ("байт", size))
    count, compressed = OPTIMIZERS[optimizer]
    if not count:
        return
    for op in table(spec):
        if op.weight and not op.shared:
            yield from _optimizer_lines(op, spec, count, recipe.state, compressed)


def _optimizer_lines(op: Op, spec: Spec, count: int, size: int, compressed: bool) -> Iterator[Line]:
    """Состояние оптимизатора одного веса: `count` величин на параметр."""
    factors = weight_factors(op, spec)
    moments: Factor = (str(count), count)
    tensor = Line(op.name, "optimizer", op.title, axis_factors(op.weight, spec)).value
    if not compressed or tensor < SMALLEST_8BIT:
        yield Line(op.name, "optimizer", op.title, (moments, *factors, ("байт", 4 if compressed else size)))
        return
    yield Line(op.name, "optimizer", op.title, (moments, *factors, ("байт", 1)))
    letters = "".join(symbol for symbol, _ in axis_factors(op.weight, spec))
    blocks: Factor = (f"⌈{letters}/{BLOCK_8BIT}⌉", -(-tensor // BLOCK_8BIT))
    scales = (moments, *copy_factors(op, spec), blocks, ("байт", 4))
    yield Line(f"{op.name}_scales", "optimizer", f"{op.title}: масштабы блоков", scales)


def _input_lines(tokens: tuple[Factor, ...]) -> Iterator[Line]:
    """Номера токенов и ответов: int64, по восемь байт."""
    for name, title in (("tokens", "номера токенов"), ("targets", "номера ответов")):
        yield Line(name, "input", title, (*tokens, ("байт[int64]", 8)))


def _both(op: str, tensor: str) -> str:
    """Операция и её тензор; одинаковые названия — один раз."""
    return op if op == tensor else f"{op}: {tensor}"


class Policy:
    """Что из тензоров таблицы живёт до обратного прохода и в какой точности."""

    def __init__(self, recipe: Recipe, attention: str, checkpointing: str, activations: str) -> None:
        self.recipe = recipe
        self.attention, self.checkpointing, self.activations = attention, checkpointing, activations
        self.copies = {"": True, "lowered": recipe.compute != 4, "autocast": recipe.copies}
        self.sizes = {
            "compute": recipe.compute, "stream": recipe.stream, "gradients": recipe.gradients, "fp32": 4, "int64": 8,
        }  # fmt: skip
        #: Снимает ли autocast копии с матриц; ведёт ли оптимизатор fp32-копию весов.
        self.cast, self.master = recipe.copies, bool(recipe.master)

    def recomputed(self) -> Policy:
        """Политика внутри слоя, который полный чекпоинтинг пересчитал: он хранит всё."""
        checkpointing = "none" if self.checkpointing == "full" else self.checkpointing
        return Policy(self.recipe, self.attention, checkpointing, self.activations)

    def keeps(self, op: Op, tensor: Tensor) -> bool:
        """Остаётся ли тензор до обратного прохода."""
        inside = inside_layer(op)
        if tensor.only not in ("", self.attention) or not self.copies[tensor.when]:
            return False
        if self.activations == "saved" and not tensor.saved:
            return False
        if self.activations != "saved" and not (tensor.counted and (inside or op.name == "lm_head")):
            return False
        if self.checkpointing == "full" and inside:
            return tensor.entry
        return not (self.checkpointing == "selective" and tensor.core)

    def line(self, op: Op, tensor: Tensor, spec: Spec, tokens: tuple[Factor, ...]) -> Line:
        """Строка памяти тензора: слои, токены, оси, байты."""
        expanded = self.activations == "expanded" and op.name in ("key", "value", "scores")
        axes = tensor.axes.replace("k", "n") if expanded else tensor.axes
        factors = () if tensor.once else (*layer_factor(op, spec), *tokens)
        if op.expert:
            factors = (*factors, ("k", spec.experts_per_token))
        # Ось «s» — ключи: у сохранённых вероятностей их S на каждый запрос.
        sizes = [tokens[1] if axis == "s" else axis_factors(axis, spec)[0] for axis in axes]
        component = "logits" if op.component == "lm_head" else "activations"
        size: Factor = (f"байт[{tensor.dtype}]", self.sizes[tensor.dtype])
        return Line(tensor.name, component, _both(op.title, tensor.title), (*factors, *sizes, size))


def _activation_lines(spec: Spec, tokens: tuple[Factor, ...], policy: Policy) -> Iterator[Line]:
    """Что операции держат до обратного прохода; логиты и их fp32-логарифмы — отдельный компонент."""
    for op in table(spec):
        for tensor in op.keeps:
            if policy.keeps(op, tensor):
                yield policy.line(op, tensor, spec, tokens)
    yield from _mask_lines(spec, tokens[1], policy)


def _mask_lines(spec: Spec, context: Factor, policy: Policy) -> Iterator[Line]:
    """Маски S×S — по одной на вид окна, а не на слой.

    Слитому ядру маска нужна, лишь если окно короче контекста. Наивное свою отпускает сразу, но
    пересчёт требует её снова, и чекпоинт держит её до обратного прохода.
    """
    fused = policy.attention == "fused"
    masks = mask_count(spec, context, fused)
    kept = policy.checkpointing != "full" and (fused or policy.checkpointing == "selective")
    if kept and policy.activations == "saved" and anywhere(masks[1]):
        size: Factor = ("байт[compute]", policy.sizes["compute"])
        yield Line("mask", "activations", "маски внимания", (masks, context, context, size))


def _copy_lines(spec: Spec, policy: Policy) -> Iterator[Line]:
    """Копии матриц в точности вычислений: их под autocast держит autograd, по одной на матрицу.

    При полном чекпоинтинге копии матриц слоя живут, только пока слой считается.
    """
    for op in copied(spec) if policy.cast else ():
        if not (policy.checkpointing == "full" and inside_layer(op)):
            factors = (*weight_factors(op, spec), ("байт", policy.sizes["compute"]))
            yield Line(f"{op.name}_copy", "workspace", f"{op.title}: копия для autocast", factors)


class TrainingMemory(Account):
    """Память шага обучения: ещё `.moments` — сколько занято в каждом моменте — и `.moment`, момент пика."""

    def __init__(self, title: str, lines: Iterable[Line], moments: dict[str, int]) -> None:
        super().__init__(title, "байт", COMPONENTS["training"], lines)
        #: Название момента → байты; наибольшее равно `.total`.
        self.moments = moments

    @property
    def moment(self) -> str:
        """Название момента, в котором памяти занято больше всего; у массива — массив названий."""
        if hasattr(self.total, "ndim"):
            from nanolm.arrays import largest

            return largest(list(self.moments.values()))[1].choose(list(self.moments))  # type: ignore[no-any-return]
        return max(self.moments, key=lambda name: self.moments[name])


def _at_peak(title: str, spec: Spec, tokens: tuple[Factor, ...], policy: Policy, lines: list[Line]) -> TrainingMemory:
    """Пик шага NanoLM."""
    kept = Account("", "байт", COMPONENTS["training"], lines)
    groups = group_bytes(spec, tokens, policy)
    groups |= {"activations": kept["activations"], "copies": kept["workspace"]}
    # Учебные подсчёты активаций не говорят, что и когда отпускается: у них пик — функция потерь.
    found = [m for m in moments(spec, tokens, policy) if policy.activations == "saved" or m.name == "loss"]
    return at_peak(title, lines, found, groups, GROUPS)


def at_peak(
    title: str, lines: list[Line], found: list[Moment], groups: dict[str, int], titles: dict[str, str]
) -> TrainingMemory:
    """Дописать рабочие буферы момента пика: что в нём появилось и, со знаком минус, что уже отпущено.

    `groups` — байты групп, которые отпускаются вместе, `titles` — их названия.
    """
    kept = Account("", "байт", COMPONENTS["training"], lines)
    buffers = {moment.title: _moment_lines(moment, groups, titles) for moment in found}
    totals = {name: kept.total + sum(line.value for line in born) for name, born in buffers.items()}
    if hasattr(kept.total, "ndim"):
        # У каждой точки свой момент пика, поэтому строка одна.
        from nanolm.arrays import largest

        over = largest(list(totals.values()))[0] - kept.total
        return TrainingMemory(title, [*lines, Line("peak", "workspace", "буферы пика", (("пик", over),))], totals)
    peak = max(totals, key=lambda name: totals[name])
    return TrainingMemory(title, [*lines, *buffers[peak]], totals)


def _moment_lines(moment: Moment, groups: dict[str, int], titles: dict[str, str]) -> list[Line]:
    born = [Line(name, "workspace", title, factors) for name, title, factors in moment.born]
    freed = [
        Line(f"freed_{name}", "workspace", f"уже отпущено: {titles[name]}", ((f"−({titles[name]})", -groups[name]),))
        for name in moment.freed
        if anywhere(groups[name])
    ]
    return born + freed


# --- Время и деньги -----------------------------------------------------------------------------


def _card(gpu: str | Gpu) -> Gpu:
    """Карта по имени или она сама. Импорт здесь: без карты таблица ускорителей не нужна."""
    from nanolm.hardware import gpu as find_gpu

    return find_gpu(gpu)


#: Больше токенов, чем у любого обучения; и меньше доли пика, чем у любого настоящего запуска.
TOKENS_LIMIT, LEAST_MFU = 10**18, 1e-6


def _real(field: str, value: float, least: float, most: float, rule: str) -> float:
    """Число от `least` до `most`; не-число и бесконечность сюда не попадают."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{field} = {shown(value)}: нужно число") from None
    if not least <= number <= most:
        raise ValueError(f"{field} = {shown(value)}: {rule}")
    return number


def _mfu(value: float) -> float:
    return _real("mfu", value, LEAST_MFU, 1, "доля пика, нужно число от 0,000001 до 1; 45 % — это 0,45")


def _price(value: float) -> float:
    return _real("price", value, 1e-9, LIMIT, f"нужно положительное число не больше {units.number(LIMIT)}")


class TrainingTime:
    """Ответ `training_time`: секунды, GPU-часы, полезные FLOPs, цена."""

    __slots__ = ("cost", "dtype", "flops", "gpu_hours", "gpus", "mfu", "seconds")

    def __init__(self, flops: int, seconds: float, gpus: int, mfu: float, dtype: str, price: float | None) -> None:
        self.flops, self.seconds, self.gpus, self.mfu, self.dtype = flops, seconds, gpus, mfu, dtype
        #: Часы всех карт вместе: за них и платят.
        self.gpu_hours = seconds * gpus / 3600
        #: Цена в той же валюте, что и цена часа; `None`, если её не задали.
        self.cost = None if price is None else self.gpu_hours * price

    @property
    def days(self) -> float:
        """Сутки."""
        return self.seconds / 86_400

    def __str__(self) -> str:
        cost = "" if self.cost is None else f", цена {units.estimate(self.cost, 2)}"
        return (
            f"{units.duration(self.seconds)}, {units.estimate(self.gpu_hours)}{units.NBSP}GPU-ч{cost}; "
            f"полезных FLOPs {units.scientific(self.flops)}, MFU {units.percent(self.mfu)}, {self.dtype}"
        )


def training_time(
    spec: Spec,
    tokens: int,
    gpu: str | Gpu,
    gpus: int = 1,
    mfu: float = 0.45,
    S: int | None = None,
    attention: str = "full",
    price: float | None = None,
    dtype: str | None = None,
) -> TrainingTime:
    """Время обучения: полезные FLOPs / (карты · плотный пик · MFU).

    `mfu` — доля пика, которая идёт на полезную работу; 45 % — середина обычных для хорошо настроенного
    обучения 35–50 %. Пересчёт при чекпоинтинге в полезные FLOPs не входит. `price` — цена GPU-часа.
    `dtype` по умолчанию — лучший 16-битный формат карты.
    """
    count = flops_per_token(spec, S, attention=attention).total * whole("tokens", tokens, limit=TOKENS_LIMIT)
    gpus, mfu, card = whole("gpus", gpus), _mfu(mfu), _card(gpu)
    dtype = dtype or card.best_16bit
    seconds = count / (gpus * card.rate(dtype) * mfu)
    return TrainingTime(count, seconds, gpus, mfu, dtype, None if price is None else _price(price))


class DecodeStep:
    """Ответ `decode_step_time`: один токен для каждой последовательности пакета.

    `.seconds` — большее из времени памяти и времени вычислений; `.bound` — что ограничивает.
    `.dtype` — в чём хранятся веса, `.compute_dtype` — в чём считает карта.
    """

    __slots__ = (
        "batch", "cache_bytes", "compute_dtype", "compute_seconds", "dtype", "flops", "memory_seconds", "weight_bytes",
    )  # fmt: skip

    def __init__(self, batch: int, weight_bytes: float, cache_bytes: int, flops: int, card: Gpu, dtype: str) -> None:
        self.batch, self.weight_bytes, self.cache_bytes, self.flops = batch, weight_bytes, cache_bytes, flops
        # Чего карта не умеет, то она хранит и читает как есть, а считает в 16 битах.
        self.dtype, self.compute_dtype = dtype, dtype if dtype in card.flops_per_s else card.best_16bit
        self.memory_seconds = (weight_bytes + cache_bytes) / card.bandwidth_bytes_per_s
        self.compute_seconds = flops / card.rate(self.compute_dtype)

    @property
    def seconds(self) -> float:
        """Время шага: память и вычисления идут одновременно, ждать приходится дольшего."""
        longest: float = self._of(self.compute_seconds, self.memory_seconds)
        return longest

    @property
    def bound(self) -> str:
        """Что ограничивает шаг: «память» или «вычисления»."""
        name: str = self._of("вычисления", "память")
        return name

    def _of(self, compute: Any, memory: Any) -> Any:
        """Одно из двух: по тому, что дольше. У массивов — поэлементно."""
        slower: Any = self.memory_seconds >= self.compute_seconds
        if hasattr(slower, "choose"):
            return slower.astype("int64").choose([compute, memory])
        return memory if slower else compute

    @property
    def tokens_per_s(self) -> float:
        """Токенов в секунду на весь пакет."""
        return self.batch / self.seconds


def decode_step_time(
    spec: Spec,
    B: int,
    S: int | None,
    gpu: str | Gpu,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    weights: str | Quantization | None = None,
) -> DecodeStep:
    """Время шага декодирования по roofline: байты / полоса против FLOPs / пик.

    Шаг читает веса (у смеси — только выбранных экспертов, в среднем E·(1 − (1 − k/E)^B)), из эмбеддинга —
    B строк, и кеш KV из S токенов. Это нижняя граница: запуск ядер и сеть не учтены. Квантованные веса
    (`weights`) короче, но считает карта по-прежнему в `dtype`.
    """
    B, S, card = _batch(B), _context(spec, S), _card(gpu)
    dtype = dtype or card.best_16bit
    size, kv_dtype = _dtype_factor(dtype), kv_dtype or dtype
    _choice("kv_dtype", kv_dtype, DTYPES)
    cache = kv_cache_bytes(spec, B, S, kv_dtype).total
    read = _weights_read(spec, B, size, _compression(weights, spec))
    return DecodeStep(B, read, cache, _decode_flops(spec, B, S), card, dtype)


def _weights_read(
    spec: Spec, B: int, size: Factor, weights: Quantization | None = None, experts: float | None = None
) -> float:
    """Сколько байтов весов читает шаг из B токенов; `experts` — сколько разных экспертов, если не среднее их число."""
    total = 0.0
    if spec.experts and experts is None:
        experts = distinct_experts(spec.experts, spec.experts_per_token, B)
    used: Factor = ("E*", 0 if experts is None else experts)
    for op in table(spec):
        if op.lookup:
            total += B * spec.D * size[1]
        elif op.weight:  # общая матрица головы читается, хотя хранится в эмбеддинге
            plain = (op.title, (*weight_factors(op, spec, used), size), 1)
            for _, factors, over in [plain] if weights is None else weights.rows(op, spec, size, used):
                total += multiply(factors) / over
    return total


def _decode_flops(spec: Spec, B: int, S: int) -> int:
    """FLOPs шага: каждый из B токенов видит S ключей (в окне — не больше W)."""
    total = 0
    for op in table(spec):
        if not op.product:
            continue
        factors = product_factors(op, spec, absorbed=True)
        groups = [(factors, 1)]
        if op.pairs:
            groups = [
                ([factors[0], layers, *factors[2:]], pairs(1, S, causal=True, window=window))
                for layers, window in window_groups(spec)
            ]
        total += sum(Line(op.name, op.component, op.title, (("B", B), *f, ("keys", keys))).value for f, keys in groups)
    return total


def critical_batch(spec: Spec, S: int | None, gpu: str | Gpu, dtype: str | None = None) -> int | None:
    """Наименьший пакет, при котором шаг декодирования упирается в вычисления.

    `None` — такого нет: с длинным контекстом кеш растёт вместе с пакетом и чтение не догнать.
    """
    card = _card(gpu)
    return _smallest(lambda B: decode_step_time(spec, B, S, card, dtype).bound == "вычисления", limit=2**24)


def report(spec: Spec, **options: object) -> str:
    """Полный отчёт текстом: геометрия, параметры, FLOPs, кеш KV, память, время.

    Ключи — те же, что у командной строки: `B`, `S`, `recipe`, `optimizer`, `attention`, `checkpointing`,
    `dtype`, `gpu`, `gpus`, `tokens`, `mfu`, `price`.
    """
    from nanolm.summary import Question, text

    return text(Question(spec, **options))  # type: ignore[arg-type]
