"""What a task may leave to the contract."""

from __future__ import annotations

import torch

from crossbreed.core.contracts.task import IGNORE, Batch, Task


def test_a_task_that_names_no_classes_tells_scored_positions_from_others():
    labels_BT = torch.tensor([[IGNORE, 3, IGNORE], [0, IGNORE, 1]])
    found = Task(None).classes(Batch(torch.zeros(2, 3, dtype=torch.int64), labels_BT))
    assert found.names == ("unscored", "scored")
    assert found.class_BT.tolist() == [[0, 1, 0], [1, 0, 1]]
