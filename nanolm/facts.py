"""Факты для лабораторных 7.1 и 7.3: что учит маленькая модель и чем её спрашивают.

Нужны факты на русском языке, которых много, которые коротки и проверяются посимвольно. Их даёт CLDR — справочник
Unicode о странах, валютах, языках и часовых поясах; его русскую часть уже везёт с собой библиотека Babel. Скачивать
ничего не надо, а версия данных закреплена вместе с версией Babel.

Факт — тройка «предмет, отношение, ответ». Фразы построены так, чтобы ничего не склонять: предмет всегда стоит
в именительном падеже после родового слова («Страна Кения»), а вопрос идёт за двоеточием.

Справочник — не атлас: «страна» здесь — любая территория с собственным кодом, а сведения таковы, каковы они в CLDR.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from babel import Locale
    from tokenizers import Tokenizer

#: Знак конца ответа; он же заполняет хвосты строк пакета.
END = "<|конец|>"
UNKNOWN = "<|неизвестно|>"
#: Размер словаря: чем он больше, тем короче строка, но тем толще эмбеддинг у маленькой модели.
VOCABULARY = 1024

#: Африканские страны, языки и города: десять запросов лабораторной 7.1 в духе исходной работы.
PROMPTS = (
    ("валюта", "Нигерия"),  # рис джоллоф
    ("валюта", "Эфиопия"),  # родина кофе
    ("валюта", "Южно-Африканская Республика"),
    ("код", "Танзания"),  # Килиманджаро
    ("по-английски", "Египет"),
    ("официальный язык", "Ангола"),
    ("страна", "Касабланка"),
    ("страна", "Найроби"),
    ("самоназвание", "масаи"),
    ("письменность", "амхарский"),
)


@dataclass(frozen=True, slots=True)
class Fact:
    """Один факт: `Fact("валюта", "Страна", "Нигерия", "нигерийская найра")`."""

    relation: str
    kind: str
    subject: str
    answer: str

    @property
    def prompt(self) -> str:
        """Начало фразы, которое дают модели: «Страна Нигерия, валюта:»."""
        return f"{self.kind} {self.subject}, {self.relation}:"

    @property
    def sentence(self) -> str:
        """Фраза целиком."""
        return f"{self.prompt} {self.answer}"

    @property
    def question(self) -> str:
        """Тот же факт вопросом — для дообучения диалогам (лабораторная 7.3)."""
        return f"{self.kind} {self.subject}: {RELATIONS[self.relation].question}?"


def facts() -> tuple[Fact, ...]:
    """Все факты по порядку отношений. У пары «предмет, отношение» ответ один: иначе спрашивать нечестно.

    Ошибки: `ModuleNotFoundError` с подсказкой, если Babel не установлен.
    """
    locale = _russian()
    found = [
        Fact(name, relation.kind, subject, answer)
        for name, relation in RELATIONS.items()
        for subject, answer in relation.rows(locale)
        if _plain(subject) and _plain(answer)
    ]
    answers: dict[str, set[str]] = {}
    for fact in found:
        answers.setdefault(fact.prompt, set()).add(fact.answer)
    return tuple(dict.fromkeys(fact for fact in found if len(answers[fact.prompt]) == 1))


def fixed_prompts(known: Sequence[Fact]) -> tuple[Fact, ...]:
    """Десять запросов лабораторной 7.1 среди фактов `known`, в порядке `PROMPTS`."""
    places = {(fact.relation, fact.subject): fact for fact in known}
    return tuple(places[key] for key in PROMPTS)


def digest(known: Sequence[Fact]) -> str:
    """Отпечаток данных: меняется, когда меняется хоть один факт или их порядок."""
    text = "\n".join(fact.sentence for fact in known)
    return hashlib.sha256(text.encode()).hexdigest()


def format_question(question: str, sot: str, eot: str) -> str:
    """Вопрос — реплика пользователя между метками начала и конца, затем метка начала ответа."""
    return f"{sot}user\n{question}{eot}\n{sot}model\n"


def format_answer(answer: str, eot: str) -> str:
    """Ответ модели: сам текст и метка конца реплики."""
    return f"{answer}{eot}"


def dialogues(known: Sequence[Fact], sot: str, eot: str) -> tuple[list[str], list[str]]:
    """Пары для дообучения: список запросов и список ответов той же длины."""
    return [format_question(f.question, sot, eot) for f in known], [format_answer(f.answer, eot) for f in known]


# --- Токенизатор ----------------------------------------------------------------------------------


def train_tokenizer(known: Sequence[Fact], vocabulary: int = VOCABULARY) -> Tokenizer:
    """Обучить BPE на самих фактах. Пробел — часть слова, поэтому текст восстанавливается точно.

    Слияния выбираются по частоте, при равенстве — по номеру пары: от запуска к запуску словарь один и тот же.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[AddedToken(END, special=True), AddedToken(UNKNOWN, special=True)],
        show_progress=False,
    )
    tokenizer.train_from_iterator((fact.sentence for fact in known), trainer)
    return tokenizer


def end_token(tokenizer: Tokenizer) -> int:
    """Номер метки конца ответа.

    Ошибки: `ValueError`, если токенизатор обучали не здесь и такой метки в нём нет.
    """
    token = tokenizer.token_to_id(END)
    if token is None:
        raise ValueError(f"tokenizer: в словаре нет метки {END}")
    return token


# --- Откуда берутся факты -------------------------------------------------------------------------

Rows = Iterator[tuple[str, str]]


class Relation(NamedTuple):
    """Отношение: родовое слово предмета, вопрос и источник пар «предмет, ответ»."""

    kind: str
    question: str
    rows: Callable[[Locale], Rows]


def _russian() -> Locale:
    try:
        from babel import Locale
    except ModuleNotFoundError as error:
        hint = "факты берутся из Babel, а он не установлен: python -m pip install babel"
        raise ModuleNotFoundError(hint, name="babel") from error
    return Locale("ru")


def _data(name: str) -> dict[str, object]:
    """Раздел общих данных CLDR, упорядоченный по ключам: порядок словаря Babel не обещает."""
    from babel.core import get_global

    return dict(sorted(get_global(name).items()))  # type: ignore[arg-type]


def _plain(text: str) -> bool:
    """Короткое имя из букв кириллицы и латиницы: без сокращений «о-ва», скобок и чужих алфавитов."""
    letters = r"[A-Za-zÀ-ɏА-яЁё]"
    short = len(text) <= 32 and not re.search(r"\bо-ва?\b", text)
    return short and re.fullmatch(rf"{letters}(?:[ \-'’.]*{letters})*", text) is not None


def _territories(locale: Locale) -> dict[str, str]:
    """Двухбуквенный код страны → русское имя."""
    return {code: locale.territories[code] for code in _data("territory_zones") if code in locale.territories}


def _currency(locale: Locale) -> Rows:
    """Страны с одной действующей валютой: без даты окончания и законное средство платежа."""
    for code, name in _territories(locale).items():
        history: list = _data("territory_currencies").get(code, [])  # type: ignore[assignment, type-arg]
        current = [currency for currency, _, until, tender in history if until is None and tender]
        if len(current) == 1 and current[0] in locale.currencies:
            yield name, locale.currencies[current[0]]


def _currency_code(locale: Locale) -> Rows:
    """Действующие валюты: название → код ISO 4217."""
    history = _data("territory_currencies").values()
    current = {code for rows in history for code, _, until, tender in rows if until is None and tender}  # type: ignore
    for code in sorted(current & set(locale.currencies)):
        yield locale.currencies[code], code


def _code(locale: Locale) -> Rows:
    """Код страны из трёх букв: CLDR помнит его среди прежних имён двухбуквенного."""
    names = _territories(locale)
    for old, new in _data("territory_aliases").items():
        if re.fullmatch("[A-Z]{3}", old) and len(new) == 1 and new[0] in names:  # type: ignore
            yield names[new[0]], old  # type: ignore


def _english(locale: Locale) -> Rows:
    """Страна по-английски."""
    from babel import Locale

    english = Locale("en").territories
    for code, name in _territories(locale).items():
        yield name, english[code]


def _official(locale: Locale) -> Rows:
    """Страны, где официальный язык один."""
    for code, name in _territories(locale).items():
        languages: dict = _data("territory_languages").get(code, {})  # type: ignore[assignment, type-arg]
        official = [tag for tag, about in languages.items() if about["official_status"] == "official"]
        if len(official) == 1 and official[0] in locale.languages:
            yield name, locale.languages[official[0]]


def _own_name(locale: Locale) -> Rows:
    """Как язык называет сам себя."""
    from babel import Locale
    from babel.localedata import locale_identifiers

    for tag in sorted(locale_identifiers()):
        own = Locale(tag).languages.get(tag) if tag in locale.languages else None
        if own:
            yield locale.languages[tag], own


def _script(locale: Locale) -> Rows:
    """Письменность языка — вторая часть вероятного полного тега, «am» → «am_Ethi_ET».

    Латиницу не спрашиваем: ею пишет большинство языков справочника, и угадывать её слишком легко.
    """
    for tag, full in _data("likely_subtags").items():
        script = str(full).split("_")[1]
        if script != "Latn" and tag in locale.languages and script in locale.scripts:
            yield locale.languages[tag], locale.scripts[script]


def _city(locale: Locale) -> Rows:
    """Город, по которому назван часовой пояс, → страна."""
    names, zones = _territories(locale), _data("zone_territories")
    for zone in sorted(locale.time_zones):
        city = locale.time_zones[zone].get("city")
        # Пояс острова назван самим островом: «Мальта, страна: Мальта» — не факт, а повтор.
        if city and zones.get(zone) in names and city != names[str(zones[zone])]:
            yield city, names[str(zones[zone])]


#: Имя отношения — часть фразы; порядок строк задаёт порядок фактов.
RELATIONS = {
    "валюта": Relation("Страна", "какая там валюта", _currency),
    "официальный язык": Relation("Страна", "какой там официальный язык", _official),
    "код": Relation("Страна", "какой у неё код из трёх букв", _code),
    "по-английски": Relation("Страна", "как она называется по-английски", _english),
    "код валюты": Relation("Валюта", "какой у неё код", _currency_code),
    "самоназвание": Relation("Язык", "как он называет сам себя", _own_name),
    "письменность": Relation("Язык", "какая у него письменность", _script),
    "страна": Relation("Город", "в какой он стране", _city),
}
