"""Таблица операций: единственное описание модели, из которого выводятся все счета.

Строка — одна операция сети. Её произведение записано как einsum по осям курса, и этого хватает,
чтобы посчитать всё остальное:

- параметры — произведение осей веса на число слоёв и, если вес принадлежит эксперту, на E;
- FLOPs — удвоенное произведение всех осей операции (умножить и сложить), токен проходит k экспертов;
- сохранённые активации — тензоры, которые строка держит до обратного прохода;
- кеш KV — то, что строка кладёт в него (`cached`);
- байты, которые читает шаг декодирования, — веса строки, у экспертов только тех, что выбраны.

Поэтому счета не могут разойтись: второй формулы для той же величины в библиотеке нет.

Оси: b пакет, t токены запроса, s токены ключа, d ширина, n головы запроса, k головы ключа и
значения, h размер головы, f ширина полносвязного блока, v словарь, e эксперты, p обучаемые позиции.
У латентного внимания: c сжатые ключ и значение, q сжатый запрос, r вращаемая часть головы, u голова
значения. Заглавные оси составные: X = h + r, Y = c + r, W = h + u. В смеси: g ширина плотного слоя,
z — всегда работающих экспертов.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from nanolm.spec import Spec

    #: Множитель формулы: запись буквами и число.
    Factor = tuple[str, int | float]


#: Имя сохраняемого тензора → как его назвать человеку.
TENSOR_TITLES = {
    "block_input": "вход блока", "residual": "поток между половинами", "final_input": "выход последнего слоя",
    "rstd": "обратные отклонения", "mean": "средние", "normed": "выход нормы",
    "query": "запрос", "key": "ключ", "value": "значение", "query_rstd": "обратные отклонения запроса",
    "key_rstd": "обратные отклонения ключа", "query_rotated": "повёрнутый запрос", "key_rotated": "повёрнутый ключ",
    "rope_cos": "косинусы поворота", "rope_sin": "синусы поворота",
    "probabilities": "вероятности внимания", "context": "выход внимания", "logsumexp": "логарифмы сумм",
    "attention_output": "выход проекции", "ffn_output": "выход блока",
    "query_down": "сжатый запрос", "query_up": "восстановленный запрос", "kv_down": "сжатые ключ и значение",
    "kv_up": "восстановленные ключ и значение", "query_down_rstd": "обратные отклонения",
    "kv_down_rstd": "обратные отклонения", "query_down_normed": "выход нормы", "kv_down_normed": "выход нормы",
    "gate": "ворота", "up": "расширение", "activated": "после активации", "product": "ворота на расширение",
    "expert_index": "номера экспертов", "routing_weight": "веса экспертов", "routing_weight_lowered": "они же в bf16",
    "row_index": "порядок строк", "gathered": "разложенные токены", "inverse_index": "обратный порядок",
    "expert_output": "ответы экспертов",
    "logits": "логиты", "log_probabilities": "логарифмы вероятностей",
}  # fmt: skip


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

    @property
    def title(self) -> str:
        """Название по-русски."""
        return TENSOR_TITLES[self.name]


class Op:
    """Строка таблицы: операция, её вес, её тензоры.

    `product` — einsum («btd,dnh->btnh») или пусто; `weight` — оси веса, запятая разделяет измерения
    хранимого тензора («nh,d» — матрица [N·H, D]); `layers` — в скольких слоях стоит операция, `first` —
    с какого они начинаются, `group` — как эти слои назвать; `expert` — веса хранятся E раз, по имени на
    эксперта, токен проходит k; `shared` — вес уже хранит другая строка; `lookup` — читаются только строки
    нужных токенов; `pairs` — оси t и s связаны маской и окном; `absorbed` — чем становится произведение
    при чтении сжатого кеша; `cached` — что строка кладёт в кеш KV, `uncompressed` — а что клала бы без
    сжатия; `param` — имя параметра в NanoLM.
    """

    __slots__ = (
        "absorbed", "cached", "component", "expert", "first", "group", "keeps", "layers", "lookup", "name", "pairs",
        "param", "product", "shared", "title", "uncompressed", "weight",
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
        first: int = 0,
        group: str = "",
        expert: bool = False,
        shared: bool = False,
        lookup: bool = False,
        pairs: bool = False,
        absorbed: str = "",
        cached: str = "",
        uncompressed: str | None = None,
        keeps: tuple[Tensor, ...] = (),
    ) -> None:
        self.name, self.component, self.title = name, component, title
        self.product, self.weight, self.param = product, weight, param
        self.layers, self.first, self.group = layers, first, group
        self.expert, self.shared, self.lookup, self.pairs = expert, shared, lookup, pairs
        self.absorbed, self.cached = absorbed or product, cached
        self.uncompressed = cached if uncompressed is None else uncompressed
        self.keeps = keeps

    def __repr__(self) -> str:
        return f"Op({self.name}: {self.product or self.weight})"


def table(spec: Spec) -> tuple[Op, ...]:
    """Все операции модели в порядке вычисления.

    Слой описан один раз: `Op.layers` говорит, сколько раз он повторяется.
    """
    # Один вопрос обращается к таблице десятки раз, и каждый раз — для той же модели.
    global _latest
    latest = _latest
    if latest[0] is not spec:
        latest = _latest = (spec, (*_entrance(spec), *_attention(spec), *_feed_forward(spec), *_exit(spec)))
    return latest[1]


#: Последняя модель и её таблица: обе неизменяемы.
_latest: tuple[Spec | None, tuple[Op, ...]] = (None, ())


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


def _linear(name: str, component: str, title: str, bias: bool, bias_axes: str, **row: Any) -> Iterator[Op]:
    """Матрица и, если есть, её смещение: отдельной строкой, потому что произведения в нём нет."""
    matrix = Op(name, component, title, **row)
    yield matrix
    if bias:
        place = {field: row[field] for field in ("layers", "first", "group", "expert") if field in row}
        param = matrix.param.removesuffix("weight") + "bias"
        yield Op(f"{name}_bias", component, f"{title}: смещение", weight=bias_axes, param=param, **place)


def _attention(spec: Spec) -> Iterator[Op]:
    yield from _pre_norm(spec, "attention_norm", "норма перед вниманием", "block_input")
    yield from _latent_projections(spec) if spec.kv_rank else _projections(spec)
    yield from _attention_core(spec)
    heads = "nu" if spec.kv_rank else "nh"
    yield from _linear(
        "output", "attention", "выходная проекция", spec.out_bias, "d", product=f"bt{heads},{heads}d->btd",
        weight=f"d,{heads}", param=f"{_ATTENTION}.output.weight", layers=spec.L,
    )  # fmt: skip
    if spec.post_norms:
        yield from _norm(spec, "attention_post_norm", "норма после внимания", Tensor("attention_output", "d"))


_ATTENTION = "layers.{i}.attention"


def _pre_norm(spec: Spec, name: str, title: str, source: str) -> Iterator[Op]:
    """Норма перед половиной блока; у параллельного блока она одна на обе, бывает и ни одной."""
    entry = Tensor(source, "d", dtype="stream", entry=name == "attention_norm")
    if spec.pre_norms == 2 or (spec.pre_norms == 1 and entry.entry):
        yield from _norm(spec, name, title, entry, Tensor("normed", "d"))
    elif spec.pre_norms == 0:
        # Половина блока берёт остаточный поток как есть: вес не нужен, а вход всё равно хранится.
        yield Op(name, "norms", title, param=f"layers.{{i}}.{name}", layers=spec.L, keeps=(entry,))


def _projections(spec: Spec) -> Iterator[Op]:
    # До поворота q и k никому не нужны, если их не нормирует qk_norm: autograd их отпускает.
    raw = spec.qk_norm
    rows = (
        ("query", "проекция запроса", "nh", Tensor("query", "nh", saved=raw)),
        ("key", "проекция ключа", "kh", Tensor("key", "kh", saved=raw)),
        ("value", "проекция значения", "kh", Tensor("value", "kh")),
    )
    for name, title, heads, tensor in rows:
        yield from _linear(
            name, "attention", title, spec.qkv_bias, heads, product=f"btd,d{heads}->bt{heads}", weight=f"{heads},d",
            param=f"{_ATTENTION}.{name}.weight", layers=spec.L, keeps=(tensor,),
            cached="" if name == "query" else heads,
        )  # fmt: skip
    if spec.qk_norm:
        for name, heads, title in (("query", "n", "запроса"), ("key", "k", "ключа")):
            statistic = Tensor(f"{name}_rstd", "" if spec.qk_norm_wide else heads, dtype="fp32", counted=False)
            yield Op(
                f"{name}_norm", "norms", f"норма {title}", weight=f"{heads}h" if spec.qk_norm_wide else "h",
                param=f"{_ATTENTION}.{name}_norm.weight", layers=spec.L, keeps=(statistic,),
            )  # fmt: skip


def _latent_projections(spec: Spec) -> Iterator[Op]:
    """Латентное внимание (DeepSeek-V2): ключ и значение восстанавливаются из сжатого вектора C + R.

    Кешируется он один. Запрос тоже может проходить через сжатие до Q.
    """
    # (имя, название, вход, выход, смещение): норма стоит на сжатых векторах.
    rows = [
        ("query", "проекция запроса", "d", "nX", False),
        ("kv_down", "сжатие ключа и значения", "d", "Y", spec.qkv_bias),
        ("kv_up", "восстановление ключа и значения", "c", "nW", False),
    ]
    if spec.q_rank:
        rows[:1] = [
            ("query_down", "сжатие запроса", "d", "q", spec.qkv_bias),
            ("query_up", "восстановление запроса", "q", "nX", False),
        ]
    for name, title, source, result, bias in rows:
        yield from _linear(
            name, "attention", title, bias, result, product=f"bt{source},{source}{result}->bt{result}",
            weight=f"{result},{source}", param=f"{_ATTENTION}.{name}.weight", layers=spec.L,
            cached="Y" if name == "kv_down" else "", uncompressed="",
            keeps=(Tensor(name, result, saved=name.endswith("_down")),),
        )  # fmt: skip
        if name.endswith("_down"):
            axis, whose = ("q", "запроса") if name == "query_down" else ("c", "ключа и значения")
            yield Op(
                f"{name}_norm", "norms", f"норма сжатого {whose}", weight=axis, layers=spec.L,
                param=f"{_ATTENTION}.{name}_norm.weight",
                keeps=(Tensor(f"{name}_rstd", "", dtype="fp32", counted=False), Tensor(f"{name}_normed", axis)),
            )  # fmt: skip


def _attention_core(spec: Spec) -> Iterator[Op]:
    """Два произведения внимания: запрос на ключ и вероятности на значение. Весов у них нет."""
    latent = bool(spec.kv_rank)
    heads, keys, values = ("nX", "nX", "nu") if latent else ("nh", "kh", "nh")
    scores, mix = (f"bt{heads},bs{heads}->btns", f"btns,bs{values}->bt{values}")
    if spec.sinks:
        yield Op("sinks", "attention", "сток внимания", weight="n", param=f"{_ATTENTION}.sinks", layers=spec.L)
    # Таблицы поворота — буферы модели; autocast приводит их к bf16, и эту копию держат все слои сразу.
    tables = () if spec.learned_positions else ("rope_cos", "rope_sin")
    width = "r" if latent else "h"
    value = (Tensor("value", "nu"),) if latent else ()
    yield Op(
        "scores", "scores", "оценки: запрос на ключ", product=scores, layers=spec.L, pairs=True,
        absorbed="btnY,bsY->btns" if latent else "", uncompressed="nX" if latent else None,
        keeps=(
            *(Tensor(name, f"s{width}", counted=False, when="autocast", once=True) for name in tables),
            Tensor("query_rotated", heads),
            Tensor("key_rotated", keys),
            *value,
            Tensor("probabilities", "ns", only="naive", core=True),
        ),
    )  # fmt: skip
    yield Op(
        "mix", "scores", "смесь значений по вероятностям", product=mix, layers=spec.L, pairs=True,
        absorbed="btns,bsc->btnc" if latent else "", uncompressed="nu" if latent else None,
        keeps=(
            Tensor("context", values),
            Tensor("logsumexp", "n", dtype="fp32", counted=False, only="fused", core=True),
        ),
    )  # fmt: skip


def _feed_forward(spec: Spec) -> Iterator[Op]:
    yield from _pre_norm(spec, "ffn_norm", "норма перед полносвязным блоком", "residual")
    if not spec.experts:
        yield from _ffn(spec, "", "f", "layers.{i}.ffn", {"layers": spec.L})
    else:
        if spec.dense_layers:
            yield from _ffn(spec, "dense_", "g", "layers.{i}.ffn", {"layers": spec.dense_layers, "group": "плотные"})
        mixed = {"layers": spec.L - spec.dense_layers, "first": spec.dense_layers, "group": "смесь"}
        yield from _routing(spec, mixed)
        yield from _ffn(spec, "", "f", "layers.{i}.ffn.experts.{e}", {**mixed, "expert": True})
        if spec.shared_F:
            yield from _ffn(spec, "shared_", "z", "layers.{i}.ffn.shared", mixed)
    if spec.post_norms:
        yield from _norm(spec, "ffn_post_norm", "норма после полносвязного блока", Tensor("ffn_output", "d"))


_WHOSE = {"": "", "dense_": ", плотный слой", "shared_": ", общий эксперт"}


def _ffn(spec: Spec, kind: str, width: str, here: str, row: dict[str, Any]) -> Iterator[Op]:
    """Полносвязный блок: SwiGLU из трёх матриц или простой из двух."""
    names = (("gate", "ворота"), ("up", "расширение")) if spec.gated_ffn else (("up", "расширение"),)
    for name, title in names:
        yield from _linear(
            f"{kind}{name}", "ffn", title + _WHOSE[kind], spec.ffn_bias, width, product=f"btd,d{width}->bt{width}",
            weight=f"{width},d", param=f"{here}.{name}.weight", keeps=(Tensor(name, width),), **row,
        )  # fmt: skip
    inside = ("activated", "product") if spec.gated_ffn else ("activated",)
    yield from _linear(
        f"{kind}down", "ffn", "сжатие" + _WHOSE[kind], spec.ffn_bias, "d", product=f"bt{width},{width}d->btd",
        weight=f"d,{width}", param=f"{here}.down.weight", keeps=tuple(Tensor(name, width) for name in inside), **row,
    )  # fmt: skip


def _routing(spec: Spec, row: dict[str, Any]) -> Iterator[Op]:
    """Маршрутизатор и перекладка токенов к экспертам и обратно: k строк на каждый токен."""
    yield from _linear(
        "router", "router", "маршрутизатор", spec.router_bias, "e", product="btd,de->bte", weight="e,d",
        param="layers.{i}.ffn.router.weight", **row,
    )  # fmt: skip
    yield Op(
        "dispatch", "router", "перекладка токенов по экспертам", param="layers.{i}.ffn.router", expert=True, **row,
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
        ),
    )  # fmt: skip


# --- Множители: из осей в числа -----------------------------------------------------------------


def axis_sizes(spec: Spec) -> dict[str, Factor]:
    """Ось einsum → её буква в курсе и размер."""
    H, C, R, U = spec.H, spec.kv_rank, spec.rope_H, spec.value_H
    return {
        "d": ("D", spec.D), "n": ("N", spec.N), "k": ("K", spec.K), "h": ("H", H), "f": ("F", spec.F),
        "v": ("V", spec.V), "e": ("E", spec.experts), "p": ("P", spec.learned_positions),
        "g": ("F[плотный]", spec.dense_F), "z": ("F[общий]", spec.shared_F),
        "c": ("C", C), "q": ("Q", spec.q_rank), "r": ("R", R), "u": ("U", U),
        "X": ("(H+R)", H + R), "Y": ("(C+R)", C + R), "W": ("(H+U)", H + U),
    }  # fmt: skip


def axis_factors(axes: str, spec: Spec) -> list[Factor]:
    """Оси по порядку → множители; запятые между измерениями не значат ничего."""
    global _latest_sizes
    latest = _latest_sizes
    if latest[0] is not spec:
        latest = _latest_sizes = (spec, axis_sizes(spec))
    sizes = latest[1]
    return [sizes[axis] for axis in axes if axis != ","]


#: Последняя модель и размеры её осей: словарь из двадцати строк незачем собирать на каждый множитель.
_latest_sizes: tuple[Spec | None, dict[str, Factor]] = (None, {})


def layer_factor(op: Op, spec: Spec) -> list[Factor]:
    """Множитель «L» у операций слоя; у стоящих вне слоёв — ничего."""
    if not inside_layer(op):
        return []
    return [("L" if op.layers == spec.L else f"L[{op.group}]", op.layers)]


def inside_layer(op: Op) -> bool:
    """Стоит ли операция внутри слоя, а не на входе или выходе модели."""
    return op.pairs or op.param.startswith("layers.")


def copy_factors(op: Op, spec: Spec, used: Factor | None = None) -> list[Factor]:
    """Сколько таких весов в модели: слои и, у эксперта, E копий — или `used`, если нужны не все."""
    return layer_factor(op, spec) + ([used or ("E", spec.experts)] if op.expert else [])


def weight_factors(op: Op, spec: Spec, used: Factor | None = None) -> list[Factor]:
    """Множители числа параметров строки: все, а с `used` — вместо E экспертов только эти.

    `used` — k для одного токена, среднее число различных — для пакета.
    """
    return copy_factors(op, spec, used) + axis_factors(op.weight, spec)


def product_factors(op: Op, spec: Spec, absorbed: bool = False) -> list[Factor]:
    """Множители одного произведения на один токен запроса, без ключей: 2, слои, k, оси.

    Оси t и s не входят: токены считает вызывающий, ключи — `pairs`.
    """
    inputs = (op.absorbed if absorbed else op.product).partition("->")[0]
    axes = "".join(dict.fromkeys(axis for axis in inputs if axis not in "bts,"))
    used: list[Factor] = [("k", spec.experts_per_token)] if op.expert else []
    return [("2", 2), *layer_factor(op, spec), *used, *axis_factors(axes, spec)]


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
        for i in range(op.first, op.first + op.layers):
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
    width = S if window is None else least(S, window)
    if not causal:
        return T * width
    # Запрос на месте p (с единицы) видит min(p, width) ключей; места идут от S − T + 1 до S.
    return _staircase(S, width) - _staircase(S - T, width)


def _staircase(n: int, width: int) -> int:
    """Сумма min(p, width) для p = 1…n."""
    low = least(n, width)
    return low * (low + 1) // 2 + (n - low) * width


def least(a: int, b: int) -> int:
    """Меньшее; у массива numpy — поэлементно."""
    return a.clip(max=b) if hasattr(a, "clip") else min(a, b)


def anywhere(condition: object) -> bool:
    """Верно ли условие; у массива numpy — хотя бы в одной точке."""
    return bool(condition.any() if hasattr(condition, "any") else condition)


def distinct_experts(E: int, k: int, B: int) -> float:
    """Сколько разных экспертов в среднем читает шаг из B токенов при равномерной маршрутизации.

    Эксперт не нужен одному токену с вероятностью 1 − k/E, всем B — с её степенью B.
    """
    missed: float = (1 - k / E) ** B
    return E * (1 - missed)


def window_groups(spec: Spec) -> list[tuple[Factor, int | None]]:
    """Слои, собранные по ширине окна: («L», 32), None; у смешанных моделей — по группам."""
    if not isinstance(spec.window, tuple):
        return [(("L", spec.L), spec.window)]
    counts: dict[int | None, int] = {}
    for window in spec.window:
        counts[window] = counts.get(window, 0) + 1
    return [((f"L[{'всё' if w is None else w}]", layers), w) for w, layers in counts.items()]
