"""config.json → Spec: поля семейств, окна по слоям, отказы; независимый ответчик — сам transformers."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from nanolm.budget import flops_per_token, parameter_breakdown
from nanolm.spec import Spec
from nanolm.zoo import (
    ABSENT,
    FAMILIES,
    MAX_CONFIG_BYTES,
    MAX_LAYERS,
    TEXT_DEFAULTS,
    WRAPPERS,
    aliases,
    describe,
    describe_preset,
    from_config,
    from_text,
    load,
    preset,
    presets,
)

ROOT = Path(__file__).parents[1]
LLAMA = presets()["llama-3-8b"]["config"]
QWEN = {**presets()["qwen2.5-7b"]["config"], "num_hidden_layers": 4}


# --- откуда читается ----------------------------------------------------------------------------


def test_dictionary_path_and_folder_give_one_spec(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA), encoding="utf-8")
    expected = Spec(V=128256, D=4096, L=32, N=32, K=8, F=14336, S=8192)
    for source in (LLAMA, config, str(config), tmp_path, str(tmp_path)):
        assert from_config(source) == expected


@pytest.mark.parametrize(
    "encode", [lambda text: text.encode("utf-8-sig"), lambda text: text.replace("\n", "\r\n").encode()]
)
def test_bom_and_crlf_are_read(tmp_path: Path, encode: Any) -> None:
    (tmp_path / "config.json").write_bytes(encode(json.dumps(LLAMA, indent=1)))
    assert from_config(tmp_path) == from_config(LLAMA)


def test_source_is_not_changed() -> None:
    before = json.dumps(LLAMA)
    from_config(LLAMA)
    assert json.dumps(LLAMA) == before


@pytest.mark.parametrize("source", [None, 5, ["llama"], b"config.json"])
def test_other_sources_are_refused(source: object) -> None:
    with pytest.raises(ValueError, match=r"config = .*: нужен путь или словарь"):
        from_config(source)  # type: ignore[arg-type]


def test_limit_is_on_bytes_read(tmp_path: Path) -> None:
    """Ровно предел — ещё читается, на байт больше — уже нет."""
    text = json.dumps(LLAMA)
    config = tmp_path / "config.json"
    config.write_text(text + " " * (MAX_CONFIG_BYTES - len(text)), encoding="utf-8")
    assert from_config(config) == from_config(LLAMA)
    config.write_text(text + " " * (MAX_CONFIG_BYTES - len(text) + 1), encoding="utf-8")
    with pytest.raises(ValueError, match="больше 4 МиБ"):
        from_config(config)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """«-» — стандартный ввод; в ошибке он так и назван."""

    def given(data: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    given(json.dumps(LLAMA).encode())
    assert from_config("-") == from_config(LLAMA)
    for data, message in (
        (b"{", "стандартный ввод: это не JSON: строка 1"),
        (b"{}", "стандартный ввод: model_type = None"),
        (b" " * (MAX_CONFIG_BYTES + 1), "больше 4 МиБ"),
    ):
        given(data)
        with pytest.raises(ValueError, match=message):
            from_config("-")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a\x00b", "это не имя файла"),
        ("\ud800", "файл"),
        ("нет\n\rтакого", "нет такого: файл не читается: такого файла нет"),
        ("х" * 5000, "файл не читается"),
        ("", "файл не читается: такого файла нет"),
    ],
)
def test_odd_paths_are_one_russian_line(path: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        from_config(path)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 300


def test_closed_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(ValueError, match="стандартный ввод: файл не читается"):
        from_config("-")


# --- поля ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"head_dim": 96}, "H", 96),
        ({"head_dim": None}, "H", 128),
        ({"num_key_value_heads": None}, "K", 32),
        ({"tie_word_embeddings": True}, "tie_embeddings", True),
        ({"tie_word_embeddings": None}, "tie_embeddings", False),
        ({"attention_bias": True}, "qkv_bias", True),
        ({"attention_bias": True}, "out_bias", True),
        ({"mlp_bias": True}, "ffn_bias", True),
        ({"max_position_embeddings": 131_072}, "S", 131_072),
    ],
)
def test_fields_of_llama(changes: dict[str, Any], field: str, value: object) -> None:
    """`attention_bias` у Llama добавляет смещение и выходной проекции: публичный калькулятор его терял."""
    assert getattr(from_config({**LLAMA, **changes}), field) == value


def test_qwen2_has_biases_only_at_q_k_v() -> None:
    """Смещение выходной проекции, которого нет, завышает Qwen2.5-7B на 28·3584 параметров."""
    spec = preset("qwen2.5-7b")
    assert (spec.qkv_bias, spec.out_bias, spec.ffn_bias) == (True, False, False)
    assert parameter_breakdown(spec).total == 7_615_616_512 == 7_615_716_864 - 28 * 3584


def test_qwen3_head_size_is_its_own() -> None:
    """H = 128, а D/N было бы 80: кеш вышел бы 720 МиБ вместо 1152."""
    spec = preset("qwen3-4b")
    assert (spec.H, spec.D // spec.N, spec.qk_norm) == (128, 80, True)
    assert from_config({**presets()["qwen3-4b"]["config"], "head_dim": None}).H == 128


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({}, (None,) * 4),
        ({"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 3}, (None, None, None, 64)),
        ({"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}, (64,) * 4),
        ({"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 9}, (None,) * 4),
        (
            {
                "use_sliding_window": True, "sliding_window": 64,
                "layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention"],
            },
            (64, None, None, 64),
        ),
    ],
)  # fmt: skip
def test_windows_of_qwen(changes: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    assert from_config({**QWEN, **changes}).windows == windows


def test_window_of_mistral_is_in_every_layer() -> None:
    assert preset("mistral-7b-v0.1").window == 4096
    assert preset("mistral-7b-v0.3").window is None
    assert from_config({**presets()["mistral-7b-v0.1"]["config"], "sliding_window": None}).window is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**QWEN, "use_sliding_window": True, "layer_types": ["full_attention"]}, "layer_types: нужен список из 4"),
        ({**QWEN, "use_sliding_window": True, "layer_types": "full"}, "layer_types: нужен список из 4"),
        (
            {**QWEN, "use_sliding_window": True, "layer_types": ["full_attention"] * 3 + ["chunked_attention"]},
            "layer_types: 'chunked_attention': нужно одно из: sliding_attention, full_attention",
        ),
        ({**QWEN, "use_sliding_window": True, "layer_types": [[]] * 4}, "layer_types: []: нужно одно из"),
        ({**LLAMA, "vocab_size": 3.0}, "vocab_size = 3.0: нужно целое число"),
        ({**LLAMA, "num_hidden_layers": MAX_LAYERS + 1}, "num_hidden_layers = 100001: больше предела"),
        ({**LLAMA, "hidden_size": 100}, "head_dim: обязательное поле не задано"),
        ({**LLAMA, "attention_bias": 1}, "attention_bias = 1: нужно true или false"),
        ({**LLAMA, "model_type": "LLAMA"}, "model_type = 'LLAMA': семейство не поддерживается"),
        ({**LLAMA, "model_type": "x" * 10_000}, "семейство не поддерживается; есть llama, mistral"),
        (
            {**LLAMA, "quantization_config": {"quant_method": "hqq"}},
            "quantization_config: quant_method = 'hqq': такое квантование",
        ),
    ],
)
def test_refusals_name_the_field(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        from_config(config)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "olmoe", "gpt_oss"])
@pytest.mark.parametrize("name", ["num_experts", "num_local_experts"])
def test_number_of_experts_under_either_name(family: str, name: str) -> None:
    """transformers 5 записывает число экспертов Qwen3-MoE под новым именем: умолчание 128 было бы догадкой."""
    config = {"model_type": family, **SMALL, "moe_intermediate_size": 33, "num_experts_per_tok": 2, name: 5}
    assert from_config(config).experts == 5


@pytest.mark.parametrize("field", [name for name in LLAMA if name not in {"model_type", "tie_word_embeddings"}])
def test_every_size_of_a_config_matters(field: str) -> None:
    """Размер, который прочли и забыли, — ошибка; здесь каждый меняет Spec."""
    changed = from_config({**LLAMA, field: LLAMA[field] * 2})
    assert changed != from_config(LLAMA)


# --- языковая часть модели с картинками -----------------------------------------------------------


def test_text_part_of_gemma3_is_the_preset() -> None:
    """config.json Gemma 3 4B пишет лишь то, что отличается от умолчаний; остальное знает семейство."""
    text = {
        "hidden_size": 2560, "intermediate_size": 10_240, "model_type": "gemma3_text", "num_hidden_layers": 34,
        "sliding_window": 1024, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    }  # fmt: skip
    config = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 1152}}
    assert from_config(config) == preset("gemma-3-4b")
    assert parameter_breakdown(from_config(config)).total == 3_880_263_168


def test_text_part_of_llava_has_the_defaults_of_llama() -> None:
    """У LLaVA 1.5 7B во вложенной части одно отличие от Llama-2-7B: словарь длиннее на 64 строки."""
    text = {"model_type": "llama", "vocab_size": 32_064, "max_position_embeddings": 4096}
    assert from_config({"model_type": "llava", "text_config": text}) == preset("llama-2-7b").replace(V=32_064)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "gemma3"}, "text_config = None: нужен объект"),
        ({"model_type": "gemma3", "text_config": [1]}, r"text_config = \[1\]: нужен объект"),
        ({"model_type": "llava", "text_config": {"model_type": "mamba"}}, "model_type = 'mamba': семейство"),
        ({"model_type": "llava", "text_config": {"model_type": {}}}, "model_type = {}: семейство"),
        ({"model_type": "llava", "text_config": {"model_type": "qwen2"}}, "num_attention_heads: обязательное поле"),
        ({"model_type": "gemma3", "text_config": {"hidden_size": -1}}, "hidden_size = -1"),
        ({"model_type": "gemma3", "text_config": {"tie_word_embeddings": False}}, "назовите поле на верхнем уровне"),
        ({"model_type": "mistral3", "text_config": {}}, "tie_word_embeddings: назовите поле на верхнем уровне"),
        ({"model_type": "gemma3", "tie_word_embeddings": 3, "text_config": {}}, "tie_word_embeddings = 3"),
        ({"model_type": "llava", "text_config": {"model_type": "llava", "text_config": {}}}, "model_type = 'llava'"),
    ],
)
def test_refusals_of_wrappers(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_config(config)


# --- пресеты ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", presets())
def test_preset_record_is_complete(name: str) -> None:
    entry = presets()[name]
    assert set(entry) == {"title", "source", "total", "config"}
    assert entry["source"].startswith("https://")
    assert entry["title"]
    assert entry["config"]["model_type"] in FAMILIES
    assert preset(name) == from_config(entry["config"])


def test_promised_presets_are_there() -> None:
    for name in ("llama-3-8b", "llama-2-7b", "mistral-7b-v0.1", "mixtral-8x7b", "qwen2.5-7b", "qwen3-8b", "gpt2"):
        assert name in presets()
    assert preset("LLAMA-3-8B") == preset("llama-3-8b")


def test_unknown_preset_suggests_close_names() -> None:
    with pytest.raises(ValueError, match=r"preset = 'llama-3-8': такой модели нет; похожие: .*llama-3-8b"):
        preset("llama-3-8")
    with pytest.raises(ValueError, match="похожие: llama-2-7b"):
        preset("щщщ")
    with pytest.raises(ValueError, match=r"похожие: .*llama-3\.1-8b"):
        preset("meta-llama/Llama-3.1-9B")


@pytest.mark.parametrize(
    ("name", "key", "S"),
    [
        ("llama-3.1-8b", "llama-3-8b", 131_072),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3-8b", 131_072),
        ("Meta-Llama-3.1-8B", "llama-3-8b", 131_072),
        ("Llama-3.3-70B-Instruct", "llama-3-70b", 131_072),
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b", 8192),
        ("Meta-Llama-3-8B-Instruct", "llama-3-8b", 8192),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b", 32_768),
        ("openai/gpt-oss-20b", "gpt-oss-20b", 131_072),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3", 163_840),
        (" GPT2 ", "gpt2", 1024),
        ("openai-community/gpt2", "gpt2", 1024),
    ],
)
def test_other_names_of_the_same_geometry(name: str, key: str, S: int) -> None:
    assert preset(name) == preset(key).replace(S=S)


def test_aliases_are_complete_and_do_not_hide_presets() -> None:
    """У каждого имени есть пресет и репозиторий, и ни одно имя не называет двух моделей."""
    known, others = presets(), aliases()
    assert not set(known) & set(others)
    repos = [entry["source"].split("/", 3)[3].partition("/blob/")[0].lower() for entry in known.values()]
    repos += [repo.lower() for entry in others.values() for repo in entry["repos"]]
    assert len(set(repos)) == len(repos)
    assert len({repo.rpartition("/")[2] for repo in repos}) == len(repos)
    for key, entry in others.items():
        assert set(entry) - {"config"} == {"preset", "repos"}, key
        assert set(entry.get("config", {})) <= {"max_position_embeddings"}, "геометрия обязана совпасть"
        assert preset(key) == preset(entry["repos"][0])
        assert parameter_breakdown(preset(key)).total == known[entry["preset"]]["total"]


# --- сверка с transformers ----------------------------------------------------------------------

SMALL = {
    "vocab_size": 101, "hidden_size": 48, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 2,
    "intermediate_size": 70, "max_position_embeddings": 64, "pad_token_id": None, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 33}
LATENT = {
    "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6, "num_key_value_heads": 6,
    "n_routed_experts": 4, "n_shared_experts": 2, "n_group": 2, "topk_group": 1, **MOE,
}  # fmt: skip
PEERS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"attention_bias": True}),
    ("llama", {"mlp_bias": True, "tie_word_embeddings": True, "head_dim": 10}),
    ("mistral", {"head_dim": 12, "sliding_window": 16}),
    ("mixtral", {"num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": None}),
    ("qwen2", {"use_sliding_window": True, "max_window_layers": 2, "sliding_window": 8}),
    ("qwen3", {"attention_bias": True, "head_dim": 6}),
    ("qwen3", {}),
    ("qwen3_moe", {"num_experts": 4, "head_dim": 10, "decoder_sparse_step": 2, **MOE}),
    ("qwen3_moe", {"num_experts": 4, "head_dim": 10, "mlp_only_layers": [0, 3], **MOE}),
    ("gemma", {"attention_bias": True, "head_dim": 10}),
    ("gemma2", {"head_dim": 10, "sliding_window": 16}),
    ("gemma3_text", {"head_dim": 10, "sliding_window": 16, "attention_bias": True}),
    ("phi3", {"sliding_window": 16}),
    ("olmo2", {}),
    ("olmoe", {"num_experts": 4, "num_experts_per_tok": 2}),
    ("smollm3", {"attention_bias": True}),
    ("glm4_moe", {"n_routed_experts": 4, "n_shared_experts": 1, "head_dim": 10, "use_qk_norm": True, **MOE}),
    ("gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 10, "sliding_window": 16}),
    ("deepseek_v2", {**LATENT, "q_lora_rank": None}),
    ("deepseek_v2", {**LATENT, "q_lora_rank": 12, "first_k_dense_replace": 2}),
    ("deepseek_v3", {**LATENT, "q_lora_rank": 12, "attention_bias": True}),
    ("gpt_neox", {"num_key_value_heads": None}),
    ("opt", {"ffn_dim": 70, "word_embed_proj_dim": 48}),
    ("falcon", {}),
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": True}),
    ("falcon", {"parallel_attn": False, "multi_query": False, "bias": True}),
    ("gpt2", {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 32, "n_inner": 77}),
]


@pytest.fixture(scope="module")
def peer() -> Any:
    """transformers: загружается один раз и только этим тестам; крошечным моделям потоки torch лишь мешают."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield pytest.importorskip("transformers")
    torch.set_num_threads(before)


@pytest.mark.parametrize(("family", "extra"), PEERS, ids=[f"{family}-{i}" for i, (family, _) in enumerate(PEERS)])
def test_parameters_equal_those_of_transformers(peer: Any, family: str, extra: dict[str, Any]) -> None:
    """Модель строится на устройстве meta: память не нужна, тензоры настоящие. Наше чтение — из того же файла."""
    import torch

    fields = {**(SMALL if family != "gpt2" else {"vocab_size": 101}), **extra}
    config = peer.AutoConfig.for_model(family, **fields)
    with torch.device("meta"):
        model = peer.AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    tensors = {id(tensor): tensor.numel() for tensor in model.parameters()}
    written = json.loads(config.to_json_string(use_diff=False))
    assert parameter_breakdown(from_config(written)).total == sum(tensors.values())
    if family != "falcon":
        # Краткая запись опускает значения по умолчанию: наши обязаны совпасть с теми, что у transformers.
        assert parameter_breakdown(from_config({"model_type": family, **fields})).total == sum(tensors.values())


# --- FLOPs: счётчик torch на моделях transformers --------------------------------------------------


def counted(model: Any, x: Any, backward: bool) -> int:
    """Что насчитал сам torch, без наших поправок к счётчику."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        logits = model(x, use_cache=False).logits
        if backward:
            logits.sum().backward()
    return int(counter.get_total_flops())


def small_model(peer: Any, family: str, extra: dict[str, Any], **how: str) -> tuple[Any, Spec]:
    """Случайная модель с наивным вниманием: его произведения счётчик torch видит все. И Spec из её же файла."""
    import torch

    torch.manual_seed(0)
    config = peer.AutoConfig.for_model(family, **{**(SMALL if family != "gpt2" else {"vocab_size": 101}), **extra})
    model = peer.AutoModelForCausalLM.from_config(config, attn_implementation="eager", **how)
    return model.eval(), from_config(json.loads(config.to_json_string(use_diff=False)))


@pytest.mark.parametrize(("family", "extra"), PEERS, ids=[f"{family}-{i}" for i, (family, _) in enumerate(PEERS)])
def test_flops_equal_those_of_the_counter(peer: Any, family: str, extra: dict[str, Any]) -> None:
    """Прямой проход — как в счёте, с обратным — втрое больше: у каждого произведения градиент обоих множителей.

    Вход первого слоя градиента тоже просит: он идёт в таблицу эмбеддингов. Эксперты — по одному (eager):
    сгруппированных произведений счётчик torch не знает.
    """
    import torch

    model, spec = small_model(peer, family, extra, experts_implementation="eager")
    x = torch.randint(0, 101, (2, 7))
    assert counted(model, x, backward=False) == x.numel() * flops_per_token(spec, 7, training=False).total
    assert counted(model, x, backward=True) == x.numel() * flops_per_token(spec, 7).total


MIXTURES = [row for row in PEERS if {"num_experts_per_tok", "num_local_experts", "num_experts"} & set(row[1])]


@pytest.mark.parametrize(("family", "extra"), MIXTURES, ids=[f"{family}-{i}" for i, (family, _) in enumerate(MIXTURES)])
def test_grouped_experts_are_all_that_the_counter_misses(peer: Any, family: str, extra: dict[str, Any]) -> None:
    """С экспертами по умолчанию счётчик torch теряет ровно их произведения, а наш — ничего."""
    import torch

    from nanolm.counter import count

    # Сгруппированное произведение требует строк, кратных 16 байтам.
    wide = {name: 4 * (value // 4) for name, value in {**SMALL, **extra}.items() if name.endswith("intermediate_size")}
    model, spec = small_model(peer, family, {**extra, **wide})
    x = torch.randint(0, 101, (2, 7))
    account = flops_per_token(spec, 7, training=False)
    experts = sum(line.value for line in account.details if line.name in ("gate", "up", "down"))
    assert counted(model, x, backward=False) == x.numel() * (account.total - experts)
    assert count(lambda: model(x, use_cache=False)) == x.numel() * account.total


ALTERNATING = [row for row in PEERS if row[0] in {"qwen2", "qwen3", "gemma2", "gemma3_text", "smollm3", "gpt_oss"}]


@pytest.mark.parametrize(("family", "extra"), ALTERNATING)
def test_windows_equal_those_of_transformers(peer: Any, family: str, extra: dict[str, Any]) -> None:
    """Какие слои с окном, transformers сам выписывает в `layer_types`."""
    config = peer.AutoConfig.for_model(family, **{**SMALL, **extra})
    expected = tuple(config.sliding_window if kind == "sliding_attention" else None for kind in config.layer_types)
    assert from_config({"model_type": family, **SMALL, **extra}).windows == expected


def test_every_family_is_compared_with_its_peer() -> None:
    """Семейство без сверки здесь — не разобранное до последнего параметра. Kimi K2 — это deepseek_v3."""
    assert set(FAMILIES) - {family for family, _ in PEERS} <= {"kimi_k2"}


@pytest.mark.parametrize("family", TEXT_DEFAULTS)
def test_defaults_of_text_parts_are_those_of_transformers(peer: Any, family: str) -> None:
    config = peer.AutoConfig.for_model(family)
    assert {name: getattr(config, name) for name in TEXT_DEFAULTS[family]} == TEXT_DEFAULTS[family]


VISION = {
    "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14,
}  # fmt: skip


@pytest.mark.parametrize("outer", [None, True, False])
@pytest.mark.parametrize("inner", [None, True, False])
@pytest.mark.parametrize("family", WRAPPERS)
def test_text_parts_equal_those_of_transformers(peer: Any, family: str, outer: bool | None, inner: bool | None) -> None:
    """Где бы ни была записана связь эмбеддинга, ответ — как у transformers; неоднозначное — отказ, а не догадка."""
    import torch

    size = {name: SMALL[name] for name in SMALL if name != "max_position_embeddings" and "token_id" not in name}
    text = {"model_type": WRAPPERS[family][0], **size, **({} if inner is None else {"tie_word_embeddings": inner})}
    top = {} if outer is None else {"tie_word_embeddings": outer}
    tower = {**VISION, **({"model_type": "siglip_vision_model"} if family == "gemma3" else {})}
    source = {"model_type": family, "text_config": text, **top}
    _, default, either = WRAPPERS[family]
    if outer is None and not either and (default is None or inner not in (None, default)):
        with pytest.raises(ValueError, match="назовите поле на верхнем уровне"):
            from_config(source)
        return
    ours = parameter_breakdown(from_config(source)).total
    config = peer.AutoConfig.for_model(family, text_config=text, vision_config=tower, **top)
    with torch.device("meta"):
        model = peer.AutoModelForImageTextToText.from_config(config)
    model.tie_weights()
    parts = [*model.model.language_model.parameters(), *model.lm_head.parameters()]
    assert ours == sum({id(tensor): tensor.numel() for tensor in parts}.values())


def test_the_readme_counts_the_models_and_the_families() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{len(presets())} модели по имени и {len(FAMILIES)} семейства" in readme


@pytest.mark.parametrize("family", sorted(ABSENT))
def test_absent_field_means_what_transformers_means(family: str) -> None:
    """Умолчание отсутствующего поля — как у класса настроек transformers."""
    from transformers import AutoConfig

    defaults = AutoConfig.for_model("deepseek_v3" if family == "kimi_k2" else family)
    for field, value in ABSENT[family].items():
        assert getattr(defaults, field) == value, field


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**presets()["gpt2"]["config"], "add_cross_attention": True}, "add_cross_attention"),
        ({**presets()["deepseek-v3"]["config"], "mlp_bias": True}, "mlp_bias"),
    ],
)
def test_field_that_changes_the_count_is_refused(config: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        from_config(config)


def test_null_is_not_absence() -> None:
    """null — сжатия запроса нет и голов ключа столько же, сколько запроса; отсутствие — умолчание семейства."""
    deepseek = presets()["deepseek-v3"]["config"]
    assert from_config({**deepseek, "q_lora_rank": None}).q_rank == 0
    assert from_config({name: value for name, value in deepseek.items() if name != "q_lora_rank"}).q_rank == 1536
    mistral = {name: v for name, v in presets()["mistral-7b-v0.1"]["config"].items() if name != "num_key_value_heads"}
    assert from_config(mistral).K == 8
    assert from_config({**mistral, "num_key_value_heads": None}).K == 32


def test_old_falcon_ignores_the_number_of_key_heads() -> None:
    falcon = {**presets()["falcon-7b"]["config"], "multi_query": False, "num_kv_heads": 1}
    assert falcon["num_attention_heads"] == from_config(falcon).K


def test_description_reads_the_weights_only_when_asked() -> None:
    """Геометрия и семейство известны и у файла с незнакомым квантованием; отказ — когда спросят о весах."""
    config = {**presets()["llama-3-8b"]["config"], "quantization_config": {"quant_method": "hqq"}}
    found = describe(config)
    assert found.spec == preset("llama-3-8b")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^config: quantization_config: quant_method = 'hqq'.* --quantize none$"):
            found.weights()


def test_description_names_the_part_that_is_counted() -> None:
    text = {**presets()["llama-2-7b"]["config"]}
    assert describe({"model_type": "llava", "text_config": text}).text_only
    assert describe({"model_type": "llava", "text_config": text}).family == "llama"
    assert describe({**text, "vision_config": {"hidden_size": 8}}).text_only
    assert not describe({**text, "vision_config": None}).text_only
    assert describe_preset("phi-3-mini").family == "phi3"


def test_text_of_a_file_is_read_as_the_file(tmp_path: Path) -> None:
    """Страница разбирает то же, что и командная строка: с меткой UTF-8, со сжатием весов, с той же ошибкой."""
    packed = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    config = {**presets()["llama-3-8b"]["config"], "quantization_config": packed}
    text = "\ufeff" + json.dumps(config)
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    found, (expected, named) = from_text(text), load(path)
    compressed = found.weights()
    assert (found.spec, found.family, found.text_only) == (expected, "llama", False)
    assert compressed is not None
    assert found.weights() is compressed
    assert named is not None
    assert compressed.name == named.name
    with pytest.raises(ValueError, match=r"^мой файл: это не JSON: строка 2, столбец 1$"):
        from_text("{\n]", "мой файл")
    with pytest.raises(ValueError, match=r"^config.json: больше 4 МиБ"):
        from_text(" " * 5_000_000)
