// Рабочий поток: Pyodide и пакет nanolm. Первое сообщение — адреса файлов, остальные — запросы.
//
// Строка приходит, строка уходит: что с ней делать, знает nanolm.live.answer.

// То же место, что у nanolm.live.PLACE: пакет скомпилирован под ним.
const PLACE = "/lib/nanolm-site";

let answer = null;

async function start({ pyodide, archive, widgets }) {
  const [{ loadPyodide }, bytes] = await Promise.all([
    import(pyodide + "pyodide.mjs"),
    fetch(archive).then((response) => {
      if (!response.ok) throw new Error(`${archive}: ответ сервера ${response.status}`);
      return response.arrayBuffer();
    }),
  ]);
  const python = await loadPyodide({ indexURL: pyodide, packages: [] });
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
