"""Калькулятор и ползунки в браузере: числа командной строки, ссылки, файлы, ошибки, обратная задача."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import ROOT, START_MS

from nanolm.live import calculator as live
from nanolm.units import both_bytes, number
from nanolm.zoo import presets

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = "docs/calculator.html"
VIEWS = [(1280, "light"), (390, "dark")]
#: Модель → что выбрать в форме, кроме неё.
QUESTIONS: dict[str, dict[str, str]] = {
    "llama-3-8b": {"B": "4", "gpu": "a100-80"},
    "mixtral-8x7b": {"S": "4096", "recipe": "autocast", "gpu": "h200"},
    "gemma-3-12b": {"convention": "causal", "checkpointing": "full", "dtype": "fp16"},
    "deepseek-v3": {"gpu": "h200", "gpus": "64", "tokens": "14,8e12", "price": "2,5"},
    "gpt2": {"gpu": "", "optimizer": "adamw8bit", "attention": "naive"},
}


#: Поле с фокусом стоит целиком над кратким ответом.
SEEN = """() => document.activeElement.getBoundingClientRect().bottom
  <= document.querySelector('[data-slot="brief"]').getBoundingClientRect().top + 1"""


class Calculator:
    """Калькулятор глазами посетителя."""

    def __init__(self, page: Any, widget: str = "calculator") -> None:
        self.page, self.root = page, page.locator(f'[data-widget="{widget}"]')

    def field(self, name: str) -> Any:
        return self.root.locator(f'[name="{name}"]')

    def fill(self, name: str, value: str) -> None:
        """Ввести значение так, как это делают рукой."""
        field = self.field(name)
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)

    def slot(self, name: str) -> Any:
        return self.root.locator(f'[data-slot="{name}"]')

    def shows(self, name: str, text: str) -> None:
        """Дождаться текста в ответе."""
        from playwright.sync_api import expect

        expect(self.slot(name)).to_contain_text(text, timeout=START_MS)

    def error(self, name: str) -> str:
        """Дождаться ошибки у поля."""
        place = self.root.locator(f'[data-error="{name}"]')
        place.wait_for(timeout=START_MS)
        return str(place.inner_text())

    def document(self) -> str:
        """Скачать JSON."""
        with self.page.expect_download() as waited:
            self.root.locator('[data-download="nanolm.json"]').click()
        return Path(waited.value.path()).read_text(encoding="utf-8")


def linked(visit: Callable[..., Any], query: str) -> Calculator:
    """Открыть ссылку. Она сразу запускает Python, поэтому тишины в сети не ждём."""
    visitor = visit()
    visitor.page.goto(visitor.server + PAGE + query)
    return Calculator(visitor.page)


def printed(command: str) -> str:
    """Что печатает команда со страницы вместе с ключом --json."""
    words = shlex.split(command)
    assert words[0] == "python"
    done = subprocess.run([sys.executable, *words[1:], "--json"], cwd=ROOT, capture_output=True, check=True)
    return done.stdout.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(("width", "theme"), VIEWS)
def test_numbers_are_those_of_the_command_line(visit: Callable[..., Any], width: int, theme: str) -> None:
    """Пять моделей: скачанный документ равен выводу предложенной команды, числа на странице — числам документа."""
    calculator = Calculator(visit(PAGE, width, theme).page)
    for name, changes in QUESTIONS.items():
        calculator.root.locator("[data-reset]").click()
        calculator.shows("export", live.command(live.default()))
        for field, value in {"preset": name, **changes}.items():
            calculator.fill(field, value)
        command = live.command({**live.default(), "preset": name, **changes})
        calculator.shows("export", command)
        document = calculator.document()
        assert document == printed(command), command
        found = json.loads(document)
        text = calculator.root.inner_text()
        for shown in (number(found["parameters"]["total"]), number(found["flops_per_token"]["rows"]["scores"])):
            assert shown in text, name
        if found.get("fit"):
            assert both_bytes(found["memory"]["training"]["total"]) in text
            assert both_bytes(found["memory"]["inference"]["peak"]) in text
    assert not calculator.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")


def test_link_is_shared(visit: Callable[..., Any]) -> None:
    """Ссылка восстанавливает форму у другого посетителя; чужие параметры не мешают."""
    first = Calculator(visit(PAGE).page)
    for field, value in {"preset": "qwen3-4b", "B": "3", "recipe": "fp32"}.items():
        first.fill(field, value)
    first.shows("export", "--recipe fp32")
    query = first.page.evaluate("location.search")
    assert query == "?preset=qwen3-4b&B=3&recipe=fp32"
    second = linked(visit, query + "&utm_source=x")
    second.shows("export", "--preset qwen3-4b --B 3 --recipe fp32")
    assert second.field("B").input_value() == "3"
    assert second.page.evaluate("location.search") == query


def test_edit_before_the_first_answer_is_kept(visit: Callable[..., Any]) -> None:
    """Ссылка ещё разбирается, а поле уже исправлено: ответ учитывает и то и другое. Так же и после «Сбросить»."""
    calculator = linked(visit, "?preset=gpt2&gpu=t4&B=2")
    calculator.root.locator("[data-status]", has_text="Запускается Python").wait_for()
    calculator.fill("B", "7")
    calculator.shows("export", "--preset gpt2 --B 7 --gpu t4")
    assert calculator.field("B").input_value() == "7"
    calculator.page.evaluate(
        """() => {
          document.querySelector("[data-reset]").click();
          const field = document.querySelector('[name="B"]');
          field.value = "9";
          field.dispatchEvent(new Event("input", {bubbles: true}));
        }"""
    )
    calculator.shows("export", "--preset llama-3-8b --B 9")
    assert calculator.field("B").input_value() == "9"


def test_buttons_pressed_before_the_link_is_answered(visit: Callable[..., Any]) -> None:
    """Кнопка под ещё не разобранной ссылкой отвечает на вопрос ссылки, а не на напечатанный."""
    calculator = linked(visit, "?B=64&gpu=rtx-4090")
    assert calculator.slot("verdict").evaluate("place => getComputedStyle(place).visibility") == "hidden"
    with calculator.page.expect_download(timeout=START_MS) as waited:
        calculator.root.locator('[data-download="nanolm.json"]').evaluate("button => button.click()")
    document = json.loads(Path(waited.value.path()).read_text(encoding="utf-8"))
    assert (document["spec"]["B"], document["fit"]["gpu"]) == (64, "rtx-4090")
    assert calculator.page.evaluate("location.search") == "?B=64&gpu=rtx-4090"
    assert calculator.slot("verdict").is_visible()


def test_buttons_pressed_right_after_reset(visit: Callable[..., Any]) -> None:
    calculator = linked(visit, "?B=64&gpu=rtx-4090")
    calculator.shows("export", "--B 64")
    calculator.page.evaluate(
        """() => {
          document.querySelector("[data-reset]").click();
          document.querySelector('[data-action="fit-training"]').click();
        }"""
    )
    calculator.shows("export", "--preset llama-3-8b --gpu h100-sxm --fit training")
    assert calculator.field("B").input_value() == "1"
    assert calculator.page.evaluate("location.search") == ""


def test_copied_command_is_about_the_form_as_it_is(visit: Callable[..., Any]) -> None:
    visitor = visit(PAGE, permissions=["clipboard-read", "clipboard-write"])
    calculator = Calculator(visitor.page)
    calculator.fill("B", "2")
    calculator.shows("export", "--B 2")
    calculator.page.evaluate(
        """() => {
          const field = document.querySelector('[name="B"]');
          field.value = "5";
          field.dispatchEvent(new Event("input", {bubbles: true}));
        }"""
    )
    calculator.root.locator('[data-copy="command"]').click()
    calculator.root.locator("[data-status]", has_text="Скопировано").wait_for()
    assert "--B 5" in calculator.page.evaluate("navigator.clipboard.readText()")


def test_first_click_on_export_is_not_lost(visit: Callable[..., Any]) -> None:
    page = visit(PAGE).page
    with page.expect_download(timeout=START_MS) as download:
        page.locator('[data-download="nanolm.json"]').click()
    assert json.loads(Path(download.value.path()).read_text(encoding="utf-8"))["parameters"]["total"] == 8_030_261_248


def test_wrong_link_marks_the_field(visit: Callable[..., Any]) -> None:
    calculator = linked(visit, "?B=-3&preset=gpt2")
    assert calculator.error("B") == "B = -3: нужно целое число не меньше 1"
    assert calculator.field("B").get_attribute("aria-invalid") == "true"
    assert calculator.field("preset").input_value() == "gpt2"


def test_link_may_use_another_name_of_the_model(visit: Callable[..., Any]) -> None:
    """Имени из ссылки в списке нет, но вопрос остаётся прежним и после следующей правки."""
    calculator = linked(visit, "?preset=meta-llama/Llama-3.1-8B")
    calculator.shows("source", "S = 131072")
    calculator.fill("B", "2")
    calculator.shows("export", "--preset meta-llama/Llama-3.1-8B --B 2")


@pytest.mark.parametrize(("width", "theme"), VIEWS)
def test_wrong_value_keeps_the_last_answer(visit: Callable[..., Any], width: int, theme: str) -> None:
    """Ошибка стоит у своего поля и исчезает вместе с причиной; ответ до исправления — прежний."""
    calculator = Calculator(visit(PAGE, width, theme).page)
    before = calculator.slot("verdict").inner_text()
    calculator.fill("mfu", "0,3")
    assert calculator.error("mfu").startswith("mfu: доля пика нужна вместе с числом токенов")
    assert calculator.slot("verdict").inner_text() == before
    calculator.fill("tokens", "1e12")
    calculator.shows("time", "время обучения")
    assert calculator.root.locator('[data-error="mfu"]').is_hidden()
    assert calculator.field("mfu").get_attribute("aria-invalid") is None


@pytest.mark.parametrize(("width", "theme"), VIEWS)
def test_main_numbers_are_in_sight_while_the_form_is_edited(visit: Callable[..., Any], width: int, theme: str) -> None:
    """Краткий ответ прижат к низу окна, пока до его места не долистали; поле с фокусом он не закрывает."""
    calculator = Calculator(visit(PAGE, width, theme).page)
    calculator.fill("B", "64")
    calculator.shows("brief", "обучение")
    brief = calculator.slot("brief")
    assert "не влезет" in brief.inner_text()
    at = brief.bounding_box()
    assert at["y"] + at["height"] == pytest.approx(900, abs=1)
    for _ in range(8):
        calculator.page.keyboard.press("Tab")
        calculator.page.wait_for_function(SEEN)  # прокрутка к полю плавная
    calculator.slot("verdict").scroll_into_view_if_needed()
    assert brief.bounding_box()["y"] < calculator.slot("verdict").bounding_box()["y"]


def test_error_in_a_folded_group_is_visible(visit: Callable[..., Any]) -> None:
    calculator = Calculator(visit(PAGE).page)
    calculator.fill("preset", "")
    assert calculator.error("V").startswith("V не задан")
    assert calculator.field("V").is_visible()
    for name, value in {"V": "1000", "D": "64", "L": "2", "N": "4"}.items():
        calculator.fill(name, value)
    calculator.shows("source", "V = 1000")


def test_what_would_make_it_fit(visit: Callable[..., Any]) -> None:
    calculator = Calculator(visit(PAGE).page)
    calculator.root.locator('[data-action="fit-training"]').click()
    calculator.shows("fit", "от дешёвого к дорогому")
    calculator.shows("export", "--fit training")
    assert calculator.document() == printed(calculator.slot("export").locator("code").inner_text())
    calculator.fill("B", "2")
    calculator.shows("export", "--B 2")
    assert calculator.slot("fit").inner_text() == ""


def test_number_opens_and_stays_open(visit: Callable[..., Any]) -> None:
    """Формула раскрывается с клавиатуры и не закрывается при пересчёте."""
    calculator = Calculator(visit(PAGE).page)
    row = calculator.root.locator('[data-row="parameters/ffn"]')
    row.locator("summary").focus()
    calculator.page.keyboard.press("Enter")
    assert number(32 * 4096 * 14336) in row.inner_text()
    calculator.fill("preset", "llama-3-70b")
    calculator.shows("source", "L = 80")
    assert number(80 * 8192 * 28672) in row.inner_text()


CONFIG = json.dumps(presets()["qwen3-1.7b"]["config"]).encode()
BAD = {
    "не JSON": (b'{"model_type": ', "config.json: это не JSON: строка 1, столбец 16"),
    "чужое семейство": (b'{"model_type": "<script>alert(1)</script>"}', "семейство не поддерживается"),
    "не UTF-8": (b"\xff\xfe{}", "Файл не в кодировке UTF-8."),
    "большой": (b" " * (1024 * 1024 + 1), "Файл больше 1 МиБ: это не config.json."),
    "пустой": (b"", "Файл пуст."),
}
DROP = """async (zone, bytes) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([new Uint8Array(bytes)], "config.json", {type: "application/json"}));
  for (const type of ["dragenter", "dragover", "drop"])
    zone.dispatchEvent(new DragEvent(type, {dataTransfer: transfer, bubbles: true, cancelable: true}));
}"""


def test_dropped_config(visit: Callable[..., Any], tmp_path: Path) -> None:
    """Файл, брошенный на страницу, считается здесь же; ни в адрес, ни в запросы он не попадает."""
    visitor = visit(PAGE)
    calculator = Calculator(visitor.page)
    zone = calculator.root.locator("[data-drop]")
    zone.evaluate(DROP, list(CONFIG))
    calculator.shows("source", "из файла config.json")
    assert "config.json" in zone.locator("[data-drop-name]").inner_text()
    (tmp_path / "config.json").write_bytes(CONFIG)
    command = calculator.slot("export").locator("code").inner_text()
    assert calculator.document() == printed(command.replace("config.json", str(tmp_path / "config.json")))
    assert "hidden_size" not in visitor.page.evaluate("location.href")
    zone.locator("[data-drop-clear]").click()
    calculator.shows("source", presets()["llama-3-8b"]["title"])
    assert zone.locator("[data-drop-name]").is_hidden()


def test_bad_files_are_refused_in_one_line(visit: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    calculator = Calculator(visit(PAGE).page)
    calculator.fill("B", "2")
    calculator.shows("export", "--B 2")
    for name, (data, message) in BAD.items():
        file = {"name": f"{name}.json", "mimeType": "application/json", "buffer": data}
        calculator.root.locator('input[type="file"]').set_input_files(files=[file])
        expect(calculator.root.locator('[data-error="config"]')).to_contain_text(message, timeout=START_MS)
    calculator.fill("preset", "gpt2")
    calculator.shows("source", presets()["gpt2"]["title"])
    assert calculator.root.locator('[data-error="config"]').is_hidden()


# --- ползунки -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "theme"), VIEWS)
def test_sliders_of_lab_7_2(visit: Callable[..., Any], width: int, theme: str) -> None:
    sliders = Calculator(visit("lessons/lab_7_2_flops.html", width, theme).page, "flops")
    assert "6·10²³" in sliders.slot("work").inner_text()
    sliders.field("logP").focus()
    sliders.page.keyboard.press("ArrowLeft")
    sliders.shows("logP-value", "10⁸")
    sliders.shows("work", "6·10²²")
    assert "10⁸ параметров" in sliders.slot("chart").locator("desc").text_content()


@pytest.mark.parametrize(("width", "theme"), VIEWS)
def test_cache_sliders(visit: Callable[..., Any], width: int, theme: str) -> None:
    week = next(path.stem for path in (ROOT / "lessons").glob("week_09*.py"))
    sliders = Calculator(visit(f"lessons/{week}.html", width, theme).page, "kv")
    assert "14,96" in sliders.slot("numbers").inner_text()
    sliders.field("logS").focus()
    for _ in range(2):
        sliders.page.keyboard.press("ArrowRight")
    sliders.shows("logS-value", number(32768))
    sliders.shows("numbers", "Кеш равен весам при B = 3,74.")
    assert "кеш = веса" in sliders.slot("chart").text_content()
    sliders.fill("kv_dtype", "fp8")
    sliders.shows("numbers", "Кеш равен весам при B = 7,48.")
