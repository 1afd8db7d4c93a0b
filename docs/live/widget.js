// Калькулятор: форма, из неё — строки в Python, из ответа — куски страницы.

import { OURS_MS } from "./client.js";

function collect(form) {
  const state = {};
  for (const field of form.elements) {
    if (!field.name || field.type === "file") continue;
    if (field.type === "checkbox") state[field.name] = field.checked ? "on" : "";
    else if (field.type === "radio") {
      if (field.checked) state[field.name] = field.value;
    } else state[field.name] = field.value;
  }
  return state;
}

function fill(form, values) {
  for (const [name, value] of Object.entries(values)) {
    const field = form.elements.namedItem(name);
    if (!field) continue;
    if (field.type === "checkbox") field.checked = value === "on";
    else if (field.value !== value) field.value = value;
    // Из адреса приходит и то, чего в списке нет: другое имя модели или ошибка. Пустой список соврал бы о вопросе.
    if (field.tagName === "SELECT" && field.value !== value) {
      field.add(new Option(value, value));
      field.value = value;
    }
    showOutput(form, field);
  }
}

// Число рядом с ползунком; какими словами — скажет ответ, до него видно само значение.
function showOutput(form, field) {
  const output = field.id && form.querySelector(`output[for="${field.id}"]`);
  if (output && !output.dataset.slot) output.textContent = field.value;
}

function markErrors(root, form, errors) {
  for (const place of root.querySelectorAll("[data-error]")) {
    const text = errors[place.dataset.error] ?? "";
    place.textContent = text;
    place.hidden = !text;
  }
  for (const field of form.elements) {
    if (!field.name) continue;
    if (errors[field.name]) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
  }
}

// Заново рисуется только то, что изменилось: `shown` помнит, что где стоит.
function setSlots(root, slots, shown) {
  for (const [name, html] of Object.entries(slots)) {
    if (shown.get(name) === html) continue;
    shown.set(name, html);
    for (const place of root.querySelectorAll(`[data-slot="${name}"]`)) {
      // Раскрытые формулы остаются раскрытыми.
      const open = [...place.querySelectorAll("details[open][data-row]")].map((row) => row.dataset.row);
      place.innerHTML = html;
      // У ползунка вслух читается значение словами, а не номер деления.
      if (place.tagName === "OUTPUT") document.getElementById(place.htmlFor)?.setAttribute("aria-valuetext", place.textContent);
      for (const row of open) place.querySelector(`details[data-row="${CSS.escape(row)}"]`)?.setAttribute("open", "");
    }
  }
}

function download(name, text) {
  const type = name.endsWith(".json") ? "application/json" : "text/plain;charset=utf-8";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export function mountWidget(root, python) {
  const name = root.dataset.widget;
  const form = root.querySelector("form");
  const status = root.querySelector("[data-status]");
  const listeners = [];
  const shown = new Map();
  const edits = new Map(); // поле → номер его последней правки
  let edit = 0;
  let last = null;
  let latest = null; // обещание последнего ответа

  status.textContent = "";
  python.onState((text) => {
    status.textContent = text;
  });

  // `since` — сколько было правок, когда запрос ушёл: исправленное после него ответ не затирает, а учитывает.
  function show(answer, since) {
    if (answer === null) return answer;
    last = answer;
    if (answer.state) {
      const kept = Object.entries(answer.state).filter(([name]) => !(edits.get(name) > since));
      fill(form, Object.fromEntries(kept));
      if (kept.length < Object.keys(answer.state).length) send();
    }
    const errors = answer.errors ?? {};
    markErrors(root, form, errors);
    root.classList.toggle("nanolm-stale", Object.keys(errors).length > 0);
    setSlots(root, answer.slots ?? {}, shown);
    if (answer.query !== undefined && root.hasAttribute("data-address")) {
      history.replaceState(history.state, "", (answer.query ? "?" + answer.query : location.pathname) + location.hash);
    }
    root.dataset.answered = "1";
    root.classList.remove("nanolm-waiting");
    for (const listener of listeners) listener(answer);
    return answer;
  }

  // `given` — состояние из адреса; без него его даст форма, но тогда, когда до запроса дойдёт очередь.
  async function asked(action, given, key) {
    let since = edit;
    const request = () => {
      if (!given) since = edit;
      return { widget: name, state: given ?? widget.state(), action };
    };
    root.setAttribute("aria-busy", "true");
    try {
      return show(await python.call(request, { key, limit: OURS_MS }), since);
    } catch (error) {
      status.textContent = error.message;
      root.classList.add("nanolm-stale");
      return null;
    } finally {
      root.removeAttribute("aria-busy");
    }
  }

  // Действие пропускать нельзя, а из пересчётов важен последний.
  const send = (action = null) => (latest = asked(action, null, action ? null : name));
  // Адрес разбирает Python: он знает, какие поля есть и что в них можно писать.
  const load = (given) => (latest = asked("load", given, null));

  const widget = {
    state: () => collect(form),
    set(values) {
      fill(form, values);
      edit += 1;
      for (const field of Object.keys(values)) edits.set(field, edit);
      return send();
    },
    send,
    onAnswer: (listener) => listeners.push(listener),
    begin() {
      const given = Object.fromEntries(new URLSearchParams(location.search));
      return root.hasAttribute("data-address") && Object.keys(given).length ? load(given) : send();
    },
  };

  // Без https буфера обмена у страницы нет: текст показывается, чтобы его скопировали рукой.
  async function copied(text, words) {
    try {
      await navigator.clipboard.writeText(text);
      status.textContent = words;
    } catch {
      status.textContent = "Браузер не даёт скопировать, вот текст: " + text;
    }
  }

  form.addEventListener("input", (event) => {
    edits.set(event.target.name, ++edit);
    showOutput(form, event.target);
    if (event.target.type !== "file") send();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(event.submitter?.dataset.action ?? form.dataset.submit ?? null);
  });
  root.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const { action, download: file, copy } = button.dataset;
    const answer = action && button.type === "button" ? await send(action) : null;
    if (file || copy) {
      await latest; // копируется ответ на то, что в форме сейчас
      const text = file ? answer?.files?.[file] : last?.copies?.[copy];
      if (text === undefined) status.textContent = "Сначала исправьте отмеченные поля.";
      else if (file) download(file, text);
      else await copied(text, "Скопировано.");
    }
    if (button.hasAttribute("data-link")) {
      await latest;
      await copied(location.href, "Ссылка скопирована.");
    }
    if (button.hasAttribute("data-reset")) {
      history.replaceState(history.state, "", location.pathname + location.hash);
      load({});
    }
  });
  return widget;
}
