"""Recall in streams: what is asked can be told from the row, noise has its share, and classes say what nobody can predict."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from crossbreed.core.contracts.task import IGNORE, Task
from crossbreed.core.errors import ConfigError
from crossbreed.core.host import Registry


def made(registry: Registry, name: str, **settings: Any) -> Task:
    task: Task = registry.factory("task", name)(registry.config("task", name, settings))
    return task


def share(kind_BT: Tensor, number: int) -> float:
    return float((kind_BT == number).double().mean())


@pytest.mark.parametrize("noise", [0.0, 0.25, 0.5])
def test_noise_has_its_share_of_noisy_recall_and_stands_between_pairs(
    registry: Registry, noise: float
) -> None:
    task = made(registry, "noisy_recall", noise=noise)
    tokens = task.train_batch(0, 0, 64).tokens_BT
    assert share(tokens < 8, 1) == noise
    is_key, is_value = (tokens >= 8) & (tokens < 16), tokens >= 16
    assert torch.equal(is_key[:, :-1], is_value[:, 1:])


def test_every_key_that_comes_again_is_asked_for_and_no_other(registry: Registry) -> None:
    batch = made(registry, "noisy_recall").train_batch(0, 0, 64)
    for tokens, labels in zip(batch.tokens_BT.tolist(), batch.labels_BT.tolist(), strict=True):
        known: dict[int, int] = {}
        for at, (token, label) in enumerate(zip(tokens, labels, strict=True)):
            assert label == (known.get(token, IGNORE) if 8 <= token < 16 else IGNORE)
            if 8 <= token < 16:
                known[token] = tokens[at + 1]


@pytest.mark.parametrize("settings", [{}, {"key_length": 3, "value_length": 1}, {"pairs": 9, "length": 96}])
def test_fuzzy_keys_of_a_row_differ_and_all_lengths_occur(
    registry: Registry, settings: dict[str, Any]
) -> None:
    task = made(registry, "fuzzy_recall", **settings)
    c = task.config
    batch = task.train_batch(0, 0, 128)
    key_lengths, value_lengths = set(), set()
    for tokens, labels in zip(batch.tokens_BT.tolist(), batch.labels_BT.tolist(), strict=True):
        entries: list[tuple[list[int], list[int]]] = []
        for token in tokens[: tokens.index(c.vocab - 1) if c.vocab - 1 in tokens else None]:
            if token < c.key_tokens and (not entries or entries[-1][1]):
                entries.append(([], []))
            entries[-1][token >= c.key_tokens].append(token)
        told: dict[tuple[int, ...], list[int]] = {}
        for key, value in entries:
            assert told.setdefault(tuple(key), value) == value
            key_lengths.add(len(key))
            value_lengths.add(len(value))
        assert len(told) <= c.pairs
        again = sum(len(value) for _, value in entries) - sum(map(len, told.values()))
        assert sum(label != IGNORE for label in labels) == again > 0
    assert key_lengths == set(range(1, c.key_length + 1))
    assert value_lengths == set(range(1, c.value_length + 1))


def filler(registry: Registry, **settings: Any) -> Task:
    return made(registry, "filler_recall", **settings)


def test_queries_stand_behind_their_pairs_and_answers_are_theirs(registry: Registry) -> None:
    batch = filler(registry, pairs=3, queries=5, length=64).train_batch(0, 0, 64)
    answers = filler(registry, pairs=3, queries=5, length=64, targets="answers").train_batch(0, 0, 64)
    assert torch.equal(batch.tokens_BT, answers.tokens_BT)
    assert torch.equal(batch.labels_BT[:, :-1], batch.tokens_BT[:, 1:])
    assert (batch.labels_BT[:, -1] == IGNORE).all()
    for tokens, labels in zip(answers.tokens_BT.tolist(), answers.labels_BT.tolist(), strict=True):
        pairs: dict[int, int] = {}
        asked = 0
        for at, token in enumerate(tokens):
            if 16 <= token < 32:
                assert labels[at] == pairs.get(token, IGNORE)
                asked += token in pairs
                assert pairs.setdefault(token, tokens[at + 1]) == tokens[at + 1]
            else:
                assert labels[at] == IGNORE
        assert (len(pairs), asked) == (3, 5)


def test_the_score_counts_answers_alone_and_the_row_has_classes_for_the_rest(registry: Registry) -> None:
    task = filler(registry, length=64, pairs=4, queries=4)
    batch = task.train_batch(0, 0, 64)
    judged = task.judged(batch)
    assert (judged.sum(dim=1) == 4).all()
    found = task.classes(batch)
    counts = {name: int((found.class_BT == n).sum()) // 64 for n, name in enumerate(found.names)}
    # Of 8 marks, keys are due before each and values at each; a mark at the very start has nothing before its key.
    assert (counts["answer"], counts["new value"]) == (4, 4)
    assert counts["key"] in (7, 8)
    assert counts["end"] == 1
    assert set(found.groups) == {"recall", "irreducible", "recall or irreducible"}
    either = found.among(found.groups["recall or irreducible"])
    apart = found.among(found.groups["recall"]) ^ found.among(found.groups["irreducible"])
    assert torch.equal(either, apart)


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.7])
def test_noise_is_the_share_of_the_filler_that_nobody_can_predict(registry: Registry, noise: float) -> None:
    """A reader who knows the world predicts exactly the rest, as well as ``likely`` says."""
    task = filler(registry, noise=noise, likely=0.9, length=256, pairs=2, queries=2)
    batch = task.train_batch(0, 0, 256)
    found = task.classes(batch)
    kind = found.class_BT
    due_filler = (kind == found.names.index("noise")) | (kind == found.names.index("filler"))
    seen = float((kind == found.names.index("noise"))[due_filler].double().mean())
    # Noise that the text could have gone on with is filler: 2 of 16. The first two of 248 fillers follow nothing.
    assert seen == pytest.approx(noise * 14 / 16, abs=0.012)
    right = total = 0
    likely = task._followers[:, 0].tolist()  # type: ignore[attr-defined]
    for tokens, kinds in zip(batch.tokens_BT.tolist(), kind.tolist(), strict=True):
        last: list[int] = []
        for token, after, is_due in zip(tokens, tokens[1:], kinds, strict=False):
            last = [*last, token][-2:] if token < 16 else last
            if is_due == found.names.index("filler"):
                total += 1
                right += after == likely[last[0] * 16 + last[1]]
    assert right / total == pytest.approx((0.9 * (1 - noise) + noise / 16) / (1 - noise * 14 / 16), abs=0.01)


def test_more_noise_leaves_pairs_places_and_questions_as_they_are(registry: Registry) -> None:
    """So that a gate is judged on the same recall under more and more of what cannot be predicted."""
    plain, noisy = (filler(registry, noise=r)._draw(_numbers(), 8).tokens for r in (0.0, 0.7))  # type: ignore[attr-defined]
    marks = plain >= 16
    assert (plain[marks] == noisy[marks]).all()
    assert ((noisy >= 16) == marks).all()
    assert (plain != noisy).any()


def _numbers() -> Any:
    import numpy as np

    return np.random.default_rng(0)


def test_another_world_has_other_followers(registry: Registry) -> None:
    one, other = filler(registry)._followers, filler(registry, world=1)._followers  # type: ignore[attr-defined]
    assert (one != other).any()
    assert (one[:, 0] != one[:, 1]).all()


def test_longer_rows_hold_the_same_pairs_in_more_filler(registry: Registry) -> None:
    longer = filler(registry, pairs=2, queries=3, length=32, eval_items=16).at_length(32 * 16)
    batch = next(iter(longer.evaluation(16)))
    assert batch.tokens_BT.shape == (16, 512)
    assert (longer.judged(batch).sum(dim=1) == 3).all()


def test_compression_asks_at_markers_alone(registry: Registry) -> None:
    task = made(registry, "compression", length=26)
    batch = task.train_batch(0, 0, 32)
    assert torch.equal(batch.labels_BT != IGNORE, batch.tokens_BT == 5)
    assert ((batch.tokens_BT < 4).sum(dim=1) == 9).all()
    assert batch.labels_BT[batch.labels_BT != IGNORE].min() >= 6


def test_a_class_that_no_position_has_is_refused(registry: Registry) -> None:
    task = filler(registry)
    with pytest.raises(ConfigError, match="unknown class 'answers' of positions; did you mean 'answer'"):
        task.classes(task.train_batch(0, 0, 1)).among(("answers",))
