// Тренажёр: часы вопроса на три минуты, клавиши и то, что видно в каждом режиме. Задачи и суд — в Python.

const LIMIT = 180;

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;

// Сколько прошло с начала вопроса; после проверки часы стоят.
class Timer {
  constructor(place) {
    this.place = place;
    this.started = null;
    this.spent = 0;
    this.ticking = null;
  }

  start() {
    this.stop();
    this.started = performance.now();
    this.ticking = setInterval(() => this.show(), 250);
    this.show();
  }

  seconds() {
    return this.ticking === null ? this.spent : Math.floor((performance.now() - this.started) / 1000);
  }

  stop() {
    if (this.ticking === null) return;
    this.spent = this.seconds();
    clearInterval(this.ticking);
    this.ticking = null;
  }

  show() {
    const left = LIMIT - this.seconds();
    this.place.textContent = left >= 0 ? `Осталось ${clock(left)}` : `Дольше трёх минут на ${clock(-left)}`;
    this.place.classList.toggle("nanolm-late", left < 0);
  }
}

export default function mount(root, widget) {
  const form = root.querySelector("form");
  const first = form.elements.namedItem("answer1");
  const place = root.querySelector("[data-clock]");
  const timer = new Timer(place);
  let mode = null;
  let done = false;
  let focus = false;

  function next() {
    focus = true;
    widget.send("next");
  }

  widget.onAnswer((answer) => {
    if (answer.mode === undefined) return; // ошибка: прежняя задача остаётся на месте
    const timed = answer.mode === "session";
    for (const part of root.querySelectorAll("[data-part]")) part.hidden = !timed;
    for (const buttons of root.querySelectorAll("[data-for]")) buttons.hidden = buttons.dataset.for !== answer.mode;
    form.elements.namedItem("kind").closest(".nanolm-field").hidden = timed; // части вопроса известны заранее
    place.hidden = !timed;
    if (!timed || answer.judged) timer.stop();
    else if (mode !== answer.mode || answer.state?.of) timer.start();
    mode = answer.mode;
    done = answer.done && !timed;
    if (focus) first.focus();
    focus = false;
  });

  // Секунды уходят вместе с ответами; слушаем раньше, чем виджет соберёт форму.
  root.addEventListener("submit", () => {
    form.elements.namedItem("elapsed").value = mode === "session" ? String(timer.seconds()) : "";
  }, true);

  root.addEventListener("click", (event) => {
    if (event.target.closest('button[data-action="next"]')) focus = true;
  }, true);

  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !done || event.target !== first) return;
    event.preventDefault();
    next();
  });

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, select, textarea, [contenteditable]");
    if (event.code !== "KeyN" || event.ctrlKey || event.metaKey || (typing && !event.altKey)) return;
    event.preventDefault();
    next();
  });
}
