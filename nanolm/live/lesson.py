"""Живое упражнение: выполнить ячейку учащегося, проверить ответ, дать подсказку.

Код выполняется в новом пространстве имён: прошлый запуск на итог не влияет. Печать ограничена, и печатать
дальше предела код не может — его останавливают, иначе миллион строк занял бы рабочий поток. Бесконечный цикл
обрывает страница: она уничтожает рабочий поток. От следа вызовов остаются строки учащегося.

Исходный текст ячейки кладётся в `linecache`: тогда проверка покажет строку, на которой возникла ошибка.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import re
from contextlib import redirect_stderr, redirect_stdout
from html import escape

from nanolm import exercises
from nanolm.exercises import attempt, failures
from nanolm.live.memory import Memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, TracebackType
    from typing import Any

NAME = "lesson"

#: Имя, под которым ячейка видна в следе вызовов.
CELL = "<ячейка>"
#: Дальше этого печатать нельзя: страница показала бы простыню.
PRINT_LIMIT = 20_000
#: Значение последнего выражения показывается до этой длины.
VALUE_LIMIT = 4_000


class TooMuchPrinted(BaseException):
    """Напечатано больше предела. Не `Exception`: `except Exception` учащегося не должен её проглотить."""


class _Printed(attempt.Output):
    """Поток, который останавливает программу, исчерпав место."""

    limit = PRINT_LIMIT

    def write(self, text: str) -> int:
        length = super().write(text)
        if self.room < 0:
            raise TooMuchPrinted
        return length


class Run:
    """Что дала ячейка: имена, напечатанное, показанное значение, исключение."""

    def __init__(self, code: str) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
        self.value = ""
        self.error: BaseException | None = None
        # Строки нужны проверке: она показывает ту, на которой возникло исключение.
        linecache.cache[CELL] = (len(code), None, code.splitlines(keepends=True), CELL)
        printed, before = _Printed(), dict(vars(builtins))
        try:
            body, last = _compiled(code)
            with redirect_stdout(printed), redirect_stderr(printed), attempt._without_input():
                exec(body, self.names)
                if last is not None:
                    self.value = _shown(eval(last, self.names))
        except BaseException as error:  # SystemExit, KeyboardInterrupt и TooMuchPrinted тоже — это итог
            self.error = error
        finally:
            # Подменённый round испортил бы и проверку, и все следующие запуски.
            vars(builtins).update(before)
        self.printed = printed.text()


def _compiled(code: str) -> tuple[CodeType, CodeType | None]:
    """Тело ячейки и её последнее выражение: его значение показывают, как в блокноте."""
    tree = ast.parse(code, CELL)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        final = tree.body.pop()
        assert isinstance(final, ast.Expr)
        last = compile(ast.Expression(final.value), CELL, "eval")
    return compile(tree, CELL, "exec"), last


def _shown(value: object) -> str:
    """Последнее выражение ячейки; None, как в блокноте, не показывается."""
    try:
        return "" if value is None else repr(value)[:VALUE_LIMIT]
    except RecursionError:
        return "Значение вложено слишком глубоко, чтобы его напечатать."


def default() -> dict[str, str]:
    """Состояние до первого обращения: ячейки нет."""
    return {}


def answer(state: dict[str, str], action: str | None = None) -> dict[str, Any]:
    """Ответ странице: `html`, строка ошибки `line`, исход `status`, число показанных подсказок `hints`.

    `state`: `exercise` — id, `name` — имя, которое проверяется, `code` — текст ячейки, `shown` — сколько
    подсказок уже показано. `action`: «run», «check» или «hint».
    """
    if action == "hint":
        return _hint(state)
    MEMORY.adopt()
    try:
        run = Run(state.get("code", ""))
        MEMORY.restore()
        MEMORY.forget()
        return _checked(state, run) if action == "check" and run.error is None else _ran(run)
    finally:
        MEMORY.restore()


#: Какими модули были до кода учащегося.
MEMORY = Memory()


def _hint(state: dict[str, str]) -> dict[str, Any]:
    shown = state.get("shown", "0")
    level = int(shown) + 1 if shown.isdecimal() and len(shown) < 4 else 1
    found = exercises.hint(state.get("exercise", ""), level)
    return {"html": found._repr_html_(), "hints": min(level, found.total)}


def _checked(state: dict[str, str], run: Run) -> dict[str, Any]:
    id_, name = state.get("exercise", ""), state.get("name", "")
    if name not in run.names:
        message = (
            f"В ячейке нет имени <code>{escape(name)}</code>: проверка ищет его. Верните заголовок заготовки "
            "или нажмите «Сбросить»."
        )
        return {"html": _printed_html(run) + _box("error", "Ошибка", message), "status": "error"}
    result = exercises.check(id_, run.names[name])
    return {
        "html": _printed_html(run) + result._repr_html_(),
        "status": result.status,
        **({"line": result.line} if result.line and result.status == "error" else {}),
    }


def _ran(run: Run) -> dict[str, Any]:
    """Итог запуска: напечатанное, значение, ошибка или, если ничего этого нет, что определено."""
    parts = [_printed_html(run)]
    if run.value:
        parts.append(f'<pre class="nanolm-output" tabindex="0">{escape(run.value)}</pre>')
    if run.error is not None:
        lines, text = _explained(run.error)
        parts.append(text)
        return {"html": "".join(parts), "status": "error", **({"line": lines[-1][0]} if lines else {})}
    if not run.printed and not run.value:
        parts.append(_box("not_started", "Выполнено", _quiet(run)))
    return {"html": "".join(parts), "status": "ran"}


def _quiet(run: Run) -> str:
    names = [name for name in run.names if not name.startswith("__")]
    if not names:
        return "Ничего не напечатано и не определено."
    listed = ", ".join(f"<code>{escape(name)}</code>" for name in names[:8])
    return f"Ничего не напечатано. Определено: {listed}. Чтобы увидеть число, вызовите функцию последней строкой."


def _printed_html(run: Run) -> str:
    return f'<pre class="nanolm-output" tabindex="0">{escape(run.printed)}</pre>' if run.printed else ""


def _box(status: str, heading: str, message: str) -> str:
    kind = status.replace("_", "-")
    return f'<div class="nanolm-check nanolm-check-{kind}"><p><strong>{heading}.</strong> {message}</p></div>'


# --- Ошибки учащегося ---------------------------------------------------------------------------

#: Начало английского текста SyntaxError → по-русски. Первое подошедшее.
_SYNTAX = (
    ("expected ':'", "Не хватает двоеточия в конце строки."),
    ("invalid syntax. Maybe you meant '=='", "Здесь присваивание, а нужно сравнение: два знака равенства."),
    ("invalid syntax. Perhaps you forgot a comma", "Похоже, пропущена запятая."),
    ("invalid decimal literal", "Имя не может начинаться с цифры; между числом и буквой нужен знак умножения."),
    ("invalid non-printable character", "В строку попал невидимый знак. Сотрите его и поставьте обычный пробел."),
    ("invalid character", "Этого знака в Python нет: проверьте раскладку и кавычки."),
    ("unterminated string literal", "Строка не закрыта кавычкой."),
    ("unterminated triple-quoted string literal", "Строка не закрыта тройной кавычкой."),
    ("unexpected indent", "Лишний отступ в начале строки."),
    ("unindent does not match", "Отступ не совпадает ни с одним из отступов выше."),
    ("expected an indented block", "Ожидается тело с отступом."),
    ("inconsistent use of tabs", "Отступы смешаны: то пробелы, то табуляция."),
    ("'return' outside function", "return стоит вне функции: проверьте отступ."),
    ("cannot assign to", "Слева от знака равенства должно стоять имя."),
    ("unexpected EOF", "Код оборвался: чего-то не хватает в конце."),
    ("too many nested", "Скобок вложено больше, чем умеет разобрать Python."),
    ("source code string cannot contain null bytes", "В коде есть нулевой байт."),
)  # fmt: skip
_BRACKET = re.compile(r"'(.)' was never closed|unmatched '(.)'")

#: Что говорят о модуле, которого в браузере нет.
_HEAVY = ("torch", "numpy", "transformers", "matplotlib", "scipy", "pandas")


def learner_lines(error: BaseException) -> Iterator[tuple[int, str]]:
    """Строки учащегося из следа вызовов, от внешней к внутренней; повторы подряд пропущены."""
    if isinstance(error, SyntaxError) and error.filename == CELL:
        yield error.lineno or 1, (error.text or "").rstrip("\n")
        return
    trace: TracebackType | None = error.__traceback__
    before = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == CELL and trace.tb_lineno != before:
            before = trace.tb_lineno
            yield trace.tb_lineno, linecache.getline(CELL, trace.tb_lineno).rstrip("\n")
        trace = trace.tb_next


def _explained(error: BaseException) -> tuple[list[tuple[int, str]], str]:
    """Строки учащегося и объяснение. Исключение — чужой объект: его поля могут быть чем угодно."""
    try:
        lines = list(learner_lines(error))
        return lines, _error_html(error, lines)
    except Exception:
        return [], _box("error", "Ошибка", f"Исключение {escape(type(error).__name__)}, которое не удаётся прочитать.")


def _error_html(error: BaseException, lines: list[tuple[int, str]]) -> str:
    text, advice, raw = _meaning(error)
    rows = lines if len(lines) <= 6 else [*lines[:3], (0, "…"), *lines[-2:]]
    shown = "\n".join(f"{number:>4}  {line}" if number else f"      {line}" for number, line in rows)
    place = f'<pre class="nanolm-trace" tabindex="0">{escape(shown)}{_caret(error)}</pre>' if shown else ""
    tail = f'<p class="nanolm-raw"><code>{escape(raw)}</code></p>' if raw else ""
    advised = f'<p class="nanolm-advice">{escape(advice)}</p>' if advice else ""
    return (
        f'<div class="nanolm-check nanolm-check-error"><p><strong>Ошибка.</strong> {escape(text)}</p>'
        f"{place}{tail}{advised}</div>"
    )


def _caret(error: BaseException) -> str:
    """Стрелка под местом синтаксической ошибки."""
    if not isinstance(error, SyntaxError) or not error.offset or not error.text:
        return ""
    return "\n" + " " * (6 + min(error.offset, 200) - 1) + "^"


def _meaning(error: BaseException) -> tuple[str, str, str]:
    """Что случилось, куда смотреть и исходный текст Python."""
    if isinstance(error, TooMuchPrinted):
        return f"Напечатано больше {PRINT_LIMIT:,} знаков".replace(",", "\u00a0") + ", код остановлен.", "", ""
    if isinstance(error, SyntaxError):
        return _syntax(error), "", f"{type(error).__name__}: {error.msg}"
    if isinstance(error, ModuleNotFoundError):
        return _module(error)
    if isinstance(error, attempt.InputAskedError):
        return "Ячейка ждёт ввода, а вводить здесь некуда.", "Впишите значения прямо в код.", ""
    found = failures.explain(error)
    meaning = found.text.removesuffix(found.raw).strip() or found.text
    return meaning, found.advice, found.raw


def _syntax(error: SyntaxError) -> str:
    text = error.msg or ""
    if found := _BRACKET.search(text):
        return "Скобка не закрыта." if found[1] else "Лишняя закрывающая скобка."
    known = (meaning for start, meaning in _SYNTAX if text.startswith(start))
    return "Синтаксическая ошибка. " + next(known, "Python не смог разобрать строку.")


def _module(error: ModuleNotFoundError) -> tuple[str, str, str]:
    name = (error.name or "").partition(".")[0]
    raw = f"{type(error).__name__}: {error}"
    where = "Упражнению хватает обычной арифметики. Урок целиком выполняется в блокноте: ссылка под заголовком."
    if name in _HEAVY:
        return f"Библиотеки {name} в браузере нет: здесь Python со стандартной библиотекой и nanolm.", where, raw
    return "Такого модуля здесь нет: в браузере есть стандартная библиотека и nanolm.", where, raw
