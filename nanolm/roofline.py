"""Пределы этой машины: как быстро она перемножает матрицы и читает память.

Два числа описывают машину почти целиком. Обучение и чтение запроса упираются в произведения матриц,
порождение — в чтение весов. Измеренные пределы ставят ноутбук в один ряд с ускорителями таблицы:
`machine()` возвращает такую же карту `Gpu`, и прогноз времени делают те же функции счёта.

Пик измеряется, а не берётся из паспорта: перебираются несколько размеров и остаётся лучший. Память
читается большим массивом, который не помещается ни в какой кеш процессора.

Замер хранится в папке кеша пользователя под именем машины и версией пробы: он занимает секунды и не
меняется, пока не сменились машина, torch или способ измерения.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nanolm.hardware import USABLE_SHARE, Gpu
from nanolm.machine import name_of, total_bytes
from nanolm.measure import PROBE_VERSION, Samples, once, timed

#: Что перемножать: строки, общая ось, столбцы. Ускорителю нужны большие матрицы, процессору хватает малых.
SHAPES = {
    "cpu": ((512, 512, 512), (1024, 1024, 1024), (512, 2048, 4096), (2048, 2048, 2048)),
    "mps": ((2048, 2048, 2048), (4096, 4096, 4096)),
    "cuda": ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 4096, 16384), (16384, 8192, 8192)),
}
#: Один вызов длиннее этого, с, дальше не повторяют и больших размеров не берут. Без команд bf16 процессор умножает
#: такие матрицы в сотни раз медленнее, чем fp32, и полный замер занял бы четверть часа.
SLOW_S = 0.3
#: Байтов в массиве для полосы: много больше кеша последнего уровня.
ARRAY_BYTES = {"cpu": 2**28, "mps": 2**29, "cuda": 2**32}
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
#: Половинная точность fp16 на процессоре считается медленно и в обучении не нужна.
KINDS = {"cpu": ("fp32", "bf16"), "mps": ("fp32", "bf16", "fp16"), "cuda": ("fp32", "tf32", "bf16", "fp16")}

Progress = Callable[[Iterable[Any]], Iterable[Any]]


def machine(device: torch.device | str = "cpu", *, refresh: bool = False, progress: Progress = iter) -> Gpu:
    """Эта машина как карта: измеренные пик по типам данных и полоса памяти.

    `refresh` — измерить заново, даже если замер есть.
    """
    device = torch.device(device)
    key = f"{name_of(device)} | torch {torch.__version__} | probe {PROBE_VERSION}"
    known = _read_cache()
    if refresh or not _whole(known.get(key)):
        known[key] = measure(device, progress)
        _write_cache(known)
    return _card(device, known[key])


def measure(device: torch.device, progress: Progress = iter) -> dict[str, Any]:
    """Измерить пределы: пик по типам и полосу, с сырыми замерами."""
    tasks: list[tuple[str, Callable[[], tuple[float, Samples]]]] = [
        *((kind, lambda kind=kind: _matmul_rate(kind, device)) for kind in KINDS[device.type]),
        ("bandwidth", lambda: _bandwidth(device)),
    ]
    found = {name: task() for name, task in progress(tasks)}
    return {
        "rates": {name: rate for name, (rate, _) in found.items()},
        "samples_s": {name: list(samples.seconds) for name, (_, samples) in found.items()},
    }


def _matmul_rate(kind: str, device: torch.device) -> tuple[float, Samples]:
    """Лучшая скорость произведения матриц в FLOP/s среди размеров и её замеры."""
    best: tuple[float, Samples] = (0.0, Samples(()))
    with _tensor_cores(kind):
        for M, K, N in SHAPES[device.type]:
            dtype = _DTYPES["fp32" if kind == "tf32" else kind]
            left, right = torch.randn(M, K, device=device, dtype=dtype), torch.randn(K, N, device=device, dtype=dtype)
            out = torch.empty(M, N, device=device, dtype=dtype)
            multiply = partial(torch.mm, left, right, out=out)
            first = min(once(multiply, device) for _ in range(2))
            samples = Samples((first,)) if first > SLOW_S else timed(multiply, device, warmup=0)
            best = max(best, (2 * M * K * N / samples.median, samples), key=lambda pair: pair[0])
            if first > SLOW_S:
                break
    return best


@contextlib.contextmanager
def _tensor_cores(kind: str) -> Any:
    """Разрешить fp32 считать в tf32 только там, где меряется он."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _bandwidth(device: torch.device) -> tuple[float, Samples]:
    """Полоса памяти в байтах в секунду: лучшее из чтения (сумма) и копирования (чтение и запись)."""
    source = torch.ones(ARRAY_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(source)
    read = timed(source.sum, device)
    copy = timed(lambda: target.copy_(source), device)
    return max((source.nbytes / read.median, read), (2 * source.nbytes / copy.median, copy), key=lambda pair: pair[0])


def _card(device: torch.device, found: dict[str, Any]) -> Gpu:
    memory = total_bytes(device)
    rates = found["rates"]
    return Gpu(
        key=f"this-{device.type}",
        title=name_of(device),
        memory_bytes=memory,
        usable_bytes=int(memory * USABLE_SHARE),
        usable_is_assumed=True,
        bandwidth_bytes_per_s=round(rates["bandwidth"]),
        flops_per_s={name: float(round(rate)) for name, rate in rates.items() if name != "bandwidth"},
        note="измерено на этой машине",
    )


# --- Кеш замеров ---------------------------------------------------------------------------------


def cache_file() -> Path:
    """Где лежат замеры: папка кеша пользователя, своя у каждой системы."""
    home = Path.home()
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        root = home / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return root / "nanolm" / "roofline.json"


def _whole(entry: object) -> bool:
    """Годится ли запись кеша: файл мог записать кто угодно."""
    rates = entry.get("rates") if isinstance(entry, dict) else None
    if not isinstance(rates, dict) or not {"bandwidth", "fp32"} <= set(rates):
        return False
    return all(isinstance(rate, (int, float)) and 0 < rate < float("inf") for rate in rates.values())


def _read_cache() -> dict[str, Any]:
    """Прежние замеры; испорченный файл — то же, что его отсутствие."""
    try:
        found = json.loads(cache_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_cache(known: dict[str, Any]) -> None:
    """Записать через временный файл рядом: читатель видит или прежний файл, или новый целиком."""
    path = cache_file()
    # Кеш лишь экономит время: если папка недоступна, обходимся без него.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=path.name, suffix=".part", encoding="utf-8", delete=False
        ) as file:
            json.dump(known, file, ensure_ascii=False, indent=1)
        os.replace(file.name, path)
