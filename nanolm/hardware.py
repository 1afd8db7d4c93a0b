"""Ускорители: сколько памяти, как быстро она читается, сколько операций в секунду.

Прогнозу нужны три числа карты. Память решает, помещается ли модель; полоса памяти — сколько
длится шаг генерации, который читает все веса ради одного токена; скорость счёта — сколько
длится обучение. Все числа лежат в `data/gpus.toml`, каждое со своим источником.

Две ловушки, ради которых таблица своя. Памяти всегда меньше, чем в названии карты: часть
занимают коды ECC и драйвер, поэтому вывод «помещается» делается по `usable_bytes`. И скорости
здесь плотные: вдвое большее число из рекламного листка достижимо только на матрицах, где
половина весов — нули.

Файл читается при первом обращении к карте: разбор TOML вместе с импортом дороже всего остального
запуска командной строки.
"""

from __future__ import annotations

import os
from types import MappingProxyType

from nanolm.spec import shown
from nanolm.units import GB, GIB, decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

#: Доля номинала, которую считаем доступной, если источника нет. Оценка, а не измерение: у карт
#: с источником эта доля от 0,92 до 0,99, и берётся нижний край, чтобы вывод был осторожным.
USABLE_SHARE = 0.92

#: Типы данных, для которых бывает скорость, от медленных к быстрым.
DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8")

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "gpus.toml")
#: Слова, которые в названии карты ничего не различают: «NVIDIA GeForce RTX 4090» — это `rtx-4090`.
_NOISE = ("nvidia", "geforce", "apple")


class Gpu:
    """Одна карта. Неизменяема; получают её через `gpu("h100")`.

    - `key`, `title` — короткое имя и название;
    - `memory_bytes` — память по техпаспорту, `usable_bytes` — сколько достаётся программе;
    - `usable_is_assumed` — доступная память не из источника, а `USABLE_SHARE` от номинала;
    - `bandwidth_bytes_per_s` — полоса памяти;
    - `flops_per_s` — плотная скорость в FLOP/s по типу данных; чего нет в источниках, того нет;
    - `watts` — мощность платы или `None`;
    - `link_bytes_per_s` — связь с соседними картами, обе стороны вместе, или `None`;
    - `sources` — по каждому числу: откуда оно и как выведено;
    - `unchecked` — числа, которые по сохранённой странице не сверены;
    - `note` — оговорка, если она есть.
    """

    # Порядок полей — порядок рассказа о карте, а не алфавит.
    __slots__ = (  # noqa: RUF023
        "key", "title", "memory_bytes", "usable_bytes", "usable_is_assumed", "bandwidth_bytes_per_s",
        "flops_per_s", "watts", "link_bytes_per_s", "sources", "unchecked", "note",
    )  # fmt: skip
    key: str
    title: str
    memory_bytes: int
    usable_bytes: int
    usable_is_assumed: bool
    bandwidth_bytes_per_s: int
    flops_per_s: Mapping[str, float]
    watts: float | None
    link_bytes_per_s: int | None
    sources: Mapping[str, tuple[str, ...]]
    unchecked: tuple[str, ...]
    note: str

    def __init__(
        self,
        *,
        key: str,
        title: str,
        memory_bytes: int,
        usable_bytes: int,
        usable_is_assumed: bool,
        bandwidth_bytes_per_s: int,
        flops_per_s: Mapping[str, float],
        watts: float | None = None,
        link_bytes_per_s: int | None = None,
        sources: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        unchecked: tuple[str, ...] = (),
        note: str = "",
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        given["flops_per_s"] = MappingProxyType(dict(flops_per_s))
        given["sources"] = MappingProxyType(dict(sources))
        for name in self.__slots__:
            object.__setattr__(self, name, given[name])

    @property
    def unified(self) -> bool:
        """Память общая с процессором (Apple): второй такой карты рядом не поставить."""
        return self.title.startswith("Apple")

    @property
    def best_16bit(self) -> str:
        """Тип, в котором карта учит в 16 битах: «bf16», а где его нет — «fp16»."""
        return "bf16" if "bf16" in self.flops_per_s else "fp16"

    def rate(self, dtype: str) -> float:
        """Плотная скорость в FLOP/s для типа данных.

        Ошибки: `ValueError`, если о такой скорости у карты ничего не известно.
        """
        if dtype in self.flops_per_s:
            return self.flops_per_s[dtype]
        known = ", ".join(self.flops_per_s)
        have = f"есть {known}" if known else "скоростей этой карты источники не дают"
        raise ValueError(f"dtype = {dtype!r}: у карты {self.key} нет такой скорости; {have}")

    def to_dict(self) -> dict[str, object]:
        """Все поля по порядку, пригодно для JSON и для `Gpu(**…)`."""
        fields: dict[str, object] = {name: getattr(self, name) for name in self.__slots__}
        return {**fields, "flops_per_s": dict(self.flops_per_s), "sources": dict(self.sources)}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Gpu неизменяем: поле {name} задаётся при создании")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Gpu неизменяем: поле {name} нельзя удалить")

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Gpu) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.key, self.memory_bytes, self.usable_bytes))

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.to_dict(),)

    def __repr__(self) -> str:
        return f"Gpu({self.key!r}: {self.title}, {decimal(self.usable_bytes / GIB)} ГиБ доступно)"


def gpu(name: str | Gpu) -> Gpu:
    """Карта по имени: «h100», «H100 PCIe», «RTX 4090», «m4-max-128»; регистр и пробелы не важны.

    Годится и то, что отвечает `torch.cuda.get_device_name()`. Готовая карта возвращается как есть.

    Ошибки: `ValueError`, если такой карты нет или под имя подходит несколько.
    """
    if isinstance(name, Gpu):
        return name
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"gpu = {shown(name)}: нужно название карты, например 'h100-sxm'")
    cards, index = _load()
    keys = index.get(_plain(name), ())
    if len(keys) == 1:
        return cards[keys[0]]
    if keys:
        raise ValueError(f"gpu = {shown(name)}: подходит несколько карт, назовите одну: {', '.join(keys)}")
    raise ValueError(f"gpu = {shown(name)}: такой карты нет в таблице; {_suggest(name, index)}")


def gpus() -> Mapping[str, Gpu]:
    """Все карты: ключ → карта, в порядке файла данных."""
    return _load()[0]


def _restore(fields: dict[str, Any]) -> Gpu:
    return Gpu(**fields)


def _plain(name: str) -> str:
    """Имя без регистра, разделителей, «ГБ» и имени производителя: по нему ищут."""
    text = "".join(c for c in name.lower() if c.isascii() and c.isalnum())
    for word in _NOISE:
        text = text.removeprefix(word)
    # «80GB» и «80» — один размер; в середине тоже: «h10080gbhbm3».
    return text.replace("gib", "").replace("gb", "")


def _suggest(name: str, index: Mapping[str, tuple[str, ...]]) -> str:
    """Что могли иметь в виду; `difflib` нужен только здесь, поэтому и импорт здесь."""
    import difflib

    near = difflib.get_close_matches(_plain(name), index, n=5, cutoff=0.6)
    keys = list(dict.fromkeys(key for plain in near for key in index[plain]))[:5]
    return f"похожие: {', '.join(keys)}" if keys else "весь список показывает --list-gpus"


_loaded: tuple[Mapping[str, Gpu], Mapping[str, tuple[str, ...]]] | None = None


def _load() -> tuple[Mapping[str, Gpu], Mapping[str, tuple[str, ...]]]:
    """Прочитать файл один раз: карты по ключу и указатель имён."""
    global _loaded
    if _loaded is None:
        import tomllib

        with open(_FILE, "rb") as file:
            data = tomllib.load(file)
        rows = [*data["card"], *(row for family in data["apple"] for row in _sizes(family, data["unified"]))]
        cards = {row["key"]: _card(row, data["sources"]) for row in rows}
        _loaded = MappingProxyType(cards), MappingProxyType(_index(rows))
    return _loaded


def _sizes(family: dict[str, Any], unified: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """Развернуть семейство Apple в карты по размеру памяти.

    Память здесь общая с процессором, и macOS отдаёт GPU только её часть — больше, чем две трети
    или три четверти, без настройки системы не занять.
    """
    for size in family["sizes_gib"]:
        top, bottom = unified["small" if size <= unified["small_gib"] else "large"]
        yield {
            **family,
            "key": f"{family['family']}-{size}",
            "title": f"{family['title']}, {size}\u00a0ГБ",
            "names": [family["family"]],
            "memory_gib": size,
            "usable_gib": size * top / bottom,
            "from": {**family["from"], "usable": unified["from"]},
        }


def _card(row: dict[str, Any], texts: Mapping[str, str]) -> Gpu:
    """Строка файла → карта в основных единицах."""
    memory = row["memory_gib"] * GIB
    usable = row.get("usable_gib")
    link = row.get("link_gb_s")
    return Gpu(
        key=row["key"],
        title=row["title"],
        memory_bytes=memory,
        usable_bytes=int(memory * USABLE_SHARE if usable is None else usable * GIB),
        usable_is_assumed=usable is None,
        bandwidth_bytes_per_s=round(row["bandwidth_gb_s"] * GB),
        flops_per_s={dtype: float(round(rate * 10**12)) for dtype, rate in row["tflops"].items()},
        watts=row.get("watts"),
        link_bytes_per_s=None if link is None else round(link * GB),
        sources=_sources(row, texts),
        unchecked=tuple(row.get("unchecked", ())),
        note=row.get("note", ""),
    )


def _sources(row: dict[str, Any], texts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """По каждому числу строки: тексты источников и, если число выведено, способ."""
    origin, how = row["from"], row.get("how", {})
    fields = [name for name in ("memory", "usable", "bandwidth", "watts", "link") if name in origin]
    found = {}
    for field in (*fields, *row["tflops"]):
        named = origin[field] if field in origin else origin["tflops"]
        found[field] = tuple(texts[source] for source in named.split())
        if field in how:
            found[field] += (f"расчёт: {how[field]}",)
    return found


def _index(rows: Iterable[dict[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Имя → ключи карт. Точный ключ важнее: «rtx-3060» не спорит с именами других карт."""
    found: dict[str, tuple[str, ...]] = {}
    for row in rows:
        for name in (*row["names"], row["title"]):
            plain = _plain(name)
            found[plain] = tuple(dict.fromkeys((*found.get(plain, ()), row["key"])))
    found.update({_plain(row["key"]): (row["key"],) for row in rows})
    return found
