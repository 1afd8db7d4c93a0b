"""Факты: их много, они однозначны, не меняются от запуска к запуску, и токенизатор их не портит."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter

import pytest

from nanolm import facts
from nanolm.facts import Fact


@pytest.fixture(scope="module")
def known() -> tuple[Fact, ...]:
    return facts.facts()


@pytest.fixture(scope="module")
def tokenizer(known):
    return facts.train_tokenizer(known)


def test_every_relation_has_many_facts(known):
    counts = Counter(fact.relation for fact in known)
    assert set(counts) == set(facts.RELATIONS)
    assert min(counts.values()) >= 100
    assert len(known) > 1500


def test_a_prompt_has_exactly_one_answer(known):
    assert max(Counter(fact.prompt for fact in known).values()) == 1


def test_known_facts_are_right(known):
    answers = {fact.prompt: fact.answer for fact in known}
    assert answers["Страна Нигерия, валюта:"] == "нигерийская найра"
    assert answers["Страна Танзания, код:"] == "TZA"
    assert answers["Страна Ангола, официальный язык:"] == "португальский"
    assert answers["Город Найроби, страна:"] == "Кения"
    assert answers["Язык амхарский, письменность:"] == "эфиопская"
    assert answers["Валюта кенийский шиллинг, код валюты:"] == "KES"


def test_no_fact_repeats_its_subject_or_names_the_latin_script(known):
    assert not [fact for fact in known if fact.relation == "страна" and fact.subject == fact.answer]
    assert not [fact for fact in known if fact.answer == "латиница"]


def test_fixed_prompts_are_ten_and_mostly_african(known):
    fixed = facts.fixed_prompts(known)
    assert len(fixed) == len(set(fixed)) == 10
    assert {fact.subject for fact in fixed} >= {"Нигерия", "Эфиопия", "Танзания", "Ангола", "Найроби"}
    assert len({fact.relation for fact in fixed}) >= 6


def test_sentence_prompt_and_question():
    fact = Fact("валюта", "Страна", "Кения", "кенийский шиллинг")
    assert fact.prompt == "Страна Кения, валюта:"
    assert fact.sentence == "Страна Кения, валюта: кенийский шиллинг"
    assert fact.question == "Страна Кения: какая там валюта?"


def test_questions_keep_the_subject_in_the_nominative(known):
    for fact in known:
        assert fact.question.startswith(f"{fact.kind} {fact.subject}: ")
        assert fact.question.endswith("?")


def test_dialogues_wrap_question_and_answer(known):
    prompts, responses = facts.dialogues(known[:2], "<s>", "</s>")
    assert prompts[0] == f"<s>user\n{known[0].question}</s>\n<s>model\n"
    assert responses == [f"{fact.answer}</s>" for fact in known[:2]]


def test_tokenizer_restores_every_sentence(known, tokenizer):
    for fact in known:
        ids = tokenizer.encode(fact.sentence).ids
        assert tokenizer.decode(ids) == fact.sentence
        assert ids == [*tokenizer.encode(fact.prompt).ids, *tokenizer.encode(fact.answer).ids]


def test_tokenizer_has_the_asked_size_and_the_end_mark(known, tokenizer):
    assert tokenizer.get_vocab_size() == facts.VOCABULARY
    assert facts.end_token(tokenizer) == tokenizer.token_to_id(facts.END)
    assert not any(facts.end_token(tokenizer) in tokenizer.encode(fact.sentence).ids for fact in known[:50])


def test_foreign_tokenizer_is_refused():
    from tokenizers import Tokenizer, models

    with pytest.raises(ValueError, match="нет метки"):
        facts.end_token(Tokenizer(models.BPE()))


def test_digest_sees_every_change(known):
    first = known[0]
    other = Fact(first.relation, first.kind, first.subject, first.answer + "!")
    assert facts.digest(known) != facts.digest([other, *known[1:]])
    assert facts.digest(known) != facts.digest(known[::-1])


def test_another_process_gets_the_same_facts_and_tokens(known, tokenizer):
    code = (
        "import hashlib; from nanolm import facts; k = facts.facts();"
        "print(facts.digest(k), hashlib.sha256(facts.train_tokenizer(k).to_str().encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "TOKENIZERS_PARALLELISM": "true"}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    here = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()
    assert printed.stdout.split() == [facts.digest(known), here]


def test_missing_babel_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "babel", None)
    with pytest.raises(ModuleNotFoundError, match="pip install babel"):
        facts.facts()
