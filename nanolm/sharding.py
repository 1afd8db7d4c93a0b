"""Память одной карты, когда модель разделена между несколькими: те же строки счёта, поделённые на карты.

Обучение делят по ZeRO: карты считают разные пакеты, а состояние хранят по частям.

- «zero1» — по частям лежат состояние оптимизатора и мастер-веса;
- «zero2» — ещё и градиенты;
- «zero3» (он же FSDP) — ещё и веса; слой собирается целиком, только пока он считается.

Активации не делятся: пакет у каждой карты свой. Зато у собранного слоя есть цена: он сам, слой, который
подгружают вперёд, полный градиент слоя до раздачи и всё, что стоит вне слоёв (эмбеддинг, последняя норма,
голова), — оно собрано весь шаг. Эти строки названы `gathered_…` и складываются с пиком шага: оценка сверху.

Вывод делят тензорно: матрицы — по головам и по ширине блока, словарь — по строкам, кеш — по головам K.
Нормы, маршрутизатор и сжатый кеш латентного внимания есть на каждой карте.
"""

from __future__ import annotations

from nanolm.budget import Account, InferenceMemory, Line
from nanolm.ops import table
from nanolm.spec import Spec, shown, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

#: Ступень → (какие компоненты лежат по частям, сколько раз за шаг карта передаёт веса).
STAGES = {
    "zero1": (("master_weights", "optimizer"), 1),
    "zero2": (("master_weights", "optimizer", "gradients"), 1),
    "zero3": (("master_weights", "optimizer", "gradients", "weights"), 2),
}

#: Больше карт в одном обучении не бывает.
CARDS_LIMIT = 2**20


class Share(Line):
    """Доля строки на одной карте: остаток от деления добивают до целого, как делает сама раздача."""

    __slots__ = ("parts",)

    def __init__(self, line: Line, parts: int) -> None:
        # Не через `Line`: произведение уже посчитано, а поиск наборов делит строки миллионы раз.
        self.name, self.component, self.title = line.name, line.component, line.title
        self.factors, self.over, self.parts = line.factors, line.over, parts
        self.value = -(-line.value // parts)

    @property
    def letters(self) -> str:
        """Формула буквами и число частей."""
        return super().letters + f" / {self.parts}"

    @property
    def numbers(self) -> str:
        """Формула числами и число частей."""
        return super().numbers + f" / {self.parts}"


# --- Обучение -----------------------------------------------------------------------------------


def shard_training(account: Account, cards: int, stage: str) -> Account:
    """Счёт обучения одной карты из `cards` при ступени ZeRO.

    Ошибки: `ValueError`, если ступень неизвестна или число карт не целое и не положительное.
    """
    if stage not in STAGES:
        raise ValueError(f"stage = {shown(stage)}: нужно одно из: {', '.join(STAGES)}")
    cards = whole("cards", cards, limit=CARDS_LIMIT)
    divided = STAGES[stage][0] if cards > 1 else ()
    lines = [Share(line, cards) if line.component in divided else line for line in account.details]
    gathered = [
        *(_gathered(account, "weights", 2, "собранные веса") if "weights" in divided else ()),
        *(_gathered(account, "gradients", 1, "градиент до раздачи") if "gradients" in divided else ()),
    ]
    title = f"{account.title}, {stage} на {cards}" if cards > 1 else account.title
    return Account(title, account.unit, account, [*lines, *gathered])


def _gathered(account: Account, component: str, copies: int, title: str) -> Iterator[Line]:
    """Строки одного слоя (`copies` раз) и всего, что стоит вне слоёв: они целы, пока слой считается."""
    lines = [line for line in account.details if line.component == component]
    layers = _layer_symbols(lines)
    for line in lines:
        rest = [factor for factor in line.factors if factor[0] not in layers]
        if len(rest) == len(line.factors):
            kept = not any(symbol.startswith("L[") for symbol, _ in line.factors)
            factors = rest if kept else []
        else:
            factors = [(str(copies), copies), *rest] if copies > 1 else rest
        if factors:
            yield Line(f"gathered_{component}_{line.name}", "workspace", f"{title}: {line.title}", factors)


def _layer_symbols(lines: list[Line]) -> set[str]:
    """Множители слоёв одного, самого тяжёлого слоя: общий «L» и, если виды слоёв разные, один вид."""
    kinds: dict[str, int] = {}
    for line in lines:
        for symbol, layers in line.factors:
            if symbol.startswith("L["):
                kinds[symbol] = kinds.get(symbol, 0) + line.value // int(layers)
    heaviest = [max(kinds, key=lambda name: kinds[name])] if kinds else []
    return {"L", *heaviest}


def traffic_bytes(account: Account, cards: int, stage: str) -> int:
    """Сколько байтов за шаг передаёт каждая карта (и столько же принимает), если обмен идёт по кольцу.

    Раздача градиентов — раз, сбор весов — раз, а у «zero3» два: в прямом и в обратном проходе.
    """
    moved = account["gradients"] + STAGES[stage][1] * account["weights"]
    return moved * (cards - 1) // cards


# --- Вывод --------------------------------------------------------------------------------------

#: Строки, которые есть на каждой карте целиком: их выход нужен всем. У смещений после сложения — тоже.
_REPLICATED = ("positions", "router", "query_down", "kv_down", "output_bias", "down_bias")


def tensor_parallel_cards(spec: Spec, limit: int) -> list[int]:
    """На сколько карт делится вывод поровну: делители N, которые делят K или сами делятся на K."""
    return [
        cards
        for cards in range(1, min(limit, spec.N) + 1)
        if spec.N % cards == 0 and (spec.K % cards == 0 or cards % spec.K == 0)
    ]


def shard_inference(account: InferenceMemory, spec: Spec, cards: int) -> InferenceMemory:
    """Счёт вывода одной карты из `cards` при тензорном делении.

    Ошибки: `ValueError`, если на столько карт головы не делятся поровну.
    """
    cards = whole("cards", cards, limit=CARDS_LIMIT)
    if cards not in tensor_parallel_cards(spec, cards):
        allowed = ", ".join(map(str, tensor_parallel_cards(spec, spec.N)))
        raise ValueError(f"cards = {cards}: головы N = {spec.N}, K = {spec.K} делятся поровну на {allowed}")
    if cards == 1:
        return account
    whole_rows = {op.name for op in table(spec) if op.component in ("norms", "router") or _shared_by_all(op.name)}
    parts = {"kv_cache": min(cards, spec.K), "weights": cards}

    def share(line: Line) -> Line:
        if line.name in whole_rows:
            return line
        narrow = line.name in ("key", "value", "key_bias", "value_bias")
        return Share(line, min(cards, spec.K) if narrow else parts[line.component])

    buffers = [line if line.name in ("stream", "normed", "logits") else Share(line, cards) for line in account.buffers]
    return InferenceMemory(f"{account.title}, на {cards}", [share(line) for line in account.details], buffers)


def _shared_by_all(name: str) -> bool:
    return name in _REPLICATED or name.endswith("down_bias")
