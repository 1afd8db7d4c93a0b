"""Выполнение уроков: кеш знает о правках пакета, неудачи названы, кодировки не пугают.

Каждый тест собирает крошечный проект настоящим расширением: свой пакет `nanolm`, один урок, который
записывает в файл каждое своё выполнение.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXTENSION = Path(__file__).resolve().parents[2] / "docs" / "_ext"
CONF = """
project, language = "Проба", "ru"
extensions = ["myst_nb", "nanolm_site.lessons", "nanolm_site.anchors"]
include_patterns = ["index.md", "lessons/*.py"]
nb_custom_formats = {".py": ["nanolm_site.lessons.read", {}]}
nb_execution_mode = "cache"
nb_execution_cache_path = "build/cache"
suppress_warnings = ["mystnb.exec"]
myst_heading_anchors = 4
"""
LESSON = """# %% [markdown]
# # Урок
#
# Текст урока.

# %%
from pathlib import Path

from nanolm import core

with Path("../runs.txt").open("a") as runs:
    runs.write("x")
print("значение", core.VALUE)
"""


class Project:
    """Крошечный сайт во временной папке."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name, text in {
            "conf.py": CONF,
            "index.md": "# Сайт\n\n```{toctree}\n:glob:\n\nlessons/*\n```\n",
            "nanolm/__init__.py": "",
            "nanolm/core.py": "VALUE = 41\n",
            "lessons/one.py": LESSON,
        }.items():
            self.write(name, text)

    def write(self, name: str, text: str | bytes) -> None:
        """Записать файл проекта."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))

    def edit(self, name: str, old: str, new: str) -> None:
        """Заменить кусок файла."""
        text = (self.root / name).read_text(encoding="utf-8")
        assert old in text
        self.write(name, text.replace(old, new))

    def build(self, *words: str) -> tuple[int, str]:
        """Собрать; вернуть код выхода и всё напечатанное."""
        path = os.pathsep.join([str(self.root), str(EXTENSION)])
        result = subprocess.run(
            [sys.executable, "-m", "sphinx", "-q", "-T", *words, "-d", "build/doctrees", ".", "build/html"],
            cwd=self.root, env={**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1", "NANOLM_GPU": "forbid"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False,
        )  # fmt: skip
        return result.returncode, result.stdout

    def ok(self) -> str:
        """Собрать без ошибок и предупреждений; вернуть страницу урока."""
        code, output = self.build("-n", "-W", "--keep-going")
        assert code == 0, output
        return self.page()

    def page(self, name: str = "one") -> str:
        """Страница урока."""
        return (self.root / "build" / "html" / "lessons" / f"{name}.html").read_text(encoding="utf-8")

    @property
    def runs(self) -> int:
        """Сколько раз урок выполнялся."""
        path = self.root / "runs.txt"
        return len(path.read_text()) if path.exists() else 0


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_cache_follows_the_package_but_not_the_prose(project: Project) -> None:
    assert "значение 41" in project.ok()
    assert project.runs == 1
    assert "значение 41" in project.ok()
    assert project.runs == 1, "повторная сборка не должна выполнять урок"

    project.edit("lessons/one.py", "Текст урока.", "Другой текст.")
    page = project.ok()
    assert "Другой текст." in page
    assert "значение 41" in page, "вывод из кеша пропал"
    assert project.runs == 1, "правка прозы не должна выполнять урок"

    project.edit("nanolm/core.py", "41", "42")
    assert "значение 42" in project.ok()
    assert project.runs == 2, "правка пакета обязана выполнить урок"


def test_changing_only_a_tag_does_not_execute_again(project: Project) -> None:
    project.ok()
    project.edit("lessons/one.py", "# %%\nfrom", '# %% tags=["hide-input"]\nfrom')
    assert "<details" in project.ok()
    assert project.runs == 1


def test_declared_inputs_narrow_the_key(project: Project) -> None:
    project.write("nanolm/other.py", "NOISE = 1\n")
    header = "# ---\n# jupyter:\n#   nanolm:\n#     inputs: [nanolm/core.py]\n# ---\n\n"
    project.write("lessons/one.py", header + LESSON)
    project.ok()
    project.edit("nanolm/other.py", "1", "2")
    project.ok()
    assert project.runs == 1
    project.edit("nanolm/core.py", "41", "43")
    assert "значение 43" in project.ok()
    assert project.runs == 2


def test_equal_lessons_do_not_share_one_run(project: Project) -> None:
    project.write("lessons/two.py", LESSON)
    project.ok()
    assert project.runs == 2


@pytest.mark.parametrize(
    "data",
    [
        LESSON.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + LESSON.encode(),
        b"\xef\xbb\xbf" + LESSON.replace("\n", "\r\n").encode(),
    ],
    ids=["crlf", "bom", "crlf+bom"],
)
def test_windows_files_build(project: Project, data: bytes) -> None:
    project.write("lessons/one.py", data)
    page = project.ok()
    assert "значение 41" in page
    assert "Текст урока." in page


def test_cp1251_is_named(project: Project) -> None:
    project.write("lessons/one.py", LESSON.encode("cp1251"))
    code, output = project.build()
    assert code != 0
    assert "one.py сохранён не в UTF-8" in output
    assert "cp1251" in output
    assert "Traceback" not in output
    assert len(output.splitlines()) == 1
    assert project.runs == 0


def test_failing_cell_is_named_in_one_line(project: Project) -> None:
    project.write("lessons/one.py", LESSON + "\n# %%\nshare = 1 / 0\n\n# %%\nprint('не дойдём')\n")
    for _ in range(2):  # вторая сборка не должна счесть неудачу готовым уроком
        code, output = project.build()
        assert code == 1
        (line,) = [line for line in output.splitlines() if "урок не выполнился" in line]
        assert "one.py:16" in line
        assert "ячейка 3 («share = 1 / 0»): ZeroDivisionError: division by zero" in line
        assert "Traceback" not in output
        assert len(output.splitlines()) < 5
    log = (project.root / "build" / "logs" / "lessons" / "one.log").read_text(encoding="utf-8")
    assert "ZeroDivisionError" in log
    project.edit("lessons/one.py", "1 / 0", "1 / 2")
    assert "не дойдём" in project.ok()


def test_missing_values_do_not_drown_the_cause(project: Project) -> None:
    prose = "\n# %% [markdown]\n# Итог {glue:text}`total` и {glue:text}`share`.\n\n# %%\nraise RuntimeError('стоп')\n"
    project.write("lessons/one.py", LESSON + prose)
    code, output = project.build()
    assert code == 1
    assert "RuntimeError: стоп" in output
    assert "glue" not in output


def test_lesson_without_execution_fails_the_build(project: Project) -> None:
    code, output = project.build("-D", "nb_execution_mode=off")
    assert code == 1
    assert "урок не выполнялся" in output


def test_course_tags(project: Project) -> None:
    cells = """
# %% tags=["exercise"]
raise SystemExit("заготовка не выполняется")

# %% tags=["solution"]
answer = 6 * 7

# %% tags=["check"]
print("ответ", answer)

# %% tags=["gpu"]
raise SystemExit("видеокарты нет")
"""
    project.write("lessons/one.py", LESSON + cells)
    page = project.ok()
    assert "ответ 42" in page
    assert "Показать решение" in page
    assert "заготовка не выполняется" in page
    assert "tag_exercise" in page
    assert "tag_gpu-skipped" in page


def test_required_gpu_is_missed_loudly(project: Project) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-T", ".", "build/html"], cwd=project.root, check=False,
        env={**os.environ, "PYTHONPATH": f"{project.root}{os.pathsep}{EXTENSION}", "PYTHONUTF8": "1",
             "NANOLM_GPU": "require", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
    )  # fmt: skip
    assert result.returncode != 0
    assert "сборка просит видеокарту" in result.stdout
    assert "Traceback" not in result.stdout


def test_anchor_survives_a_heading_above(project: Project) -> None:
    project.edit("lessons/one.py", "# Текст урока.", "# ## Кеш ключей\n# Текст.")
    assert 'href="#кеш-ключей"' in project.ok()
    project.edit("lessons/one.py", "# ## Кеш ключей", "# ## Новый раздел\n# Текст.\n#\n# ## Кеш ключей")
    page = project.ok()
    assert 'href="#кеш-ключей"' in page
    assert 'href="#новый-раздел"' in page
