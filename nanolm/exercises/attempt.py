"""Запуск чужого кода: что он вернул, что напечатал и на какой своей строке упал.

Функция учащегося может сделать что угодно: бросить исключение, выйти из программы, вызвать себя без конца,
зациклиться, напечатать миллион строк или ждать ввода. Здесь всё это превращается в `Outcome`.

Бесконечный цикл прерывает счётчик времени на трассировке: он работает и в браузере, где нет ни сигналов,
ни потоков. Если трассировку уже занял отладчик, предела нет.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import io
import linecache
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import FrameType
from typing import Any, NamedTuple

#: Секунд на всю проверку. Страница останавливает свой поток через пять.
LIMIT_S = 3.0
#: Столько напечатанного хранится, остальное отбрасывается.
PRINT_LIMIT = 10_000

_LIBRARY = os.path.dirname(os.path.abspath(os.__file__))
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class TooLong(BaseException):
    """Время вышло. Не `Exception`: `except Exception` учащегося не должен его проглотить."""


class InputAskedError(RuntimeError):
    """Функция вызвала input()."""


class Outcome(NamedTuple):
    """Чем кончился один вызов. `line` и `source` — строка учащегося, на которой возникла ошибка."""

    value: Any = None
    printed: str = ""
    error: BaseException | None = None
    line: int | None = None
    source: str = ""


class Output(io.TextIOBase):
    """Поток, который помнит только начало."""

    encoding = "utf-8"
    limit = PRINT_LIMIT

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.room = self.limit

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.room > 0:
            self.parts.append(text[: self.room])
        self.room -= len(text)
        return len(text)

    def text(self) -> str:
        """Что напечатано, в пределах места."""
        return "".join(self.parts)


class Clock:
    """Общий предел времени на все вызовы одной проверки."""

    def __init__(self) -> None:
        self.end = time.monotonic() + LIMIT_S

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Прервать код внутри, когда время выйдет."""
        if sys.gettrace() is not None:
            yield
            return

        def trace(frame: FrameType, event: str, arg: object) -> Any:
            if _foreign(frame.f_code.co_filename):
                return None
            # По командам, а не по строкам: `while True: pass` в одну строку событий строк не даёт.
            frame.f_trace_opcodes = True
            if time.monotonic() > self.end:
                raise TooLong
            return trace

        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(None)


def run(function: Callable[..., Any], args: Sequence[Any], names: Sequence[str], clock: Clock) -> Outcome:
    """Вызвать `function` и вернуть всё, что произошло. Если `names` не пуст, аргументы идут по именам."""
    output = Output()
    call: tuple[Sequence[Any], Mapping[str, Any]] = ((), dict(zip(names, args, strict=True))) if names else (args, {})
    try:
        with redirect_stdout(output), redirect_stderr(io.StringIO()), _without_input(), clock.watching():
            value = function(*call[0], **call[1])
    except BaseException as error:  # SystemExit и KeyboardInterrupt тоже: урок не должен падать
        return Outcome(None, output.text(), error, *place(error))
    if inspect.iscoroutine(value):
        value.close()  # иначе Python предупредит о корутине, которую никто не ждал
    return Outcome(value, output.text())


@contextmanager
def _without_input() -> Iterator[None]:
    """input() внутри упражнения не ждёт, а сообщает о себе."""
    before = builtins.input

    def asked(prompt: object = "") -> str:
        raise InputAskedError

    builtins.input = asked
    try:
        yield
    finally:
        builtins.input = before


def place(error: BaseException) -> tuple[int | None, str]:
    """Самая глубокая строка, написанная учащимся: номер и текст. Кадры наши и библиотек пропускаются."""
    found: tuple[int | None, str] = (None, "")
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        # Стек кончается на входе в функцию, на строке def, а показать надо строку, которая её зовёт.
        entering = isinstance(error, RecursionError) and trace.tb_lineno == code.co_firstlineno and found[0]
        if not entering and not _foreign(code.co_filename):
            line = linecache.getline(code.co_filename, trace.tb_lineno, trace.tb_frame.f_globals)
            found = (trace.tb_lineno, line.strip())
        trace = trace.tb_next
    return found


@functools.lru_cache(maxsize=256)
def _foreign(filename: str) -> bool:
    """Файл наш или библиотеки, а не учащегося."""
    path = os.path.abspath(filename)
    packages = ("site-packages", "dist-packages")
    return filename.startswith("<frozen") or path.startswith((_OURS, _LIBRARY)) or any(p in path for p in packages)


def parameters(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """Имена параметров функции; None, если их не узнать (встроенные функции)."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


def keywords(function: Callable[..., Any], names: Sequence[str]) -> tuple[str, ...] | None:
    """Как звать функцию: () — по порядку, `names` — по именам, None — никак, число аргументов не то."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ()
    attempts: tuple[tuple[tuple[str, ...], Sequence[str], dict[str, str]], ...] = (
        ((), names, {}),
        (tuple(names), (), dict.fromkeys(names, "")),
    )
    for style, args, named in attempts:
        try:
            signature.bind(*args, **named)
        except TypeError:
            continue
        return style
    return None
