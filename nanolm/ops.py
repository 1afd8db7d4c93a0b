"""Таблица операций: единственное описание модели, из которого выводятся все счета.

Строка — одна операция сети. Её произведение записано как einsum по осям курса, и этого хватает,
чтобы посчитать всё остальное:

- параметры — произведение осей веса на число слоёв и, если вес принадлежит эксперту, на E;
- FLOPs — удвоенное произведение всех осей операции (умножить и сложить), токен проходит k экспертов;
- сохранённые активации — тензоры, которые строка держит до обратного прохода;
- кеш KV — выходы строк, помеченных `cached`;
- байты, которые читает шаг декодирования, — веса строки, у экспертов только тех, что выбраны.

Поэтому счета не могут разойтись: второй формулы для той же величины в библиотеке нет.

Оси: b пакет, t токены запроса, s токены ключа, d ширина, n головы запроса, k головы ключа и
значения, h размер головы, f ширина полносвязного блока, v словарь, e эксперты, p обучаемые позиции.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nanolm.spec import Spec

    #: Множитель формулы: запись буквами и число.
    Factor = tuple[str, int | float]


class Tensor:
    """Тензор, который операция держит до обратного прохода.

    `axes` — оси без пакета и токенов, они подразумеваются: «nh» значит [B, T, N, H].
    `dtype` — «compute» (точность вычислений), «stream» (остаточный поток: fp32 при autocast), «fp32»
    или «int64». `saved` — держит autograd; `counted` — входит в учебный подсчёт «все промежуточные
    тензоры блока». `only` — лишь при этом виде внимания. `core` — ядро внимания: его пересчитывает
    выборочный чекпоинтинг. `entry` — вход блока: он остаётся и при полном. `when` — копия, которая появляется
    лишь при вычислениях не в fp32 («lowered») или лишь под autocast. `once` — один на модель, без пакета и токенов.
    """

    __slots__ = ("axes", "core", "counted", "dtype", "entry", "name", "once", "only", "saved", "when")

    def __init__(
        self,
        name: str,
        axes: str,
        *,
        dtype: str = "compute",
        saved: bool = True,
        counted: bool = True,
        only: str = "",
        core: bool = False,
        entry: bool = False,
        when: str = "",
        once: bool = False,
    ) -> None:
        self.name, self.axes, self.dtype = name, axes, dtype
        self.saved, self.counted, self.only = saved, counted, only
        self.core, self.entry, self.when, self.once = core, entry, when, once


class Op:
    """Строка таблицы: операция, её вес, её тензоры.

    `product` — einsum («btd,dnh->btnh») или пусто; `weight` — оси веса, запятая разделяет измерения
    хранимого тензора («nh,d» — матрица [N·H, D]); `layers` — в скольких слоях стоит операция;
    `expert` — веса хранятся E раз, по имени на эксперта, токен проходит k; `shared` — вес уже хранит другая строка;
    `lookup` — читаются только строки нужных токенов; `pairs` — оси t и s связаны маской и окном;
    `cached` — выход лежит в кеше KV; `param` — имя параметра в NanoLM.
    """

    __slots__ = (
        "cached", "component", "expert", "keeps", "layers", "lookup", "name", "pairs", "param", "product",
        "shared", "title", "weight",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        component: str,
        title: str,
        *,
        product: str = "",
        weight: str = "",
        param: str = "",
        layers: int = 1,
        expert: bool = False,
        shared: bool = False,
        lookup: bool = False,
        pairs: bool = False,
        cached: bool = False,
        keeps: tuple[Tensor, ...] = (),
    ) -> None:
        self.name, self.component, self.title = name, component, title
        self.product, self.weight, self.param, self.layers = product, weight, param, layers
        self.expert, self.shared, self.lookup = expert, shared, lookup
        self.pairs, self.cached, self.keeps = pairs, cached, keeps

    def __repr__(self) -> str:
        return f"Op({self.name}: {self.product or self.weight})"


def table(spec: Spec) -> tuple[Op, ...]:
    """Все операции модели в порядке вычисления.

    Слой описан один раз: `Op.layers` говорит, сколько раз он повторяется.
    """
    return (*_entrance(spec), *_attention(spec), *_feed_forward(spec), *_exit(spec))


def _entrance(spec: Spec) -> Iterator[Op]:
    yield Op("embedding", "embedding", "таблица эмбеддингов", weight="v,d", param="embedding.weight", lookup=True)
    if spec.learned_positions:
        yield Op("positions", "positions", "обучаемые позиции", weight="p,d", param="positions.weight", lookup=True)


def _norm(spec: Spec, name: str, title: str, *tensors: Tensor) -> Iterator[Op]:
    """Норма слоя или последняя («norm»): вес, у LayerNorm смещение; держит вход, статистики и, если нужен, выход."""
    source, *output = tensors
    names = ("rstd", "mean") if spec.norm_bias else ("rstd",)
    statistics = [Tensor(statistic, "", dtype="fp32", counted=False) for statistic in names]
    place, layers = ("norm", 1) if name == "norm" else (f"layers.{{i}}.{name}", spec.L)
    keeps = (source, *statistics, *output)
    yield Op(name, "norms", title, weight="d", param=f"{place}.weight", layers=layers, keeps=keeps)
    if spec.norm_bias:
        yield Op(f"{name}_bias", "norms", f"{title}: смещение", weight="d", param=f"{place}.bias", layers=layers)


def _linear(name: str, component: str, title: str, bias: bool, bias_axes: str, **row: object) -> Iterator[Op]:
    """Матрица и, если есть, её смещение: отдельной строкой, потому что произведения в нём нет."""
    matrix = Op(name, component, title, **row)  # type: ignore[arg-type]
    yield matrix
    if bias:
        param = matrix.param.removesuffix("weight") + "bias"
        yield Op(
            f"{name}_bias", component, f"{title}: смещение",
            weight=bias_axes, param=param, layers=matrix.layers, expert=matrix.expert,
        )  # fmt: skip


def _attention(spec: Spec) -> Iterator[Op]:
    L, here = spec.L, "layers.{i}.attention"
    entry = Tensor("block_input", "d", dtype="stream", entry=True)
    yield from _norm(spec, "attention_norm", "норма перед вниманием", entry, Tensor("normed", "d"))
    # До поворота q и k никому не нужны, если их не нормирует qk_norm: autograd их отпускает.
    raw = spec.qk_norm
    yield from _linear(
        "query", "attention", "проекция запроса", spec.qkv_bias, "nh", product="btd,dnh->btnh", weight="nh,d",
        param=f"{here}.query.weight", layers=L, keeps=(Tensor("query", "nh", saved=raw),),
    )  # fmt: skip
    yield from _linear(
        "key", "attention", "проекция ключа", spec.qkv_bias, "kh", product="btd,dkh->btkh", weight="kh,d",
        param=f"{here}.key.weight", layers=L, cached=True, keeps=(Tensor("key", "kh", saved=raw),),
    )  # fmt: skip
    yield from _linear(
        "value", "attention", "проекция значения", spec.qkv_bias, "kh", product="btd,dkh->btkh", weight="kh,d",
        param=f"{here}.value.weight", layers=L, cached=True, keeps=(Tensor("value", "kh"),),
    )  # fmt: skip
    if spec.qk_norm:
        for name, heads, title in (("query", "n", "запроса"), ("key", "k", "ключа")):
            statistic = Tensor(f"{name}_rstd", heads, dtype="fp32", counted=False)
            yield Op(
                f"{name}_norm", "norms", f"норма {title}",
                weight="h", param=f"{here}.{name}_norm.weight", layers=L, keeps=(statistic,),
            )  # fmt: skip
    # Таблицы поворота — буферы модели; autocast приводит их к bf16, и эту копию держат все слои сразу.
    tables = () if spec.learned_positions else ("rope_cos", "rope_sin")
    yield Op(
        "scores", "scores", "оценки: запрос на ключ", product="btnh,bsnh->btns", layers=L, pairs=True,
        keeps=(
            *(Tensor(name, "sh", counted=False, when="autocast", once=True) for name in tables),
            Tensor("query_rotated", "nh"),
            Tensor("key_rotated", "kh"),
            Tensor("probabilities", "ns", only="naive", core=True),
        ),
    )  # fmt: skip
    yield Op(
        "mix", "scores", "смесь значений по вероятностям", product="btns,bsnh->btnh", layers=L, pairs=True,
        keeps=(
            Tensor("context", "nh"),
            Tensor("logsumexp", "n", dtype="fp32", counted=False, only="fused", core=True),
        ),
    )  # fmt: skip
    yield from _linear(
        "output", "attention", "выходная проекция", spec.out_bias, "d", product="btnh,nhd->btd", weight="d,nh",
        param=f"{here}.output.weight", layers=L,
    )  # fmt: skip
    if spec.post_norms:
        yield from _norm(spec, "attention_post_norm", "норма после внимания", Tensor("attention_output", "d"))


def _feed_forward(spec: Spec) -> Iterator[Op]:
    L, here, moe = spec.L, "layers.{i}.ffn", bool(spec.experts)
    entry = Tensor("residual", "d", dtype="stream")
    yield from _norm(spec, "ffn_norm", "норма перед полносвязным блоком", entry, Tensor("normed", "d"))
    if moe:
        yield from _routing(spec)
    row = {"layers": L, "expert": moe}
    # Эксперт — такой же блок; его матрицы лежат в модели отдельно, по имени на эксперта.
    here = f"{here}.experts.{{e}}" if moe else here
    names = (("gate", "ворота"), ("up", "расширение")) if spec.gated_ffn else (("up", "расширение"),)
    for name, title in names:
        yield from _linear(
            name, "ffn", title, spec.ffn_bias, "f", product="btd,df->btf", weight="f,d",
            param=f"{here}.{name}.weight", keeps=(Tensor(name, "f"),), **row,
        )  # fmt: skip
    inside = ("activated", "product") if spec.gated_ffn else ("activated",)
    yield from _linear(
        "down", "ffn", "сжатие", spec.ffn_bias, "d", product="btf,fd->btd", weight="d,f",
        param=f"{here}.down.weight", keeps=tuple(Tensor(name, "f") for name in inside), **row,
    )  # fmt: skip
    if spec.post_norms:
        yield from _norm(spec, "ffn_post_norm", "норма после полносвязного блока", Tensor("ffn_output", "d"))


def _routing(spec: Spec) -> Iterator[Op]:
    """Маршрутизатор и перекладка токенов к экспертам и обратно: k строк на каждый токен."""
    yield Op(
        "router", "router", "маршрутизатор", product="btd,de->bte", weight="e,d",
        param="layers.{i}.ffn.router.weight", layers=spec.L,
    )  # fmt: skip
    yield Op(
        "dispatch", "router", "перекладка токенов по экспертам", param="layers.{i}.ffn.router", layers=spec.L,
        expert=True,
        keeps=(
            Tensor("expert_index", "", dtype="int64", counted=False),
            Tensor("routing_weight", "", dtype="fp32", counted=False),
            Tensor("routing_weight_lowered", "", counted=False, when="lowered"),
            Tensor("row_index", "", dtype="int64", counted=False),
            Tensor("gathered", "d"),
            Tensor("inverse_index", "", dtype="int64", counted=False),
            Tensor("expert_output", "d"),
        ),
    )  # fmt: skip


def _exit(spec: Spec) -> Iterator[Op]:
    entry = Tensor("final_input", "d", dtype="stream", counted=False)
    yield from _norm(spec, "norm", "последняя норма", entry, Tensor("normed", "d", counted=False))
    yield Op(
        "lm_head", "lm_head", "выходная голова", product="btd,dv->btv", weight="v,d", param="head.weight",
        shared=spec.tie_embeddings,
        keeps=(
            Tensor("logits", "v", saved=False),
            Tensor("log_probabilities", "v", dtype="fp32"),
            Tensor("loss_weight", "", dtype="fp32", counted=False, once=True),
        ),
    )  # fmt: skip


# --- Множители: из осей в числа -----------------------------------------------------------------


def axis_sizes(spec: Spec) -> dict[str, Factor]:
    """Ось einsum → её буква в курсе и размер."""
    return {
        "d": ("D", spec.D), "n": ("N", spec.N), "k": ("K", spec.K), "h": ("H", spec.H), "f": ("F", spec.F),
        "v": ("V", spec.V), "e": ("E", spec.experts), "p": ("P", spec.learned_positions),
    }  # fmt: skip


def axis_factors(axes: str, spec: Spec) -> list[Factor]:
    """Оси по порядку → множители; запятые между измерениями не значат ничего."""
    sizes = axis_sizes(spec)
    return [sizes[axis] for axis in axes if axis != ","]


def layer_factor(op: Op, spec: Spec) -> list[Factor]:
    """Множитель «L» у операций слоя; у стоящих вне слоёв — ничего."""
    return [("L", op.layers)] if op.param.startswith("layers.") or op.pairs else []


def copy_factors(op: Op, spec: Spec, used: Factor | None = None) -> list[Factor]:
    """Сколько таких весов в модели: слои и, у эксперта, E копий — или `used`, если нужны не все."""
    return layer_factor(op, spec) + ([used or ("E", spec.experts)] if op.expert else [])


def weight_factors(op: Op, spec: Spec, used: Factor | None = None) -> list[Factor]:
    """Множители числа параметров строки: все, а с `used` — вместо E экспертов только эти.

    `used` — k для одного токена, среднее число различных — для пакета.
    """
    return copy_factors(op, spec, used) + axis_factors(op.weight, spec)


def product_factors(op: Op, spec: Spec) -> list[Factor]:
    """Множители одного произведения на один токен запроса, без ключей: 2, слои, k, оси.

    Оси t и s не входят: токены считает вызывающий, ключи — `pairs`.
    """
    inputs = op.product.partition("->")[0]
    axes = "".join(dict.fromkeys(axis for axis in inputs if axis not in "bts,"))
    used: list[Factor] = [("k", spec.experts_per_token)] if op.expert else []
    return [("2", 2), *layer_factor(op, spec), *used, *axis_factors(axes, spec)]


def output_factors(op: Op, spec: Spec) -> list[Factor]:
    """Множители выхода операции на один токен: «btkh» → K·H."""
    return axis_factors("".join(axis for axis in op.product.partition("->")[2] if axis not in "bts"), spec)


def multiply(factors: Iterable[Factor]) -> int | float:
    """Произведение множителей; целое, пока все они целые."""
    result: int | float = 1
    for _, value in factors:
        result *= value
    return result


def parameter_shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Имя параметра NanoLM → форма. Из тех же строк, что и число параметров."""
    shapes: dict[str, tuple[int, ...]] = {}
    for op in table(spec):
        if not op.weight or op.shared:
            continue
        shape = tuple(int(multiply(axis_factors(dimension, spec))) for dimension in op.weight.split(","))
        for i in range(op.layers):
            for e in range(spec.experts if op.expert else 1):
                shapes[op.param.replace("{i}", str(i)).replace("{e}", str(e))] = shape
    return shapes


# --- Внимание: сколько пар запрос — ключ --------------------------------------------------------


def pairs(T: int, S: int, causal: bool = False, window: int | None = None) -> int:
    """Сколько пар «запрос — ключ» считает внимание, когда T запросов — последние из S токенов.

    Без маски — весь прямоугольник T·S. С причинной маской запрос видит себя и всё раньше него,
    с окном W — не больше W ключей. Одна функция на оба произведения внимания: разойтись они не могут.
    Без маски окно тоже ограничивает: каждый запрос видит min(S, W) ключей.
    """
    width = S if window is None else min(S, window)
    if not causal:
        return T * width
    # Запрос на месте p (с единицы) видит min(p, width) ключей; места идут от S − T + 1 до S.
    return _staircase(S, width) - _staircase(S - T, width)


def _staircase(n: int, width: int) -> int:
    """Сумма min(p, width) для p = 1…n."""
    low = min(n, width)
    return low * (low + 1) // 2 + (n - low) * width


def distinct_experts(E: int, k: int, B: int) -> float:
    """Сколько разных экспертов в среднем читает шаг из B токенов при равномерной маршрутизации.

    Эксперт не нужен одному токену с вероятностью 1 − k/E, всем B — с её степенью B.
    """
    return float(E * (1 - (1 - k / E) ** B))


def window_groups(spec: Spec) -> list[tuple[Factor, int | None]]:
    """Слои, собранные по ширине окна: («L», 32), None; у смешанных моделей — по группам."""
    if not isinstance(spec.window, tuple):
        return [(("L", spec.L), spec.window)]
    counts: dict[int | None, int] = {}
    for window in spec.window:
        counts[window] = counts.get(window, 0) + 1
    return [((f"L[{'всё' if w is None else w}]", layers), w) for w, layers in counts.items()]
