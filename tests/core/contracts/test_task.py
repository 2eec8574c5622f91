"""What a task may leave to the contract: its classes, its words, what counts, what training and evaluation share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch

from crossbreed.core.contracts.task import IGNORE, Batch, Overlap, Score, Task, TokenClasses
from crossbreed.core.errors import ConfigError


def test_a_task_that_names_no_classes_tells_scored_positions_from_others():
    labels_BT = torch.tensor([[IGNORE, 3, IGNORE], [0, IGNORE, 1]])
    found = Task(None).classes(Batch(torch.zeros(2, 3, dtype=torch.int64), labels_BT))
    assert found.names == ("unscored", "scored")
    assert found.class_BT.tolist() == [[0, 1, 0], [1, 0, 1]]


class Dotted(Task):
    """Twelve tokens, of which the first two are spelt alike."""

    vocab = 12

    def words(self, tokens: Sequence[int]) -> list[str]:
        return ["·" if token < 2 else f"k{token}" for token in tokens]


def test_symbols_are_written_as_they_are_spelt_or_by_number() -> None:
    task = Dotted(None)
    assert task.separator is None
    assert task.ending is None
    assert task.prompt("k3") == task.encode("k3")
    assert task.encode("k3 ·  k11\n#1 #5") == [3, 0, 11, 1, 5]
    assert task.decode([3, 0, 1]) == "k3 · ·"
    assert task.encode(" ") == []
    for word in ("k12", "#12", "#-1", "#", "5"):
        with pytest.raises(ConfigError, match=f"word {word!r} is not in the vocabulary of task Dotted"):
            task.encode(f"k3 {word}")


def test_words_that_are_numbers_are_read_as_words() -> None:
    class Shifted(Dotted):
        def words(self, tokens: Sequence[int]) -> list[str]:
            return [str(token - 2) for token in tokens]

    assert Shifted(None).encode("5 #5") == [7, 5]


class Drawn(Task):
    """Rows of ``length`` tokens drawn from 16: the shorter they are, the surer that both sides draw the same."""

    vocab = 16
    on: tuple[str, ...] = ()

    def __init__(self, length: int, evaluation_seed: int) -> None:
        self.tokens, self.evaluation_seed = length, evaluation_seed

    @property
    def length(self) -> int:
        return self.tokens

    @property
    def score(self) -> Score:
        return Score("accuracy", "max", 1.0, self.on)

    def train_batch(self, seed: int, step: int, size: int) -> Batch:
        random = torch.Generator().manual_seed(1000 * seed + step)
        tokens_BT = torch.randint(0, 16, (size, self.tokens), generator=random)
        return Batch(tokens_BT, torch.where(tokens_BT < 8, tokens_BT, IGNORE))

    def evaluation(self, size: int) -> Iterator[Batch]:
        yield self.train_batch(self.evaluation_seed, 0, 40)


def test_equal_seeds_of_both_sides_share_everything() -> None:
    assert Drawn(12, evaluation_seed=0).overlap(seed=0, steps=1, size=64) == Overlap(64, 40, 40)


def test_short_rows_of_few_tokens_overlap_whatever_the_seeds() -> None:
    """16 tokens and rows of 2 make 256 rows: training of 1,000 has nearly all of them."""
    found = Drawn(2, evaluation_seed=9).overlap(seed=0, steps=10, size=100)
    assert 240 < found.training <= 256
    assert found.shared > 0.9 * found.evaluation
    assert Drawn(12, evaluation_seed=9).overlap(seed=0, steps=10, size=100).shared == 0


def test_all_labels_count_unless_the_score_names_classes() -> None:
    task = Drawn(12, evaluation_seed=0)
    batch = task.train_batch(0, 0, 4)
    assert torch.equal(task.judged(batch), batch.labels_BT != IGNORE)
    task.on = ("scored",)
    assert torch.equal(task.judged(batch), batch.labels_BT != IGNORE)
    # What has no label counts nowhere, whatever its class.
    task.on = ("unscored",)
    assert not task.judged(batch).any()


def test_positions_are_found_by_the_names_of_their_classes() -> None:
    found = TokenClasses(("a", "b", "c"), torch.tensor([[0, 1, 2, 1]]))
    assert found.among(("a", "b")).tolist() == [[True, True, False, True]]
    assert found.among(()).tolist() == [[False] * 4]
    with pytest.raises(ConfigError, match="unknown class 'd' of positions"):
        found.among(("d",))
