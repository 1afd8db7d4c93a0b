"""Независимые ответы тренажёра: учебник, а не счёт.

Оракул читает задачу, как её читает учащийся: только условие и таблицу данных. Поэтому он проверяет сразу и ответ,
и то, что данных для него хватает. Из `nanolm` не берётся ничего.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanolm.interview import Problem

NBSP = "\u00a0"
DAY = 86_400
UNITS = {
    "тыс.": 1e3, "млн": 1e6, "млрд": 1e9, "трлн": 1e12, "%": 0.01,
    "КиБ": 2**10, "МиБ": 2**20, "ГиБ": 2**30, "Б": 1, "ГБ/с": 1e9,
    "TFLOP/s": 1e12, "PFLOP/s": 1e15, "слой": 1, "слоя": 1, "слоёв": 1,
}  # fmt: skip


def number(text: str) -> float:
    """«8 030», «8,03 млрд», «989,5 TFLOP/s» → число."""
    found = re.fullmatch(rf"([\d{NBSP}]*\d(?:,\d+)?)(?:{NBSP}(\D+))?", text)
    assert found, text
    return float(found[1].replace(NBSP, "").replace(",", ".")) * (UNITS[found[2]] if found[2] else 1)


class Data:
    """Таблица данных: буква → число, подпись без буквы → значение."""

    def __init__(self, problem: Problem) -> None:
        self.text = problem.text
        self.letters = {letter: number(value) for letter, _, value in problem.given if letter}
        self.titles = {title: value for letter, title, value in problem.given if not letter}

    def __getattr__(self, letter: str) -> float:
        return self.letters.get(letter, 0)

    def about(self, part: str) -> float:
        """Число из строки, в подписи которой есть эти слова; нет строки — 0."""
        return next((number(value) for title, value in self.titles.items() if part in title), 0)

    def find(self, pattern: str) -> float:
        """Целое из условия."""
        found = re.search(pattern, self.text)
        assert found, (pattern, self.text)
        return float(found[1].replace(NBSP, ""))

    @property
    def size(self) -> int:
        """Байт на значение."""
        if "по одному байту" in self.text:
            return 1
        return int(self.find(rf"по ([24]){NBSP}байта"))

    @property
    def tables(self) -> int:
        return 1 if self.titles.get("эмбеддинг и выходная голова") == "одна матрица" else 2


def layer(d: Data) -> float:
    """Внимание одного слоя."""
    if not d.C:
        return 2 * d.D * d.H * (d.N + d.K)
    query = d.Q * (d.D + d.N * (d.H + d.R)) if d.Q else d.D * d.N * (d.H + d.R)
    return query + d.D * (d.C + d.R) + d.C * d.N * (d.H + d.U) + d.N * d.U * d.D


def params(d: Data, title: str) -> float:
    if title == "Параметры слоёв":
        return 12 * d.L * d.D**2
    if title == "Таблицы словаря":
        return 2 * d.V * d.D
    if title == "Латентное внимание":
        return d.L * layer(d)
    stack = d.L * (layer(d) + 3 * d.D * d.F)
    return stack if title == "Параметры для правила 6N" else stack + d.tables * d.V * d.D


def moe(d: Data, title: str) -> float:
    count = d.k if "активных параметров, тех" in d.text else d.E
    expert = 3 * d.D * d.F
    if "в экспертах всех слоёв" in d.text:
        return d.L * count * expert
    dense = d.about("плотные слои")
    mixed = (d.L - dense) * (count * expert + 3 * d.D * d.about("общий эксперт") + d.D * d.E)
    return d.tables * d.V * d.D + d.L * layer(d) + mixed + dense * 3 * d.D * d.about("ширина плотного")


def token_values(d: Data) -> float:
    """Чисел кеша на токен во всех слоях, в пересчёте на полный контекст; окно учитывает `cache`."""
    if "Сжатием не пользуются" in d.text:
        return d.L * d.N * (d.H + d.R + d.U)
    return d.L * (d.C + d.R) if d.C else 2 * d.L * d.K * d.H


def cache(d: Data, B: float, S: float, full: float | None = None) -> float:
    """Байты кеша; `full` — сколько слоёв видят весь контекст, если не все."""
    size = 2 if "bf16" in d.text else d.size
    if full is None:
        return B * S * token_values(d) * size
    return B * 2 * d.K * d.H * size * (full * S + (d.L - full) * min(S, d.W))


def kv(d: Data, title: str) -> float:
    if "каждый новый токен" in d.text:
        return cache(d, 1, 1)
    full = None
    if d.W and "резервирует весь контекст" not in d.text:
        full = d.find(r"(\d+)\s(?:слой|слоя|слоёв) вид")
    return cache(d, d.B, d.S, full)


def crossover(d: Data, title: str) -> float:
    token = d.about("кеш KV одного токена")
    one = token * d.S if token else cache(d, 1, d.S, d.about("видят весь контекст") if d.W else None)
    return 2 * d.P / one


def fit(d: Data, title: str) -> float:
    return d.P * d.size + (d.B * d.S * 2 * d.L * d.K * d.H * d.size if d.L else 0)


def room(d: Data) -> float:
    return d.about("доступная память")


def memory(d: Data, title: str) -> float:
    if "ZeRO" in d.text:
        cards, stage = d.about("карт"), d.find(r"ZeRO-(\d)")
        return d.P * (2 / (cards if stage == 3 else 1) + 2 / (cards if stage >= 2 else 1) + 12 / cards)
    recipes = {"смешанная": (8, 4), "чистая fp32": (8, 4), "чистая bf16": (4, 2), "autocast": (8, 4)}
    states, moment = next(value for name, value in recipes.items() if name in d.text)
    count = next(value for name, value in (("AdamW", 2), ("с моментом", 1), ("без момента", 0)) if name in d.text)
    return d.P * (states + count * moment)


def per_token(d: Data) -> float:
    """FLOPs обучения на токен: веса, внимание, голова."""
    used = (d.k * 3 * d.D * d.F + d.D * d.E) if d.E else 3 * d.D * d.F
    keys = (d.S + 1) / 2 if "причинной маской" in d.text else d.S
    return 6 * d.L * (layer(d) + used) + 12 * d.L * d.N * d.H * keys + 6 * d.V * d.D


def flops(d: Data, title: str) -> float:
    if title == "FLOPs прямого прохода":
        return 2 * d.Nпар
    return 6 * d.Nпар * d.about("токенов обучения") if d.Nпар else per_token(d)


def days(d: Data, title: str) -> float:
    work = 6 * d.Nпар if d.Nпар else per_token(d)
    gpus = next(number(value) for title, value in d.titles.items() if title == "карт")
    return work * d.about("токенов обучения") / (gpus * d.about("плотный пик") * d.MFU)


def decode(d: Data, title: str) -> float:
    read = d.about("читает шаг")
    if d.E:
        B = d.B
        read += d.E * (1 - (1 - d.k / d.E) ** B) * d.about("у одного эксперта")
    held = 2 * d.B * d.S * d.L * d.K * d.H if d.L else 0
    return 2 * (read + held) / d.about("полоса памяти")


ORACLES = {
    "params": params, "moe": moe, "kv": kv, "crossover": crossover, "fit": fit, "memory": memory, "flops": flops,
    "days": days, "decode": decode,
}  # fmt: skip


def expected(problem: Problem) -> float:
    """Ответ из учебника, в основных единицах."""
    return ORACLES[problem.kind](Data(problem), problem.title)
