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
      const fail = (reason) => {
        settle();
        if (this.#worker !== worker) return;
        this.#drop();
        this.#tell("broken", reason);
        reject(new Error(WORDS.broken + reason));
      };
      worker.onerror = (event) => fail(event.message || "рабочий поток не запустился");
      worker.onmessage = ({ data }) => {
        if (data.broken !== undefined) {
          this.#fatal(data.broken);
          fail(data.broken);
        } else if (data.ready) {
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
    this.#worker.postMessage({ request: JSON.stringify(item.request) });
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
    this.#next();
  }

  #fatal(reason) {
    const item = this.#current;
    if (!item?.timer) return;
    clearTimeout(item.timer);
    this.#current = null;
    item.reject(new Stopped(reason));
    queueMicrotask(() => this.#next());
  }

  #expire(item) {
    if (this.#current !== item) return;
    this.stop(`Код работал дольше ${item.limit / 1000} с и остановлен. Проверьте условие выхода из цикла.`);
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
