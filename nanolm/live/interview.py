"""Тренажёр на странице: задача, поле ответа, приговор, подсказки, решение; и вопрос на три минуты.

Всё считает `nanolm.interview`, здесь только вид. Задачу целиком задаёт адрес: режим, уровень, вид и зерно; ответы и
счёт живут в форме. Действия: «judge» — проверить, «hint» — ещё подсказка, «next» — следующая задача. Без действия
страница просто показывает задачу: приговор пропадает, едва ответ начали править. Часы ведёт скрипт страницы, секунды
приходят полем `elapsed`.
"""

from __future__ import annotations

from html import escape

from nanolm.interview import KINDS, LEVELS, judge, problem, session
from nanolm.interview.judging import CORRECT, UNCLEAR
from nanolm.interview.kinds import LAST_SEED
from nanolm.interview.quantity import LONGEST
from nanolm.interview.session import SECONDS, clock
from nanolm.live import form as forms
from nanolm.spec import whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from nanolm.interview import Problem, Row, Session, Verdict

    State = dict[str, str]

NAME = "interview"
#: С этой задачи начинает страница: она короткая.
FIRST_SEED = "8"
MODES = {"practice": "задачи подряд", "session": "вопрос на три минуты"}
PARTS = (1, 2, 3, 4)
#: Поля, которых нет в адресе: ответы, сколько подсказок показано, счёт и к какой задаче всё это относится.
OWN = (*(f"answer{part}" for part in PARTS), "hints", "tried", "right", "asked", "elapsed", "of")


def _kinds() -> forms.Options:
    return {"": [("", "вперемешку"), *KINDS.items()]}


def _levels() -> forms.Options:
    return {"": [(str(level), f"{level}: {title}") for level, title in LEVELS.items()]}


FORM = forms.Form(
    NAME,
    (
        forms.Group(
            "Что спрашивать",
            (
                forms.Field("mode", "режим", "select", "practice", options=lambda: {"": list(MODES.items())}),
                forms.Field("level", "уровень", "select", "1", options=_levels),
                forms.Field("kind", "вид задач", "select", "", options=_kinds),
                forms.Field("seed", "зерно", default=FIRST_SEED, hint="То же зерно — та же задача."),
            ),
        ),
    ),
)


def default() -> State:
    """Первая задача: уровень 1, вид выбирает зерно."""
    state = {**FORM.default(), **dict.fromkeys(OWN, "")}
    return {**state, "of": Scene(state).key}


def form(state: State) -> str:
    """Выбор задачи; поля ответа рисует `page`: они стоят под своими задачами."""
    return FORM.html({**default(), **state})


# --- Ответ --------------------------------------------------------------------------------------


def answer(state: State, action: str | None = None) -> dict[str, Any]:
    """Задача, приговоры, подсказки и счёт."""
    # В адресе только вопрос: чужого счёта и чужих ответов в нём не бывает.
    state = _complete({name: state[name] for name in FORM.fields if name in state} if action == "load" else state)
    try:
        if action == "next":
            state["seed"] = str((_seed(state) + 1) % (LAST_SEED + 1))
        scene = Scene(state)
    except ValueError as error:
        refused = {"state": {name: state[name] for name in FORM.fields}} if action == "load" else {}
        return {"errors": {FORM.blame(str(error)): str(error)}, "query": FORM.query(state), **refused}
    given = state if action != "load" else {}
    changed = scene.refreshed(given)
    if action == "hint":
        changed["hints"] = str(min(_count(scene.state, "hints") + 1, len(scene.parts[0].hints)))
    scene.state |= changed
    verdicts = scene.judged() if action == "judge" else [None] * len(PARTS)
    if action == "judge":
        changed |= scene.counted(verdicts)
        scene.state |= changed
    found = {name: scene.state[name] for name in FORM.fields} if action in ("load", "next") else {}
    return {
        "errors": {},
        "query": _query(state),
        "state": {**found, **changed},
        "slots": scene.slots(verdicts, action == "judge"),
        "mode": state["mode"],
        "judged": action == "judge",
        "done": all(one is not None and one.state == CORRECT for one in verdicts[: len(scene.parts)]),
    }


def _complete(given: State) -> State:
    """Все поля; незнакомые забыты, недостающие — по умолчанию."""
    own = {name: given.get(name, "") for name in OWN}
    return {**FORM.complete(given), **own}


def _query(state: State) -> str:
    """Адрес задачи: зерно названо всегда, даже если оно первое."""
    query = FORM.query(state)
    return query if "seed=" in query else f"{query}&seed={_seed(state)}".lstrip("&")


def _seed(state: State) -> int:
    found = forms.whole_number(state, "seed")
    return whole("seed", int(FIRST_SEED) if found is None else found, minimum=0, limit=LAST_SEED)


def _count(state: State, name: str) -> int:
    """Наш же счётчик; испорченный чужими руками начинается с нуля."""
    text = state[name]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0


class Scene:
    """Задача или вопрос, который задаёт состояние формы.

    Ошибки: `ValueError` с именем поля.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.mode = forms.choice(state, "mode", MODES, "practice")
        level = int(forms.choice(state, "level", [str(one) for one in LEVELS], "1"))
        kind = forms.choice(state, "kind", KINDS, next(iter(KINDS))) if state["kind"] else None
        seed = _seed(state)
        self.asked: Session | None = session(seed, level) if self.mode == "session" else None
        self.parts: Sequence[Problem] = self.asked.parts if self.asked else (problem(seed, level, kind),)
        self.key = f"{self.mode}/{level}/{state['kind']}/{seed}"

    def refreshed(self, given: State) -> State:
        """Что стереть, если задача сменилась: ответы, подсказки, время. Счёт остаётся."""
        if given.get("of") == self.key:
            return {}
        kept = ("right", "asked")
        return {**{name: "" for name in OWN if name not in kept}, "of": self.key}

    def judged(self) -> list[Verdict | None]:
        """Приговор каждому ответу; пустой ответ части на время — не ответ."""
        found: list[Verdict | None] = []
        for part, task in zip(PARTS, self.parts, strict=False):
            text = self.state[f"answer{part}"]
            found.append(judge(task, text) if text.strip() or self.asked is None else None)
        return found

    def counted(self, verdicts: Sequence[Verdict | None]) -> State:
        """Счёт задач подряд: засчитывается первый прочитанный ответ."""
        first = verdicts[0]
        if self.asked is not None or self.state["tried"] or first is None or first.state == UNCLEAR:
            return {}
        right = _count(self.state, "right") + (first.state == CORRECT)
        return {"tried": "on", "right": str(right), "asked": str(_count(self.state, "asked") + 1)}

    # --- места страницы ---

    def slots(self, verdicts: Sequence[Verdict | None], judged: bool) -> dict[str, str]:
        """Все места; у задач подряд части со второй пусты."""
        found = {"intro": self._intro(), "score": self._score(verdicts, judged), "hints": self._hints()}
        for part in PARTS:
            task = self.parts[part - 1] if part <= len(self.parts) else None
            verdict = verdicts[part - 1] if task is not None else None
            # На время решение открывается после проверки, подряд — всегда, но сложенным.
            shown = task is not None and (judged or self.asked is None)
            found[f"question{part}"] = question(task, f"Часть {part}. " if self.asked else "") if task else ""
            found[f"verdict{part}"] = verdict_html(verdict) if verdict is not None else ""
            found[f"solution{part}"] = solution(task, f"{self.key}/{part}") if task and shown else ""
        return found

    def _intro(self) -> str:
        if self.asked is None:
            return ""
        return (
            f'<p class="nanolm-caption">{escape(self.asked.title)}</p><p>Четыре связанные части, на всё '
            f"{clock(SECONDS)}. Часы пошли. Проверяются все ответы сразу; пустое поле — часть пропущена.</p>"
        )

    def _score(self, verdicts: Sequence[Verdict | None], judged: bool) -> str:
        if self.asked is not None:
            if not judged:
                return ""
            lines = self.asked.summary(verdicts, _count(self.state, "elapsed") or None).splitlines()
            return f"<p><b>{escape(lines[0])}</b></p>" + "".join(f"<p>{escape(line)}</p>" for line in lines[1:])
        asked = _count(self.state, "asked")
        return f"<p>Верно с первого раза: {_count(self.state, 'right')} из {asked}.</p>" if asked else ""

    def _hints(self) -> str:
        shown = self.parts[0].hints[: _count(self.state, "hints")] if self.asked is None else ()
        return "<ol>" + "".join(f"<li>{escape(hint)}</li>" for hint in shown) + "</ol>" if shown else ""


# --- Вид ----------------------------------------------------------------------------------------


def letter(name: str) -> str:
    """Буква курса; у «Nпар» индекс."""
    return f"<var>{escape(name[:1])}</var>" + (f"<sub>{escape(name[1:])}</sub>" if len(name) > 1 else "")


def question(task: Problem, start: str = "") -> str:
    """Условие, таблица данных и что засчитывается."""
    body = "".join(
        f'<tr><td>{_symbol(name)}</td><th scope="row">{escape(title)}</th><td>{escape(value)}</td></tr>'
        for name, title, value in task.given
    )
    return (
        f'<p class="nanolm-caption">{escape(start + task.title)}</p><p>{escape(task.text)}</p>'
        f'<table class="nanolm-given"><tbody>{body}</tbody></table>'
        f'<p class="nanolm-hint">Допуск {escape(task.accuracy)}. Пример записи: {escape(task.example)}.</p>'
    )


def _symbol(name: str) -> str:
    return name if name == "MFU" else letter(name) if name else ""


_LOOK = {"correct": ("yes", "Верно"), "wrong": ("no", "Неверно"), "unclear": ("unclear", "Уточните")}


def verdict_html(verdict: Verdict) -> str:
    """Приговор: словом, а не только цветом."""
    look, word = _LOOK[verdict.state]
    rest = verdict.text.removeprefix(f"{word}: ")
    mark = "." if rest == verdict.text else ":"
    text = escape(f"{rest} {verdict.hint}".strip())
    return f'<div class="nanolm-verdict nanolm-{look}"><p><b>{word}{mark}</b> {text}</p></div>'


def solution(task: Problem, key: str) -> str:
    """Решение по строкам, сложенное."""
    lines = "".join(f"<li>{_row(row)}</li>" for row in task.rows)
    return (
        f'<details class="nanolm-row nanolm-solution" data-row="{escape(key)}"><summary>Решение</summary>'
        f'<ol class="nanolm-formulas">{lines}</ol>'
        f"<p>Ответ: <b>{escape(task.expected)}</b>. {escape(task.advice)}</p></details>"
    )


def _row(row: Row) -> str:
    letters = f"{row.letters} = {row.numbers}" if row.letters and row.letters != row.numbers else row.numbers
    return f"{escape(row.title)}: <code>{escape(letters)} = <b>{escape(row.result)}</b></code>"


def _answer_field(part: int, value: str, label: str) -> str:
    # Не inputmode="decimal": в ответе есть и единица, и «да».
    return (
        f'<div class="nanolm-field"><label for="interview-answer{part}">{label}</label><span class="nanolm-control">'
        f'<input type="text" autocomplete="off" spellcheck="false" autocapitalize="off" maxlength="{LONGEST}" '
        f'id="interview-answer{part}" name="answer{part}" aria-describedby="interview-verdict{part}" '
        f'value="{escape(value)}"></span></div>'
    )


def _part(part: int, state: State, slots: dict[str, str], hidden: bool) -> str:
    """Задача, поле ответа под ней, приговор и решение."""
    label = "Ответ" if part == 1 else f"Ответ на часть {part}"
    attributes = f' data-part="{part}"{" hidden" if hidden else ""}' if part > 1 else ""
    extra = _buttons(slots) if part == 1 else ""
    return (
        f'<div class="nanolm-task"{attributes}><div data-slot="question{part}">{slots[f"question{part}"]}</div>'
        f"{_answer_field(part, state[f'answer{part}'], label)}{extra}"
        f'<div id="interview-verdict{part}" data-slot="verdict{part}" aria-live="polite">'
        f"{slots[f'verdict{part}']}</div>"
        f'<div data-slot="solution{part}">{slots[f"solution{part}"]}</div></div>'
    )


def _buttons(slots: dict[str, str]) -> str:
    """Кнопки задач подряд: под первым ответом. На время их заменяют кнопки внизу."""
    return (
        '<div class="nanolm-buttons" data-for="practice"><button type="submit" data-action="judge">Проверить</button>'
        '<button type="button" data-action="hint">Подсказка</button>'
        '<button type="button" data-action="next">Следующая</button></div>'
        f'<div data-slot="hints" aria-live="polite">{slots["hints"]}</div>'
    )


def page(state: State) -> str:
    """Выбор, задача с полем ответа, остальные части (на время), итог."""
    state = _complete(state)
    slots, timed = answer(state)["slots"], state["mode"] == "session"
    parts = "".join(_part(part, state, slots, hidden=not timed) for part in PARTS)
    hidden = "".join(f'<input type="hidden" name="{name}" value="{escape(state[name])}">' for name in OWN[len(PARTS) :])
    return (
        f'<form class="nanolm-form nanolm-interview" data-submit="judge">{form(state)}{hidden}'
        f'<div data-slot="intro">{slots["intro"]}</div>'
        f'<p class="nanolm-clock" data-clock role="timer" hidden></p>{parts}'
        f'<div class="nanolm-buttons" data-for="session"{"" if timed else " hidden"}>'
        '<button type="submit" data-action="judge">Проверить всё</button>'
        '<button type="button" data-action="next">Другой вопрос</button></div>'
        f'<div data-slot="score" role="status">{slots["score"]}</div>'
        '<p class="nanolm-keys">Enter — проверить; после верного ответа Enter — дальше. '
        "N вне поля ответа или Alt+N — следующая.</p></form>"
    )
