"""Исключения учащегося по-русски.

Текст исключения Python остаётся: его можно найти в поиске. Перед ним — что это значит.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from nanolm.exercises.answer import cut, exact_text
from nanolm.exercises.attempt import LIMIT_S, InputAskedError, TooLong
from nanolm.exercises.result import Result

#: Так пишут «ещё не сделано».
NOT_WRITTEN = (NotImplementedError,)


class Failure(NamedTuple):
    """Исключение для человека; `raw` — исходный текст Python."""

    id: str | None
    text: str
    advice: str
    raw: str


#: Класс исключения → (id, что случилось, куда смотреть). Подходит первый, от которого исключение происходит.
_MEANINGS: tuple[tuple[type[BaseException], str | None, str, str], ...] = (
    (TooLong, "endless-loop", f"Функция работает дольше {LIMIT_S:.0f}\u00a0с и остановлена.",
     "Здесь хватает одной формулы, цикл не нужен. Если он есть, проверьте условие выхода."),
    (InputAskedError, "input-asked", "Функция ждёт ввода.", "Все числа уже приходят аргументами, input() не нужен."),
    (RecursionError, "endless-recursion", "Функция вызывает сама себя без конца.",
     "Проверьте, не совпало ли имя вспомогательной функции с именем этой."),
    (ZeroDivisionError, None, "Деление на ноль.", "Проверьте, что стоит в знаменателе: аргументы здесь не нули."),
    (UnboundLocalError, None, "Переменная читается раньше, чем получает значение.",
     "Переменная, которой внутри функции что-то присваивают, — местная: глобальная с тем же именем не видна."),
    (NameError, "unknown-name", "Имя не определено.",
     "Сверьте имена с аргументами функции: буквы, раскладка, регистр."),
    (ModuleNotFoundError, None, "Такого модуля здесь нет.", "Хватит обычной арифметики Python."),
    (ImportError, None, "Импорт не удался.", "Хватит обычной арифметики Python."),
    (TypeError, None, "Операция не подходит значениям этих типов.", "Посмотрите, что стоит по обе стороны знака."),
    (AttributeError, None, "У значения нет такого атрибута.", "Аргументы — обычные числа Python."),
    (OverflowError, None, "Число не помещается в свой тип.", "Считайте в целых числах Python: у них нет предела."),
    (IndexError, None, "Индекс за пределами последовательности.", ""),
    (KeyError, None, "В словаре нет такого ключа.", ""),
    (AssertionError, None, "Не выполнено условие assert.", "Проверка берёт и непривычные числа: условие их отвергло."),
    (ValueError, None, "Недопустимое значение.", ""),
    (MemoryError, None, "Не хватило памяти.", "Для формулы не нужны большие списки и массивы."),
    (SystemExit, None, "Функция попыталась завершить программу.", "Уберите exit() и sys.exit()."),
    (KeyboardInterrupt, None, "Выполнение прервано.", ""),
)  # fmt: skip

_NARROW_INT = ("int32", "int64", "int16", "int8", "C long", "C int")


def explain(error: BaseException) -> Failure:
    """Что случилось и куда смотреть."""
    raw = _raw(error)
    if isinstance(error, OverflowError) and any(name in raw for name in _NARROW_INT):
        return Failure("int32-overflow", f"Число не помещается в целое ограниченной ширины. {raw}", _WIDE, raw)
    for kind, id_, text, advice in _MEANINGS:
        if isinstance(error, kind):
            return Failure(id_, text if isinstance(error, (TooLong, InputAskedError)) else f"{text} {raw}", advice, raw)
    return Failure(None, f"Исключение. {raw}", "", raw)


_WIDE = "Целые Python не переполняются, а у numpy ширина фиксирована: int32 кончается на 2,1 млрд."


def _raw(error: BaseException) -> str:
    """«ZeroDivisionError: division by zero»; текст чужого исключения может сам упасть."""
    try:
        text = cut(str(error), 300)
    except KeyboardInterrupt:
        raise
    except BaseException:
        text = ""
    return f"{type(error).__name__}: {text}".rstrip(": ") + "."


_UNREADABLE = "Ответ не удаётся разобрать: его собственные методы бросают исключения."
_PLAIN = "Верните обычное значение Python: число, строку, список или словарь."


def guarded(id_: Any, decide: Callable[[], Result]) -> Result:
    """Итог `decide()`, а если ответ уронил саму проверку — итог об этом. Ctrl-C по-прежнему прерывает."""
    try:
        return decide()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit из чужого __repr__ тоже: урок не должен падать
        message = f"{_UNREADABLE} {_quoted(error)}".strip()
    return Result(exact_text(id_) or "", "", "error", message, "unreadable-answer", _PLAIN)


def _quoted(error: BaseException) -> str:
    """Текст исключения; пусто, если враждебно и оно само."""
    try:
        return _raw(error)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return ""
