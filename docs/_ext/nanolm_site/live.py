"""Живые части страниц: калькуляторы и упражнения, которые работают в браузере.

Считает в странице тот же пакет `nanolm`: сборка кладёт его чистые модули в архив, рядом — Pyodide и скрипты,
собранные esbuild. Модули уже скомпилированы (docs/live/compile.mjs): иначе запуск был бы втрое дольше. Имена файлов
содержат отпечаток, поэтому браузер может хранить их сколько угодно; постоянно только имя первого скрипта,
`live/main.js`. Он весит килобайт, остальное грузится, когда читатель дошёл до дела.

Калькулятор ставит директива::

    ```{live} calculator
    ```

Результат для умолчаний печатает сборка, поэтому страница верна без JavaScript, на бумаге и из файла.
Упражнением становится ячейка `exercise`, за которой идёт проверка вида `check("id", имя)`.
"""

from __future__ import annotations

import ast
import hashlib
import html
import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

from . import digest, lessons, pages, tables
from .errors import stop

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

#: Что из пакета pyodide нужно странице; остальное — карты исходников и чужие консоли.
PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm")
#: Что из компиляции: стандартная библиотека и пакет.
LIBRARY, PACKAGE = "python_stdlib.zip", "package.zip"
#: Чего из стандартной библиотеки странице не везти: сеть, процессы, почта, тесты и запасные версии того, что написано
#: на C. В рабочем потоке браузера они не действуют или не нужны, а весят полмегабайта.
ABSENT = (
    "_pydatetime.py", "_pydecimal.py", "_pyio.py", "_pyrepl", "ctypes", "doctest.py", "email", "ftplib.py", "http",
    "imaplib.py", "mailbox.py", "multiprocessing", "pdb.py", "pickletools.py", "poplib.py", "smtplib.py",
    "socketserver.py", "tarfile.py", "unittest", "wsgiref", "xml", "xmlrpc",
)  # fmt: skip
#: Какие кодировки оставить: Юникод и русские.
ENCODINGS = (
    "__init__", "aliases", "ascii", "charmap", "cp437", "cp866", "cp1251", "cp1252", "idna", "iso8859_5", "koi8_r",
    "latin_1", "mac_cyrillic", "punycode", "raw_unicode_escape", "unicode_escape", "utf_16", "utf_16_be", "utf_16_le",
    "utf_32", "utf_32_be", "utf_32_le", "utf_8", "utf_8_sig",
)  # fmt: skip
#: С этих модулей страница начинает; остальное они загрузят сами. Код учащегося может звать и счета.
ROOTS = ("nanolm.live", "nanolm.budget", "nanolm.exercises")
#: Какие части страницы держат своё состояние в её адресе: их страница посвящена им одним.
ADDRESSED = ("calculator", "interview")
CHECK = re.compile(r'^check\("([^"]+)", (\w+)\)\s*$')
NOTE = (
    '<p class="nanolm-live-note">{what}, если открыть сайт с сервера: <code>nox -s serve</code>. Нужен JavaScript.</p>'
)


# --- Файлы --------------------------------------------------------------------------------------


def imports(path: Path, package: str) -> tuple[set[str], set[str]]:
    """Полные имена модулей, которые файл загружает сразу и которые — по надобности, внутри функций."""
    at_once, later = set(), set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for statement in tree.body:
        if isinstance(statement, ast.If) and getattr(statement.test, "id", "") == "TYPE_CHECKING":
            continue
        for node in ast.walk(statement):
            found = later if node is not statement else at_once
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join(filter(None, [*parts, node.module]))
                # Имя после import может быть и модулем: `from nanolm import units`.
                found.update({base, *(f"{base}.{alias.name}" for alias in node.names)})
    return at_once, later


def pure_modules(root: Path) -> list[Path]:
    """Модули `nanolm`, до которых можно дойти от живых частей, не встретив чужой библиотеки."""
    paths = {module_name(root, path): path for path in digest.files(root, ("nanolm/**/*.py",))}
    needs = {name: imports(path, package_of(name, path)) for name, path in paths.items()}
    heavy = {name for name, (at_once, _) in needs.items() if any(foreign(word) for word in at_once)}
    while grown := {name for name in needs.keys() - heavy if needs[name][0] & heavy}:
        heavy |= grown
    reached, ahead = set(), {name for name in paths if name.startswith(ROOTS)}
    while ahead:
        name = ahead.pop()
        reached.add(name)
        wanted = {word for group in needs[name] for word in group} | {name.rpartition(".")[0]}
        ahead |= (wanted & paths.keys()) - heavy - reached
    return sorted(paths[name] for name in reached)


def module_name(root: Path, path: Path) -> str:
    """`nanolm/live/kv.py` — это `nanolm.live.kv`."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(name: str, path: Path) -> str:
    """Пакет, от которого отсчитываются относительные импорты модуля."""
    return name if path.name == "__init__.py" else name.rpartition(".")[0]


def foreign(word: str) -> bool:
    """Модуль ни наш, ни из стандартной библиотеки."""
    top = word.partition(".")[0]
    return top not in sys.stdlib_module_names and top != "nanolm"


def zipped(files: dict[str, bytes]) -> bytes:
    """Архив: одинаковому содержимому — одинаковые байты."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as bundle:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            bundle.writestr(entry, data, compresslevel=9)
    return packed.getvalue()


def archive(root: Path) -> bytes:
    """Архив чистых модулей пакета и его данных."""
    data = [path for path in digest.files(root, ("nanolm/data/**/*",)) if path.suffix == ".toml"]
    return zipped({path.relative_to(root).as_posix(): path.read_bytes() for path in [*pure_modules(root), *data]})


def short_hash(*parts: bytes) -> str:
    """Отпечаток для имени файла."""
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:10]


def npm(root: Path, name: str) -> Path:
    """Папка пакета npm."""
    path = root / "node_modules" / name
    if not path.is_dir():
        stop(f"нет node_modules/{name}: соберите сайт командой nox -s docs или выполните npm ci")
    return path


def write_files(app: Sphinx, _config: Config) -> None:
    """Собрать папку `live`: Pyodide, архив пакета и скрипты."""
    root, target = Path(app.srcdir), pages.generated_static(app) / "live"
    shutil.rmtree(target, ignore_errors=True)
    shutil.rmtree(Path(app.outdir) / "_static" / "live", ignore_errors=True)  # файлы с прежними отпечатками
    source = npm(root, "pyodide")
    made = compiled(root, source)
    package = f"nanolm-{short_hash((made / PACKAGE).read_bytes())}.zip"
    lock = json.loads((source / "pyodide-lock.json").read_text(encoding="utf-8"))
    files = {
        **{name: (source / name).read_bytes() for name in PYODIDE},
        "pyodide-lock.json": json.dumps({**lock, "packages": {}}).encode(),  # самих пакетов здесь нет
        LIBRARY: (made / LIBRARY).read_bytes(),
    }
    version = json.loads((source / "package.json").read_text(encoding="utf-8"))["version"]
    python = f"pyodide-{version}-{short_hash(*files.values())}"
    (target / python).mkdir(parents=True)
    for name, data in files.items():
        (target / python / name).write_bytes(data)
    shutil.copyfile(made / PACKAGE, target / package)
    bundle(root, target, {"pyodide": python + "/", "archive": package})


def compiled(root: Path, source: Path) -> Path:
    """Папка со скомпилированными библиотекой и пакетом; готовая берётся из прошлой сборки."""
    packed, script = archive(root), root / "docs" / "live" / "compile.mjs"
    choice = json.dumps({"absent": ABSENT, "encodings": ENCODINGS})
    manifest = (source / "package.json").read_bytes()
    shelf = root / "build" / "live"
    ready = shelf / short_hash(packed, script.read_bytes(), choice.encode(), manifest)
    if not ready.is_dir():
        shutil.rmtree(shelf, ignore_errors=True)
        draft = shelf / "draft"
        draft.mkdir(parents=True)
        (draft / "source.zip").write_bytes(packed)
        run_node(script, f"{source}/", str(draft / "source.zip"), str(draft), choice)
        draft.rename(ready)
    return ready


def bundle(root: Path, target: Path, known: dict[str, str]) -> None:
    """Собрать скрипты esbuild."""
    npm(root, "esbuild")
    run_node(root / "docs" / "live" / "build.mjs", str(target), json.dumps(known))


def run_node(script: Path, *words: str) -> None:
    """Выполнить скрипт сборки; неудачу назвать и остановиться."""
    node = shutil.which("node")
    if node is None:
        stop("нет node: соберите сайт командой nox -s docs, она ставит Node в своё окружение")
    done = subprocess.run([node, str(script), *words], capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        stop(f"{script.name}: живые страницы не собрались: " + done.stderr.strip()[-2000:])


# --- Страницы -----------------------------------------------------------------------------------


class LiveNode(nodes.General, nodes.Element):
    """Живая часть: готовая разметка, которая на странице ждёт скрипта."""


class Live(SphinxDirective):
    """Калькулятор: форма и ответ для умолчаний."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Напечатать часть страницы тем же кодом, который ответит в браузере."""
        from nanolm import live

        name = self.arguments[0]
        for path in digest.files(Path(self.env.srcdir), ("nanolm/**/*.py", "nanolm/data/**/*")):
            self.env.note_dependency(str(path))
        try:
            part = live.widget(name)
        except ValueError as error:
            raise self.error(str(error)) from error
        return [LiveNode(markup=widget_markup(name, part))]


def widget_markup(name: str, part: Any) -> str:
    """Разметка калькулятора с результатом умолчаний."""
    state = part.default()
    inner = part.page(state) if hasattr(part, "page") else plain_page(part, state)
    address = " data-address" if name in ADDRESSED else ""
    return (
        f'<div class="nanolm-live" data-widget="{name}"{address}>{NOTE.format(what="Числа можно менять прямо здесь")}'
        f'{inner}<p class="nanolm-status" data-status role="status"></p></div>'
    )


def plain_page(part: Any, state: dict[str, str]) -> str:
    """Вид по умолчанию: форма, под ней ответы по порядку."""
    slots = part.answer(state)["slots"]
    places = "".join(f'<div data-slot="{name}">{markup}</div>' for name, markup in slots.items())
    return f'<form class="nanolm-form">{part.form(state)}</form>{places}'


class Licences(SphinxDirective):
    """Пакеты npm, из которых собран сайт: версия, лицензия, входит ли пакет в сайт."""

    def run(self) -> list[nodes.Node]:
        """Прочитать package-lock.json; сборки esbuild под каждую систему — один пакет."""
        lock = Path(self.env.srcdir) / "package-lock.json"
        self.env.note_dependency(str(lock))
        packages = json.loads(lock.read_text(encoding="utf-8"))["packages"]
        rows = [
            (path.removeprefix("node_modules/"), found["version"], found.get("license", "—"), place(found))
            for path, found in packages.items()
            if path and not path.startswith("node_modules/@esbuild/")
        ]
        return [tables.table(("Пакет", "Версия", "Лицензия", "Где"), rows)]


def place(package: dict[str, Any]) -> str:
    """Отдаётся ли пакет читателю."""
    return "для сборки и проверок" if package.get("dev") else "для сайта"


BUTTONS = (
    ("run", "Запустить", "Ctrl+Enter"),
    ("check", "Проверить", "Ctrl+Shift+Enter"),
    ("hint", "Подсказка", ""),
    ("reset", "Сбросить", ""),
)


def exercise_markup(id_: str, name: str) -> str:
    """Кнопки и место итога под заготовкой."""
    buttons = "".join(
        f'<button type="button" data-do="{action}"{f" title={key}" if key else ""}>{title}</button>'
        for action, title, key in BUTTONS
    )
    return (
        f'<div class="nanolm-live nanolm-exercise" data-exercise="{html.escape(id_)}" data-name="{name}">'
        f"{NOTE.format(what='Решать и проверять можно прямо здесь')}"
        f'<div class="nanolm-buttons" role="group" aria-label="Упражнение {html.escape(id_)}">{buttons}</div>'
        '<p class="nanolm-keys">Tab — отступ; Esc, затем Tab — выйти из редактора; Ctrl+Enter — запустить, '
        "Ctrl+Shift+Enter — проверить.</p>"
        '<p class="nanolm-status" data-status role="status"></p><div data-output aria-live="polite"></div></div>'
    )


class LiveExercises(SphinxPostTransform):
    """Поставить кнопки под заготовками, у которых проверка — вызов check."""

    default_priority = 5  # до того, как myst-nb выберет вид вывода и тегов станет не видно
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Связать каждую заготовку с её проверкой."""
        found, stub = [], None
        for cell in self.document.findall(nodes.container):
            tags = cell.get("cell_metadata", {}).get("tags", []) if cell.get("nb_element") == "cell_code" else []
            if "exercise" in tags:
                stub = cell
            elif "check" in tags and stub is not None:
                if asked := CHECK.match(cell_source(cell)):
                    found.append((stub, *asked.groups()))
                stub = None
        for cell, id_, name in found:
            place = cell.parent.index(cell) + 1
            cell.parent.insert(place, LiveNode(markup=exercise_markup(id_, name)))
        if found:
            self.document["nanolm_exercises"] = [id_ for _, id_, _ in found]


def cell_source(cell: nodes.container) -> str:
    """Код ячейки: первый блок кода в её входе."""
    block = next(cell.findall(nodes.literal_block), None)
    return "" if block is None else block.astext()


def visit_live(translator: Any, node: LiveNode) -> None:
    """Вставить готовую разметку."""
    translator.body.append(node["markup"])
    raise nodes.SkipNode


def skip(_translator: Any, _node: LiveNode) -> None:
    """В других видах сборки живых частей нет."""
    raise nodes.SkipNode


PROGRESS = """
<div class="nanolm-progress no-search" data-exercises="{ids}">
<label>Решено упражнений: <span data-progress>0 из {count}</span> <progress max="{count}" value="0"></progress></label>
<button type="button" data-forget disabled>Стереть мои решения</button>
</div>
"""


def add_script(app: Sphinx, name: str, _template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Подключить первый скрипт там, где есть живые части, и полосу решённых упражнений в уроках."""
    if doctree is None or next(doctree.findall(LiveNode), None) is None:
        return
    app.add_js_file("live/main.js", loading_method="defer")
    app.add_css_file("nanolm-live.css")
    ids = doctree.get("nanolm_exercises")
    if ids and lessons.is_lesson(app.env, name):
        context["body"] = context["body"].replace(
            "</h1>", "</h1>" + PROGRESS.format(ids=" ".join(ids), count=len(ids)), 1
        )


def setup(app: Sphinx) -> None:
    """Подключить живые части."""
    app.add_directive("live", Live)
    app.add_directive("npm-licences", Licences)
    app.add_node(LiveNode, html=(visit_live, None), latex=(skip, None), text=(skip, None), man=(skip, None))
    app.add_post_transform(LiveExercises)
    app.connect("config-inited", write_files)
    app.connect("html-page-context", add_script)
