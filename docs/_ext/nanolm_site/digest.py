"""Отпечаток того, от чего зависят результаты урока.

myst-nb хранит выполненный урок под ключом из текста его ячеек. Но урок считает не сам: он зовёт
`nanolm`. Поэтому в ключ добавляется отпечаток исходников пакета, версий и устройства: правка формулы
выполняет урок заново, правка прозы — нет.

Урок может сузить зависимости, назвав их в заголовке файла::

    # ---
    # jupyter:
    #   nanolm:
    #     inputs: [nanolm/spec.py, lessons/records/*.json]
    # ---
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import sys
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

#: От этого зависит урок, который не сказал иного. Живые страницы и тренажёр уроки не зовут.
DEFAULT_INPUTS = ("nanolm/*.py", "nanolm/exercises/**/*.py", "nanolm/data/**/*", "lessons/records/**/*")
#: Пакеты, от версии которых меняются числа или рисунки.
PACKAGES = ("torch", "matplotlib", "babel", "tokenizers")
#: Имя библиотеки драйвера CUDA: если её нет, карты нет, и torch можно не импортировать.
DRIVERS = ("libcuda.so.1", "nvcuda.dll")


def files(root: Path, patterns: Iterable[str]) -> list[Path]:
    """Файлы под `root`, подходящие под `patterns`, в постоянном порядке."""
    found = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    return sorted(path for path in found if "__pycache__" not in path.parts)


def sources(root: Path, patterns: Iterable[str]) -> str:
    """Отпечаток имён и содержимого файлов; переводы строк приводятся к одному виду."""
    total = hashlib.sha256()
    for path in files(root, patterns):
        total.update(path.relative_to(root).as_posix().encode())
        total.update(b"\0" + path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return total.hexdigest()


def version(package: str) -> str:
    """Версия установленного пакета без его импорта."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "нет"


def has_driver() -> bool:
    """Есть ли на машине драйвер CUDA."""
    for name in DRIVERS:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


@functools.cache
def device() -> str:
    """Устройство, на котором выполняются ячейки `gpu`: имя видеокарты или `cpu`."""
    if os.environ.get("NANOLM_GPU") == "forbid" or version("torch") == "нет" or not has_driver():
        return "cpu"
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu"


def environment() -> dict[str, str]:
    """Версии и устройство: та часть отпечатка, которой нет в файлах."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"python": python, **{package: version(package) for package in PACKAGES}, "device": device()}


def lesson_digest(root: Path, docname: str, inputs: Iterable[str] | None = None) -> str:
    """Отпечаток урока; имя урока входит в него, чтобы два одинаковых урока не делили один результат."""
    total = hashlib.sha256(docname.encode())
    total.update(sources(root, inputs or DEFAULT_INPUTS).encode())
    total.update(repr(sorted(environment().items())).encode())
    return total.hexdigest()[:16]
