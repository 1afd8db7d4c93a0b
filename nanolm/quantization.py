"""Квантованные веса: сколько байтов занимает каждая матрица в настоящем формате, вместе с масштабами и нулями.

Квантование заменяет вес коротким целым, а величину возвращает множителем — масштабом. Один масштаб на всю матрицу
груб, поэтому её режут на группы или блоки и хранят по масштабу на каждый; у несимметричных форматов к нему
добавляется ноль. Оттого «4 бита» на деле — 4,16 бита при группах по 128 и 4,5 при блоках по 64 с fp32-масштабом.

Квантуются только матрицы слоёв: проекции внимания и полносвязные блоки. Эмбеддинг, нормы, смещения, маршрутизатор
и (обычно) выходная голова остаются в точности модели. Вычисления и кеш тоже не меняются: перед произведением
матрица распаковывается, и выигрывают только память и полоса.

Описание модели прежнее — строки `nanolm.ops`: здесь лишь сказано, из каких тензоров состоит вес одной строки.
Размеры — как в файле модели; движок при загрузке может переложить их по-своему и выбросить ненужное.

Источники: упаковка GPTQ и AWQ — библиотеки AutoGPTQ и AutoAWQ; bitsandbytes — тензоры его `QuantState`;
fp8 — README_WEIGHTS.md модели DeepSeek-V3; mxfp4 — описание формата OCP Microscaling и модели gpt-oss;
compressed-tensors — одноимённая библиотека.
"""

from __future__ import annotations

from nanolm.ops import axis_factors, layer_factor, multiply, table, weight_factors
from nanolm.spec import Spec, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from nanolm.ops import Factor, Op

    #: Один тензор квантованного веса: название (у самих значений пустое), множители одной матрицы, делитель.
    Part = tuple[str, tuple[Factor, ...], int]
    Parts = Callable[["Matrix"], list[Part]]

#: Байтов у типов, в которых хранят масштабы и нули.
_BYTES = {"fp32": 4, "int32": 4, "int64": 8, "fp16": 2, "bf16": 2, "uint8": 1, "int8": 1, "fp8": 1, "e8m0": 1}


def _byte(dtype: str) -> Factor:
    return (f"байт[{dtype}]", _BYTES[dtype])


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


class Matrix:
    """Одна хранимая матрица [выходы, входы].

    У семейств, где несколько матриц лежат одним тензором (q, k и v; ворота и расширение), строка таблицы —
    его часть: `start` — сколько выходов стоит раньше. Блоки, которые пересекают границу частей, считаются один
    раз, а то, что одно на тензор, достаётся первой части.
    """

    __slots__ = ("columns", "inputs", "outputs", "rows", "start")

    def __init__(self, op: Op, spec: Spec, start: int = 0) -> None:
        outputs, _, inputs = op.weight.partition(",")
        self.outputs, self.inputs = tuple(axis_factors(outputs, spec)), tuple(axis_factors(inputs, spec))
        self.columns, self.rows = int(multiply(self.inputs)), int(multiply(self.outputs))
        self.start = start

    @property
    def first(self) -> bool:
        """Первая ли это часть своего тензора."""
        return self.start == 0

    @property
    def all(self) -> tuple[Factor, ...]:
        """Множители числа весов."""
        return (*self.outputs, *self.inputs)

    def groups(self, size: int | None) -> Factor:
        """Сколько групп по `size` входов в строке; `None` — одна на всю строку."""
        letters = "·".join(symbol for symbol, _ in self.inputs)
        return ("1", 1) if size is None else (f"⌈{letters}/{size}⌉", _ceil(self.columns, size))

    def tiles(self, size: int) -> Factor:
        """Сколько полос по `size` выходов начинается в этой части."""
        letters = "·".join(symbol for symbol, _ in self.outputs)
        return f"⌈{letters}/{size}⌉", _ceil(self.start + self.rows, size) - _ceil(self.start, size)

    def blocks(self, *sizes: int) -> Factor:
        """Сколько блоков, если матрица вытянута в строку; несколько размеров — блоки из блоков."""
        letters = "·".join(symbol for symbol, _ in self.all)
        begin, end = self.start * self.columns, (self.start + self.rows) * self.columns
        for size in sizes:
            letters, begin, end = f"⌈{letters}/{size}⌉", _ceil(begin, size), _ceil(end, size)
        return letters, end - begin

    def divisible(self, inputs: int = 1, outputs: int = 1) -> None:
        """Отказать матрице, которую формат не упакует."""
        for what, size, by in (("входов", self.columns, inputs), ("выходов", self.rows, outputs)):
            if size % by:
                raise ValueError(f"число {what} матрицы — {size}, а формат упаковывает их по {by}")


# --- Форматы: из каких тензоров состоит вес -----------------------------------------------------


def _packed(matrix: Matrix, bits: int) -> Part:
    """Сами значения, `bits` бит на вес."""
    return "", (*matrix.all, ("бит/8", bits)), 8


def gptq(bits: int, group: int | None) -> Parts:
    """GPTQ: qweight, qzeros, scales и g_idx. Нули и порядок групп лежат в файле всегда, нужны они или нет."""

    def parts(m: Matrix) -> list[Part]:
        m.divisible(32, 32)
        groups = m.groups(group)
        order = [("порядок групп", (*m.inputs, _byte("int32")), 1)] if m.first else []
        return [
            _packed(m, bits),
            ("масштабы групп", (*m.outputs, groups, _byte("fp16")), 1),
            ("нули групп", (*m.outputs, groups, ("бит/8", bits)), 8),
            *order,
        ]

    return parts


def awq(bits: int, group: int | None) -> Parts:
    """AWQ в раскладке GEMM: qweight, qzeros и scales."""

    def parts(m: Matrix) -> list[Part]:
        m.divisible(group or 1, 32 // bits)
        groups = m.groups(group)
        return [
            _packed(m, bits),
            ("масштабы групп", (*m.outputs, groups, _byte("fp16")), 1),
            ("нули групп", (*m.outputs, groups, ("бит/8", bits)), 8),
        ]

    return parts


def bnb4(double: bool) -> Parts:
    """bitsandbytes, nf4 или fp4: масштаб на каждые 64 веса; при двойном квантовании и сами масштабы — 8 бит."""

    def parts(m: Matrix) -> list[Part]:
        scales: list[Part] = [("масштабы блоков", (m.blocks(64), _byte("fp32")), 1)]
        tables = [("таблица значений", (("16", 16), _byte("fp32")), 1)]
        if double:
            scales = [
                ("масштабы блоков", (m.blocks(64), _byte("uint8")), 1),
                ("масштабы масштабов", (m.blocks(64, 256), _byte("fp32")), 1),
            ]
            tables += [
                ("таблица масштабов", (("256", 256), _byte("fp32")), 1),
                ("сдвиг масштабов", (("1", 1), _byte("fp32")), 1),
            ]
        return [("", (m.blocks(2), _byte("uint8")), 1), *scales, *(tables if m.first else [])]

    return parts


def per_row(dtype: str, scale: str, zeros: str = "") -> Parts:
    """Байт на вес и масштаб на каждый выход: LLM.int8, fp8 по строкам."""

    def parts(m: Matrix) -> list[Part]:
        extra = [("нули строк", (*m.outputs, _byte(zeros)), 1)] if zeros else []
        return [
            ("", (*m.all, _byte(dtype)), 1),
            ("масштабы строк", (*m.outputs, _byte(scale)), 1),
            *extra,
        ]

    return parts


def per_matrix(dtype: str, scale: str, zeros: str = "") -> Parts:
    """Байт на вес и один масштаб на матрицу."""

    def parts(m: Matrix) -> list[Part]:
        single = [("масштаб матрицы", (_byte(scale),), 1), *([("ноль матрицы", (_byte(zeros),), 1)] if zeros else [])]
        return [("", (*m.all, _byte(dtype)), 1), *(single if m.first else [])]

    return parts


def fp8(block: tuple[int, int] | None, scale: str = "fp32") -> Parts:
    """fp8 DeepSeek: байт на вес и масштаб на квадрат, обычно 128×128; `None` — один на матрицу."""
    if block is None:
        return per_matrix("fp8", "fp32")

    def parts(m: Matrix) -> list[Part]:
        return [
            ("", (*m.all, _byte("fp8")), 1),
            ("масштабы блоков", (m.tiles(block[0]), m.groups(block[1]), _byte(scale)), 1),
        ]

    return parts


def with_input_scale(inner: Parts) -> Parts:
    """То же и ещё один постоянный масштаб входа на матрицу (активации тоже квантуются)."""

    def parts(m: Matrix) -> list[Part]:
        return [*inner(m), *([("масштаб входа", (_byte("fp32"),), 1)] if m.first else [])]

    return parts


def mxfp4(m: Matrix) -> list[Part]:
    """mxfp4: 4 бита на вес и байт показателя степени на каждые 32 входа."""
    m.divisible(32)
    return [_packed(m, 4), ("масштабы блоков", (*m.outputs, m.groups(32), _byte("e8m0")), 1)]


def packed_int32(bits: int, group: int | None, symmetric: bool, ordered: bool) -> Parts:
    """compressed-tensors, pack-quantized: значения в int32, масштабы в точности модели, форма исходной матрицы."""

    def words(letters: str, size: int) -> Factor:
        return f"⌈{letters}·{bits}/32⌉", _ceil(size, 32 // bits)

    def parts(m: Matrix) -> list[Part]:
        groups = m.groups(group)
        letters = ["·".join(symbol for symbol, _ in axes) for axes in (m.inputs, m.outputs)]
        packed = (*m.outputs, words(letters[0], m.columns), _byte("int32"))
        zeros = [("нули групп", (words(letters[1], m.rows), groups, _byte("int32")), 1)]
        order = [("порядок групп", (*m.inputs, _byte("int32")), 1)]
        return [
            ("", packed, 1),
            ("масштабы групп", (*m.outputs, groups, _byte("bf16")), 1),
            *([] if symmetric else zeros),
            *(order if ordered and m.first else []),
            *([("исходная форма", (("2", 2), _byte("int64")), 1)] if m.first else []),
        ]

    return parts


# --- Квантование модели --------------------------------------------------------------------------


class Quantization:
    """Как квантованы веса: формат и то, какие матрицы он трогает.

    `rows(op, spec, size)` — из чего складываются байты одной строки таблицы операций; их сумма по таблице —
    вес модели. `.name` — короткое имя, «gptq-4-128». Точность вычислений и кеша сюда не входит.

    - `parts` — тензоры одной матрицы; `head` — квантована ли и выходная голова; `experts_only` — только эксперты;
    - `kept` — имя строки таблицы → в скольких слоях она осталась как есть;
    - `fused` — какие строки лежат в файле одним тензором.
    """

    __slots__ = ("experts_only", "fused", "head", "kept", "name", "parts")

    def __init__(
        self,
        name: str,
        parts: Parts,
        *,
        head: bool = False,
        experts_only: bool = False,
        kept: Mapping[str, int] | None = None,
        fused: tuple[tuple[str, ...], ...] = (),
    ) -> None:
        self.name, self.parts, self.head, self.experts_only = name, parts, head, experts_only
        self.kept, self.fused = dict(kept or {}), fused

    def touches(self, op: Op) -> bool:
        """Из тех ли эта строка, что формат квантует."""
        if not op.weight or not op.product or op.shared or op.component == "router":
            return False
        return self.head if op.component == "lm_head" else op.expert or not self.experts_only

    def layers(self, op: Op) -> int:
        """В скольких слоях строка квантована."""
        return max(op.layers - self.kept.get(op.name, 0), 0) if self.touches(op) else 0

    def rows(
        self, op: Op, spec: Spec, size: Factor, used: Factor | None = None
    ) -> Iterator[tuple[str, tuple[Factor, ...], int]]:
        """Байты строки таблицы: название, множители, делитель.

        `size` — байты обычного значения; `used` — вместо E экспертов только эти, как у `ops.weight_factors`.

        Ошибки: `ValueError`, если формат такую матрицу не упакует.
        """
        done = self.layers(op)
        if not done:
            yield op.title, (*weight_factors(op, spec, used), size), 1
            return
        left = op.layers - done
        experts = [used or ("E", spec.experts)] if op.expert else []
        layers = [("L[квантованные]", done)] if left else layer_factor(op, spec)
        try:
            found = self.parts(Matrix(op, spec, self._start(op, spec)))
        except ValueError as error:
            raise ValueError(f"weights = {self.name}: {op.title}: {error}") from None
        for title, factors, over in found:
            yield f"{op.title}: {title}" if title else op.title, (*layers, *experts, *factors), over
        if left:
            whole_layers: Factor = ("L[как есть]", left)
            yield f"{op.title}: как есть", (whole_layers, *experts, *axis_factors(op.weight, spec), size), 1

    def _start(self, op: Op, spec: Spec) -> int:
        """Сколько выходов того же тензора стоит раньше этой строки."""
        group = next((group for group in self.fused if op.name in group), (op.name,))
        earlier = group[: group.index(op.name)]
        return sum(Matrix(other, spec).rows for other in table(spec) if other.name in earlier)

    def __repr__(self) -> str:
        return f"Quantization({self.name})"


#: Имя → формат, когда в нём нет чисел.
_NAMED: dict[str, tuple[Parts, bool]] = {
    "nf4": (bnb4(double=False), False),
    "nf4-double": (bnb4(double=True), False),
    "fp4": (bnb4(double=False), False),
    "int8": (per_row("int8", "fp32"), False),
    "fp8-block": (fp8((128, 128)), False),
    "fp8-row": (per_row("fp8", "fp32"), False),
    "fp8-tensor": (fp8(None), False),
    "mxfp4": (mxfp4, True),
}
NAMES = ("gptq-4-128", "gptq-8-128", "awq-4-128", *_NAMED)

#: Начало имени с числами → формат и сколько бит на вес он умеет.
_NUMBERED: dict[str, tuple[Callable[[int, int | None], Parts], tuple[int, ...]]] = {
    "gptq": (gptq, (2, 3, 4, 8)),
    "awq": (awq, (4,)),
}


def named(name: str | Quantization, spec: Spec) -> Quantization:
    """Квантование по имени: «gptq-4-128» (биты и группа, «none» — без групп), «nf4-double», «fp8-block»…

    Каждая матрица лежит своим тензором, как у Llama. «mxfp4» у смеси квантует только экспертов, как в gpt-oss.

    Ошибки: `ValueError` со списком имён.
    """
    if isinstance(name, Quantization):
        return name
    if not isinstance(name, str):
        raise ValueError(f"weights = {shown(name)}: нужно имя формата: {', '.join(NAMES)}")
    if name in _NAMED:
        parts, mixture = _NAMED[name]
        return Quantization(name, parts, experts_only=mixture and spec.experts > 0)
    method, _, rest = name.partition("-")
    bits, _, group = rest.partition("-")
    numeric = group.isdecimal() and group.isascii() and len(group) < 7 and int(group) > 0
    if method in _NUMBERED and bits in map(str, _NUMBERED[method][1]) and (group == "none" or numeric):
        size = None if group == "none" else int(group)
        return Quantization(name, _NUMBERED[method][0](int(bits), size))
    known = ", ".join(NAMES)
    raise ValueError(f"weights = {shown(name)}: нужно одно из: {known}; у gptq и awq числа — биты и группа")
