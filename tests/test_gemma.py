"""Путь настоящей Gemma проверен крошечной случайной: загрузка, ответы, память, запись."""

from __future__ import annotations

import gc
import json
import weakref

import pytest
import torch

from nanolm import facts, gemma
from nanolm.gemma import Answers, compare, loaded, record, recorded, sources

CPU = torch.device("cpu")
PROMPTS = ("Страна Кения, валюта:", "Город Найроби, страна:")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Две случайные Gemma 3 разного размера с одним токенизатором."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig, PreTrainedTokenizerFast

    root = tmp_path_factory.mktemp("gemma")
    known = facts.facts()[:200]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=facts.train_tokenizer(known, 400), eos_token=facts.END, unk_token=facts.UNKNOWN
    )
    addresses = {}
    for seed, (name, width) in enumerate({"малая": 16, "большая": 32}.items()):
        torch.manual_seed(seed)
        config = Gemma3TextConfig(
            vocab_size=400, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=16, sliding_window=8,
            eos_token_id=0, bos_token_id=0, pad_token_id=0,
        )  # fmt: skip
        folder = root / f"gemma-{width}"
        Gemma3ForCausalLM(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        addresses[name] = str(folder)
    return addresses


@pytest.fixture(scope="module")
def answers(pair):
    return compare(pair, CPU, prompts=PROMPTS, new_tokens=4)


def test_both_models_answer_every_prompt(answers):
    for name, width in (("малая", 16), ("большая", 32)):
        one = answers[name]
        assert len(one.texts) == len(one.seconds) == len(PROMPTS)
        assert 0 < one.tokens <= 4 * len(PROMPTS)
        assert min(one.seconds) > 0
        assert one.source == f"gemma-{width}"
        assert one.weight_bytes == 4 * one.parameters
    assert answers["большая"].parameters > answers["малая"].parameters


def test_generation_is_greedy_and_keeps_only_new_text(pair, answers):
    again = compare(pair, CPU, prompts=PROMPTS, new_tokens=4)
    assert again["малая"].texts == answers["малая"].texts
    assert not any(text.startswith(prompt) for text, prompt in zip(again["малая"].texts, PROMPTS, strict=True))


def test_the_model_is_gone_after_use(pair):
    with loaded(pair["малая"], CPU) as (model, _):
        remembered = weakref.ref(model)
        del model
    gc.collect()
    assert remembered() is None


def test_small_is_gone_before_large_is_loaded(pair, monkeypatch):
    """Одновременно жива не больше чем одна модель."""
    from transformers import AutoModelForCausalLM

    alive, counts = [], []
    original = AutoModelForCausalLM.from_pretrained

    def counting(*args, **options):
        counts.append(sum(one() is not None for one in alive))
        model = original(*args, **options)
        alive.append(weakref.ref(model))
        return model

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", counting)
    compare(pair, CPU, prompts=PROMPTS[:1], new_tokens=2)
    assert counts == [0, 0]


def test_addresses_come_from_the_environment(monkeypatch):
    for variable in gemma.VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    assert sources() == {}
    with pytest.raises(ValueError, match="NANOLM_GEMMA_SMALL, NANOLM_GEMMA_LARGE"):
        compare(sources(), CPU)
    monkeypatch.setenv("NANOLM_GEMMA_SMALL", "google/gemma-3-1b-pt")
    assert sources() == {"малая": "google/gemma-3-1b-pt"}


def test_missing_folder_is_named(tmp_path):
    empty = tmp_path / "пусто"
    empty.mkdir()
    with pytest.raises(ValueError, match="пусто: модель не загрузилась"), loaded(str(empty), CPU):
        pass


def test_record_round_trip_without_paths_of_the_disk(answers, pair, tmp_path):
    path = tmp_path / gemma.RECORD
    gemma.records.write(record(answers, CPU, PROMPTS), path)
    found, back = recorded(path)
    assert back == answers
    assert found["workload"]["prompts"] == list(PROMPTS)
    assert str(tmp_path.parent) not in path.read_text("utf-8")
    assert pair["малая"] not in path.read_text("utf-8")


def test_no_record_is_not_an_error_but_a_broken_one_is(tmp_path):
    assert recorded(tmp_path / "нет.json") is None
    broken = tmp_path / "битая.json"
    broken.write_text(json.dumps({"schema": 1}), "utf-8")
    with pytest.raises(ValueError, match=r"битая\.json: нет поля"):
        recorded(broken)


def test_topics_are_ten_in_two_languages():
    assert len(gemma.TOPICS) == 10
    assert len(gemma.PROMPTS) == len(set(gemma.PROMPTS)) == 20
    for russian, english in gemma.TOPICS.values():
        assert any("а" <= letter <= "я" for letter in russian)
        assert english.replace("“", "").replace("”", "").isascii()


def test_answers_compare_by_value():
    assert Answers("a", 1, 4) == Answers("a", 1, 4)
