"""Память transformers: что держит до обратного прохода библиотека, а не NanoLM, и что прибавляют к ней адаптеры.

Модель та же, и описана она той же таблицей (`nanolm.ops`); другая — реализация. NanoLM сохраняет наименьшее, а
transformers собирает слой из мелких операций, и autograd хранит то, что нужно каждой:

- норма приводит вход к fp32 (копия), хранит его, обратное отклонение и частное; в bf16 это 4 + 2 байта вместо 2;
- под autocast поток остаётся в fp32, и каждая матрица приводит вход к bf16 сама: у q, k и v три одинаковые копии;
- логиты целы весь шаг, потому что ответ модели жив; потери считаются в fp32: копия логитов, логарифмы вероятностей
  и два их градиента — те самые 14 байт на логит у bf16;
- внимание без слитого ядра («naive», у библиотеки — eager) размножает ключи и значения до N голов и хранит
  вероятности дважды, в fp32 и в точности вычислений;
- слою с маской слитое ядро (sdpa) не помогает с группами: ключи и значения тоже размножены, а маску каждый слой
  приводит к слагаемому S×S сам;
- AdamW по умолчанию не слитый, а foreach: на время шага он заводит ещё одну величину на каждый параметр.

Здесь — столбец таблицы: какие тензоры держит строка. Моменты шага и пик — в `nanolm.transformers_peak`. Столбец
описывает блок Llama, Mistral, Qwen2 и Qwen3: две RMSNorm, SwiGLU из трёх матриц, RoPE, отдельные проекции со
смещениями или без, нормы q и k. Другая геометрия — отказ по имени. Семейства `Spec` не помнит: у тех, что сливают
проекции в одну матрицу (phi3) или считают норму иначе (gemma), размеры те же, а хранится чуть другое; пресет и
config.json такого семейства командная строка не примет (`check_family`).

Две версии различаются одним: «transformers-4.57» при обучении строит маску всегда (её разбор упакованных
последовательностей отвечает маской и на обычный текст), а «transformers» (сверено с 5.24) — лишь когда окно короче
контекста. В выводе, с кешем, обе обходятся без неё.

LoRA — по правилам peft: A [r, вход] и B [выход, r] лежат в fp32 при любой точности основы (autocast_adapter_dtype),
dropout нулевой; основа заморожена, её градиентов и состояний нет. Замороженная матрица входа не хранит, норма с
замороженным весом — частного. Зато peft приводит вход каждого адаптера к fp32, и в bf16 на очень длинном контексте
это перевешивает. QLoRA — то же поверх весов bitsandbytes: распакованная матрица живёт,
пока идёт её произведение, а ответ приходит в точности входа (под autocast — в fp32).

Источник: исходный текст transformers 5.24 и 4.57.6, peft 0.21; сохранённые тензоры сверены с ними до байта.
"""

from __future__ import annotations

from nanolm.budget import (
    BLOCK_8BIT,
    COMPONENTS,
    LORA_TARGETS,
    OPTIMIZERS,
    RECIPES,
    SMALLEST_8BIT,
    Account,
    InferenceMemory,
    Line,
    Recipe,
    TrainingMemory,
    _choice,
    _compression,
    _dtype_factor,
    _state_lines,
    _weight_lines,
    at_peak,
    kv_cache_bytes,
)
from nanolm.ops import (
    Op,
    Tensor,
    anywhere,
    axis_factors,
    inside_layer,
    layer_factor,
    multiply,
    table,
    weight_factors,
)
from nanolm.spec import Spec, shown, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from nanolm.moments import Born
    from nanolm.ops import Factor
    from nanolm.quantization import Quantization

#: Реализация → строит ли она маску при обучении всегда.
VERSIONS = {"transformers": False, "transformers-4.57": True}

#: Квантование основы, для которого описана QLoRA: веса bitsandbytes.
QLORA = ("nf4", "nf4-double", "fp4")

#: Рабочая память cuBLAS: её заводит первое произведение, и она остаётся в `memory_allocated`. По умолчанию torch
#: берёт 2 куска по 4096 КиБ и 8 по 16 КиБ (на Hopper — 32 МиБ).
CUBLAS = (2 * 4096 + 8 * 16) * 1024

#: Распределитель torch отдаёт кусок целиком, если от него осталось бы не больше 1 МиБ, а куски от 10 МиБ берёт у
#: карты с округлением до 2 МиБ (`kSmallSize`, `kMinLargeAlloc`, `kRoundLarge`).
WHOLE_REST, LARGE, ROUND = 2**20, 10 * 2**20, 2 * 2**20

_TITLES = {
    "block_input": "вход нормы в fp32", "residual": "вход нормы в fp32", "final_input": "вход нормы в fp32",
    "query_wide": "вход нормы в fp32", "key_wide": "вход нормы в fp32",
    "rstd": "обратные отклонения", "scaled": "частное нормы", "normed": "выход нормы", "entry": "вход слоя",
    "input_copy": "копия входа", "low_rank": "вход матрицы B", "key_expanded": "ключи, размноженные до N голов",
    "value_expanded": "значения, размноженные до N голов", "bias": "маска, приведённая к слагаемому",
    "probabilities_fp32": "вероятности в fp32", "probabilities": "вероятности в точности вычислений",
    "loss_weight": "сумма весов потерь",
}  # fmt: skip


#: Размноженный тензор → из чего он сделан.
_REPEATED = {"key_expanded": "key", "value_expanded": "value"}


class Kept(Tensor):
    """Тензор столбца: `layers` — в скольких слоях он есть; `rank` — есть ли ось ранга адаптера.

    `group` — вместе с чем его отпускает обратный проход: «attention» и «ffn» — половины слоя, «final» — последняя
    норма, «head» — вход головы, «loss» — логарифмы вероятностей, пусто — живёт весь шаг. `part` — точнее, внутри
    половины: «context», «value», «lowered», «product»; у последней нормы — «scaled».
    """

    __slots__ = ("group", "layers", "part", "rank")

    def __init__(
        self,
        name: str,
        axes: str,
        dtype: str,
        layers: int | None,
        group: str = "",
        part: str = "",
        *,
        rank: bool = False,
        once: bool = False,
        saved: bool = True,
    ) -> None:
        super().__init__(name, axes, dtype=dtype, once=once, saved=saved)
        self.layers, self.group, self.part, self.rank = layers, group, part, rank

    @property
    def title(self) -> str:
        """Название по-русски."""
        return _TITLES.get(self.name) or super().title


class LibraryStep:
    """Шаг обучения или заполнение контекста: модель, токены, точность, ядро, адаптеры.

    `rank` — ранг LoRA, 0 — учится вся модель; `targets` — имена строк с адаптерами; `weights` — квантование основы.
    """

    def __init__(
        self,
        spec: Spec,
        tokens: tuple[Factor, ...],
        recipe: Recipe,
        attention: str,
        checkpointing: str,
        always_masked: bool = False,
        rank: int = 0,
        targets: tuple[str, ...] = (),
        weights: Quantization | None = None,
    ) -> None:
        self.spec, self.tokens, self.recipe = spec, tokens, recipe
        self.attention, self.checkpointing = attention, checkpointing
        self.rank, self.targets, self.weights = rank, targets, weights
        self.trained = not rank
        self.cast, self.lowered = recipe.copies, recipe.compute != 4
        self.master = bool(recipe.master) and self.trained
        #: Точность внутри полносвязного блока: bitsandbytes возвращает ответ в точности входа, а у autocast это fp32.
        self.inner = "stream" if weights is not None else "compute"
        self.sizes = {
            "compute": recipe.compute, "stream": recipe.stream, "gradients": recipe.gradients if self.trained else 4,
            "weights": recipe.weights, "fp32": 4, "int64": 8, "bool": 1,
            # Адаптер считает в своей точности, fp32; autocast приводит его входы, как и все остальные.
            "adapter": recipe.compute if recipe.copies else 4,
        }  # fmt: skip
        self.rows = {op.name: op for op in table(spec)}
        self.masked, self.last_masked = self._masked_layers(always_masked)
        self.first = self._first_layer()

    def _masked_layers(self, always: bool) -> tuple[int, int]:
        """В скольких слоях ядру нужна маска (окно не длиннее контекста) и нужна ли она последнему: 0 или 1."""
        if always:
            return self.spec.L, 1
        context = self.tokens[1][1]
        counts = [0 if window is None else 1 * (window <= context) for window in self.spec.windows]
        return sum(counts), counts[-1]

    def _first_layer(self) -> dict[str, bool]:
        """Идёт ли градиент через эти места первого слоя: у замороженной основы он начинается с первого адаптера."""
        flows, has = {"stream": self.trained}, self.adapted
        for name in ("query", "key", "value"):
            flows[name] = flows["stream"] or has(name)
        flows["core"] = flows["query"] or flows["key"] or flows["value"]
        flows["scores"] = flows["query"] or flows["key"]
        flows["residual"] = flows["stream"] or flows["core"] or has("output")
        for name in ("gate", "up"):
            flows[name] = flows["residual"] or has(name)
        flows["product"] = flows["gate"] or flows["up"]
        return flows

    def adapted(self, name: str) -> bool:
        """Стоит ли на этой матрице адаптер."""
        return bool(self.rank) and name in self.targets

    def layers(self, place: str) -> int:
        """В скольких слоях через это место идёт градиент."""
        return self.spec.L - (not self.first[place])

    # --- Строки ---

    def factors(self, op: Op, tensor: Kept, layers: bool = True) -> list[Factor]:
        """Множители байтов тензора; `layers=False` — одного слоя."""
        spec = self.spec
        many: list[Factor] = []
        if layers and inside_layer(op) and not tensor.once:
            count = spec.L if tensor.layers is None else tensor.layers
            same = not hasattr(count, "ndim") and count in (spec.L, spec.L - 1)
            symbol = {spec.L - 1: "(L−1)", spec.L: "L"}[count] if same else "L[с маской]"
            many.append((symbol, count))
        axes: list[Factor] = []
        for axis in tensor.axes:
            if axis == "n" and tensor.name in _REPEATED:
                axes.append(self._repeated_heads(_REPEATED[tensor.name]))
                continue
            axes.append(self.tokens[1] if axis == "s" else axis_factors(axis, spec)[0])
        if tensor.rank:
            axes.append(("r", self.rank))
        size: Factor = (f"байт[{tensor.dtype}]", self.sizes[tensor.dtype])
        return [*many, *(() if tensor.once else self.tokens), *axes, size]

    def viewed(self, name: str) -> Any:
        """Остались ли размноженные ключи или значения видом на исходный тензор; у массива B — для каждой точки.

        Одну голову expand и reshape размножают без копии. Копию делают приведение к точности autocast и укладка
        для наивного внимания, если пакет больше единицы.
        """
        cast = self.cast and (name == "key" or self.inner == "stream")
        if self.spec.K > 1 or self.spec.N == 1 or cast:
            return False
        return True if self.attention == "fused" else self.tokens[0][1] == 1

    def _repeated_heads(self, name: str) -> Factor:
        """Сколько голов лежит в памяти у размноженных ключей или значений."""
        viewed = self.viewed(name)
        if not hasattr(viewed, "ndim"):
            return axis_factors("k" if viewed else "n", self.spec)[0]
        return "N, при B = 1 — K", self.spec.N - (self.spec.N - self.spec.K) * viewed

    def line(self, op: Op, tensor: Kept) -> Line:
        """Строка памяти тензора."""
        component = {"head": "activations", "loss": "logits", "": "logits"}.get(tensor.group, "activations")
        if op.name != "lm_head":
            component = "activations"
        return Line(tensor.name, component, f"{op.title}: {tensor.title}", self.factors(op, tensor))

    def one(self, op: Op, tensor: Kept) -> int:
        """Байты этого тензора в одном слое."""
        return Line("", "", "", self.factors(op, tensor, layers=False)).value


# --- Столбец таблицы ----------------------------------------------------------------------------


def column(step: LibraryStep) -> Iterator[tuple[Op, Kept]]:
    """Что держит каждая строка таблицы при этой реализации, по порядку вычисления."""
    rows = step.rows
    for op in rows.values():
        for tensor in _KEEPS.get(op.name, _nothing)(step, op):
            if tensor.layers is None or anywhere(tensor.layers != 0):
                yield op, tensor


def _nothing(step: LibraryStep, op: Op) -> Iterator[Kept]:
    """Строка ничего не хранит."""
    return iter(())


def _norm(step: LibraryStep, name: str, axes: str, dtype: str, layers: int | None, group: str) -> Iterator[Kept]:
    """RMSNorm: вход в fp32, обратные отклонения и, если учится вес, их произведение в точности входа."""
    yield Kept(name, axes, "fp32", layers, group)
    yield Kept("rstd", axes[:-1], "fp32", layers, group)
    if step.trained:
        yield Kept("scaled", axes, dtype, layers, group, "scaled" if group == "final" else "")


def _shares_input(step: LibraryStep, names: Iterable[str]) -> bool:
    """Хранится ли общий вход этих матриц как есть: учится сама матрица или адаптер той же точности."""
    if step.cast:
        return False
    return step.trained or (not step.lowered and any(map(step.adapted, names)))


def _own_input(
    step: LibraryStep, name: str, axes: str, layers: int | None, group: str, wide: bool, part: str = ""
) -> Iterator[Kept]:
    """Что матрица хранит сама: копию входа, приведённую к её точности, и вход матрицы B адаптера.

    `wide` — вход лежит в точности потока, и autocast приводит его для каждой матрицы отдельно.
    """
    if step.adapted(name):
        if step.lowered:
            yield Kept("input_copy", axes, "adapter", layers, group, part)
        yield Kept("low_rank", "", "adapter", layers, group, part, rank=True)
    elif step.trained and step.cast and wide:
        yield Kept("input_copy", axes, "compute", layers, group, part)


_ATTENTION_INPUTS, _FFN_INPUTS = ("query", "key", "value"), ("gate", "up")


def _attention_norm(step: LibraryStep, op: Op) -> Iterator[Kept]:
    yield from _norm(step, "block_input", "d", "stream", step.layers("stream"), "attention")
    if _shares_input(step, _ATTENTION_INPUTS):
        yield Kept("normed", "d", "compute", None, "attention")


def _projection(step: LibraryStep, op: Op) -> Iterator[Kept]:
    yield from _own_input(step, op.name, "d", None, "attention", True)


def _head_norm(step: LibraryStep, op: Op) -> Iterator[Kept]:
    name = op.name.removesuffix("_norm")
    axes = {"query": "nh", "key": "kh"}[name]
    yield from _norm(step, f"{name}_wide", axes, "compute", step.layers(name), "attention")


def _scores(step: LibraryStep, op: Op) -> Iterator[Kept]:
    if anywhere(step.layers("scores") != 0):
        for name in ("rope_cos", "rope_sin"):
            yield Kept(name, "sh", "stream", None, once=True)
    if step.attention == "naive":
        yield from _naive(step)
        return
    # Слитое ядро хранит всё, что получило, если градиент нужен хоть чему-то одному.
    layers = step.layers("core")
    masked = step.masked if step.first["core"] else step.masked - (step.masked == step.spec.L)
    yield Kept("query_rotated", "nh", "compute", layers, "attention")
    yield Kept("key_rotated", "kh", "compute", layers - masked, "attention")
    yield Kept("value", "kh", "compute", layers - masked, "attention")
    yield Kept("key_expanded", "nh", "compute", masked, "attention")
    yield Kept("value_expanded", "nh", "compute", masked, "attention")
    yield Kept("bias", "s", "compute", masked, "attention")


def _naive(step: LibraryStep) -> Iterator[Kept]:
    """Произведения по отдельности: каждое хранит тот множитель, что нужен градиенту другого."""
    yield Kept("query_rotated", "nh", "compute", step.layers("key"), "attention")
    yield Kept("key_expanded", "nh", "compute", step.layers("query"), "attention")
    # В fp32 это один тензор с тем, что множится на значения.
    place = "scores" if step.lowered else "core"
    yield Kept("probabilities_fp32", "ns", "fp32", step.layers(place), "attention")
    yield Kept("value_expanded", "nh", "compute", step.layers("scores"), "attention", "value")
    if step.lowered:
        yield Kept("probabilities", "ns", "compute", step.layers("value"), "attention", "lowered")


def _mix(step: LibraryStep, op: Op) -> Iterator[Kept]:
    if step.attention == "fused":
        layers = None if _shares_input(step, ("output",)) else step.layers("core")
        yield Kept("context", "nh", "compute", layers, "attention")
        yield Kept("logsumexp", "n", "fp32", step.layers("core"), "attention")
    elif step.trained or _shares_input(step, ("output",)):
        yield Kept("context", "nh", "compute", None, "attention", "context")


def _output(step: LibraryStep, op: Op) -> Iterator[Kept]:
    yield from _own_input(step, "output", "nh", None, "attention", False, "context")


def _ffn_norm(step: LibraryStep, op: Op) -> Iterator[Kept]:
    yield from _norm(step, "residual", "d", "stream", step.layers("residual"), "ffn")
    if _shares_input(step, _FFN_INPUTS):
        yield Kept("normed", "d", "compute", None, "ffn")


def _gate(step: LibraryStep, op: Op) -> Iterator[Kept]:
    yield from _own_input(step, "gate", "d", None, "ffn", True)
    yield Kept("gate", "f", step.inner, step.layers("gate"), "ffn")


def _up(step: LibraryStep, op: Op) -> Iterator[Kept]:
    yield from _own_input(step, "up", "d", None, "ffn", True)
    yield Kept("up", "f", step.inner, step.layers("gate"), "ffn")


def _down(step: LibraryStep, op: Op) -> Iterator[Kept]:
    yield Kept("activated", "f", step.inner, step.layers("up"), "ffn")
    if step.trained or _shares_input(step, ("down",)):
        yield Kept("product", "f", "compute", None, "ffn", "product")
    yield from _own_input(step, "down", "f", None, "ffn", False, "product")


def _last_norm(step: LibraryStep, op: Op) -> Iterator[Kept]:
    yield from _norm(step, "final_input", "d", "stream", None, "final")
    if _shares_input(step, ()):
        yield Kept("normed", "d", "compute", None, "head")


def _lm_head(step: LibraryStep, op: Op) -> Iterator[Kept]:
    if step.trained and step.cast:
        yield Kept("input_copy", "d", "compute", None, "head")
    yield Kept("logits", "v", "compute", None, saved=False)
    yield Kept("log_probabilities", "v", "fp32", None, "loss")
    yield Kept("loss_weight", "", "fp32", None, once=True)


_KEEPS = {
    "attention_norm": _attention_norm, "query": _projection, "key": _projection, "value": _projection,
    "query_norm": _head_norm, "key_norm": _head_norm, "scores": _scores, "mix": _mix, "output": _output,
    "ffn_norm": _ffn_norm, "gate": _gate, "up": _up, "down": _down, "norm": _last_norm, "lm_head": _lm_head,
}  # fmt: skip


# --- Счета --------------------------------------------------------------------------------------


def check(spec: Spec, implementation: str) -> None:
    """Отказать геометрии, которой столбец не описывает.

    Ошибки: `ValueError` с полем, значением и правилом.
    """
    plain = {
        "experts": 0, "kv_rank": 0, "sinks": False, "gated_ffn": True, "norm_bias": False, "learned_positions": 0,
        "pre_norms": 2, "post_norms": False, "qk_norm_wide": False,
    }  # fmt: skip
    for name, value in plain.items():
        if getattr(spec, name) != value:
            raise ValueError(
                f"{name} = {shown(getattr(spec, name))}: память {implementation} описана для блока Llama, Mistral, "
                f"Qwen2 и Qwen3, где {name} = {value}"
            )


#: Семейства, с моделями которых столбец сверен до байта.
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


def check_family(family: str, implementation: str) -> None:
    """Отказать семейству, чей блок при тех же размерах устроен иначе.

    Ошибки: `ValueError` с названием семейства.
    """
    if family not in FAMILIES:
        raise ValueError(
            f"implementation = {implementation!r}: память {implementation} описана для {', '.join(FAMILIES)}, "
            f"а это {shown(family)}"
        )


def _targets(targets: Iterable[str], rank: int) -> tuple[str, ...]:
    allowed = (*_ATTENTION_INPUTS, "output", *_FFN_INPUTS, "down")
    found = tuple(dict.fromkeys([targets] if isinstance(targets, str) else targets))
    for name in found:
        _choice("lora_targets", name, allowed)
    if rank and not found:
        raise ValueError(f"lora_targets: список пуст; нужно хотя бы одно из: {', '.join(allowed)}")
    return found


def _base(weights: str | Quantization | None, rank: int, spec: Spec) -> Quantization | None:
    """Квантование замороженной основы."""
    found = _compression(weights, spec)
    if found is None:
        return None
    if not rank:
        raise ValueError(
            f"weights = {found.name}: учить квантованные веса нельзя, только адаптеры над ними: задайте lora_rank"
        )
    _choice("weights", found.name, QLORA)
    return found


def training(
    spec: Spec,
    B: int,
    S: int,
    recipe: str,
    optimizer: str,
    attention: str,
    checkpointing: str,
    implementation: str,
    rank: int = 0,
    targets: Iterable[str] = LORA_TARGETS,
    weights: str | Quantization | None = None,
) -> TrainingMemory:
    """Память шага обучения: то же, что `budget.training_memory`, для transformers и peft."""
    step = _training_step(spec, B, S, recipe, attention, checkpointing, implementation, rank, targets, weights)
    kept = _kept(step)
    lines = [*_states(step, optimizer), *_input(step), *(step.line(op, tensor) for op, tensor in kept)]
    copies = list(_copies(step))
    lines += [line for line, _ in copies]
    lines += _arguments(step)
    return _finish(step, optimizer, lines, kept, copies, f"Память обучения, {recipe}, {implementation}")


def _training_step(
    spec: Spec,
    B: int,
    S: int,
    recipe: str,
    attention: str,
    checkpointing: str,
    implementation: str,
    rank: int,
    targets: Iterable[str],
    weights: str | Quantization | None,
) -> LibraryStep:
    check(spec, implementation)
    rank = whole("lora_rank", rank, minimum=0)
    if checkpointing == "selective":
        raise ValueError("checkpointing = 'selective': transformers пересчитывает слой целиком, нужно none или full")
    tokens: tuple[Factor, ...] = (("B", B), ("S", S))
    found = _targets(targets, rank)
    base = _base(weights, rank, spec)
    masked = VERSIONS[implementation]
    return LibraryStep(spec, tokens, RECIPES[recipe], attention, checkpointing, masked, rank, found, base)


def saved(
    spec: Spec,
    B: int,
    S: int,
    recipe: str,
    attention: str,
    checkpointing: str,
    implementation: str,
    rank: int = 0,
    targets: Iterable[str] = LORA_TARGETS,
    weights: str | Quantization | None = None,
) -> dict[str, int]:
    """Что autograd держит до обратного прохода: компонент → байты."""
    step = _training_step(spec, B, S, recipe, attention, checkpointing, implementation, rank, targets, weights)
    found = dict.fromkeys(("input", "activations", "logits", "copies"), 0)
    for op, tensor in _kept(step):
        if tensor.saved and not (tensor.once and inside_layer(op) and checkpointing == "full"):
            line = step.line(op, tensor)
            found[line.component] = found[line.component] + line.value
    for line, _ in _copies(step):
        found["copies"] += line.value
    # Номера токенов хранит эмбеддинг, если он учится, сдвинутые ответы — функция потерь.
    shifted = multiply((*_shifted(step), ("байт", 8)))
    found["input"] = multiply((*step.tokens, ("байт", 8 * step.trained))) + shifted  # type: ignore[assignment]
    return found


def _kept(step: LibraryStep) -> list[tuple[Op, Kept]]:
    """Тензоры, которые живут до обратного прохода: при чекпоинтинге от слоёв остаются входы."""
    pairs = list(column(step))
    if step.checkpointing != "full":
        return pairs
    entry = (step.rows["attention_norm"], Kept("entry", "d", "stream", None))
    return [entry, *((op, tensor) for op, tensor in pairs if not inside_layer(op) or tensor.once)]


def _finish(
    step: LibraryStep,
    optimizer: str,
    lines: list[Line],
    kept: list[tuple[Op, Kept]],
    copies: list[tuple[Line, str]],
    title: str,
) -> TrainingMemory:
    """Постоянные буферы, моменты и пик."""
    from nanolm.transformers_peak import GROUPS, group_bytes, moments

    lines += [Line("cublas", "workspace", "рабочая память cuBLAS", (("байт", CUBLAS),)), _blocks(step, lines, kept)]
    everything = Account("", "байт", COMPONENTS["training"], lines)
    sizes = group_bytes(step, column(step), _copy_groups(step))
    sizes |= {"activations": everything["activations"], "copies": sum(line.value for line, _ in copies)}
    trainable = sum(int(multiply(factors)) for _, _, factors in _adapters(step)) if step.rank else _parameters(step)
    found = moments(step, sizes, trainable, optimizer)
    return at_peak(title, lines, found, sizes, GROUPS)


def _parameters(step: LibraryStep) -> int:
    return sum(int(multiply(weight_factors(op, step.spec))) for op in step.rows.values() if op.weight and not op.shared)


def _states(step: LibraryStep, optimizer: str) -> Iterator[Line]:
    """Веса, градиенты и состояния: у LoRA — основа как есть, остальное только у адаптеров."""
    if step.trained:
        yield from _state_lines(step.spec, step.recipe, optimizer)
        return
    yield from _weight_lines(step.spec, "weights", ("байт", step.recipe.weights), weights=step.weights)
    for component in ("weights", "gradients"):
        for name, title, factors in _adapters(step):
            yield Line(name, component, title, (*factors, ("байт[fp32]", 4)))
    count, compressed = OPTIMIZERS[optimizer]
    for name, title, factors in _adapters(step) if count else ():
        tensor = int(multiply(factors[-2:]))
        small = not compressed or tensor < SMALLEST_8BIT
        moments: Factor = (str(count), count)
        yield Line(name, "optimizer", title, (moments, *factors, ("байт", 4 if small else 1)))
        if not small:
            letters = "·".join(symbol for symbol, _ in factors[-2:])
            blocks: Factor = (f"⌈{letters}/{BLOCK_8BIT}⌉", -(-tensor // BLOCK_8BIT))
            scales = (moments, factors[0], blocks, ("байт", 4))
            yield Line(f"{name}_scales", "optimizer", f"{title}: масштабы блоков", scales)


def _adapters(step: LibraryStep) -> Iterator[tuple[str, str, tuple[Factor, ...]]]:
    """Тензоры адаптеров: имя, название и множители; у каждого два последних — оси матрицы."""
    rank: Factor = ("r", step.rank)
    for op in step.rows.values():
        if step.adapted(op.name):
            outputs, _, inputs = op.weight.partition(",")
            wide, narrow = (_joined(axis_factors(axes, step.spec)) for axes in (outputs, inputs))
            layers = layer_factor(op, step.spec)
            yield f"{op.name}_A", f"{op.title}: адаптер A", (*layers, rank, narrow)
            yield f"{op.name}_B", f"{op.title}: адаптер B", (*layers, wide, rank)


def _joined(factors: list[Factor]) -> Factor:
    """Несколько осей одним множителем: число голов на размер головы."""
    if len(factors) == 1:
        return factors[0]
    return f"({'×'.join(symbol for symbol, _ in factors)})", multiply(factors)


def _input(step: LibraryStep) -> Iterator[Line]:
    """Номера токенов и ответов и ответы, сдвинутые на один: int64."""
    for name, title in (
        ("tokens", "номера токенов"), ("targets", "номера ответов"), ("shifted", "ответы, сдвинутые на токен"),
    ):  # fmt: skip
        tokens = _shifted(step) if name == "shifted" else step.tokens
        yield Line(name, "input", title, (*tokens, ("байт[int64]", 8)))


def _shifted(step: LibraryStep) -> tuple[Factor, ...]:
    """Оси сдвинутых ответов: при B = 1 они — вид на ответы, дополненные до S + 1, и копии нет."""
    batch, (symbol, context) = step.tokens
    alone = 1 * (batch[1] == 1)
    return batch, ("(S+1)" if anywhere(alone != 0) else symbol, context + alone)


#: Матрица → место, через которое в первом слое идёт градиент её входа.
_SOURCES = {
    "query": "stream", "key": "stream", "value": "stream", "output": "core",
    "gate": "residual", "up": "residual", "down": "product",
}  # fmt: skip


def _copies(step: LibraryStep) -> Iterator[tuple[Line, str]]:
    """Копии матриц, которые под autocast держит граф: строка и имя матрицы.

    Замороженной матрице копия нужна, если градиент идёт через её вход; учимой — всегда.
    """
    if not step.cast:
        return
    size: Factor = ("байт", step.sizes["compute"])
    for op in step.rows.values():
        inside = inside_layer(op)
        if not (op.product and op.weight) or (step.checkpointing == "full" and inside):
            continue
        layers = step.layers(_SOURCES[op.name]) if inside else 1
        many: list[Factor] = [("L" if layers == step.spec.L else "(L−1)", layers)] if inside else []
        title = f"{op.title}: копия для autocast"
        if layers and (step.weights is None or not step.weights.layers(op)):
            factors = (*many, *axis_factors(op.weight, step.spec), size)
            yield Line(f"{op.name}_copy", "workspace", title, factors), op.name
        if step.adapted(op.name):
            yield from _adapter_copies(step, op, many)


def _adapter_copies(step: LibraryStep, op: Op, many: list[Factor]) -> Iterator[tuple[Line, str]]:
    outputs, _, inputs = op.weight.partition(",")
    size: Factor = ("байт", step.sizes["compute"])
    for name, layers, axes in (("A", many, inputs), ("B", layer_factor(op, step.spec), outputs)):
        if not multiply(layers):
            continue
        factors = (*layers, ("r", step.rank), *axis_factors(axes, step.spec), size)
        yield (
            Line(f"{op.name}_{name}_copy", "workspace", f"{op.title}: адаптер {name}: копия для autocast", factors),
            op.name,
        )


def _copy_groups(step: LibraryStep) -> dict[str, int]:
    """Байты копий: головы, матрицы сжатия одного слоя, половин слоя."""
    sizes = dict.fromkeys(("head_copies", "down_copies", "ffn_copies", "attention_copies"), 0)
    whole_step = LibraryStep(
        step.spec, step.tokens, step.recipe, step.attention, "none", False, step.rank, step.targets, step.weights
    )
    for line, name in _copies(whole_step):
        op = step.rows[name]
        one = int(multiply(line.factors[1:] if inside_layer(op) else line.factors))
        if name == "lm_head":
            sizes["head_copies"] += one
            continue
        sizes[f"{op.component}_copies"] += one
        if name == "down":
            sizes["down_copies"] += one
    return sizes


def _arguments(step: LibraryStep) -> list[Line]:
    """Маска, которую чекпоинт держит как аргумент слоя; таблицы поворота — среди активаций."""
    from nanolm.transformers_peak import mask

    if step.checkpointing != "full":
        return []
    return [Line(name, "workspace", title, factors) for name, title, factors in mask(step)]


def _blocks(step: LibraryStep, lines: list[Line], kept: list[tuple[Op, Kept]]) -> Line:
    """Сколько распределитель отдаёт сверх попрошенного: куски по 512 байт и неделимые остатки больших."""
    waste = 0
    for op, tensor in kept:
        one = step.one(op, tensor)
        layers = 1 if tensor.once or not inside_layer(op) else step.spec.L if tensor.layers is None else tensor.layers
        waste = waste + layers * (block_bytes(one) - one)
    for line in lines:
        if line.component in ("weights", "master_weights", "gradients", "optimizer") and step.weights is None:
            one = int(multiply(factor for factor in line.factors if factor[0] not in ("L", "2")))
            waste = waste + line.value // one * (block_bytes(one) - one)
    return Line("blocks", "workspace", "округление кусков распределителем", (("байт", waste),))


def block_bytes(size: int) -> int:
    """Сколько занимает тензор у распределителя CUDA: кратно 512, а у больших — вместе с неделимым остатком."""
    size = -(-size // 512) * 512
    rest = -(-size // ROUND) * ROUND - size
    return size + rest * ((size >= LARGE) & (rest <= WHOLE_REST))


# --- Вывод --------------------------------------------------------------------------------------


def inference(
    spec: Spec,
    B: int,
    S: int,
    dtype: str,
    kv_dtype: str | None,
    kv: str,
    attention: str,
    implementation: str,
    weights: str | Quantization | None = None,
) -> InferenceMemory:
    """Память вывода: веса, кеш и пик заполнения контекста одним проходом с логитами каждой позиции.

    Ошибки: `ValueError` с именем аргумента, если такого вывода столбец не описывает.
    """
    from nanolm.transformers_peak import prefill

    check(spec, implementation)
    _choice("dtype", dtype, PLAIN)
    if kv_dtype not in (None, dtype):
        raise ValueError(f"kv_dtype = {kv_dtype!r}: кеш transformers лежит в точности модели, здесь {dtype}")
    base = _compression(weights, spec)
    if base is not None:
        _choice("weights", base.name, QLORA)
    size = _dtype_factor(dtype)
    recipe = Recipe("", weights=size[1], gradients=0, master=0, state=0, compute=size[1], stream=size[1])  # type: ignore[arg-type]
    step = LibraryStep(spec, (("B", B), ("S", S)), recipe, attention, "none", weights=base)
    cache = kv_cache_bytes(spec, B, S, dtype, kv)
    lines = [
        *_weight_lines(spec, "weights", size, weights=base),
        *(Line(line.name, "kv_cache", line.title, line.factors) for line in cache.details),
    ]
    buffers = _heaviest(prefill(step))
    slices = kv_cache_bytes(spec, B, S, dtype, "engine").total - cache.total
    if anywhere(slices != 0):
        buffers.append(Line("cache_slices", "buffers", "срез окна держит весь тензор кеша", (("байт", slices),)))
    buffers.append(Line("cublas", "buffers", "рабочая память cuBLAS", (("байт", CUBLAS),)))
    buffers.append(_inference_blocks(step, lines, buffers))
    return InferenceMemory(f"Память вывода, {dtype}, {implementation}", lines, buffers)


#: В чём transformers считает без квантования.
PLAIN = ("fp32", "bf16", "fp16")


def _heaviest(moments: list[list[Born]]) -> list[Line]:
    """Строки самого тяжёлого момента; у массивов B и S он в каждой точке свой, поэтому строка одна."""
    lines = [[Line(name, "buffers", f"буфер: {title}", factors) for name, title, factors in born] for born in moments]
    totals = [sum(line.value for line in found) for found in lines]
    if any(hasattr(total, "ndim") for total in totals):
        from nanolm.arrays import largest

        return [Line("peak", "buffers", "буферы пика", (("пик", largest(totals)[0]),))]
    return lines[totals.index(max(totals))]


def _inference_blocks(step: LibraryStep, lines: list[Line], buffers: list[Line]) -> Line:
    """То же округление, что и при обучении: у весов, кеша и буферов."""
    waste = 0
    for line in lines:
        if step.weights is None or line.component == "kv_cache":
            one: Any = multiply(factor for factor in line.factors if not factor[0].startswith("L"))
            waste = waste + line.value // one * (block_bytes(one) - one)
    for line in buffers:
        if line.name not in ("cublas", "cache_slices"):
            waste = waste + block_bytes(line.value) - line.value
    return Line("blocks", "buffers", "округление кусков распределителем", (("байт", waste),))
