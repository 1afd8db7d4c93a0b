"""Живые части сайта: то же самое, что командная строка, но в странице.

Часть страницы — чистая функция: из состояния формы (строки) получаются куски HTML. Ею печатает
умолчание сборка сайта и отвечает рабочий поток браузера, поэтому до Python и после него на странице
одно и то же. JavaScript только носит строки: `answer(запрос) -> ответ`, то и другое — JSON.

Запрос: `{"widget": имя, "state": {поле: строка}, "action": действие или null}`. Ответ калькулятора:

- `slots` — куски страницы по именам мест;
- `errors` — поле → сообщение; под пустым ключом — обо всей форме;
- `state` — поля, которые изменил сам калькулятор; `query` — состояние для адреса страницы;
- `files`, `copies` — что можно скачать и скопировать.

Действие «load» значит: состояние пришло из адреса, в нём может не быть полей и могут быть чужие. «warm» только
загружает модуль части: время его загрузки не должно входить в срок ответа.

Работает на стандартной библиотеке: и в CPython, и в Pyodide.
"""

from __future__ import annotations

import importlib
import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

#: Имя части → модуль. Модули грузятся по одному: странице с упражнениями калькулятор не нужен.
WIDGETS = {
    "calculator": "nanolm.live.calculator",
    "flops": "nanolm.live.flops",
    "interview": "nanolm.live.interview",
    "kv": "nanolm.live.kv",
    "lesson": "nanolm.live.lesson",
}

#: Куда рабочий поток кладёт пакет: под этим же именем сборка его компилирует.
PLACE = "/lib/nanolm-site"
#: Состояние длиннее этого со страницы прийти не может; config.json больше мегабайта не бывает.
LONGEST_REQUEST = 4_000_000


def widget(name: str) -> ModuleType:
    """Модуль части страницы. Ошибки: `ValueError`, если такой нет."""
    if name not in WIDGETS:
        raise ValueError(f"часть страницы {name!r}: есть {', '.join(WIDGETS)}")
    return importlib.import_module(WIDGETS[name])


def answer(request: str) -> str:
    """Ответ на запрос страницы. Непонятный запрос и неверное значение — сообщение под ключом `errors`."""
    try:
        name, state, action = _parsed(request)
        part = widget(name)
        found = {"warm": name} if action == "warm" else part.answer(state, action)
    except ValueError as error:
        found = {"errors": {"": str(error)}}
    return json.dumps(found, ensure_ascii=False)


def _parsed(request: str) -> tuple[str, dict[str, str], str | None]:
    if len(request) > LONGEST_REQUEST:
        raise ValueError("запрос длиннее 4 МБ")
    try:
        asked = json.loads(request)
        return asked["widget"], _strings(asked["state"]), asked.get("action")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("запрос не понят: нужен объект с полями widget и state") from error


def _strings(state: dict[str, Any]) -> dict[str, str]:
    """Состояние формы — только строки: так его отдаёт браузер."""
    return {str(name): value for name, value in state.items() if isinstance(value, str)}
