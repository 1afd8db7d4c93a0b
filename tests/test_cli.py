"""Командная строка: ответы, JSON, любая ошибка — одна русская строка и код 2, любой канал переживается."""

from __future__ import annotations

import argparse
import ast
import io
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nanolm import cli
from nanolm.budget import Spec, inference_memory, parameter_breakdown, report
from nanolm.hardware import gpus
from nanolm.summary import Question, document, explanation
from nanolm.zoo import preset, presets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parents[1]
LLAMA = shlex.split("--V 128256 --D 4096 --L 32 --N 32 --K 8 --S 8192 --F 14336")
PROG = "nanolm budget"

Answer = tuple[int, str, str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """`nanolm budget …` в этом же процессе: код, вывод, ошибки."""
    for name in ("_", "ngettext"):  # переводы argparse вернутся на место после теста
        monkeypatch.setattr(argparse, name, getattr(argparse, name))

    def call(*arguments: str) -> Answer:
        try:
            code = cli.budget(list(arguments), PROG)
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def start(*arguments: str, python: Sequence[str] = (), **options: Any) -> subprocess.CompletedProcess[bytes]:
    """`python -m nanolm.budget …` отдельным процессом."""
    command = [sys.executable, *python, "-m", "nanolm.budget", *arguments]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": ROOT, **options}
    return subprocess.run(command, check=False, **options)


# --- ответы -------------------------------------------------------------------------------------


def test_json_of_llama(run: Callable[..., Answer]) -> None:
    """Числа, которые обещает задача, все до одного."""
    code, output, errors = run(*LLAMA, "--json")
    assert (code, errors) == (0, "")
    answer = json.loads(output)
    assert answer["parameters"]["total"] == 8_030_261_248
    assert answer["kv_cache"]["bytes_per_token"] == 131_072
    assert answer["kv_cache"]["bytes"] == 1_073_741_824
    assert 14.957 < answer["kv_cache"]["crossover_batch"] < 14.958
    assert answer["flops_per_token"]["rows"]["lm_head"] == 3_152_019_456
    assert answer["flops_per_token"]["attention_crossover"] == 26_624
    assert answer["memory"]["inference"]["rows"]["weights"] == 16_060_522_496
    rows = answer["memory"]["training"]["rows"]
    states = sum(rows[name] for name in ("weights", "gradients", "master_weights", "optimizer"))
    assert states == 16 * 8_030_261_248


def test_text_is_the_report(run: Callable[..., Answer]) -> None:
    spec = Spec(V=128256, D=4096, L=32, N=32, K=8, S=8192, F=14336)
    assert run(*LLAMA) == (0, report(spec) + "\n", "")
    assert run(*LLAMA, "--B", "4", "--gpu", "h100-sxm") == (0, report(spec, B=4, gpu="h100-sxm") + "\n", "")


def test_explain(run: Callable[..., Answer]) -> None:
    code, output, errors = run("--preset", "llama-3-8b", "--explain")
    assert (code, errors) == (0, "")
    assert output == explanation(Question(preset("llama-3-8b"))) + "\n"
    assert "проекция ключа: L·K·H·D = 32·8·128·4096 = 134\u00a0217\u00a0728" in output


def test_lists(run: Callable[..., Answer]) -> None:
    for flag, known in (("--list-presets", presets()), ("--list-gpus", gpus())):
        code, output, errors = run(flag)
        assert (code, errors) == (0, "")
        assert [line.split()[0] for line in output.splitlines()] == list(known)


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ((), {}),
        (("--L", "5"), {"L": 5}),
        (("--tie-embeddings",), {"tie_embeddings": True}),
        (("--window", "64"), {"window": 64}),
        (("--plain-ffn", "--qkv-bias"), {"gated_ffn": False, "qkv_bias": True}),
        (("--out-bias", "--ffn-bias", "--norm-bias", "--qk-norm"), {
            "out_bias": True, "ffn_bias": True, "norm_bias": True, "qk_norm": True,
        }),
        (("--experts", "4", "--experts-per-token", "2"), {"experts": 4, "experts_per_token": 2}),
        (("--learned-positions", "77", "--S", "64"), {"learned_positions": 77, "S": 64}),
    ],
)  # fmt: skip
def test_flags_override_a_preset(
    run: Callable[..., Answer], arguments: tuple[str, ...], changes: dict[str, Any]
) -> None:
    code, output, errors = run("--preset", "llama-3.2-1b", *arguments, "--json")
    assert (code, errors) == (0, "")
    expected = document(Question(preset("llama-3.2-1b").replace(**changes)))
    assert json.loads(output) == json.loads(json.dumps(expected))


def test_options_of_the_question_reach_the_accounts(run: Callable[..., Answer]) -> None:
    arguments = shlex.split(
        "--B 3 --S 100 --recipe autocast --optimizer adamw8bit --attention naive --checkpointing selective "
        "--dtype fp8 --convention causal --gpu a100-80 --gpus 8 --tokens 15e12 --mfu 0,4 --price 1.5 "
        "--quantize gptq-4-128 --kv engine --kv-block 16"
    )
    code, output, _ = run(*LLAMA[:-4], "--F", "14336", *arguments, "--json")
    question = Question(
        Spec(V=128256, D=4096, L=32, N=32, K=8, F=14336), B=3, S=100, recipe="autocast", optimizer="adamw8bit",
        attention="naive", checkpointing="selective", dtype="fp8", convention="causal", gpu="a100-80", gpus=8,
        tokens=15 * 10**12, mfu=0.4, price=1.5, weights="gptq-4-128", kv="engine", block=16,
    )  # fmt: skip
    answer = json.loads(output)
    answer["spec"]["S"] = 100
    assert code == 0
    assert answer == json.loads(json.dumps(document(question)))


def test_config_file_and_folder(run: Callable[..., Answer], tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(presets()["qwen3-4b"]["config"]), encoding="utf-8")
    expected = run("--preset", "qwen3-4b", "--json")
    assert expected[0] == 0
    assert run("--config", str(config), "--json") == expected
    assert run("--config", str(tmp_path), "--json") == expected
    changed = run("--config", str(config), "--L", "2", "--json")
    assert json.loads(changed[1])["spec"]["L"] == 2


def test_compressed_config_file(run: Callable[..., Answer], tmp_path: Path) -> None:
    """quantization_config из файла квантует веса; --quantize важнее, none — без него."""
    given = {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm"}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**presets()["llama-3-8b"]["config"], "quantization_config": given}), encoding="utf-8")

    def inference(*arguments: str) -> dict[str, Any]:
        code, output, errors = run("--config", str(config), *arguments, "--json")
        assert (code, errors) == (0, "")
        return json.loads(output)["memory"]["inference"]  # type: ignore[no-any-return]

    spec = preset("llama-3-8b")
    for arguments, name in (((), "awq-4-64"), (("--quantize", "nf4"), "nf4"), (("--quantize", "none"), None)):
        found = inference(*arguments)
        assert found["rows"]["weights"] == inference_memory(spec, weights=name)["weights"]
        assert found.get("quantization") == name
    assert "Память вывода, bf16, веса awq-4-64" in run("--config", str(config))[1]


def test_unknown_quantization_has_a_way_out(run: Callable[..., Answer], tmp_path: Path) -> None:
    """Незнакомый способ — отказ, который называет выход: с --quantize модель считается без разбора файла весов."""
    config = tmp_path / "config.json"
    for given in ({"quant_method": "hqq"}, [4]):
        described = {**presets()["llama-3-8b"]["config"], "quantization_config": given}
        config.write_text(json.dumps(described), encoding="utf-8")
        code, output, errors = run("--config", str(config))
        check_refusal((code, output, errors.replace(str(tmp_path), "")), "--config: ", "quantization_config")
        assert ("--quantize none" in errors) is isinstance(given, dict)
        for name in ("none", "nf4"):
            found = run("--config", str(config), "--quantize", name, "--json")
            assert found == run("--preset", "llama-3-8b", "--quantize", name, "--json")
            assert found[0] == 0


def test_only_the_text_part_is_said(run: Callable[..., Answer], tmp_path: Path) -> None:
    """Обёртка с картинками: одна строка в сводке, в JSON — ничего."""
    text = presets()["llama-2-7b"]["config"]
    config, said = tmp_path / "config.json", "посчитана только текстовая часть модели\n"
    for described in ({"model_type": "llava", "text_config": text}, {**text, "vision_config": {"depth": 2}}):
        config.write_text(json.dumps(described), encoding="utf-8")
        assert run("--config", str(config))[1].count(said) == 1
        assert run("--config", str(config), "--json") == run("--preset", "llama-2-7b", "--json")
    assert said not in run("--preset", "llama-2-7b")[1]


def test_remarks_say_what_the_numbers_do_not(run: Callable[..., Answer]) -> None:
    """Контекст длиннее обученного, обучение без квантования, карта без bf16: по строке, и только тогда."""
    longer = "контекст S = 16\u00a0384 длиннее того, на который модель рассчитана: 8\u00a0192\n"
    plain, slower = "обучение — без квантования, веса по рецепту mixed", "в bf16 карта не умножает"
    calm = run("--preset", "llama-3-8b", "--S", "8192", "--gpu", "h100-sxm")[1]
    assert all(words not in calm for words in (longer, plain, slower))
    assert longer in run("--preset", "llama-3-8b", "--S", "16384")[1]
    assert "длиннее" not in run("--preset", "falcon-7b", "--S", "16384")[1]  # в его файле предел не записан
    assert plain in run("--preset", "llama-3-8b", "--quantize", "nf4")[1]
    assert plain not in run("--preset", "llama-3-8b", "--quantize", "nf4", "--lora-rank", "8")[1]
    old = run("--preset", "llama-3-8b", "--gpu", "v100-32")[1]
    assert f"{slower}: время ответа — со скоростью fp16\n" in old
    assert slower not in run("--preset", "llama-3-8b", "--gpu", "v100-32", "--dtype", "fp16")[1]


@pytest.mark.parametrize(
    ("message", "flagged"),
    [
        ("K = 3: нужно K = 4", "--K = 3: нужно K = 4"),
        ("experts_per_token = 0: при experts = 8", "--experts-per-token = 0: при --experts = 8"),
        ("lora_targets: задайте lora_rank", "--lora-targets: задайте --lora-rank"),
        ("block = 0: мало", "--kv-block = 0: мало"),
        ("gpu = 'tokens': ключ tokens", "--gpu = 'tokens': ключ --tokens"),
        ("tokens: config.json и num_experts", "--tokens: config.json и num_experts"),
        ("config.json: experts = 8", "config.json: experts = 8"),
    ],
)
def test_fields_of_an_error_become_flags(message: str, flagged: str) -> None:
    assert cli.flagged(message) == flagged


@pytest.mark.parametrize(
    ("written", "tokens"), [("15e12", 15 * 10**12), ("15 трлн", 15 * 10**12), ("1000", 1000), ("1e3", 1000), ("+5", 5)]
)
def test_tokens_may_be_written_with_an_exponent(run: Callable[..., Answer], written: str, tokens: int) -> None:
    code, output, _ = run("--preset", "gpt2", "--gpu", "t4", "--tokens", written, "--json")
    flops = json.loads(output)
    assert code == 0
    assert flops["training_time"]["flops"] == flops["flops_per_token"]["training"] * tokens


def test_long_integers_stay_exact(run: Callable[..., Answer]) -> None:
    """Итог длиннее 53 бит: число JSON не проходит через float."""
    sizes = shlex.split("--V 999999999989 --D 999999999961 --L 999983 --N 1 --F 3")
    answer = json.loads(run(*sizes, "--json")[1])
    assert answer["parameters"]["rows"]["embedding"] == 999_999_999_989 * 999_999_999_961
    assert answer["parameters"]["rows"]["ffn"] == 999_983 * 999_999_999_961 * 9


# --- ошибки -------------------------------------------------------------------------------------

ENGLISH = re.compile(
    r"\b(error|argument|invalid|expected|usage|choose|required|unrecognized|conversion|exceeds|compliant|cannot|"
    r"must|not|allowed|value|ambiguous|option|ignored|explicit|traceback|line)\b",
    re.IGNORECASE,
)


def check_refusal(answer: Answer, *fragments: str) -> None:
    """Код 2, пустой вывод, ровно одна строка, по-русски, без слов argparse и Python."""
    code, output, errors = answer
    assert (code, output) == (2, "")
    assert errors.startswith(f"{PROG}: ошибка: ")
    assert errors.endswith("\n")
    assert len(errors.splitlines()) == 1
    assert len(errors) < 400
    message = errors.removeprefix(f"{PROG}: ошибка: ")
    assert re.search("[а-яё]", message)
    words = re.sub(r"--[a-z-]+|'[^']*'", "", message)
    assert not ENGLISH.search(words), words
    for fragment in fragments:
        assert fragment in errors


@pytest.mark.parametrize("size", "VDLNKHFSB")
@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("0", "нужно целое число не меньше 1"),
        ("-5", "нужно целое число не меньше 1"),
        ("много", "«много»: нужно целое число"),
        ("1.5", "«1.5»: нужно целое число"),
        ("", "«»: нужно целое число"),
        ("0x10", "нужно целое число"),
        ("nan", "нужно целое число"),
        ("1e3", "нужно целое число"),
        (str(10**30), "больше предела 1\u00a0000\u00a0000\u00a0000\u00a0000".replace("\u00a0", " ")),
        ("9" * 5000, "нужно целое число"),
        ("-" + "9" * 30, "нужно целое число не меньше 1"),
    ],
    ids=["0", "-5", "text", "1.5", "empty", "hex", "nan", "exponent", "10^30", "5000 digits", "-10^30"],
)
def test_bad_sizes(run: Callable[..., Answer], size: str, value: str, rule: str) -> None:
    check_refusal(run(*LLAMA, f"--{size}={value}"), f"--{size}", rule)


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        ("", ["не хватает ключей --V, --D, --L, --N", "--preset", "--config"]),
        ("--V 5 --L 2", ["не хватает ключей --D, --N"]),
        ("--V 5 --D 12 --L 1 --N 5", ["--H не задан, а D = 12 не делится на N = 5"]),
        ("--preset gpt2 --K 5", ["--K = 5: N = 12 должно делиться на K"]),
        ("--preset llama-3-8b --experts 8", ["--experts-per-token = 0: при --experts = 8 нужно от 1 до 8"]),
        ("--preset llama-3-8b --experts-per-token 2", ["--experts-per-token = 2: у модели без экспертов"]),
        ("--preset llama-3-8b --window 0", ["--window = 0: нужно целое число не меньше 1"]),
        ("--preset llama-3-8b --learned-positions -1", ["--learned-positions = -1"]),
        ("--preset gpt2 --quantize awq-4-0", ["--quantize = 'awq-4-0': нужно одно из"]),
        ("--config=", ["--config: «»: файл не читается"]),
        ("--preset gpt2 --S 4096", ["--S = 4096: больше, чем --learned-positions = 1024"]),
        ("--preset gpt2 --quantize q4_k_m", ["--quantize = 'q4_k_m': нужно одно из: gptq-4-128"]),
        ("--preset gpt2 --kv-block 0", ["--kv-block = 0: нужно целое число не меньше 1"]),
        ("--preset gpt2 --kv paged", ["--kv: 'paged': нужно одно из"]),
        (
            "--V 9 --D 40 --L 1 --N 4 --quantize awq-4-128",
            ["--quantize = awq-4-128: проекция запроса: число входов матрицы — 40"],
        ),
        ("--preset lama-3-8b", ["--preset = 'lama-3-8b': такой модели нет", "llama-3-8b"]),
        ("--preset gpt2 --config x.json", ["--config: нельзя вместе с --preset"]),
        ("--preset gpt2 --gpu h1000", ["--gpu = 'h1000': такой карты нет в таблице"]),
        ("--preset gpt2 --gpu m4-max", ["--gpu = 'm4-max': подходит несколько карт", "m4-max-128"]),
        ("--preset gpt2 --gpu=", ["--gpu = ''"]),
        ("--preset gpt2 --gpu t4 --gpus 0", ["--gpus = 0: нужно целое число не меньше 1"]),
        ("--preset gpt2 --gpu t4 --gpus x", ["--gpus", "«x»: нужно целое число"]),
        ("--preset gpt2 --tokens 1e9", ["--tokens: чтобы посчитать время обучения, назовите карту"]),
        ("--preset gpt2 --gpu t4 --tokens 0", ["--tokens = 0"]),
        ("--preset gpt2 --gpu t4 --tokens=-1e9", ["--tokens = -1000000000"]),
        ("--preset gpt2 --gpu t4 --tokens 1.5", ["--tokens", "«1.5»: нужно целое число, можно как 15e12"]),
        ("--preset gpt2 --gpu t4 --tokens nan", ["--tokens", "«nan»: нужно целое число"]),
        ("--preset gpt2 --gpu t4 --tokens inf", ["--tokens", "«inf»: нужно целое число"]),
        ("--preset gpt2 --gpu t4 --tokens 1e300", ["--tokens", "больше предела"]),
        ("--preset gpt2 --gpu t4 --tokens ²", ["--tokens", "«²»: нужно целое число"]),
        ("--preset gpt2 --price 2", ["--price: цена нужна вместе с числом токенов"]),
        ("--preset gpt2 --gpu t4 --price 2", ["--price: цена нужна вместе с числом токенов"]),
        ("--preset gpt2 --gpu t4 --tokens 1e9 --price 0", ["--price = 0.0: нужно положительное число"]),
        ("--preset gpt2 --gpu t4 --tokens 1e9 --price -3", ["--price = -3.0: нужно положительное число"]),
        ("--preset gpt2 --gpu t4 --tokens 1e9 --price inf --json", ["--price = inf: нужно положительное число"]),
        ("--preset gpt2 --gpu t4 --tokens 1e9 --price 1e308 --json", ["--price = 1e+308"]),
        ("--preset gpt2 --gpu t4 --tokens 1e9 --price nan", ["--price = nan"]),
        ("--preset gpt2 --gpu t4 --tokens 1e9 --price рубль", ["--price", "«рубль»: нужно число"]),
        ("--preset gpt2 --mfu nan", ["--mfu = nan: доля пика, нужно число от 0,000001 до 1"]),
        ("--preset gpt2 --mfu inf", ["--mfu = inf: доля пика"]),
        ("--preset gpt2 --mfu 45", ["--mfu = 45.0: доля пика"]),
        ("--preset gpt2 --mfu 0", ["--mfu = 0.0: доля пика"]),
        ("--preset gpt2 --mfu -0.4", ["--mfu = -0.4: доля пика"]),
        ("--preset gpt2 --mfu 1e-320", ["--mfu = 1e-320: доля пика"]),
        ("--preset gpt2 --mfu половина", ["--mfu", "«половина»: нужно число"]),
        ("--preset gpt2 --recipe fp8", ["--recipe: 'fp8': нужно одно из", "mixed", "autocast"]),
        ("--preset gpt2 --optimizer lion", ["--optimizer: 'lion': нужно одно из", "adamw"]),
        ("--preset gpt2 --attention flash", ["--attention: 'flash': нужно одно из", "fused"]),
        ("--preset gpt2 --checkpointing yes", ["--checkpointing: 'yes': нужно одно из", "selective"]),
        ("--preset gpt2 --dtype int4", ["--dtype: 'int4': нужно одно из", "bf16"]),
        ("--preset gpt2 --convention half", ["--convention: 'half': нужно одно из", "causal"]),
        ("--preset gpt2 --json --explain", ["--explain: нельзя вместе с --json"]),
        ("--list-gpus --json", ["--json: нельзя вместе с --list-gpus"]),
        ("--preset", ["--preset: нужно значение"]),
        ("--preset gpt2 --V", ["--V: нужно значение"]),
        ("--preset gpt2 --json=1", ["--json: значение '1' здесь не нужно"]),
        ("--preset gpt2 --width 5", ["неизвестный аргумент: --width 5"]),
        ("--preset gpt2 --pres gpt2", ["неизвестный аргумент: --pres gpt2"]),
        ("gpt2", ["неизвестный аргумент: gpt2"]),
        ("--preset gpt2 --gpu m5-16 --tokens 1e9", ["--dtype = 'fp16': у карты m5-16 нет такой скорости"]),
    ],
)
def test_bad_input(run: Callable[..., Answer], arguments: str, fragments: list[str]) -> None:
    check_refusal(run(*arguments.split()), *fragments)


def test_empty_names_are_not_silently_ignored(run: Callable[..., Answer]) -> None:
    check_refusal(run(*LLAMA, "--config", ""), "--config")
    check_refusal(run(*LLAMA, "--preset", ""), "--preset = ''")


def test_long_and_many_line_words_make_one_short_line(run: Callable[..., Answer]) -> None:
    for flag in ("--V", "--mfu", "--tokens", "--preset", "--gpu"):
        check_refusal(run("--preset", "gpt2", f"{flag}=" + "ы" * 10_000), flag)
        check_refusal(run("--preset", "gpt2", f"{flag}=a\nb\u2028c\rd"), flag)


CONFIG = presets()["llama-3-8b"]["config"]


def nested(depth: int) -> str:
    return json.dumps(CONFIG).replace("128256", "[" * depth + "]" * depth)


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (b"", "это не JSON: строка 1, столбец 1"),
        (b'{"model_type": "llama",\n "vocab_size": }', "это не JSON: строка 2, столбец 16"),
        (b"[1, 2]", "в файле должен быть JSON-объект"),
        (b"null", "в файле должен быть JSON-объект"),
        ('{"model_type": "лама"}'.encode("cp1251"), "файл не в кодировке UTF-8"),
        (json.dumps(CONFIG).encode("utf-16"), "файл не в кодировке UTF-8"),
        (b"{}", "model_type = None: семейство не поддерживается; есть llama"),
        (b'{"model_type": "mamba"}', "model_type = 'mamba': семейство не поддерживается"),
        (b'{"model_type": ["llama"]}', "model_type = ['llama']: семейство не поддерживается"),
        (b'{"model_type": "llama"}', "num_attention_heads: обязательное поле не задано"),
        (json.dumps({**CONFIG, "vocab_size": -1}).encode(), "vocab_size = -1: нужно целое число не меньше 1"),
        (json.dumps({**CONFIG, "vocab_size": "x" * 10**5}).encode(), "vocab_size = 'xxx"),
        (json.dumps({**CONFIG, "vocab_size": 1e400}).encode(), "vocab_size = inf: нужно целое число"),
        (json.dumps({**CONFIG, "vocab_size": float("nan")}).encode(), "vocab_size = nan: нужно целое число"),
        (json.dumps({**CONFIG, "vocab_size": 10**30}).encode(), "vocab_size = число из 25"),
        (json.dumps(CONFIG).replace("128256", "9" * 5000).encode(), "слишком длинное число"),
        (json.dumps({**CONFIG, "num_key_value_heads": 5}).encode(), "K = 5: N = 32 должно делиться на K"),
        (json.dumps({**CONFIG, "tie_word_embeddings": "да"}).encode(), "tie_word_embeddings = 'да': нужно true или"),
        (json.dumps({**CONFIG, "quantization_config": {"bits": 4}}).encode(), "quantization_config: quant_method"),
        (json.dumps({**CONFIG, "num_hidden_layers": 10**12}).encode(), "num_hidden_layers = 1000000000000: больше"),
        (nested(90).encode(), "vocab_size = [[["),
        (nested(900).encode(), "слишком глубокая вложенность"),
        (nested(100_000).encode(), "слишком глубокая вложенность"),
        (b" " * (5 * 1024**2), "больше 4 МиБ, это не config.json"),
    ],
    ids=[
        "empty", "broken", "list", "null", "cp1251", "utf-16", "no family", "foreign family", "family list",
        "no sizes", "negative", "text", "infinity", "nan", "10^30", "5000 digits", "heads", "flag", "quantized",
        "10^12 layers", "deep", "deeper", "deepest", "huge",
    ],
)  # fmt: skip
def test_bad_config_files(run: Callable[..., Answer], tmp_path: Path, content: bytes, fragment: str) -> None:
    config = tmp_path / "c.json"
    config.write_bytes(content)
    code, output, errors = run("--config", str(config))
    check_refusal((code, output, errors.replace(str(config), "c.json")), "--config: c.json: ", fragment)


def test_missing_config_files(run: Callable[..., Answer], tmp_path: Path) -> None:
    for path, name in ((tmp_path / "нет.json", "нет.json"), (tmp_path, "config.json")):
        code, output, errors = run("--config", str(path))
        check_refusal((code, output, errors.replace(str(tmp_path), "")), f"{name}: файл не читается: такого файла нет")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="именованных каналов здесь нет")
def test_config_may_come_from_a_pipe(tmp_path: Path) -> None:
    """Размер канала заранее неизвестен: читается сколько пришло."""
    done = start("--config", "/dev/stdin", "--json", input=json.dumps(CONFIG).encode())
    assert done.returncode == 0
    assert json.loads(done.stdout)["parameters"]["total"] == 8_030_261_248


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="бесконечного устройства здесь нет")
def test_endless_config_is_not_read_whole(run: Callable[..., Answer]) -> None:
    check_refusal(run("--config", "/dev/zero"), "больше 4 МиБ")


# --- слова argparse -----------------------------------------------------------------------------

#: Фразы, до которых наш разбор не доходит: подкоманды, файлы аргументов, обязательные группы, устаревшие ключи.
UNREACHABLE = {
    "%(prog)s: error: %(message)s\n", "%(prog)s: warning: %(message)s\n", "%(heading)s:", " (default: %(default)s)",
    "'required' is an invalid argument for positionals", "cannot have multiple subparser arguments",
    "%r is not callable", "cannot merge actions - two groups are named %r", "can't open '%(filename)s': %(error)s",
    "mutually exclusive arguments must be optional", "one of the arguments %s is required",
    "invalid option string %(option)r: must start with a character %(prefix_chars)r",
    "dest= is required for options like %r", "invalid conflict_resolution value: %r", "unknown action {action!r}",
    "conflicting option string: %s", "conflicting option strings: %s", "subcommands", "unknown parser %(parser_name)r",
    "unknown parser %(parser_name)r (choices: %(choices)s)", "conflicting subparser: %s",
    "conflicting subparser alias: %s", "invalid %(type)s value: %(value)r", ".__call__() not defined",
    "expected %s argument", "expected %s arguments", "argument \"-\" with mode %r", "show this help message and exit",
    "argument '%(argument_name)s' is deprecated", "option '%(option)s' is deprecated",
    "command '%(parser_name)s' is deprecated", "unknown arguments: %s",
    "invalid choice: %(value)r, maybe you meant %(closest)r? (choose from %(choices)s)",
}  # fmt: skip


def phrases() -> set[str]:
    """Все строки, которые argparse этой версии Python отдаёт на перевод."""
    tree = ast.parse(Path(argparse.__file__).read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("_", "ngettext"):
            found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}
    return found


def test_every_phrase_of_argparse_is_translated_or_unreachable() -> None:
    """Новая версия Python с новой фразой провалит тест, а не покажет её читателю."""
    assert len(phrases()) > 15
    assert phrases() - set(cli._RUSSIAN) - UNREACHABLE == set()


def test_translations_keep_the_placeholders() -> None:
    """Позиционная подстановка обязана остаться ровно одной, именованную можно опустить."""
    for english, russian in cli._RUSSIAN.items():
        before, after = (re.findall(r"%(?:\(\w+\))?[rs]", phrase) for phrase in (english, russian))
        assert set(after) <= set(before)
        assert after.count("%s") == before.count("%s")
        assert not re.search("[а-яё]", english)


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_russian(run: Callable[..., Answer], flag: str) -> None:
    code, output, errors = run(flag)
    assert (code, errors) == (0, "")
    assert output.startswith("использование: nanolm budget")
    for name in (
        "V",
        "experts-per-token",
        "preset",
        "config",
        "recipe",
        "gpu",
        "tokens",
        "json",
        "explain",
        "list-gpus",
    ):
        assert f"--{name}" in output
    for section in ("модель:", "вопрос:", "вывод:", "ключи:"):
        assert section in output.splitlines()
    assert not re.search(r"\b(usage|options|optional|show|help message|default)\b", output.replace("--help", ""))
    assert max(map(len, output.splitlines())) <= 110


def test_help_does_not_depend_on_the_terminal(run: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run("--help")
    monkeypatch.setenv("COLUMNS", "40")
    assert run("--help") == expected


# --- консольная команда -------------------------------------------------------------------------


@pytest.fixture
def nanolm(run: Callable[..., Answer], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(*arguments: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["nanolm", *arguments])
        try:
            code = cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_console_script_is_declared() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"nanolm": "nanolm.cli:main"}
    assert project["dependencies"] == []


def test_console_script_budget(nanolm: Any, run: Callable[..., Answer]) -> None:
    assert nanolm("budget", "--preset", "gpt2", "--json") == run("--preset", "gpt2", "--json")
    check_refusal(nanolm("budget", "--V", "x"), "--V")


@pytest.mark.parametrize("arguments", [(), ("-h",), ("--help",)])
def test_console_script_without_a_command(nanolm: Any, arguments: tuple[str, ...]) -> None:
    code, output, errors = nanolm(*arguments)
    assert (code, errors) == (0, "")
    assert output.startswith("использование: nanolm {budget,diff,interview,probe}")


@pytest.mark.parametrize("word", ["bujet", "--version", "--V"])
def test_console_script_with_an_unknown_command(nanolm: Any, word: str) -> None:
    code, output, errors = nanolm(word)
    assert (code, output) == (2, "")
    assert errors == f"nanolm: ошибка: {word}: нужно одно из: budget, diff, interview, probe\n"


def test_probe_without_torch_is_one_line(nanolm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nanolm.probe_cli", None)
    code, output, errors = nanolm("probe", "verify")
    assert (code, output) == (2, "")
    assert errors.startswith("nanolm probe: ошибка: не хватает пакета nanolm.probe_cli")
    assert len(errors.splitlines()) == 1


# --- процесс целиком ----------------------------------------------------------------------------


def test_module_answers_like_the_function(run: Callable[..., Answer]) -> None:
    done = start("--preset", "gpt2", "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().replace("\r\n", "\n") == run("--preset", "gpt2", "--json")[1]


def test_module_refuses_in_its_own_name() -> None:
    done = start("--V", "0", "--D", "1", "--L", "1", "--N", "1", env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    assert (done.returncode, done.stdout) == (2, b"")
    errors = done.stderr.decode("utf-8")
    assert errors.splitlines() == ["python -m nanolm.budget: ошибка: --V = 0: нужно целое число не меньше 1"]


@pytest.mark.parametrize(
    "python", [("-W", "error", "-X", "dev", "-X", "warn_default_encoding"), ("-OO",), ("-I", "-S")], ids=" ".join
)
@pytest.mark.parametrize("output", ["--json", "--explain", "--list-gpus", "--list-presets"])
def test_no_warnings_and_no_docstrings_needed(python: tuple[str, ...], output: str) -> None:
    """Предупреждения — ошибки; без docstring и без site-packages ответ тот же."""
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, *python, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{ENTRY}"]
    arguments = ["--preset", "gpt2", output] if output in ("--json", "--explain") else [output]
    done = subprocess.run([*command, *arguments], env=environment, cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode("utf-8")) == (0, "")
    assert len(done.stdout) > 500


ENTRY = "import runpy; sys.argv[0] = 'x'; runpy.run_module('nanolm.budget', run_name='__main__', alter_sys=True)"


def test_module_run_has_no_warnings() -> None:
    done = start("--preset", "gpt2", python=("-W", "error", "-X", "dev"))
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "arguments", [("--preset", "gpt2"), ("--preset", "gpt2", "--json"), ("--help",), ("--list-gpus",)]
)
def test_closed_pipe_is_not_an_error(arguments: tuple[str, ...]) -> None:
    """`… | head -0`: читателя нет ещё до первого байта."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = start(*arguments, stdout=writer, python=("-W", "error", "-X", "dev"))
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="полного устройства здесь нет")
def test_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = start("--preset", "gpt2", stdout=full, env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    assert done.returncode == 2
    assert done.stderr.decode("utf-8").splitlines() == [
        "python -m nanolm.budget: ошибка: ответ не записан: на устройстве вывода нет места или оно недоступно"
    ]


def test_total_of_presets_in_the_list_of_the_help_example(run: Callable[..., Answer]) -> None:
    """Пример из справки работает как написан."""
    example = next(line for line in run("--help")[1].splitlines() if line.startswith("Пример: "))
    arguments = example.removeprefix(f"Пример: {PROG} ").split()
    code, output, errors = run(*arguments)
    assert (code, errors) == (0, "")
    assert f"{parameter_breakdown(preset('llama-3-8b')).total:,}".replace(",", "\u00a0") in output


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("--preset", "gpt2", "--list-gpus", "--vs", "--B", "8"), "--list-gpus"),
        (("--preset", "gpt2", "--gpu", "t4", "--vs", "--B", "8"), "--gpu"),
        (("--preset", "gpt2", "--vs", "--explain"), "--explain"),
        (("--config", "-", "--vs", "--B", "2"), "--config"),
    ],
)
def test_diff_refuses_what_it_would_ignore(nanolm: Any, words: tuple[str, ...], flag: str) -> None:
    code, output, errors = nanolm("diff", *words)
    assert (code, output) == (2, "")
    assert errors.startswith(f"nanolm diff: ошибка: {flag}: ")
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("words", [("--gpus", "8"), ("--mfu", "0.3")])
def test_budget_refuses_what_it_would_ignore(nanolm: Any, words: tuple[str, ...]) -> None:
    code, output, errors = nanolm("budget", "--preset", "gpt2", *words)
    assert (code, output) == (2, "")
    assert errors.startswith(f"nanolm budget: ошибка: {words[0]}: ")


# --- реализация ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--preset mixtral-8x7b --implementation transformers", "а это 'mixtral'"),
        ("--V 9 --D 8 --L 1 --N 2 --qk-norm --norm-bias --implementation transformers", "--norm-bias = True: память"),
        ("--preset gemma-2b --implementation transformers", "--implementation = 'transformers': память transformers"),
        ("--preset llama-3.2-1b --lora-rank 8", "--lora-rank = 8: адаптеры описаны для transformers"),
        ("--preset llama-3.2-1b --lora-targets nonsense", "--lora-targets: матрицы с адаптерами нужны вместе с рангом"),
        ("--preset llama-3.2-1b --implementation jax", "--implementation: 'jax': нужно одно из"),
        ("--preset llama-3.2-1b --implementation transformers --lora-rank 8 --lora-targets head", "--lora-targets"),
    ],
)
def test_implementation_refuses_by_flag(flags: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.budget(flags.split(), "nanolm budget")
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_implementation_reads_the_family_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Один и тот же размер: llama описана, gemma — нет."""
    sizes = {
        "vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 64, "head_dim": 8, "max_position_embeddings": 64,
    }  # fmt: skip
    path = tmp_path / "config.json"
    for family, source in itertools.product(("llama", "gemma"), (str(path), "-")):
        text = json.dumps({**sizes, "model_type": family})
        path.write_text(text, encoding="utf-8")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        argv = ["--config", source, "--implementation", "transformers", "--json"]
        if family == "llama":
            assert cli.budget(argv, "nanolm budget") == 0
            assert json.loads(capsys.readouterr().out)["memory"]["implementation"] == "transformers"
            continue
        with pytest.raises(SystemExit):
            cli.budget(argv, "nanolm budget")
        assert "а это 'gemma'" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="закрытый поток ошибок передаёт оболочка POSIX")
@pytest.mark.parametrize("stream", ["2>&-", *(["2>/dev/full"] if Path("/dev/full").exists() else [])])
def test_error_that_nobody_reads_still_ends_with_two(stream: str) -> None:
    command = f'"{sys.executable}" -m nanolm.budget --B x {stream}'
    assert subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, check=False).returncode == 2


def test_long_value_is_cut_in_the_message(run: Callable[..., Answer]) -> None:
    check_refusal(run("--preset", "gpt2", "--recipe", "9" * 5000), "--recipe", "нужно одно из")
