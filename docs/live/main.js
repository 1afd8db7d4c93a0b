// Первое, что грузит страница с живыми частями: найти их и ждать. Остальное грузится, когда до одной дошло дело.
//
// Обычный скрипт, а не модуль: модуль с file:// браузер не запустит, а сказать, как открыть страницу, надо и там.

(() => {
  const base = document.currentScript.src.replace(/[^/]*$/, "");
  const files = __FILES__;
  const config = Object.fromEntries(Object.entries(files).map(([name, file]) => [name, base + file]));
  const STORE = "nanolm:";
  let app = null;

  // Неудачу не запоминать: сеть могла пропасть на минуту, и следующее обращение попробует снова.
  const load = () => (app ??= import(config.app).catch((error) => {
    app = null;
    throw error;
  }));

  function store(key) {
    try {
      return JSON.parse(localStorage.getItem(STORE + key) ?? "null");
    } catch {
      return null; // хранилище закрыто настройками браузера или в нём чужое
    }
  }

  // Ждать первого обращения; щелчок по кнопке повторить, когда она начнёт работать. Код упражнения стоит перед его
  // кнопками: редактор открывается и по щелчку в нём.
  function arm(root) {
    let mounted = null;
    const code = root.dataset.exercise ? root.previousElementSibling : null;
    const mount = () => {
      if (!mounted) {
        const status = root.querySelector("[data-status]");
        if (status) status.textContent = "Загружается…";
        mounted = load().then((module) => module.mount(root, config));
      }
      return mounted;
    };
    // Файл могут бросить раньше, чем часть проснулась: браузер ушёл бы со страницы открывать его.
    const drag = (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      if (event.type !== "drop") return;
      const files = [...event.dataTransfer.files];
      mount().then(() => root.dispatchEvent(new CustomEvent("nanolm:drop", { detail: files })), fail);
    };
    const drags = root.querySelector("[data-drop]") ? ["dragover", "drop"] : [];
    const disarm = () => {
      for (const name of drags) root.removeEventListener(name, drag);
      for (const name of ["pointerdown", "focusin", "input", "dragenter"]) root.removeEventListener(name, wake);
      code?.removeEventListener("click", wake);
      root.removeEventListener("click", hold, true);
      root.removeEventListener("submit", keep, true);
    };
    const fail = (error) => {
      mounted = null;
      const status = root.querySelector("[data-status]");
      if (status) status.textContent = "Живая часть не загрузилась, попробуйте ещё раз: " + error.message;
    };
    const wake = () => mount().then(disarm, fail);
    const keep = (event) => event.preventDefault();
    const hold = (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      mount().then(() => {
        disarm();
        button.click();
      }, fail);
    };
    for (const name of ["pointerdown", "focusin", "input", "dragenter"]) root.addEventListener(name, wake);
    code?.addEventListener("click", wake);
    for (const name of drags) root.addEventListener(name, drag);
    root.addEventListener("click", hold, true);
    root.addEventListener("submit", keep, true);
    return wake;
  }

  // Вместо заготовки показать то, что читатель написал в прошлый раз.
  function remind(root, saved) {
    root.classList.add(saved.solved ? "nanolm-solved" : "nanolm-begun");
    const code = root.previousElementSibling?.querySelector(".highlight pre");
    if (!code || typeof saved.code !== "string") return;
    root.dataset.stub = code.textContent;
    code.textContent = saved.code;
  }

  function progress(block) {
    const ids = block.dataset.exercises.split(" ");
    const done = ids.filter((id) => store("exercise:" + id)?.solved).length;
    block.querySelector("[data-progress]").textContent = `${done} из ${ids.length}`;
    const bar = block.querySelector("progress");
    bar.value = done;
    bar.max = ids.length;
    const saved = ids.some((id) => store("exercise:" + id));
    block.querySelector("[data-forget]").disabled = !saved;
  }

  // Что значит деление ползунка, напечатано заранее: ждать Python ради подписи незачем.
  function name(event) {
    const words = event.target.dataset?.words?.split("|");
    const output = words && document.querySelector(`output[for="${event.target.id}"]`);
    if (output) output.textContent = words[event.target.value - event.target.min];
  }

  function begin() {
    const roots = document.querySelectorAll("[data-widget], [data-exercise]");
    if (location.protocol === "file:") return;
    document.documentElement.classList.add("nanolm-served");
    document.addEventListener("input", name);
    for (const root of roots) {
      const wake = arm(root);
      const widget = root.dataset.widget;
      // Ссылкой поделились: состояние в адресе важнее напечатанного по умолчанию.
      if (widget && root.hasAttribute("data-address") && location.search.length > 1) {
        root.classList.add("nanolm-waiting");
        wake();
      }
      const saved = root.dataset.exercise && store("exercise:" + root.dataset.exercise);
      if (saved) remind(root, saved);
    }
    for (const block of document.querySelectorAll("[data-exercises]")) {
      progress(block);
      document.addEventListener("nanolm:progress", () => progress(block));
      block.querySelector("[data-forget]").addEventListener("click", () => {
        if (!confirm("Стереть тексты ваших решений этого урока из браузера?")) return;
        for (const id of block.dataset.exercises.split(" ")) localStorage.removeItem(STORE + "exercise:" + id);
        document.dispatchEvent(new CustomEvent("nanolm:forget"));
        progress(block);
        for (const root of roots) root.classList.remove("nanolm-solved", "nanolm-begun");
      });
    }
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
