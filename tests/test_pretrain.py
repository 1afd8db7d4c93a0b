"""Обучение фактам: повторяется бит в бит, учит то, чему учат, и запоминается под своим ключом."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
import torch

from nanolm import facts, pretrain, store
from nanolm.pretrain import FAMILY, IGNORED, Recipe, batches, collate, encode, recalled, schedule, train
from nanolm.spec import Spec

SPEC = Spec(V=320, D=32, L=2, N=2, S=64, tie_embeddings=True)
TINY = Recipe(SPEC, learning_rate=1e-2, epochs=60, batch=8, threads=1)


@pytest.fixture(scope="module")
def known():
    return [fact for fact in facts.facts() if fact.relation == "валюта"][:24]


@pytest.fixture(scope="module")
def tokenizer(known):
    return facts.train_tokenizer(known, SPEC.V)


@pytest.fixture(scope="module")
def trained(known, tokenizer):
    return train(TINY, known, tokenizer)


def test_loss_falls_and_facts_are_recalled(trained, known):
    assert trained.losses[-1] < trained.losses[0] / 10
    assert sum(recalled(trained, known)) >= len(known) // 2
    assert len(trained.losses) == TINY.epochs


def test_untrained_model_recalls_nothing(known, tokenizer):
    assert sum(recalled(train(replace(TINY, epochs=1), known, tokenizer), known)) <= 2


def test_batching_does_not_change_answers(trained, known):
    assert trained.answers(known) == [trained.answer(fact) for fact in known]


def test_same_seed_same_weights_whatever_the_neighbours_draw(known, tokenizer):
    recipe = replace(TINY, epochs=2)
    first = train(recipe, known, tokenizer)
    torch.manual_seed(99)
    torch.rand(7)
    second = train(recipe, known, tokenizer)
    assert first.losses == second.losses
    mine, other = first.model.state_dict(), second.model.state_dict()
    assert all(torch.equal(mine[name], other[name]) for name in mine)


def test_training_leaves_the_process_as_it_was(known, tokenizer):
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.get_rng_state()
    train(replace(TINY, epochs=1, threads=2), known, tokenizer)
    after = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.get_rng_state()
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


def test_another_seed_gives_another_model(known, tokenizer):
    short = replace(TINY, epochs=1)
    assert train(short, known, tokenizer).losses != train(replace(short, seed=1), known, tokenizer).losses


def test_an_epoch_visits_every_row_once(known, tokenizer):
    rows = encode(known, tokenizer)
    visited = [i for part in batches(rows, 7, torch.Generator().manual_seed(0)) for i in part]
    assert sorted(visited) == list(range(len(rows)))


def test_batches_hold_rows_of_close_length(known, tokenizer):
    rows = encode(known, tokenizer)
    lengths = [len(p) + len(a) for p, a in rows]
    parts = list(batches(rows, 6, torch.Generator().manual_seed(0)))
    padding = sum(max(lengths[i] for i in part) * len(part) for part in parts) / sum(lengths)
    assert padding < 1.1


def test_only_the_answer_has_targets():
    tokens, targets = collate([([5, 6, 7], [8, 9, 0]), ([5], [4, 0])], end=0)
    assert tokens.tolist() == [[5, 6, 7, 8, 9], [5, 4, 0, 0, 0]]
    assert targets.tolist() == [[IGNORED, IGNORED, 8, 9, 0], [4, 0, IGNORED, IGNORED, IGNORED]]


def test_schedule_warms_up_and_ends_at_the_floor():
    assert schedule(0) < 0.05
    assert schedule(pretrain.WARMUP) > 0.95
    assert schedule(1) == pytest.approx(pretrain.FLOOR)
    assert max(schedule(i / 100) for i in range(101)) <= 1


def test_too_short_context_is_refused(known, tokenizer):
    with pytest.raises(ValueError, match=r"S = 4: самая длинная фраза"):
        train(replace(TINY, spec=SPEC.replace(S=4)), known, tokenizer)


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch": -1}, {"threads": 0}, {"learning_rate": 0.0}])
def test_wrong_recipe_names_the_field(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(TINY, **wrong)


def test_the_pair_is_one_family():
    small, large = FAMILY["малая"], FAMILY["большая"]
    assert {small.spec.V, large.spec.V} == {facts.VOCABULARY}
    assert (small.epochs, small.batch, small.seed) == (large.epochs, large.batch, large.seed)
    assert large.spec.D > small.spec.D
    assert large.spec.L > small.spec.L


# --- Хранилище --------------------------------------------------------------------------------------

QUICK = replace(TINY, epochs=2)


@pytest.fixture
def counted(monkeypatch):
    """Сколько раз обучали на самом деле."""
    calls = []

    def counting(recipe, known, tokenizer):
        calls.append(recipe)
        return train(recipe, known, tokenizer)

    monkeypatch.setattr(store, "train", counting)
    return calls


def test_second_time_nothing_is_trained(counted, known, tmp_path):
    first = store.restore(QUICK, known, tmp_path)
    second = store.restore(QUICK, known, tmp_path)
    assert len(counted) == 1
    assert first.losses == second.losses
    assert first.seconds == second.seconds
    assert first.answers(known) == second.answers(known)


def test_changed_inputs_train_again(counted, known, tmp_path):
    store.restore(QUICK, known, tmp_path)
    store.restore(replace(QUICK, seed=1), known, tmp_path)
    store.restore(replace(QUICK, learning_rate=2e-2), known, tmp_path)
    store.restore(QUICK, known[:-1], tmp_path)
    store.restore(replace(QUICK, spec=SPEC.replace(D=16, H=8, F=40)), known, tmp_path)
    assert len(counted) == 5
    assert len(list(tmp_path.iterdir())) == 5


def inputs(known, tokenizer):
    return store.key_inputs(QUICK, known, tokenizer)


def test_key_knows_torch_and_the_code(known, tokenizer, monkeypatch):
    before = store.key(inputs(known, tokenizer))
    monkeypatch.setattr(store, "code_digest", lambda source: "другой код")
    changed = store.key(inputs(known, tokenizer))
    monkeypatch.setattr(torch, "__version__", "0.0")
    assert len({before, changed, store.key(inputs(known, tokenizer))}) == 3


def test_key_does_not_know_the_budget(known, tokenizer):
    assert set(inputs(known, tokenizer)["code"]) == {"nanolm.model", "nanolm.pretrain"}
    assert "budget" not in json.dumps(inputs(known, tokenizer))


def test_comments_and_docstrings_are_not_code():
    code = 'def f(x):\n    """Было."""\n    return x + 1\n'
    assert store.code_digest(code) == store.code_digest(
        'def f(x):\n    """Стало."""\n    # причина\n    return x + 1\n'
    )
    assert store.code_digest(code) != store.code_digest(code.replace("+ 1", "+ 2"))


@pytest.mark.parametrize("damage", ["обрезан", "чужой байт", "нет весов", "нет записи", "не JSON", "не те поля"])
def test_damaged_folder_is_trained_again(counted, known, tmp_path, damage):
    first = store.restore(QUICK, known, tmp_path)
    (place,) = tmp_path.iterdir()
    weights, record = place / store.WEIGHTS, place / store.RECORD
    data = weights.read_bytes()
    actions = {
        "обрезан": lambda: weights.write_bytes(data[: len(data) // 2]),
        "чужой байт": lambda: weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1])),
        "нет весов": weights.unlink,
        "нет записи": record.unlink,
        "не JSON": lambda: record.write_text("{", "utf-8"),
        "не те поля": lambda: record.write_text("[]", "utf-8"),
    }
    actions[damage]()
    again = store.restore(QUICK, known, tmp_path)
    assert len(counted) == 2
    assert again.losses == first.losses
    store.restore(QUICK, known, tmp_path)
    assert len(counted) == 2


def test_interrupted_training_leaves_nothing(known, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.restore(QUICK, known, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_builds_at_once_agree(known, tmp_path):
    ready = store.restore(QUICK, known, tmp_path)
    (place,) = tmp_path.iterdir()
    draft = tmp_path / "draft"
    draft.mkdir()
    (draft / "file").write_text("второй")

    def busy(source, target):
        raise OSError("занято")

    store._replace(draft, place, busy)
    assert ready.losses
    store._replace(draft, place, os.replace)
    assert (place / "file").read_text() == "второй"


def test_folder_can_be_named(monkeypatch, tmp_path):
    monkeypatch.setenv("NANOLM_MODELS", str(tmp_path / "мои"))
    assert store.default_folder() == tmp_path / "мои"
    monkeypatch.delenv("NANOLM_MODELS")
    assert store.default_folder().name == "models"
