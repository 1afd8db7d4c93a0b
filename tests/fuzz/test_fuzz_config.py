"""Обстрел `from_config`: из любого документа — Spec или одна понятная строка; ни трассировки, ни зависания.

В обычном запуске тысячи документов, в `nox -s fuzz` — сто тысяч (число задаёт переменная NANOLM_FUZZ).
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from random import Random
from typing import TYPE_CHECKING, Any

import documents
import pytest

from nanolm import cli
from nanolm.budget import inference_memory, parameter_breakdown
from nanolm.spec import Spec
from nanolm.summary import Question, document
from nanolm.zoo import from_config, load, presets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Сколько документов и на сколько частей их делить; зерно — номер документа.
DOCUMENTS = int(os.environ.get("NANOLM_FUZZ", "2500"))
PARTS = 5

#: Один документ: секунд и байтов прироста памяти на всю часть. Запас большой: машина бывает занята.
SECONDS, GROWTH = 10.0, 200 * 2**20

LLAMA = presets()["llama-3-8b"]["config"]


def peak_memory() -> int:
    """Наибольшая память процесса, байтов; 0 — там, где её не узнать."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def read(data: bytes, monkeypatch: pytest.MonkeyPatch) -> Spec | str:
    """Прочитать документ со стандартного ввода: Spec или текст отказа. Другое исключение — провал."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    try:
        return from_config("-")
    except ValueError as error:
        return str(error)


def check_refusal(message: str) -> None:
    """Одна короткая строка по-русски."""
    assert len(message.splitlines()) == 1, message
    assert len(message) < 900, message
    assert re.search("[а-яё]", message), message


def check_spec(spec: Spec, thorough: bool) -> None:
    """Раз модель принята, её счета обязаны считаться и уложиться в JSON."""
    assert parameter_breakdown(spec).total > 0
    if thorough:
        json.dumps(document(Question(spec)), allow_nan=False)


def check_compressed(config: Any) -> bool:
    """Принятое квантование считается — или отказывает одной строкой, если такую матрицу не упаковать."""
    spec, weights = load(config)
    if weights is None:
        return False
    try:
        assert inference_memory(spec, weights=weights)["weights"] > 0
        json.dumps(document(Question(spec, weights=weights)), allow_nan=False)
    except ValueError as error:
        check_refusal(str(error))
    return True


@pytest.mark.parametrize("part", range(PARTS))
def test_any_document_is_a_spec_or_one_line(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before, found = peak_memory(), {True: 0, False: 0}
    for seed in range(part, DOCUMENTS, PARTS):
        data = documents.document(Random(seed))
        started = time.perf_counter()
        answer = read(data, monkeypatch)
        if isinstance(answer, Spec):
            check_spec(answer, thorough=found[True] % 10 == 0)
        else:
            check_refusal(answer)
        found[isinstance(answer, Spec)] += 1
        assert time.perf_counter() - started < SECONDS, f"зерно {seed}"
    assert peak_memory() - before < GROWTH
    # Обстрел не слеп: заметная доля документов принята и заметная отвергнута.
    assert min(found.values()) > DOCUMENTS / PARTS * 0.1, found


@pytest.mark.parametrize("part", range(PARTS))
def test_any_dictionary_is_a_spec_or_one_line(part: int) -> None:
    """То же словарём: сюда попадают объекты, которых JSON не записывает, и разбор не спасает."""
    compressed = 0
    for seed in range(part, DOCUMENTS // 2, PARTS):
        made = documents.config(Random(-seed))
        started = time.perf_counter()
        try:
            check_spec(from_config(made), thorough=False)
            compressed += check_compressed(made)
        except ValueError as error:
            check_refusal(str(error))
        assert time.perf_counter() - started < SECONDS, f"зерно {-seed}"
    assert compressed > DOCUMENTS / PARTS * 0.02


ODD: list[Any] = [
    10**5000, [10**5000], documents.deep(100_000), b"\xff", object(), {1: 2}, float("nan"), "\ud800" * 9, (),
]  # fmt: skip


@pytest.mark.parametrize("name", [name for name in LLAMA if name != "model_type"] + ["text_config", "layer_types"])
@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_odd_objects_in_every_field(name: str, value: Any) -> None:
    for family in ("llama", "gemma3", "qwen3"):
        try:
            from_config({**LLAMA, "model_type": family, name: value, "use_sliding_window": True})
        except ValueError as error:
            check_refusal(str(error))


@pytest.mark.parametrize("levels", [100, 500, 900, *range(960, 1010, 4), 5000, 1_000_000])
def test_deep_nesting(levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Около предела рекурсии Python документ ещё читается, а напечатать его уже нельзя: и это не трассировка."""
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        nested = opening * levels + "1" + closing * levels
        data = json.dumps(LLAMA).replace("128256", nested).encode()
        answer = read(data, monkeypatch)
        assert isinstance(answer, str)
        check_refusal(answer)


def test_file_of_200_megabytes(tmp_path: Path) -> None:
    """Читается не больше предела: и по времени, и по памяти такой файл ничего не стоит."""
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.write(json.dumps(LLAMA).encode()[:-1])
        file.truncate(200 * 2**20)
    before, started = peak_memory(), time.perf_counter()
    with pytest.raises(ValueError, match=r"больше 4 МиБ, это не config\.json"):
        from_config(path)
    assert time.perf_counter() - started < SECONDS
    assert peak_memory() - before < 64 * 2**20


@pytest.mark.parametrize(
    "data",
    [
        b'{"model_type":"llama",' + b'"a":1,' * 600_000 + b'"b":1}',
        b'{"model_type":"llama","vocab_size":' + b"9" * 3_000_000 + b"}",
        b'{"model_type":"llama","vocab_size":"' + b"9" * 3_000_000 + b'"}',
        b'{"model_type":"llama","vocab_size":[' + b"9," * 1_500_000 + b"9]}",
        b'{"model_type":"' + b"x" * 3_000_000 + b'"}',
        b'{"model_type":"llama","vocab_size":1e' + b"9" * 3_000_000 + b"}",
    ],
    ids=["keys", "digits", "string", "list", "family", "exponent"],
)
def test_four_megabytes_of_one_kind(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    started = time.perf_counter()
    answer = read(data, monkeypatch)
    assert isinstance(answer, str)
    check_refusal(answer)
    assert time.perf_counter() - started < SECONDS


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], tuple[int, str]]:
    """`nanolm budget --config - --json` с этим документом: код и поток ошибок."""

    def call(data: bytes) -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        try:
            code = cli.budget(["--config", "-", "--json"], "nanolm")
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, capsys.readouterr().err

    return call


def test_command_line_answers_or_refuses(command: Callable[[bytes], tuple[int, str]]) -> None:
    """Сквозь всю командную строку: код 0 и чистый поток ошибок или код 2 и ровно одна строка."""
    for seed in range(DOCUMENTS // 25):
        code, errors = command(documents.document(Random(seed)))
        assert (code, len(errors.splitlines())) in {(0, 0), (2, 1)}, f"зерно {seed}: {errors}"


def test_generator_is_repeatable() -> None:
    assert [documents.document(Random(seed)) for seed in range(50)] == [
        documents.document(Random(seed)) for seed in range(50)
    ]
