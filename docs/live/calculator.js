// config.json с диска: файл читает браузер, в Python уходит его текст, наружу — ничего.

const LIMIT = 1024 * 1024;

// Текст файла или причина, по которой он не годится.
async function read(file) {
  if (file.size > LIMIT) return { problem: "Файл больше 1 МиБ: это не config.json." };
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return text.trim() ? { text } : { problem: "Файл пуст." };
  } catch (error) {
    if (error instanceof TypeError) return { problem: "Файл не в кодировке UTF-8." };
    return { problem: "Файл не читается." };
  }
}

export default function mount(root, widget) {
  const zone = root.querySelector("[data-drop]");
  const input = zone.querySelector("input[type=file]");
  const name = zone.querySelector("[data-drop-name]");
  const clear = zone.querySelector("[data-drop-clear]");
  const error = root.querySelector('[data-error="config"]');
  let depth = 0; // dragenter и dragleave приходят и от вложенных частей
  let chosen = ""; // имя файла, который сейчас в форме

  function say(text) {
    name.textContent = text;
    name.hidden = !text;
    clear.hidden = !text;
  }

  async function take(file) {
    const { text, problem } = await read(file);
    if (problem) {
      chosen = "";
      await widget.set({ config: "" });
      error.textContent = `${file.name}: ${problem}`;
      error.hidden = false;
      input.setAttribute("aria-invalid", "true");
      return;
    }
    chosen = file.name;
    await widget.set({ config: text });
  }

  function drop() {
    input.value = "";
    chosen = "";
    widget.set({ config: "" });
  }

  input.addEventListener("change", () => input.files.length && take(input.files[0]));
  if (input.files.length) take(input.files[0]); // выбрали раньше, чем загрузился этот скрипт
  clear.addEventListener("click", () => {
    drop();
    input.focus(); // кнопка исчезла, а фокус теряться не должен
  });
  // Выбрали модель из списка — значит, файл больше не нужен.
  root.querySelector('[name="preset"]').addEventListener("change", () => {
    if (widget.state().config) drop();
  });

  root.addEventListener("dragenter", (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    depth += 1;
    zone.classList.add("nanolm-over");
  });
  root.addEventListener("dragleave", () => {
    depth = Math.max(0, depth - 1);
    if (!depth) zone.classList.remove("nanolm-over");
  });
  root.addEventListener("dragover", (event) => {
    if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
  });
  root.addEventListener("drop", (event) => {
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    depth = 0;
    zone.classList.remove("nanolm-over");
    take(event.dataTransfer.files[0]);
  });

  root.addEventListener("nanolm:drop", (event) => event.detail.length && take(event.detail[0]));

  // Поле с ошибкой или со значением из ссылки не должно прятаться в свёрнутой группе.
  function reveal(names) {
    for (const field of names) {
      const group = root.querySelector(`[name="${CSS.escape(field)}"]`)?.closest("details.nanolm-group");
      if (group) group.open = true;
    }
  }

  const changed = () =>
    [...root.querySelectorAll("details.nanolm-group [name]")]
      .filter((field) => (field.type === "checkbox" ? field.checked : field.value !== (field.dataset.default ?? "")))
      .map((field) => field.name);

  // Сброс страницы убирает и файл; бледный текст пустых полей зависит от модели.
  widget.onAnswer((answer) => {
    if (!widget.state().config) {
      input.value = "";
      chosen = "";
    }
    const refused = Boolean(answer.errors?.config);
    say(!chosen ? "" : refused ? `Файл «${chosen}» не подошёл.` : `Считается модель из файла «${chosen}», а не из списка.`);
    reveal(Object.keys(answer.errors ?? {}));
    if (answer.state) reveal(changed());
    if (answer.errors?.config) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
    for (const [field, text] of Object.entries(answer.placeholders ?? {})) {
      root.querySelector(`input[name="${field}"]`)?.setAttribute("placeholder", text);
    }
  });
}
