"""Выполнить урок внутри теста: сверху вниз, как это делает сборка или учащийся.

Сборка пропускает заготовки (`exercise`) и выполняет решения. Учащийся выполняет всё подряд, а на место
заготовки ставит свой текст. Здесь есть и то и другое, без ядра Jupyter: ячейки исполняются в одном словаре.
"""

from __future__ import annotations

import ast
import io
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jupytext

from nanolm import figures

if TYPE_CHECKING:
    from collections.abc import Mapping

LESSONS = Path(__file__).resolve().parent.parent / "lessons"


@dataclass
class Run:
    """Что осталось от урока: имена, переданные в текст числа, показанные значения, напечатанное."""

    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "lesson"})
    prose: dict[str, str] = field(default_factory=dict)
    shown: list[Any] = field(default_factory=list)
    printed: str = ""

    @property
    def page(self) -> str:
        """Всё, что читатель увидит как вывод ячеек."""
        return "\n".join([self.printed, *map(str, self.shown)])

    def table(self, caption: str) -> dict[str, tuple[str, ...]]:
        """Таблица, чья подпись начинается так: первая ячейка строки → остальные."""
        (found,) = [t for t in self.shown if isinstance(t, figures.Table) and t.caption.startswith(caption)]
        return {row[0]: row[1:] for row in found.rows}

    def figure(self, name: str) -> figures.Figure:
        """Рисунок по имени."""
        (found,) = [f for f in self.shown if isinstance(f, figures.Figure) and f.name == name]
        return found

    def checks(self) -> dict[str, Any]:
        """Итоги проверок: id упражнения → итог."""
        return {item.id: item for item in self.shown if type(item).__name__ == "Result"}


def cells(lesson: str) -> list[Any]:
    """Ячейки кода урока по порядку."""
    notebook = jupytext.reads((LESSONS / f"{lesson}.py").read_text(encoding="utf-8"), fmt="py:percent")
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tags(cell: Any) -> set[str]:
    """Теги ячейки."""
    return set(cell.metadata.get("tags", []))


def defined(source: str) -> set[str]:
    """Имена, которые ячейка заводит на верхнем уровне."""
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def execute(source: str, run: Run, filename: str) -> None:
    """Исполнить ячейку; последнее выражение, как в блокноте, становится её выводом."""
    tree = ast.parse(source, filename)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, filename, "exec"), run.names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), filename, "eval"), run.names)
        if value is not None:
            run.shown.append(value)


def run_lesson(lesson: str, *, learner: Mapping[str, str] | None = None, only: set[str] | None = None) -> Run:
    """Выполнить урок.

    `learner` is None — как сборка. Иначе — как учащийся: заготовки тоже исполняются, а та, что заводит имя из
    `learner`, заменена его текстом. `only` — выполнить лишь ячейки с этими тегами (и первую, с импортом).
    """
    run, output = Run(), io.StringIO()
    original = figures.prose
    figures.prose = lambda **values: run.prose.update(values)  # type: ignore[assignment]
    skipped = {"skip-execution", "gpu"} | ({"exercise"} if learner is None else set())
    try:
        with redirect_stdout(output):
            for index, cell in enumerate(cells(lesson)):
                chosen = only is None or index == 0 or tags(cell) & only
                if not chosen or tags(cell) & skipped:
                    continue
                source = cell.source
                if "exercise" in tags(cell):
                    source = next((text for name, text in (learner or {}).items() if name in defined(source)), source)
                execute(source, run, f"{lesson}[{index}]")
    finally:
        figures.prose = original
    run.printed = output.getvalue()
    return run


def attempt(lesson: str, name: str, text: str, exercise_id: str) -> Any:
    """Итог проверки, если учащийся вписал `text` вместо заготовки имени `name`; решение стоит ниже и не мешает."""
    exercise_cells = {"exercise", "solution", "check"}
    return run_lesson(lesson, learner={name: text}, only=exercise_cells).checks()[exercise_id]
