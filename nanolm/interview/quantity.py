"""Числа с единицами, как их пишут люди: «8,03 млрд», «8.03B», «1 ГиБ», «1,2·10^21», «25 суток», «да, 15 ГиБ».

Читается всё, у чего один смысл: запятая и точка, пробелы и апострофы в разрядах, степени, произведения, единицы
кириллицей и латиницей. У чего смысла два или ни одного, то не угадывается: `read` говорит, чего не понял.

Одна буква значит разное в разных задачах: «8B» — это восемь миллиардов параметров или восемь байт. Поэтому у каждой
величины (`Dimension`) таблица единиц своя, а чужие таблицы нужны, только чтобы сказать: это единица другой величины.
"""

from __future__ import annotations

import re

from nanolm import units
from nanolm.units import NBSP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Длиннее ответов не бывает; предел ещё и не даёт разбору зависнуть на мегабайте цифр.
LONGEST = 120


class Dimension:
    """Величина: как она называется, в каких единицах её называют и как эти единицы пишут.

    `units` — единица, как её пишем мы, → сколько в ней основных; `spellings` — то же для всех написаний строчными.
    `vague` — написания без ясного смысла → почему их не принимаем.
    """

    __slots__ = ("_confused", "name", "noise", "spellings", "units", "vague")

    def __init__(
        self,
        name: str,
        table: Mapping[str, float],
        spellings: Mapping[str, float],
        confused: Mapping[str, tuple[tuple[str, str], ...]],
        noise: tuple[str, ...] = (),
        vague: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.units, self.noise, self._confused = name, dict(table), noise, confused
        self.vague = vague or {}
        self.spellings = {plain(key): value for key, value in {**table, **spellings}.items()}

    def confused(self, unit: str) -> tuple[tuple[str, str], ...]:
        """Единицы, с которыми путают эту, и имя такой ошибки."""
        return self._confused.get(unit, ())

    def shown(self, value: float, unit: str) -> str:
        """Величина в этой единице: четыре значащие цифры."""
        amount = value / self.units[unit]
        text = units._significant(amount, 4) if 1e-3 <= amount < 1e7 else units.scientific(amount, 3)
        return trimmed(text) + (NBSP + unit if unit else "")

    def sample(self, unit: str) -> str:
        """Пример записи: условное число с единицей."""
        return ("1,5·10²²" if unit == "FLOPs" else "12,5") + (NBSP + unit if unit else "")

    def ratio(self, one: str, other: str) -> str:
        """Сколько меньших единиц в большей: «1 ГиБ = 1,074 ГБ»."""
        big, small = sorted((one, other), key=lambda unit: -self.units[unit])
        amount = self.units[big] / self.units[small]
        text = units.number(round(amount)) if amount == round(amount) else units.decimal(amount, 3)
        return f"1{NBSP}{big} = {text}{NBSP}{small}.".replace(NBSP + ".", ".")


def trimmed(text: str) -> str:
    """Запись без лишних нулей: «2,00 трлн» → «2 трлн», «3,500» → «3,5»."""
    number, comma, rest = text.partition(",")
    fraction = rest[: next((i for i, char in enumerate(rest) if not char.isdigit()), len(rest))]
    kept = fraction.rstrip("0")
    return number + comma * bool(kept) + kept + rest[len(fraction) :]


def plain(text: str) -> str:
    """Единица для поиска в таблице: строчными, без точек сокращений и лишних пробелов."""
    return " ".join(text.casefold().replace(".", " ").split())


# --- Величины -----------------------------------------------------------------------------------

#: Слово перед единицей или вместо неё.
WORDS = {
    "тыс": 10**3, "тысяч": 10**3, "тысячи": 10**3, "тысяча": 10**3, "thousand": 10**3, "thousands": 10**3,
    "млн": 10**6, "миллион": 10**6, "миллиона": 10**6, "миллионов": 10**6, "million": 10**6, "millions": 10**6,
    "mln": 10**6,
    "млрд": 10**9, "миллиард": 10**9, "миллиарда": 10**9, "миллиардов": 10**9, "billion": 10**9, "billions": 10**9,
    "bln": 10**9, "bn": 10**9,
    "трлн": 10**12, "триллион": 10**12, "триллиона": 10**12, "триллионов": 10**12, "trillion": 10**12,
    "trillions": 10**12,
}  # fmt: skip

_STEPS = (
    ("к", "k", "кило", "киби", "kilo", "kibi"), ("м", "m", "мега", "меби", "mega", "mebi"),
    ("г", "g", "гига", "гиби", "giga", "gibi"), ("т", "t", "тера", "теби", "tera", "tebi"),
    ("п", "p", "пета", "пеби", "peta", "pebi"),
)  # fmt: skip
_CYRILLIC_BYTES, _LATIN_BYTES = ("байт", "байта", "байтов", "байты"), ("byte", "bytes")


def _bytes() -> tuple[dict[str, float], dict[str, float]]:
    table: dict[str, float] = {"Б": 1}
    spelled: dict[str, float] = dict.fromkeys((*_CYRILLIC_BYTES, "b", *_LATIN_BYTES), 1)
    spelled |= dict.fromkeys(("бит", "бита", "битов", "bit", "bits"), 1 / 8)
    for power, (cyrillic, latin, decimal, binary, kilo, kibi) in enumerate(_STEPS, 1):
        small, large = 1000**power, 1024**power
        table[f"{'кМГТП'[power - 1]}Б"], table[f"{cyrillic.upper()}иБ"] = small, large
        for own, other, word, foreign, value in (
            (cyrillic, latin, decimal, kilo, small),
            (cyrillic + "и", latin + "i", binary, kibi, large),
        ):
            spelled |= dict.fromkeys((own + "б", other + "b"), value)
            spelled |= dict.fromkeys((start + end for start in (own, word) for end in _CYRILLIC_BYTES), value)
            spelled |= dict.fromkeys((start + end for start in (other, foreign) for end in _LATIN_BYTES), value)
            spelled |= dict.fromkeys((own + "бит", other + "bit", word + "бит", foreign + "bit"), value / 8)
    return table, spelled


_BYTES_CONFUSED = {
    f"{one}иБ": ((f"{'к' if one == 'К' else one}Б", "decimal-for-binary"), ("Б", "bytes-for-prefix")) for one in "КМГТ"
}

SIZE = Dimension(
    "память",
    *_bytes(),
    _BYTES_CONFUSED,
    noise=("на токен", "токен", "per token", "token"),
    vague={
        letter: f"может быть и {name}Б, и {step[0].upper()}иБ"
        for step, name in zip(_STEPS, "кМГТП", strict=True)
        for letter in step[:2]
    },
)

COUNT = Dimension(
    "число параметров",
    {"": 1, "тыс.": 10**3, "млн": 10**6, "млрд": 10**9, "трлн": 10**12},
    {
        "k": 10**3, "к": 10**3, "m": 10**6, "м": 10**6, "b": 10**9, "bn": 10**9, "g": 10**9, "г": 10**9,
        "t": 10**12, "т": 10**12,
    },
    {"млрд": (("млн", "millions-for-billions"),), "млн": (("млрд", "billions-for-millions"),)},
    noise=("параметров", "параметра", "параметр", "parameters", "parameter", "params", "param", "штук", "шт"),
)  # fmt: skip

_DAY = 86_400
TIME = Dimension(
    "время",
    {"мкс": 1e-6, "мс": 1e-3, "с": 1, "мин": 60, "ч": 3600, "сут": _DAY},
    {
        "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "usec": 1e-6, "µsec": 1e-6, "μsec": 1e-6, "мксек": 1e-6,
        "микросекунд": 1e-6, "микросекунды": 1e-6, "микросекунда": 1e-6, "microsecond": 1e-6, "microseconds": 1e-6,
        "ms": 1e-3, "msec": 1e-3, "мсек": 1e-3, "миллисекунд": 1e-3, "миллисекунды": 1e-3, "миллисекунда": 1e-3,
        "millisecond": 1e-3, "milliseconds": 1e-3, "s": 1, "c": 1,
        "сек": 1, "секунд": 1, "секунды": 1, "секунда": 1, "sec": 1, "seconds": 1, "second": 1,
        "минут": 60, "минуты": 60, "минута": 60, "min": 60, "minutes": 60, "minute": 60,
        "час": 3600, "часа": 3600, "часов": 3600, "h": 3600, "hr": 3600, "hour": 3600, "hours": 3600,
        "сутки": _DAY, "суток": _DAY, "день": _DAY, "дня": _DAY, "дней": _DAY, "дн": _DAY, "d": _DAY, "day": _DAY,
        "days": _DAY, "неделя": 7 * _DAY, "недели": 7 * _DAY, "недель": 7 * _DAY, "week": 7 * _DAY,
        "weeks": 7 * _DAY, "год": 365 * _DAY, "года": 365 * _DAY, "лет": 365 * _DAY, "year": 365 * _DAY,
        "years": 365 * _DAY,
    },
    {
        "сут": (("ч", "hours"), ("мин", "minutes"), ("с", "seconds")),
        "ч": (("мин", "minutes"), ("с", "seconds")),
        "мс": (("с", "seconds"), ("мкс", "microseconds")),
    },
    vague=dict.fromkeys(
        ("мес", "месяц", "месяца", "месяцев", "month", "months"),
        "не принимается: в месяце от 28 до 31 суток",
    ),
)  # fmt: skip


def _flops() -> tuple[dict[str, float], dict[str, float]]:
    table: dict[str, float] = {"FLOPs": 1}
    spelled: dict[str, float] = dict.fromkeys(("flop", "флоп", "флопс", "флопов", "операций", "операции", "оп"), 1)
    prefixes = (("k", "к"), ("m", "м"), ("g", "г"), ("t", "т"), ("p", "п"), ("e", "э"), ("z", "з"), ("y", "и"))
    for power, (latin, cyrillic) in enumerate(prefixes, 1):
        table[("k" if latin == "k" else latin.upper()) + "FLOPs"] = 1000**power
        spelled |= dict.fromkeys((f"{latin}flop", f"{cyrillic}флоп", f"{cyrillic}флопс"), 1000**power)
    return table, spelled


WORK = Dimension(
    "число операций",
    *_flops(),
    {"GFLOPs": (("TFLOPs", "prefix"), ("MFLOPs", "prefix"))},
    noise=("на токен", "токен", "per token", "token"),
)

BATCH = Dimension(
    "размер пакета",
    {"": 1},
    {
        "посл": 1, "последовательность": 1, "последовательности": 1, "последовательностей": 1, "запросов": 1,
        "запроса": 1, "запрос": 1, "seq": 1, "sequences": 1, "sequence": 1, "шт": 1, "штук": 1, "штуки": 1,
    },
    {},
)  # fmt: skip

#: Скорости: их пишут вместо количества чаще всего.
RATE = Dimension("скорость", {}, {f"{key}/{s}": 1 for key in WORK.spellings for s in ("с", "s", "c", "сек", "sec")}, {})
ALL = (SIZE, COUNT, TIME, WORK, BATCH, RATE)


# --- Разбор -------------------------------------------------------------------------------------

_SUPERSCRIPT = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+", strict=True))
#: Разряды пробелами, запятыми или точками; одиночные запятая и точка — дробь, а перед другим знаком — разряды.
_DIGITS = "|".join(
    (
        r"\d{1,3}(?:[ '’_]\d{3})+(?!\d)(?:[.,]\d+)?",
        r"\d{1,3}(?:,\d{3}){2,}(?!\d)(?:\.\d+)?",
        r"\d{1,3}(?:\.\d{3}){2,}(?!\d)(?:,\d+)?",
        r"[1-9]\d{0,2}(?:,\d{3}\.|\.\d{3},)\d+",
        r"\d+(?:[.,]\d+)?|[.,]\d+",
    )
)
#: Три цифры после единственного знака: то ли разряды, то ли дробь.
_TWOFOLD = re.compile(r"[1-9]\d{0,2}[.,]\d{3}", re.ASCII)
_NUMBER = re.compile(rf"(?P<digits>{_DIGITS})(?P<exponent>[eEеЕ][+-]?\d+)?", re.ASCII)
_POWER = re.compile(r"\s*(?:\^|\*\*)\s*\(?([+-]?\d+)\)?", re.ASCII)
_TIMES = re.compile(r"\s*[·*×⋅∙•xхXХ]\s*(?=[\d.,])", re.ASCII)
_VERBS = (
    r"(?:помест[ия]тся|помеща[ею]тся|умест[ия]тся|умеща[ею]тся|влез[еу]т|влеза[ею]т|войд[её]т|войдут|вход[ия]т|"
    r"хватит|хватает|fits?)"
)
_NO, _YES = rf"(?:(?:не|doesn't|does not|won't|will not) {_VERBS}|нет|no)\b", rf"(?:{_VERBS}|да|yes)\b"
_GAVE_UP = re.compile(r"(?:я )?(?:не (?:знаю|помню|могу|уверен)|без понятия|don't know|idk)\b", re.IGNORECASE)
#: Слова и знаки перед числом, которые смысла его не меняют: «Ответ: …», «B = …», «нужно около …».
_BEFORE = re.compile(
    rf"(?P<no>{_NO})|(?P<yes>{_YES})|(?P<bracket>\()|(?P<point>[,;:.—!-]\s*)|ответ\b\s*[:—-]?|[^\W\d_]+\s*[=≈~:]|"
    r"(?:нужн[оаы]|надо|need|потребуется|требуется|займ[её]т|модель|она|итого|всего|около|примерно|приблизительно|about)\b|"
    r"[\s≈~=]+",
    re.IGNORECASE,
)
_AFTER = re.compile(
    rf"(?:^|(?:[\s,;:.—(→=>-]|\b(?:но|и|поэтому|значит|so)\b)+)(?:(?P<no>{_NO})|(?P<yes>{_YES}))[\s.!)]*$",
    re.IGNORECASE,
)


class Reading:
    """Что прочитано: `fits` — «да» или «нет», `number` — число, `unit` — единица, как её написали.

    `scale` — сколько в ней основных единиц; `None` — единицы нет или она чужая. `foreign` — чья она тогда.
    `trouble` — чего не удалось понять; `gave_up` — «не знаю». `other` — второй смысл записи `written`: «65,536» — это
    и 65,5, и 65 536; `None` — смысл один.
    """

    __slots__ = ("fits", "foreign", "gave_up", "number", "other", "scale", "trouble", "unit", "written")

    def __init__(self) -> None:
        self.fits: bool | None = None
        self.number: float | None = None
        self.other: float | None = None
        self.scale: float | None = None
        self.unit = self.foreign = self.trouble = self.written = ""
        self.gave_up = False

    @property
    def value(self) -> float | None:
        """Величина в основных единицах."""
        return None if self.number is None or self.scale is None else self.number * self.scale

    def say(self, fits: bool) -> None:
        """Учесть «да» или «нет»; оба сразу — беда."""
        if self.fits is not None and self.fits is not fits:
            self.trouble = "в ответе и «да», и «нет»"
        self.fits = fits


def read(text: str, dimension: Dimension) -> Reading:
    """Прочитать ответ: «да» или «нет», число, единица — что есть из них. Не бросает исключений ни на каком тексте."""
    found = Reading()
    if len(text) > LONGEST:
        found.trouble = f"ответ длиннее {LONGEST} знаков"
        return found
    rest = _clean(text)
    if _GAVE_UP.match(rest):
        found.gave_up = True
        return found
    rest = _before(found, rest)
    if rest and not found.trouble:
        start = rest
        found.number, found.other, rest = _number(rest)
        found.written = start[: len(start) - len(rest)]
        if found.number is None:
            found.trouble = f"не вижу числа в «{rest}»"
        else:
            _unit(found, _after(found, rest).strip(), dimension)
    return found


def _before(found: Reading, text: str) -> str:
    """Снять с начала «да», «нет» и слова перед числом; вернуть остальное."""
    bracket = False
    while (piece := _BEFORE.match(text)) is not None:
        if piece["point"] and found.fits is None:  # «−5» и «,5» — числа; знаки препинания бывают после «да» и «нет»
            break
        if piece["no"] or piece["yes"]:
            found.say(piece["yes"] is not None)
        bracket = bracket or piece["bracket"] is not None
        text = text[piece.end() :]
    return text.rstrip(" .!").removesuffix(")") if bracket else text


def _after(found: Reading, text: str) -> str:
    """Снять с конца «нет» после числа: «57,36 ГиБ, нет»; вернуть единицу."""
    piece = _AFTER.search(text)
    if piece is None:
        return text
    found.say(piece["yes"] is not None)
    return text[: piece.start()]


def _clean(text: str) -> str:
    """Один вид пробелов, минусов и степеней; управляющие знаки — пробелы."""
    out, raised = [], False
    for char in text:
        if char in _SUPERSCRIPT:
            out.append(("" if raised else "^") + _SUPERSCRIPT[char])
            raised = True
            continue
        raised = False
        out.append(" " if char.isspace() or not char.isprintable() else {"−": "-", "–": "-"}.get(char, char))
    return " ".join("".join(out).split())


def _number(text: str) -> tuple[float | None, float | None, str]:
    """Произведение чисел и степеней в начале строки, второй его смысл (`None` — смысл один) и остаток."""
    sign, rest = 1.0, text
    if rest[:1] in "+-":
        sign, rest = (-1.0 if rest[0] == "-" else 1.0), rest[1:].lstrip()
    result: float | None = None
    other = sign
    scientific = False
    for factor, grouped, after in _factors(rest):
        scientific = scientific or grouped is None
        other *= factor if grouped is None else grouped
        result, rest = (sign if result is None else result) * factor, after
    # «1,234·10⁹»: перед степенью стоит дробь, разрядов там не пишут.
    twofold = result is not None and not scientific and other != result
    return result, other if twofold else None, rest if result is not None else text


def _factors(text: str) -> Iterator[tuple[float, float | None, str]]:
    """Множители по одному: число, оно же с разрядами вместо дроби (у степени — `None`) и что стоит за ними."""
    while True:
        found = _NUMBER.match(text)
        if found is None:
            return
        value, text = _decimal(found["digits"], found["exponent"] or ""), text[found.end() :]
        grouped = value * 1000 if _TWOFOLD.fullmatch(found["digits"]) else value
        power = _POWER.match(text)
        if power is not None:
            value, text = _raised(value, power[1]), text[power.end() :]
        yield value, None if power is not None or found["exponent"] else grouped, text
        times = _TIMES.match(text)
        if times is None:
            return
        text = text[times.end() :]


def _decimal(digits: str, exponent: str) -> float:
    """Запись с разделителями → число. Одиночные точка и запятая — дробь, повторённые и первая из двух — разряды."""
    digits = digits.translate({ord(sign): None for sign in " '’_"})
    if "," in digits and "." in digits:
        digits = digits.replace(min(",.", key=digits.index), "")
    for sign in ",.":
        if digits.count(sign) > 1:
            digits = digits.replace(sign, "")
    return float(digits.replace(",", ".") + exponent.translate({ord("е"): "e", ord("Е"): "e"}))


def _raised(base: float, exponent: str) -> float:
    """Степень; слишком большая — бесконечность: такой ответ просто неверен."""
    try:
        return base ** int(exponent)
    except (ArithmeticError, ValueError):
        return units.INFINITY


def _unit(found: Reading, text: str, dimension: Dimension) -> None:
    """Единица после числа: своя, чужая или незнакомая."""
    found.unit = text if plain(text) else ""
    if not found.unit:  # без единицы пишут штуки: параметры, последовательности
        found.scale = dimension.spellings.get("")
        return
    found.scale = scale_of(text, dimension)
    if found.scale is not None:
        return
    vague = dimension.vague.get(plain(text))
    if vague is not None:
        found.trouble = f"«{text}» {vague}"
        return
    for other in ALL:
        if other is not dimension and scale_of(text, other) is not None:
            found.foreign = other.name
            return
    found.trouble = f"не знаю единицы «{text}»"


def scale_of(text: str, dimension: Dimension) -> float | None:
    """Сколько основных единиц в этой: единица, слово («млрд») или слово с единицей; `None` — такой нет."""
    words = plain(text)
    for noise in dimension.noise:
        words = words.removesuffix(noise).rstrip(" /")
    if words in dimension.spellings:
        return dimension.spellings[words]
    first, _, rest = words.partition(" ")
    if first in WORDS and (not rest or rest in dimension.spellings):
        return WORDS[first] * dimension.spellings.get(rest, 1)
    # Во множественном числе: «GFLOPs», «params».
    single = words.removesuffix("s").removesuffix("с")
    return dimension.spellings.get(single) if len(single) > 2 else None
