"""Каталоги сайта: все модели и все видеокарты одной таблицей, построенной из данных пакета.

Таблица лежит в странице целиком и читается без скриптов. Скрипт `nanolm-catalog.js` только добавляет к ней
сортировку и поиск, а точное число для сортировки берёт из атрибута `data-value`.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from docutils import nodes

from . import tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sphinx.application import Sphinx

    from nanolm.hardware import Gpu
    from nanolm.spec import Spec

#: Контекст, при котором модели сравниваются; у модели с коротким контекстом — её собственный.
CONTEXT = 8192
#: Скорости в столбцах таблицы карт.
RATES = ("fp32", "tf32", "bf16", "fp16", "fp8")
#: По этому классу страница узнаёт, что ей нужны скрипт и стиль каталога.
KIND = "nanolm-catalog"


@dataclass(frozen=True)
class Column:
    """Столбец: заголовок, пояснение для наведения и чтения вслух, числовой ли он."""

    title: str
    about: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Cell:
    """Ячейка: что показать и, если это число, по чему сортировать; `code` — короткое имя под названием."""

    text: str
    value: float | None = None
    code: str = ""


def catalog(name: str, label: str, find: str, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> nodes.raw:
    """Таблица каталога как HTML; `find` — подпись поля поиска, которое добавит скрипт."""
    head = "".join(_heading(column) for column in columns)
    body = "\n".join("<tr>" + "".join(map(_cell, row, columns)) + "</tr>" for row in rows)
    html = (
        f'<div class="{KIND}" id="{name}" data-find="{escape(find)}">\n'
        f'<div class="table-wrapper" tabindex="0" role="region" aria-label="{escape(label)}">\n'
        f'<table class="docutils"><caption>{escape(label)}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>\n</div></div>"
    )
    return nodes.raw("", html, format="html")


def _heading(column: Column) -> str:
    kind = ' class="number"' if column.numeric else ""
    about = f' title="{escape(column.about)}"' if column.about else ""
    return f'<th scope="col"{kind}{about}>{escape(column.title)}</th>'


def _cell(cell: Cell, column: Column) -> str:
    text = escape(cell.text) + (f" <code>{escape(cell.code)}</code>" if cell.code else "")
    if cell.code:
        return f'<th scope="row">{text}</th>'
    # Прочерку сравнивать нечего: без data-value он при любой сортировке стоит в конце.
    value = "" if cell.value is None else f' data-value="{cell.value!r}"'
    kind = ' class="number"' if column.numeric else ""
    return f"<td{kind}{value}>{text}</td>"


# --- Модели -------------------------------------------------------------------------------------

MODEL_COLUMNS = (
    Column("Модель", "Название и имя для --preset", numeric=False),
    Column("Параметры", "Все хранимые параметры"),
    Column("Активные", "Сколько параметров проходит один токен"),
    Column("S", "Контекст, при котором посчитаны столбцы правее"),
    Column("GFLOPs на токен", "Обучение: прямой и обратный проход, внимание по полному квадрату"),
    Column("KV, КиБ на токен", "Кеш в bf16, делённый на контекст: окна учтены"),
    Column("Пакет кеш = веса", "Пакет, при котором кеш весит столько же, сколько веса"),
    Column("Веса, ГиБ", "bf16"),
    Column("Вывод, ГиБ", "bf16, одна последовательность: веса, кеш и рабочие буферы"),
    Column("Обучение, ГиБ", "Смешанная точность, AdamW, слитое внимание, одна последовательность"),
    Column("Устройство", "Внимание, смесь экспертов, окно, связанная голова", numeric=False),
)


def traits(spec: Spec) -> str:
    """Чем модель отличается от простого декодера, в нескольких словах."""
    found = [_attention_kind(spec)]
    if spec.experts:
        found.append(f"смесь: {spec.experts_per_token} из {spec.experts}")
    narrow = [window for window in spec.windows if window is not None]
    if narrow:
        place = "во всех слоях" if len(narrow) == spec.L else f"в {len(narrow)} слоях из {spec.L}"
        found.append(f"окно {min(narrow)} {place}")
    if spec.tie_embeddings:
        found.append("голова связана")
    return ", ".join(found)


def _attention_kind(spec: Spec) -> str:
    if spec.kv_rank:
        return "MLA"
    if spec.K == spec.N:
        return "MHA"
    return "MQA" if spec.K == 1 else f"GQA {spec.G}:1"


def model_row(key: str, title: str, spec: Spec) -> list[Cell]:
    """Строка модели: счета при контексте `CONTEXT` или собственном, если он короче."""
    from nanolm import budget
    from nanolm.units import GIB, KIB, decimal, number

    S = min(CONTEXT, spec.S)
    parameters = budget.parameter_breakdown(spec)
    measures = [
        (budget.flops_per_token(spec, S).total / 1e9, 2),
        (budget.kv_cache_bytes(spec, 1, S).total / S / KIB, 2),
        (budget.crossover_batch(spec, S), 1),
        (budget.inference_memory(spec, 1, S)["weights"] / GIB, 2),
        (budget.inference_memory(spec, 1, S).peak / GIB, 2),
        (budget.training_memory(spec, 1, S).total / GIB, 1),
    ]
    counts = [Cell(number(value), value) for value in (parameters.total, parameters.active, S)]
    return [
        Cell(title, code=key), *counts,
        *(Cell(decimal(value, digits), value) for value, digits in measures), Cell(traits(spec)),
    ]  # fmt: skip


class ModelTable(tables.DataTable):
    """Все модели из `nanolm/data/models.toml`."""

    def build(self) -> nodes.Node:
        """Параметры, FLOPs, кеш, память каждой модели."""
        from nanolm.zoo import preset, presets

        rows = (model_row(key, data["title"], preset(key)) for key, data in presets().items())
        return catalog("models", "Модели и их счета", "Найти модель", MODEL_COLUMNS, rows)


# --- Видеокарты ---------------------------------------------------------------------------------

GPU_COLUMNS = (
    Column("Карта", "Название и имя для --gpu", numeric=False),
    Column("Память, ГиБ", "По техпаспорту"),
    Column("Доступно, ГиБ", "Сколько достаётся программе"),
    Column("Полоса, ТБ/с", "Пропускная способность памяти"),
    *(Column(f"{rate}, TFLOP/s", "Плотная скорость") for rate in RATES),
    Column("Связь, ГБ/с", "С соседними картами, обе стороны вместе"),
    Column("Мощность, Вт", "Плата целиком"),
)


def gpu_row(card: Gpu) -> list[Cell]:
    """Строка карты: «*» — доступная память принята, «?» — число по сохранённой странице не сверено."""
    from nanolm.units import GB, GIB

    scaled = [
        ("memory", card.memory_bytes / GIB, 2),
        ("usable", card.usable_bytes / GIB, 2),
        ("bandwidth", card.bandwidth_bytes_per_s / GB / 1000, 3),
        *((rate, card.flops_per_s[rate] / 1e12 if rate in card.flops_per_s else None, 1) for rate in RATES),
        ("link", None if card.link_bytes_per_s is None else card.link_bytes_per_s / GB, 0),
        ("watts", card.watts, 0),
    ]
    return [Cell(card.title, code=card.key), *(_measure(card, *item) for item in scaled)]


def _measure(card: Gpu, field: str, value: float | None, digits: int) -> Cell:
    from nanolm.units import decimal

    if value is None:
        return Cell("—")
    mark = "*" if field == "usable" and card.usable_is_assumed else ""
    return Cell(decimal(value, digits) + mark + ("?" if field in card.unchecked else ""), value)


class GpuTable(tables.DataTable):
    """Видеокарты из `nanolm/data/gpus.toml`."""

    def build(self) -> nodes.Node:
        """Память, полоса, плотные скорости, связь и мощность каждой карты."""
        from nanolm.hardware import gpus

        return catalog("gpus", "Видеокарты", "Найти карту", GPU_COLUMNS, map(gpu_row, gpus().values()))


def add_assets(app: Sphinx, _name: str, _template: str, context: dict[str, Any], _doctree: Any) -> None:
    """Скрипт и стиль — только тем страницам, на которых есть каталог."""
    if f'class="{KIND}"' in context.get("body", ""):
        app.add_css_file("nanolm-catalog.css")
        app.add_js_file("nanolm-catalog.js", loading_method="defer")


def setup(app: Sphinx) -> None:
    """Подключить каталоги."""
    app.add_directive("model-table", ModelTable)
    app.add_directive("gpu-table", GpuTable)
    app.connect("html-page-context", add_assets)
