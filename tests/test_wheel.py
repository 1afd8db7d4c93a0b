"""Колесо: собирается, ставится без сети в чистое окружение и отвечает там без исходников."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytest.importorskip("hatchling", reason="колесо собирает hatchling из группы зависимостей test")


def run(*command: str | Path, cwd: Path) -> str:
    """Выполнить команду вне исходников; ошибка показывается целиком."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd, env={**environment, "PYTHONIOENCODING": "utf-8"}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
    return done.stdout.decode("utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", target, cwd=ROOT)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Папка программ чистого окружения, куда поставлено колесо."""
    place = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", place, cwd=place)
    folder = Path(sysconfig.get_path("scripts", "venv", {"base": str(place), "platbase": str(place)}))
    python = folder / ("python.exe" if os.name == "nt" else "python")
    install = ("-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    run(sys.executable, *install, cwd=place)
    return folder


def program(scripts: Path, name: str) -> Path:
    return scripts / (f"{name}.exe" if os.name == "nt" else name)


def test_wheel_is_pure_and_needs_nothing(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(metadata).decode("utf-8")
    required = [line for line in text.splitlines() if line.startswith("Requires-Dist: ")]
    assert all("extra ==" in line for line in required)
    assert "Requires-Python: >=3.11" in text


def test_wheel_carries_the_data_and_nothing_foreign(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "nanolm" / "data").glob("*.toml")}
    assert {"nanolm/data/gpus.toml", "nanolm/data/models.toml"} <= files <= set(names)
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"nanolm"}
    assert not [name for name in names if name.endswith(".pyc")]


def test_console_script_works_outside_the_checkout(scripts: Path, tmp_path: Path) -> None:
    sizes = shlex.split("--V 128256 --D 4096 --L 32 --N 32 --K 8 --S 8192 --F 14336 --gpu h100-sxm --json")
    answer = json.loads(run(program(scripts, "nanolm"), "budget", *sizes, cwd=tmp_path))
    assert answer["parameters"]["total"] == 8_030_261_248
    assert answer["fit"]["gpu"] == "h100-sxm"


def test_module_works_outside_the_checkout(scripts: Path, tmp_path: Path) -> None:
    python = program(scripts, "python")
    answer = json.loads(run(python, "-m", "nanolm.budget", "--preset", "gpt2", "--json", cwd=tmp_path))
    assert answer["parameters"]["total"] == 124_439_808
    where = run(python, "-c", "import nanolm; print(nanolm.__file__)", cwd=tmp_path).strip()
    assert not Path(where).is_relative_to(ROOT)
    listed = run(python, "-m", "nanolm.budget", "--list-gpus", cwd=tmp_path)
    assert "h100-sxm" in listed
