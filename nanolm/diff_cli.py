"""Командная строка разницы: `nanolm diff КЛЮЧИ --vs КЛЮЧИ`.

Слева — вопрос целиком, справа — только то, что меняется: остальное берётся слева. Печатается, насколько
второй счёт больше первого и какие строки в этом виноваты, самые большие первыми.

    nanolm diff --preset llama-3-8b --B 1 --vs --B 8
    nanolm diff --preset llama-3-8b --of inference --vs --preset mistral-7b-v0.3
"""

from __future__ import annotations

from nanolm import cli
from nanolm.difference import Difference, diff

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from nanolm.summary import Question

#: Что сравнивать, по порядку вывода.
ACCOUNTS = ("parameters", "flops", "kv_cache", "inference", "training")

#: Ключи, которые задают модель целиком: названный справа отменяет названный слева.
_WHOLE_MODEL = ("--preset", "--config")


def main(argv: list[str], prog: str) -> int:
    """Разобрать обе стороны, сравнить, напечатать."""
    cli.speak_russian()
    parser = _parser(prog)
    if "-h" in argv or "--help" in argv:
        parser.parse_args(["--help"])
    if argv.count("--vs") != 1:
        cli.fail(prog, "нужен ровно один ключ --vs: слева от него первый вопрос, справа — что изменить")
    place = argv.index("--vs")
    left, right = argv[:place], argv[place + 1 :]
    try:
        first, second = parser.parse_args(left), parser.parse_args([*_inherited(left, right), *right])
        _refuse(parser, first, second)
        a, b = cli.question_of(first), cli.question_of(second)
        answer = _answer(a, b, second)
    except ValueError as error:
        cli.fail(prog, cli.flagged(str(error)))
    return cli.print_answer(answer, prog)


def _parser(prog: str) -> cli.Parser:
    parser = cli.budget_parser(prog)
    parser.description = "Почему второй счёт больше первого: построчно, самое большое первым."
    parser.epilog = f"Пример: {prog} --preset llama-3-8b --B 1 --vs --B 8"
    parser.usage = f"{prog} [КЛЮЧИ] --vs [КЛЮЧИ]"
    text = f"какой счёт сравнить: {', '.join(ACCOUNTS)} (по умолчанию все, что различаются)"
    parser.add_argument("--of", choices=ACCOUNTS, metavar="СЧЁТ", help=text)
    return parser


#: Ключи команды budget, на которые разница двух счетов ответить не может.
_FOREIGN = ("gpu", "gpus", "tokens", "price", "fit", "explain", "list_presets", "list_gpus")


def _refuse(parser: cli.Parser, *sides: argparse.Namespace) -> None:
    """Отказать ключам, которые иначе молча пропали бы."""
    for args in sides:
        for name in _FOREIGN:
            if getattr(args, name) != parser.get_default(name):
                raise ValueError(f"--{name.replace('_', '-')}: у разницы двух счетов такого ключа нет")
    if any(args.config == "-" for args in sides):
        raise ValueError("--config: стандартный ввод не прочесть дважды, сохраните config.json в файл")


def _inherited(left: list[str], right: list[str]) -> list[str]:
    """Ключи левой стороны без модели, если справа названа другая."""
    if not any(word.split("=", 1)[0] in _WHOLE_MODEL for word in right):
        return left
    kept: list[str] = []
    skip = False
    for word in left:
        if not skip and word.split("=", 1)[0] not in _WHOLE_MODEL:
            kept.append(word)
        skip = not skip and word in _WHOLE_MODEL
    return kept


def _answer(a: Question, b: Question, args: argparse.Namespace) -> str:
    both = diff(a, b)
    assert isinstance(both, dict)
    found = {name: both[name] for name in ACCOUNTS if args.of in (None, name)}
    if args.json:
        import json

        return json.dumps({name: one.to_dict() for name, one in found.items()}, ensure_ascii=False, indent=2)
    shown: list[Difference] = [one for one in found.values() if one.rows] or list(found.values())
    return "\n\n".join(map(str, shown))
