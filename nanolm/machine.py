"""Машина, на которой идёт измерение: как её зовут, сколько у неё памяти и сколько свободно.

Свободную память спрашивают до измерения: отказаться словами лучше, чем быть убитым системой. Внутри
контейнера предел ставит он, а не машина, и системный счётчик свободной памяти про это не знает.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from pathlib import Path

import torch

#: Файлы cgroup v2 и v1 с пределом памяти и занятой.
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def available_bytes(device: torch.device) -> int | None:
    """Сколько памяти можно занять на устройстве; `None` — система этого не говорит."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory()) - int(torch.mps.driver_allocated_memory())
    known = [size for size in (_system_memory()[1], _cgroup_bytes()) if size is not None]
    return min(known, default=None)


def total_bytes(device: torch.device) -> int:
    """Вся память устройства; 0 — неизвестно."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return _system_memory()[0] or 0


def name_of(device: torch.device) -> str:
    """Название ускорителя или процессора."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    threads = f", потоков {torch.get_num_threads()}" if device.type == "cpu" else ""
    return f"{_processor()}{threads}"


def driver() -> str:
    """Версия драйвера видеокарты, как её называет сама система; пусто — не узнать."""
    for path in ("/sys/module/nvidia/version", "/proc/driver/nvidia/version"):
        text = _read(path)
        if text:
            return text.split("\n")[0].strip()
    return ""


def _processor() -> str:
    """Название процессора: на Linux его знает только /proc/cpuinfo."""
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Hardware") and value.strip():
            return value.strip()
    return platform.processor() or platform.machine() or "процессор"


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _system_memory() -> tuple[int | None, int | None]:
    """Вся и свободная память системы; свободная — вместе с той, что система отдаст по первой просьбе."""
    text = _read("/proc/meminfo")
    if text:
        sizes = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        known = [sizes.get(name, "").split() for name in ("MemTotal", "MemAvailable")]
        total, free = (int(words[0]) * 1024 if words else None for words in known)
        return total, free
    if sys.platform == "win32":
        return _windows_memory()
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None, None
    # macOS держит свободным немногое и сжимает остальное: осторожная оценка — половина.
    return total, total // 2


def _windows_memory() -> tuple[int | None, int | None]:
    """GlobalMemoryStatusEx: структура из двух слов и семи длинных чисел."""
    status = (ctypes.c_uint64 * 8)()
    ctypes.cast(status, ctypes.POINTER(ctypes.c_uint32))[0] = ctypes.sizeof(status)
    library = getattr(ctypes, "windll", None)
    if library is None or not library.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None, None
    return int(status[1]), int(status[2])


def _cgroup_bytes() -> int | None:
    """Сколько ещё разрешает контейнер."""
    for limit, used in _CGROUPS:
        texts = [(_read(path) or "").strip() for path in (limit, used)]
        if all(text.isdigit() for text in texts):
            return max(0, int(texts[0]) - int(texts[1]))
    return None
