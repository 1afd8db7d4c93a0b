"""Сводка: текст и документ берут числа из одних счетов; документ — контракт `--json`."""

from __future__ import annotations

import json
import re

import pytest

from nanolm import units
from nanolm.budget import (
    TITLES,
    Spec,
    attention_crossover,
    crossover_batch,
    decode_step_time,
    flops_per_token,
    inference_memory,
    kv_cache_bytes,
    parameter_breakdown,
    report,
    training_memory,
    training_time,
)
from nanolm.hardware import gpu
from nanolm.sharding import shard_training
from nanolm.summary import Question, document, explanation, text
from nanolm.units import both_bytes, number
from nanolm.zoo import preset

LLAMA = Spec(V=128256, D=4096, L=32, N=32, K=8, F=14336, S=8192)
MIXTRAL = preset("mixtral-8x7b")


def sections(question: Question) -> dict[str, dict[str, object]]:
    return document(question)  # type: ignore[return-value]


def test_document_has_the_promised_sections() -> None:
    answer = sections(Question(LLAMA))
    assert list(answer) == ["spec", "parameters", "flops_per_token", "kv_cache", "memory"]
    assert list(answer["parameters"]) == ["total", "active", "non_embedding", "rows"]
    assert list(answer["flops_per_token"]) == ["forward", "training", "rows", "attention_crossover", "convention"]
    assert list(answer["kv_cache"]) == ["bytes_per_token", "bytes", "crossover_batch"]
    assert list(answer["memory"]) == ["training", "inference"]
    assert list(answer["memory"]["training"]) == ["total", "rows"]  # type: ignore[call-overload]
    assert list(answer["memory"]["inference"]) == ["total", "peak", "rows"]  # type: ignore[call-overload]


@pytest.mark.parametrize("spec", [LLAMA, MIXTRAL, preset("gpt2"), LLAMA.replace(window=(512, None) * 16)])
@pytest.mark.parametrize("convention", ["full", "windowed", "causal"])
def test_document_repeats_the_accounts(spec: Spec, convention: str) -> None:
    """Каждое число документа — из счёта с теми же B, S, рецептом и соглашением."""
    options = {"recipe": "autocast", "optimizer": "adamw8bit", "attention": "naive", "checkpointing": "selective"}
    answer = sections(Question(spec, B=3, S=700, dtype="fp8", convention=convention, **options))  # type: ignore[arg-type]
    training = training_memory(spec, 3, 700, **options)
    inference = inference_memory(spec, 3, 700, "fp8")
    flops = flops_per_token(spec, 700, attention=convention)
    assert answer["spec"] == {**spec.to_dict(), "S": 700, "B": 3}
    assert answer["parameters"]["rows"] == dict(parameter_breakdown(spec))
    assert answer["parameters"]["active"] == parameter_breakdown(spec).active
    assert answer["parameters"]["non_embedding"] == parameter_breakdown(spec).non_embedding
    assert answer["flops_per_token"]["rows"] == dict(flops)
    assert answer["flops_per_token"]["training"] == flops.total
    assert (
        answer["flops_per_token"]["forward"] == flops_per_token(spec, 700, training=False, attention=convention).total
    )
    assert answer["flops_per_token"]["attention_crossover"] == attention_crossover(spec, convention)
    assert answer["flops_per_token"]["convention"] == convention
    assert answer["kv_cache"]["bytes_per_token"] == kv_cache_bytes(spec, 1, 1, "fp8").total
    assert answer["kv_cache"]["bytes"] == kv_cache_bytes(spec, 3, 700, "fp8").total
    assert answer["kv_cache"]["crossover_batch"] == crossover_batch(spec, 700, "fp8")
    assert answer["memory"]["training"] == {"total": training.total, "rows": dict(training)}
    assert answer["memory"]["inference"] == {
        "total": inference.total, "peak": inference.peak, "rows": dict(inference)
    }  # fmt: skip


def test_storage_of_weights_and_cache_reaches_every_answer() -> None:
    """Формат весов, соглашение о кеше и страницы — во всех счетах вопроса, и документ их называет."""
    spec = preset("gpt-oss-20b")
    question = Question(spec, B=3, S=1000, gpu="h100-sxm", weights="mxfp4", kv="engine", block=16, fit="inference")
    answer = sections(question)
    inference = inference_memory(spec, 3, 1000, weights="mxfp4", kv="engine", block=16)
    assert answer["memory"]["inference"] == {
        "total": inference.total, "peak": inference.peak, "rows": dict(inference), "quantization": "mxfp4",
    }  # fmt: skip
    assert answer["kv_cache"]["bytes"] == kv_cache_bytes(spec, 3, 1000, kv="engine", block=16).total
    assert (answer["kv_cache"]["convention"], answer["kv_cache"]["block"]) == ("engine", 16)
    assert answer["kv_cache"]["crossover_batch"] == crossover_batch(spec, 1000, weights="mxfp4", kv="engine", block=16)
    step = decode_step_time(spec, 3, 1000, "h100-sxm", "bf16", weights="mxfp4")
    assert answer["decode"]["weight_bytes"] == step.weight_bytes  # type: ignore[index]
    assert question.fit is not None
    assert question.fit.need == inference.peak
    shown = text(question)
    assert "Память вывода, bf16, веса mxfp4" in shown
    assert "кеш KV по соглашению engine, блоками по 16\u00a0токенов" in shown
    assert "веса квантованы: mxfp4, 5,26 бита на параметр" in shown
    assert "веса квантованы" not in text(Question(spec))


def test_context_beyond_learned_positions_is_refused() -> None:
    with pytest.raises(ValueError, match=r"S = 1025: больше, чем learned_positions = 1024"):
        Question(preset("gpt2"), S=1025)
    assert Question(preset("gpt2"), S=1024).S == 1024


def test_document_with_a_card_answers_fit_decode_and_time() -> None:
    question = Question(LLAMA, B=4, gpu="a100-80", gpus=8, tokens=10**12, mfu=0.4, price=2)
    answer = sections(question)
    card, step = gpu("a100-80"), decode_step_time(LLAMA, 4, 8192, "a100-80")
    time = training_time(LLAMA, 10**12, "a100-80", 8, 0.4, 8192, price=2)
    assert list(answer)[-3:] == ["fit", "decode", "training_time"]
    assert answer["fit"]["usable_bytes"] == card.usable_bytes
    assert answer["decode"]["seconds"] == step.seconds
    assert answer["decode"]["bound"] == "memory"
    assert answer["decode"]["weight_bytes"] == step.weight_bytes
    assert answer["training_time"]["seconds"] == time.seconds
    assert answer["training_time"]["cost"] == time.cost
    assert answer["training_time"]["gpus"] == 8


def test_without_a_card_there_are_no_card_sections() -> None:
    assert not {"fit", "decode", "training_time"} & set(sections(Question(LLAMA)))
    assert not {"training_time"} & set(sections(Question(LLAMA, gpu="t4")))


def test_fit_compares_the_peak_with_usable_memory() -> None:
    """Граница — доступная память карты, а не паспортная, и пик, а не сумма весов и кеша."""
    card = gpu("t4")
    for spec in (preset("llama-2-7b"), preset("llama-3.2-1b")):
        answer = sections(Question(spec, S=512, gpu=card))
        assert answer["fit"]["inference"] is (inference_memory(spec, 1, 512).peak <= card.usable_bytes)
        assert answer["fit"]["training"] is (training_memory(spec, 1, 512).total <= card.usable_bytes)
    # Веса 7B в bf16 (13,48 ГБ) меньше 16 ГБ, а с кешем и буферами на 40 ГБ карту проходят, на T4 в fp32 — нет.
    assert sections(Question(preset("llama-2-7b"), S=512, gpu=card))["fit"]["inference"] is True
    assert sections(Question(preset("llama-2-7b"), S=512, dtype="fp32", gpu=card))["fit"]["inference"] is False


def test_nominal_memory_is_not_what_fits() -> None:
    """Пик между доступной и паспортной памятью: «не помещается» и в документе, и в тексте."""
    card, spec = gpu("t4"), preset("llama-2-7b")
    S = next(S for S in range(100, 9000, 100) if inference_memory(spec, 1, S).peak > card.usable_bytes)
    assert inference_memory(spec, 1, S).peak < card.memory_bytes
    question = Question(spec, S=S, gpu=card)
    assert sections(question)["fit"]["inference"] is False
    assert re.search(r"вывод: нужно [^—]* — на одну карту не помещается", text(question))
    assert re.search(r"вывод: нужно [^—]* — на одну карту помещается", text(Question(spec, S=S - 100, gpu=card)))


def test_document_is_valid_json_with_exact_integers() -> None:
    question = Question(LLAMA, gpu="h100-sxm", tokens=15 * 10**12)
    answer = json.loads(json.dumps(document(question), allow_nan=False))
    assert answer["parameters"]["total"] == 8_030_261_248
    assert answer["training_time"]["flops"] == flops_per_token(LLAMA).total * 15 * 10**12
    assert type(answer["training_time"]["flops"]) is int


def test_card_with_unknown_rates_still_answers_fit() -> None:
    """О новых Apple известна только память: «поместится» — ответ есть, времени шага — нет."""
    answer = sections(Question(preset("gpt2"), gpu="m5-16"))
    assert answer["fit"]["inference"] is True
    assert "decode" not in answer
    assert "помещается" in text(Question(preset("gpt2"), gpu="m5-16"))


def test_decode_keeps_the_dtype_of_the_question() -> None:
    """fp8 на карте без fp8: память читается по байту на вес — так же, как её считает счёт памяти."""
    answer = sections(Question(LLAMA, gpu="a100-80", dtype="fp8"))
    weights = answer["memory"]["inference"]["rows"]["weights"]  # type: ignore[index, call-overload]
    assert answer["decode"]["weight_bytes"] == weights - LLAMA.V * LLAMA.D + LLAMA.D
    assert (answer["decode"]["dtype"], answer["decode"]["compute_dtype"]) == ("fp8", "bf16")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"B": 0}, "B = 0"),
        ({"S": 0}, "S = 0"),
        ({"gpus": 0}, "gpus = 0"),
        ({"mfu": 0}, "mfu = 0"),
        ({"mfu": float("nan")}, "mfu = nan"),
        ({"tokens": 5}, "tokens: чтобы посчитать время обучения, назовите карту ключом gpu"),
        ({"price": 5}, "price: цена нужна вместе с числом токенов, ключ tokens"),
        ({"gpu": "t4", "price": 5}, "price: цена нужна вместе с числом токенов"),
        ({"gpu": "t4", "tokens": 0}, "tokens = 0"),
        ({"recipe": "x"}, "recipe = 'x'"),
        ({"convention": "x"}, "attention = 'x'"),
        ({"dtype": "x"}, "dtype = 'x'"),
    ],
)
def test_question_checks_everything_at_once(options: dict[str, object], message: str) -> None:
    """Неверное значение не ждёт случая, когда оно понадобится: MFU проверяется и без карты."""
    with pytest.raises(ValueError, match=re.escape(message)):
        Question(LLAMA, **options)  # type: ignore[arg-type]


# --- текст --------------------------------------------------------------------------------------


def test_text_shows_the_same_numbers_as_the_document() -> None:
    question = Question(LLAMA, B=2, gpu="h100-sxm", tokens=10**12, price=2)
    shown = text(question)
    for value in (
        question.parameters.total, question.parameters.active, question.parameters.non_embedding,
        question.flops.total, question.forward.total, question.attention_crossover, question.training.total,
        question.inference.total, *question.training.values(), *question.flops.values(),
    ):  # fmt: skip
        assert units.number(value) in shown  # type: ignore[arg-type]
    assert units.both_bytes(question.inference.peak) in shown
    assert "равен весам при B = 7,48" not in shown
    assert f"равен весам при B = {units.decimal(question.crossover_batch)}" in shown


def test_text_names_the_convention() -> None:
    for convention, words in (
        ("full", "полный квадрат"), ("windowed", "квадрат в пределах окна"), ("causal", "только видимые пары"),
    ):  # fmt: skip
        assert f"внимание: {words}" in text(Question(LLAMA, convention=convention))


def test_text_of_a_windowed_model_that_never_crosses() -> None:
    assert "оценки не догоняют матрицы" in text(Question(LLAMA.replace(window=64), convention="causal"))


def test_text_lists_the_geometry_in_words() -> None:
    first = text(Question(MIXTRAL, S=100)).splitlines()[0]
    assert first.startswith("Модель: V = 32000, D = 4096, L = 32, N = 32, K = 8, H = 128, F = 14336, S = 100, B = 1")
    assert "experts = 8" in first
    assert "experts_per_token = 2" in first
    assert "tie_embeddings" not in first
    gpt2 = text(Question(preset("gpt2"))).splitlines()[0]
    assert "gated_ffn = False" in gpt2
    assert "learned_positions = 1024" in gpt2
    assert "window = по слоям" in text(Question(LLAMA.replace(window=(8, None) * 16))).splitlines()[0]


def test_verdicts_in_words() -> None:
    shown = text(Question(LLAMA, gpu="rtx-4090"))
    assert re.search(r"вывод: нужно .* — на одну карту помещается", shown)
    assert re.search(r"обучение: нужно .* — на одну карту не помещается", shown)
    assert "шаг декодирования: не быстрее" in shown


def test_number_of_cards_is_an_integer_in_words() -> None:
    assert "обучение на 2\u00a0048 × NVIDIA H100" in text(Question(LLAMA, gpu="h100-sxm", gpus=2048, tokens=10**12))
    assert "обучение на 1 × NVIDIA H100" in text(Question(LLAMA, gpu="h100-sxm", tokens=10**12))


def test_report_is_the_text() -> None:
    assert report(LLAMA) == text(Question(LLAMA))
    assert report(LLAMA, B=4, gpu="t4") == text(Question(LLAMA, B=4, gpu="t4"))


def test_explanation_has_every_line_of_every_account() -> None:
    question = Question(MIXTRAL)
    shown = explanation(question)
    accounts = (question.parameters, question.flops, question.kv_cache, question.inference, question.training)
    for account in accounts:
        for line in account.explain().split("\n"):
            component_is_empty = line.endswith(" = 0")
            assert component_is_empty or line in shown
        for name, total in account.items():
            assert not total or f"  {TITLES[name]}: {number(total)}\n" in shown
    assert "маршрутизатор: L·E·D = 32·8·4096 = 1\u00a0048\u00a0576" in shown


def test_explanation_does_not_lose_the_card_and_the_way_back() -> None:
    shown = explanation(Question(LLAMA, gpu="t4", fit="inference"))
    assert "Карта: NVIDIA T4" in shown
    assert "наибольший пакет" in shown


def test_n_of_6n_counts_only_the_experts_of_a_token() -> None:
    """6·N обязано дать столько же, сколько матрицы слоёв в счёте FLOPs."""
    question = Question(MIXTRAL)
    norms = question.parameters["norms"]
    matrices = question.flops["attention"] + question.flops["ffn"] + question.flops["router"]
    assert 6 * (question.parameters.active_non_embedding - norms) == matrices
    assert f"N из 6N): {number(question.parameters.active_non_embedding)}" in text(question)


def test_several_cards_are_answered_or_refused() -> None:
    with pytest.raises(ValueError, match=r"^gpus: .* назовите карту"):
        Question(LLAMA, gpus=8)
    shown = text(Question(LLAMA, gpu="h100-sxm", gpus=8))
    need = shard_training(training_memory(LLAMA), 8, "zero3").total
    assert f"обучение на 8 картах с ZeRO-3, B на каждой: по {both_bytes(need)} — помещается" in shown


# --- реализация и адаптеры ----------------------------------------------------------------------


def test_document_names_the_implementation_and_the_adapters() -> None:
    spec = preset("llama-3.2-1b")
    memory = document(Question(spec, S=2048))["memory"]
    assert "implementation" not in memory
    question = Question(
        spec, S=2048, recipe="bf16", implementation="transformers", lora_rank=16, lora_targets=["query", "value"],
        weights="nf4-double",
    )  # fmt: skip
    memory = document(question)["memory"]
    assert memory["implementation"] == "transformers"
    assert memory["training"]["lora"] == {"rank": 16, "targets": ["query", "value"]}
    assert memory["training"]["rows"]["weights"] < memory["inference"]["rows"]["weights"] * 1.05
    assert "Память обучения, bf16, transformers" in text(question)
    # Без адаптеров квантование — только про вывод.
    plain = Question(spec, S=2048, recipe="bf16", implementation="transformers", weights="nf4-double")
    assert plain.training["weights"] == 2 * plain.parameters.total


def test_lora_says_that_flops_are_those_of_full_training() -> None:
    spec = Spec(V=100, D=64, L=2, N=4, F=128)
    remark = "FLOPs и время — как при обучении всех весов"
    plain, adapted = (
        text(Question(spec, S=16, gpu="h100-sxm", tokens=1000, implementation="transformers", lora_rank=r))
        for r in (0, 4)
    )
    assert (plain.count(remark), adapted.count(remark)) == (0, 2)
