// Разговор страницы с Python: один рабочий поток на страницу, запросы по очереди.
//
// Рабочий поток нельзя прервать: SharedArrayBuffer без особых заголовков сервера недоступен. Поэтому у запроса
// есть срок; если он вышел, поток уничтожается и тут же запускается новый.

// Срок для кода читателя: дольше него — бесконечный цикл. Своему коду на занятой машине нужно больше.
export const LIMIT_MS = 5000;
export const OURS_MS = 60_000;
// Запуск: после первого срока страница объясняет, чего ждёт, после второго — сдаётся.
const SLOW_MS = 20_000;
const START_MS = 300_000;
const WORDS = {
  loading: "Запускается Python…",
  slow: "Запускается Python… Дольше обычного: страница ждёт около 6 МБ с сервера.",
  ready: "",
  broken: "Python не запустился: ",
};

export class Stopped extends Error {}

// Причины от браузера и Pyodide — английские; читателю нужнее знать, что делать.
function explained(reason) {
  const text = String(reason).trim().split("\n").pop().slice(0, 160);
  if (/call stack|stack overflow|recursion/i.test(text)) return "вложенность слишком велика: стек браузера переполнен";
  return /[а-яё]/i.test(text) ? text : `файлы не дошли или испорчены, попробуйте ещё раз (${text})`;
}

export class Python {
  #worker = null;
  #ready = null;
  #queue = [];
  #current = null;
  #listeners = new Set();
  #widgets = new Set();

  constructor(config) {
    this.config = config;
  }

  // Слушатель получает подпись для страницы и состояние: "loading", "slow", "ready" или "broken".
  onState(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #tell(state, detail = "") {
    for (const listener of this.#listeners) listener(WORDS[state] + detail, state);
  }

  start() {
    if (this.#ready) return this.#ready;
    this.#tell("loading");
    const worker = new Worker(this.config.worker, { type: "module", name: "nanolm" });
    this.#worker = worker;
    this.#ready = new Promise((resolve, reject) => {
      const slow = setTimeout(() => this.#worker === worker && this.#tell("slow"), SLOW_MS);
      const last = setTimeout(() => fail(`он не загрузился за ${START_MS / 60_000} мин.`), START_MS);
      const settle = () => [slow, last].forEach(clearTimeout);
      const fail = (cause) => {
        settle();
        if (this.#worker !== worker) return;
        const reason = explained(cause);
        this.#drop();
        this.#tell("broken", reason);
        reject(new Error(WORDS.broken + reason));
      };
      let alive = false;
      worker.onerror = (event) => fail(event.message || "рабочий поток не запустился");
      worker.onmessage = ({ data }) => {
        if (data.broken !== undefined) {
          if (alive) this.#fatal(data.broken);
          else fail(data.broken);
        } else if (data.ready) {
          alive = true;
          settle();
          this.#tell("ready");
          resolve();
        } else this.#finish(data);
      };
    });
    // Отказ увидят те, кто ждёт запуска; остальным он не нужен.
    this.#ready.catch(() => {});
    worker.postMessage({ ...this.config, widgets: [...this.#widgets] });
    return this.#ready;
  }

  // Загрузить модуль части заранее: время импорта не должно входить в срок запроса.
  need(widget) {
    if (this.#widgets.has(widget)) return;
    this.#widgets.add(widget);
    if (this.#ready) this.call({ widget, state: {}, action: "warm" }, { limit: OURS_MS }).catch(() => {});
  }

  #drop() {
    this.#worker?.terminate();
    this.#worker = this.#ready = null;
  }

  // Запрос — объект или функция, которая соберёт его, когда дойдёт очередь: ответы перед ним могли изменить форму.
  // key — имя потока запросов, в котором важен только последний: прежний ждущий получает null.
  async call(request, { key = null, limit = LIMIT_MS } = {}) {
    return new Promise((resolve, reject) => {
      if (key) {
        for (const old of this.#queue.filter((item) => item.key === key)) old.resolve(null);
        this.#queue = this.#queue.filter((item) => item.key !== key);
      }
      this.#queue.push({ request, key, limit, resolve, reject });
      this.#next();
    });
  }

  async #next() {
    if (this.#current || !this.#queue.length) return;
    const item = (this.#current = this.#queue.shift());
    try {
      await this.start();
    } catch (error) {
      this.#current = null;
      item.reject(error);
      for (const other of this.#queue.splice(0)) other.reject(error);
      return;
    }
    if (this.#current !== item) return;
    item.timer = setTimeout(() => this.#expire(item), item.limit);
    const request = typeof item.request === "function" ? item.request() : item.request;
    this.#worker.postMessage({ request: JSON.stringify(request) });
  }

  #finish({ answer }) {
    const item = this.#current;
    if (!item) return;
    clearTimeout(item.timer);
    this.#current = null;
    try {
      const found = JSON.parse(answer);
      if (found === null || typeof found !== "object" || !Object.keys(found).length) throw new Error("пустой ответ");
      item.resolve(found);
    } catch {
      // Код читателя подменил то, чем Python отвечает: прежнему верить нельзя.
      this.#drop();
      item.reject(new Stopped("Код испортил Python на странице, он запущен заново. Проверьте ещё раз."));
      this.start();
    }
    setTimeout(() => this.#next()); // сначала ответ разберёт тот, кто его ждал: из него заполняется форма
  }

  // Запрос погубил Python: остальным нужен новый.
  #fatal(reason) {
    const text = explained(reason);
    this.stop(text[0].toUpperCase() + text.slice(1) + ". Python запущен заново.");
  }

  #expire(item) {
    if (this.#current !== item) return;
    this.stop(`Код работал дольше ${item.limit / 1000} с и остановлен. Чаще всего это цикл, который не кончается.`);
  }

  // Поднять чистый Python, не мешая чужому запросу: свой останавливается, а без запросов меняется сразу.
  renew(request) {
    if (this.#current && this.#current.request === request) this.stop();
    else if (!this.#current && this.#worker) {
      this.#drop();
      this.start();
    }
  }

  // Остановить то, что выполняется, и поднять новый поток.
  stop(reason = "Выполнение остановлено.") {
    const item = this.#current;
    if (!item) return;
    clearTimeout(item.timer);
    this.#current = null;
    this.#drop();
    item.reject(new Stopped(reason));
    this.start();
    this.#next();
  }
}
