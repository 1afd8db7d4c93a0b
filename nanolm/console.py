"""Замена символов для консолей, чья кодировка знает не всё.

В cp1251 нет «─» и степеней, в cp866 — тире и кавычек, в ASCII нет и кириллицы. Вывод не должен ни падать,
ни превращаться в вопросительные знаки: у каждого нашего символа есть читаемая замена.
Модуль загружается только там, где кодировка не Unicode.
"""

from __future__ import annotations

import codecs
import unicodedata

HANDLER = "nanolm-readable"

_SIGNS = {
    "─": "-", "—": "-", "–": "-", "−": "-", "«": '"', "»": '"', "…": "...", "·": "*", "×": "x", "≈": "~",
    "\u00a0": " ", "\u202f": " ", "∞": "inf", "⌈": "ceil(", "⌉": ")", "→": "->", "≤": "<=", "≥": ">=", "№": "N",
}  # fmt: skip

_SUPERSCRIPT = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-", strict=True))

_CYRILLIC = {
    **dict(zip("абвгдезийклмнопрстуфыэ", "abvgdeziyklmnoprstufye", strict=True)),
    "ё": "e", "ж": "zh", "х": "kh", "ц": "ts", "ч": "ch", "ш": "sh", "щ": "shch", "ъ": "", "ь": "", "ю": "yu",
    "я": "ya",
}  # fmt: skip


def _substitute(char: str, before: str) -> str:
    """Замена символа; `before` — символ перед ним."""
    if char in _SIGNS:
        return _SIGNS[char]
    if char in _SUPERSCRIPT:  # «10²⁰» — это «10^20», а не «1020»
        return ("" if before in _SUPERSCRIPT else "^") + _SUPERSCRIPT[char]
    if char.lower() in _CYRILLIC:
        latin = _CYRILLIC[char.lower()]
        return latin.capitalize() if char.isupper() else latin
    # Остальное — совместимой формой Unicode: «™» → «TM».
    return unicodedata.normalize("NFKD", char)


def readable(error: UnicodeError) -> tuple[str, int]:
    """Обработчик ошибок кодирования: замена каждого символа, которого нет в кодировке."""
    assert isinstance(error, UnicodeEncodeError)
    places = range(error.start, error.end)
    text = "".join(_substitute(error.object[i], error.object[i - 1] if i else "") for i in places)
    safe = ""
    for char in text:
        try:
            char.encode(error.encoding)
            safe += char
        except UnicodeEncodeError:
            safe += "?"
    return safe, error.end


def install() -> None:
    """Зарегистрировать обработчик; повторный вызов безвреден."""
    codecs.register_error(HANDLER, readable)
