"""Стена памяти: отдельный процесс просит тензоры настоящей модели, пока ему не откажут.

Чтобы упереться в память карты на 16 ГБ, карта не нужна. Процессу ставят предел на адресное пространство
(`RLIMIT_AS`), и он просит у распределителя ровно те тензоры, которые просила бы модель: слой за слоем, тех же форм.
Когда просьба не помещается, распределитель отказывает, и процесс погибает от настоящей ошибки. Урок её показывает
и продолжается.

Памяти при этом почти не тратится. `torch.empty` лишь резервирует адреса; страницу система выдаёт при первой записи,
а писать никто не собирается. Поэтому 14,5 ГиБ «модели» занимают сотни мегабайт настоящей памяти.

С CUDA те же просьбы идут карте, а предел — доля её памяти (`set_per_process_memory_fraction`). На macOS и Windows
такого предела для процесса нет: урок так и говорит и показывает один прогноз.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from nanolm.budget import DTYPES, Spec, training_memory
from nanolm.ops import parameter_shapes

#: Какими типами torch держит числа каждой точности.
TORCH_NAMES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
#: Сколько ждать ребёнка, с: он только импортирует torch и просит память.
TIMEOUT = 180
WEIGHTS, ADAPTERS, ACTIVATIONS = "веса", "адаптеры", "активации"
GRADIENTS, MOMENTS = "градиенты", "моменты AdamW"


@dataclass(frozen=True, slots=True)
class Request:
    """Одна просьба: что за тензор, на какой стадии, какой формы и точности."""

    stage: str
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Байты тензора."""
        return math.prod(self.shape) * DTYPES[self.dtype]


@dataclass(frozen=True, slots=True)
class Reading:
    """Показания после просьбы: занято сверх пустого процесса и сколько из этого настоящей памяти."""

    occupied: int
    resident: int


# --- Что просят -----------------------------------------------------------------------------------


def weights(spec: Spec, dtype: str = "fp32") -> list[Request]:
    """Веса в порядке загрузки: эмбеддинг, слои по одному, последняя норма и голова."""
    shapes = parameter_shapes(spec)
    last = spec.L
    order = sorted(shapes, key=lambda name: -1 if name == "embedding.weight" else _layer(name, last))
    return [Request(WEIGHTS, name, shapes[name], dtype) for name in order]


def full_training(spec: Spec, dtype: str = "fp32") -> list[Request]:
    """Полное дообучение: веса, градиенты с конца модели к началу, два момента AdamW на каждый вес.

    Активации опущены: до них здесь не доходит, а с ними стена только ближе. Связанная матрица словаря
    получает градиент первой — она же выходная голова.
    """
    stored = weights(spec, dtype)
    backward = stored[::-1]
    if spec.tie_embeddings:
        backward = [stored[0], *backward[:-1]]
    gradients = [_like(request, GRADIENTS, "grad") for request in backward]
    moments = [_like(request, MOMENTS, name) for request in stored for name in ("exp_avg", "exp_avg_sq")]
    return [*stored, *gradients, *moments]


def lora_training(spec: Spec, dtype: str = "fp32", rank: int = 16, B: int = 1, S: int = 640) -> list[Request]:
    """LoRA: все замороженные веса, узкие адаптеры к проекциям внимания, активации, градиенты адаптеров.

    Матрице «выход × вход» достаются две: rank × вход и выход × rank. Активации — те, что хранит прямой
    проход; от заморозки весов они почти не меняются.
    """
    adapters = [
        Request(ADAPTERS, f"{request.name.removesuffix('weight')}lora_{side}", shape, "fp32")
        for request in weights(spec, dtype)
        if re.search(r"attention\.(query|key|value|output)\.weight", request.name)
        for side, shape in (("a", (rank, request.shape[1])), ("b", (request.shape[0], rank)))
    ]
    trained = [_like(request, GRADIENTS, "grad") for request in adapters[::-1]]
    moments = [_like(request, MOMENTS, name) for request in adapters for name in ("exp_avg", "exp_avg_sq")]
    return [*weights(spec, dtype), *adapters, *_activations(spec, B, S), *trained, *moments]


def _activations(spec: Spec, B: int, S: int) -> list[Request]:
    """Что слои хранят до обратного прохода: строки счёта, разложенные по слоям."""
    account = training_memory(spec, B, S, recipe="fp32")
    rows = [line for line in account.details if line.component == "activations" and line.letters.startswith("L·")]
    return [
        Request(ACTIVATIONS, f"layers.{layer}: {line.title}", (line.value // spec.L // DTYPES["fp32"],), "fp32")
        for layer in range(spec.L)
        for line in rows
    ]


def _like(request: Request, stage: str, suffix: str) -> Request:
    return Request(stage, f"{request.name}.{suffix}", request.shape, request.dtype)


def _layer(name: str, outside: int = -1) -> int:
    """Номер слоя тензора; `outside` — если он не в слое."""
    found = re.match(r"layers\.(\d+)[.:]", name)
    return int(found[1]) if found else outside


# --- Что вышло ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Climb:
    """Подъём к стене: просьбы, предел, показания и последние слова процесса.

    `readings` — по одному на удовлетворённую просьбу; `message` — ошибка распределителя, пусто — стены не было;
    `skipped` — почему измерить нельзя: тогда есть только прогноз.
    """

    requests: tuple[Request, ...]
    cap: int
    device: str
    readings: tuple[Reading, ...] = ()
    message: str = ""
    skipped: str = ""

    @property
    def asked(self) -> list[int]:
        """Прогноз: сколько байт запрошено после каждой просьбы."""
        return list(accumulate(request.nbytes for request in self.requests))

    @property
    def granted(self) -> int:
        """Сколько байт процесс успел получить."""
        return sum(request.nbytes for request in self.requests[: len(self.readings)])

    @property
    def refused(self) -> Request | None:
        """Просьба, на которой процесс погиб, или `None`."""
        return self.requests[len(self.readings)] if self.message else None

    @property
    def expected(self) -> Request | None:
        """Просьба, на которой прогноз ждёт отказа: первая, что не помещается под предел."""
        over = (request for request, total in zip(self.requests, self.asked, strict=True) if total > self.cap)
        return next(over, None)

    @property
    def whole_layers(self) -> int:
        """Байты целиком загруженных слоёв: начатый, но не законченный слой не в счёт."""
        done = self.requests[: len(self.readings)]
        if self.refused is None:
            return self.granted
        open_layer = _layer(self.refused.name)
        same = (self.refused.stage, open_layer)
        return sum(r.nbytes for r in done if open_layer < 0 or (r.stage, _layer(r.name)) != same)

    @property
    def resident(self) -> int:
        """Наибольшая настоящая память процесса, байты."""
        return max((reading.resident for reading in self.readings), default=0)

    def peak(self, stage: str) -> int:
        """Сколько байт запрошено к концу стадии."""
        return sum(r.nbytes for r in self.requests[: _last(self.requests, stage) + 1])

    def curve(self) -> list[tuple[float, float]]:
        """Точки графика: число полученных тензоров и занято, ГиБ. Точка — после каждого слоя."""
        return _thin(self.requests, [reading.occupied for reading in self.readings])

    def forecast(self) -> list[tuple[float, float]]:
        """То же по прогнозу, для всех просьб."""
        return _thin(self.requests, self.asked)


def _last(requests: Sequence[Request], stage: str) -> int:
    return max(i for i, request in enumerate(requests) if request.stage == stage)


def _thin(requests: Sequence[Request], sizes: Sequence[int]) -> list[tuple[float, float]]:
    """Оставить по точке на слой и последнюю: на глаз кривая та же, а рисунок вдесятеро легче."""
    points = [(0.0, 0.0)]
    for place, size in enumerate(sizes):
        here = (requests[place].stage, _layer(requests[place].name))
        following = requests[place + 1] if place + 1 < len(sizes) else None
        if following is None or (following.stage, _layer(following.name)) != here:
            points.append((place + 1.0, size / 2**30))
    return points


# --- Процесс под пределом -------------------------------------------------------------------------


def climb(requests: Iterable[Request], cap: int, device: str = "auto") -> Climb:
    """Запустить процесс с пределом `cap` байт и смотреть, докуда он дойдёт.

    Смерть процесса — это результат, а не ошибка: исключения здесь нет. `device` — "cpu", "cuda" или "auto".
    """
    plan = tuple(requests)
    if cap < 1:
        raise ValueError(f"cap = {cap}: предел — положительное число байт")
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device = {device!r}: нужно одно из auto, cpu, cuda")
    device = _device() if device == "auto" else device
    if device == "cpu" and (reason := unsupported()):
        return Climb(plan, cap, device, skipped=reason)
    lines, message = _run(plan, cap, device)
    return Climb(plan, cap, device, tuple(Reading(*line) for line in lines), message)


def unsupported(system: str = sys.platform) -> str:
    """Почему процесс на этой системе не ограничить; пусто — можно."""
    if system.startswith("linux"):
        return ""
    known = {
        "darwin": "macOS принимает предел RLIMIT_AS, но не соблюдает его",
        "win32": "в Windows нет предела адресного пространства для процесса (модуля resource)",
    }
    return known.get(system, f"на системе {system} предел памяти процесса не проверялся")


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _run(plan: Sequence[Request], cap: int, device: str) -> tuple[list[list[int]], str]:
    """Запустить ребёнка; вернуть его показания и последнюю строку ошибки."""
    task = {"cap": cap, "device": device, "tensors": [(r.shape, TORCH_NAMES[r.dtype]) for r in plan]}
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    # Один поток и одна арена: иначе адреса стеков и арен попали бы в показания.
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    try:
        child = subprocess.run(
            [sys.executable, "-m", "nanolm.wall"],
            input=json.dumps(task), capture_output=True, text=True, encoding="utf-8", errors="replace",
            env=environment, timeout=TIMEOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [], f"процесс не уложился в {TIMEOUT} с"
    readings = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("[")]
    return readings, _last_words(child.returncode, child.stderr)


def _last_words(returncode: int, stderr: str) -> str:
    """Последняя строка ошибки; убитый сигналом процесс сказать ничего не успел."""
    if returncode == 0:
        return ""
    if returncode < 0:
        return f"процесс убит сигналом {-returncode} и ничего не сказал"
    lines = [line for line in stderr.splitlines() if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return lines[-1] if lines else f"процесс завершился с кодом {returncode}"


# --- Сам процесс: python -m nanolm.wall -----------------------------------------------------------


def _child(task: dict[str, Any]) -> None:
    """Поставить предел и просить тензоры по одному. Отказ распределителя никто не ловит: в этом и опыт."""
    import torch

    kept = [torch.empty(1)]
    measure = _limit_cuda(task["cap"]) if task["device"] == "cuda" else _limit_cpu(task["cap"])
    for shape, dtype in task["tensors"]:
        kept.append(torch.empty(shape, dtype=getattr(torch, dtype), device=task["device"]))
        print(json.dumps(next(measure)), flush=True)


def _limit_cpu(cap: int) -> Iterator[list[int]]:
    """Предел адресного пространства: сколько занято сейчас плюс `cap`."""
    import resource

    base = _memory()[0]
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY and base + cap > hard:
        raise OSError(f"система уже ограничила процесс {hard} байтами, предел {base + cap} не поставить")
    resource.setrlimit(resource.RLIMIT_AS, (base + cap, hard))
    return ([now - base, resident] for now, resident in iter(_memory, None))


def _memory() -> tuple[int, int]:
    """Адресное пространство и настоящая память этого процесса, байты (Linux)."""
    with open("/proc/self/statm", encoding="ascii") as file:
        pages, resident = (int(word) for word in file.read().split()[:2])
    size = os.sysconf("SC_PAGE_SIZE")
    return pages * size, resident * size


def _limit_cuda(cap: int) -> Iterator[list[int]]:
    """Доля карты: на карте больше T4 она стоит вместо T4."""
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, cap / total))
    return iter(lambda: [torch.cuda.memory_allocated(), torch.cuda.memory_reserved()], None)


if __name__ == "__main__":
    _child(json.load(sys.stdin))
