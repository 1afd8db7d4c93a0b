"""Проба: каждая строка счёта совпадает с моделью, и проверка умеет не совпасть."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from nanolm import budget, moments, probe, probe_cli, records
from nanolm.probe import PEAK_TOLERANCE, Row, verify
from nanolm.spec import Spec
from nanolm.training import Training
from nanolm.zoo import preset

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Все размеры разные и N·H ≠ D: чужая ось даёт чужое число.
SMALL = {"V": 97, "D": 40, "L": 3, "N": 6, "K": 2, "H": 12, "F": 56, "S": 24}
GEOMETRIES = {
    "gqa": {},
    "moe": {"experts": 4, "experts_per_token": 2},
    "tied": {"tie_embeddings": True},
    "qk-norm": {"qk_norm": True},
    "plain": {"gated_ffn": False},
    "biases": {"qkv_bias": True, "out_bias": True, "ffn_bias": True},
    "window": {"window": (8, None, 16)},
    "gpt2": {
        "norm_bias": True, "learned_positions": 24, "gated_ffn": False, "qkv_bias": True, "out_bias": True,
        "ffn_bias": True, "tie_embeddings": True,
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Крошечная модель в один поток: у каждого потока ядра своя рабочая память, и рядом с 400 КБ она видна."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


RECIPES, KERNELS, CHECKPOINTING = (
    ("fp32", "bf16", "autocast", "mixed"),
    ("fused", "naive"),
    ("none", "selective", "full"),
)
#: Быстрый набор: каждая геометрия и каждый способ встречаются, соседние — вперемежку.
QUICK = [
    (name, recipe, kernel, checkpointing)
    for i, (name, recipe) in enumerate(itertools.product(GEOMETRIES, RECIPES))
    for kernel, checkpointing in [list(itertools.product(KERNELS, CHECKPOINTING))[i % 6]]
]
EVERY = list(itertools.product(GEOMETRIES, RECIPES, KERNELS, CHECKPOINTING))


def spec_of(name: str) -> Spec:
    return Spec(**{**SMALL, **GEOMETRIES[name]})


def check(name: str, recipe: str, kernel: str, checkpointing: str) -> None:
    rows = verify(spec_of(name), 2, 24, recipe=recipe, attention=kernel, checkpointing=checkpointing)
    assert [row.title for row in rows if row.exact and row.predicted != row.measured] == []
    (peak,) = [row for row in rows if row.name == "peak"]
    assert peak.ratio == pytest.approx(1, abs=PEAK_TOLERANCE)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("recipe", ["fp32", "bf16"])
def test_peak_of_an_ordinary_model_does_not_depend_on_threads(recipe: str, threads: int) -> None:
    """У модели на десятки мегабайт рабочая память потоков теряется: прогноз верен до тысячной."""
    torch.set_num_threads(threads)
    spec = Spec(V=1000, D=256, L=4, N=4, H=64, F=1024, S=256, gated_ffn=False)
    rows = verify(spec, 2, 256, recipe=recipe, attention="fused", checkpointing="full")
    (peak,) = [row for row in rows if row.name == "peak"]
    assert peak.ratio == pytest.approx(1, abs=0.001)


@pytest.mark.parametrize(("name", "recipe", "kernel", "checkpointing"), QUICK)
def test_every_row_is_confirmed(name: str, recipe: str, kernel: str, checkpointing: str) -> None:
    check(name, recipe, kernel, checkpointing)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "recipe", "kernel", "checkpointing"), sorted(set(EVERY) - set(QUICK)))
def test_every_row_is_confirmed_everywhere(name: str, recipe: str, kernel: str, checkpointing: str) -> None:
    check(name, recipe, kernel, checkpointing)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "momentum"])
def test_optimizer_state(optimizer: str) -> None:
    rows = {row.name: row for row in verify(spec_of("gqa"), 1, 8, optimizer=optimizer)}
    parameters = rows["parameters"].measured
    assert rows.get("optimizer", Row("", "", "", 0, 0)).measured == 4 * parameters * budget.OPTIMIZERS[optimizer][0]


#: У каждого момента — геометрия, где пик именно в нём: иначе все прятались бы за функцией потерь.
MIX = {"experts": 4, "experts_per_token": 2}
WIDE, TALL, SQUARE = {"D": 192, "S": 256, "V": 13}, {"V": 4000, "D": 192, "S": 4}, {"L": 1, "S": 256, "V": 13}
PEAKS = {
    "softmax последнего слоя": ({**SQUARE, "V": 97, **MIX}, "autocast", "naive", "none"),
    "градиент функции потерь": ({"V": 4000, "F": 24, "S": 256}, "bf16", "fused", "full"),
    "градиент головы": ({"V": 4000, "L": 1, "F": 24}, "fp32", "fused", "full"),
    "градиент головы в fp32": ({**TALL, "L": 1, "F": 24}, "autocast", "fused", "full"),
    "градиент последней нормы": ({**WIDE, "L": 1, "F": 24}, "bf16", "fused", "selective"),
    "градиент суммы экспертов": ({**WIDE, "L": 1, "F": 24, **MIX}, "fp32", "fused", "full"),
    "градиент полносвязного блока": ({**SQUARE, "F": 512}, "fp32", "fused", "selective"),
    "градиент матрицы сжатия": ({"V": 13, "D": 192, "L": 1, "F": 512, "S": 4}, "fp32", "fused", "selective"),
    "градиент матрицы сжатия в fp32": ({"V": 13, "D": 192, "L": 1, "F": 512, "S": 4}, "autocast", "fused", "selective"),
    "градиент внимания": ({**SQUARE, "F": 24}, "fp32", "naive", "selective"),
    "градиент эмбеддинга": ({**TALL, "L": 1, "F": 24, "tie_embeddings": True}, "fp32", "fused", "full"),
    "шаг оптимизатора": ({**TALL, "L": 1, "F": 24}, "mixed", "fused", "full"),
}


@pytest.mark.parametrize("moment", PEAKS)
def test_peak_is_found_in_its_moment(moment: str) -> None:
    fields, recipe, kernel, checkpointing = PEAKS[moment]
    spec, B = Spec(**{**SMALL, **fields}), 1
    account = budget.training_memory(spec, B, spec.S, recipe, attention=kernel, checkpointing=checkpointing)
    assert account.moment == moment
    rows = verify(spec, B, recipe=recipe, attention=kernel, checkpointing=checkpointing)
    (peak,) = [row for row in rows if row.name == "peak"]
    assert peak.ratio == pytest.approx(1, abs=PEAK_TOLERANCE)


def test_every_moment_is_measured() -> None:
    assert set(PEAKS) == set(moments.TITLES.values())


def test_moments_explain_the_total() -> None:
    account = budget.training_memory(spec_of("gqa"), 2, 24, "fp32")
    assert max(account.moments.values()) == account.total == account.moments[account.moment]


def test_llama_3_8b_forward_flops_without_memory() -> None:
    rows = {row.name: row for row in verify(preset("llama-3-8b"), 1, 8192, device="meta")}
    assert rows["flops.forward"].measured == rows["flops.forward"].predicted == 158_140_695_838_720
    assert rows["flops.backward"].measured == 2 * rows["flops.forward"].measured
    assert rows["parameters"].measured == 8_030_261_248
    assert "saved" not in rows


def test_a_wrong_account_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Проверка умеет не сойтись: счёт другой модели не совпадает с этой."""
    honest = budget.flops_per_token
    monkeypatch.setattr(
        budget, "flops_per_token", lambda spec, *rest, **more: honest(spec.replace(F=57), *rest, **more)
    )
    failed = {row.name for row in verify(spec_of("gqa"), 1, 8) if row.exact and not row.passed}
    assert failed == {"flops.forward", "flops.backward", "flops.forward_hardware", "flops.backward_hardware"}


def test_too_large_a_step_is_refused_before_memory_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "available_bytes", lambda device: 10**6)
    monkeypatch.setattr(probe, "Training", lambda *_, **__: pytest.fail("память уже тратится"))
    with pytest.raises(ValueError, match=r"шагу обучения нужно .* а свободно"):
        verify(spec_of("gqa"), 8, 24)


def test_unknown_optimizer_is_refused() -> None:
    with pytest.raises(ValueError, match="optimizer = 'adamw8bit': измеряются"):
        Training(spec_of("gqa"), "fp32", "adamw8bit")


def test_master_weights_are_updated_and_rounded() -> None:
    training = Training(spec_of("gqa"), "mixed")
    batch = training.batch(2, 24)
    before = [master.clone() for master in training.optimizer.masters]
    losses = [float(training.step(*batch)) for _ in range(8)]
    assert losses[-1] < losses[0]
    for master, old, parameter in zip(training.optimizer.masters, before, training.model.parameters(), strict=True):
        assert master.dtype == torch.float32
        assert not torch.equal(master, old)
        assert torch.equal(parameter, master.to(torch.bfloat16))


# --- Командная строка ----------------------------------------------------------------------------

MODEL = [word for name, size in SMALL.items() for word in (f"--{name}", str(size))]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    try:
        code = probe.main(list(words), "probe")
    except SystemExit as stop:
        code = int(str(stop.code))
    out, err = capsys.readouterr()
    return code, out, err


def test_verify_prints_the_card_and_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "verify", *MODEL, "--device", "cpu")
    assert (code, err) == (0, "")
    card, table = out.split("\n\n", 1)
    assert "прогноз памяти шага" in card
    assert "FLOPs прямого прохода" in table
    assert table.rstrip().endswith("все обязательные строки совпали")


def test_verify_json_is_the_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "verify", *MODEL, "--B", "2", "--recipe", "autocast", "--json", "--device", "cpu")
    document = json.loads(out.splitlines()[-1])
    assert code == 0
    assert document["passed"] is True
    assert document["probe_version"] == probe.PROBE_VERSION
    assert "прогноз памяти шага" in err
    fields = {"name", "unit", "predicted", "measured", "ratio", "exact"}
    assert all(fields <= set(row) for row in document["rows"])
    assert {row["ratio"] for row in document["rows"] if row["exact"]} == {1.0}


def test_verify_exits_with_1_when_an_exact_row_differs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "verify", lambda *_, **__: [Row("x", "икс", "байт", 2, 3)])
    code, out, _ = run(capsys, "verify", *MODEL, "--device", "cpu")
    assert code == 1
    assert "НЕ СОВПАЛО" in out
    assert "не совпало: икс" in out


def test_a_peak_outside_its_tolerance_is_shown_but_is_not_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "verify", lambda *_, **__: [Row("p", "пик", "байт", 100, 110, False, 0.02)])
    code, out, _ = run(capsys, "verify", *MODEL, "--device", "cpu")
    assert code == 0
    assert "вне ±2" in out


BAD = [
    ([], "не хватает аргумента"),
    (["fly"], "fly"),
    (["verify"], "не хватает ключей"),
    (["verify", "--preset", "gpt-9"], "--preset"),
    (["verify", *MODEL, "--N", "5"], "--K = 2"),
    (["verify", *MODEL, "--B", "0"], "--B = 0"),
    (["verify", *MODEL, "--recipe", "fp4"], "--recipe"),
    (["verify", *MODEL, "--optimizer", "adamw8bit"], "--optimizer"),
    (["verify", *MODEL, "--device", "tpu"], "--device tpu"),
    (["verify", *MODEL, "--device", "meta:3"], "--device meta:3"),
    (["verify", *MODEL, "--device", "cpu:7"], "--device cpu:7"),
    (["verify", *MODEL, "--device", "cuda:x"], "--device cuda:x"),
    (["verify", *MODEL, "--config", "нет"], "нет"),
    (["verify", "--preset", "llama-3-70b", "--device", "cpu"], "шагу обучения нужно"),
    (["speed", *MODEL, "--new-tokens", "24", "--device", "cpu"], "--new-tokens = 24"),
    (["speed", *MODEL, "--device", "meta"], "--device meta"),
    (["roofline", "--device", "meta"], "--device meta"),
]


@pytest.mark.parametrize(("words", "part"), BAD)
def test_bad_input_is_one_russian_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], part: str
) -> None:
    monkeypatch.setattr(probe_cli.roofline, "machine", lambda *_, **__: preset)
    code, _, err = run(capsys, *words)
    assert code == 2
    (line,) = err.splitlines()
    assert part in line
    assert "ошибка" in line
    assert "Traceback" not in line


def test_record_of_a_measurement(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    path = f"{tmp_path}/run.json"
    code, _, _ = run(capsys, "verify", *MODEL, "--device", "cpu", "--record", path)
    record = records.load(path)
    assert code == 0
    assert record["bytes"]["weights"] == 4 * budget.parameter_breakdown(spec_of("gqa")).total
    assert record["workload"]["recipe"] == "fp32"


def test_bad_record_path_is_refused_before_the_measurement(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(probe, "verify", lambda *_, **__: pytest.fail("измерение уже идёт"))
    for path, part in (("", "пуст"), (tmp_path, "не обычный файл"), (tmp_path / "file" / "run.json", "не записать")):
        code, out, err = run(capsys, "verify", *MODEL, "--device", "cpu", "--record", str(path))
        assert (code, out) == (2, "")
        (line,) = err.splitlines()
        assert "--record" in line
        assert part in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="переполненное устройство есть только в Linux")
def test_full_and_closed_outputs() -> None:
    words = [sys.executable, "-m", "nanolm.probe", "verify", *MODEL, "--device", "meta"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, timeout=120, text=True, encoding="utf-8")
    assert done.returncode == 2
    assert "ответ не записан" in done.stderr
    assert "Error" not in done.stderr
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, timeout=120, text=True, encoding="utf-8")
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(probe_cli._progress(["раз", "два"])) == ["раз", "два"]
    assert capsys.readouterr() == ("", "")
