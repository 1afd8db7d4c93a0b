"""Итог проверки и подсказка: для человека, для блокнота и для страницы.

Текст учащегося (имена, строки кода, напечатанное) попадает в HTML только через экранирование.
"""

from __future__ import annotations

from html import escape
from typing import Any, NamedTuple

#: Четыре исхода и слово для каждого.
STATUSES = {"correct": "Верно", "wrong": "Неверно", "not_started": "Ещё не начато", "error": "Ошибка"}


class Finding(NamedTuple):
    """Что нашла диагностика: постоянный id ошибки, что она значит и куда смотреть."""

    id: str | None
    meaning: str
    hint: str = ""


class Result(NamedTuple):
    """Итог проверки.

    `status` — "correct", "wrong", "not_started" или "error"; `misconception` — id названной ошибки или None;
    `message` — что произошло, `advice` — куда смотреть. `input`, `got`, `expected` — первая несовпавшая точка,
    `line` и `source` — строка учащегося, где возникло исключение, `printed` — что напечатала функция.
    `passed` из `total` — сколько точек совпало; `seed` воспроизводит случайные точки.
    """

    id: str
    title: str
    status: str
    message: str
    misconception: str | None = None
    advice: str = ""
    input: str = ""
    got: str = ""
    expected: str = ""
    line: int | None = None
    source: str = ""
    printed: str = ""
    passed: int = 0
    total: int = 0
    seed: int | None = None

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Подписанные строки под сообщением; пустые пропущены."""
        where = f"{self.line}: {self.source}" if self.source else str(self.line or "")
        rows = (
            ("Вход", self.input),
            ("Получено", self.got),
            ("Ожидалось", self.expected),
            ("Ваша строка", where),
            ("Напечатано", self.printed),
        )
        return tuple((name, text) for name, text in rows if text)

    @property
    def heading(self) -> str:
        """«Неверно: 7.2/flops, FLOPs обучения»."""
        return f"{STATUSES[self.status]}: {self.id}" + (f", {self.title}" if self.title else "")

    def __bool__(self) -> bool:
        """`assert check(...)` проходит только при верном ответе."""
        return self.status == "correct"

    def to_dict(self) -> dict[str, Any]:
        """Всё для страницы, пригодно для JSON."""
        return {**self._asdict(), "heading": self.heading, "text": str(self)}

    def __str__(self) -> str:
        width = max((len(name) for name, _ in self.facts), default=0) + 1
        rows = [f"  {name + ':':<{width}} {_indented(text, width + 3)}" for name, text in self.facts]
        return "\n".join(filter(None, [self.heading, self.message, *rows, self.advice]))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th scope="row">{escape(name)}</th><td><code>{_lines(text)}</code></td></tr>'
            for name, text in self.facts
        )
        table = f"<table>{rows}</table>" if rows else ""
        advice = f'<p class="nanolm-advice">{escape(self.advice)}</p>' if self.advice else ""
        return (
            f'<div class="nanolm-check nanolm-check-{self.status.replace("_", "-")}" role="status">'
            f"<p><strong>{escape(self.heading)}</strong></p><p>{_lines(self.message)}</p>{table}{advice}</div>"
        )


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def _indented(text: str, width: int) -> str:
    return text.replace("\n", "\n" + " " * width)


def bad_seed(id_: str, title: str, got: str) -> Result:
    """Зерно случайных точек — не целое число."""
    message = f"Зерно seed — целое число, а получено: {got}."
    return Result(id_, title, "error", message, "bad-seed", "Зерно прошлой проверки лежит в её итоге: Result.seed.")


class Hint(NamedTuple):
    """Одна подсказка из лесенки: `level` из `total`."""

    id: str
    level: int
    total: int
    message: str

    def to_dict(self) -> dict[str, Any]:
        """Всё для страницы, пригодно для JSON."""
        return {**self._asdict(), "text": str(self)}

    def __str__(self) -> str:
        return (f"Подсказка {self.level} из {self.total}: " if self.total else "") + self.message

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f'<div class="nanolm-hint" role="note"><p>{escape(str(self))}</p></div>'


def bad_level(id_: str, total: int, got: str) -> Hint:
    """Номер подсказки — не целое число."""
    return Hint(id_, 0, 0, f"Номер подсказки level — целое число от 1 до {total}, а получено: {got}.")
