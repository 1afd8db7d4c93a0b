// Рабочий поток: Pyodide и пакет nanolm. Первое сообщение — адреса файлов, остальные — запросы.
//
// Строка приходит, строка уходит: что с ней делать, знает nanolm.live.answer.

// То же место, что у nanolm.live.PLACE: пакет скомпилирован под ним.
const PLACE = "/lib/nanolm-site";

let answer = null;

function checked(response) {
  if (!response.ok) throw new Error(`${response.url}: ответ сервера ${response.status}`);
  return response;
}

// Pyodide, которому не досталось его wasm, пишет об этом в консоль и молчит вечно: отказ ловится на пути к нему.
function wasmFailure() {
  const compile = WebAssembly.instantiateStreaming;
  return new Promise((_, reject) => {
    WebAssembly.instantiateStreaming = async (source, imports) => {
      try {
        return await compile.call(WebAssembly, checked(await source), imports);
      } catch (error) {
        reject(error);
        throw error;
      }
    };
  });
}

async function start({ pyodide, archive, widgets }) {
  const [{ loadPyodide }, bytes] = await Promise.all([
    import(pyodide + "pyodide.mjs"),
    fetch(archive).then((response) => checked(response).arrayBuffer()),
  ]);
  const python = await Promise.race([wasmFailure(), loadPyodide({ indexURL: pyodide, packages: [] })]);
  python.unpackArchive(bytes, "zip", { extractDir: PLACE });
  python.runPython(`import sys; sys.path.insert(0, "${PLACE}")`);
  answer = python.pyimport("nanolm.live").answer;
  for (const widget of widgets) answer(JSON.stringify({ widget, state: {}, action: "warm" }));
}

onmessage = async ({ data }) => {
  try {
    if (data.request === undefined) {
      await start(data);
      postMessage({ ready: true });
    } else postMessage({ answer: answer(data.request) });
  } catch (error) {
    // Сюда попадает только то, после чего Python уже не поднять: переполнен стек или кончилась память.
    postMessage({ broken: String(error?.message ?? error).slice(0, 500) });
  }
};
