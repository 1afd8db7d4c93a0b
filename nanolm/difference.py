"""Разница двух счетов построчно: почему стало на три гибибайта больше.

Строки сводятся по компоненту и имени, самая большая разница — первой; сумма строк равна разнице итогов.
У каждой строки причина: какие множители формулы изменились и как.
"""

from __future__ import annotations

from nanolm import units
from nanolm.budget import TITLES, Account, InferenceMemory, Line, html_table, text_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from nanolm.summary import Question

#: Компонент, которого в счёте нет, но который входит в пик вывода.
_TITLES = {**TITLES, "buffers": "рабочие буферы вывода"}


class DifferenceRow:
    """Строка разницы: `.a`, `.b` — было и стало, `.value` — на сколько больше, `.reason` — что изменилось."""

    __slots__ = ("a", "b", "component", "name", "reason", "title")

    def __init__(self, before: list[Line], after: list[Line]) -> None:
        first = (after or before)[0]
        self.component, self.name, self.title = first.component, first.name, first.title
        self.a, self.b = (sum(line.value for line in lines) for lines in (before, after))
        self.reason = _reason(before, after)

    @property
    def value(self) -> int:
        """На сколько больше."""
        return self.b - self.a

    def __repr__(self) -> str:
        return f"DifferenceRow({self.component}/{self.name}: {self.value:+d}, {self.reason})"


class Difference:
    """Разница двух счетов одного вида.

    `.a`, `.b` — счета; `.total` — на сколько второй больше; `.components` — то же по компонентам;
    `.rows` — строки, которые различаются, от больших к малым.
    """

    def __init__(self, a: Account, b: Account) -> None:
        if (a.unit, tuple(a)) != (b.unit, tuple(b)):
            raise ValueError(f"счета разного вида: «{a.title}» ({', '.join(a)}) и «{b.title}» ({', '.join(b)})")
        self.a, self.b, self.unit = a, b, a.unit
        before, after = _by_name(_lines(a)), _by_name(_lines(b))
        keys = dict.fromkeys((*before, *after))
        rows = [DifferenceRow(before.get(key, []), after.get(key, [])) for key in keys]
        self.rows = tuple(sorted((row for row in rows if row.value), key=lambda row: -abs(row.value)))

    @property
    def total(self) -> int:
        """На сколько второй счёт больше первого; у вывода — по пику."""
        return sum(row.value for row in self.rows)

    @property
    def components(self) -> dict[str, int]:
        """Разница по компонентам, от больших к малым."""
        found: dict[str, int] = {}
        for row in self.rows:
            found[row.component] = found.get(row.component, 0) + row.value
        return dict(sorted(found.items(), key=lambda item: -abs(item[1])))

    def to_dict(self) -> dict[str, object]:
        """Для JSON."""
        return {
            "unit": self.unit,
            "difference": self.total,
            "components": self.components,
            "rows": [
                {
                    "component": row.component, "name": row.name, "title": row.title, "a": row.a, "b": row.b,
                    "difference": row.value, "reason": row.reason,
                }
                for row in self.rows
            ],
        }  # fmt: skip

    def _shown(self, value: int) -> str:
        sign = "+" if value > 0 else "−" if value < 0 else ""
        if self.unit == "байт":
            return sign + units.binary_bytes(abs(value))
        return sign + units.number(abs(value))

    def _table(self) -> list[tuple[str, ...]]:
        body = [(f"{_TITLES[row.component]}: {row.title}", self._shown(row.value), row.reason) for row in self.rows]
        return [*body, ("всего", self._shown(self.total), "")]

    def _head(self) -> tuple[str, ...]:
        return ("строка", f"разница, {self.unit}", "причина")

    def __str__(self) -> str:
        if not self.rows:
            return f"{self.b.title}: разницы нет"
        title = self.b.title if self.a.title == self.b.title else f"{self.a.title} → {self.b.title}"
        # Разница вывода — по пику: рабочие буферы тоже занимают карту.
        title += ", вместе с рабочими буферами" if isinstance(self.b, InferenceMemory) else ""
        return f"{title}\n{text_table(self._head(), self._table())}"

    def _repr_html_(self) -> str:
        return html_table(self._head(), self._table())


def diff(a: Account | Question, b: Account | Question) -> Difference | dict[str, Difference]:
    """Почему `b` больше `a`: построчно, самое большое первым.

    Два счёта одного вида дают `Difference`, два вопроса (`nanolm.summary.Question`) — словарь разниц всех их
    счетов: «parameters», «flops», «kv_cache», «inference», «training».

    Ошибки: `ValueError`, если счета разного вида.
    """
    if isinstance(a, Account) and isinstance(b, Account):
        return Difference(a, b)
    if isinstance(a, Account) or isinstance(b, Account):
        raise ValueError("сравнить можно два счёта или два вопроса, а здесь счёт и вопрос")
    names = ("parameters", "flops", "kv_cache", "inference", "training")
    return {name: Difference(getattr(a, name), getattr(b, name)) for name in names}


def _lines(account: Account) -> tuple[Line, ...]:
    """Строки счёта; у вывода и рабочие буферы: разница пика важнее разницы суммы."""
    return (*account.details, *account.buffers) if isinstance(account, InferenceMemory) else account.details


def _by_name(lines: Iterable[Line]) -> dict[tuple[str, ...], list[Line]]:
    found: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        found.setdefault((line.component, line.name, line.title), []).append(line)
    return found


def _reason(before: list[Line], after: list[Line]) -> str:
    """Какие множители изменились: «B 1 → 8». Если формула другая — обе записи."""
    if not before:
        return "новая: " + " + ".join(line.letters for line in after)
    if not after:
        return "больше нет"
    changed: dict[str, None] = {}
    same = [_symbols(line) for line in before] == [_symbols(line) for line in after]
    for old, new in zip(before, after, strict=True) if same else ():
        for (symbol, was), (_, now) in zip(old.factors, new.factors, strict=True):
            if was != now:
                changed[f"{symbol} {was} → {now}"] = None
    if changed:
        return ", ".join(changed)
    return " + ".join(line.letters for line in before) + " → " + " + ".join(line.letters for line in after)


def _symbols(line: Line) -> list[str]:
    return [symbol for symbol, _ in line.factors]
