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
    `dtype` — «compute» (точность вычислений), «stream» (остаточный поток: fp32 при autocast)
    или «fp32». `saved` — держит autograd; `counted` — входит в учебный подсчёт «все промежуточные
    тензоры блока». `only` — лишь при этом виде внимания. `core` — ядро внимания: его пересчитывает
    выборочный чекпоинтинг. `entry` — вход блока: он остаётся и при полном. `copies` — сколько копий
    появляется при autocast, где каждая матрица приводит свой вход к bf16 сама.
    """

    __slots__ = ("axes", "copies", "core", "counted", "dtype", "entry", "name", "only", "saved")

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
        copies: int = 1,
    ) -> None:
        self.name, self.axes, self.dtype = name, axes, dtype
        self.saved, self.counted, self.only = saved, counted, only
        self.core, self.entry, self.copies = core, entry, copies


class Op:
    """Строка таблицы: операция, её вес, её тензоры.

    `product` — einsum («btd,dnh->btnh») или пусто; `weight` — оси веса, запятая разделяет измерения
    хранимого тензора («nh,d» — матрица [N·H, D]); `layers` — в скольких слоях стоит операция;
    `expert` — веса хранятся E раз, токен проходит k; `shared` — вес уже хранит другая строка;
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


def _norm(spec: Spec, name: str, title: str, place: str, layers: int, source: Tensor, copies: int) -> Iterator[Op]:
    """Нормировка: сама, её смещение у LayerNorm и тензоры: вход, статистики строк, выход."""
    inner = bool(layers)
    keeps = [source, Tensor("rstd", "", dtype="fp32", counted=False)]
    if spec.norm_bias:
        keeps.append(Tensor("mean", "", dtype="fp32", counted=False))
    keeps.append(Tensor("normed", "d", counted=inner, copies=copies))
    layers = layers or 1
    yield Op(name, "norms", title, weight="d", param=f"{place}.weight", layers=layers, keeps=tuple(keeps))
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
    yield from _norm(spec, "attention_norm", "норма перед вниманием", "layers.{i}.attention_norm", L, entry, 3)
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
    yield Op(
        "scores", "scores", "оценки: запрос на ключ", product="btnh,bsnh->btns", layers=L, pairs=True,
        keeps=(
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


def _feed_forward(spec: Spec) -> Iterator[Op]:
    L, here, moe = spec.L, "layers.{i}.ffn", bool(spec.experts)
    entry = Tensor("residual", "d", dtype="stream")
    yield from _norm(spec, "ffn_norm", "норма перед полносвязным блоком", "layers.{i}.ffn_norm", L, entry, 2)
    if moe:
        yield Op(
            "router", "router", "маршрутизатор", product="btd,de->bte", weight="e,d", param=f"{here}.router.weight",
            layers=L, keeps=(Tensor("router_probabilities", "e", counted=False),),
        )  # fmt: skip
    row = {"layers": L, "expert": moe}
    names = (("gate", "ворота"), ("up", "расширение")) if spec.gated_ffn else (("up", "расширение"),)
    stored = "e,f,d" if moe else "f,d"
    for name, title in names:
        yield from _linear(
            name, "ffn", title, spec.ffn_bias, "e,f" if moe else "f", product="btd,df->btf", weight=stored,
            param=f"{here}.{name}.weight", keeps=(Tensor(name, "f"),), **row,
        )  # fmt: skip
    activated = (Tensor("activated", "f"), Tensor("product", "f")) if spec.gated_ffn else (Tensor("activated", "f"),)
    yield from _linear(
        "down", "ffn", "сжатие", spec.ffn_bias, "e,d" if moe else "d", product="btf,fd->btd",
        weight="e,d,f" if moe else "d,f", param=f"{here}.down.weight", keeps=activated, **row,
    )  # fmt: skip


def _exit(spec: Spec) -> Iterator[Op]:
    entry = Tensor("final_input", "d", dtype="stream", counted=False)
    yield from _norm(spec, "norm", "последняя норма", "norm", 0, entry, 1)
    yield Op(
        "lm_head", "lm_head", "выходная голова", product="btd,dv->btv", weight="v,d", param="head.weight",
        shared=spec.tie_embeddings,
        keeps=(Tensor("logits", "v"), Tensor("log_probabilities", "v", dtype="fp32")),
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


def weight_factors(op: Op, spec: Spec) -> list[Factor]:
    """Множители числа хранимых параметров строки."""
    return layer_factor(op, spec) + axis_factors(op.weight, spec)


def used_weight_factors(op: Op, spec: Spec, used: Factor) -> list[Factor]:
    """То же, но вместо всех E экспертов — `used`: k для одного токена, различные — для пакета."""
    return [used if op.expert and symbol == "E" else (symbol, size) for symbol, size in weight_factors(op, spec)]


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
            shapes[op.param.replace("{i}", str(i))] = shape
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
