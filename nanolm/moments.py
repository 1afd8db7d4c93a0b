"""Моменты шага обучения: где память достигает пика и что в этот миг живо.

Шаг — это волна. Прямой проход копит тензоры для обратного, обратный их отпускает, но сам заводит
временные: градиенты по промежуточным тензорам и по весам. Пик — в одном из немногих мест:

    softmax    прямой проход последнего слоя: наивное внимание держит три матрицы S×S на голову
    loss       логиты в fp32, а затем их градиент рядом с логарифмами вероятностей
    head       градиенты входа и матрицы головы
    norm       обратный проход последней нормы: она считает в fp32
    ffn        полносвязный блок последнего слоя: три тензора шириной F
    down       там же: градиент матрицы сжатия, пока он не прибавлен к накопленному
    attention  ядро внимания последнего слоя
    embedding  градиент таблицы эмбеддингов
    optimizer  шаг оптимизатора

Обратный проход начинает с последнего слоя, и в это время хранится ещё всё от остальных: поэтому
из слоёв важен только он. Момент описан двумя списками: что появилось сверх весов, градиентов, состояний и
сохранённых активаций (`born`) и что из сохранённого уже отпущено (`freed`).

Градиенты параметров живут весь шаг, как при накоплении, поэтому новый градиент матрицы сначала
занимает своё место, а потом прибавляется.
"""

from __future__ import annotations

from nanolm.ops import anywhere, axis_factors, inside_layer, multiply, table, weight_factors, window_groups

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from nanolm.budget import Policy
    from nanolm.ops import Factor, Op, Tensor
    from nanolm.spec import Spec

    #: Строка: имя, название, множители.
    Born = tuple[str, str, tuple[Factor, ...]]

#: Момент → название для таблиц.
TITLES = {
    "softmax": "softmax последнего слоя",
    "loss": "градиент функции потерь",
    "head": "градиент головы",
    "head_cast": "градиент головы в fp32",
    "norm": "градиент последней нормы",
    "combine": "градиент суммы экспертов",
    "ffn": "градиент полносвязного блока",
    "down": "градиент матрицы сжатия",
    "down_cast": "градиент матрицы сжатия в fp32",
    "attention": "градиент внимания",
    "embedding": "градиент эмбеддинга",
    "optimizer": "шаг оптимизатора",
}

#: Группа сохранённых тензоров, которую обратный проход отпускает вместе, → название.
GROUPS = {
    "logits": "логиты", "activations": "активации", "copies": "копии матриц", "final": "последняя норма",
    "normed": "вход головы", "attention": "внимание слоя", "ffn": "полносвязный блок слоя",
    "product": "вход сжатия", "expert_output": "ответы экспертов", "context": "выход внимания",
    "head_copies": "копия головы", "down_copies": "копия матрицы сжатия",
    "ffn_copies": "копии матриц полносвязного блока",
}  # fmt: skip

#: Сколько тензоров fp32 шириной D заводит обратный проход нормы: x·r, градиент·w и их произведение.
NORM_BUFFERS = 3


class Moment:
    """Один момент шага: `born` — что появилось, `freed` — какие группы сохранённого уже отпущены.

    `layer` — идёт обратный проход последнего слоя: при полном чекпоинтинге слой уже пересчитан.
    """

    __slots__ = ("born", "freed", "layer", "name")

    def __init__(self, name: str, born: list[Born], freed: tuple[str, ...] = (), layer: bool = False) -> None:
        self.name, self.born, self.freed, self.layer = name, born, freed, layer

    @property
    def title(self) -> str:
        """Название для таблиц."""
        return TITLES[self.name]


def moments(spec: Spec, tokens: tuple[Factor, ...], policy: Policy) -> list[Moment]:
    """Все моменты шага обучения этой модели."""
    make = Maker(spec, tokens, policy)
    found = [*_exit_moments(make), *_ffn_moments(make), *_attention_moments(make), *_last_moments(make)]
    if policy.checkpointing == "full":
        for moment in found:
            moment.born += _recomputed(make, moment)
    return found


class Maker:
    """Размеры временных тензоров шага."""

    def __init__(self, spec: Spec, tokens: tuple[Factor, ...], policy: Any) -> None:
        self.spec, self.tokens, self.policy = spec, tokens, policy
        self.rows = {op.name: op for op in table(spec)}
        self.axes = {tensor.name: tensor.axes for op in self.rows.values() for tensor in op.keeps}
        self.cast = policy.sizes["stream"] != policy.sizes["compute"]

    def tensor(self, name: str, title: str, axes: str, kind: str, count: int = 1, rows: str = "") -> Born:
        """Тензор [B, S, оси], ось «s» — ключи; `rows` — у смеси: «all» — k строк на токен, «one» — один эксперт."""
        E, k = self.spec.experts, self.spec.experts_per_token
        many: list[Factor] = [(str(count), count)] if count != 1 else []
        tokens = self.tokens
        if rows == "all" and E:
            many.append(("k", k))
        elif rows == "one" and E:
            # Строк целое число: доля k/E не дала бы проверить произведение по напечатанным числам.
            tokens = (("⌈BSk/E⌉", -(-multiply(tokens) * k // E)),)
        sizes = [self.tokens[1] if axis == "s" else axis_factors(axis, self.spec)[0] for axis in axes]
        return name, title, (*many, *tokens, *sizes, (f"байт[{kind}]", self.policy.sizes[kind]))

    def gradient(self, name: str, title: str, kind: str) -> Born:
        """Градиент одной матрицы: вес строки `name`, один слой, один эксперт."""
        axes = axis_factors(self.rows[name].weight, self.spec)
        return f"{name}_{kind}_gradient", title, (*axes, (f"байт[{kind}]", self.policy.sizes[kind]))

    def stream(self) -> list[Born]:
        """Что несёт с собой обратный проход слоёв: градиент потока и отложенный градиент связанной матрицы."""
        found = [self.tensor("stream_gradient", "градиент остаточного потока", "d", "stream")]
        if self.spec.tie_embeddings:
            found.append(self.gradient("lm_head", "градиент головы ждёт градиента эмбеддинга", "gradients"))
        return found


#: Что отпущено после головы и после последней нормы.
_AFTER_HEAD, _AFTER_NORM = ("logits", "normed", "head_copies"), ("logits", "final", "head_copies")


def _exit_moments(make: Maker) -> Iterator[Moment]:
    """Потери, голова, последняя норма: сохранено ещё всё."""
    logits = [make.tensor("logits_fp32", "логиты, затем их градиент в fp32", "v", "fp32")]
    if make.policy.sizes["compute"] != 4:
        logits.append(make.tensor("logits", "они же в точности вычислений", "v", "compute"))
    yield Moment("loss", logits)
    back = make.tensor("normed_gradient", "градиент входа головы", "d", "compute")
    matrix = make.gradient("lm_head", "градиент матрицы головы", "compute")
    yield Moment("head", [make.tensor("logit_gradient", "градиент логитов", "v", "compute"), back, matrix], ("logits",))
    if make.cast:
        yield Moment("head_cast", [back, matrix, make.gradient("lm_head", "он же в fp32", "fp32")], _AFTER_HEAD)
    # LayerNorm считает ядро: если вход и градиент уже в fp32, нужен только выход.
    kernel = make.spec.norm_bias and make.policy.sizes["stream"] == 4
    inner = make.tensor("norm_buffers", "промежуточные нормы", "d", "fp32", 1 if kernel else NORM_BUFFERS)
    entry = make.tensor("norm_gradient", "градиент выхода нормы", "d", "stream")
    yield Moment("norm", [*make.stream()[1:], entry, inner], _AFTER_HEAD)


def _ffn_moments(make: Maker) -> Iterator[Moment]:
    """Полносвязный блок последнего слоя; эксперты смеси идут по одному."""
    born, done = make.stream(), list(_AFTER_NORM)
    if make.spec.experts:
        title = "градиенты ответов экспертов"
        both = make.tensor("expert_gradients", title, "d", "compute", 2, "all")
        yield Moment("combine", [*born, both], (*done,), True)
        born.append(make.tensor("expert_gradient", title, "d", "compute", 1, "all"))
        done.append("expert_output")
    count = 3 if make.spec.gated_ffn else 2
    inside = make.tensor("ffn_gradients", "градиенты внутри блока", "f", "compute", count, "one")
    yield Moment("ffn", [*born, inside], (*done, "product", "down_copies"), True)
    one = make.tensor("product_gradient", "градиент входа сжатия", "f", "compute", 1, "one")
    born += [one, make.gradient("down", "градиент матрицы сжатия", "compute")]
    if make.cast:
        lowered = make.tensor("lowered_gradient", "градиент потока в точности вычислений", "d", "compute")
        yield Moment("down", [*born, lowered], (*done,), True)
        wide = make.gradient("down", "он же в fp32", "fp32")
        yield Moment("down_cast", [*born, wide], (*done, "product", "down_copies"), True)
    else:
        yield Moment("down", born, (*done,), True)


def _attention_moments(make: Maker) -> Iterator[Moment]:
    """Ядро внимания последнего слоя: слитому нужны градиенты q, k и v, наивному — матрицы B·N·S²."""
    if make.policy.attention == "naive":
        yield from _naive_moments(make)
        return
    query, key, context = (make.axes[name] for name in ("query_rotated", "key_rotated", "context"))
    born = [
        *make.stream(),
        make.tensor("context_gradient", "градиент выхода внимания", context, "compute"),
        make.tensor("query_gradient", "градиент запроса", query, "compute"),
        make.tensor("key_value_gradients", "градиенты ключа и значения", key, "compute", 2),
    ]
    if make.policy.checkpointing == "selective":
        born.append(make.tensor("context_again", "пересчитанный выход", context, "compute"))
    yield Moment("attention", born, _BEFORE_FFN, True)


#: Чего ещё или уже нет, когда последний слой занят вниманием: его полносвязного блока и всего, что после.
_BEFORE_FFN = (*_AFTER_NORM, "ffn", "ffn_copies")


def _naive_moments(make: Maker) -> Iterator[Moment]:
    """Прямой проход держит оценки до маски, после неё и вероятности; обратный — вероятности и два градиента."""
    query, key = make.axes["query_rotated"], make.axes["key_rotated"]
    done, checkpointing = (*_BEFORE_FFN, "context"), make.policy.checkpointing
    # Произведению по группам нужны q и k, уложенные подряд: это ещё по копии.
    packed = [
        make.tensor("query_packed", "запрос, уложенный по группам", query, "compute"),
        make.tensor("key_packed", "ключ, уложенный подряд", key, "compute"),
    ]
    scores = make.tensor("scores", "оценки до и после маски", "ns", "compute", 2)
    if checkpointing == "selective":
        scores = make.tensor("scores", "пересчёт: оценки, они же с маской, вероятности", "ns", "compute", 3)
        back = make.tensor("context_gradient", "градиент выхода внимания", make.axes["context"], "compute")
        yield Moment("attention", [*make.stream(), back, *packed, scores], done, True)
        return
    if checkpointing == "none":
        square = make.tensor("probability_gradients", "градиенты вероятностей и оценок", "ns", "compute", 2)
        value = make.tensor("value_gradient", "градиент значения", key, "compute")
        yield Moment("attention", [*make.stream(), value, square], done, True)
        yield Moment("softmax", [packed[0], scores, *_arguments(make)], done)
        return
    yield Moment("attention", [*make.stream(), *packed, scores], done, True)
    yield Moment("softmax", [*packed, scores], done, True)


def _last_moments(make: Maker) -> Iterator[Moment]:
    """Всё сохранённое отпущено: остался градиент эмбеддинга, потом шаг оптимизатора."""
    done = ("logits", "activations", "copies")
    born = [*make.stream(), make.gradient("embedding", "градиент эмбеддинга", "gradients")]
    if make.spec.tie_embeddings and not make.cast:
        # Градиент головы — вид на транспонированное, прибавить к нему на месте нельзя: сумма занимает
        # новый тензор (поток к этому времени отпущен). Под autocast он приведён к fp32 и лежит отдельно.
        born[0] = make.gradient("embedding", "сумма градиентов связанной матрицы", "gradients")
    yield Moment("embedding", born, done)
    weights = [op for op in make.rows.values() if op.weight]
    widest = max(weights, key=lambda op: multiply(axis_factors(op.weight, make.spec)))
    wide = make.gradient(widest.name, "градиент самой большой матрицы в fp32", "fp32")
    yield Moment("optimizer", [wide] if make.policy.master else [], done)


# --- Полный чекпоинтинг и группы ------------------------------------------------------------------


def _recomputed(make: Maker, moment: Moment) -> Iterator[Born]:
    """Что добавляет полный чекпоинтинг: пересчитанный слой и то, что держат его аргументы."""
    spec, tokens, policy = make.spec, make.tokens, make.policy
    if "activations" not in moment.freed:
        yield from _arguments(make)
    if moment.layer:
        sizes = group_bytes(spec, tokens, policy)
        value = sizes["attention"] + sizes["ffn"] - sizes["entry"]
        yield "recomputed", "пересчитанный слой", (("слой", value),)
    # До конца прямого прохода autocast помнит копии всех слоёв, потом — только пересчитанного.
    forward = moment.name in ("softmax", "loss")
    if policy.cast and (moment.layer or forward):
        layers = spec.L if forward else 1
        one = sum(multiply(weight_factors(op, spec)) // op.layers for op in copied(spec) if inside_layer(op))
        count: Factor = ("L", layers) if layers > 1 else ("1", 1)
        yield "layer_copies", "копии матриц слоя", (count, ("параметры слоя", one), ("байт", policy.sizes["compute"]))


def _arguments(make: Maker) -> Iterator[Born]:
    """Маски и таблицы поворота: чекпоинт держит их как аргументы слоя, хотя autograd их не сохраняет."""
    context = make.tokens[1]
    size: Factor = ("байт[compute]", make.policy.sizes["compute"])
    masks = mask_count(make.spec, context, make.policy.attention == "fused")
    if anywhere(masks[1]):
        yield "mask", "маски внимания", (masks, context, context, size)
    if make.policy.checkpointing == "full" and make.cast and "rope_cos" in make.axes:
        yield "rope", "таблицы поворота", (("2", 2), context, *axis_factors(make.axes["rope_cos"][1:], make.spec), size)


def mask_count(spec: Spec, context: Factor, narrow: bool) -> Factor:
    """Сколько масок S×S нужно слоям: по одной на вид окна; `narrow` — только окна короче контекста."""
    windows = {window for _, window in window_groups(spec)}
    if not narrow:
        return (str(len(windows)), len(windows))
    count = sum(window < context[1] for window in windows if window is not None)
    return (str(count) if isinstance(count, int) else "окна", count)


def copied(spec: Spec) -> list[Op]:
    """Матрицы, с которых autocast снимает копию в точности вычислений."""
    return [op for op in table(spec) if op.product and op.weight]


def _copy_bytes(spec: Spec, policy: Policy) -> dict[str, int]:
    """Байты копий autocast: головы, матрицы сжатия одного слоя, всех матриц его полносвязного блока."""
    sizes = dict.fromkeys(("head_copies", "down_copies", "ffn_copies"), 0)
    for op in copied(spec) if policy.cast else ():
        one = int(multiply(weight_factors(op, spec, ("1", 1)))) // op.layers * policy.sizes["compute"]
        if op.name == "lm_head":
            sizes["head_copies"] = one
        elif op.name == "down":
            sizes["down_copies"] = one
        if op.component in ("ffn", "router"):
            sizes["ffn_copies"] += one * (spec.experts if op.expert else 1)
    return sizes


def group_bytes(spec: Spec, tokens: tuple[Factor, ...], policy: Policy) -> dict[str, int]:
    """Байты групп, которые отпускаются вместе. Слой здесь один, при полном чекпоинтинге — пересчитанный."""
    whole, half = policy.recomputed(), "attention"
    sizes = {**dict.fromkeys((*GROUPS, "entry"), 0), **_copy_bytes(spec, policy)}
    for op in table(spec):
        for tensor in op.keeps:
            if whole.keeps(op, tensor) and not tensor.once:
                for name in _groups(op, tensor, half):
                    sizes[name] += whole.line(op, tensor, spec, tokens).value // op.layers
        half = "ffn" if op.name == "output" else half
    return sizes


def _groups(op: Op, tensor: Tensor, half: str) -> Iterator[str]:
    if not inside_layer(op):
        yield "logits" if op.name == "lm_head" else "final"
        if tensor.name == "normed":
            yield "normed"
        return
    yield half
    if tensor.entry:
        yield "entry"
    if tensor.name in ("expert_output", "context"):
        yield tensor.name
    # Вход сжатия — последний тензор строки: у SwiGLU произведение, у простого блока активация.
    if op.name == "down" and tensor is op.keeps[-1]:
        yield "product"
