"""Вопрос калькулятора: форма, из которой он собирается, и команда, которая спрашивает то же самое.

Поле формы — ключ `python -m nanolm.budget` под тем же именем (подчёркивание вместо дефиса). Пустое поле значит «как
у модели» или «по умолчанию», поэтому состояние, адрес и команда содержат только то, что посетитель изменил.

Модель берётся из config.json, если его бросили на страницу, иначе из списка, иначе из размеров.
"""

from __future__ import annotations

from nanolm import budget, summary, units, zoo
from nanolm.live import form as forms
from nanolm.live import models
from nanolm.spec import NOTATION, Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from nanolm.summary import Question
    from nanolm.zoo import Described

    State = dict[str, str]
    Errors = dict[str, str]

NAME = "calculator"

# --- Форма --------------------------------------------------------------------------------------

#: Размеры модели: поле → подпись. Пустое — как у выбранной модели.
SIZES = {
    **{name: NOTATION[name] for name in "VDLNKHF"},
    "experts": "число экспертов",
    "experts_per_token": "экспертов на токен",
    "learned_positions": "обучаемых позиций (0 — RoPE)",
    "window": "скользящее окно, токенов",
}
_RARE_SIZES = ("learned_positions", "window")
_LETTERS = {"experts": "E", "experts_per_token": "k", "window": "W"}
SWITCHES = {
    "tie_embeddings": "выходная голова делит матрицу с эмбеддингом",
    "qkv_bias": "смещения у проекций запроса, ключа и значения",
    "out_bias": "смещение у выходной проекции внимания",
    "ffn_bias": "смещения в полносвязном блоке",
    "qk_norm": "нормы запроса и ключа",
    "norm_bias": "LayerNorm вместо RMSNorm",
    "plain_ffn": "простой полносвязный блок из двух матриц вместо SwiGLU",
}

#: Списки вопроса: поле → значение по умолчанию и названия. Первое слово названия — значение ключа.
CHOICES: dict[str, tuple[str, dict[str, str]]] = {
    "dtype": ("bf16", {name: f"{name}: {units.number(8 * size)} бит" for name, size in budget.DTYPES.items()}),
    "recipe": ("mixed", {name: f"{name}: {recipe.title}" for name, recipe in budget.RECIPES.items()}),
    "optimizer": (
        "adamw",
        {
            "adamw": "adamw: два момента",
            "sgd": "sgd: состояния нет",
            "momentum": "momentum: один момент",
            "adamw8bit": "adamw8bit: моменты по 8 бит",
        },
    ),
    "attention": (
        "fused",
        {"fused": "fused: вероятности не хранятся", "naive": "naive: хранится матрица S×S каждой головы"},
    ),
    "checkpointing": (
        "none",
        {"none": "none: хранится всё", "selective": "selective: пересчёт ядра внимания", "full": "full: пересчёт слоя"},
    ),
    "convention": (
        "full",
        {
            "full": "full: полный квадрат S×S",
            "windowed": "windowed: квадрат в пределах окна",
            "causal": "causal: только видимые пары",
        },
    ),
    "kv": (
        "theory",
        {
            "theory": "theory: сколько нужно вниманию",
            "transformers": "transformers: как держит эта библиотека",
            "engine": "engine: весь контекст, окна не учтены",
            "uncompressed": "uncompressed: MLA без сжатия",
        },
    ),
    "implementation": (
        "nanolm",
        {
            "nanolm": "nanolm: модель этого пакета",
            "transformers": "transformers: что держит эта библиотека",
            "transformers-4.57": "transformers-4.57: её прежняя версия",
        },
    ),
}


def _models() -> forms.Options:
    return models.options("свои размеры")


def _compressions() -> forms.Options:
    from nanolm.quantization import NAMES

    return {"": [("", "как в файле модели"), ("none", "без квантования"), *((name, name) for name in NAMES)]}


def _cards() -> forms.Options:
    from nanolm.hardware import gpus

    groups: forms.Options = {"": [("", "не выбрана")]}
    for key, card in gpus().items():
        groups.setdefault("Apple" if card.unified else "NVIDIA", []).append((key, card.title))
    return groups


def _size(name: str, title: str) -> forms.Field:
    letter = _LETTERS.get(name, name if name in NOTATION else "")
    return forms.Field(name, title, letter=letter)


def _select(name: str, label: str) -> forms.Field:
    default, titles = CHOICES[name]
    return forms.Field(name, label, "select", default, options=lambda: {"": list(titles.items())})


_DROP = (
    # Поле файла спрятано под подписью: свои слова («Choose File») браузер пишет на языке системы.
    '<div class="nanolm-drop" data-drop><input type="file" id="calculator-file" accept=".json,application/json" '
    'aria-describedby="calculator-file-hint calculator-config-error">'
    '<label for="calculator-file">Взять модель из файла config.json</label>'
    '<p class="nanolm-hint" id="calculator-file-hint">Файл можно и перетащить сюда. Его читает браузер; никуда, даже в '
    "ссылку на эту страницу, он не попадает.</p>"
    '<p class="nanolm-file" data-drop-name role="status" hidden></p>'
    '<button type="button" data-drop-clear hidden>Убрать файл</button></div>'
)

FORM = forms.Form(
    NAME,
    (
        forms.Group(
            "Модель",
            (
                forms.Field("preset", "Модель из списка", "select", "llama-3-8b", options=_models),
                forms.Field("config", "config.json", "hidden"),
            ),
            tail=_DROP,
        ),
        forms.Group(
            "Размеры: пустое поле — как у выбранной модели",
            (
                *(_size(name, title) for name, title in SIZES.items() if name not in _RARE_SIZES),
                forms.Field("tie_embeddings", SWITCHES["tie_embeddings"], "checkbox"),
            ),
            folded=True,
        ),
        forms.Group(
            "Позиции, окно, смещения, нормы",
            (
                *(_size(name, SIZES[name]) for name in _RARE_SIZES),
                *(forms.Field(name, title, "checkbox") for name, title in SWITCHES.items() if name != "tie_embeddings"),
            ),
            folded=True,
        ),
        forms.Group(
            "Задача",
            (
                forms.Field("B", "размер пакета", default="1", letter="B"),
                forms.Field("S", "длина последовательности", letter="S", unit="токенов"),
                _select("dtype", "точность весов и кеша при выводе"),
                forms.Field("gpu", "видеокарта", "select", "h100-sxm", options=_cards),
                forms.Field("gpus", "число карт при обучении", default="1"),
            ),
        ),
        forms.Group(
            "Вывод: квантование весов и кеш",
            (
                forms.Field("quantize", "квантование весов", "select", options=_compressions),
                _select("kv", "сколько токенов держит кеш"),
                forms.Field("kv_block", "кеш блоками", unit="токенов", hint="Страницы движка: у vLLM 16."),
            ),
            folded=True,
        ),
        forms.Group(
            "Обучение",
            (
                _select("recipe", "рецепт точности"),
                _select("optimizer", "оптимизатор"),
                _select("attention", "ядро внимания"),
                _select("checkpointing", "чекпоинтинг активаций"),
                _select("convention", "какие пары внимания считать во FLOPs"),
                forms.Field("tokens", "токенов обучения", hint="Можно как 15e12 или «15 трлн». Нужна видеокарта."),
                forms.Field("mfu", "доля пика (MFU)"),
                forms.Field("price", "цена одного GPU-часа"),
            ),
        ),
        forms.Group(
            "Чья реализация и адаптеры LoRA",
            (
                _select("implementation", "чья память"),
                forms.Field("lora_rank", "ранг адаптеров LoRA", hint="Пусто или 0 — учится вся модель."),
                forms.Field("lora_targets", "матрицы с адаптерами", "text", hint="Имена через запятую."),
            ),
            folded=True,
        ),
    ),
)


# --- Из строк — вопрос --------------------------------------------------------------------------

#: Остальные целые поля.
_COUNTS = ("B", "S", "gpus", "tokens", "kv_block", "lora_rank")

#: Слово в начале ошибки → поле, которое её показывает: у счетов это поле называется иначе.
_RENAMED = {"weights": "quantize", "block": "kv_block", "cards": "gpus", "kernel": "attention"}
_BLAME = {
    **_RENAMED,
    "config.json": "config",
    "gated_ffn": "plain_ffn",
    **dict.fromkeys(("shared_F", "dense_layers", "dense_F", "router_bias"), "experts"),
}

#: Последний файл и модель из него: при каждом нажатии клавиши разбирать его незачем.
_file: list[Any] = ["", None]


def _from_file(text: str) -> Described:
    if _file[0] != text:
        _file[:] = [text, zoo.from_text(text)]
    found: Described = _file[1]
    return found


def ask(state: State, fit: str | None = None) -> tuple[Question | None, Errors]:
    """Вопрос по состоянию формы и ошибки по полям. Вопроса нет, если есть ошибки."""
    values, errors = _values(state)
    errors = {**_missing(state, values, errors), **errors}
    if errors:
        return None, errors
    try:
        source = _source(state)
        changes = _changes(state, values)
        spec = Spec(**changes) if source is None else source.spec.replace(**changes)
        _check_family(source, values["implementation"])
        named = None if state["quantize"] in ("", "none") else state["quantize"]
        weights = named if state["quantize"] or source is None else source.weights()
        names = ("B", "S", *CHOICES, "gpu", "gpus", "tokens", "mfu", "price", "lora_rank", "lora_targets")
        given = {name: values[name] for name in names if values[name] is not None}
        block = 1 if values["kv_block"] is None else values["kv_block"]
        return summary.Question(spec, **given, fit=fit, weights=weights, block=block, source=source), {}
    except ValueError as error:
        return None, {FORM.blame(str(error), _BLAME): _in_form_words(str(error))}


def _in_form_words(message: str) -> str:
    """`block = 0: …` → `kv_block = 0: …`: имя аргумента счёта становится именем поля."""
    word = message.split(" ", 1)[0].rstrip(":,")
    return message.replace(word, _RENAMED.get(word, word), 1)


def _values(state: State) -> tuple[dict[str, Any], Errors]:
    """Числа и слова из строк; у каждого неверного поля — своя ошибка."""
    values: dict[str, Any] = {"gpu": state["gpu"] or None, "lora_targets": _names(state["lora_targets"])}
    errors: Errors = {}
    readers: dict[str, Any] = dict.fromkeys((*SIZES, *_COUNTS), forms.whole_number)
    readers |= dict.fromkeys(("mfu", "price"), forms.real_number)
    readers |= {
        name: lambda state, name: forms.choice(state, name, CHOICES[name][1], CHOICES[name][0]) for name in CHOICES
    }
    for name, read in readers.items():
        try:
            values[name] = read(state, name)
        except ValueError as error:
            errors[name] = str(error)
    return values, errors


def _names(text: str) -> tuple[str, ...] | None:
    """Имена через запятую; пустое поле — `None`."""
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text.strip() else None


def _changes(state: State, values: Mapping[str, Any]) -> dict[str, Any]:
    """Что посетитель изменил в модели: поля `Spec`."""
    found = {name: values[name] for name in (*SIZES, "S") if values[name] is not None}
    found |= {name: True for name in SWITCHES if state[name] == "on"}
    if found.pop("plain_ffn", False):
        found["gated_ffn"] = False
    return found


def _own(state: State) -> bool:
    """Выбраны ли «свои размеры»: ни файла, ни модели из списка."""
    return not state["config"].strip() and not state["preset"]


def _source(state: State) -> Described | None:
    """Модель, которую меняет посетитель; у своих размеров её нет."""
    if _own(state):
        return None
    return _from_file(state["config"]) if state["config"].strip() else models.describe(state["preset"])


def _missing(state: State, values: Mapping[str, Any], wrong: Errors) -> Errors:
    """Без чего своей модели нет; у неверного поля уже есть своя ошибка."""
    if not _own(state):
        return {}
    missing = [name for name in "VDLN" if name not in wrong and values[name] is None]
    return {name: f"{name} не задан: модель не выбрана, назовите V, D, L и N" for name in missing}


def _check_family(source: Described | None, implementation: str) -> None:
    """Семейство модели должно быть из тех, чья память описана: правило то же, что у командной строки."""
    if source is None or implementation == "nanolm":
        return
    from nanolm.transformers_memory import check_family

    check_family(source.family, implementation)


# --- Из вопроса — слова -------------------------------------------------------------------------


def placeholders(state: State, question: Question | None) -> State:
    """Что стоит за пустыми полями. Пока своей модели нет, за её размерами не стоит ничего."""
    if question is None:
        return dict.fromkeys((*SIZES, "S"), "") if _own(state) else {}
    q, fields = question, question.spec.to_dict()
    sizes = {name: fields[name] for name in SIZES if isinstance(fields[name], int)}
    found = {name: str(value) for name, value in {**sizes, "S": q.S}.items()}
    window = found.get("window", "нет" if q.spec.window is None else "по слоям")
    return {**found, "window": window, "mfu": "0,45", "lora_rank": "0", "lora_targets": ", ".join(budget.LORA_TARGETS)}


def command(state: State, fit: str | None = None) -> str:
    """Команда, которая даёт тот же ответ: только ключи, которые отличаются от умолчаний."""
    import shlex

    values, _ = _values(state)
    words = ["python", "-m", "nanolm.budget"]
    if state["config"].strip():
        words += ["--config", "config.json"]
    elif state["preset"]:
        words += ["--preset", state["preset"]]
    for name in (*SIZES, "S"):
        words += _flag(name, values[name])
    words += [f"--{name.replace('_', '-')}" for name in SWITCHES if state[name] == "on"]
    words += _flag("quantize", state["quantize"] or None)
    if values["lora_rank"]:
        words += _flag("lora_rank", values["lora_rank"])
        words += _flag("lora_targets", ",".join(values["lora_targets"]) if values["lora_targets"] else None)
    for name in ("B", *CHOICES, "kv_block", "gpu", "gpus", "tokens", "mfu", "price"):
        same = values[name] == {"B": 1, "gpus": 1, "mfu": 0.45}.get(name, CHOICES.get(name, (None,))[0])
        words += [] if same else _flag(name, values[name])
    return shlex.join([*words, *_flag("fit", fit)])


def _flag(name: str, value: object) -> list[str]:
    if value is None:
        return []
    text = _round(value) if name == "tokens" and isinstance(value, int) else str(value)
    return [f"--{name.replace('_', '-')}", text]


def _round(value: int) -> str:
    """15000000000000 → 15e12, если командная строка прочтёт то же число."""
    digits = str(value)
    zeros = len(digits) - len(digits.rstrip("0"))
    short = f"{digits[: len(digits) - zeros]}e{zeros}"
    return short if zeros >= 6 and int(float(short)) == value else digits
