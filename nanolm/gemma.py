"""Настоящая пара лабораторной 7.1: Gemma 3 1B и 4B через transformers.

Модели весят гигабайты, поэтому урок их не скачивает: адрес — папка на диске или имя на хабе — задают переменные
окружения `NANOLM_GEMMA_SMALL` и `NANOLM_GEMMA_LARGE`. Нет адресов или нет видеокарты — урок показывает записанное
измерение, а нет и его — прогноз.

Малую модель удаляют до загрузки большой: вместе на карту с 16 ГБ они не поместились бы. Мало сделать `del` —
ссылка могла остаться в цикле, а распределитель держит память про запас, поэтому идут сборка мусора и `empty_cache`.
"""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nanolm import records
from nanolm.machine import driver, name_of, total_bytes
from nanolm.measure import PROBE_VERSION, once

#: Имя модели пары → переменная окружения с её адресом.
VARIABLES = {"малая": "NANOLM_GEMMA_SMALL", "большая": "NANOLM_GEMMA_LARGE"}
#: Ключи тех же моделей в записи.
KEYS = {"малая": "small", "большая": "large"}
RECORD = "lab_7_1_gemma.json"

#: Десять тем исходной лабораторной в наших словах. Модели не обучены диалогу, поэтому это начала фраз, а не вопросы.
TOPICS = {
    "Килиманджаро": ("Самая высокая гора Африки — это", "The highest mountain in Africa is"),
    "рис джоллоф": (
        "Чтобы приготовить нигерийский рис джоллоф, нужны",
        "To cook Nigerian jollof rice you need the following ingredients:",
    ),
    "кофе": ("Дикий кофе впервые нашли в стране", "Wild coffee was first found in the country of"),
    "протея": ("Национальный цветок Южно-Африканской Республики —", "The national flower of South Africa is the"),
    "Марракеш": ("Город Марракеш известен тем, что", "The city of Marrakesh is known for"),
    "население": ("Больше всего людей в Африке живёт в стране", "The African country with the most people is"),
    "река": ("Самая глубокая река в мире —", "The deepest river in the world is"),
    "масаи": ("Народ масаи живёт в странах", "The Maasai people live in"),
    "пословица": (
        "Пословица «рычащий лев не ловит добычи» означает, что",
        "The proverb “a roaring lion kills no game” means that",
    ),
    "браай": ("В Южной Африке словом «браай» называют", "In South Africa, a braai is"),
}
PROMPTS = tuple(prompt for pair in TOPICS.values() for prompt in pair)


@dataclass
class Answers:
    """Что ответила одна модель и чего это стоило; `seconds` — по одному числу на запрос."""

    source: str
    parameters: int
    weight_bytes: int
    texts: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    tokens: int = 0


def sources() -> dict[str, str]:
    """Адреса моделей из окружения; чего не задано, того нет."""
    return {name: os.environ[variable] for name, variable in VARIABLES.items() if os.environ.get(variable)}


def compare(
    addresses: dict[str, str], device: torch.device, *, prompts: Sequence[str] = PROMPTS, new_tokens: int = 50
) -> dict[str, Answers]:
    """Задать обеим моделям одни и те же запросы: сначала малой, потом большой."""
    missing = [VARIABLES[name] for name in VARIABLES if name not in addresses]
    if missing:
        raise ValueError(f"{', '.join(missing)}: задайте папку модели или её имя на хабе")
    return {name: _ask(addresses[name], device, prompts, new_tokens) for name in VARIABLES}


def _ask(source: str, device: torch.device, prompts: Sequence[str], new_tokens: int) -> Answers:
    with loaded(source, device) as (model, tokenizer):
        parameters = list(model.parameters())
        answers = Answers(
            Path(source).name, sum(p.numel() for p in parameters), sum(p.numel() * p.element_size() for p in parameters)
        )
        _continue(model, tokenizer, prompts[0], min(10, new_tokens))  # разогрев
        for prompt in prompts:
            produced: list[tuple[str, int]] = []
            answers.seconds.append(
                once(lambda p=prompt, out=produced: out.append(_continue(model, tokenizer, p, new_tokens)), device)  # type: ignore[misc]
            )
            text, count = produced[0]
            answers.texts.append(text)
            answers.tokens += count
    return answers


def _continue(model: Any, tokenizer: Any, prompt: str, new_tokens: int) -> tuple[str, int]:
    """Жадно продолжить запрос: текст продолжения и число токенов в нём."""
    inputs = tokenizer(prompt, return_tensors="pt").to(model.device)
    with torch.inference_mode():
        whole = model.generate(**inputs, max_new_tokens=new_tokens, do_sample=False)
    fresh = whole[0, inputs["input_ids"].shape[1] :]
    return str(tokenizer.decode(fresh, skip_special_tokens=True)), len(fresh)


@contextmanager
def loaded(source: str, device: torch.device) -> Iterator[tuple[Any, Any]]:
    """Модель в 16 битах и её токенизатор; на выходе модель удаляется, а память возвращается карте.

    Ошибки: `ValueError` с именем адреса, если по нему нет модели.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # У T4 нет тензорных ядер bf16, а активации Gemma в fp16 переполняются: остаётся медленный bf16.
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
        model = model.to(device).eval()
    except (OSError, ValueError) as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise ValueError(f"{source}: модель не загрузилась: {first}") from error
    held = [model, tokenizer]
    del model, tokenizer
    try:
        yield held[0], held[1]
    finally:
        held.clear()
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


# --- Запись ---------------------------------------------------------------------------------------


def record(answers: dict[str, Answers], device: torch.device, prompts: Sequence[str] = PROMPTS) -> dict[str, Any]:
    """Запись измерения: сырые секунды, байты, ответы и машина. Пути диска в неё не попадают."""
    return records.build(
        "lab-7.1-gemma",
        machine={"name": name_of(device), "memory_bytes": total_bytes(device), "driver": driver()},
        software={"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda},
        spec={KEYS[name]: {"model": a.source, "parameters": a.parameters} for name, a in answers.items()},
        workload={
            "prompts": list(prompts),
            "texts": {KEYS[name]: a.texts for name, a in answers.items()},
            "tokens": {KEYS[name]: a.tokens for name, a in answers.items()},
        },
        samples_s={KEYS[name]: a.seconds for name, a in answers.items()},
        sizes={f"weights_{KEYS[name]}": a.weight_bytes for name, a in answers.items()},
        probe_version=PROBE_VERSION,
    )


def record_path() -> Path:
    """Где лежит запись: рядом с уроками."""
    return Path(__file__).resolve().parent.parent / "lessons" / "records" / RECORD


def recorded(path: Path | None = None) -> tuple[dict[str, Any], dict[str, Answers]] | None:
    """Записанное измерение или `None`, если его ещё нет. Испорченная запись — ошибка: молчать о ней нельзя."""
    path = path or record_path()
    if not path.is_file():
        return None
    found = records.load(path)
    return found, {
        name: Answers(
            found["spec"][key]["model"],
            found["spec"][key]["parameters"],
            found["bytes"][f"weights_{key}"],
            found["workload"]["texts"][key],
            found["samples_s"][key],
            found["workload"]["tokens"][key],
        )
        for name, key in KEYS.items()
    }
