// Скомпилировать то, что Python на странице загружает при запуске.
//
//   node compile.mjs ПАПКА_PYODIDE ПАКЕТ.zip КУДА '{"absent": ["чего не брать", …], "encodings": ["какие оставить", …]}'
//
// Pyodide везёт стандартную библиотеку исходниками, и при каждом открытии страницы половина запуска уходит на их
// разбор. Байт-код годится только той версии Python, которая его сделала, поэтому компилирует сам Pyodide — здесь,
// при сборке. Компилируются модули, которые нужны живым частям; остальная библиотека остаётся исходниками: байт-код
// тяжелее, а вес страницы ограничен. Строк документации в байт-коде нет: они весили бы ещё четверть мегабайта.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [source, archive, target, choice] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(join(source, "pyodide.mjs")));
const python = await loadPyodide({ indexURL: source, packages: [] });
python.FS.writeFile("/library.zip", readFileSync(join(source, "python_stdlib.zip")));
python.FS.writeFile("/package.zip", readFileSync(archive));
python.globals.set("choice", choice);
try {
  python.runPython(`
import importlib, importlib._bootstrap_external as loader, importlib.util, json, sys, zipfile

zipfile.ZipFile("/package.zip").extractall("/package")
sys.path.insert(0, "/package")
from nanolm import live

for name in live.WIDGETS:
    importlib.import_module(live.WIDGETS[name])
    live.answer(json.dumps({"widget": name, "state": live.widget(name).default(), "action": None}))

LIBRARY = f"/lib/python{sys.version_info.major}{sys.version_info.minor}.zip/"
specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]
loaded = {spec.origin for spec in specs if spec}
choice = json.loads(choice)

def dropped(name):
    """Лишний ли это файл: загруженное при запуске не трогаем, что бы ни было в списке."""
    if LIBRARY + name in loaded:
        return False
    folder, _, rest = name.partition("/")
    if folder == "encodings":
        return rest.removesuffix(".py") not in choice["encodings"]
    return folder in choice["absent"] or name in choice["absent"]


def pack(source, target, place, wanted, optimize):
    """Переложить архив: нужные модули — байт-кодом, остальные — как были; даты одинаковы, байты тоже."""
    with zipfile.ZipFile(source) as given, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made:
        for name in given.namelist():
            if name.endswith("/") or source == "/library.zip" and dropped(name):
                continue
            data = given.read(name)
            if name.endswith(".py") and wanted(name):
                code = compile(data, place + name, "exec", dont_inherit=True, optimize=optimize)
                data = loader._code_to_hash_pyc(code, importlib.util.source_hash(data), False)
                name += "c"
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            made.writestr(entry, data, compresslevel=9)


pack("/library.zip", "/library-made.zip", LIBRARY, lambda name: LIBRARY + name in loaded, 2)
pack("/package.zip", "/package-made.zip", live.PLACE + "/", lambda name: True, 2)
`);
} catch (error) {
  // Без этого Node напечатал бы и строку Pyodide, на которой всё случилось, — мегабайт.
  console.error(String(error.message).trim());
  process.exit(1);
}
writeFileSync(join(target, "python_stdlib.zip"), python.FS.readFile("/library-made.zip"));
writeFileSync(join(target, "package.zip"), python.FS.readFile("/package-made.zip"));
