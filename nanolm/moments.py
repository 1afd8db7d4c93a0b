"""Моменты шага обучения: где память достигает пика и что в этот миг живо.

Шаг — это волна. Прямой проход копит тензоры для обратного, обратный их отпускает, но сам заводит
временные: градиенты по промежуточным тензорам и по весам. Пик — в одном из немногих мест:

    forward    логиты готовы, потери вот-вот
    loss       градиент по логитам и по их логарифмам, оба в fp32
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

from nanolm.ops import axis_factors, multiply, table, weight_factors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from nanolm.ops import Factor
    from nanolm.spec import Spec

    #: Строка: имя, название, множители.
    Born = tuple[str, str, tuple[Factor, ...]]

#: Момент → название для таблиц.
TITLES = {
    "forward": "конец прямого прохода",
    "loss": "обратный проход функции потерь",
    "head": "обратный проход головы",
    "head_cast": "градиент головы в fp32",
    "norm": "обратный проход последней нормы",
    "combine": "сложение ответов экспертов",
    "ffn": "обратный проход полносвязного блока",
    "down": "градиент матрицы сжатия",
    "attention": "обратный проход внимания",
    "embedding": "градиент эмбеддинга",
    "optimizer": "шаг оптимизатора",
}

#: Сколько значений fp32 шириной D заводит обратный проход нормы: x·r, градиент·w и их произведение.
NORM_BUFFERS = 3


class Moment:
    """Один момент: что появилось и какие группы сохранённых тензоров уже отпущены.

    Группы: «logits», «final» — последняя норма, «ffn» и «attention» — половины последнего слоя, «product» — вход
    матрицы сжатия, «expert_output», «activations» — всё, что держали активации. `layer` — при полном чекпоинтинге
    слой уже пересчитан и его половины снова живы (кроме отпущенных).
    """

    __slots__ = ("born", "freed", "layer", "name")

    def __init__(self, name: str, born: list[Born], freed: tuple[str, ...] = (), layer: bool = False) -> None:
        self.name, self.born, self.freed, self.layer = name, born, freed, layer

    @property
    def title(self) -> str:
        """Название для таблиц."""
        return TITLES[self.name]


class _Sizes:
    """Множители тензоров шага: токены, оси, байты."""

    def __init__(self, spec: Spec, tokens: tuple[Factor, ...], recipe: dict[str, int]) -> None:
        self.spec, self.tokens, self.recipe = spec, tokens, recipe
        self.weights = {op.name: op for op in table(spec) if op.weight}

    def tensor(self, name: str, title: str, axes: str, kind: str, count: int = 1, *, share: int = 0) -> Born:
        """Тензор [B, S, оси]; ось «s» — ключи; `share` — доля строк одного эксперта, k/E."""
        sizes = [self.tokens[1] if axis == "s" else axis_factors(axis, self.spec)[0] for axis in axes]
        many: list[Factor] = [(str(count), count)] if count != 1 else []
        per: list[Factor] = [("k/E" if share > 1 else "k", self.spec.experts_per_token / share)] if share else []
        return name, title, (*many, *self.tokens, *per, *sizes, (f"байт[{kind}]", self.recipe[kind]))

    def gradient(self, name: str, title: str, size: int, used: Factor = ("1", 1)) -> Born:
        """Градиент одной матрицы строки `name`: формы веса, одного слоя и одного эксперта."""
        axes = axis_factors(self.weights[name].weight, self.spec)
        return f"{name}_gradient", title, (*axes, ("байт", size))


def moments(
    spec: Spec, tokens: tuple[Factor, ...], sizes: dict[str, int], attention: str, checkpointing: str, master: bool
) -> Iterator[Moment]:
    """Все моменты шага. `sizes` — байты значения по виду тензора: compute, stream, fp32, gradients."""
    make = _Sizes(spec, tokens, sizes)
    lowered, cast = sizes["compute"] != 4, sizes["stream"] != sizes["compute"]
    yield from _exit_moments(make, lowered, cast)
    # Отложенное: градиент связанной матрицы ждёт второго слагаемого, от эмбеддинга.
    stream = [make.tensor("stream_gradient", "градиент остаточного потока", "d", "stream")]
    if spec.tie_embeddings:
        stream.append(make.gradient("lm_head", "градиент головы ждёт градиента эмбеддинга", sizes["gradients"]))
    if cast:
        stream.append(make.tensor("lowered_gradient", "он же в точности вычислений", "d", "compute"))
    yield from _ffn_moments(make, stream, cast)
    yield _attention_moment(make, stream, attention, checkpointing)
    table_gradient = make.gradient("embedding", "градиент таблицы эмбеддингов", sizes["gradients"])
    yield Moment("embedding", [*stream[: 1 + spec.tie_embeddings], table_gradient], ("logits", "activations"))
    widest = max((op for op in table(spec) if op.weight), key=lambda op: multiply(axis_factors(op.weight, spec)))
    wide = make.gradient(widest.name, "градиент самой большой матрицы в fp32", 4)
    yield Moment("optimizer", [wide] if master else [], ("logits", "activations"))


def _exit_moments(make: _Sizes, lowered: bool, cast: bool) -> Iterator[Moment]:
    """Потери, голова, последняя норма."""
    logits = [make.tensor("logits_fp32", "логиты в fp32", "v", "fp32")]
    lower = [make.tensor("logits", "логиты", "v", "compute")] if lowered else []
    yield Moment("forward", [*logits, *lower])
    yield Moment("loss", [make.tensor("logit_gradients", "градиенты функции потерь и логитов", "v", "fp32", 2)])
    back = make.tensor("normed_gradient", "градиент входа головы", "d", "compute")
    matrix = make.gradient("lm_head", "градиент матрицы головы", make.recipe["compute"])
    grad = make.tensor("logit_gradient", "градиент логитов", "v", "compute")
    yield Moment("head", [grad, back, matrix], ("logits",))
    if cast:
        wide = make.gradient("lm_head", "он же в fp32", 4)
        yield Moment("head_cast", [back, matrix, wide], ("logits",))
    waiting = make.gradient("lm_head", "градиент головы ждёт градиента эмбеддинга", make.recipe["gradients"])
    norm = make.tensor("norm_buffers", "промежуточные нормы", "d", "fp32", NORM_BUFFERS)
    yield Moment("norm", [back, norm, *([waiting] if make.spec.tie_embeddings else [])], ("logits", "normed"))


def _ffn_moments(make: _Sizes, stream: list[Born], cast: bool) -> Iterator[Moment]:
    """Полносвязный блок последнего слоя; у смеси — её эксперты по одному."""
    spec, done = make.spec, ("logits", "final")
    share = spec.experts
    count = 3 if spec.gated_ffn else 2
    held: list[Born] = []
    if spec.experts:
        two = make.tensor("expert_gradients", "градиенты ответов экспертов и весов", "d", "compute", 2, share=1)
        yield Moment("combine", [*stream, two], done, layer=True)
        held = [make.tensor("expert_gradient", "градиент ответов экспертов", "d", "compute", share=1)]
        done = (*done, "expert_output")
    inner = make.tensor("ffn_gradients", "градиенты внутри блока", "f", "compute", count, share=share)
    yield Moment("ffn", [*stream, *held, inner], (*done, "product"), layer=True)
    one = make.tensor("product_gradient", "градиент входа сжатия", "f", "compute", share=share)
    matrix = [make.gradient("down", "градиент матрицы сжатия", make.recipe["compute"])]
    if cast:
        matrix.append(make.gradient("down", "он же в fp32", 4))
    yield Moment("down", [*stream, *held, one, *matrix], done, layer=True)


def _attention_moment(make: _Sizes, stream: list[Born], attention: str, checkpointing: str) -> Moment:
    """Ядро внимания: слитому нужны градиенты q, k, v, наивному — две матрицы B·N·S²."""
    again = checkpointing == "selective"
    born = [*stream, make.tensor("context_gradient", "градиент выхода внимания", "nh", "compute")]
    if attention == "naive":
        born.append(make.tensor("probability_gradients", "градиенты вероятностей и оценок", "ns", "compute", 3 if again else 2))
    else:
        born.append(make.tensor("query_gradient", "градиент запроса", "nh", "compute", 2 if again else 1))
        born.append(make.tensor("key_value_gradients", "градиенты ключа и значения", "kh", "compute", 2))
    return Moment("attention", born, ("logits", "final", "ffn"), layer=True)
