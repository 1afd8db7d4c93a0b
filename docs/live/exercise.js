// Живое упражнение: заготовка превращается в редактор, ответ проверяет nanolm.exercises.

import { openEditor } from "./editor.js";

const STORE = "nanolm:exercise:";

function read(id) {
  try {
    return JSON.parse(localStorage.getItem(STORE + id) ?? "null") ?? {};
  } catch {
    return {};
  }
}

function write(id, value) {
  try {
    if (value) localStorage.setItem(STORE + id, JSON.stringify(value));
    else localStorage.removeItem(STORE + id);
  } catch {
    // Хранилище закрыто или полно: упражнение работает, но текст доживёт только до закрытия страницы.
  }
  document.dispatchEvent(new CustomEvent("nanolm:progress"));
}

const BUSY_WORDS = { run: "Выполняется…", check: "Проверяется…", hint: "" };

export function mountExercise(root, python) {
  const id = root.dataset.exercise;
  const cell = root.previousElementSibling;
  const block = cell.querySelector(".highlight");
  // Показанный код может быть уже прошлым решением, тогда заготовка отложена.
  const stub = (root.dataset.stub ?? block.querySelector("pre").textContent).replace(/\n$/, "");
  const output = root.querySelector("[data-output]");
  const status = root.querySelector("[data-status]");
  const buttons = [...root.querySelectorAll("button[data-do]")];
  const saved = read(id);
  const text = typeof saved.code === "string" ? saved.code : stub; // в хранилище может лежать что угодно
  let hints = 0;
  let mine = null;
  let turn = 0; // «Сбросить» начинает новый: ответ, которого ещё ждут, больше не нужен

  // Урок мог быть открыт и в другой вкладке: решённое там не должно пропасть.
  function keep(changes) {
    const record = { ...read(id), ...changes };
    write(id, record.code === stub && !record.solved ? null : record);
    root.classList.toggle("nanolm-solved", Boolean(record.solved));
  }

  const editor = openEditor(block.parentElement, text, `Ваш код, упражнение ${id}`, {
    run: () => act("run"),
    check: () => act("check"),
    change: (code) => keep({ code }),
  });
  block.remove();
  status.textContent = "";
  let starting = false;
  python.onState((text, state) => {
    // Готовность стирает только слова о запуске: за время него могли начать проверку.
    if (state !== "ready" || starting) status.textContent = text;
    starting = state === "loading" || state === "slow";
  });
  python.need("lesson");
  python.start().catch(() => {});

  async function act(action) {
    if (action === "reset") return reset();
    for (const button of buttons) button.disabled = button.dataset.do !== "reset";
    const begun = turn;
    if (status.textContent === "") status.textContent = BUSY_WORDS[action];
    try {
      const state = { exercise: id, name: root.dataset.name, code: editor.code(), shown: String(hints) };
      mine = { widget: "lesson", state, action };
      const answer = await python.call(mine);
      if (begun !== turn) return undefined;
      status.textContent = "";
      show(answer);
    } catch (error) {
      if (begun !== turn) return undefined;
      status.textContent = "";
      output.innerHTML = "";
      output.append(failure(error.message));
    } finally {
      if (begun === turn) free();
    }
    return undefined;
  }

  function show(answer) {
    if (answer.errors) return output.replaceChildren(failure(Object.values(answer.errors).join(" ")));
    output.innerHTML = answer.html;
    if (answer.line) editor.mark(answer.line);
    if (answer.hints !== undefined) hints = answer.hints;
    if (answer.status === "correct") keep({ code: editor.code(), solved: true });
    return undefined;
  }

  function failure(text) {
    const box = document.createElement("div");
    box.className = "nanolm-check nanolm-check-error";
    box.textContent = text;
    return box;
  }

  // «Сбросить» — это и новый Python: код читателя мог испортить прежний.
  function reset() {
    python.renew(mine);
    forget();
    root.classList.remove("nanolm-solved", "nanolm-begun");
  }

  function free() {
    mine = null;
    for (const button of buttons) button.disabled = false;
  }

  function forget() {
    turn += 1;
    free();
    if (!starting) status.textContent = "";
    editor.set(stub);
    hints = 0;
    write(id, null);
    output.innerHTML = "";
  }

  root.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-do]");
    if (button) act(button.dataset.do);
  });
  document.addEventListener("nanolm:forget", forget);
}
