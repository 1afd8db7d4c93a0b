"""Модели и карты для задач: круглые — чтобы считать в уме, настоящие — чтобы узнавать.

Настоящая модель — либо пресет из `nanolm.zoo`, либо геометрия того же склада: пресетов на бесконечный тренажёр не
хватит, а размеры у моделей одного поколения похожи.
"""

from __future__ import annotations

from nanolm import units
from nanolm.hardware import gpu
from nanolm.interview.problem import short
from nanolm.interview.quantity import trimmed
from nanolm.ops import multiply
from nanolm.spec import NOTATION, Spec
from nanolm.units import NBSP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from nanolm.budget import Line
    from nanolm.hardware import Gpu
    from nanolm.interview.draw import Dice
    from nanolm.ops import Factor

    #: Название модели, как его вставить во фразу после слова «модель»; пустое — у выдуманной. И её геометрия.
    Named = tuple[str, Spec]

#: Плотные модели без окон: у кеша и параметров нет оговорок.
DENSE = (
    "llama-2-7b", "llama-2-13b", "llama-2-70b", "llama-3-8b", "llama-3-70b", "llama-3.2-1b", "llama-3.2-3b",
    "tinyllama-1.1b", "smollm2-1.7b", "mistral-7b-v0.3", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b",
    "qwen3-32b", "smollm3-3b",
)  # fmt: skip
MIXTURES = ("mixtral-8x7b", "qwen3-30b-a3b")
WITH_SHARED = ("deepseek-v2-lite", "deepseek-v3")
WINDOWED = ("gemma-2-2b", "gemma-2-9b", "gemma-3-1b", "gemma-3-4b", "gemma-3-12b")

#: Карты, о которых спрашивают: обучение и вывод.
TRAINING_CARDS = ("a100-80", "h100-sxm", "h200", "b200")
SERVING_CARDS = ("l4", "rtx-4090", "rtx-5090", "a100-40", "l40s", "a100-80", "h100-sxm", "h200")

_VOCABULARIES = (32_000, 32_768, 50_304, 65_536, 100_352, 128_256, 151_936)


#: Разобранные пресеты: файл с ними читается раз, а не на каждую задачу.
_known: dict[str, Named] = {}


def preset(dice: Dice, names: tuple[str, ...]) -> Named:
    """Известная модель из списка."""
    if not _known:
        from nanolm import zoo

        _known.update(
            (name, (entry["title"], zoo.from_config(entry["config"]))) for name, entry in zoo.presets().items()
        )
    return _known[dice.choice(names)]


def classic(dice: Dice, S: int = 2048) -> Named:
    """Круглая модель без GQA: NH = KH = D, F = 4D, две матрицы в полносвязном блоке. Для неё и верно 12LD²."""
    D = dice.choice((1024, 2048, 4096, 8192))
    layers = dice.choice((8, 10, 16, 20, 24, 30, 32, 40, 48, 64, 80))
    spec = Spec(V=dice.choice((32_000, 50_000, 64_000, 100_000)), D=D, L=layers, N=D // 128, S=S, gated_ffn=False)
    return "", spec


def dense(dice: Dice, gqa: bool = False) -> Named:
    """Плотная модель с SwiGLU: пресет или похожая; `gqa` — обязательно K < N."""
    while True:
        title, spec = preset(dice, DENSE) if dice.below(2) else ("", Spec(**_llama_like(dice)))
        if spec.K < spec.N or not gqa:
            return title, spec


def _llama_like(dice: Dice) -> dict[str, Any]:
    D = dice.choice((2048, 2560, 3072, 3584, 4096, 5120, 6144, 8192))
    H = 64 if D < 3000 and dice.below(2) else 128
    N = D // H
    K = dice.choice([K for K in (1, 2, 4, 8, 16) if K < N and N % K == 0])
    thirds = dice.choice((8, 9, 10, 11, 12))  # F от 8D/3 до 4D
    return {
        "V": dice.choice(_VOCABULARIES), "D": D, "L": 2 * (8 + dice.below(33)), "N": N, "K": K, "H": H,
        "F": 256 * round(thirds * D / 768), "S": 1024 * dice.choice((4, 8, 16, 32)), "tie_embeddings": D < 3000,
    }  # fmt: skip


def mixture(dice: Dice) -> Named:
    """Смесь экспертов без общих и плотных слоёв."""
    if dice.below(3) == 0:
        return preset(dice, MIXTURES)
    size = _llama_like(dice)
    E, k = dice.choice(((8, 2), (16, 2), (16, 4), (32, 4), (64, 4), (64, 8), (128, 8)))
    # Эксперт уже плотного блока во столько раз, чтобы на токен работа осталась прежней.
    width = max(256, 256 * round(int(size["F"]) / (256 * k) * dice.choice((1, 1.5, 2))))
    return "", Spec(**{**size, "F": width, "experts": E, "experts_per_token": k, "tie_embeddings": False})


def shared_mixture(dice: Dice) -> Named:
    """Смесь с общим экспертом и плотными слоями впереди, внимание обычное; или настоящая, с латентным."""
    if dice.below(4) == 0:
        return preset(dice, WITH_SHARED)
    _, spec = mixture_of_many(dice)
    dense_layers = 1 + dice.below(4)
    width = spec.F * (spec.experts_per_token + 1)
    return "", spec.replace(shared_F=spec.F * dice.choice((1, 2)), dense_layers=dense_layers, dense_F=width)


def mixture_of_many(dice: Dice) -> Named:
    """Смесь из многих мелких экспертов."""
    size = _llama_like(dice)
    E, k = dice.choice(((32, 4), (64, 6), (64, 8), (128, 8), (160, 6)))
    width = max(256, 128 * round(int(size["F"]) / (128 * k)))
    return "", Spec(**{**size, "F": width, "experts": E, "experts_per_token": k, "tie_embeddings": False})


def windowed(dice: Dice) -> Named:
    """Модель, у которой часть слоёв видит только W последних токенов."""
    if dice.below(3) == 0:
        return preset(dice, WINDOWED)
    spec = Spec(**_llama_like(dice))
    every, W = dice.choice((2, 3, 4, 6)), dice.choice((512, 1024, 2048, 4096))
    return "", spec.replace(window=tuple(None if (i + 1) % every == 0 else W for i in range(spec.L)), S=131_072)


def latent(dice: Dice) -> Named:
    """Латентное внимание, полносвязные блоки обычные; или DeepSeek."""
    if dice.below(3) == 0:
        return preset(dice, WITH_SHARED)
    size = _llama_like(dice)
    N = dice.choice((16, 32, 64, 128))
    return "", Spec(
        **{**size, "N": N, "K": N, "H": 128}, kv_rank=dice.choice((256, 512)), rope_H=dice.choice((32, 64)),
        value_H=128, q_rank=dice.choice((0, 1024, 1536)),
    )  # fmt: skip


def card(dice: Dice, names: tuple[str, ...]) -> Gpu:
    """Карта из списка."""
    return gpu(dice.choice(names))


# --- Слова условия ------------------------------------------------------------------------------

Given = tuple[str, str, str]


def about(title: str) -> str:
    """Начало условия, когда размеры модели нужны."""
    return f"Модель {title}." if title else "Размеры модели — в таблице."


def about_count(title: str, total: int) -> str:
    """Начало условия, когда от модели нужно одно число."""
    return f"Модель {title}." if title else f"Модель на {short(total)} параметров."


def sequences(B: int, S: int) -> str:
    """Чей кеш: «8 последовательностей по 16 384 токена» или «последовательности из 4096 токенов»."""
    if B == 1:
        return f"последовательности из {units.counted(S, 'токена', 'токенов', 'токенов')}"
    count = units.counted(B, "последовательности", "последовательностей", "последовательностей")
    return f"{count} по {units.counted(S, 'токену', 'токена', 'токенов')}"


def together(B: int, S: int) -> str:
    """С чем вместе: «с кешем 8 последовательностей по 16 384 токена»."""
    return f"с кешем {sequences(B, S)}"


def given(spec: Spec, letters: str) -> list[Given]:
    """Строки таблицы по буквам: (буква, что это, значение)."""
    values = {
        "E": spec.experts, "k": spec.experts_per_token, "C": spec.kv_rank, "Q": spec.q_rank, "R": spec.rope_H,
        "U": spec.value_H,
    }  # fmt: skip
    found = []
    for letter in letters:
        value = values[letter] if letter in values else getattr(spec, letter)
        if value:
            found.append((letter, _meaning(letter, spec), units.number(value)))
    return found


def _meaning(letter: str, spec: Spec) -> str:
    """Что значит буква в этой задаче: пояснение в скобках из обозначений здесь лишнее."""
    return "ширина одного эксперта" if letter == "F" and spec.experts else NOTATION[letter].partition(" (")[0]


def token_batch(B: int, S: int) -> list[Given]:
    """Пакет и длина."""
    return [("B", NOTATION["B"], units.number(B)), ("S", NOTATION["S"], units.number(S))]


def tied(spec: Spec) -> Given:
    """Связаны ли эмбеддинги: от этого зависит, одна таблица словаря или две."""
    return ("", "эмбеддинг и выходная голова", "одна матрица" if spec.tie_embeddings else "две матрицы")


def blocks(spec: Spec) -> Given:
    """Из скольких матриц состоит полносвязный блок."""
    return ("", "полносвязный блок", "SwiGLU, три матрицы" if spec.gated_ffn else "простой, две матрицы")


def card_rows(one: Gpu, *what: str) -> list[Given]:
    """Числа карты: «memory», «bandwidth», «rate»."""
    rate = one.rate(one.best_16bit)
    known = {
        "memory": ("доступная память карты", f"{units.gib(one.usable_bytes, 1)}"),
        "bandwidth": ("полоса памяти", f"{units.number(round(one.bandwidth_bytes_per_s / units.GB))}{NBSP}ГБ/с"),
        "rate": (f"плотный пик, {one.best_16bit}", trimmed(units.prefixed(rate, "FLOP/s", 4))),
    }
    return [("", f"{one.title}: {title}", value) for title, value in (known[name] for name in what)]


# --- Правка строк счёта -------------------------------------------------------------------------


def edited(lines: Iterable[Line], drop: tuple[str, ...] = (), swap: dict[str, float] | None = None) -> float:
    """Сумма строк, в которых множители с этими буквами выброшены или заменены: так и выглядит ошибка."""
    changed = {**dict.fromkeys(drop, 1), **(swap or {})}
    total: float = 0
    for line in lines:
        factors: list[Factor] = [(letter, changed.get(letter, value)) for letter, value in line.factors]
        total += multiply(factors) / line.over
    return total


def component(lines: Iterable[Line], *names: str) -> list[Line]:
    """Строки этих компонентов."""
    return [line for line in lines if line.component in names]


def value(lines: Iterable[Line]) -> int:
    """Сумма строк."""
    return sum(line.value for line in lines)
