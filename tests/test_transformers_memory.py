"""Память transformers: сохранённые тензоры настоящих моделей до байта, пик — по живым хранилищам.

Модели маленькие, из config, с разными размерами осей. Адаптеры повторяют `peft.tuners.lora.Linear` (0.21) и
`bitsandbytes.nn.Linear4bit`; одна сверка идёт с самим peft.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from live_bytes import LiveBytes  # noqa: E402
from torch import nn  # noqa: E402

from nanolm import budget  # noqa: E402
from nanolm.budget import Spec, inference_memory, saved_tensor_bytes, training_memory  # noqa: E402
from nanolm.measure import saved_tensors  # noqa: E402
from nanolm.transformers_memory import CUBLAS, block_bytes  # noqa: E402

NAMES = {
    "query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj",
    "gate": "gate_proj", "up": "up_proj", "down": "down_proj",
}  # fmt: skip
ATTENTION, FFN = ("query", "key", "value", "output"), ("gate", "up", "down")
KERNELS = {"fused": "sdpa", "naive": "eager"}
RECIPES = ("fp32", "bf16", "autocast")
SIZES = {
    "vocab_size": 97, "hidden_size": 42, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip
#: Семейство → (класс настроек, что в них меняется, что меняется в Spec).
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}, {}),
    "llama, biases, tied": (
        "LlamaConfig", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        {"qkv_bias": True, "out_bias": True, "ffn_bias": True, "tie_embeddings": True},
    ),
    "llama, MHA": ("LlamaConfig", {"num_key_value_heads": 6}, {"K": 6}),
    "llama, one layer": ("LlamaConfig", {"num_hidden_layers": 1}, {"L": 1}),
    "qwen2": ("Qwen2Config", {}, {"qkv_bias": True}),
    "qwen3": ("Qwen3Config", {}, {"qk_norm": True}),
    "mistral, window 5": ("MistralConfig", {"sliding_window": 5}, {"window": 5}),
    "mistral, window = S": ("MistralConfig", {"sliding_window": 16}, {"window": 16}),
    "mistral, wide window": ("MistralConfig", {"sliding_window": 17}, {"window": 17}),
}  # fmt: skip
RANK = 5


def build(family: str, attention: str, recipe: str, **sizes: Any) -> tuple[Any, Spec]:
    """Модель transformers и её геометрия."""
    name, settings_, fields = FAMILIES[family]
    given_ = {**SIZES, **settings_, **sizes}
    config = getattr(transformers, name)(**given_)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=KERNELS[attention])
    model.config.use_cache = False
    model = model.bfloat16() if recipe == "bf16" else model
    letters = {
        "V": "vocab_size", "D": "hidden_size", "L": "num_hidden_layers", "N": "num_attention_heads",
        "K": "num_key_value_heads", "H": "head_dim", "F": "intermediate_size", "tie_embeddings": "tie_word_embeddings",
    }  # fmt: skip
    spec = Spec(**{letter: given_[name] for letter, name in letters.items()} | fields)
    return model.train(), spec


class Adapted(nn.Module):
    """Замороженная матрица и адаптер над ней: порядок действий `peft.tuners.lora.Linear.forward`."""

    def __init__(self, base: nn.Module, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = base
        self.A = nn.Linear(inputs, RANK, bias=False)
        self.B = nn.Linear(RANK, outputs, bias=False)

    def forward(self, x: Any) -> Any:
        result = self.base(x)
        dtype = result.dtype
        result = result + self.B(self.A(x.to(self.A.weight.dtype))) * 2.0
        return result.to(dtype)


class Unpacked(torch.autograd.Function):
    """Произведение на квантованную матрицу: в графе — только она, распаковка повторяется (как `bnb.matmul_4bit`)."""

    @staticmethod
    def forward(ctx: Any, x: Any, packed: Any, shape: Any) -> Any:
        ctx.save_for_backward(packed)
        ctx.shape = shape
        return x @ packed[:1].to(x.dtype).expand(shape).t()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (packed,) = ctx.saved_tensors
        return grads[0] @ packed[:1].to(grads[0].dtype).expand(ctx.shape), None, None


class Packed(nn.Module):
    """Квантованная матрица: байты вместо весов, вход приводится к точности вычислений, ответ — к точности входа."""

    def __init__(self, linear: Any) -> None:
        super().__init__()
        self.shape = linear.weight.shape
        self.register_buffer("packed", torch.zeros(linear.weight.numel() // 2, dtype=torch.uint8))

    def forward(self, x: Any) -> Any:
        lowered = torch.bfloat16 if torch.is_autocast_enabled("cpu") else x.dtype
        return Unpacked.apply(x.to(lowered), self.packed, self.shape).to(x.dtype)


def adapt(model: Any, targets: tuple[str, ...], packed: bool = False) -> Any:
    """Заморозить модель и надеть адаптеры."""
    model.requires_grad_(False)
    layers = model.model.layers
    for name, module in list(layers.named_modules()):
        if not isinstance(module, nn.Linear):
            continue
        parent, _, own = name.rpartition(".")
        base: nn.Module = Packed(module) if packed else module
        if own in {NAMES[target] for target in targets}:
            base = Adapted(base, module.in_features, module.out_features)
        setattr(layers.get_submodule(parent), own, base)
    return model


def loss_of(model: Any, recipe: str, B: int = 2, S: int = 16, **inputs: Any) -> Any:
    """Прямой проход с потерями."""
    ids = torch.randint(0, model.config.vocab_size, (B, S))
    with torch.autocast("cpu", torch.bfloat16) if recipe == "autocast" else nullcontext():
        return model(input_ids=ids, labels=ids.clone(), use_cache=False, **inputs).loss


def measured(model: Any, recipe: str, **inputs: Any) -> int:
    """Байты сохранённых хранилищ, без параметров и буферов."""
    return sum(row.nbytes for row in saved_tensors(lambda: loss_of(model, recipe, **inputs), model))


def total(spec: Spec, recipe: str, attention: str, **options: Any) -> int:
    """То же по счёту."""
    options = {"implementation": "transformers", **options}
    return sum(saved_tensor_bytes(spec, 2, 16, recipe, attention, **options).values())


# --- Сохранённые тензоры ------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("attention", KERNELS)
@pytest.mark.parametrize("family", FAMILIES)
def test_saved_bytes_equal_what_autograd_keeps(family: str, attention: str, recipe: str) -> None:
    model, spec = build(family, attention, recipe)
    assert total(spec, recipe, attention) == measured(model, recipe)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("attention", KERNELS)
@pytest.mark.parametrize("B", [1, 2])
@pytest.mark.parametrize("targets", [(), ATTENTION, ("value",)])
def test_one_head_is_repeated_without_a_copy(targets: tuple[str, ...], B: int, attention: str, recipe: str) -> None:
    """K = 1: размноженные ключи и значения — вид, пока их не приведут или не уложат; и B = 1 у сдвинутых ответов."""
    for family, K in (("mistral, window 5", 1), ("qwen3", 1), ("llama", 2)):
        model, spec = build(family, attention, recipe, num_key_value_heads=K)
        options: dict[str, Any] = {"lora_rank": RANK, "lora_targets": targets} if targets else {}
        found = saved_tensor_bytes(spec, B, 16, recipe, attention, implementation="transformers", **options)
        assert sum(found.values()) == measured(adapt(model, targets) if targets else model, recipe, B=B)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("attention", KERNELS)
def test_saved_bytes_with_checkpointing(attention: str, recipe: str) -> None:
    model, spec = build("llama", attention, recipe)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    assert total(spec, recipe, attention, checkpointing="full") == measured(model, recipe)


@pytest.mark.parametrize("recipe", RECIPES)
def test_saved_bytes_of_the_older_version(recipe: str) -> None:
    """4.57 обучает с маской всегда: нынешняя с такой же готовой маской хранит то же."""
    model, spec = build("llama", "fused", recipe)
    mask = torch.ones(16, 16, dtype=torch.bool).tril().expand(2, 1, 16, 16).contiguous()
    expected = total(spec, recipe, "fused", implementation="transformers-4.57")
    assert expected == measured(model, recipe, attention_mask=mask)
    assert expected > total(spec, recipe, "fused")


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("attention", KERNELS)
@pytest.mark.parametrize(
    "targets", [ATTENTION, ("query", "value"), FFN, ATTENTION + FFN, ("output",), ("value",), ("up",), ("down",)]
)
def test_saved_bytes_with_adapters(targets: tuple[str, ...], attention: str, recipe: str) -> None:
    """Градиент начинается с первого адаптера: до него первый слой не хранит ничего."""
    for family in ("llama", "qwen3"):
        model, spec = build(family, attention, recipe)
        expected = total(spec, recipe, attention, lora_rank=RANK, lora_targets=targets)
        assert expected == measured(adapt(model, targets), recipe)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("targets", [ATTENTION, FFN])
def test_saved_bytes_over_a_packed_base(targets: tuple[str, ...], recipe: str) -> None:
    model, spec = build("llama", "fused", recipe)
    options = {"lora_rank": RANK, "lora_targets": targets}
    assert total(spec, recipe, "fused", weights="nf4", **options) == measured(adapt(model, targets, True), recipe)


def test_peft_itself_keeps_the_same() -> None:
    import peft

    for recipe in RECIPES:
        model, spec = build("llama", "fused", recipe)
        config = peft.LoraConfig(r=RANK, lora_dropout=0.0, target_modules=[NAMES[name] for name in ATTENTION])
        assert total(spec, recipe, "fused", lora_rank=RANK) == measured(peft.get_peft_model(model, config), recipe)


def test_fourteen_bytes_a_logit() -> None:
    """bf16-логиты, логарифмы вероятностей и два градиента в fp32: 2 + 4 + 4 + 4."""
    spec = Spec(V=50_000, D=8, L=1, N=1, F=8)
    account = training_memory(spec, 2, 64, "bf16", "sgd", implementation="transformers")
    born = sum(line.value for line in account.details if line.name == "logit_gradients")
    assert account["logits"] + born == 14 * 2 * 64 * 50_000 + 4  # и сумма весов потерь


# --- Параметры адаптеров и порядок --------------------------------------------------------------


@pytest.mark.parametrize("targets", [ATTENTION, ("query", "value"), ATTENTION + FFN])
def test_adapter_parameters_are_exact(targets: tuple[str, ...]) -> None:
    model, spec = build("qwen3", "fused", "bf16")
    adapt(model, targets)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    account = training_memory(spec, 1, 16, "bf16", implementation="transformers", lora_rank=RANK, lora_targets=targets)
    assert account["gradients"] == 4 * trained
    assert account["optimizer"] == 8 * trained
    assert account["weights"] == sum(parameter.nbytes for parameter in model.parameters())


def test_a_packed_base_weighs_what_the_format_stores() -> None:
    _, spec = build("llama", "fused", "bf16")
    stored = inference_memory(spec, 1, 16, "bf16", weights="nf4-double")["weights"]
    options: dict[str, Any] = {"implementation": "transformers", "lora_rank": RANK}
    packed, plain = (training_memory(spec, 1, 16, "bf16", weights=kind, **options) for kind in ("nf4-double", None))
    adapters = packed["gradients"]
    assert packed["weights"] == stored + adapters
    assert plain["weights"] == 2 * budget.parameter_breakdown(spec).total + adapters


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6), st.integers(1, 4), st.sampled_from([1, 2, 4]), st.integers(1, 40), st.integers(1, 8),
    st.integers(1, 64), st.sampled_from(RECIPES), st.sampled_from(["none", "full"]), st.sampled_from(list(KERNELS)),
)  # fmt: skip
def test_full_is_dearer_than_lora_and_lora_than_qlora(
    L: int, K: int, G: int, width: int, B: int, S: int, recipe: str, checkpointing: str, attention: str
) -> None:
    spec = Spec(V=2000, D=64 * width, L=L, N=K * G, K=K, H=64, F=128 * width)
    rank = max(1, min(spec.D, spec.K * spec.H) // 8)
    options: dict[str, Any] = {
        "checkpointing": checkpointing, "attention": attention, "implementation": "transformers",
    }  # fmt: skip
    full = training_memory(spec, B, S, recipe, **options).total
    lora = training_memory(spec, B, S, recipe, lora_rank=rank, **options).total
    assert full >= lora
    if recipe != "autocast":
        assert lora >= training_memory(spec, B, S, recipe, lora_rank=rank, weights="nf4", **options).total


def test_autocast_makes_a_packed_base_dear_on_long_context() -> None:
    """bitsandbytes отвечает в точности входа, а под autocast это fp32: на длинном контексте QLoRA тяжелее LoRA."""
    spec = Spec(V=100, D=256, L=4, N=4, F=1024)
    options: dict[str, Any] = {"implementation": "transformers", "lora_rank": 4}
    for S, cheaper in ((64, True), (8192, False)):
        lora, qlora = (training_memory(spec, 1, S, "autocast", weights=kind, **options) for kind in (None, "nf4"))
        assert (qlora.total < lora.total) is cheaper


# --- Пик ----------------------------------------------------------------------------------------


def peak_of(model: Any, recipe: str, optimizer: str, B: int, S: int, **inputs: Any) -> LiveBytes:
    """Пик второго шага: первый заводит градиенты и состояния."""
    ids, labels = torch.zeros(B, S, dtype=torch.int64), torch.zeros(B, S, dtype=torch.int64)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    make = {
        "adamw": lambda: torch.optim.AdamW(trained, foreach=True),
        "momentum": lambda: torch.optim.SGD(trained, lr=0.1, momentum=0.9, foreach=True),
    }[optimizer]
    with LiveBytes([*model.parameters(), ids, labels]) as live:
        steps = make()
        for _ in range(2):
            live.reset()
            with torch.autocast("cpu", torch.bfloat16) if recipe == "autocast" else nullcontext():
                answer = model(input_ids=ids, labels=labels, use_cache=False, **inputs)
            loss = answer.loss
            loss.backward()
            del answer, loss
            steps.step()
            steps.zero_grad(set_to_none=False)
    return live


def bare(lines: Any) -> int:
    """Строки, которых у процессора нет: рабочая память cuBLAS и округление распределителя CUDA."""
    return sum(line.value for line in lines if line.name in ("cublas", "blocks"))


SHAPES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "ordinary": (2, 48, {"vocab_size": 700}),
    "tied, short": (1, 8, {"vocab_size": 700, "tie_word_embeddings": True}),
    "short": (1, 4, {}),
    "few logits": (2, 96, {"vocab_size": 11}),
    "wide block": (2, 24, {"vocab_size": 11, "intermediate_size": 900}),
    "narrow block": (2, 64, {"vocab_size": 11, "intermediate_size": 9}),
}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("attention", KERNELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_peak_of_a_step(shape: str, attention: str, recipe: str) -> None:
    B, S, sizes = SHAPES[shape]
    model, spec = build("llama", attention, recipe, **sizes)
    account = training_memory(spec, B, S, recipe, attention=attention, implementation="transformers")
    live = peak_of(model, recipe, "adamw", B, S)
    predicted = account.total - bare(account.details)
    assert predicted == pytest.approx(live.peak, rel=0.005), (account.moment, live.operation)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("attention", KERNELS)
@pytest.mark.parametrize("sizes", [{"vocab_size": 700}, {"vocab_size": 11}])
def test_peak_with_checkpointing_and_adapters(sizes: dict[str, Any], attention: str, recipe: str) -> None:
    B, S = 2, 64
    for checkpointing, rank in (("full", 0), ("full", RANK), ("none", RANK)):
        model, spec = build("llama", attention, recipe, **sizes)
        if rank:
            adapt(model, ATTENTION)
        if checkpointing == "full":
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        options = {"attention": attention, "checkpointing": checkpointing, "lora_rank": rank}
        account = training_memory(spec, B, S, recipe, implementation="transformers", **options)
        # Временных fp32-тензоров самого адаптера моменты слоёв не знают: они видны, лишь когда логитов почти нет.
        tolerance = 0.06 if rank and sizes["vocab_size"] < 100 else 0.015
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # чекпоинт предупреждает о входе без градиента
            live = peak_of(model, recipe, "adamw", B, S)
        predicted = account.total - bare(account.details)
        assert predicted == pytest.approx(live.peak, rel=tolerance), (account.moment, live.operation)


@pytest.mark.parametrize("recipe", ["fp32", "bf16"])
@pytest.mark.parametrize("attention", KERNELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_peak_of_a_prefill(shape: str, attention: str, recipe: str) -> None:
    B, S, sizes = SHAPES[shape]
    for family in ("llama", "mistral, window 5"):
        model, spec = build(family, attention, recipe, **sizes)
        ids = torch.zeros(B, S, dtype=torch.int64)
        with torch.no_grad(), LiveBytes(model.parameters()) as live:
            model.eval()(input_ids=ids, use_cache=True)
        account = inference_memory(spec, B, S, recipe, implementation="transformers", attention=attention)
        assert account.peak - bare(account.buffers) == pytest.approx(live.peak, rel=0.02), live.operation


def test_foreach_adamw_takes_a_copy_of_the_parameters() -> None:
    spec = Spec(V=300, D=64, L=2, N=4, F=256)
    account = training_memory(spec, 1, 1, "fp32", implementation="transformers")
    assert account.moment == "шаг оптимизатора"
    born = [line.value for line in account.details if line.name == "foreach"]
    assert born == [4 * budget.parameter_breakdown(spec).total]


@pytest.mark.parametrize(
    ("size", "block"),
    [
        (1, 512), (512, 512), (513, 1024), (9 * 2**20 + 512, 9 * 2**20 + 512),
        (35 * 2**20, 36 * 2**20),  # остаток 1 МиБ не делится
        (35 * 2**20 - 512, 35 * 2**20 - 512),  # а больше 1 МиБ — отдельный кусок
        (36 * 2**20, 36 * 2**20),
    ],
)  # fmt: skip
def test_blocks_of_the_allocator(size: int, block: int) -> None:
    assert block_bytes(size) == block


def test_cublas_workspace_is_what_torch_reports() -> None:
    """8 519 680 байт: столько оставляет первое произведение на картах до Hopper (pytorch#95668)."""
    assert CUBLAS == 8_519_680


# --- Отказы и массивы ---------------------------------------------------------------------------

PLAIN = Spec(V=97, D=40, L=3, N=4, F=56)


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        (PLAIN.replace(experts=4, experts_per_token=2), {}, "experts = 4: память transformers описана для блока Llama"),
        (PLAIN.replace(norm_bias=True), {}, "norm_bias = True: память transformers"),
        (PLAIN.replace(gated_ffn=False), {}, "gated_ffn = False"),
        (PLAIN, {"checkpointing": "selective"}, "checkpointing = 'selective': transformers пересчитывает слой целиком"),
        (PLAIN, {"activations": "all"}, "activations = 'all'"),
        (PLAIN, {"implementation": "jax"}, "implementation = 'jax': нужно одно из: nanolm, transformers"),
        (PLAIN, {"lora_rank": -1}, "lora_rank = -1"),
        (PLAIN, {"lora_rank": 4, "lora_targets": ("head",)}, "lora_targets = 'head': нужно одно из: query, key"),
        (PLAIN, {"lora_rank": 4, "lora_targets": ()}, "lora_targets: список пуст"),
        (PLAIN, {"weights": "nf4"}, "weights = nf4: учить квантованные веса нельзя"),
        (PLAIN, {"lora_rank": 4, "weights": "int8"}, "weights = 'int8': нужно одно из: nf4"),
        (PLAIN, {"lora_rank": 4, "implementation": "nanolm"}, "lora_rank = 4: адаптеры описаны для transformers"),
    ],
)
def test_refusals_name_the_field(spec: Spec, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 — сообщение сверяется ниже
        training_memory(spec, 1, 16, **{"implementation": "transformers", **options})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk": 8}, "chunk = 8"), ({"block": 16}, "block = 16"), ({"kv_dtype": "fp8"}, "kv_dtype = 'fp8'"),
        ({"dtype": "fp8"}, "dtype = 'fp8'"), ({"weights": "awq-4-128"}, "weights"),
    ],
)  # fmt: skip
def test_inference_refusals(options: dict[str, Any], message: str) -> None:
    spec = PLAIN.replace(D=256, N=4, H=64, K=4, F=512)
    with pytest.raises(ValueError, match=message):
        inference_memory(spec, 1, 16, implementation="transformers", **options)


def test_arrays_give_the_same_as_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    spec = PLAIN.replace(window=(None, 8, 8), K=1)
    batch, context = numpy.array([1, 2, 3]), numpy.array([4, 8, 32])
    options: dict[str, Any] = {"implementation": "transformers"}
    training = training_memory(spec, batch, context, **options).total
    inference = inference_memory(spec, batch, context, **options).peak
    for i, (B, S) in enumerate(zip(batch.tolist(), context.tolist(), strict=True)):
        assert training[i] == training_memory(spec, B, S, **options).total
        # Округление распределителя идёт по тензорам, а у массива строка буферов одна.
        exact = inference_memory(spec, B, S, **options)
        rounded = sum(512 for line in exact.buffers if line.value)
        assert abs(inference[i] - exact.peak) <= rounded
