"""Тренажёр в терминале: `nanolm interview` и `python -m nanolm.interview`.

Ответ пишут строкой; пустая строка открывает решение и переходит к следующей задаче, «?» даёт подсказку, «выход» или
конец ввода заканчивают. Ответы можно подать и каналом, по одному в строке: вывод тот же.
"""

from __future__ import annotations

import sys

from nanolm import cli
from nanolm.interview.judging import CORRECT, UNCLEAR, Verdict, judge
from nanolm.interview.kinds import KINDS, LAST_SEED, LEVELS, problem
from nanolm.interview.session import SECONDS, clock, session
from nanolm.spec import whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from nanolm.interview.problem import Problem

HINT = frozenset(("?", "подсказка", "hint"))
QUIT = frozenset(("выход", "хватит", "quit", "exit", "q"))
RULES = "Ответ — число с единицей. Пустая строка — решение и дальше, «?» — подсказка, «выход» — закончить."


def main(argv: list[str], prog: str) -> int:
    """Разобрать ключи и вести разговор, пока есть вопросы и ответы."""
    cli.speak_russian()
    args = _parser(prog).parse_args(argv)
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="replace")  # чужая кодировка ввода — не повод упасть
    try:
        seed = _any_seed() if args.seed is None else whole("seed", args.seed, minimum=0, limit=LAST_SEED)
        count = None if args.count is None else whole("count", args.count)
        return _session(seed, args.level) if args.session else _practice(seed, args, count)
    except ValueError as error:
        cli.fail(prog, cli.flagged(str(error)))
    except KeyboardInterrupt:
        print()
    except OSError:  # читатель закрыл канал
        sys.stdout = None
    return 0


def _parser(prog: str) -> cli.Parser:
    parser = cli.Parser(
        prog=prog,
        description="Тренажёр «Собеседование»: задачи о параметрах, памяти и времени; ответ проверяется сразу.",
        epilog=f"Пример: {prog} --level 2 --kind kv --seed 7",
        formatter_class=cli.Help,
        allow_abbrev=False,
    )
    levels = ", ".join(f"{level} — {title}" for level, title in LEVELS.items())
    parser.add_argument("--seed", type=cli.size, metavar="ЧИСЛО", help="зерно: то же зерно — те же задачи")
    parser.add_argument("--level", type=cli.size, choices=LEVELS, default=1, metavar="ЧИСЛО", help=f"уровень: {levels}")
    parser.add_argument(
        "--kind", choices=KINDS, metavar="ВИД", help=f"вид задач: {', '.join(KINDS)}; обычно вперемешку"
    )
    parser.add_argument("--count", type=cli.size, metavar="ЧИСЛО", help="сколько задач, обычно без конца")
    parser.add_argument("--session", action="store_true", help="вопрос собеседования на три минуты")
    return parser


def _any_seed() -> int:
    """Зерно, если его не назвали: его печатают, чтобы задачу можно было повторить."""
    import os

    return int.from_bytes(os.urandom(4), "big") % 10**6


# --- Разговор -----------------------------------------------------------------------------------


def _say(text: str = "", end: str = "\n") -> None:
    print(text, end=end, flush=True)


def _answers() -> Iterator[str]:
    """Строки ввода, пока они есть и пока не попросили закончить."""
    while True:
        _say("> ", end="")
        line = sys.stdin.readline() if sys.stdin is not None else ""
        if not line:
            _say()
            return
        if line.strip().casefold() in QUIT:
            return
        yield line.strip()


def _practice(seed: int, args: argparse.Namespace, count: int | None) -> int:
    """Задачи одна за другой."""
    _say(f"Зерно {seed}, уровень {args.level}. {RULES}")
    answers, right, asked = _answers(), 0, 0
    while count is None or asked < count:
        task = problem((seed + asked) % (LAST_SEED + 1), args.level, args.kind)
        _say(f"\nЗадача {asked + 1}. {task.question}")
        verdicts, over = _ask(task, answers)
        # Засчитывается первый прочитанный ответ: дальше уже подсказка. Задача, которую бросили, не ответив, не в счёт.
        judged = [one.state == CORRECT for one in verdicts if one.state != UNCLEAR]
        asked += bool(judged) or not over
        right += judged[:1] == [True]
        if over:
            break
    _say(f"\nВерно с первого раза: {right} из {asked}.")
    return 0


def _ask(task: Problem, answers: Iterator[str]) -> tuple[list[Verdict], bool]:
    """Спрашивать, пока не ответят верно или не сдадутся: приговоры и кончился ли ввод."""
    verdicts: list[Verdict] = []
    hints = iter(task.hints)
    for text in answers:
        if text.casefold() in HINT:
            _say(next(hints, "Подсказок больше нет; пустая строка откроет решение."))
            continue
        if text:
            verdicts.append(judge(task, text))
            _say(str(verdicts[-1]))
        if not text or verdicts[-1].state == CORRECT:
            _say(task.solution)
            return verdicts, False
    return verdicts, True


def _session(seed: int, level: int) -> int:
    """Четыре части на время. На каждую — один прочитанный ответ; решения показываются в конце."""
    import time

    asked = session(seed, level)
    _say(f"Зерно {seed}, уровень {level}. {asked.title}. На всё {clock(SECONDS)}, пустая строка — пропустить часть.")
    started, answers = time.monotonic(), _answers()
    verdicts: list[Verdict | None] = []
    for number, part in enumerate(asked.parts, 1):
        _say(f"\nЧасть {number}. {part.question}")
        verdicts.append(_once(part, answers))
    seconds = time.monotonic() - started
    for part in asked.parts:
        _say(f"\n{part.title}\n{part.solution}")
    _say("\n" + asked.summary(verdicts, seconds))
    return 0


def _once(part: Problem, answers: Iterator[str]) -> Verdict | None:
    """Первый ответ, который удалось прочитать."""
    for text in answers:
        if not text:
            return None
        verdict = judge(part, text)
        _say("Принято." if verdict.state != UNCLEAR else str(verdict))
        if verdict.state != UNCLEAR:
            return verdict
    return None
