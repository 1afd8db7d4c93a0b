"""Моменты шага у transformers: где память достигает пика и что в этот миг живо сверх сохранённого.

Порядок тот же, что в `nanolm.moments`, а временные тензоры другие. Почти всегда пик — обратный проход функции потерь:
сохранено ещё всё, и рядом с логарифмами вероятностей лежат два градиента логитов в fp32. Остальные моменты важны там,
где логитов мало: внимание без слитого ядра на длинном контексте, короткий контекст (градиент матрицы, шаг
оптимизатора), чекпоинтинг.

Ответ модели жив до конца обратного прохода (его держит переменная цикла обучения), и вместе с ним — логиты.
"""

from __future__ import annotations

from nanolm.moments import Maker, Moment
from nanolm.ops import anywhere, axis_factors, inside_layer, multiply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nanolm.moments import Born
    from nanolm.ops import Factor, Op
    from nanolm.transformers_memory import Kept, LibraryStep

#: Что обратный проход отпускает вместе → название.
GROUPS = {
    "logits": "логиты", "loss": "логарифмы вероятностей", "activations": "активации", "copies": "копии матриц",
    "final": "последняя норма", "scaled": "частное последней нормы", "head": "вход головы",
    "attention": "внимание слоя", "ffn": "полносвязный блок слоя", "product": "вход сжатия",
    "context": "выход внимания", "value": "размноженные значения", "lowered": "вероятности в точности вычислений",
    "head_copies": "копия головы", "down_copies": "копия матрицы сжатия",
    "ffn_copies": "копии матриц полносвязного блока", "attention_copies": "копии матриц внимания",
}  # fmt: skip

#: Сколько тензоров fp32 шириной D заводит обратный проход нормы, собранной из мелких операций: градиент входа от
#: произведения и от квадрата, среднее, сама степень и её удвоение.
NORM_BUFFERS = 5

_AFTER_HEAD = ("loss", "head", "head_copies")
_AFTER_NORM = (*_AFTER_HEAD, "final")
_BEFORE_FFN = (*_AFTER_NORM, "ffn", "ffn_copies")


class Forward(Moment):
    """Момент, которого у NanoLM нет: прямой проход функции потерь, пока autocast помнит копии всех матриц."""

    __slots__ = ()

    @property
    def title(self) -> str:
        """Название для таблиц."""
        return "функция потерь"


def group_bytes(step: LibraryStep, pairs: Iterable[tuple[Op, Kept]], copies: dict[str, int]) -> dict[str, int]:
    """Байты групп, которые отпускаются вместе; слой здесь один."""
    sizes = dict.fromkeys((*GROUPS, "entry"), 0) | copies
    for op, tensor in pairs:
        if tensor.once:
            continue
        value = step.one(op, tensor) if tensor.layers is None or not inside_layer(op) else _of_last(step, op, tensor)
        sizes[tensor.group or "logits"] += value
        if tensor.part:
            sizes[tensor.part] += value
        if tensor.name == "block_input":
            sizes["entry"] = value
    return sizes


def _of_last(step: LibraryStep, op: Op, tensor: Kept) -> int:
    """Байты тензора в последнем слое: градиент через него идёт всегда, а маска там есть или нет."""
    size = step.one(op, tensor)
    if step.attention == "naive" or tensor.name not in WITH_MASK:
        return size
    return size * (step.last_masked if WITH_MASK[tensor.name] else 1 - step.last_masked)


#: Тензор слитого ядра → хранит ли его слой с маской или слой без неё.
WITH_MASK = {"key_rotated": False, "value": False, "key_expanded": True, "value_expanded": True, "bias": True}


def moments(step: LibraryStep, sizes: dict[str, int], trainable: int, optimizer: str) -> list[Moment]:
    """Все моменты шага обучения."""
    make = Maker(step.spec, step.tokens, step)
    found = [*_exit(step, make), *_ffn(step, make), *_attention(step, make), *_last(step, make, trainable, optimizer)]
    if step.checkpointing == "full":
        for moment in found:
            moment.born += _recomputed(step, moment, sizes)
    return found


def _stream(step: LibraryStep, make: Maker) -> list[Born]:
    """Градиент потока и, если матрица связана, отложенный градиент головы."""
    found = make.stream()
    return found if step.trained else found[:1]


def _exit(step: LibraryStep, make: Maker) -> Iterator[Moment]:
    """Потери прямым проходом и обратным, голова, последняя норма."""
    wide = make.tensor("logits_fp32", "логиты, приведённые к fp32", "v", "fp32")
    yield Forward("forward", [wide] if step.lowered else [])
    yield Moment("loss", [make.tensor("logit_gradients", "градиенты логарифмов и логитов в fp32", "v", "fp32", 2)])
    back = make.tensor("normed_gradient", "градиент входа головы", "d", "compute")
    matrix = [make.gradient("lm_head", "градиент матрицы головы", "compute")] if step.trained else []
    yield Moment("head", [make.tensor("logit_gradient", "градиент логитов", "v", "compute"), back, *matrix], ("loss",))
    if step.cast and step.trained:
        yield Moment("head_cast", [back, *matrix, make.gradient("lm_head", "он же в fp32", "fp32")], _AFTER_HEAD)
    inner = make.tensor("norm_buffers", "промежуточные нормы", "d", "fp32", NORM_BUFFERS)
    yield Moment("norm", [*_stream(step, make)[1:], inner], (*_AFTER_HEAD, "scaled"))


def _ffn(step: LibraryStep, make: Maker) -> Iterator[Moment]:
    """Полносвязный блок последнего слоя."""
    born = [*_stream(step, make), *_unpacked(step)]
    inside = make.tensor("ffn_gradients", "градиенты внутри блока", "f", step.inner, 3)
    yield Moment("ffn", [*born, inside], (*_AFTER_NORM, "product", "down_copies"), True)
    if not step.trained:
        return
    one = make.tensor("product_gradient", "градиент входа сжатия", "f", "compute")
    born += [one, make.gradient("down", "градиент матрицы сжатия", "compute")]
    if not step.cast:
        yield Moment("down", born, _AFTER_NORM, True)
        return
    lowered = make.tensor("lowered_gradient", "градиент потока в точности вычислений", "d", "compute")
    yield Moment("down", [*born, lowered], _AFTER_NORM, True)
    wide = make.gradient("down", "он же в fp32", "fp32")
    yield Moment("down_cast", [*born, wide], (*_AFTER_NORM, "product", "down_copies"), True)


def _unpacked(step: LibraryStep) -> list[Born]:
    """QLoRA: самая большая матрица слоя, распакованная на одно произведение."""
    if step.weights is None:
        return []
    sizes = {op.name: axis_factors(op.weight, step.spec) for op in step.rows.values() if step.weights.layers(op)}
    widest = max(sizes.values(), key=multiply)
    return [("unpacked", "распакованная матрица", (*widest, ("байт[compute]", step.sizes["compute"])))]


def _attention(step: LibraryStep, make: Maker) -> Iterator[Moment]:
    """Ядро внимания последнего слоя."""
    stream = _stream(step, make)
    if step.attention == "fused":
        keys = "nh" if anywhere(step.last_masked) else "kh"
        yield Moment("attention", [
            *stream,
            make.tensor("context_gradient", "градиент выхода внимания", "nh", "compute"),
            make.tensor("query_gradient", "градиент запроса", "nh", "compute"),
            make.tensor("key_value_gradients", "градиенты ключа и значения", keys, "compute", 2),
        ], _BEFORE_FFN, True)  # fmt: skip
        return
    value = make.tensor("value_gradient", "градиент размноженных значений", "nh", "compute")
    square = make.tensor("probability_gradients", "градиенты вероятностей и оценок в fp32", "ns", "fp32", 2)
    yield Moment("attention", [*stream, value, square], (*_BEFORE_FFN, "value", "lowered", "context"), True)
    scores = [*_softmax(step, make), *mask(step)]
    done = ("loss", "final", "head", "head_copies", "ffn", "ffn_copies", "lowered", "context")
    if step.checkpointing == "full":
        yield Moment("softmax", [*stream, *scores], done, True)
    else:
        yield Moment("softmax", [*_inputs(step, make), *scores], (*done, "logits"))


def _softmax(step: LibraryStep, make: Maker) -> Iterator[Born]:
    """Softmax без слитого ядра: оценки с маской, они же в fp32, и множители до укладки подряд."""
    kind = "stream" if step.cast else "compute"
    yield make.tensor("scores", "оценки с маской", "ns", kind)
    if step.lowered and not step.cast:
        yield make.tensor("scores_fp32", "оценки, приведённые к fp32", "ns", "fp32")
    yield make.tensor("query_before", "запрос до укладки", "nh", kind)
    yield _unless_viewed(step, "key", make.tensor("key_before", "ключ до размножения", "kh", kind))
    yield _unless_viewed(step, "value", make.tensor("value_before", "значение до размножения", "kh", "compute"))
    if step.cast:
        yield make.tensor("key_wide", "размноженный ключ до приведения", "nh", "fp32")


def _unless_viewed(step: LibraryStep, which: str, born: Born) -> Born:
    """Тензор, которого нет, если размноженный — вид на него: он уже посчитан среди сохранённых."""
    viewed = step.viewed(which)
    if not anywhere(viewed):
        return born
    name, title, factors = born
    return name, title, (("есть копия", 1 - 1 * viewed), *factors)


def _inputs(step: LibraryStep, make: Maker) -> Iterator[Born]:
    """Переменные прямого прохода, которых autograd не хранит: эмбеддинги, вход слоя, выход нормы."""
    if step.lowered and not step.cast:
        yield make.tensor("stream_inputs", "эмбеддинги и вход слоя", "d", "stream", 2 if step.spec.L > 1 else 1)
    if step.cast or not step.trained:
        yield make.tensor("normed_input", "выход нормы", "d", "stream")


def mask(step: LibraryStep) -> Iterator[Born]:
    """Маска без слитого ядра — слагаемое в точности потока, с ним — логическая."""
    context = step.tokens[1]
    if step.attention == "naive":
        yield "mask", "маска внимания", (*step.tokens, context, ("байт[stream]", step.sizes["stream"]))
    elif anywhere(step.masked != 0):
        yield _if_masked(step, ("mask", "логическая маска внимания", (context, context, ("байт", 1))))


def _if_masked(step: LibraryStep, born: Born) -> Born:
    """Тензор, который есть только с маской: у массива B и S она стоит не в каждой точке."""
    if not hasattr(step.masked, "ndim"):
        return born
    name, title, factors = born
    return name, title, (("есть маска", 1 * (step.masked != 0)), *factors)


def _last(step: LibraryStep, make: Maker, trainable: int, optimizer: str) -> Iterator[Moment]:
    """Градиент эмбеддинга и шаг оптимизатора."""
    if step.trained:
        born = [*make.stream(), make.gradient("embedding", "градиент эмбеддинга", "gradients")]
        if step.spec.tie_embeddings:
            born[0] = make.gradient("embedding", "сумма градиентов связанной матрицы", "gradients")
        yield Moment("embedding", born, ("loss", "activations", "copies"))
    done = ("logits", "loss", "activations", "copies")
    if step.master:
        widest = max((op for op in step.rows.values() if op.weight), key=lambda op: _size(step, op))
        yield Moment("optimizer", [make.gradient(widest.name, "градиент самой большой матрицы в fp32", "fp32")], done)
        return
    size = step.recipe.state if step.trained else 4
    ratio: Factor = ("обучаемые параметры", trainable)
    foreach: list[Born] = [("foreach", "AdamW foreach: корни вторых моментов", (ratio, ("байт", size)))]
    yield Moment("optimizer", foreach if optimizer == "adamw" else [], done)


def _size(step: LibraryStep, op: Op) -> int | float:
    return multiply(axis_factors(op.weight, step.spec))


def _recomputed(step: LibraryStep, moment: Moment, sizes: dict[str, int]) -> Iterator[Born]:
    """Что добавляет чекпоинтинг: пересчитанный слой и копии его матриц, а до конца прямого прохода — всех."""
    copies = sizes["attention_copies"] + sizes["ffn_copies"]
    if moment.layer:
        again = sizes["attention"] + sizes["ffn"]
        if step.sizes["stream"] == 4:
            again = again - sizes["entry"]  # вход слоя уже в fp32: копии норма не делает
        yield "recomputed", "пересчитанный слой", (("слой", again),)
        if copies:
            yield "layer_copies", "копии матриц слоя", (("копии слоя", copies),)
    elif moment.name == "forward" and copies and step.trained:
        yield "layer_copies", "копии матриц слоёв", (("L", step.spec.L), ("копии слоя", copies))


# --- Вывод --------------------------------------------------------------------------------------


def prefill(step: LibraryStep) -> list[list[Born]]:
    """Моменты заполнения контекста; во всех кеш уже полон.

    Кроме потока живы эмбеддинги (переменная модели) и вход слоя (переменная её цикла): прямой проход без градиентов
    держит не меньше имён, чем обычный.
    """
    make = Maker(step.spec, step.tokens, step)
    inputs = 2 if step.spec.L > 1 else 1
    logits = [
        make.tensor("logits", "логиты каждой позиции", "v", "compute"),
        make.tensor("last_hidden", "выход последней нормы", "d", "compute"),
    ]
    stream = make.tensor("inputs", "эмбеддинги и вход слоя", "d", "compute", inputs)
    residual = make.tensor("residual", "поток между половинами", "d", "compute")
    normed = make.tensor("normed", "выход нормы", "d", "compute")
    inner = [make.tensor("norm_buffers", "вход и частное нормы в fp32", "d", "fp32", 2 if step.lowered else 1)]
    ffn = [make.tensor("ffn", "ворота после активации, расширение, их произведение", "f", "compute", 3)]
    turned = [make.tensor("rotation", "запрос, его поворот и слагаемые поворота", "nh", "compute", 4)]
    down = [make.tensor("product", "вход сжатия", "f", "compute"), make.tensor("down", "его выход", "d", "compute")]
    held = list(_held(step, make))
    found = [
        logits,
        [stream, residual, normed, *held, *ffn],
        [stream, residual, normed, *held, *down],
        [stream, residual, *held, *inner],
        # Ключа и значения последнего слоя в кеше ещё нет, зато они лежат рядом: байты те же.
        [stream, normed, *_rope(step), *mask(step), *turned],
        [stream, normed, *_rope(step), *_prefill_attention(step, make)],
    ]
    return [[*moment, *_unpacked(step)] if moment is not logits else moment for moment in found]


def _held(step: LibraryStep, make: Maker) -> Iterator[Born]:
    """Что слой держит, считая полносвязный блок: таблицы поворота, маску и вероятности, которые вернуло внимание."""
    yield from _rope(step)
    yield from mask(step)
    if step.attention == "naive":
        yield make.tensor("returned", "возвращённые вероятности", "ns", "compute")


def _prefill_attention(step: LibraryStep, make: Maker) -> Iterator[Born]:
    """Ядро внимания: слитое с маской размножает ключи, наивное ещё и заводит матрицы S×S."""
    masked = anywhere(step.masked != 0)
    yield make.tensor("query", "повёрнутый запрос", "nh", "compute")
    yield from mask(step)
    expanded = make.tensor("expanded", "размноженные ключи и значения", "nh", "compute", 2)
    if step.spec.N == step.spec.K:
        expanded = make.tensor("expanded", "ключи и значения", "nh", "compute", 0)
    expanded = _unless_viewed(step, "value", expanded)
    if step.attention == "fused":
        yield make.tensor("context", "выход внимания", "nh", "compute")
        if masked:
            yield _if_masked(step, expanded)
            yield _if_masked(step, make.tensor("bias", "маска, приведённая к слагаемому", "s", "compute"))
        return
    yield expanded
    yield make.tensor("scores", "оценки с маской", "ns", "compute")
    if step.lowered:
        yield make.tensor("scores_fp32", "оценки, приведённые к fp32", "ns", "fp32")
    yield make.tensor("probabilities", "вероятности в fp32", "ns", "fp32")


def _rope(step: LibraryStep) -> list[Born]:
    """Таблицы поворота: одни на модель и без пакета."""
    factors = (("2", 2), step.tokens[1], ("H", step.spec.H), ("байт[compute]", step.sizes["compute"]))
    return [("rope", "косинусы и синусы поворота", factors)]
