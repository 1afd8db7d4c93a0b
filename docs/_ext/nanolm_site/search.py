"""Поиск по-русски: одна основа у «память» и «памяти», у «ё» и «е».

Стеммер Snowball разводит формы главных слов курса по разным основам, и запрос «памяти» не находит
страницу со словом «память». Здесь формы таких слов сводятся к одной основе — одинаково при построении
указателя (Python) и при запросе (JavaScript).
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING

from sphinx.search import _MINIFIED_JS_PATH
from sphinx.search.ru import SearchRussian

if TYPE_CHECKING:
    from sphinx.application import Sphinx

#: Первое слово строки даёт основу, остальные её получают. Написания-двойники стоят в одной строке.
FORMS = """
память памяти памятью памятей
видеопамять видеопамяти видеопамятью
токен токена токену токеном токене токены токенов токенам токенами токенах
голова головы голове голову головой голов головам головами головах
запись записи записью записей записям записями записях
ядро ядра ядру ядром ядре ядер ядрам ядрами ядрах
объём объёма объёму объёмом объёме объёмы объёмов объёмам объёмами объёмах
кэш кеш кэша кеша кэшу кешу кэшем кешем кэше кеше кэши кеши кэшей кешей
слой слоя слою слоем слое слои слоёв слоям слоями слоях
вес веса весу весом весе весов весам весами весах
байт байта байту байтом байте байты байтов байтам байтами байтах
эксперт эксперта экспертом эксперты экспертов экспертам экспертами экспертах
параметр параметра параметром параметры параметров параметрам параметрами параметрах
модель модели моделью моделей моделям моделями моделях
последовательность последовательности последовательностью последовательностей
точность точности точностью точностей
активация активации активацию активацией активаций активациям активациями
карта карты карте карту картой карт картам картами картах
видеокарта видеокарты видеокарте видеокарту видеокартой видеокарт видеокартам видеокартами
стена стены стене стену стеной стен
доля доли доле долю долей долям долями
длина длины длине длину длиной длин
сложение сложения сложений сложением
умножение умножения умножений умножением
"""

JS = """
window.Stemmer = function () {
  const russian = new RussianStemmer();
  const aliases = %s;
  this.stemWord = function (word) {
    const stem = russian.stemWord(word.toLowerCase().replaceAll("ё", "е"));
    return Object.hasOwn(aliases, stem) ? aliases[stem] : stem;
  };
};
"""


class SearchCourseRussian(SearchRussian):
    """Русский поиск со словарём форм курса."""

    # Готовый файл стеммера не годится: перед ним и после него нужна наша замена.
    js_stemmer_rawcode = ""

    def plain_stem(self, word: str) -> str:
        """Основа по Snowball; «ё» заранее заменена на «е»."""
        return str(self.stemmer.stemWord(word.lower().replace("ё", "е")))

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Основа формы -> основа слова; только там, где Snowball их развёл."""
        table = {}
        for line in FORMS.strip().splitlines():
            first, *others = (self.plain_stem(word) for word in line.split())
            table |= {other: first for other in others if other != first}
        return table

    def stem(self, word: str) -> str:
        """Основа слова для указателя."""
        stem = self.plain_stem(word)
        return self.aliases.get(stem, stem)

    @property
    def js_stemmer_code(self) -> str:  # type: ignore[override]
        """Тот же стеммер для браузера."""
        names = ("base-stemmer.js", "russian-stemmer.js")
        parts = [(_MINIFIED_JS_PATH / name).read_text(encoding="utf-8") for name in names]
        return "\n".join([*parts, JS % json.dumps(self.aliases, ensure_ascii=False, sort_keys=True)])


def setup(app: Sphinx) -> None:
    """Заменить русский поиск Sphinx своим."""
    app.add_search_language(SearchCourseRussian)
