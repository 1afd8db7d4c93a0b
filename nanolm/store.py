"""Обученные модели на диске: что уже обучено, второй раз не учится.

Ключ папки — отпечаток того, от чего зависят веса: рецепт, факты, токенизатор, код модели и обучения, версия torch,
процессор. Правка `nanolm.budget` или комментария ключа не меняет, правка шага обучения — меняет. Код сравнивается
деревом разбора: отступы, комментарии и строки документации в него не входят.

Папка появляется целиком или не появляется вовсе: её собирают рядом и переименовывают. При чтении сверяется отпечаток
файла весов, поэтому битая папка — это не ошибка, а повод обучить заново.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from nanolm import facts
from nanolm.facts import Fact
from nanolm.model import NanoLM
from nanolm.pretrain import Recipe, Trained, train

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: Модули, от текста которых зависят веса.
CODE = ("nanolm.model", "nanolm.pretrain")
WEIGHTS, RECORD = "model.safetensors", "record.json"
#: Сколько цифр отпечатка хватает имени папки.
SHORT = 16


def restore(recipe: Recipe, known: Sequence[Fact], folder: Path | None = None) -> Trained:
    """Взять обученную модель из хранилища, а если её там нет или она повреждена — обучить и положить."""
    tokenizer = facts.train_tokenizer(known, recipe.spec.V)
    inputs = key_inputs(recipe, known, tokenizer)
    place = (folder or default_folder()) / key(inputs)
    ready = _read(place, recipe, tokenizer)
    if ready is None:
        ready = train(recipe, known, tokenizer)
        _write(place, ready, inputs)
    return ready


def key(inputs: dict[str, object]) -> str:
    """Имя папки: начало отпечатка всех входов."""
    return _sha256(json.dumps(inputs, sort_keys=True, ensure_ascii=False).encode())[:SHORT]


def key_inputs(recipe: Recipe, known: Sequence[Fact], tokenizer: Tokenizer) -> dict[str, object]:
    """Всё, от чего зависят веса; то же лежит в записи рядом с ними."""
    numbers = {name: getattr(recipe, name) for name in recipe.__dataclass_fields__ if name != "spec"}
    return {
        "spec": recipe.spec.to_dict(),
        "recipe": numbers,
        "facts": facts.digest(known),
        "tokenizer": _sha256(tokenizer.to_str().encode()),
        "code": {name: code_digest(Path(str(sys.modules[name].__file__)).read_text("utf-8")) for name in CODE},
        "torch": torch.__version__,
        "processor": [platform.system(), platform.machine(), torch.backends.cpu.get_cpu_capability()],
    }


def code_digest(source: str) -> str:
    """Отпечаток кода без комментариев и строк документации."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            # Строка-выражение ничего не вычисляет: это документация, где бы она ни стояла.
            node.body = [item for item in body if not _is_text(item)]  # type: ignore[attr-defined]
    return _sha256(ast.dump(tree).encode())


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def default_folder() -> Path:
    """Хранилище: `NANOLM_MODELS`, иначе `build/models` репозитория, иначе папка кешей пользователя."""
    if named := os.environ.get("NANOLM_MODELS"):
        return Path(named)
    root = Path(__file__).resolve().parent.parent
    if (root / "pyproject.toml").is_file():
        return root / "build" / "models"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nanolm" / "models"


# --- Файлы ----------------------------------------------------------------------------------------


def _read(place: Path, recipe: Recipe, tokenizer: Tokenizer) -> Trained | None:
    """Модель из папки или `None`, если папки нет или что-то в ней не сходится."""
    try:
        record = json.loads((place / RECORD).read_text("utf-8"))
        if record["weights"] != _sha256((place / WEIGHTS).read_bytes()):
            return None
        model = NanoLM(recipe.spec)
        model.load_state_dict(load_file(place / WEIGHTS))
        return Trained(model, tokenizer, [float(loss) for loss in record["losses"]], float(record["seconds"]))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError):
        return None


def _write(place: Path, ready: Trained, inputs: dict[str, object]) -> None:
    """Собрать папку рядом и поставить на место одним переименованием."""
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{place.name}-", dir=place.parent))
    try:
        save_file(dict(ready.model.state_dict()), draft / WEIGHTS)
        record = {
            "inputs": inputs,
            "losses": ready.losses,
            "seconds": ready.seconds,
            "weights": _sha256((draft / WEIGHTS).read_bytes()),
        }
        (draft / RECORD).write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", "utf-8")
        _replace(draft, place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _replace(draft: Path, place: Path, move: Callable[[Path, Path], object] = os.replace) -> None:
    """Переименовать папку; занятое место сначала освободить. Кто опоздал, тот довольствуется чужой папкой."""
    try:
        move(draft, place)
    except OSError:
        shutil.rmtree(place, ignore_errors=True)
        try:
            move(draft, place)
        except OSError:
            # Рядом успела другая сборка: у неё те же входы, а значит, и те же веса.
            return


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
