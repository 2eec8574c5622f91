"""Batches made ahead: in order, bounded, and ended with the block that takes them."""

import threading

import pytest
import torch

from crossbreed.core.contracts.task import Batch
from crossbreed.core.lab.feed import AHEAD, ahead, feed


class Maker:
    """Makes batches that hold their step, and remembers which and where."""

    def __init__(self, broken: int = -1) -> None:
        self.broken, self.made, self.threads = broken, [], set()
        self.changed = threading.Condition()

    def __call__(self, step: int) -> Batch:
        if step == self.broken:
            raise ValueError(f"no batch {step}")
        with self.changed:
            self.made.append(step)
            self.threads.add(threading.current_thread())
            self.changed.notify_all()
        return Batch(torch.full((2, 3), step), torch.full((2, 3), -step))

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.made) >= count, timeout=30)


def nothing() -> None:
    pass


def steps_of(batches) -> list[int]:
    return [int(batch.tokens_BT[0, 0]) for batch in batches]


@pytest.mark.parametrize("steps", [range(0), range(1), range(5, 5 + AHEAD), range(3, 13)])
def test_batches_come_in_the_order_of_their_steps_and_none_beyond(steps):
    make = Maker()
    with ahead(make, steps, nothing) as batches:
        assert steps_of(batches) == make.made == list(steps)


def test_batches_are_made_while_another_is_used_and_no_more_than_stated():
    make = Maker()
    with ahead(make, range(100), nothing) as batches:
        next(batches)
        make.wait_for(1 + AHEAD)
        next(batches)
        make.wait_for(2 + AHEAD)
        assert threading.current_thread() not in make.threads
        assert len(make.threads) == 1
    assert make.made == list(range(2 + AHEAD))


def test_leaving_early_ends_the_thread_and_what_it_would_have_made():
    make, begun = Maker(), []
    with ahead(make, range(100), lambda: begun.append(1)) as batches:
        next(batches)
    assert not any(thread.is_alive() for thread in make.threads)
    assert len(make.made) <= 1 + AHEAD
    assert begun == [1]


def test_an_error_is_raised_where_its_batch_is_taken():
    with ahead(Maker(broken=2), range(5), nothing) as batches:
        assert steps_of(next(batches) for _ in range(2)) == [0, 1]
        with pytest.raises(ValueError, match="no batch 2"):
            next(batches)


def test_a_cpu_makes_its_batches_itself_when_they_are_taken():
    make = Maker()
    with feed(make, range(4, 7), torch.device("cpu")) as batches:
        assert steps_of([next(batches)]) == make.made == [4]
        assert steps_of(batches) == [5, 6]
        assert make.threads == {threading.current_thread()}


@pytest.mark.gpu
def test_batches_for_a_cuda_device_lie_in_pinned_memory():
    make = Maker()
    with feed(make, range(4), torch.device("cuda", torch.cuda.current_device())) as batches:
        found = list(batches)
    assert steps_of(found) == [0, 1, 2, 3]
    assert all(batch.tokens_BT.is_pinned() and batch.labels_BT.is_pinned() for batch in found)
    assert all(batch.document_BT is None for batch in found)
    assert threading.current_thread() not in make.threads


@pytest.mark.gpu
def test_pinning_beside_a_recording_spoils_neither():
    x = torch.zeros(1 << 20, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with feed(Maker(), range(12), x.device) as batches:
        found = steps_of([next(batches)])
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            found += steps_of(batches)
            y = x + 1
    graph.replay()
    assert found == list(range(12))
    assert y.sum().item() == x.numel()
