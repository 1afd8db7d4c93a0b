"""Командная строка: `python -m nanolm.budget` и `nanolm budget`.

Правила: ответ — на стандартный вывод, ошибка — одна строка по-русски на стандартный поток ошибок
и код 2, никаких трассировок. Всё, что не нужно этому запуску (JSON, карты, пресеты), не импортируется:
запуск должен казаться мгновенным. Вывод переживает любую кодировку консоли.
"""

from __future__ import annotations

import argparse
import sys

from nanolm.spec import NOTATION, Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from nanolm.quantization import Quantization
    from nanolm.summary import Question
    from nanolm.zoo import Described

#: Слова самого argparse. Ключ — английский шаблон, как он записан в библиотеке.
_RUSSIAN = {
    "usage: ": "использование: ",
    "options": "ключи",
    "optional arguments": "ключи",
    "positional arguments": "аргументы",
    "show this help message and exit": "показать эту справку и выйти",
    "show program's version number and exit": "показать версию и выйти",
    "argument %(argument_name)s: %(message)s": "%(argument_name)s: %(message)s",
    "expected one argument": "нужно значение",
    "expected at most one argument": "нужно не больше одного значения",
    "expected at least one argument": "нужно хотя бы одно значение",
    "unrecognized arguments: %s": "неизвестный аргумент: %s",
    "invalid choice: %(value)r (choose from %(choices)s)": "%(value)r: нужно одно из: %(choices)s",
    "invalid %(type)s value: %(value)r": "%(value)r: неверное значение",
    "not allowed with argument %s": "нельзя вместе с %s",
    "ambiguous option: %(option)s could match %(matches)s": "%(option)s: подходит сразу %(matches)s",
    "ignored explicit argument %r": "значение %r здесь не нужно",
    "the following arguments are required: %s": "не хватает аргумента: %s",
    "unexpected option string: %s": "неожиданный ключ: %s",
}

#: Ключ → (название, минимум у размеров); порядок — как в справке.
_SIZES = {
    **{name: NOTATION[name] for name in "VDLNKHFSB"},
    "experts": "число экспертов (E)",
    "experts-per-token": "число экспертов на токен (k)",
    "learned-positions": "число обучаемых позиций (0 — RoPE)",
    "window": "скользящее окно внимания, токенов",
}
_SWITCHES = {
    "tie-embeddings": "выходная голова делит матрицу с эмбеддингом",
    "qkv-bias": "смещения у проекций запроса, ключа и значения",
    "out-bias": "смещение у выходной проекции внимания",
    "ffn-bias": "смещения в полносвязном блоке",
    "qk-norm": "нормы запроса и ключа",
    "norm-bias": "LayerNorm вместо RMSNorm",
    "plain-ffn": "простой полносвязный блок из двух матриц вместо SwiGLU",
}


#: Слово длиннее этого в сообщении обрезается: это чужое значение, а не правило.
LONGEST_WORD = 200


class Help(argparse.HelpFormatter):
    """Справка постоянной ширины: узнавать ширину терминала дольше, чем отвечать на вопрос."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=110)


class Parser(argparse.ArgumentParser):
    """argparse, который говорит по-русски и отвечает на ошибку одной строкой."""

    def error(self, message: str) -> None:  # type: ignore[override]
        """Одна строка на поток ошибок и код 2."""
        fail(self.prog, message)


def fail(prog: str, message: object) -> None:
    """Закончить работу: одна строка и код 2, даже если читать её некому."""
    words = (word if len(word) <= LONGEST_WORD else word[: LONGEST_WORD - 1] + "…" for word in str(message).split())
    try:
        sys.stderr.write(f"{prog}: ошибка: {' '.join(words)}\n")
        sys.stderr.flush()
    except (AttributeError, OSError):  # поток закрыт или на устройстве нет места
        sys.stderr = None
    raise SystemExit(2)


def _number(text: str, kind: Callable[[str], float], what: str) -> float:
    try:
        return kind(text)
    except (ValueError, OverflowError):
        shown = text if len(text) <= 24 else text[:21] + "…"
        raise argparse.ArgumentTypeError(f"«{shown}»: нужно {what}") from None


def size(text: str) -> int:
    return int(_number(text, int, "целое число"))


def _count(text: str) -> int:
    """Целое число; крупные удобно писать как 15e12 или «15 трлн»."""
    from nanolm.units import whole_from

    return int(_number(text, whole_from, "целое число, можно как 15e12"))


def _real(text: str) -> float:
    return _number(text.replace(",", "."), float, "число")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def budget_parser(prog: str) -> Parser:
    """Разбор ключей `budget`."""
    parser = Parser(
        prog=prog,
        description="Сколько параметров, FLOPs и памяти у языковой модели и поместится ли она на карту.",
        epilog=f"Пример: {prog} --preset llama-3-8b --B 8 --S 8192 --gpu h100-sxm",
        formatter_class=Help,
        allow_abbrev=False,
    )
    add_model(parser)
    _add_question(parser)
    return parser


def add_model(parser: Parser) -> None:
    """Ключи, которые задают модель: размеры, пресет или config.json."""
    model = parser.add_argument_group("модель")
    for name, title in _SIZES.items():
        model.add_argument(f"--{name}", type=size, metavar="ЧИСЛО", help=title)
    for name, title in _SWITCHES.items():
        model.add_argument(f"--{name}", action="store_true", help=title)
    model.add_argument("--preset", metavar="ИМЯ", help="известная модель; остальные ключи её уточняют")
    model.add_argument("--config", metavar="ПУТЬ", help="config.json, папка с ним или «-» — стандартный ввод")


def _add_question(parser: Parser) -> None:
    from nanolm import budget as accounts

    question = parser.add_argument_group("вопрос")
    for name, allowed, default, title in (
        ("recipe", accounts.RECIPES, "mixed", "рецепт точности при обучении"),
        ("optimizer", accounts.OPTIMIZERS, "adamw", "оптимизатор"),
        ("attention", accounts.ATTENTION_KERNELS, "fused", "ядро внимания"),
        ("checkpointing", accounts.CHECKPOINTING, "none", "чекпоинтинг активаций"),
        ("dtype", accounts.DTYPES, "bf16", "точность весов и кеша при выводе"),
        ("convention", accounts.ATTENTION_CONVENTIONS, "full", "какие пары внимания считать во FLOPs"),
        ("kv", accounts.KV_CONVENTIONS, "theory", "сколько токенов держит кеш KV при выводе"),
    ):
        # Запятые вместо фигурных скобок argparse: список читается и по-русски.
        text = f"{title}: {', '.join(allowed)} (по умолчанию {default})"
        question.add_argument(f"--{name}", choices=tuple(allowed), default=default, metavar="ВИД", help=text)
    text = f"чья память: {', '.join(accounts.IMPLEMENTATIONS)} (по умолчанию nanolm)"
    question.add_argument(
        "--implementation", choices=accounts.IMPLEMENTATIONS, default="nanolm", metavar="ИМЯ", help=text
    )
    question.add_argument("--lora-rank", type=size, default=0, metavar="ЧИСЛО", help="ранг адаптеров LoRA, 0 — без них")
    targets = ",".join(accounts.LORA_TARGETS)
    text = f"матрицы с адаптерами через запятую (по умолчанию {targets})"
    question.add_argument("--lora-targets", type=_names, default=targets, metavar="ИМЕНА", help=text)
    text = "квантование весов при выводе: gptq-4-128, awq-4-128, nf4-double, int8, fp8-block, mxfp4…; none — без него"
    question.add_argument("--quantize", metavar="ИМЯ", help=text)
    question.add_argument("--kv-block", type=size, metavar="ЧИСЛО", help="кеш KV блоками по столько токенов, у vLLM 16")
    question.add_argument("--gpu", metavar="КАРТА", help="ускоритель, список даёт --list-gpus")
    question.add_argument("--gpus", type=size, default=1, metavar="ЧИСЛО", help="число карт при обучении")
    question.add_argument(
        "--tokens", type=_count, metavar="ЧИСЛО", help="токенов обучения, можно как 15e12 или «15 трлн»"
    )
    question.add_argument("--mfu", type=_real, default=0.45, metavar="ДОЛЯ", help="доля пика при обучении, 0,45")
    goals = ("training", "inference")
    text = f"что поместится на карту и что изменить, если не помещается: {', '.join(goals)}"
    question.add_argument("--fit", choices=goals, metavar="ЦЕЛЬ", help=text)
    question.add_argument("--price", type=_real, metavar="ЦЕНА", help="цена одного GPU-часа")
    output = parser.add_argument_group("вывод").add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="документ JSON вместо таблиц")
    output.add_argument("--explain", action="store_true", help="формула каждой строки буквами и числами")
    output.add_argument("--list-presets", action="store_true", help="известные модели")
    output.add_argument("--list-gpus", action="store_true", help="известные карты")


def spec_of(args: argparse.Namespace) -> Spec:
    """Модель из пресета, config.json или отдельных размеров; названные ключи побеждают."""
    return model_of(args)[0]


def model_of(args: argparse.Namespace) -> tuple[Spec, Described | None]:
    """То же и описание, откуда модель взята; у модели из отдельных размеров его нет."""
    given = {name.replace("-", "_"): getattr(args, name.replace("-", "_")) for name in _SIZES if name != "B"}
    changes = {name: value for name, value in given.items() if value is not None}
    changes |= {name.replace("-", "_"): True for name in _SWITCHES if getattr(args, name.replace("-", "_"))}
    if changes.pop("plain_ffn", False):
        changes["gated_ffn"] = False
    if args.preset is not None or args.config is not None:
        found = _known(args)
        return found.spec.replace(**changes), found
    missing = [f"--{name}" for name in "VDLN" if name not in changes]
    if missing:
        raise ValueError(f"не хватает ключей {', '.join(missing)}; нужны они, или --preset, или --config")
    return Spec(**changes), None


def _known(args: argparse.Namespace) -> Described:
    """Модель, размеры которой записаны: пресет или config.json."""
    from nanolm import zoo

    if args.config is None:
        return zoo.describe_preset(args.preset)
    if args.preset is not None:
        raise ValueError("--config: нельзя вместе с --preset")
    try:
        return zoo.describe(args.config)
    except ValueError as error:
        raise ValueError(f"--config: {error}") from None


def _stored(found: Described | None) -> Quantization | None:
    """Формат весов, записанный в файле."""
    try:
        return None if found is None else found.weights()
    except ValueError as error:
        raise ValueError(f"--config: {error}") from None


def _check_family(found: Described | None, implementation: str) -> None:
    """Семейство пресета или файла должно быть из тех, чья память описана."""
    if found is None or implementation == "nanolm":
        return
    from nanolm.transformers_memory import check_family

    check_family(found.family, implementation)


def question_of(args: argparse.Namespace) -> Question:
    from nanolm.summary import Question

    names = (
        "S", "recipe", "optimizer", "attention", "checkpointing", "dtype", "convention", "gpu", "gpus", "tokens",
        "mfu", "price", "fit", "kv", "implementation", "lora_rank", "lora_targets",
    )  # fmt: skip
    B, block = 1 if args.B is None else args.B, 1 if args.kv_block is None else args.kv_block
    spec, found = model_of(args)
    _check_family(found, args.implementation)
    named = None if args.quantize == "none" else args.quantize
    weights = _stored(found) if args.quantize is None else named
    given = {name: getattr(args, name) for name in names}
    return Question(spec, B=B, block=block, weights=weights, source=found, **given)


def flagged(message: str) -> str:
    """`K = 3: …` → `--K = 3: …`: имена полей в ошибке становятся именами ключей.

    Первое слово — всегда поле, о котором ошибка; дальше ключом может быть только слово, а не буква.
    """
    import re

    flags = {*_SIZES, *_SWITCHES, *_OTHER}
    name = message.split(" ", 1)[0].rstrip(":,")
    flag = _RENAMED.get(name, name).replace("_", "-")
    if flag not in flags:
        return message
    words = "|".join(sorted((word.replace("-", "_") for word in flags if len(word) > 1), key=len, reverse=True))
    rest = re.sub(
        rf"(?<![\w.'«-])({words})(?![\w.'»-])", lambda found: "--" + found[1].replace("_", "-"), message[len(name) :]
    )
    return f"--{flag}{rest}"


_OTHER = (
    "preset", "config", "gpu", "gpus", "tokens", "mfu", "price", "dtype", "fit", "repeats", "new-tokens", "quantize",
    "kv-block", "seed", "count", "implementation", "lora-rank", "lora-targets",
)  # fmt: skip
#: Аргумент счёта → ключ, если они названы по-разному.
_RENAMED = {"weights": "quantize", "block": "kv-block"}


def _answer(args: argparse.Namespace) -> str:
    if args.list_gpus:
        from nanolm.hardware import gpus

        return "\n".join(f"{key:<16} {card.title}" for key, card in gpus().items())
    if args.list_presets:
        from nanolm.zoo import presets

        return "\n".join(f"{key:<20} {entry['title']}" for key, entry in presets().items())
    from nanolm import summary

    question = question_of(args)
    if args.json:
        import json

        return json.dumps(summary.document(question), ensure_ascii=False, indent=2, allow_nan=False)
    return summary.explanation(question) if args.explain else summary.text(question)


def budget(argv: list[str], prog: str) -> int:
    """`budget`: разобрать ключи, ответить, вернуть код выхода."""
    prepare_console()
    speak_russian()
    args = budget_parser(prog).parse_args(argv)
    try:
        answer = _answer(args)
    except ValueError as error:
        fail(prog, flagged(str(error)))
    return print_answer(answer, prog)


def print_answer(answer: str, prog: str) -> int:
    """Напечатать ответ; вернуть код выхода."""
    try:
        print(answer, flush=True)
    except OSError as error:
        import errno

        sys.stdout = None
        # Читатель (head, less) закрыл канал — это не ошибка; Windows называет это EINVAL.
        if error.errno not in (errno.EPIPE, errno.EINVAL):
            fail(prog, "ответ не записан: на устройстве вывода нет места или оно недоступно")
    return 0


def main() -> int:
    """`nanolm budget …`, `nanolm diff …`, `nanolm interview …` и `nanolm probe …`."""
    prepare_console()
    commands: dict[str, Callable[[list[str], str], int]] = {
        "budget": budget, "diff": _diff, "interview": _interview, "probe": probe,
    }  # fmt: skip
    name, rest = (sys.argv[1] if len(sys.argv) > 1 else ""), sys.argv[2:]
    if name in ("", "-h", "--help"):
        lines = (
            "budget     счета модели", "diff       разница двух счетов построчно",
            "interview  тренажёр «Собеседование»", "probe      измерения (нужен torch)",
        )  # fmt: skip
        usage = f"использование: nanolm {{{','.join(commands)}}} …\n\n  " + "\n  ".join(lines)
        return print_answer(usage, "nanolm")
    if name not in commands:
        fail("nanolm", f"{name}: нужно одно из: {', '.join(commands)}")
    return commands[name](rest, f"nanolm {name}")


def _interview(rest: list[str], prog: str) -> int:
    from nanolm.interview.terminal import main as interview

    return interview(rest, prog)


def _diff(rest: list[str], prog: str) -> int:
    from nanolm.diff_cli import main as diff

    return diff(rest, prog)


def probe(rest: list[str], prog: str) -> int:
    """`probe`: измерения; без torch — одна строка о том, чего не хватает."""
    try:
        from nanolm.probe_cli import main as measure
    except ModuleNotFoundError as error:
        fail(prog, f'не хватает пакета {error.name}: измерениям нужен torch, pip install ".[model]" в папке проекта')
    return measure(rest, prog)


# --- Язык и кодировка ---------------------------------------------------------------------------


def speak_russian() -> None:
    """Подменить перевод argparse своим словарём; незнакомая фраза остаётся как есть."""
    argparse._ = lambda text: _RUSSIAN.get(text, text)  # type: ignore[attr-defined]
    argparse.ngettext = lambda one, many, n: _RUSSIAN.get(one if n == 1 else many, one)  # type: ignore[attr-defined]


def prepare_console() -> None:
    """Научить потоки замене символов, которых нет в их кодировке."""
    for stream in (sys.stdout, sys.stderr):
        encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "")
        if encoding not in ("utf8", "utf16") and hasattr(stream, "reconfigure"):
            from nanolm import console

            console.install()
            stream.reconfigure(errors=console.HANDLER)
