"""Измеренные запуски на RTX A6000: счёт памяти transformers против счётчика распределителя CUDA.

Запуски сделаны автором vramcalc 0.1.2 с transformers 4.57.6 и peft 0.21.2 (его README, раздел Validation): пик
`torch.cuda.max_memory_allocated` в десятичных гигабайтах, два знака. Порядок шага — его же bench: первый шаг
разогревает, градиенты обнуляются, а не удаляются, AdamW foreach, логиты отпущены до шага оптимизатора.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from nanolm.budget import inference_memory, training_memory
from nanolm.zoo import preset

RUNS = json.loads((Path(__file__).parent / "golden" / "gpu_memory_measured.json").read_text(encoding="utf-8"))["runs"]
VERSION = "transformers-4.57"

#: Ещё девять запусков из той же таблицы README, которых счёт при написании не видел.
HELD_OUT = [
    ("llama-3.2-1b", "inference", "bf16 b=1 s=4096 sdpa", 3.68),
    ("llama-3.1-8b", "inference", "bf16 b=1 s=2048 sdpa", 16.88),
    ("qwen2.5-1.5b", "inference", "bf16 b=1 s=2048 sdpa", 3.78),
    ("llama-3.2-1b", "train", "bf16 b=1 s=2048 sdpa full amp ckpt", 25.22),
    ("llama-3.2-3b", "train", "bf16 b=1 s=2048 sdpa full pure ckpt", 32.15),
    ("llama-3.2-1b", "train", "bf16 b=1 s=2048 sdpa lora=16 amp ckpt", 9.51),
    ("llama-3.2-3b", "train", "bf16 b=1 s=2048 sdpa lora=16 pure", 18.98),
    ("llama-3.1-8b", "train", "bf16 b=1 s=2048 sdpa lora=16 pure ckpt", 20.55),
    ("qwen2.5-1.5b", "train", "bf16 b=1 s=2048 sdpa lora=16 pure", 13.78),
]


def predicted(run: dict[str, Any], version: str = VERSION) -> int:
    """Счёт того же запуска, байты."""
    _, batch, context, kernel, *words = run["setting"].split()
    B, S = int(batch[2:]), int(context[2:])
    spec, attention = preset(run["model"]), {"sdpa": "fused", "eager": "naive"}[kernel]
    if run["mode"] == "inference":
        return inference_memory(spec, B, S, "bf16", implementation=version, attention=attention).peak
    rank = next((int(word[5:]) for word in words if word.startswith("lora=")), 0)
    return training_memory(
        spec, B, S, "autocast" if "amp" in words else "bf16", attention=attention,
        checkpointing="full" if "ckpt" in words else "none", implementation=version, lora_rank=rank,
    ).total  # fmt: skip


def error(run: dict[str, Any], version: str = VERSION) -> float:
    """Относительная ошибка счёта."""
    return float(predicted(run, version) / (run["measured_gb"] * 1e9) - 1)


def test_there_are_ten_runs_of_every_kind() -> None:
    assert len(RUNS) == 10
    for word in ("inference", "eager", "ckpt", "amp", "lora=16", "qwen2.5-1.5b"):
        assert any(word in f"{run['model']} {run['mode']} {run['setting']}" for run in RUNS)


@pytest.mark.parametrize("run", RUNS, ids=[f"{run['model']} {run['mode']} {run['setting']}" for run in RUNS])
def test_measured_run(run: dict[str, Any]) -> None:
    """Требование — 2 %; вышло лучше 0,4 %, и это же предел: округление записи — до 0,16 %."""
    assert abs(error(run)) < 0.004


@pytest.mark.parametrize("row", HELD_OUT, ids=lambda row: f"{row[0]} {row[1]} {row[2]}")
def test_run_the_account_had_not_seen(row: tuple[str, str, str, float]) -> None:
    """Лучше 0,2 %, а это почти округление записи; опубликованная ошибка на этих же запусках — до 4,3 %."""
    run = dict(zip(("model", "mode", "setting", "measured_gb"), row, strict=True))
    assert abs(error(run)) < 0.002


def test_median_error() -> None:
    """Требование — 0,6 %."""
    assert statistics.median(abs(error(run)) for run in RUNS) < 0.001


def test_the_version_matters() -> None:
    """Маска, которой 4.57 обучает всегда, — не мелочь: без неё сошлось бы хуже 1 % у каждого обучения с sdpa."""
    full = [run for run in RUNS if "sdpa full" in run["setting"] and "ckpt" not in run["setting"]]
    assert len(full) == 3
    assert all(error(run, "transformers") < -0.01 for run in full)


def test_nanolm_is_another_implementation() -> None:
    """NanoLM держит меньше: тот же шаг её счётом вышел бы не меньше чем на 2 % легче."""
    trained = [run for run in RUNS if run["mode"] == "train" and "lora" not in run["setting"]]
    assert all(error(run, "nanolm") < -0.02 for run in trained)
