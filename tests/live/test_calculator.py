"""Калькулятор на странице: тот же ответ, что у командной строки, ошибки у своих полей, ничего не падает."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from html import escape
from math import prod
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markup import Page

from nanolm import budget, cli, live, units
from nanolm.live import calculator, question
from nanolm.zoo import presets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Пять вопросов: плотная модель, смесь, окна, латентное внимание, связанная голова и деньги.
QUESTIONS: dict[str, dict[str, str]] = {
    "llama-3-8b": {},
    "mixtral-8x7b": {"B": "4", "S": "4096", "gpu": "a100-80", "dtype": "fp16", "recipe": "autocast"},
    "gemma-3-12b": {"S": "32768", "convention": "causal", "checkpointing": "full", "kv": "engine", "kv_block": "16"},
    "deepseek-v3": {"B": "8", "gpu": "h200", "gpus": "64", "tokens": "14,8e12", "mfu": "0,3", "price": "2.5"},
    "gpt2": {"gpu": "", "optimizer": "adamw8bit", "attention": "naive", "quantize": "nf4-double"},
}
#: Свои размеры и правки известной модели.
CHANGED = {
    "own": {"preset": "", "V": "1000", "D": "64", "L": "2", "N": "4", "plain_ffn": "on", "norm_bias": "on"},
    "transformers": {"preset": "llama-3.2-1b", "implementation": "transformers", "gpu": "rtx-a6000", "S": "1024"},
    "qlora": {
        "preset": "qwen2.5-0.5b",
        "implementation": "transformers",
        "recipe": "bf16",
        "lora_rank": "8",
        "S": "512",
        "lora_targets": "query, value",
        "quantize": "nf4-double",
    },
    "edited": {"preset": "llama-3-8b", "L": "16", "K": "", "tie_embeddings": "on", "S": "4 096", "window": "1024"},
}


def state(**changes: str) -> dict[str, str]:
    return {**calculator.default(), **changes}


ASKED = {
    **{name: state(preset=name, **changes) for name, changes in QUESTIONS.items()},
    **{name: state(**changes) for name, changes in CHANGED.items()},
}


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Что печатает командная строка."""
    for name in ("_", "ngettext"):  # переводы argparse вернутся на место после теста
        monkeypatch.setattr(argparse, name, getattr(argparse, name))

    def call(line: str) -> str:
        words = shlex.split(line)
        assert words[:3] == ["python", "-m", "nanolm.budget"]
        assert cli.budget(words[3:], "nanolm budget") == 0
        return capsys.readouterr().out

    return call


# --- тот же ответ, что у командной строки -------------------------------------------------------


@pytest.mark.parametrize("name", ASKED)
def test_document_is_what_the_command_prints(name: str, printed: Callable[[str], str]) -> None:
    """Скачанный JSON равен `--json` той команды, которую предлагает страница, байт в байт."""
    found = calculator.answer(ASKED[name], "export")
    assert found["errors"] == {}
    assert found["files"]["nanolm.json"] == printed(found["copies"]["command"] + " --json")


@pytest.mark.parametrize("goal", ["training", "inference"])
def test_fit_is_part_of_document_and_command(goal: str, printed: Callable[[str], str]) -> None:
    asked = state(preset="gpt2", gpu="t4", B="64")
    answered = calculator.answer(asked, f"fit-{goal}")
    assert f'data-action="export-{goal}"' in answered["slots"]["export"]
    found = calculator.answer(asked, f"export-{goal}")
    assert found["slots"] == answered["slots"]
    assert found["copies"]["command"].endswith(f"--fit {goal}")
    assert found["files"]["nanolm.json"] == printed(found["copies"]["command"] + " --json")
    assert json.loads(found["files"]["nanolm.json"])["fit"]["goal"] == goal
    assert "Что поместится" in found["slots"]["fit"]
    assert calculator.answer(state(preset="gpt2"))["slots"]["fit"] == ""


@pytest.mark.parametrize("gpu", ["t4", "b200", ""])
def test_brief_repeats_the_verdicts(gpu: str) -> None:
    found = calculator.answer(state(preset="llama-3-8b", gpu=gpu))
    brief = Page(found["slots"]["brief"]).text.replace("\u00a0", " ")
    assert brief.startswith("параметры 8,03 млрд")
    words = re.findall("не влезет|влезет", brief)
    assert words == re.findall("не влезет|влезет", found["slots"]["verdict"])
    assert len(words) == (2 if gpu else 0)


def test_command_of_a_file(tmp_path: Path, printed: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Файл на странице и файл рядом с командой дают один ответ, список моделей при этом не действует."""
    text = json.dumps(presets()["qwen3-1.7b"]["config"])
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = calculator.answer(state(config=text, B="3", preset="gpt2"), "export")
    assert "--config config.json --B 3" in found["copies"]["command"]
    assert "gpt2" not in found["copies"]["command"]
    assert found["files"]["nanolm.json"] == printed(found["copies"]["command"] + " --json")
    assert "из файла config.json" in found["slots"]["source"]
    assert "config" not in found["query"]


def test_command_names_only_what_differs() -> None:
    assert calculator.answer(state(gpu=""))["copies"]["command"] == "python -m nanolm.budget --preset llama-3-8b"
    line = calculator.answer(state(tokens="15e12", B="1", gpus="1", mfu="0.45"))["copies"]["command"]
    assert line == "python -m nanolm.budget --preset llama-3-8b --gpu h100-sxm --tokens 15e12"


@pytest.mark.parametrize("tokens", ["1", "1000000", "123456789000000", "1e18", "999999999999999999"])
def test_tokens_of_the_command_are_exact(tokens: str) -> None:
    """Короткая запись читается обратно тем же числом."""
    line = calculator.answer(state(tokens=tokens))["copies"]["command"]
    assert cli._count(re.search(r"--tokens (\S+)", line)[1]) == int(tokens.replace("1e18", "1" + "0" * 18))  # type: ignore[index]


def test_every_flag_of_the_command_line_has_a_field() -> None:
    """Новый ключ `budget` обязан появиться и на странице."""
    parser = cli.budget_parser("nanolm budget")
    flags = {action.dest for action in parser._actions}
    outside = {"help", "json", "explain", "list_presets", "list_gpus", "fit"}
    assert flags - outside - set(question.FORM.fields) == set()
    assert set(question.FORM.fields) - flags == set()


@pytest.mark.parametrize("name", question.CHOICES)
def test_choices_are_those_of_the_command_line(name: str) -> None:
    action = next(a for a in cli.budget_parser("nanolm budget")._actions if a.dest == name)
    assert list(question.CHOICES[name][1]) == list(action.choices or ())
    assert question.CHOICES[name][0] == action.default
    assert all(title.split(":")[0] == value for value, title in question.CHOICES[name][1].items())


# --- страница -----------------------------------------------------------------------------------


def test_default_page_is_complete() -> None:
    """Страница верна без JavaScript: ответ умолчаний напечатан целиком, у каждого поля есть подпись."""
    page = Page(calculator.page(calculator.default()))
    assert len(set(page.ids)) == len(page.ids)
    assert set(page.wanted) <= set(page.ids)
    assert set(page.names) == set(question.FORM.fields)
    for piece in ("8\u00a0030\u00a0261\u00a0248", "Обучение: не влезет.", "Вывод: влезет.", "14,96"):
        assert piece in page.text
    fields = [name for name, field in question.FORM.fields.items() if field.kind != "hidden"]
    assert {f"calculator-{name}" for name in fields} <= set(page.wanted)


def test_page_holds_every_slot_once() -> None:
    page = calculator.page(calculator.default())
    for name in calculator.answer(calculator.default())["slots"]:
        assert page.count(f'data-slot="{name}"') == 1


@pytest.mark.parametrize("name", ASKED)
def test_slots_are_sound_markup(name: str) -> None:
    for markup in calculator.answer(ASKED[name])["slots"].values():
        Page(markup)


@pytest.mark.parametrize("name", ASKED)
def test_every_number_opens_into_its_formula(name: str) -> None:
    """Под каждым ненулевым компонентом стоят все его строки: буквы, числа, значение."""
    q, _ = question.ask(ASKED[name])
    assert q is not None
    shown = "".join(calculator.slots(ASKED[name], q).values())
    for account in (q.parameters, q.flops, q.kv_cache, q.inference, q.training):
        for line in account.details:
            formula = escape(f"{line.letters} = {line.numbers} = ") + f"<b>{units.number(line.value)}</b>"
            assert formula in shown or not account[line.component]


def test_shown_formulas_are_true() -> None:
    """Произведение напечатанных множителей равно напечатанному значению."""
    slots = calculator.answer(calculator.default())["slots"]
    shown = "".join(slots[name] for name in ("memory", "parameters", "flops", "cache"))
    found = re.findall(r" = ([\d·]+) = <b>([\d\u00a0]+)</b>", shown)
    assert len(found) > 60
    for numbers, value in found:
        assert prod(map(int, numbers.split("·"))) == int(value.replace("\u00a0", ""))


def test_active_parameters_of_a_mixture_are_shown() -> None:
    text = Page(calculator.answer(ASKED["mixtral-8x7b"])["slots"]["parameters"]).text.replace("\u00a0", " ")
    q, _ = question.ask(ASKED["mixtral-8x7b"])
    assert q is not None
    assert f"{q.parameters.active:,}".replace(",", " ") in text


def test_without_a_card_the_page_asks_for_one() -> None:
    slots = calculator.answer(state(gpu=""))["slots"]
    assert "Выберите видеокарту" in slots["verdict"]
    assert "nanolm-limit" not in slots["memory"]
    assert "nanolm-limit" in calculator.answer(calculator.default())["slots"]["memory"]


# --- адрес --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ASKED)
def test_address_restores_the_state(name: str) -> None:
    asked = ASKED[name]
    given = dict(parse_qsl(calculator.answer(asked)["query"], keep_blank_values=True))
    loaded = calculator.answer(given, "load")
    assert loaded["state"] == asked
    assert loaded["slots"] == calculator.answer(asked)["slots"]


def test_address_ignores_strangers_and_marks_wrong_values() -> None:
    loaded = calculator.answer({"utm_source": "x", "B": "-3", "preset": "gpt2", "recipe": "exotic"}, "load")
    assert "utm_source" not in loaded["state"]
    assert loaded["state"]["B"] == "-3"
    assert set(loaded["errors"]) == {"recipe"}
    assert set(calculator.answer({"B": "-3"}, "load")["errors"]) == {"B"}
    assert "slots" not in loaded


def test_default_has_an_empty_address() -> None:
    assert calculator.answer(calculator.default())["query"] == ""


# --- ошибки -------------------------------------------------------------------------------------

WRONG = {
    "B": ({"B": "0"}, "B = 0: нужно целое число не меньше 1"),
    "S": ({"S": "десять"}, "S = 'десять': нужно целое число"),
    "K": ({"K": "3"}, "K = 3: N = 32 должно делиться на K без остатка"),
    "V": ({"preset": "", "D": "8", "L": "1", "N": "2"}, "V не задан: модель не выбрана, назовите V, D, L и N"),
    "implementation": (
        {"preset": "phi-3-mini", "implementation": "transformers"},
        "implementation = 'transformers': память transformers описана для",
    ),
    "preset": ({"preset": "lama-3"}, "preset = 'lama-3'"),
    "gpu": ({"gpu": "h1000"}, "gpu = 'h1000'"),
    "gpus": ({"gpus": "2", "gpu": ""}, "gpus: чтобы разделить"),
    "tokens": ({"tokens": "1e12", "gpu": ""}, "tokens: чтобы посчитать"),
    "mfu": ({"mfu": "0,3"}, "mfu: доля пика нужна вместе"),
    "lora_rank": ({"lora_rank": "8"}, "lora_rank = 8: адаптеры описаны для transformers"),
    "lora_targets": (
        {"lora_rank": "8", "implementation": "transformers", "lora_targets": "голова"},
        "lora_targets = 'голова'",
    ),
    "price": ({"price": "дорого"}, "price = 'дорого': нужно число"),
    "recipe": ({"recipe": "fp64"}, "recipe = 'fp64': нужно одно из"),
    "quantize": ({"quantize": "q4"}, "quantize = 'q4'"),
    "kv_block": ({"kv_block": "0"}, "kv_block = 0: нужно целое число не меньше 1"),
    "config": ({"config": '{"model_type": "gpt5"}'}, "config.json: model_type = 'gpt5'"),
    "experts_per_token": ({"experts": "8"}, "experts_per_token = 0: при experts = 8 нужно от 1 до 8"),
    "dtype": ({"dtype": "int4"}, "dtype = 'int4'"),
}


@pytest.mark.parametrize("field", WRONG)
def test_wrong_value_is_told_at_its_field(field: str) -> None:
    changes, text = WRONG[field]
    found = calculator.answer(state(**changes))
    assert set(found["errors"]) == {field}
    assert found["errors"][field].startswith(text)
    assert "slots" not in found


def test_every_wrong_field_is_marked_at_once() -> None:
    assert set(calculator.answer(state(B="x", D="y", mfu="z"))["errors"]) == {"B", "D", "mfu"}


def test_own_sizes_start_empty() -> None:
    """Модели ещё нет: за пустыми размерами не стоят числа прежней, и каждый недостающий размер отмечен."""
    found = calculator.answer(state(preset="", D="x", N="4"))
    assert found["errors"]["D"] == "D = 'x': нужно целое число"
    assert {name: found["errors"][name].split(":")[0] for name in "VL"} == {"V": "V не задан", "L": "L не задан"}
    assert set(found["errors"]) == {"V", "D", "L"}
    assert found["placeholders"] == dict.fromkeys((*question.SIZES, "S"), "")
    ready = calculator.answer(state(preset="", V="9", D="8", L="1", N="2"))
    assert (ready["placeholders"]["K"], ready["placeholders"]["H"]) == ("2", "4")
    assert calculator.answer(state(preset="", config="{"))["placeholders"] == {}


@pytest.mark.parametrize("implementation", ["transformers", "transformers-4.57"])
@pytest.mark.parametrize("name", [key for key in presets() if key.startswith(("phi-3", "gemma", "mixtral", "llama-3"))])
def test_family_is_checked_as_in_the_command(
    name: str, implementation: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Пресет и тот же файл, брошенный на страницу: ответ или тот же отказ, что у командной строки."""
    for word in ("_", "ngettext"):
        monkeypatch.setattr(argparse, word, getattr(argparse, word))
    text = json.dumps(presets()[name]["config"])
    errors = [
        calculator.answer(state(implementation=implementation, **model))["errors"]
        for model in ({"preset": name}, {"config": text})
    ]
    try:
        cli.budget(["--preset", name, "--implementation", implementation, "--json"], "nanolm budget")
        assert errors == [{}, {}]
        assert name.startswith("llama")
    except SystemExit:
        message = capsys.readouterr().err.removeprefix("nanolm budget: ошибка: --").rstrip("\n")
        assert errors == [{"implementation": message}] * 2
        assert not name.startswith("llama")


def test_file_with_unknown_quantization_has_a_way_out() -> None:
    config = {**presets()["llama-3-8b"]["config"], "quantization_config": {"quant_method": "hqq"}}
    asked = state(config=json.dumps(config))
    assert "--quantize none" in calculator.answer(asked)["errors"]["config"]
    plain = calculator.answer({**asked, "quantize": "none"}, "export")
    assert plain["errors"] == {}
    assert plain["files"] == calculator.answer(state(), "export")["files"]


def test_only_the_text_part_is_said() -> None:
    text = presets()["llama-2-7b"]["config"]
    found = calculator.answer(state(config=json.dumps({"model_type": "llava", "text_config": text})))
    assert "посчитана только текстовая часть модели" in found["slots"]["source"]
    assert "текстовая часть" not in calculator.answer(state(config=json.dumps(text)))["slots"]["source"]


@pytest.mark.parametrize("text", ["{", "[]", "\ud800", "\ufeff{}", "9" * 5000, "[" * 100_000, '{"model_type": 3}'])
def test_bad_file_is_one_line(text: str) -> None:
    message = calculator.answer(state(config=text))["errors"]["config"]
    assert message.startswith("config.json: ")
    assert "\n" not in message


def test_markup_in_a_value_stays_text() -> None:
    """Файл и поля — чужой текст: в разметку он попадает только знаками."""
    evil = "<script>alert(1)</script>"
    config = {**presets()["gpt2"]["config"], "model_type": evil}
    answers = [
        calculator.answer(state(config=json.dumps(config))),
        *(calculator.answer(state(**{name: evil})) for name in ("preset", "gpu", "B", "tokens", "recipe", "quantize")),
    ]
    for found in answers:
        assert any("script" in message for message in found["errors"].values())
        assert "slots" not in found
    page = question.FORM.html(state(**dict.fromkeys(question.FORM.fields, evil)))
    assert evil not in page
    Page(page)


SHORT = st.text(max_size=8)
NUMBERS = st.one_of(
    st.integers(-5, 10**14).map(str), st.sampled_from(["", "1e12", "0,5", "1e400", "nan", "inf", "٣", "²"])
)


@st.composite
def states(draw: st.DrawFn) -> dict[str, str]:
    """Состояние, в котором часть полей верна, часть — что угодно."""
    found = calculator.default()
    for name, field in question.FORM.fields.items():
        if draw(st.booleans()):
            continue
        known: list[st.SearchStrategy[str]] = [NUMBERS, SHORT]
        if field.kind == "select":
            assert field.options is not None
            known = [st.sampled_from([value for pairs in field.options().values() for value, _ in pairs])] * 6
        if field.kind == "checkbox":
            known = [st.sampled_from(["", "on", "off"])]
        found[name] = draw(st.one_of(*known, SHORT))
    return found


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(states(), st.sampled_from([None, "load", "чужое"]))
def test_no_state_breaks_the_page(asked: dict[str, str], action: str | None) -> None:
    """Любое состояние даёт ответ или ошибки у существующих полей; адрес восстанавливает его."""
    found: dict[str, Any] = json.loads(
        live.answer(json.dumps({"widget": "calculator", "state": asked, "action": action}))
    )
    assert set(found["errors"]) <= {"", *question.FORM.fields}
    assert bool(found["errors"]) != ("slots" in found)
    assert all("\n" not in message for message in found["errors"].values())
    for markup in found.get("slots", {}).values():
        Page(markup)
    given_back = dict(parse_qsl(found["query"], keep_blank_values=True))
    assert question.FORM.complete(given_back) == {**asked, "config": ""}


def test_titles_cover_the_training_components() -> None:
    """У каждой части полосы есть название."""
    parts = {*budget.COMPONENTS["training"], *budget.COMPONENTS["inference"], "buffers"}
    assert parts <= set(calculator._PART_NAMES)


def test_file_does_not_come_from_the_address() -> None:
    text = json.dumps(presets()["gpt2"]["config"])
    found = calculator.answer({"config": text, "B": "2"}, "load")
    assert found["state"]["config"] == ""
    assert "--preset llama-3-8b --B 2" in found["copies"]["command"]


def test_cache_in_pages_moves_the_crossover() -> None:
    cache = calculator.answer(state(preset="llama-3-8b", S="1", kv_block="16"))["slots"]["cache"]
    assert "7\u00a0658,25" in Page(cache).text
