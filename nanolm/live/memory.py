"""Память о чистых модулях: код учащегося не должен менять ни проверку, ни следующие запуски.

Рабочий поток на страницу один, и модули в нём общие. `math.pi = 3` или `DTYPES["bf16"] = 1` из одного упражнения
увидели бы все остальные, а подменённая проверка врала бы до перезагрузки. Поэтому перед запуском запоминается, что
лежит в модулях, а после него кладётся обратно: имена модулей, поля их классов, содержимое словарей и списков.
Это не защита от взлома: обмануть себя учащийся сможет, испортить соседнее упражнение — нет.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType
    from typing import Any

#: Модули библиотеки, которыми пользуются и упражнения, и проверка.
SHARED = ("decimal", "fractions", "functools", "itertools", "json", "math", "operator", "statistics")


class Memory:
    """Снимки модулей nanolm и общих модулей библиотеки."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}

    def adopt(self) -> None:
        """Запомнить модули, загруженные с прошлого раза."""
        for name, module in _watched():
            if name not in self._records:
                self._records[name] = _Record(module, own=_ours(name))

    def restore(self) -> None:
        """Положить всё обратно."""
        for name, record in self._records.items():
            sys.modules[name] = record.module
            record.restore()

    def forget(self) -> None:
        """Забыть модули nanolm, которые загрузил код учащегося: в них могло быть подменено что угодно."""
        for name, module in _watched():
            if name not in self._records and _ours(name):
                del sys.modules[name]
                package, _, last = name.rpartition(".")
                # Из пакета тоже: иначе `from пакет import модуль` взял бы прежний.
                if vars(sys.modules.get(package, object)).get(last) is module:
                    delattr(sys.modules[package], last)


class _Record:
    """Что лежало в модуле; у своих модулей — ещё в классах и в словарях, списках, множествах."""

    def __init__(self, module: ModuleType, own: bool) -> None:
        self.module, self.names = module, dict(vars(module))
        values: list[Any] = list(self.names.values()) if own else []
        classes = [one for one in values if isinstance(one, type) and one.__module__ == module.__name__]
        self.classes = [(one, dict(vars(one))) for one in classes]
        self.contents = [(one, one.copy()) for one in values if isinstance(one, (dict, list, set))]

    def restore(self) -> None:
        _put_back(self.module, self.names)
        for owner, names in self.classes:
            _put_back(owner, names)
        for one, before in self.contents:
            if one != before:
                one.clear()
                (one.extend if isinstance(one, list) else one.update)(before)


def _watched() -> Iterator[tuple[str, ModuleType]]:
    for name, module in list(sys.modules.items()):
        if _ours(name) or name in SHARED:
            yield name, module


def _ours(name: str) -> bool:
    return name == "nanolm" or name.startswith("nanolm.")


def _put_back(owner: Any, before: Mapping[str, object]) -> None:
    """Вернуть имена модуля или класса; пишется только то, что изменилось."""
    now = vars(owner)
    for name in [name for name in now if name not in before]:
        delattr(owner, name)
    for name, value in before.items():
        if name not in now or now[name] is not value:
            setattr(owner, name, value)
