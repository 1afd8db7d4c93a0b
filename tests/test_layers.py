"""Ядро обходится стандартной библиотекой и импортирует только вниз. И проверки, что эти проверки не слепы."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nanolm"

#: Модули ядра и их этаж: импорт при загрузке — только с этажа ниже.
FLOORS = {
    "spec": 0, "units": 0, "console": 0,
    "ops": 1, "zoo": 1, "hardware": 1, "arrays": 1,
    "moments": 2, "quantization": 2,
    "quantization_config": 3,
    "budget": 3,
    "transformers_peak": 3, "transformers_memory": 4,
    "summary": 5, "sharding": 4, "latency": 4, "difference": 4,
    "remedies": 5,
    "cli": 6, "fit": 6,
    "diff_cli": 7,
}  # fmt: skip

#: Импорт внутри функции, которому можно вверх: только тому, кто его вызвал, он и стоит времени.
LAZY_UPWARD = {
    ("budget", "cli"), ("budget", "summary"), ("cli", "probe_cli"), ("cli", "diff_cli"), ("cli", "interview"),
    ("summary", "fit"), ("zoo", "quantization_config"), ("budget", "transformers_memory"),
}  # fmt: skip

#: Что ядро умеет: загрузить всё и один раз посчитать, чтобы сработали и ленивые импорты.
EVERYTHING = """
import nanolm.budget, nanolm.zoo, nanolm.hardware, nanolm.summary, nanolm.cli, nanolm.console, nanolm.exercises
from nanolm.budget import Spec, parameter_breakdown, flops_per_token, training_memory, inference_memory
from nanolm.budget import training_time, report
report(nanolm.zoo.preset("gpt2"), gpu="t4", tokens=10**9)
nanolm.cli.budget(["--preset", "gpt2", "--json", "--gpu", "t4", "--fit", "training", "--B", "64"], "nanolm")
compressed = {"quant_method": "awq", "modules_to_not_convert": ["model.layers.*.mlp"]}
nanolm.zoo.load({**nanolm.zoo.presets()["llama-3-8b"]["config"], "quantization_config": compressed})
inference_memory(nanolm.zoo.preset("llama-3-8b"), weights="gptq-4-128")
import nanolm.diff_cli
nanolm.diff_cli.main(["--preset", "gpt2", "--vs", "--B", "2"], "nanolm diff")
"""

#: Без site-packages в пути: модуль, который взялся не из стандартной библиотеки, взять неоткуда.
GUARD = """
import sys
sys.path.insert(0, {path!r})
{extra}
{code}
known = set(sys.stdlib_module_names) | {{"nanolm", "__main__"}}
foreign = sorted({{name.partition(".")[0] for name in sys.modules}} - known)
sys.stderr.write(" ".join(foreign))
"""


def foreign_modules(code: str, extra: str = "") -> list[str]:
    """Модули не из стандартной библиотеки, которые загрузил этот код в чистом процессе."""
    script = GUARD.format(path=str(ROOT), code=code, extra=extra)
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stderr.decode().split()


# --- стандартная библиотека ---------------------------------------------------------------------


def test_core_is_standard_library_only() -> None:
    assert foreign_modules(EVERYTHING) == []


def test_foreign_import_would_be_noticed(tmp_path: Path) -> None:
    """Проверка проверки: подставной torch рядом с ядром виден, как только его кто-то импортирует."""
    (tmp_path / "torch.py").write_text("", encoding="utf-8")
    path = f"sys.path.append({str(tmp_path)!r})"
    assert foreign_modules(EVERYTHING, path) == []
    assert foreign_modules("import nanolm.budget, torch", path) == ["torch"]


def test_importing_the_package_alone_loads_nothing() -> None:
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules); import nanolm; "
    script += "print(*sorted(name for name in set(sys.modules) - before if name.startswith('nanolm')))"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, check=True)
    assert done.stdout.decode().split() == ["nanolm"]


#: Дорогие модули, без которых обычный ответ обходится: вместе они стоят дольше самого счёта.
EXPENSIVE = {
    "dataclasses", "inspect", "typing", "pathlib", "json", "tomllib", "difflib", "decimal", "fractions", "datetime",
    "subprocess", "tempfile", "logging", "unicodedata", "shutil", "random", "hashlib",
}  # fmt: skip


def test_a_plain_answer_loads_nothing_expensive() -> None:
    """Запуск должен казаться мгновенным: JSON, TOML и поиск похожих имён грузятся, только когда нужны."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from nanolm.cli import budget; "
    code += "budget('--V 9 --D 8 --L 1 --N 2'.split(), 'nanolm'); sys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True)
    loaded = set(done.stderr.decode().split())
    assert "nanolm.budget" in loaded
    assert loaded & EXPENSIVE == set()
    assert not {"nanolm.zoo", "nanolm.hardware", "nanolm.console"} & loaded


def test_budget_is_loaded_once_when_run_as_a_module() -> None:
    """`python -m nanolm.budget` не держит двух копий модуля: `__main__` и `nanolm.budget`."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "nanolm.budget", "--V", "9", "--D", "8", "--L", "1", "--N", "2"],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    loaded = [line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()]
    assert loaded.count("nanolm.budget") == 1


# --- направление импорта ------------------------------------------------------------------------


def imports(source: str) -> tuple[set[str], set[str]]:
    """Модули `nanolm`, которые импортирует исходник: при загрузке и внутри функций. Типы не в счёт."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    everywhere = _named(ast.walk(tree))
    inner = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or _is_main(node):
            inner |= _named(ast.walk(node))
    return everywhere - inner, inner


def _is_main(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)


def _named(nodes: object) -> set[str]:
    found = set()
    for node in nodes:  # type: ignore[attr-defined]
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("nanolm.")}
        if isinstance(node, ast.ImportFrom) and node.module == "nanolm":
            found |= {alias.name for alias in node.names if not alias.name.startswith("__")}
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nanolm."):
            found.add(str(node.module).split(".")[1])
    return found


def violations(module: str, source: str) -> list[str]:
    """Импорты этого модуля ядра, которые идут не вниз."""
    loading, inner = imports(source)
    wrong = [f"{module} → {name}" for name in loading if FLOORS.get(name, 99) >= FLOORS[module]]
    wrong += [
        f"{module} → {name} (внутри)"
        for name in inner
        if FLOORS.get(name, 99) >= FLOORS[module] and (module, name) not in LAZY_UPWARD and name != module
    ]
    return sorted(wrong)


@pytest.mark.parametrize("module", FLOORS)
def test_core_imports_only_downwards(module: str) -> None:
    assert violations(module, (PACKAGE / f"{module}.py").read_text(encoding="utf-8")) == []


def test_upward_import_would_be_noticed() -> None:
    assert violations("ops", "from nanolm.budget import Account") == ["ops → budget"]
    assert violations("ops", "from nanolm.zoo import preset") == ["ops → zoo"]
    assert violations("budget", "import nanolm.model") == ["budget → model"]
    assert violations("spec", "def f():\n    from nanolm import ops") == ["spec → ops (внутри)"]
    assert violations("ops", "if TYPE_CHECKING:\n    from nanolm.budget import Account") == []
    assert violations("budget", "def report():\n    from nanolm.summary import text") == []


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_nothing_imports_lessons_or_tests(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.partition(".")[0] for name in names} & {"lessons", "tests", "docs", "conf", "noxfile"}


def test_heavy_modules_are_not_part_of_the_core() -> None:
    """torch и matplotlib не появляются в модулях ядра и упражнений даже внутри функций и под типами."""
    for path in [*(PACKAGE / f"{name}.py" for name in FLOORS), *(PACKAGE / "exercises").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            outside = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
            assert outside <= {"nanolm"}, path
