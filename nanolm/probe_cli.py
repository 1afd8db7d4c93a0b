"""Командная строка пробы: `python -m nanolm.probe verify|speed|roofline` и `nanolm probe …`.

Сначала — карточка: что известно до измерения (модель, прогноз, машина), потом — таблица. Под `--json`
карточка и ход работы уходят в поток ошибок, а на стандартном выводе один документ, последней строкой.
Код выхода: 0 — всё сошлось, 1 — строка, обязанная совпасть, не совпала, 2 — неверный ввод.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from tqdm import tqdm

from nanolm import budget, cli, probe, records, roofline, units
from nanolm.hardware import Gpu
from nanolm.machine import driver, name_of, total_bytes
from nanolm.measure import PROBE_VERSION
from nanolm.spec import Spec, whole
from nanolm.speed import Timing, speed
from nanolm.training import OPTIMIZERS

COMMANDS = {
    "verify": "сверить счёт с моделью: параметры, FLOPs, память",
    "speed": "измерить обучение, чтение запроса и порождение",
    "roofline": "измерить пределы этой машины: пик произведений и полосу памяти",
}

_CHOICES = (
    ("recipe", budget.RECIPES, "fp32", "рецепт точности"),
    ("optimizer", OPTIMIZERS, "adamw", "оптимизатор"),
    ("attention", budget.ATTENTION_KERNELS, "fused", "ядро внимания"),
    ("checkpointing", budget.CHECKPOINTING, "none", "чекпоинтинг активаций"),
)


def main(argv: list[str], prog: str) -> int:
    """Разобрать ключи, измерить, вернуть код выхода."""
    cli.prepare_console()
    cli.speak_russian()
    args = _parser(prog).parse_args(argv)
    try:
        device = _device(args.device, args.command)
        if getattr(args, "record", None) is not None:
            _check_record(args.record)
        return int({"verify": _verify, "speed": _speed, "roofline": _roofline}[args.command](args, device, prog))
    except ValueError as error:
        cli.fail(prog, cli.flagged(str(error)))
    except torch.OutOfMemoryError as error:
        cli.fail(prog, f"на устройстве не хватило памяти: {str(error).splitlines()[0]}")
    except OSError as error:
        cli.fail(prog, f"{error.filename or 'файл'}: {records.reason(error)}")
    return 2


def _parser(prog: str) -> cli.Parser:
    parser = cli.Parser(
        prog=prog, description="Измерить то, что обещает счёт.", formatter_class=cli.Help, allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="КОМАНДА", title="команды")
    for name, title in COMMANDS.items():
        command = commands.add_parser(
            name, help=title, description=title, prog=f"{prog} {name}", formatter_class=cli.Help, allow_abbrev=False
        )
        if name != "roofline":
            _add_model(command, name)
        command.add_argument("--device", default="auto", metavar="ИМЯ", help=_DEVICES[name == "verify"])
        command.add_argument("--json", action="store_true", help="последней строкой вывода — документ JSON")
        if name != "verify":
            command.add_argument("--refresh", action="store_true", help="измерить пределы машины заново")
    return parser


_DEVICES = {
    False: "устройство: cpu, cuda, mps (по умолчанию лучшее из имеющихся)",
    True: "устройство: cpu, cuda, mps или meta — без памяти, только параметры и FLOPs",
}


def _add_model(command: cli.Parser, name: str) -> None:
    cli.add_model(command)
    for field, allowed, default, title in _CHOICES:
        if field == "optimizer" and name == "speed":
            continue
        text = f"{title}: {', '.join(allowed)} (по умолчанию {default})"
        command.add_argument(f"--{field}", choices=tuple(allowed), default=default, metavar="ВИД", help=text)
    command.add_argument("--record", metavar="ПУТЬ", help="записать измеренное в файл JSON")
    if name == "speed":
        command.add_argument("--new-tokens", type=cli.size, default=16, metavar="ЧИСЛО", help="сколько порождать, 16")
        command.add_argument("--repeats", type=cli.size, default=7, metavar="ЧИСЛО", help="сколько повторов, 7")


def _device(name: str, command: str) -> torch.device:
    """Устройство по имени; «auto» — лучшее из имеющихся."""
    present = ["cpu", *(["cuda"] if torch.cuda.is_available() else []), *(["mps"] if _has_mps() else [])]
    if name == "auto":
        return torch.device(present[-1])
    allowed = [*present, *(["meta"] if command == "verify" else [])]
    kind, colon, number = name.partition(":")
    if kind not in allowed:
        raise ValueError(f"--device {name}: на этой машине есть {', '.join(allowed)}")
    if colon and (kind != "cuda" or number not in map(str, range(torch.cuda.device_count()))):
        raise ValueError(f"--device {name}: номер бывает только у карты CUDA, и такая карта должна быть в машине")
    return torch.device(name)


def _check_record(path: str) -> None:
    """Отказ до измерения: запись после него было бы некуда положить."""
    try:
        records.check_path(path)
    except ValueError as error:
        raise ValueError(f"--record: {error}") from None


def _has_mps() -> bool:
    return bool(torch.backends.mps.is_available())


# --- Команды -------------------------------------------------------------------------------------


def _verify(args: argparse.Namespace, device: torch.device, prog: str) -> int:
    spec, B, S = _model(args)
    options = {name: getattr(args, name) for name, *_ in _CHOICES}
    _print_card(_card(spec, B, S, options, device), args.json, prog)
    rows = probe.verify(spec, B, S, device=device, progress=_progress, **options)
    failed = [row for row in rows if row.exact and not row.passed]
    if args.record is not None:
        sizes = {row.name: row.measured for row in rows if row.unit == "байт"}
        workload = {"B": B, "S": S, **options}
        records.write(_record("verify", device, spec, workload, {}, sizes), args.record)
    document = {
        **_software(device), "spec": spec.to_dict(), "workload": {"B": B, "S": S, **options},
        "rows": [row.to_dict() for row in rows], "passed": not failed,
    }  # fmt: skip
    verdict = (
        "все обязательные строки совпали" if not failed else f"не совпало: {', '.join(row.title for row in failed)}"
    )
    cli.print_answer(
        json.dumps(document, ensure_ascii=False) if args.json else f"{_verify_table(rows)}\n{verdict}", prog
    )
    return 1 if failed else 0


def _speed(args: argparse.Namespace, device: torch.device, prog: str) -> int:
    spec, B, S = _model(args)
    options = {name: getattr(args, name) for name in ("recipe", "attention", "checkpointing")}
    counts = {"new_tokens": args.new_tokens, "repeats": whole("repeats", args.repeats)}
    _print_card(_card(spec, B, S, options, device), args.json, prog)
    card = roofline.machine(device, refresh=args.refresh, progress=_progress)
    timings = speed(spec, card, B, S, device=device, progress=_progress, **options, **counts)
    workload = {"B": B, "S": S, **options, **counts}
    if args.record is not None:
        samples = {timing.name: list(timing.samples.seconds) for timing in timings}
        records.write(_record("speed", device, spec, workload, samples, {}), args.record)
    document = {
        **_software(device), "spec": spec.to_dict(), "workload": workload, "limits": _limits(card),
        "rows": [timing.to_dict() for timing in timings],
    }  # fmt: skip
    return cli.print_answer(json.dumps(document, ensure_ascii=False) if args.json else _speed_table(timings), prog)


def _roofline(args: argparse.Namespace, device: torch.device, prog: str) -> int:
    card = roofline.machine(device, refresh=args.refresh, progress=_progress)
    if args.json:
        return cli.print_answer(json.dumps({**_software(device), "limits": _limits(card)}, ensure_ascii=False), prog)
    rows = [
        *((f"пик, {name}", units.prefixed(rate, "FLOP/s")) for name, rate in card.flops_per_s.items()),
        ("полоса памяти", units.decimal_bytes(card.bandwidth_bytes_per_s, 3) + "/с"),
        ("память", units.both_bytes(card.memory_bytes)),
    ]
    return cli.print_answer(budget.text_table((card.title, "измерено"), rows), prog)


def _model(args: argparse.Namespace) -> tuple[Spec, int, int]:
    """Модель, пакет и контекст; контекст модели растёт до запрошенного."""
    spec = cli.spec_of(args)
    return spec, whole("B", 1 if args.B is None else args.B), spec.S


# --- Что печатается ------------------------------------------------------------------------------


def _progress(items: Iterable[Any]) -> Iterable[Any]:
    """Ход долгой работы: полоса на терминале, тишина в файле и канале."""
    bar: Iterable[Any] = tqdm(list(items), file=sys.stderr, disable=None, leave=False)
    return bar


def _card(spec: Spec, B: int, S: int, options: dict[str, Any], device: torch.device) -> str:
    """Что известно до измерения."""
    memory = budget.training_memory(spec, B, S, **options)
    flops = budget.flops_per_token(spec, S)
    facts = (
        ("машина", f"{name_of(device)}; torch {torch.__version__}"),
        ("модель", f"{units.number(budget.parameter_breakdown(spec).total)} параметров, B = {B}, S = {S}"),
        ("рецепт", ", ".join(options.values())),
        ("прогноз памяти шага", f"{units.both_bytes(memory.total)}; пик — {memory.moment}"),
        ("прогноз полезных FLOPs шага", units.scientific(flops.total * B * S)),
    )
    width = max(len(name) for name, _ in facts)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in facts) + "\n"


def _print_card(card: str, as_json: bool, prog: str) -> None:
    if not as_json:
        cli.print_answer(card, prog)
        return
    # Карточка на потоке ошибок — подсказка: некому её прочесть, но ответ от этого не меняется.
    with contextlib.suppress(OSError):
        print(card, file=sys.stderr, flush=True)


def _verify_table(rows: list[probe.Row]) -> str:
    head = ("величина", "прогноз", "измерено", "отношение", "")
    body = [
        (row.title, units.number(row.predicted), units.number(row.measured), _shown(row), _mark(row)) for row in rows
    ]
    return _table(head, body)


def _shown(row: probe.Row) -> str:
    return units.number(row.ratio, 4) if row.ratio != 1 else "1"


def _mark(row: probe.Row) -> str:
    if row.exact:
        return "точно" if row.passed else "НЕ СОВПАЛО"
    return f"±{units.percent(row.tolerance, 0)}" if row.passed else f"вне ±{units.percent(row.tolerance, 0)}"


def _speed_table(timings: list[Timing]) -> str:
    head = ("что", "медиана", "разброс", "токенов в секунду", "предел", "доля предела")
    body = [
        (
            timing.title, units.duration(timing.samples.median), units.percent(timing.samples.spread),
            units.number(timing.tokens_per_s, 1), units.duration(timing.limit_s), units.percent(timing.share),
        )
        for timing in timings
    ]  # fmt: skip
    return _table(head, body) + "\nДоля предела у шага обучения — это MFU: полезные FLOPs по видимым парам к пику."


def _table(head: tuple[str, ...], body: Sequence[tuple[str, ...]]) -> str:
    """Таблица без итоговой строки: первый столбец влево, остальные вправо."""
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [head, *body]
    ]
    return "\n".join(
        [lines[0].rstrip(), "  ".join("─" * width for width in widths), *(line.rstrip() for line in lines[1:])]
    )


# --- Документы -----------------------------------------------------------------------------------


def _software(device: torch.device) -> dict[str, Any]:
    return {
        "probe_version": PROBE_VERSION, "device": name_of(device), "python": platform.python_version(),
        "torch": torch.__version__, "threads": torch.get_num_threads(),
    }  # fmt: skip


def _limits(card: Gpu) -> dict[str, Any]:
    return {
        "title": card.title, "memory_bytes": card.memory_bytes, "bandwidth_bytes_per_s": card.bandwidth_bytes_per_s,
        "flops_per_s": dict(card.flops_per_s),
    }  # fmt: skip


def _record(
    what: str, device: torch.device, spec: Spec, workload: dict[str, Any], samples: dict[str, list[float]],
    sizes: dict[str, int],
) -> dict[str, Any]:  # fmt: skip
    """Запись измерения с машиной, на которой оно сделано."""
    return records.build(
        what,
        machine={"name": name_of(device), "memory_bytes": total_bytes(device), "driver": driver()},
        software={"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda},
        spec=spec.to_dict(),
        workload=workload,
        samples_s=samples,
        sizes=sizes,
        probe_version=PROBE_VERSION,
    )
