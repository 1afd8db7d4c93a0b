"""Записи измерений: что намерено на карте, которой у читателя может не быть.

Запись хранит сырые замеры в основных единицах — секундах и байтах — и всё, от чего они зависят: карту,
драйвер, torch, коммит, версию пробы. Прогноза в ней нет: он считается заново тем кодом, который её
читает, поэтому правка формулы видна и без карты. Только стандартная библиотека.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Растёт, когда меняется состав записи.
SCHEMA = 1

#: Поле → каким оно бывает. Точка ведёт внутрь.
_FIELDS: dict[str, tuple[type, ...]] = {
    "schema": (int,), "what": (str,), "measured_at": (str,), "commit": (str,), "probe_version": (int,),
    "machine.name": (str,), "machine.memory_bytes": (int,), "machine.driver": (str,),
    "software.python": (str,), "software.torch": (str,), "software.cuda": (str, type(None)),
    "spec": (dict,), "workload": (dict,), "samples_s": (dict,), "bytes": (dict,),
}  # fmt: skip


def build(
    what: str,
    *,
    machine: dict[str, Any],
    software: dict[str, Any],
    spec: dict[str, Any],
    workload: dict[str, Any],
    samples_s: dict[str, list[float]],
    sizes: dict[str, int],
    probe_version: int,
) -> dict[str, Any]:
    """Собрать запись и проверить её. `what` — что измерено: «verify», «speed»."""
    from datetime import UTC, datetime

    return validate(
        {
            "schema": SCHEMA, "what": what, "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit(), "probe_version": probe_version, "machine": machine, "software": software,
            "spec": spec, "workload": workload, "samples_s": samples_s, "bytes": sizes,
        }
    )  # fmt: skip


def validate(record: object, source: str = "запись") -> dict[str, Any]:
    """Проверить запись и вернуть её.

    Ошибки: `ValueError` называет поле и правило.
    """
    if not isinstance(record, dict):
        raise ValueError(f"{source}: нужен объект JSON")
    for path, kinds in _FIELDS.items():
        value: object = record
        for part in path.split("."):
            value = value.get(part, _MISSING) if isinstance(value, dict) else _MISSING
        if value is _MISSING:
            raise ValueError(f"{source}: нет поля {path}")
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise ValueError(f"{source}: {path} = {value!r}: нужен тип {kinds[0].__name__}")
    if record["schema"] != SCHEMA:
        raise ValueError(f"{source}: schema = {record['schema']}: читается только {SCHEMA}")
    for name, samples in record["samples_s"].items():
        if not isinstance(samples, list) or not samples or not all(_positive(value) for value in samples):
            raise ValueError(f"{source}: samples_s.{name}: нужен непустой список положительных секунд")
    for name, size in record["bytes"].items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ValueError(f"{source}: bytes.{name} = {size!r}: нужно целое число байт не меньше 0")
    return record


_MISSING = object()


def _positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")


def load(path: str | Path) -> dict[str, Any]:
    """Прочитать запись; имя файла — в каждой ошибке."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: не читается: {reason(error)}") from None
    except ValueError:
        raise ValueError(f"{path}: это не JSON") from None
    return validate(record, str(path))


def reason(error: OSError) -> str:
    """Причина отказа файловой системы по-русски."""
    import errno

    reasons = {
        "ENOENT": "нет такого файла или папки", "EACCES": "нет прав", "EPERM": "нет прав", "EISDIR": "это папка",
        "ENOTDIR": "часть пути — не папка", "EEXIST": "на месте папки лежит файл", "EROFS": "диск только для чтения",
        "ENOSPC": "на диске нет места", "ENAMETOOLONG": "слишком длинное имя",
    }  # fmt: skip
    return reasons.get(errno.errorcode.get(error.errno or 0, ""), "ошибка ввода-вывода")


def check_path(path: str | Path) -> Path:
    """Сюда можно записать: проверяется до измерения, чтобы оно не пропало.

    Ошибки: `ValueError` с путём и причиной.
    """
    if not str(path):
        raise ValueError("путь записи пуст; нужно имя файла")
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            raise ValueError(f"{path}: не записать: это не обычный файл")
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.touch()
        part.unlink()
    except OSError as error:
        raise ValueError(f"{path}: не записать: {reason(error)}") from None
    except UnicodeEncodeError:
        raise ValueError(f"{str(path)!r}: не записать: такого имени файла не бывает") from None
    return path


def write(record: dict[str, Any], path: str | Path) -> Path:
    """Записать через временный файл рядом: недописанной записи не бывает.

    Если там уже лежит то же измерение — те же карта, версии и числа, — файл не трогается: иначе каждая сборка
    с видеокартой меняла бы его дату, а вместе с ней и отпечаток всех уроков.
    """
    record, path = validate(record), Path(path)
    if _repeats(record, path):
        return path
    path = check_path(path)
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        raise ValueError(f"{path}: не записать: {reason(error)}") from None
    return path


def _repeats(record: dict[str, Any], path: Path) -> bool:
    """Отличается ли запись от лежащей по этому пути только датой и коммитом."""
    try:
        known = load(path)
    except ValueError:
        return False
    # Через JSON: кортежи геометрии после чтения становятся списками.
    fresh = json.loads(json.dumps(record))
    return all(known.get(name) == fresh.get(name) for name in {*known, *fresh} - {"measured_at", "commit"})


def commit() -> str:
    """Коммит исходников; «+» — в рабочей папке есть правки, пусто — это не репозиторий."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return ""
