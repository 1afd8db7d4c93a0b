"""NanoLM: имена и формы весов — строки таблицы; все пути внимания дают одно; кеш, порождение, отказы.

Сверка с transformers — в `test_weights.py`: там те же модели прочитаны из папок Hugging Face.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import saved  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from nanolm import ops  # noqa: E402
from nanolm.cache import KVCache  # noqa: E402
from nanolm.generate import Sampling  # noqa: E402
from nanolm.model import NanoLM, RMSNorm, causal_mask, rope_tables, rotate  # noqa: E402
from nanolm.spec import Spec  # noqa: E402

BASE: dict[str, Any] = {"V": 97, "D": 32, "L": 3, "N": 4, "S": 64}
#: Что может стоять в блоке; в каждом варианте размеры разные, чтобы перепутанные оси не сошлись.
VARIANTS: dict[str, dict[str, Any]] = {
    "MHA": {},
    "GQA, N·H ≠ D": {"K": 2, "H": 24, "F": 40},
    "MQA": {"K": 1},
    "q/k norms, tied": {"qk_norm": True, "tie_embeddings": True, "K": 2},
    "biases": {"qkv_bias": True, "out_bias": True, "ffn_bias": True},
    "plain": {"gated_ffn": False},
    "GPT-2": {
        "gated_ffn": False, "qkv_bias": True, "out_bias": True, "ffn_bias": True, "norm_bias": True,
        "learned_positions": 80, "tie_embeddings": True,
    },
    "mixture": {"experts": 5, "experts_per_token": 2, "K": 2},
    "mixture, plain, biases": {"experts": 4, "experts_per_token": 3, "gated_ffn": False, "ffn_bias": True},
    "window": {"window": 6, "K": 2},
    "windows by layer": {"window": (None, 5, 9)},
    "one-token window": {"window": 1},
}  # fmt: skip


def build(variant: str = "MHA", **options: Any) -> NanoLM:
    """Модель с заметными весами: при σ = 0,02 ошибка в порядке осей тонула бы в почти нулевых логитах."""
    torch.manual_seed(0)
    model = NanoLM(Spec(**{**BASE, **VARIANTS[variant]}), **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.dim() > 1 else 0.1))
    return model


def batch(B: int = 2, T: int = 20, V: int = 97) -> torch.Tensor:
    return torch.randint(0, V, (B, T), generator=torch.Generator().manual_seed(3))


# --- Модель и таблица ----------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameter_names_and_shapes_equal_the_rows(variant: str) -> None:
    model = build(variant)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert shapes == ops.parameter_shapes(model.spec)
    assert model.num_parameters() == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("variant", VARIANTS)
def test_forward_flops_counted_on_meta_equal_the_account(variant: str) -> None:
    """На мета-устройстве счётчик видит и слитое внимание; окна он не сокращает, поэтому их здесь нет."""
    spec = Spec(**{**BASE, **VARIANTS[variant]}).replace(window=None)
    with torch.device("meta"):
        model = NanoLM(spec)
        tokens = torch.zeros(2, 16, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model(tokens)
    assert counter.get_total_flops() == 2 * 16 * model.flops_per_token(16, training=False)


def test_swiglu_ffn_dim_is_8D_over_3() -> None:
    """F = 8D/3, а не 4D: три матрицы SwiGLU весят столько же, сколько две матрицы простого блока шириной 4D."""
    for D in (96, 256, 770):
        spec = Spec(V=8, D=D, L=1, N=1, S=8)
        ffn = NanoLM(spec).layers[0].ffn
        assert abs(spec.F - 8 * D / 3) <= 0.5
        assert ffn.gate.weight.shape == ffn.up.weight.shape == ffn.down.weight.T.shape == (spec.F, D)
        weights = sum(parameter.numel() for parameter in ffn.parameters())
        assert weights == pytest.approx(2 * D * 4 * D, abs=1.5 * D)
        assert weights < 3 * D * 4 * D, "F = 4D у SwiGLU — в полтора раза больше весов"


# --- Кеш -----------------------------------------------------------------------------------------


def filled_cache(K: int, B: int = 3, S: int = 40) -> KVCache:
    """Кеш модели с K головами ключа, в который и вправду прошёл запрос."""
    torch.manual_seed(0)
    model = NanoLM(Spec(V=97, D=48, L=3, N=12, K=K, H=6, S=64))
    cache = model.new_cache(B, S)
    model.prefill(batch(B, 7), cache)
    model.decode(batch(B, 1)[:, 0], cache)
    return cache


def test_gqa_saves_kv_cache_exactly_N_over_K() -> None:
    """Кеш хранит K голов, а не N: во сколько раз меньше голов, ровно во столько меньше байт."""
    full = filled_cache(12)
    for K in (1, 2, 3, 4, 6):
        grouped = filled_cache(K)
        assert full.nbytes == grouped.nbytes * (12 // K)
        assert grouped.keys[0].shape == (3, K, 40, 6)
        assert grouped.keys[0][:, :, :8].abs().amin(dim=(0, 2, 3)).gt(0).all(), "голова кеша не заполнена"


def test_kv_cache_formula() -> None:
    """Ключ и значение: множитель 2 забыть нельзя. Байты берём у настоящих тензоров, формулу пишем здесь."""
    for B, S, dtype, size in ((1, 40, torch.float32, 4), (3, 17, torch.bfloat16, 2)):
        spec = Spec(V=97, D=48, L=5, N=6, K=2, H=10, S=64)
        model = NanoLM(spec).to(dtype)
        cache = model.new_cache(B, S)
        stored = sum(tensor.untyped_storage().nbytes() for tensor in cache.keys + cache.values)
        assert stored == cache.nbytes == 2 * B * S * 5 * 2 * 10 * size
        assert model.kv_cache_bytes(B, S) == stored


def test_window_caps_the_cache() -> None:
    model = build("windows by layer")
    cache = model.new_cache(2, 40)
    assert [key.shape[2] for key in cache.keys] == [40, 5, 9]
    assert cache.nbytes == 2 * 2 * (40 + 5 + 9) * 4 * 8 * 4 == model.kv_cache_bytes(2, 40)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("attention", ["fused", "naive"])
def test_decoding_with_the_cache_equals_the_full_forward(variant: str, attention: str) -> None:
    """Запрос короче и длиннее окна: кольцо переполняется и при чтении, и при порождении."""
    model = build(variant, attention=attention)
    x = batch(2, 30)
    with torch.no_grad():
        expected = model(x)
    for prompt in (1, 4, 12):
        cache = model.new_cache(2, 30)
        logits = [model.prefill(x[:, :prompt], cache)]
        logits += [model.decode(x[:, i], cache) for i in range(prompt, 30)]
        difference = (torch.stack(logits, 1) - expected[:, prompt - 1 :]).abs().max().item()
        assert difference < 2e-5 * expected.abs().max().item()


# --- Внимание ------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_attention_kinds_and_checkpointing_agree(variant: str) -> None:
    """Шесть путей — одни и те же потери и градиенты каждого параметра."""
    x = batch()
    reference: list[torch.Tensor] = []
    for attention, checkpointing in itertools.product(("fused", "naive"), ("none", "selective", "full")):
        model = build(variant, attention=attention, checkpointing=checkpointing)
        loss = model.loss(x[:, :-1], x[:, 1:])
        loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        found = [loss.detach(), *(parameter.grad for parameter in model.parameters())]
        reference = reference or found
        for mine, first in zip(found, reference, strict=True):
            torch.testing.assert_close(mine, first, atol=2e-5, rtol=2e-4)


def test_causal_mask_hides_the_future_and_all_beyond_the_window() -> None:
    for T, window in ((6, None), (7, 3), (5, 1), (4, 9)):
        visible = causal_mask(T, window, torch.float32, torch.device("cpu")) == 0
        expected = [[s <= t and (window is None or t - s < window) for s in range(T)] for t in range(T)]
        assert visible.tolist() == expected
        assert visible.sum().item() == ops.pairs(T, T, causal=True, window=window)


def test_future_tokens_do_not_change_the_past() -> None:
    for variant in VARIANTS:
        model = build(variant)
        x = batch()
        changed = x.clone()
        changed[:, 12:] = (x[:, 12:] + 1) % 97
        with torch.no_grad():
            before, after = model(x), model(changed)
        torch.testing.assert_close(before[:, :12], after[:, :12], atol=1e-5, rtol=1e-5)
        assert not torch.allclose(before[:, 12:], after[:, 12:])


def test_rotation_depends_only_on_the_distance() -> None:
    cos, sin = rope_tables(32, 8, 10_000.0, None, torch.device("cpu"))
    q, k = torch.randn(8), torch.randn(8)

    def score(t: int, s: int) -> float:
        turned = [rotate(x.view(1, 1, 1, 8), cos[p : p + 1], sin[p : p + 1]).flatten() for x, p in ((q, t), (k, s))]
        return float(turned[0] @ turned[1])

    assert score(0, 0) == pytest.approx(float(q @ k), abs=1e-5)
    assert score(9, 4) == pytest.approx(score(25, 20), abs=1e-4)
    assert score(9, 4) != pytest.approx(score(9, 5), abs=1e-3)


def test_rotation_turns_a_pair_by_the_angle_of_its_position() -> None:
    """Компонента i — в паре с i + H/2, угол p·base^(-2i/H), против часовой стрелки."""
    cos, sin = rope_tables(16, 8, 100.0, None, torch.device("cpu"))
    for p, i in itertools.product((0, 1, 5), range(4)):
        x = torch.zeros(1, 1, 1, 8)
        x[..., i] = 1
        turned = rotate(x, cos[p : p + 1], sin[p : p + 1]).flatten()
        angle = p * 100.0 ** (-2 * i / 8)
        assert turned[i] == pytest.approx(math.cos(angle), abs=1e-6)
        assert turned[i + 4] == pytest.approx(math.sin(angle), abs=1e-6)
        assert turned.norm() == pytest.approx(1, abs=1e-6)


def test_rotary_base_changes_the_answer_but_not_the_geometry() -> None:
    near, far = build("MHA", rope_base=1e4), build("MHA", rope_base=1e6)
    assert near.num_parameters() == far.num_parameters()
    assert not torch.allclose(near(batch()), far(batch()))


# --- Нормы и сохранённые тензоры -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_own_rms_norm_equals_torch(dtype: torch.dtype) -> None:
    norm = RMSNorm(16, 1e-5).to(dtype)
    with torch.no_grad():
        norm.weight.add_(torch.randn(16) * 0.3)
    x = torch.randn(3, 5, 16, dtype=dtype, requires_grad=True)
    gradient = torch.randn(3, 5, 16).to(dtype)
    found = torch.autograd.grad(norm(x), (x, norm.weight), gradient)
    reference = torch.nn.functional.rms_norm(x, (16,), norm.weight, 1e-5)
    expected = torch.autograd.grad(reference, (x, norm.weight), gradient)
    tolerance = {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 6e-2, "rtol": 2e-2}
    for mine, theirs in zip((norm(x), *found), (reference, *expected), strict=True):
        torch.testing.assert_close(mine, theirs, **tolerance)


def saved_in_layer(attention: str, **fields: Any) -> list[saved.Saved]:
    torch.manual_seed(0)
    model = NanoLM(Spec(**{**saved.SMALL, **fields}), attention=attention)
    x = batch(2, 17)
    rows = saved.saved_tensors(model, x[:, :-1].clone(), x[:, 1:].clone())
    return [row for row in rows if row.layer == 1]


def test_keys_and_values_are_kept_at_K_heads() -> None:
    """Ни ядро, ни наивное внимание не размножают k и v до N голов."""
    K_bytes, N_bytes = 2 * 16 * 2 * 12 * 4, 2 * 16 * 6 * 12 * 4
    for attention in ("fused", "naive"):
        sizes = [row.nbytes for row in saved_in_layer(attention)]
        assert sizes.count(K_bytes) == 2, "ключ и значение"
        assert sizes.count(N_bytes) == 2, "запрос и выход внимания"


def test_naive_attention_keeps_one_square_and_the_fused_one_none() -> None:
    square = 2 * 6 * 16 * 16 * 4
    assert [row.nbytes for row in saved_in_layer("naive")].count(square) == 1
    assert square not in [row.nbytes for row in saved_in_layer("fused")]


def test_saved_bytes_of_a_mixture_do_not_depend_on_the_routing() -> None:
    """Все токены — одному эксперту или вразброс: строк всё равно M·k."""

    def total(bias: float) -> int:
        torch.manual_seed(0)
        model = NanoLM(Spec(**{**BASE, "experts": 4, "experts_per_token": 2}))
        with torch.no_grad():
            for block in model.layers:
                block.ffn.router.weight.mul_(bias)
        x = batch()
        return sum(row.nbytes for row in saved.saved_tensors(model, x, x.clone()))

    assert total(0.0) == total(50.0)


def test_every_expert_gets_a_gradient_even_without_tokens() -> None:
    """Иначе число состояний оптимизатора зависело бы от маршрутизации."""
    model = build("mixture")
    with torch.no_grad():
        for block in model.layers:
            block.ffn.router.weight.zero_()
    model.loss(batch(), batch()).backward()
    zero = [name for name, p in model.named_parameters() if ".experts." in name and not p.grad.abs().sum()]
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert zero, "при равных логитах выбраны одни и те же эксперты: у остальных градиент — нули"


def test_mixture_equals_the_sum_written_out() -> None:
    """Softmax по выбранным: тот же ответ, что у цикла по токенам."""
    moe = build("mixture").layers[0].ffn
    x = torch.randn(2, 5, 32)
    expected = torch.zeros(10, 32)
    for row, token in enumerate(x.flatten(0, 1)):
        logits = moe.router(token).detach()
        chosen = sorted(range(5), key=lambda e: -float(logits[e]))[:2]
        norm = sum(math.exp(float(logits[e])) for e in chosen)
        for e in chosen:
            expected[row] += math.exp(float(logits[e])) / norm * moe.experts[e](token)
    torch.testing.assert_close(moe(x).flatten(0, 1), expected, atol=1e-5, rtol=1e-4)


# --- Порождение ----------------------------------------------------------------------------------

PROMPTS = [[5, 6, 7], list(range(20, 41)), [1], list(range(60, 71)), [3, 3, 3]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_batch_of_different_lengths_equals_one_by_one(variant: str) -> None:
    model = build(variant)
    for options in ({}, {"temperature": 1.3, "top_k": 30, "top_p": 0.95}):
        together = model.generate(PROMPTS, 20, seed=7, **options)
        alone = [model.generate([prompt], 20, seed=7 + row, **options)[0] for row, prompt in enumerate(PROMPTS)]
        assert together == alone
        assert len({tuple(tokens) for tokens in together}) > 1


def test_greedy_tokens_are_the_argmax_of_the_full_forward() -> None:
    model = build("GQA, N·H ≠ D")
    tokens = [4, 8, 15]
    for _ in range(15):
        with torch.no_grad():
            tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    assert model.generate([tokens[:3]], 15)[0] == tokens[3:]


def test_seed_repeats_and_changes_the_sample() -> None:
    model = build()
    first, same, other = (model.generate([[1, 2]], 20, temperature=1.0, seed=seed) for seed in (0, 0, 1))
    assert first == same != other
    assert model.generate([[1, 2], [1, 2]], 20, temperature=1.0)[0] != first[1:], "строки пакета независимы"


def test_generation_stops_at_the_end_token() -> None:
    model = build()
    free = model.generate(PROMPTS, 25)
    end = free[0][9]
    stopped = model.generate(PROMPTS, 25, end_token=end)
    for tokens, whole in zip(stopped, free, strict=True):
        cut = whole.index(end) + 1 if end in whole else 25
        assert tokens == whole[:cut]
    assert len(stopped[0]) <= 10


def test_stream_yields_each_step_and_none_after_the_end() -> None:
    model = build()
    whole = model.generate(PROMPTS, 12, end_token=None)
    end = whole[0][3]
    steps = list(model.stream(PROMPTS, 12, end_token=end))
    assert all(len(step) == len(PROMPTS) for step in steps)
    finish = whole[0].index(end)
    assert [step[0] for step in steps[: finish + 1]] == whole[0][: finish + 1]
    assert all(step[0] is None for step in steps[finish + 1 :])
    assert next(iter(model.stream(PROMPTS, 12))) == [row[0] for row in whole]


def test_generation_fills_the_context_exactly_and_not_a_token_more() -> None:
    model = build()
    assert len(model.generate([list(range(50))], 14)[0]) == 14
    with pytest.raises(ValueError, match="контекст S = 64"):
        model.generate([list(range(50))], 15)


def test_top_k_and_top_p_limit_the_choice() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0, -1.0]])
    share = logits.softmax(-1)[0]

    def seen(**options: Any) -> set[int]:
        sampling = Sampling(temperature=1.0, **options)
        return {int(sampling.choose(logits, [torch.Generator().manual_seed(seed)])[0]) for seed in range(400)}

    assert seen() == {0, 1, 2, 3, 4}
    assert seen(top_k=2) == {0, 1}
    assert seen(top_k=99) == {0, 1, 2, 3, 4}
    assert seen(top_p=float(share[0]) - 0.01) == {0}
    assert seen(top_p=float(share[0]) + 0.01) == {0, 1}
    assert seen(top_k=3, top_p=0.999) == {0, 1, 2}


def test_sampling_follows_the_probabilities() -> None:
    logits = torch.tensor([[1.0, 0.0, -0.5]])
    for temperature in (0.5, 1.0, 2.0):
        expected = (logits / temperature).softmax(-1)[0]
        generator = torch.Generator().manual_seed(0)
        draws = torch.cat([Sampling(temperature).choose(logits, [generator]) for _ in range(4000)])
        share = draws.bincount(minlength=3) / 4000
        torch.testing.assert_close(share, expected, atol=0.03, rtol=0)


def test_layout_for_decoding_changes_neither_names_nor_answers() -> None:
    model = build("GQA, N·H ≠ D")
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    before = model(batch()).detach()
    model.lay_out_for_decoding()
    assert {name: parameter.shape for name, parameter in model.named_parameters()} == shapes
    assert model.layers[0].ffn.up.weight.stride() == (1, 40)
    torch.testing.assert_close(model(batch()), before, atol=1e-5, rtol=1e-5)
    model.loss(batch(), batch()).backward()


# --- Точность ------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["fused", "naive"])
def test_bf16_and_autocast_stay_within_bf16_noise(attention: str) -> None:
    model = build("GQA, N·H ≠ D", attention=attention)
    x = batch()
    exact = model(x).detach()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(x)
    half = model.bfloat16()(x)
    assert mixed.dtype == half.dtype == torch.bfloat16
    scale = exact.abs().mean()
    for found in (mixed.float(), half.float()):
        assert 0 < (found - exact).abs().mean() < 0.05 * scale


# --- Отказы --------------------------------------------------------------------------------------


def refuse(call: Any, *words: str) -> None:
    with pytest.raises(ValueError, match=r"[а-яё]") as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_bad_input_is_refused_by_name_and_value() -> None:
    model = build()
    long, cache = [1] * 65, model.new_cache(2, 10)
    even: dict[str, Any] = dict.fromkeys(
        ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"), 4
    )
    even |= {"rope_type": "llama3"}
    cases: list[tuple[Any, tuple[str, ...]]] = [
        (lambda: model(torch.tensor([[1, 97]])), ("tokens", "97", "V - 1 = 96")),
        (lambda: model(torch.tensor([[-1, 5]])), ("tokens", "-1")),
        (lambda: model(torch.tensor([1, 2])), ("tokens", "B×T")),
        (lambda: model(torch.tensor([[0.5, 1.0]])), ("tokens", "float32")),
        (lambda: model(torch.zeros(1, 0, dtype=torch.int64)), ("tokens", "непустая")),
        (lambda: model(torch.tensor([long])), ("65", "S = 64")),
        (lambda: model.generate([long], 1), ("prompts[0]", "65", "S = 64")),
        (lambda: model.generate([[1], [2] * 60], 5), ("prompts[1]", "max_new_tokens = 5", "65", "S = 64")),
        (lambda: model.generate([[1], [97]], 5), ("prompts[1]", "97")),
        (lambda: model.generate([], 5), ("prompts", "пустой")),
        (lambda: model.generate([[1], []], 5), ("prompts[1]", "пустой")),
        (lambda: model.generate([[1]], 0), ("max_new_tokens = 0",)),
        (lambda: model.generate([[1]], 5, temperature=-1.0), ("temperature = -1",)),
        (lambda: model.generate([[1]], 5, temperature=float("nan")), ("temperature = nan",)),
        (lambda: model.generate([[1]], 5, temperature=1.0, top_k=0), ("top_k = 0",)),
        (lambda: model.generate([[1]], 5, temperature=1.0, top_p=1.5), ("top_p = 1.5",)),
        (lambda: model.generate([[1, 2]] * 2, 10, cache=cache), ("length = 10", "11")),
        (lambda: model.prefill(batch(2, 11), cache), ("length = 10", "11")),
        (lambda: model.prefill(batch(3, 4), cache), ("batch = 2", "3")),
        (lambda: model.prefill(batch(2, 4), cache, lengths=[4, 5]), ("lengths = [4, 5]",)),
        (lambda: model.prefill(torch.tensor([[1, 97], [1, 1]]), cache, lengths=[2, 1]), ("tokens", "97")),
        (lambda: model.new_cache(1, 65), ("length = 65", "S = 64")),
        (lambda: model.new_cache(1, 0), ("length = 0",)),
        (lambda: model.new_cache(0, 5), ("batch = 0",)),
        (lambda: build(attention="flash"), ("attention = 'flash'", "fused, naive")),
        (lambda: build(checkpointing="all"), ("checkpointing = 'all'", "selective")),
        (lambda: NanoLM(Spec(V=9, D=6, L=1, N=2, S=8)), ("H = 3", "чётное")),
        (lambda: NanoLM(Spec(V=9, D=8, L=1, N=2, S=8, learned_positions=4)), ("S = 8", "learned_positions = 4")),
        (lambda: NanoLM(Spec(V=9, D=8, L=1, N=2, S=8, post_norms=True)), ("post_norms = True", "NanoLM")),
        (lambda: build(norm_eps=-1), ("norm_eps = -1", "положительное")),
        (lambda: build(norm_eps=10**400), ("norm_eps", "положительное")),
        (lambda: build(rope_base=float("nan")), ("rope_base = nan",)),
        (lambda: build(rope_base="1e4"), ("rope_base = '1e4'",)),
        (lambda: build(rope_scaling={}), ("rope_scaling = {}", "linear или llama3")),
        (lambda: build(rope_scaling=[2]), ("rope_scaling = [2]",)),
        (lambda: build(rope_scaling={"rope_type": "yarn", "factor": 2}), ("yarn", "linear или llama3")),
        (lambda: build(rope_scaling={"rope_type": "linear"}), ("rope_scaling: factor = None",)),
        (lambda: build(rope_scaling=even), ("high_freq_factor = 4", "low_freq_factor = 4")),
    ]
    for call, words in cases:
        refuse(call, *words)
    assert cache.position == 0, "отказ не тронул кеш"
    assert cache.position_B is None


def test_every_target_is_a_token_or_ignored() -> None:
    model, tokens = build(), batch(1, 3)
    refuse(lambda: model.loss(tokens, tokens[:, :2]), "targets", "(1, 2)", "(1, 3)")
    refuse(lambda: model.loss(tokens, tokens[0]), "targets", "(3,)")
    refuse(lambda: model.loss(tokens, tokens.float()), "targets", "float32")
    for wrong in (-1, -99, -101, 97):
        refuse(lambda wrong=wrong: model.loss(tokens, torch.tensor([[0, -100, wrong]])), "targets", str(wrong), "96")
    expected = -model(tokens).log_softmax(-1)[0, [0, 2], [0, 96]].mean()
    torch.testing.assert_close(model.loss(tokens, torch.tensor([[0, -100, 96]])), expected)


ODD_GENERATION: list[tuple[Any, dict[str, Any], str]] = [
    ([[1]], {"max_new_tokens": 1.5}, "max_new_tokens = 1.5"),
    ([[1]], {"max_new_tokens": None}, "max_new_tokens = None"),
    ([1, 2, 3], {}, "prompts[0] = 1"),
    (["abc"], {}, "prompts[0] = 'abc'"),
    ("abc", {}, "prompts = 'abc'"),
    ([None], {}, "prompts[0] = None"),
    ((row for row in [[1]]), {}, "prompts = "),
    ([[1.5]], {}, "prompts[0] = 1.5"),
    ([[True]], {}, "prompts[0] = True"),
    ([[[1]]], {}, "prompts[0] = [1]"),
    ([[10**30]], {}, "prompts[0] = "),
    ([[1]], {"top_k": 1.5}, "top_k = 1.5"),
    ([[1]], {"top_p": "0.5"}, "top_p = '0.5'"),
    ([[1]], {"temperature": "1"}, "temperature = '1'"),
    ([[1]], {"seed": 2**64}, "seed = "),
    ([[1], [2]], {"seed": 2**64 - 1}, "seed = "),
    ([[1]], {"seed": 0.5}, "seed = 0.5"),
]


@pytest.mark.parametrize(("prompts", "options", "word"), ODD_GENERATION)
def test_odd_types_are_refused_in_generation(prompts: Any, options: dict[str, Any], word: str) -> None:
    refuse(lambda: build().generate(prompts, **{"max_new_tokens": 2, "temperature": 1.0, **options}), word)


def test_prompts_may_be_tensors_and_tuples() -> None:
    model = build()
    expected = model.generate([[1, 2], [3, 4]], 3)
    assert model.generate(torch.tensor([[1, 2], [3, 4]]), 3) == expected  # type: ignore[arg-type]
    assert model.generate(((1, 2), torch.tensor([3, 4])), 3) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [1e-320, 1e-40, 1e-10])
def test_coldest_temperature_is_the_greedy_choice(temperature: float) -> None:
    model = build()
    assert model.generate([[1, 2, 3]], 8, temperature=temperature) == model.generate([[1, 2, 3]], 8)


def test_smallest_top_p_is_the_greedy_choice() -> None:
    model = build()
    assert model.generate([[1, 2, 3]], 8, temperature=5.0, top_p=1e-300) == model.generate([[1, 2, 3]], 8)


def test_full_cache_and_second_prompt_are_refused() -> None:
    model = build()
    cache = model.new_cache(1, 6)
    model.prefill(batch(1, 4), cache)
    refuse(lambda: model.prefill(batch(1, 2), cache), "занято позиций 4", "2")
    refuse(lambda: model.generate([[1]], 2, cache=cache), "4 позиций", "пустой")
    model.decode(torch.tensor([1]), cache)
    model.decode(torch.tensor([1]), cache)
    refuse(lambda: model.decode(torch.tensor([1]), cache), "length = 6", "7")


def test_refusal_comes_before_memory_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build()
    monkeypatch.setattr(KVCache, "__init__", lambda *_: pytest.fail("память под кеш уже выделена"))
    refuse(lambda: model.generate([[1] * 64], 1), "65")
    refuse(lambda: model.generate([[97]], 1), "97")
