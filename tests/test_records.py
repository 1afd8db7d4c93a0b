"""Записи измерений: читаются только целые и правильные."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nanolm import records

RECORDS = Path(__file__).resolve().parents[1] / "lessons" / "records"


def record() -> dict[str, object]:
    return records.build(
        "speed",
        machine={"name": "H100", "memory_bytes": 85_000_000_000, "driver": "570.1"},
        software={"python": "3.11.7", "torch": "2.13.0", "cuda": None},
        spec={"V": 97},
        workload={"B": 1},
        samples_s={"decode": [0.01, 0.02]},
        sizes={"peak": 1000},
        probe_version=1,
    )


def test_round_trip(tmp_path: Path) -> None:
    path = records.write(record(), tmp_path / "h100" / "decode.json")
    assert records.load(path)["samples_s"] == {"decode": [0.01, 0.02]}
    assert [file.name for file in path.parent.iterdir()] == ["decode.json"]


BAD = [
    ("schema", 99, "schema = 99"),
    ("what", 5, "what = 5"),
    ("machine", {"name": "H100"}, "machine.memory_bytes"),
    ("samples_s", {"decode": []}, "samples_s.decode"),
    ("samples_s", {"decode": [0.0]}, "samples_s.decode"),
    ("samples_s", {"decode": [float("nan")]}, "samples_s.decode"),
    ("bytes", {"peak": -1}, "bytes.peak"),
    ("bytes", {"peak": 1.5}, "bytes.peak"),
    ("probe_version", True, "probe_version"),
]


@pytest.mark.parametrize(("field", "value", "part"), BAD)
def test_wrong_field_is_named(field: str, value: object, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        records.validate({**record(), field: value})


@pytest.mark.parametrize("field", list(record()))
def test_missing_field_is_named(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        records.validate({name: value for name, value in record().items() if name != field})


def test_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with pytest.raises(ValueError, match=r"run\.json: не читается"):
        records.load(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"run\.json: это не JSON"):
        records.load(path)
    path.write_text(json.dumps([1]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"run\.json: нужен объект"):
        records.load(path)


def test_path_is_checked_without_leaving_traces(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.json"
    assert records.check_path(path) == path
    assert list(path.parent.iterdir()) == []
    (tmp_path / "file").touch()
    for wrong in ("", tmp_path, tmp_path / "file" / "run.json", tmp_path / ("я" * 300)):
        with pytest.raises(ValueError, match=r"[а-яё]") as caught:
            records.check_path(wrong)
        assert "Errno" not in str(caught.value)


def test_committed_records_are_valid() -> None:
    for path in RECORDS.rglob("*.json"):
        records.load(path)
