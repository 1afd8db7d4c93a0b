"""Скорость живых страниц: запуск Python и один пересчёт, рядом с голым Pyodide и с CPython.

Запускает `nox -s bench_live` на собранном сайте. Всё меряется попеременно в одном Chromium, без сети:

- запуск: от первого обращения к калькулятору до первого ответа, и то же у страницы, которая только загружает
  Pyodide, — разница и есть цена пакета и первого ответа;
- пересчёт: от события поля до новой разметки и до кадра, в котором она видна; рядом — тот же ответ в CPython.
  Перед каждым страница дорисовывает прошлый: меряется задержка одного нажатия, а не очередь из них.

Машина с другими делами мерить не годится: смотрите на отношения.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from nanolm import live

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
#: Часть страницы → где она стоит, какое поле двигать и какими значениями.
WIDGETS = {
    "calculator": ("docs/calculator.html", "B", range(2, 22)),
    "kv": ("lessons/week_09_buhgalteriya.html", None, range(20)),
    "flops": ("lessons/lab_7_2_flops.html", None, range(20)),
}
BARE = """<!doctype html><meta charset=utf-8><script type=module>
const worker = new Worker("bare.mjs", {type: "module"});
const begun = performance.now();
worker.onmessage = () => { document.title = String(performance.now() - begun); };
</script>"""
BARE_WORKER = """import { loadPyodide } from "./_static/live/PYODIDE/pyodide.mjs";
await loadPyodide({ indexURL: new URL("./_static/live/PYODIDE/", import.meta.url).href, packages: [] });
postMessage("ready");"""
RECALCULATE = """async ([name, value]) => {
  const root = document.querySelector(`[data-widget="${name}"]`);
  const form = root.querySelector("form");
  const field = form.querySelector("input[type=range]") ?? form.elements.namedItem("B");
  field.value = field.type === "range" ? Number(field.min) + value % (field.max - field.min) : String(value);
  const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  await frame();
  await frame();
  const begun = performance.now();
  const changed = new Promise((resolve) => {
    const watch = new MutationObserver(() => { watch.disconnect(); resolve(performance.now() - begun); });
    // Число рядом с ползунком меняется сразу, без Python: это ещё не ответ.
    for (const slot of root.querySelectorAll("[data-slot]:not(output)")) watch.observe(slot, {childList: true});
  });
  field.dispatchEvent(new Event("input", {bubbles: true}));
  const markup = await changed;
  await frame();
  return [markup, performance.now() - begun];
}"""


class Quiet(SimpleHTTPRequestHandler):
    """Сервер, который не печатает запросы."""

    def log_message(self, *_: object) -> None:
        """Молчать."""


def main() -> int:
    """Измерить и напечатать таблицу."""
    parser = argparse.ArgumentParser(description="Скорость живых страниц")
    parser.add_argument("--site", type=Path, default=Path("build/html"), help="папка собранного сайта")
    parser.add_argument("--repeats", type=int, default=5, help="сколько раз мерить запуск")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        shutil.copytree(options.site, site)
        pyodide = next((site / "_static" / "live").glob("pyodide-*")).name
        (site / "bare.html").write_text(BARE, encoding="utf-8")
        (site / "bare.mjs").write_text(BARE_WORKER.replace("PYODIDE", pyodide), encoding="utf-8")
        with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            measure(f"http://127.0.0.1:{server.server_address[1]}/", options.repeats)
            server.shutdown()
    return 0


def measure(address: str, repeats: int) -> None:
    """Открыть Chromium и пройти все замеры."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        starts: dict[str, list[float]] = {"голый Pyodide": [], "калькулятор": []}
        for turn in range(repeats + 1):
            found = bare_start(browser, address), widget_start(browser, address)
            if turn:  # первый круг греет кеши диска
                for name, seconds in zip(starts, found, strict=True):
                    starts[name].append(seconds)
        middle = {name: statistics.median(values) for name, values in starts.items()}
        print("Запуск, медиана из", repeats)
        for name, seconds in middle.items():
            print(f"  {name:<16} {seconds:6.2f} с")
        print(f"  отношение        {middle['калькулятор'] / middle['голый Pyodide']:6.2f}")
        print("Пересчёт, медиана: разметка, кадр, CPython, разметка / CPython")
        for name in WIDGETS:
            (markup, frame), plain = recalculations(browser, address, name), 1000 * cpython(name)
            print(f"  {name:<16} {markup:6.1f} мс {frame:6.1f} мс {plain:6.1f} мс {markup / plain:6.1f}")
        browser.close()


def bare_start(browser: Any, address: str) -> float:
    """Секунды от создания рабочего потока до готового Pyodide."""
    page = browser.new_context().new_page()
    page.goto(address + "bare.html")
    page.wait_for_function("document.title", timeout=120_000)
    seconds = float(page.title()) / 1000
    page.context.close()
    return seconds


def widget_start(browser: Any, address: str) -> float:
    """Секунды от первого обращения к калькулятору до первого ответа."""
    page = opened(browser, address, "calculator")
    begun = time.perf_counter()
    wake(page, "calculator")
    seconds = time.perf_counter() - begun
    page.context.close()
    return seconds


def opened(browser: Any, address: str, name: str) -> Any:
    page = browser.new_context().new_page()
    page.goto(address + WIDGETS[name][0], wait_until="networkidle")
    return page


def wake(page: Any, name: str) -> None:
    """Тронуть калькулятор и дождаться ответа."""
    page.locator(f'[data-widget="{name}"] form').locator("input:visible, select:visible").first.focus()
    page.wait_for_function(f"document.querySelector('[data-widget={name}]').dataset.answered", timeout=120_000)


def recalculations(browser: Any, address: str, name: str) -> tuple[float, float]:
    """Медианы пересчётов на странице, миллисекунды: до новой разметки и до кадра с ней."""
    page = opened(browser, address, name)
    wake(page, name)
    times = [page.evaluate(RECALCULATE, [name, value]) for value in WIDGETS[name][2]]
    page.context.close()
    markup, frame = (statistics.median(values) for values in zip(*times[3:], strict=True))
    return markup, frame


def cpython(name: str) -> float:
    """Медиана того же ответа без браузера, секунды."""
    part = live.widget(name)
    state = part.default()
    times = []
    for _ in range(20):
        begun = time.perf_counter()
        part.answer(state)
        times.append(time.perf_counter() - begun)
    return statistics.median(times[3:])


if __name__ == "__main__":
    sys.exit(main())
