"""Список моделей для форм живых частей: прочитан один раз, разобран по мере надобности."""

from __future__ import annotations

from nanolm import zoo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from nanolm.live.form import Options
    from nanolm.spec import Spec
    from nanolm.zoo import Described

_entries: dict[str, Any] = {}
_described: dict[str, Described] = {}


def entries() -> Mapping[str, Mapping[str, Any]]:
    """Имя модели → её запись в models.toml."""
    if not _entries:
        _entries.update(zoo.presets())
    return _entries


def title(name: str) -> str:
    """Название модели; у незнакомого имени — оно само."""
    entry = entries().get(name)
    return name if entry is None else str(entry["title"])


def spec(name: str) -> Spec:
    """Геометрия модели из списка.

    Ошибки: `ValueError` с похожими именами, если такой нет.
    """
    return describe(name).spec


def describe(name: str) -> Described:
    """Модель из списка вместе с семейством. Ошибки: те же, что у `spec`."""
    if name not in _described:
        entry = entries().get(name)
        _described[name] = zoo.describe_preset(name) if entry is None else zoo.describe(entry["config"])
    return _described[name]


def options(own: str = "") -> Options:
    """Варианты списка по семействам: семейство — первое слово названия; `own` — название пустого варианта."""
    groups: Options = {"": [("", own)]} if own else {}
    for name, entry in entries().items():
        family = entry["title"].split("-")[0].split(" ")[0].rstrip("0123456789.")
        groups.setdefault(family, []).append((name, entry["title"]))
    return groups
