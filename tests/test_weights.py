"""Папка Hugging Face: сверка с transformers в обе стороны и отказы на испорченных папках."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from nanolm.model import NanoLM
from nanolm.spec import Spec
from nanolm.weights import file_name, load

transformers = pytest.importorskip("transformers")
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

#: N·H ≠ D, GQA: геометрия, на которой перепутанные оси не сойдутся.
BASE: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
    "head_dim": 10, "intermediate_size": 56, "max_position_embeddings": 64, "initializer_range": 0.2,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama tied, long rope": ("Llama", {"tie_word_embeddings": True, "rope_parameters": {"rope_theta": 500_000.0}}),
    "llama MHA": ("Llama", {"num_key_value_heads": 6}),
    "llama biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama3 rope": ("Llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama linear rope": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral window": ("Mistral", {"sliding_window": 7}),
    "qwen2": ("Qwen2", {}),
    "qwen2 windows": ("Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"rope_parameters": {"rope_theta": 1_000_000.0}}),
    "qwen3 tied, biases": ("Qwen3", {"tie_word_embeddings": True, "attention_bias": True}),
    "mixtral": ("Mixtral", {"num_local_experts": 5, "num_experts_per_tok": 3}),
    "mixtral window": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 6}),
}  # fmt: skip


def peer(case: str) -> Any:
    """Случайная модель transformers: нормы и смещения тоже случайны, иначе их путаницу не видно."""
    family, fields = CASES[case]
    torch.manual_seed(sum(map(ord, case)))
    config = getattr(transformers, f"{family}Config")(**{**BASE, **fields})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def tokens(B: int = 2, T: int = 33) -> torch.Tensor:
    return torch.randint(0, BASE["vocab_size"], (B, T), generator=torch.Generator().manual_seed(1))


@pytest.fixture(params=list(CASES))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, NanoLM, Path]:
    theirs = peer(request.param)
    theirs.save_pretrained(tmp_path)
    return theirs, NanoLM.from_pretrained(tmp_path), tmp_path


@pytest.mark.parametrize("attention", ["fused", "naive"])
def test_logits_and_gradients_equal_transformers(pair: tuple[Any, NanoLM, Path], attention: str) -> None:
    theirs, _, folder = pair
    ours = load(folder, attention=attention)
    x = tokens()
    theirs_logits, ours_logits = theirs(x).logits, ours(x)
    assert (theirs_logits - ours_logits).abs().max() < 1e-5 * max(1.0, theirs_logits.abs().max().item())
    assert theirs_logits.abs().max() > 0.1, "логиты почти нулевые: сверка ничего не проверяет"
    targets = x[:, 1:]
    torch.nn.functional.cross_entropy(theirs_logits[:, :-1].flatten(0, 1), targets.flatten()).backward()
    ours.loss(x[:, :-1], targets).backward()
    expected = peer_gradients(theirs, ours)
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None
        difference = (parameter.grad - expected[name]).abs().max().item()
        assert difference < 1e-4 * max(1.0, expected[name].abs().max().item()), (name, difference)


def peer_gradients(theirs: Any, ours: NanoLM) -> dict[str, torch.Tensor]:
    """Градиенты transformers под нашими именами; его MoE хранит экспертов одной пачкой."""
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    renamed = {}
    for name, _ in ours.named_parameters():
        if ".experts." in name:
            layer, expert, matrix = (name.split(".")[i] for i in (1, 4, 5))
            packed = gradients[f"model.layers.{layer}.mlp.experts.{'down' if matrix == 'down' else 'gate_up'}_proj"]
            rows = packed[int(expert)]
            half = rows.shape[0] // 2
            renamed[name] = {"down": rows, "gate": rows[:half], "up": rows[half:]}[matrix]
        else:
            theirs_name = file_name(name, ours.spec).replace("block_sparse_moe", "mlp")
            renamed[name] = gradients[theirs_name]
    return renamed


def test_greedy_decoding_equals_transformers_with_and_without_cache(pair: tuple[Any, NanoLM, Path]) -> None:
    theirs, ours, _ = pair
    prompt = tokens(1, 9)
    answers = [
        theirs.generate(prompt, max_new_tokens=30, do_sample=False, use_cache=cache)[0, 9:].tolist()
        for cache in (True, False)
    ]
    with_cache = ours.generate(prompt.tolist(), 30)[0]
    without_cache = prompt
    for _ in range(30):
        without_cache = torch.cat((without_cache, ours(without_cache)[:, -1:].argmax(-1)), 1)
    assert with_cache == without_cache[0, 9:].tolist() == answers[0] == answers[1]
    assert len(set(with_cache)) > 3, "одинаковые токены: сверка почти ничего не проверяет"


def test_bf16_differs_from_transformers_no_more_than_its_own_noise(pair: tuple[Any, NanoLM, Path]) -> None:
    theirs, _, folder = pair
    x = tokens()
    exact = theirs(x).logits
    theirs_error = (theirs.bfloat16()(x).logits.float() - exact).abs().mean()
    half = load(folder, dtype=torch.bfloat16)
    assert half.embedding.weight.dtype == torch.bfloat16
    ours_error = (half(x).float() - exact).abs().mean()
    assert ours_error < 1.5 * theirs_error
    assert ours_error > 0


def test_save_pretrained_is_read_by_transformers(pair: tuple[Any, NanoLM, Path], tmp_path: Path) -> None:
    theirs, ours, _ = pair
    folder = tmp_path / "ours"
    ours.save_pretrained(folder, max_shard_bytes=40_000)
    assert (folder / "model.safetensors.index.json").is_file()
    again, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert type(again) is type(theirs) or ours.spec.window is None
    x = tokens()
    assert torch.equal(again(x).logits, theirs(x).logits)
    assert load(folder).spec == ours.spec


def test_saving_over_the_loaded_folder_keeps_the_weights(tmp_path: Path) -> None:
    """Параметры — страницы файла: запись поверх, своя или чужая, не должна их испортить."""
    peer("llama").save_pretrained(tmp_path)
    model = load(tmp_path)
    before = [parameter.clone() for parameter in load(tmp_path).parameters()]
    NanoLM(model.spec).save_pretrained(tmp_path)
    assert not torch.equal(load(tmp_path).embedding.weight, before[0])
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    model.save_pretrained(tmp_path)
    model.save_pretrained(tmp_path, max_shard_bytes=30_000)
    assert not (tmp_path / "model.safetensors").exists()
    assert all(torch.equal(a, b) for a, b in zip(before, load(tmp_path).parameters(), strict=True))


@pytest.mark.parametrize(
    "fields", [{"norm_bias": True}, {"gated_ffn": False}, {"window": (None, 5)}, {"window": (4, 5)}]
)
def test_model_without_a_family_is_not_written(fields: dict[str, Any], tmp_path: Path) -> None:
    model = NanoLM(Spec(V=11, D=8, L=2, N=2, S=16, **fields))
    with pytest.raises(ValueError, match="transformers"):
        model.save_pretrained(tmp_path / "x")
    assert not (tmp_path / "x").exists()


# --- Память --------------------------------------------------------------------------------------

_PEAK = """
import resource, sys
from nanolm.model import NanoLM

def anonymous():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) * 1024

NanoLM.from_pretrained(sys.argv[2])  # первый вызов подгружает части torch: это не веса
base = anonymous()
model = NanoLM.from_pretrained(sys.argv[1])
loaded = anonymous() - base
total = sum(float(parameter.detach().sum()) for parameter in model.parameters())
print(loaded, anonymous() - base, sum(parameter.nbytes for parameter in model.parameters()))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="счётчик памяти процесса есть только в Linux")
def test_loading_makes_no_second_copy(tmp_path: Path) -> None:
    model = NanoLM(Spec(V=4000, D=512, L=8, N=8, S=64))
    model.save_pretrained(tmp_path / "big")
    NanoLM(Spec(V=8, D=8, L=1, N=1, S=8)).save_pretrained(tmp_path / "small")
    command = [sys.executable, "-c", _PEAK, str(tmp_path / "big"), str(tmp_path / "small")]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded, read, weights = map(int, out.stdout.split())
    assert weights > 100e6
    # Страницы файла принадлежат файлу: собственной памяти процесса не прибавляется и после чтения.
    assert loaded < 0.1 * weights
    assert read < 0.1 * weights


# --- Отказы --------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Исправная папка из трёх частей."""
    NanoLM(Spec(V=97, D=48, L=3, N=6, K=2, H=10, F=56, S=64)).save_pretrained(tmp_path, max_shard_bytes=60_000)
    assert len(list(tmp_path.glob("*.safetensors"))) >= 2
    return tmp_path


def edit_config(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def first_shard(folder: Path) -> Path:
    return sorted(folder.glob("*.safetensors"))[0]


def truncate(folder: Path) -> None:
    path = first_shard(folder)
    os.truncate(path, path.stat().st_size - 1000)


def rename_weight(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = first_shard(folder)
    weights = load_file(path)
    weights["model.layers.0.self_attn.bonus.weight"] = weights.pop("model.layers.0.self_attn.q_proj.weight")
    save_file(weights, path)


def integer_weight(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = first_shard(folder)
    weights = load_file(path)
    weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"].to(torch.int8)
    save_file(weights, path)


BROKEN: dict[str, tuple[Any, tuple[str, ...]]] = {
    "нет config.json": (lambda f: (f / "config.json").unlink(), ("config.json", "такого файла нет")),
    "нет части": (lambda f: first_shard(f).unlink(), ("model-00001", "нет части весов")),
    "нет весов": (
        lambda f: [path.unlink() for path in f.iterdir() if path.name != "config.json"],
        ("нет весов", "model.safetensors"),
    ),
    "обрезанный файл": (truncate, ("model-00001", "обрезан", "байт")),
    "пустой файл": (lambda f: first_shard(f).write_bytes(b""), ("model-00001", "обрезан")),
    "другая ширина": (
        lambda f: edit_config(f, intermediate_size=57), ("gate_proj.weight", "(56, 48)", "(57, 48)"),
    ),
    "другой словарь": (lambda f: edit_config(f, vocab_size=96), ("embed_tokens.weight", "(97, 48)", "(96, 48)")),
    "слоёв больше": (lambda f: edit_config(f, num_hidden_layers=4), ("model.layers.3.", "нет тензора", "9")),
    "слоёв меньше": (lambda f: edit_config(f, num_hidden_layers=2), ("model.layers.2.", "лишний тензор", "9")),
    "чужое имя": (rename_weight, ("нет тензора", "q_proj")),
    "целые веса": (integer_weight, ("embed_tokens", "I8")),
    "неизвестный RoPE": (
        lambda f: edit_config(f, rope_parameters={"rope_type": "yarn", "factor": 4.0}), ("rope_type", "yarn"),
    ),
    "RoPE без множителя": (
        lambda f: edit_config(f, rope_parameters={"rope_type": "linear", "rope_theta": 1e4}), ("factor", "None"),
    ),
    "часть головы": (
        lambda f: edit_config(f, rope_parameters={"partial_rotary_factor": 0.5}), ("partial_rotary_factor", "0.5"),
    ),
    "другая активация": (lambda f: edit_config(f, hidden_act="gelu"), ("hidden_act", "gelu")),
    "слоёв сто тысяч": (
        lambda f: edit_config(f, num_hidden_layers=100_000), ("config.json", "num_hidden_layers = 100000", "тензоров"),
    ),
    "нулевой ε": (lambda f: edit_config(f, rms_norm_eps=0), ("rms_norm_eps", "0")),
    "ε больше float": (lambda f: edit_config(f, rms_norm_eps=10**400), ("rms_norm_eps", "положительное")),
    "огромный контекст": (
        lambda f: edit_config(f, max_position_embeddings=10**12), ("S = 1000000000000", "таблицы RoPE", "меньший S"),
    ),
    "квантованные веса": (
        lambda f: edit_config(f, quantization_config={"quant_method": "awq"}), ("quantization_config", "awq-4-128"),
    ),
    "чужое семейство": (lambda f: edit_config(f, model_type="mamba"), ("model_type", "mamba")),
    "указатель — не JSON": (
        lambda f: (f / "model.safetensors.index.json").write_text("{"), ("index.json", "weight_map"),
    ),
    "указатель уводит из папки": (
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../b.safetensors"}}'),
        ("weight_map", "../b.safetensors"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(BROKEN))
def test_broken_folder_is_refused_by_name(case: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil, words = BROKEN[case]
    load(folder)
    spoil(folder)
    # До отказа ни один тензор не читается и не создаётся.
    monkeypatch.setattr(NanoLM, "load_state_dict", lambda *_: pytest.fail("веса уже читаются"))
    with pytest.raises(ValueError, match=r"[а-яё]") as caught:
        load(folder)
    message = str(caught.value)
    assert all(word in message for word in words), message


ODD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"dtype": torch.int8}, "dtype = torch.int8"),
    ({"dtype": "bf16"}, "dtype = 'bf16'"),
    ({"device": "bogus"}, "device = 'bogus'"),
    ({"device": "cuda:99"}, "device = 'cuda:99'"),
    ({"S": 10**12}, "таблицы RoPE"),
]


@pytest.mark.parametrize(("options", "word"), ODD_OPTIONS)
def test_odd_options_are_refused_before_reading(
    options: dict[str, Any], word: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NanoLM, "load_state_dict", lambda *_: pytest.fail("веса уже читаются"))
    with pytest.raises(ValueError, match=r"[а-яё]") as caught:
        load(folder, **options)
    assert word in str(caught.value)


def test_too_many_layers_are_refused_before_the_model_is_built(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit_config(folder, num_hidden_layers=100_000)
    monkeypatch.setattr("nanolm.weights.NanoLM", lambda *_, **__: pytest.fail("модель уже строится"))
    with pytest.raises(ValueError, match="num_hidden_layers"):
        load(folder)


def test_smaller_context_may_be_asked_for(folder: Path) -> None:
    full, short = load(folder), load(folder, S=16)
    x = tokens(1, 16)
    assert short.spec.S == 16
    assert torch.equal(full(x), short(x))
    with pytest.raises(ValueError, match="S = 16"):
        short(tokens(1, 17))


def test_old_configs_name_the_rope_base_at_the_top_level(folder: Path) -> None:
    shutil.copy(folder / "config.json", folder / "saved.json")
    edit_config(folder, rope_parameters=None, rope_theta=777.0)
    assert load(folder).rope_base == 777.0
    edit_config(folder, rope_theta=777.0, rope_scaling={"type": "linear", "factor": 2.0})
    model = load(folder)
    assert model.rope_base == 777.0
    assert model.rope_scaling == {"rope_type": "linear", "factor": 2.0}
