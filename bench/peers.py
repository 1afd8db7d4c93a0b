"""Точность соседей: у кого параметры, активные параметры и кеш KV настоящих моделей сходятся до единицы.

Соседи — vramcalc, llm-flops и accelerate — ставятся в отдельное окружение (`build/peers`), чтобы их зависимости не
спорили с нашими; torch и transformers, которые нужны последнему, берутся из текущего. Каждый получает те же
config.json, что и NanoLM, и отвечает своими функциями. Ответчик для параметров — `tests/golden/models.json`: числа
посчитаны по самим моделям. Кеш засчитывается по любому из названных соглашений: теория, transformers, резерв движка.

    python bench/peers.py            # таблица; первый запуск ставит пакеты
    python bench/peers.py --json

accelerate отвечает байтами модели, и в них входят буферы поворота: отсюда лишние десятки «параметров».
Это сравнение на сегодняшних версиях, а не тест: сосед может исправиться, и в pytest ему не место.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

from nanolm import units
from nanolm.budget import kv_cache_bytes, parameter_breakdown, text_table
from nanolm.zoo import from_config

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden" / "models.json"
S, B = 8192, 1
QUANTITIES = ("parameters", "active", "kv")
TITLES = {"parameters": "параметры", "active": "активные", "kv": "кеш KV"}

#: Пакет → (имя на складе, ставить ли его зависимости).
PACKAGES = {"vramcalc": ("vramcalc", True), "llm-flops": ("llm-flops", True), "accelerate": ("accelerate", False)}

#: Что выполняет сосед: из config.json — словарь величин. Имена функций — его собственные.
CALLS = {
    "vramcalc": """
from vramcalc.loaders import load_arch
from vramcalc.memory import kv_cache
def answer(name, config):
    arch = load_arch(config)
    return {"parameters": arch.param_count(), "kv": kv_cache(arch, B, S, 2)}
""",
    "llm-flops": """
from llmflops.memory import active_parameter_count, kv_cache_bytes, parameter_count
from llmflops.registry import _map_hf_config
def answer(name, config):
    mapped = _map_hf_config(name, config)
    return {
        "parameters": parameter_count(mapped).total, "active": active_parameter_count(mapped),
        "kv": int(kv_cache_bytes(mapped, B, S, "bf16")),
    }
""",
    "accelerate": """
import torch
from accelerate import init_empty_weights
from accelerate.utils import calculate_maximum_sizes
from transformers import AutoConfig, AutoModel
def answer(name, config):
    fields = {key: value for key, value in config.items() if key != "model_type"}
    with init_empty_weights():
        model = AutoModel.from_config(AutoConfig.for_model(config["model_type"], **fields), torch_dtype=torch.float32)
    return {"parameters": int(calculate_maximum_sizes(model)[0]) // 4}
""",
}

WORKER = """
import json, sys
B, S = {B}, {S}
{call}
found = {{}}
for name, config in json.load(sys.stdin).items():
    try:
        found[name] = answer(name, config)
    except Exception as error:
        found[name] = {{"error": f"{{type(error).__name__}}: {{error}}"[:120]}}
print(json.dumps(found))
"""


def environment(folder: Path) -> Path:
    """Окружение соседей: создаётся один раз; возвращает его интерпретатор."""
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not (folder / ".done").is_file():
        venv.create(folder, with_pip=True, clear=True)
        for package, dependencies in PACKAGES.values():
            command = [python, "-m", "pip", "install", "--quiet", package, *([] if dependencies else ["--no-deps"])]
            subprocess.run(command, check=True)
        # Чужие torch и transformers видны соседу после его собственных пакетов.
        place = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        (Path(place.stdout.strip()) / "parent.pth").write_text(sysconfig.get_paths()["purelib"], encoding="utf-8")
        (folder / ".done").write_text("", encoding="utf-8")
    return python


def ask(python: Path, peer: str, configs: dict[str, Any]) -> dict[str, Any]:
    """Ответы одного соседа на все модели."""
    script = WORKER.format(B=B, S=S, call=CALLS[peer])
    done = subprocess.run(
        [python, "-c", script], input=json.dumps(configs), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{peer}: {done.stderr.strip().splitlines()[-1]}")
    answers: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answers


def versions(python: Path) -> dict[str, str]:
    """Какие версии соседей сравниваются."""
    script = "import json, sys; from importlib.metadata import version as v; "
    script += "print(json.dumps({n: v(n) for n in json.loads(sys.argv[1])}))"
    names = json.dumps([package for package, _ in PACKAGES.values()])
    done = subprocess.run([python, "-c", script, names], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def nanolm(config: dict[str, Any]) -> dict[str, int]:
    """То же от NanoLM."""
    spec = from_config(config)
    account = parameter_breakdown(spec)
    return {"parameters": account.total, "active": account.active, "kv": kv_cache_bytes(spec, B, S).total}


def truth(record: dict[str, Any]) -> dict[str, set[int]]:
    """Верные ответы: параметры — из эталона, кеш — по каждому соглашению."""
    spec = from_config(record["config"])
    cache = {kv_cache_bytes(spec, B, S, kv=kv).total for kv in ("theory", "transformers", "engine")}
    return {"parameters": {record["total"]}, "active": {record["active"]}, "kv": cache}


def verdict(answer: dict[str, Any], right: set[int], quantity: str) -> str:
    """«точно», отклонение — в процентах, а малое в единицах, — «отказ» или «—», если величины у соседа нет."""
    if quantity not in answer:
        return "отказ" if "error" in answer else "—"
    value = int(answer[quantity])
    if value in right:
        return "точно"
    nearest = min(right, key=lambda true: abs(true - value))
    sign, share = "+" if value > nearest else "−", abs(value / nearest - 1)
    return sign + (units.percent(share, 2) if share >= 1e-4 else units.number(abs(value - nearest)))


def compare(folder: Path) -> dict[str, Any]:
    """Сосед → модель → величина → вердикт."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    configs = {name: record["config"] for name, record in golden.items()}
    python = environment(folder)
    answers = {"nanolm": {name: nanolm(config) for name, config in configs.items()}}
    answers |= {peer: ask(python, peer, configs) for peer in PACKAGES}
    right = {name: truth(record) for name, record in golden.items()}
    table = {
        peer: {name: {q: verdict(found[name], right[name][q], q) for q in QUANTITIES} for name in golden}
        for peer, found in answers.items()
    }
    return {"versions": versions(python), "B": B, "S": S, "answers": answers, "verdicts": table}


def show(found: dict[str, Any]) -> str:
    """Таблица: строка на модель, столбец на величину каждого соседа; внизу — сколько точных."""
    table: dict[str, Any] = found["verdicts"]
    columns = [
        (peer, quantity)
        for peer in table
        for quantity in QUANTITIES
        if any(verdicts[quantity] not in ("—", "отказ") for verdicts in table[peer].values())
    ]
    head = ("модель", *(f"{peer}: {TITLES[quantity]}" for peer, quantity in columns))
    names = list(table["nanolm"])
    rows = [(name, *(table[peer][name][quantity] for peer, quantity in columns)) for name in names]
    counts = [sum(table[peer][name][quantity] == "точно" for name in names) for peer, quantity in columns]
    rows.append(("точных", *(f"{count} из {len(names)}" for count in counts)))
    known = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return f"B = {found['B']}, S = {found['S']}, bf16; {known}\n\n{text_table(head, rows)}"


def main() -> int:
    """Сравнить и напечатать."""
    parser = argparse.ArgumentParser(description="Чьи параметры, активные параметры и кеш KV точны")
    parser.add_argument("--env", type=Path, default=ROOT / "build" / "peers", help="папка окружения соседей")
    parser.add_argument("--json", action="store_true", help="документ JSON вместо таблицы")
    args = parser.parse_args()
    found = compare(args.env)
    print(json.dumps(found, ensure_ascii=False, indent=1) if args.json else show(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
