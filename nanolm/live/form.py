"""Форма живой части: какие у неё поля, как они выглядят и что в них можно писать.

Состояние формы — плоский словарь строк, каким его отдаёт браузер: пустая строка значит «как по умолчанию», у
флажка «on» — включён. Поле знает своё имя (оно же ключ командной строки и параметр адреса), подпись, подсказку и
место для ошибки. Сама форма ничего не считает: числа из строк достают `whole_number` и `real_number`, и ошибка
у них — `ValueError`, который начинается с имени поля, как у всех счетов пакета.
"""

from __future__ import annotations

from html import escape

from nanolm import units
from nanolm.spec import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    State = dict[str, str]
    #: Группа («» — без неё) → пары «значение, название».
    Options = dict[str, list[tuple[str, str]]]

#: Длиннее этого не бывает ни одно осмысленное значение поля.
LONGEST = 200


class Field:
    """Поле формы: имя, подпись и вид.

    `kind` — «number» (строка с числом), «text» (строка), «select», «range», «checkbox» или «hidden» (скрытый текст);
    `letter` — буква курса рядом с подписью; `unit` — единица после поля; `options` — функция, которая даёт варианты
    списка; `low`, `high`, `step` — края и шаг ползунка; `word` — что значит его деление: страница пишет это рядом с
    ползунком, не дожидаясь Python; `hint` — подсказка под полем.
    """

    __slots__ = ("default", "high", "hint", "kind", "label", "letter", "low", "name", "options", "step", "unit", "word")

    def __init__(
        self,
        name: str,
        label: str,
        kind: str = "number",
        default: str = "",
        *,
        letter: str = "",
        unit: str = "",
        hint: str = "",
        options: Callable[[], Options] | None = None,
        low: float = 0,
        high: float = 1,
        step: float = 1,
        word: Callable[[int], str] | None = None,
    ) -> None:
        self.name, self.label, self.kind, self.default = name, label, kind, default
        self.letter, self.unit, self.hint, self.options = letter, unit, hint, options
        self.low, self.high, self.step, self.word = low, high, step, word


class Group:
    """Поля под общим заголовком; `folded` — свёрнуты, пока не понадобятся; `tail` — готовый HTML после них."""

    __slots__ = ("fields", "folded", "tail", "title")

    def __init__(self, title: str, fields: Iterable[Field], *, folded: bool = False, tail: str = "") -> None:
        self.title, self.fields, self.folded, self.tail = title, tuple(fields), folded, tail


class Form:
    """Форма виджета: группы полей.

    Умеет назвать состояние по умолчанию, дополнить присланное, записать его в адрес и нарисовать себя.
    """

    def __init__(self, widget: str, groups: Iterable[Group]) -> None:
        self.widget, self.groups = widget, tuple(groups)
        self.fields = {field.name: field for group in self.groups for field in group.fields}

    def default(self) -> State:
        """Состояние по умолчанию."""
        return {name: field.default for name, field in self.fields.items()}

    def complete(self, given: object) -> State:
        """Присланное состояние: незнакомые ключи забыты, недостающие взяты по умолчанию."""
        known = given if isinstance(given, dict) else {}
        return {**self.default(), **{name: str(value) for name, value in known.items() if name in self.fields}}

    def shared(self, given: object) -> State:
        """Состояние из адреса: то же, но скрытого текста в адресе не бывает, и чужой туда не подложить."""
        hidden = {name: field.default for name, field in self.fields.items() if field.kind == "hidden"}
        return {**self.complete(given), **hidden}

    def query(self, state: State) -> str:
        """Строка адреса: только то, что отличается от умолчания. Скрытый текст в адрес не попадает."""
        from urllib.parse import urlencode

        default = self.default()
        changed = {
            name: state[name]
            for name, field in self.fields.items()
            if field.kind != "hidden" and state[name] != default[name] and len(state[name]) <= LONGEST
        }
        return urlencode(changed, errors="replace")

    def html(self, state: State, outputs: State | None = None) -> str:
        """Все поля в порядке групп и место ошибки, которая относится ко всей форме.

        `outputs` — чем дополнить поле: имя → число рядом с ползунком или бледный текст в пустой строке.
        """
        groups = "".join(self._group(group, state, outputs or {}) for group in self.groups)
        return f'{groups}<p class="nanolm-error" role="alert" data-error="" hidden></p>'

    def _group(self, group: Group, state: State, outputs: State) -> str:
        fields = "".join(
            render(self.widget, field, state[field.name], outputs.get(field.name, "")) for field in group.fields
        )
        body = f'<div class="nanolm-fields">{fields}</div>{group.tail}'
        if group.folded:
            return f'<details class="nanolm-group"><summary>{escape(group.title)}</summary>{body}</details>'
        return f'<fieldset class="nanolm-group"><legend>{escape(group.title)}</legend>{body}</fieldset>'

    def blame(self, message: str, aliases: dict[str, str] | None = None) -> str:
        """Поле, о котором говорит ошибка: её первое слово. «» — ни одно, ошибка всей формы."""
        word = message.split(" ", 1)[0].rstrip(":,").partition("[")[0]
        name = (aliases or {}).get(word, word)
        return name if name in self.fields else ""


# --- Числа из строк -----------------------------------------------------------------------------


def whole_number(state: State, name: str) -> int | None:
    """Целое из поля: «8192», «8 192», «15e12», «15 трлн». Пустое поле — `None`.

    Ошибки: `ValueError` с именем поля.
    """
    if not state[name].strip():
        return None
    try:
        return units.whole_from(state[name])
    except (ValueError, OverflowError):
        raise ValueError(f"{name} = {shown(state[name])}: нужно целое число") from None


def real_number(state: State, name: str) -> float | None:
    """Число из поля, с запятой или точкой. Пустое поле — `None`.

    Ошибки: `ValueError` с именем поля.
    """
    text = "".join(state[name].split()).replace(",", ".")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} = {shown(state[name])}: нужно число") from None


def choice(state: State, name: str, allowed: Iterable[str], default: str) -> str:
    """Значение списка; пустое — `default`.

    Ошибки: `ValueError` с именем поля и всем списком.
    """
    value = state[name] or default
    if value not in allowed:
        raise ValueError(f"{name} = {shown(value)}: нужно одно из: {', '.join(allowed)}")
    return value


def slider(state: State, field: Field) -> float:
    """Положение ползунка; за краем шкалы ему не быть.

    Ошибки: `ValueError` с именем поля.
    """
    value = real_number(state, field.name)
    value = float(field.default) if value is None else value
    if not field.low <= value <= field.high:
        raise ValueError(f"{field.name} = {shown(state[field.name])}: нужно число от {field.low} до {field.high}")
    return value


# --- Рисование ----------------------------------------------------------------------------------


def render(widget: str, field: Field, value: str, output: str = "") -> str:
    """Поле целиком: подпись, само поле, единица, подсказка, место ошибки; `output` — чем его дополнить."""
    if field.kind == "hidden":
        return f'<textarea name="{field.name}" hidden>{escape(value)}</textarea>{_error(widget, field)}'
    letter = f" <var>{escape(field.letter)}</var>" if field.letter else ""
    label = f'<label for="{widget}-{field.name}">{escape(_sentence(field.label))}{letter}</label>'
    attributes = _attributes(widget, field)
    if _CONTROLS[field.kind] is _text and output:
        attributes += f' placeholder="{escape(output)}"'
    control = _CONTROLS[field.kind](field, value, attributes)
    if field.kind == "range":
        control += f'<output for="{widget}-{field.name}" data-slot="{field.name}-value">{output}</output>'
    parts = (control, label) if field.kind == "checkbox" else (label, control)
    hint = f'<p class="nanolm-hint" id="{widget}-{field.name}-hint">{escape(field.hint)}</p>' if field.hint else ""
    return f'<div class="nanolm-field nanolm-{field.kind}">{"".join(parts)}{hint}{_error(widget, field)}</div>'


def _sentence(label: str) -> str:
    """Подпись с прописной буквы; остальные — как были: «MFU», «LayerNorm»."""
    return label[:1].upper() + label[1:]


def _attributes(widget: str, field: Field) -> str:
    name = f"{widget}-{field.name}"
    described = f"{name}-hint {name}-error" if field.hint else f"{name}-error"
    default = f' data-default="{escape(field.default)}"' if field.default else ""
    return f'id="{name}" name="{field.name}" aria-describedby="{described}"{default}'


def _error(widget: str, field: Field) -> str:
    return f'<p class="nanolm-error" id="{widget}-{field.name}-error" data-error="{field.name}" hidden></p>'


def _text(field: Field, value: str, attributes: str) -> str:
    unit = f' <span class="nanolm-unit">{escape(field.unit)}</span>' if field.unit else ""
    # Не type="number": ему нельзя ни «15e12» с пробелами, ни запятой, а ошибку он прячет от нас.
    keyboard = ' inputmode="decimal"' if field.kind == "number" else ""
    return (
        f'<span class="nanolm-control"><input type="text"{keyboard} autocomplete="off" spellcheck="false" '
        f'maxlength="{LONGEST}" {attributes} value="{escape(value)}">{unit}</span>'
    )


def _select(field: Field, value: str, attributes: str) -> str:
    groups = field.options() if field.options else {}
    items = "".join(_option_group(title, options, value) for title, options in groups.items())
    return f"<select {attributes}>{items}</select>"


def _option_group(title: str, options: Iterable[tuple[str, str]], chosen: str) -> str:
    items = "".join(
        f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>{escape(name)}</option>'
        for value, name in options
    )
    return f'<optgroup label="{escape(title)}">{items}</optgroup>' if title else items


def _range(field: Field, value: str, attributes: str) -> str:
    scale = f'min="{field.low:g}" max="{field.high:g}" step="{field.step:g}"'
    if field.word is not None:
        words = map(field.word, range(int(field.low), int(field.high) + 1))
        scale += f' data-words="{escape("|".join(words))}"'
    return f'<input type="range" {scale} {attributes} value="{escape(value)}">'


def _checkbox(field: Field, value: str, attributes: str) -> str:
    return f'<input type="checkbox" {attributes}{" checked" if value == "on" else ""}>'


_CONTROLS: dict[str, Callable[[Field, str, str], str]] = {
    "number": _text,
    "text": _text,
    "select": _select,
    "range": _range,
    "checkbox": _checkbox,
}
