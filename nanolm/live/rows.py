"""Счёт на странице: строка на компонент, и каждое число раскрывается в свою формулу.

Раскрывается `<details>`: он работает без скриптов, с клавиатуры и на бумаге. Что раскрыто, страница помнит по
атрибуту `data-row`.
"""

from __future__ import annotations

from html import escape

from nanolm import units
from nanolm.budget import TITLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nanolm.budget import Account, Line


def row(key: str, title: str, value: str, lines: Iterable[str], share: str = "", part: str = "") -> str:
    """Число, которое раскрывается в строки: `lines` — готовый HTML строк.

    `part` — конец класса `nanolm-part-…` для цветной метки, той же, что на графике.
    """
    mark = _mark(part) if part else ""
    cells = f'<span class="nanolm-name">{mark}{escape(title)}</span><span class="nanolm-value">{value}</span>'
    if share:
        cells += f'<span class="nanolm-share">{share}</span>'
    body = "".join(f"<li>{line}</li>" for line in lines)
    return (
        f'<details class="nanolm-row" data-row="{key}"><summary>{cells}</summary>'
        f'<ul class="nanolm-formulas">{body}</ul></details>'
    )


def plain_row(title: str, value: str, share: str = "") -> str:
    """Строка итога: раскрывать в ней нечего, она сумма остальных."""
    cells = f'<span class="nanolm-name">{escape(title)}</span><span class="nanolm-value">{value}</span>'
    if share:
        cells += f'<span class="nanolm-share">{share}</span>'
    return f'<div class="nanolm-row nanolm-sum">{cells}</div>'


def formula(line: Line) -> str:
    """Строка счёта: что это, формула буквами, она же числами, результат."""
    # Строк на странице две сотни, поэтому экранируются они за один раз.
    title, _, product = escape(f"{line.title}\n{line.letters} = {line.numbers}").partition("\n")
    return f"{title}: <code>{product} = <b>{units.number(line.value)}</b></code>"


def equation(title: str, letters: str, numbers: str, result: str) -> str:
    """То же для числа, которого нет среди строк счёта: отношения, времени."""
    return f"{escape(title)}: <code>{escape(letters)} = {escape(numbers)} = <b>{escape(result)}</b></code>"


def size(value: int) -> str:
    """Байты в строке счёта."""
    return units.binary_bytes(value)


def against(cache: int, weights: int) -> str:
    """Кеш рядом с весами, словами: долей, а когда он много больше — во сколько раз."""
    ratio = cache / weights
    if ratio < 10:
        return f"Кеш — {units.percent(ratio)} весов"
    return f"Кеш в {units.counted(ratio, 'раз', 'раза', 'раз')} больше весов"


def account(key: str, found: Account, shown: Callable[[int], str], parts: bool = False) -> str:
    """Все ненулевые компоненты счёта и итог. `parts` — поставить цветные метки."""
    total = found.total
    body = [
        row(f"{key}/{name}", TITLES[name], shown(value), map(formula, _of(found, name)), _share(value, total),
            name if parts else "")
        for name, value in found.items()
        if value
    ]  # fmt: skip
    return f'<div class="nanolm-rows">{"".join(body)}{plain_row("всего", shown(total), _share(total, total))}</div>'


def _of(found: Account, name: str) -> list[Line]:
    return [line for line in found.details if line.component == name]


def _share(value: int, total: int) -> str:
    return units.percent(value / total) if total else ""


def _mark(part: str) -> str:
    return (
        f'<svg class="nanolm-swatch" width="12" height="12" aria-hidden="true"><rect class="nanolm-part-{part}" '
        'width="12" height="12"/></svg>'
    )
