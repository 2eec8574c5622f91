"""What a task may leave to the contract."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from crossbreed.core.contracts.task import IGNORE, Batch, Task
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
