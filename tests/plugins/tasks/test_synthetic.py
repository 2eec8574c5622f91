"""Tasks made from random numbers: rows written out by hand are solved, and training asks what it says it asks."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
import torch

from crossbreed.core.contracts.task import IGNORE, Task
from crossbreed.core.errors import ConfigError
from crossbreed.core.host import Registry
from crossbreed.plugins.tasks import SYNTHETIC


def made(registry: Registry, name: str, **settings: Any) -> Task:
    task: Task = registry.factory("task", name)(registry.config("task", name, settings))
    return task


def spelt(task: Task, words: str) -> list[int]:
    """Token ids of words as the task spells them."""
    ids = {word: token for token, word in enumerate(task.words(range(task.vocab)))}
    return [ids[word] for word in words.split()]


ROWS: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    # name, settings, a row, and what is due at its scored positions ("-" where nothing is)
    ("copy", {"length": 8, "symbols": 100, "eval_items": 4}, "s2 s0 s1 | · · · ·", "- - - - s2 s0 s1 -"),
    (
        "selective_copy",
        {"length": 8, "items": 2, "symbols": 100, "eval_items": 4},
        "· s2 · · s0 · | |",
        "- - - - - - s2 s0",
    ),
    (
        "needle",
        {"length": 12, "needles": 2, "queries": 3, "keys": 4, "values": 4},
        "n3 k1 v0 n2 n0 k3 v2 n5 | k3 k1 k3".replace(" n5", ""),
        "- - - - - - - - v2 v0 v2",
    ),
    (
        "noisy_recall",
        {"length": 14, "keys": 4, "values": 4, "noise": 0.2, "eval_items": 4},
        "n0 k1 v3 k0 v2 n1 k1 v3 n0 k3 v1 k0 v2 n4".replace(" n4", ""),
        "- - - - - - v3 - - - - v2 -",
    ),
    (
        "fuzzy_recall",
        {"length": 24, "eval_items": 4},
        # The key a1 is the beginning of the key a1 a2, and the values are told apart all the same.
        "a1 b3 a1 a2 b0 b5 a1 b3 a1 a2 b0 b5 a4 b5 ·",
        "- - - - - - b3 - - b0 b5 - - - -",
    ),
    (
        "filler_recall",
        {"length": 14, "pairs": 2, "queries": 2, "keys": 4, "values": 4},
        "f0 k1 v3 f1 k0 v2 f2 f3 k1 v3 f1 k0 v2 f0",
        "- - - - - - - - v3 - - v2 - -",
    ),
    (
        "compression",
        {"length": 13, "symbols": 3, "items": 2, "span": 3, "eval_items": 4},
        "s2 · s0 | · s1 s2 | s0 s0 · | ·",
        "- - - 2.0 - - - 1.2 - - - 0.0 -",
    ),
    ("parity", {"length": 20, "eval_items": 4}, "1 0 1 1 1 0", "1 1 0 1 0 0"),
    ("arithmetic", {"length": 7, "eval_items": 4}, "3 + 5 x 2 - 6 ·".replace(" ·", ""), "3 - 1 - 2 - 3"),
    (
        "registers",
        {"length": 15, "registers": 2, "eval_items": 4},
        "r1 = 3 r0 = 5 r1 + r0 r0 - r1 r1 = 6",
        "- - 3 - - 5 - - 1 - - 4 - - 6",
    ),
    (
        "pointers",
        {"length": 14, "places": 4, "hops": 3},
        "p1 p3 p0 p1 p3 p2 p2 p0 p1 +1 p0 +3 p2 +2",
        "- - - - - - - - - p3 - p2 - p1",
    ),
    (
        "variables",
        {"length": 12, "chains": 2, "hops": 2, "values": 30, "eval_items": 2},
        "x3 v1 x0 v7 x1 x3 x2 x1 | x2 x0 x1",
        "- - - - - - - - - v1 v7 v1",
    ),
)


@pytest.mark.parametrize(("name", "settings", "row", "due"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_written_out_by_hand_is_solved(
    registry: Registry, name: str, settings: dict[str, Any], row: str, due: str
) -> None:
    task = made(registry, name, **settings)
    tokens = spelt(task, row)
    answers = task.solve(torch.tensor([tokens]))
    assert answers is not None
    said = task.words(answers[0].tolist())
    assert ["-" if d == "-" else s for d, s in zip(due.split(), said, strict=True)] == due.split()


def test_permutations_multiply_from_left_to_right(registry: Registry) -> None:
    # S3 in lexical order: 0 = 012, 1 = 021, 2 = 102, 3 = 120, 4 = 201, 5 = 210.
    task = made(registry, "permutations", points=3, length=16)
    answers = task.solve(torch.tensor([[2, 1, 1, 5]]))
    assert answers is not None
    # First swap places 0 and 1, then 1 and 2: 0 -> 1 -> 2, 1 -> 0 -> 0, 2 -> 2 -> 1, which is 201.
    assert answers[0].tolist() == [2, 4, 2, 3]


def test_permutations_of_two_moved_points_are_swaps_and_their_products_any(registry: Registry) -> None:
    task = made(registry, "permutations", moved=2)
    batch = task.train_batch(0, 0, 256)
    every = list(permutations(range(5)))
    moved = [sum(at != place for place, at in enumerate(every[t])) for t in batch.tokens_BT.unique().tolist()]
    assert sorted(moved) == [0] + 10 * [2]
    assert len(batch.labels_BT.unique()) == 120
    assert torch.equal(
        made(registry, "permutations", points=3, moved=3).train_batch(0, 0, 9).tokens_BT,
        made(registry, "permutations", points=3).train_batch(0, 0, 9).tokens_BT,
    )


def test_facts_are_the_same_in_every_row_and_another_world_has_others(registry: Registry) -> None:
    task, other = made(registry, "facts"), made(registry, "facts", world=1)
    seen: dict[int, set[int]] = {}
    for step in range(4):
        batch = task.train_batch(0, step, 64)
        for key, value in zip(
            batch.tokens_BT.ravel().tolist(), batch.labels_BT.ravel().tolist(), strict=True
        ):
            seen.setdefault(key, set()).add(value)
    assert len(seen) == 64
    assert all(len(values) == 1 for values in seen.values())
    # 64 facts over 16 values, as evenly as can be.
    assert sorted(torch.bincount(torch.tensor([min(v) for v in seen.values()]) - 64).tolist()) == [4] * 16
    keys = torch.arange(32)[None]
    assert not torch.equal(task.solve(keys), other.solve(keys))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["parity", "permutations", "arithmetic", "registers"])
def test_only_the_last_state_is_asked_for_where_that_is_wished(registry: Registry, name: str) -> None:
    every = made(registry, name).train_batch(3, 4, 16)
    last = made(registry, name, scored="last").train_batch(3, 4, 16)
    assert torch.equal(every.tokens_BT, last.tokens_BT)
    asked = last.labels_BT != IGNORE
    assert (asked.sum(dim=1) == 1).all()
    assert torch.equal(last.labels_BT[asked], every.labels_BT[asked])
    behind = asked.int().cumsum(dim=1).bool() & ~asked
    assert (every.labels_BT[behind] == IGNORE).all()


def test_held_out_hops_are_asked_for_in_evaluation_alone(registry: Registry) -> None:
    task = made(registry, "pointers", held_out=[2, 3])

    def hops(tokens: torch.Tensor) -> set[int]:
        return {t - 8 + 1 for t in tokens.ravel().tolist() if 8 <= t < 12}

    assert hops(task.train_batch(0, 0, 256).tokens_BT) == {1, 4}
    assert hops(torch.cat([b.tokens_BT for b in task.evaluation(64)])) == {2, 3}
    plain = made(registry, "pointers")
    assert hops(next(iter(plain.evaluation(256))).tokens_BT) == {1, 2, 3, 4}


@pytest.mark.parametrize("name", ["arithmetic", "permutations", "parity", "pointers", "needle", "variables"])
def test_answers_are_equally_likely_at_the_end_of_a_row(registry: Registry, name: str) -> None:
    """However long the chain: else a guess that knows the length would beat chance."""
    task = made(registry, name)
    labels = task.train_batch(0, 0, 4096).labels_BT
    last = labels[torch.arange(4096), labels.ne(IGNORE).int().mul(torch.arange(labels.shape[1])).argmax(1)]
    top = torch.bincount(last).max() / 4096
    assert top < task.chance + 5 * (task.chance / 4096) ** 0.5


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("copy", {"length": 2}, "length 2 is too short: one symbol, the marker and a blank take 3 tokens"),
        ("parity", {"length": 8}, "only 256 different rows exist for these settings"),
        ("arithmetic", {"modulus": 9}, "modulus 9 is no prime"),
        ("pointers", {"places": 4, "hops": 4}, "hops 4 leads round the whole cycle of 4 places"),
        ("pointers", {"held_out": [5]}, r"held_out \[5\] must name some, and not all, of the hops 1 to 4"),
        ("pointers", {"held_out": [1, 2, 3, 4]}, "must name some, and not all"),
        ("needle", {"needles": 17, "length": 128}, "needles 17 need distinct keys, and there are 16"),
        (
            "noisy_recall",
            {"length": 20},
            "length 20 is too short: at noise 0.25 it holds 7 pairs, and one of 8 keys comes again for sure only among 9",
        ),
        ("fuzzy_recall", {"length": 19}, "4 pairs of up to 4 tokens, one of them twice, take 20 tokens"),
        (
            "fuzzy_recall",
            {"pairs": 7, "key_tokens": 3},
            "pairs 7 need 4 different keys of one token, and key_tokens is 3",
        ),
        ("filler_recall", {"length": 31}, "8 pairs and 8 queries with their answers take 32 tokens"),
        ("filler_recall", {"pairs": 17}, "pairs 17 need distinct keys, and there are 16"),
        ("compression", {"items": 8}, "items 8 do not fit into a window of span 7"),
        (
            "compression",
            {"symbols": 16, "items": 5},
            "make 1048576 names, each a token id; 65536 is the most",
        ),
        ("compression", {"length": 7}, "a window of span 7 and its marker take 8 tokens"),
        ("facts", {"values": 65}, "values 65 is more than the 64 facts"),
        ("registers", {"length": 12}, "setting 4 registers and one instruction more take 15 tokens"),
        ("variables", {"length": 18}, "9 statements, the marker and a query take 20 tokens"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    registry: Registry, name: str, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        made(registry, name, **settings)


@pytest.mark.parametrize("name", [name for name, _, _, _ in SYNTHETIC])
@pytest.mark.parametrize("times", [2, 16])
def test_every_task_is_solved_on_longer_rows_that_are_fixed(
    registry: Registry, name: str, times: int
) -> None:
    task = made(registry, name, eval_items=4)
    longer = task.at_length(times * task.length)
    batch = next(iter(longer.evaluation(4)))
    assert batch.tokens_BT.shape == (4, times * task.length)
    answers, judged = longer.solve(batch.tokens_BT), longer.judged(batch)
    assert answers is not None
    assert judged.any(dim=1).all()
    assert torch.equal(answers[judged], batch.labels_BT[judged])
    assert longer.evaluation_hash() == task.at_length(longer.length).evaluation_hash()


def test_longer_rows_ask_the_same_of_more(registry: Registry) -> None:
    longer = made(registry, "arithmetic", length=17).at_length(65)
    batch = next(iter(longer.evaluation(8)))
    assert batch.tokens_BT.shape == (8, 65)
    assert (batch.labels_BT != IGNORE).sum(dim=1).tolist() == [33] * 8
