"""Уроки: чтение py:percent, ключ кеша, выполнение и понятные сообщения о неудачах.

Урок — один файл `.py`. Его читает jupytext, выполняет myst-nb в режиме `cache`, а здесь добавлено то,
чего у них нет: ключ, знающий о правках `nanolm`; теги ячеек курса; отказ собрать сайт, если урок не
выполнился или не выполнялся вовсе.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jupytext
import myst_nb.core.execute as myst_execute
from myst_nb.core.execute.cache import NotebookClientCache
from myst_nb.sphinx_ import NbMetadataCollector
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat.v4 import new_output
from sphinx.util import logging
from sphinx.util.console import strip_escape_sequences

from . import digest
from .errors import stop

if TYPE_CHECKING:
    from nbformat import NotebookNode
    from sphinx.application import Sphinx
    from sphinx.config import Config
    from sphinx.environment import BuildEnvironment

logger = logging.getLogger(__name__)

#: Урок — страница, исходник которой написан в py:percent.
SUFFIX = ".py"
#: Что каждый тег курса значит для myst-nb: добавочные теги и подпись свёрнутой ячейки.
TAGS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "exercise": (("skip-execution",), None),
    "solution": (("hide-cell",), "Показать решение"),
    "check": ((), None),
    "gpu": ((), None),
}
#: Все уроки — на Python; заголовку файла повторять это незачем.
PYTHON: dict[str, dict[str, str]] = {
    "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3", "file_extension": ".py"},
}
#: Только эти теги меняют ход выполнения; остальные — оформление, и кешу о них знать незачем.
EXECUTION_TAGS = {"skip-execution", "raises-exception"}
#: Под этим именем отпечаток урока лежит в данных myst-nb между сборками.
KEY = "nanolm"
MARKER = re.compile(r"^# %%(?!%)")
#: Ссылка прозы на посчитанное значение: {glue:text}`имя` или {glue:text}`имя:формат`.
GLUE = re.compile(r"\{glue:(?:text|md)\}`([^`:]+)(?::[^`]*)?`")


@dataclass
class Reading:
    """Страница, которую Sphinx читает сейчас: читалка myst-nb получает один текст, без имени файла."""

    docname: str = ""
    path: Path = Path()
    root: Path = Path()
    env: BuildEnvironment | None = None


current = Reading()


def remember_page(app: Sphinx, docname: str, _source: list[str]) -> None:
    """Запомнить страницу, текст которой сейчас получит читалка."""
    current.docname, current.env = docname, app.env
    current.path, current.root = Path(app.env.doc2path(docname)), Path(app.srcdir)


def read(text: str) -> NotebookNode:
    """Прочитать урок: блокнот с тегами курса, номерами строк и отпечатком зависимостей."""
    # Редактор мог оставить метку порядка байтов и чужие переводы строк.
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    notebook = jupytext.reads(text, fmt="py:percent")
    drop_header_cell(notebook)
    notebook.metadata.update(PYTHON)
    set_source_map(notebook, text)
    for cell in notebook.cells:
        apply_tags(cell)
    set_digest(notebook)
    return notebook


def encoding_complaint(path: Path) -> str | None:
    """Объяснить, почему файл нельзя прочитать как UTF-8; None — если можно."""
    data = path.read_bytes()
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return (
            f"файл {path.name} сохранён не в UTF-8: байт 0x{data[error.start]:02x} в строке {line}. "
            "Похоже на cp1251: пересохраните урок в UTF-8"
        )
    return None


def drop_header_cell(notebook: NotebookNode) -> None:
    """Убрать ячейку, в которую jupytext кладёт незнакомые ему ключи заголовка."""
    if notebook.cells and notebook.cells[0].cell_type == "raw" and notebook.cells[0].source.startswith("---"):
        del notebook.cells[0]


def set_source_map(notebook: NotebookNode, text: str) -> None:
    """Записать, с какой строки файла начинается каждая ячейка: тогда предупреждения указывают на неё."""
    lines = [number for number, line in enumerate(text.split("\n"), start=1) if MARKER.match(line)]
    if len(lines) == len(notebook.cells):
        notebook.metadata["source_map"] = lines


def apply_tags(cell: NotebookNode) -> None:
    """Перевести теги курса на язык myst-nb."""
    tags = list(cell.metadata.get("tags", []))
    for tag in [tag for tag in tags if tag in TAGS]:
        extra, prompt = TAGS[tag]
        tags += [name for name in extra if name not in tags]
        if prompt:
            cell.metadata.setdefault("mystnb", {}).setdefault("code_prompt_show", prompt)
            cell.metadata["mystnb"].setdefault("code_prompt_hide", "Скрыть решение")
    if "gpu" in tags and digest.device() == "cpu":
        tags += ["skip-execution", "gpu-skipped"]
    if tags:
        cell.metadata["tags"] = tags


def set_digest(notebook: NotebookNode) -> None:
    """Положить отпечаток зависимостей в первую ячейку кода: её метаданные входят в ключ кеша."""
    inputs = notebook.metadata.pop("nanolm", {}).get("inputs")
    inputs = [inputs] if isinstance(inputs, str) else inputs
    value = digest.lesson_digest(current.root, current.docname, inputs)
    first = next((cell for cell in notebook.cells if cell.cell_type == "code"), None)
    if first is not None:
        first.metadata["nanolm"] = {"digest": value}
    if current.env is not None:
        NbMetadataCollector.set_doc_data(current.env, current.docname, KEY, {"digest": value, "inputs": inputs})


# Выполнение


class LessonClient(NotebookClientCache):
    """Кеширующее выполнение, которому не важно оформление ячеек и которое называет виновную ячейку."""

    def start_client(self) -> None:
        """Выполнить урок или взять готовое; вернуть ячейкам полные метаданные и выводы."""
        original = self._notebook
        saved = [cell.metadata for cell in original.cells]
        for cell in original.cells:
            cell.metadata = execution_metadata(cell)
        try:
            super().start_client()
        except DeadKernelError as error:
            self.exec_metadata = failed(str(error))
        for cell, ready, metadata in zip(original.cells, self._notebook.cells, saved, strict=True):
            cell.metadata = metadata
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = ready.outputs, ready.execution_count
        self._notebook = original
        if not self.exec_metadata["succeeded"]:
            self.report()

    def report(self) -> None:
        """Сказать одной строкой, какая ячейка какого урока не выполнилась; подробности — в журнал."""
        index, problem = find_failure(self._notebook)
        cell = self._notebook.cells[index]
        first = next((line for line in cell.source.splitlines() if line.strip()), "")
        log = log_path(current)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(strip_escape_sequences(str(self.exec_metadata["traceback"])), encoding="utf-8")
        logger.error(
            "урок не выполнился: ячейка %d («%s»): %s. Подробности: %s",
            index + 1, first.strip(), problem, log.relative_to(current.root).as_posix(),
            location=(current.docname, self.cell_line(index)),
        )  # fmt: skip
        cell.outputs += missing_values(self._notebook)


def missing_values(notebook: NotebookNode) -> list[NotebookNode]:
    """Прочерки вместо чисел, до которых урок не дошёл: о них незачем предупреждать поодиночке."""
    wanted = {name for cell in notebook.cells for name in GLUE.findall(cell.source)}
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    wanted -= {output.get("metadata", {}).get("scrapbook", {}).get("name") for output in outputs}
    prefix = "application/papermill.record/"
    return [
        new_output("display_data", {prefix + "text/plain": "'—'"},
                   metadata={"scrapbook": {"name": name, "mime_prefix": prefix}})
        for name in sorted(wanted)
    ]  # fmt: skip


def execution_metadata(cell: NotebookNode) -> NotebookNode:
    """Метаданные ячейки без оформления: то, что меняет её выполнение."""
    kept = {key: value for key, value in cell.metadata.items() if key == "nanolm"}
    tags = [tag for tag in cell.metadata.get("tags", []) if tag in EXECUTION_TAGS]
    return type(cell.metadata)({**kept, **({"tags": tags} if tags else {})})


def failed(reason: str) -> dict[str, Any]:
    """Запись о неудачном выполнении для случаев, о которых myst-nb не знает."""
    return {
        "mtime": 0.0, "runtime": None, "method": "cache", "succeeded": False,
        "error": "DeadKernelError", "traceback": reason,
    }  # fmt: skip


def find_failure(notebook: NotebookNode) -> tuple[int, str]:
    """Номер ячейки, на которой урок остановился, и что с ней случилось."""
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", []):
                return index, f"{output.ename}: {first_line(output.evalue)}"
    for index, cell in enumerate(notebook.cells):
        if must_run(cell) and cell.execution_count is None:
            return index, f"ядро остановилось или ячейка не уложилась во время ({CellTimeoutError.__name__})"
    return 0, "неизвестная причина"


def first_line(text: str) -> str:
    """Первая строка сообщения об ошибке."""
    return (text.strip().splitlines() or ["без пояснения"])[0]


def must_run(cell: NotebookNode) -> bool:
    """Должна ли ячейка выполняться при сборке."""
    skipped = "skip-execution" in cell.metadata.get("tags", [])
    return cell.cell_type == "code" and bool(cell.source.strip()) and not skipped


def log_path(reading: Reading) -> Path:
    """Журнал неудачи: рядом со сборкой, а не внутри сайта."""
    return reading.root / "build" / "logs" / f"{reading.docname}.log"


# События сборки


def is_lesson(env: BuildEnvironment, docname: str) -> bool:
    """Урок ли эта страница."""
    return str(env.doc2path(docname)).endswith(SUFFIX)


def check_device(app: Sphinx, _config: Config) -> None:
    """Согласовать сборку с видеокартой: потребовать её, запретить или взять, если есть."""
    mode = os.environ.get("NANOLM_GPU", "auto")
    if mode not in ("auto", "require", "forbid"):
        stop(f"NANOLM_GPU = {mode!r}: допустимы auto, require и forbid")
    if mode == "forbid":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if mode == "require" and digest.device() == "cpu":
        stop("сборка просит видеокарту (--gpu), но torch не видит ни одной с CUDA")
    logger.info("Устройство уроков: %s", digest.device())


def check_encodings(_app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Остановиться до чтения, если урок сохранён не в UTF-8: Sphinx сказал бы об этом следом вызовов."""
    paths = [Path(env.doc2path(docname)) for docname in docnames if is_lesson(env, docname)]
    if complaints := [complaint for path in paths if (complaint := encoding_complaint(path))]:
        stop("; ".join(complaints))


def outdated_lessons(app: Sphinx, env: BuildEnvironment, *_changes: set[str]) -> list[str]:
    """Уроки, которые пора перечитать: изменились зависимости или прошлое выполнение не удалось."""
    stale = []
    for docname in env.all_docs:
        if docname not in env.found_docs or not is_lesson(env, docname):
            continue
        known = NbMetadataCollector.get_doc_data(env)[docname].get(KEY, {})
        fresh = digest.lesson_digest(Path(app.srcdir), docname, known.get("inputs"))
        if known.get("digest") != fresh or not succeeded(env, docname):
            stale.append(docname)
    return stale


def succeeded(env: BuildEnvironment, docname: str) -> bool:
    """Выполнился ли урок в последний раз."""
    data = NbMetadataCollector.get_exec_data(env, docname)
    return bool(data and data["succeeded"])


def check_executed(app: Sphinx, env: BuildEnvironment) -> None:
    """Не пропустить урок, который по любой причине вовсе не выполнялся."""
    for docname in env.found_docs:
        if is_lesson(env, docname) and NbMetadataCollector.get_exec_data(env, docname) is None:
            logger.error("урок не выполнялся: сайт без его чисел собирать нельзя", location=docname)


def fail_build(app: Sphinx, exception: Exception | None) -> None:
    """Завершить сборку с ошибкой, даже если Sphinx запущен без -W."""
    lessons = [docname for docname in app.env.found_docs if is_lesson(app.env, docname)]
    if exception is None and not all(succeeded(app.env, docname) for docname in lessons):
        app.statuscode = 1


def setup(app: Sphinx) -> None:
    """Подключить чтение и выполнение уроков."""
    # Точки расширения у myst-nb здесь нет: класс выполнения выбирается по этому имени.
    myst_execute.NotebookClientCache = LessonClient
    app.connect("config-inited", check_device)
    app.connect("env-get-outdated", outdated_lessons)
    app.connect("env-before-read-docs", check_encodings)
    app.connect("source-read", remember_page)
    app.connect("env-updated", check_executed)
    app.connect("build-finished", fail_build)
