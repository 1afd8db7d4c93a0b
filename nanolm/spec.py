"""Геометрия модели: числа, из которых выводятся все счета.

Трансформер-декодер задаётся десятком чисел: словарь, ширина, слои, головы. Ни параметров,
ни FLOPs, ни байтов здесь нет: их даёт таблица операций (`nanolm.ops`), а `Spec` только хранит
размеры и не пропускает невозможные сочетания.

Поля названы буквами курса, остальное — словами. Класс написан без `dataclasses`: их импорт
стоит дольше, чем вся работа командной строки.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Window = int | None | tuple[int | None, ...]

#: Буквы курса: одна таблица для справки, страницы обозначений и сообщений об ошибках.
NOTATION = {
    "V": "размер словаря",
    "D": "ширина модели",
    "L": "число слоёв",
    "N": "число голов запроса",
    "K": "число голов ключа и значения",
    "H": "размер головы",
    "F": "ширина полносвязного блока (у смеси — одного эксперта)",
    "S": "длина последовательности",
    "B": "размер пакета",
    "E": "число экспертов",
    "k": "число экспертов на токен",
    "G": "число голов запроса на одну голову ключа и значения, N/K",
    "W": "ширина скользящего окна внимания",
    "C": "ширина сжатого ключа и значения (латентное внимание)",
    "Q": "ширина сжатого запроса (латентное внимание)",
    "R": "часть головы, которую вращает RoPE (латентное внимание)",
    "U": "размер головы значения (латентное внимание)",
}

#: Поля, которые обязаны быть целыми числами не меньше указанного.
_MINIMUM = {
    "V": 1, "D": 1, "L": 1, "N": 1, "K": 1, "H": 1, "F": 1, "S": 1,
    "experts": 0, "experts_per_token": 0, "shared_F": 0, "dense_layers": 0, "dense_F": 0,
    "pre_norms": 0, "learned_positions": 0, "kv_rank": 0, "q_rank": 0, "rope_H": 0, "value_H": 0,
}  # fmt: skip
_FLAGS = (
    "tie_embeddings", "router_bias", "gated_ffn", "qkv_bias", "out_bias", "ffn_bias", "qk_norm", "qk_norm_wide",
    "sinks", "norm_bias", "post_norms",
)  # fmt: skip

#: Больше не бывает ни у одной модели, а произведение шести таких чисел ещё помещается в float.
LIMIT = 10**12


def whole(field: str, value: object, minimum: int = 1, limit: int = LIMIT) -> int:
    """Проверить, что `value` — целое от `minimum` до `limit`, и вернуть его как `int`.

    Ошибки: `ValueError` с именем поля, значением и правилом.
    """
    try:
        number = None if isinstance(value, bool) else value.__index__()  # type: ignore[attr-defined]
    except (AttributeError, TypeError):  # TypeError — у дробных массивов и тензоров
        number = None
    if not isinstance(number, int):
        raise ValueError(f"{field} = {shown(value)}: нужно целое число")
    if number < minimum:
        raise ValueError(f"{field} = {shown(number)}: нужно целое число не меньше {minimum}")
    if number > limit:
        raise ValueError(f"{field} = {shown(number)}: больше предела {limit:,}".replace(",", "\u00a0"))
    return number


def shown(value: object) -> str:
    """Значение для сообщения об ошибке: коротко, каким бы длинным оно ни было."""
    if isinstance(value, int) and abs(value) >= 10**20:
        # Десятичную запись такого числа Python может и запретить.
        return f"число из {len(f'{abs(value):x}')} шестнадцатеричных цифр"
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # вложено глубже, чем умеет repr, или внутри слишком длинное число
        return f"значение вида {type(value).__name__}, которое не напечатать"
    return text if len(text) <= 60 else text[:59] + "…"


class Spec:
    """Геометрия декодера. Неизменяема, все поля только по имени.

    Обязательные: `V` словарь, `D` ширина, `L` слои, `N` головы запроса.

    По умолчанию:

    - `K` = N (обычное внимание с N головами; K < N — GQA, K = 1 — MQA);
    - `H` = D/N (если D не делится на N, `H` нужно задать);
    - `F` = 8D/3 до ближайшего целого у SwiGLU и 4D у простого блока;
    - `S` = 2048 — контекст, если счёту не передали другой.

    Смесь экспертов:

    - `experts`, `experts_per_token` — сколько всего и сколько на токен; F — ширина одного;
    - `shared_F` — общая ширина экспертов, которые работают всегда; `router_bias` — смещение маршрутизатора;
    - `dense_layers`, `dense_F` — сколько слоёв обходятся без экспертов и какой они ширины.

    Внимание:

    - `window` — скользящее окно: `None`, одно число или кортеж по слоям;
    - `qk_norm` — RMSNorm по H после проекций запроса и ключа, `qk_norm_wide` — по всей ширине N·H и K·H;
    - `sinks` — обучаемый сток внимания, число на голову (gpt-oss);
    - `kv_rank` — латентное внимание: ключ и значение сжаты до этой ширины, `rope_H` — вращаемая часть
      головы (H — остальная), `value_H` — голова значения, `q_rank` — сжатие запроса (0 — нет).

    Остальное:

    - `tie_embeddings` — выходная голова делит матрицу с эмбеддингом;
    - `gated_ffn` — SwiGLU из трёх матриц; `False` — простой блок из двух;
    - `qkv_bias`, `out_bias`, `ffn_bias` — смещения по местам;
    - `norm_bias` — LayerNorm (вес и смещение) вместо RMSNorm;
    - `pre_norms` — норм перед половинами блока: 2, 1 (общая у параллельного блока) или 0;
    - `post_norms` — ещё по норме на выходе внимания и полносвязного блока (Gemma 2 и 3, OLMo 2);
    - `learned_positions` — число обучаемых позиций (0 — RoPE, весов нет).

    Ошибки: `ValueError` называет поле, значение и правило.
    """

    __slots__ = (  # noqa: RUF023 — порядок полей здесь и есть порядок вывода
        "V", "D", "L", "N", "K", "H", "F", "S", "tie_embeddings", "experts", "experts_per_token", "shared_F",
        "dense_layers", "dense_F", "router_bias", "gated_ffn", "qkv_bias", "out_bias", "ffn_bias", "qk_norm",
        "qk_norm_wide", "sinks", "norm_bias", "pre_norms", "post_norms", "learned_positions", "window", "kv_rank",
        "q_rank", "rope_H", "value_H",
    )  # fmt: skip
    V: int
    D: int
    L: int
    N: int
    K: int
    H: int
    F: int
    S: int
    tie_embeddings: bool
    experts: int
    experts_per_token: int
    shared_F: int
    dense_layers: int
    dense_F: int
    router_bias: bool
    gated_ffn: bool
    qkv_bias: bool
    out_bias: bool
    ffn_bias: bool
    qk_norm: bool
    qk_norm_wide: bool
    sinks: bool
    norm_bias: bool
    pre_norms: int
    post_norms: bool
    learned_positions: int
    window: Window
    kv_rank: int
    q_rank: int
    rope_H: int
    value_H: int

    def __init__(
        self,
        *,
        V: int,
        D: int,
        L: int,
        N: int,
        K: int | None = None,
        H: int | None = None,
        F: int | None = None,
        S: int = 2048,
        tie_embeddings: bool = False,
        experts: int = 0,
        experts_per_token: int = 0,
        shared_F: int = 0,
        dense_layers: int = 0,
        dense_F: int = 0,
        router_bias: bool = False,
        gated_ffn: bool = True,
        qkv_bias: bool = False,
        out_bias: bool = False,
        ffn_bias: bool = False,
        qk_norm: bool = False,
        qk_norm_wide: bool = False,
        sinks: bool = False,
        norm_bias: bool = False,
        pre_norms: int = 2,
        post_norms: bool = False,
        learned_positions: int = 0,
        window: Window = None,
        kv_rank: int = 0,
        q_rank: int = 0,
        rope_H: int = 0,
        value_H: int = 0,
    ) -> None:
        given: dict[str, Any] = {name: value for name, value in locals().items() if name != "self"}
        for name in _FLAGS:
            if not isinstance(given[name], bool):
                raise ValueError(f"{name} = {shown(given[name])}: нужно True или False")
        for name in ("V", "D", "L", "N"):
            given[name] = whole(name, given[name])
        _fill_defaults(given)
        for name, minimum in _MINIMUM.items():
            given[name] = whole(name, given[name], minimum)
        given["window"] = _window(window, given["L"])
        _check_together(given)
        for name in self.__slots__:
            object.__setattr__(self, name, given[name])

    @property
    def G(self) -> int:
        """Сколько голов запроса приходится на одну голову ключа и значения."""
        return self.N // self.K

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Окно каждого слоя, кортеж длины L; `None` — слой видит весь контекст."""
        return self.window if isinstance(self.window, tuple) else (self.window,) * self.L

    def to_dict(self) -> dict[str, object]:
        """Все поля по порядку, пригодно для JSON и для `Spec(**…)`."""
        return {name: getattr(self, name) for name in self.__slots__}

    def replace(self, **changes: object) -> Spec:
        """Копия с другими полями. Значения K, H, F остаются прежними, если их не назвать."""
        for name in changes:
            if name not in self.__slots__:
                raise ValueError(f"{name}: такого поля у Spec нет; есть {', '.join(self.__slots__)}")
        return Spec(**{**self.to_dict(), **changes})  # type: ignore[arg-type]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Spec неизменяем: поле {name} задаётся при создании, копию даёт replace()")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Spec неизменяем: поле {name} нельзя удалить")

    def __iter__(self) -> Iterator[str]:
        return iter(self.__slots__)

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Spec) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.to_dict().values()))

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.to_dict(),)

    def __repr__(self) -> str:
        return f"Spec({', '.join(f'{name}={value!r}' for name, value in self.to_dict().items())})"


def _restore(fields: dict[str, object]) -> Spec:
    return Spec(**fields)  # type: ignore[arg-type]


def _fill_defaults(given: dict[str, Any]) -> None:
    """Подставить K, H и F, если их не задали."""
    D, N = given["D"], given["N"]
    if given["K"] is None:
        given["K"] = N
    if given["H"] is None:
        if D % N:
            raise ValueError(f"H не задан, а D = {D} не делится на N = {N}: задайте размер головы H")
        given["H"] = D // N
    if given["F"] is None:
        # (16D + 3) // 6 — это 8D/3, округлённое до ближайшего целого без чисел с плавающей точкой.
        given["F"] = (16 * D + 3) // 6 if given["gated_ffn"] else 4 * D


def _window(window: object, L: int) -> Window:
    """Привести окно к одному виду: одинаковые по слоям значения сворачиваются в одно."""
    if window is None:
        return None
    if not isinstance(window, (tuple, list)):
        return whole("window", window)
    if len(window) != L:
        raise ValueError(f"window: задано слоёв {len(window)}, а L = {L}; нужно по значению на слой")
    layers = tuple(None if w is None else whole(f"window[{i}]", w) for i, w in enumerate(window))
    return layers[0] if len(set(layers)) == 1 else layers


def _check_together(given: dict[str, Any]) -> None:
    """Правила, которые связывают несколько полей."""
    N, K, E, k = (given[name] for name in ("N", "K", "experts", "experts_per_token"))
    if N % K:
        raise ValueError(f"K = {K}: N = {N} должно делиться на K без остатка")
    if E == 0 and k:
        raise ValueError(f"experts_per_token = {k}: у модели без экспертов должно быть 0")
    if E and not 1 <= k <= E:
        raise ValueError(f"experts_per_token = {k}: при experts = {E} нужно от 1 до {E}")
    if given["pre_norms"] > 2:
        raise ValueError(f"pre_norms = {given['pre_norms']}: нужно 0, 1 или 2")
    if given["dense_layers"] > given["L"]:
        raise ValueError(f"dense_layers = {given['dense_layers']}: слоёв всего L = {given['L']}")
    for name, owner in _ONLY_WITH.items():
        if given[name] and not given[owner]:
            raise ValueError(f"{name} = {given[name]}: имеет смысл, только если задано поле {owner}")
    for name, owner in (("dense_F", "dense_layers"), ("rope_H", "kv_rank"), ("value_H", "kv_rank")):
        if given[owner] and not given[name]:
            raise ValueError(f"{name} не задан, а {owner} = {given[owner]}: нужно целое число не меньше 1")
    if given["kv_rank"] and N != K:
        raise ValueError(f"K = {K}: у латентного внимания голов ключа столько же, сколько запроса, N = {N}")
    if given["kv_rank"] and given["qk_norm"]:
        raise ValueError("qk_norm = True: у латентного внимания свои нормы, на сжатых векторах")


#: Поле → без какого другого поля оно ничего не значит.
_ONLY_WITH = {
    "shared_F": "experts", "dense_layers": "experts", "dense_F": "dense_layers", "router_bias": "experts",
    "qk_norm_wide": "qk_norm", "q_rank": "kv_rank", "rope_H": "kv_rank", "value_H": "kv_rank",
}  # fmt: skip
