"""One model trained by several devices that share each batch, against one device that has all of it."""

from __future__ import annotations

from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from typing import Any

import pytest
import torch
import torch.distributed as dist

from crossbreed.core.contracts.task import IGNORE, Batch
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Host
from crossbreed.core.lab.checkpoint import Header
from crossbreed.core.lab.passes import TrainingPass
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.shard import BUCKET_BYTES, Shard, _buckets
from crossbreed.core.lab.train import Trainer
from crossbreed.core.model.language_model import LanguageModel

DEVICES, STEPS, BATCH, LENGTH, VOCAB = 2, 6, 6, 24, 20
ATTENTION = {"mixer": "attention", "params": {"heads": 2, "head_size": 8}}
EXPERTS = {"mixer": "experts", "params": {"experts": 4, "shared": 1, "top_k": 3, "hidden": 8}}
MULTI = {"mixer": "multi_mixer", "params": {"readers": ["mamba2", "attention"], "heads": 2, "head_size": 8}}
MAMBA = {"mixer": "mamba2", "params": {"heads": 2, "head_size": 8, "state_size": 8}}


def stack(*blocks: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"vocab": VOCAB, "d_model": 16, "stages": [{"blocks": list(blocks)}], **others}


def gated(name: str, **params: Any) -> dict[str, Any]:
    return {"sublayers": [ATTENTION], "gate": {"name": name, "params": params}}


def halting(name: str, **params: Any) -> dict[str, Any]:
    stage = {
        "blocks": [{"sublayers": [ATTENTION, EXPERTS]}],
        "depth": {"name": "recurrent", "repeats": 3},
        "halt": {"name": name, "params": params},
    }
    return {"vocab": VOCAB, "d_model": 16, "stages": [stage]}


ARCHITECTURES: dict[str, dict[str, Any]] = {
    "mamba and an entropy gate": stack({"sublayers": [MAMBA]}, gated("entropy_gate", ranks="whole")),
    "a gate that keeps its rate": stack({"sublayers": [MAMBA]}, gated("learned", loss_weight=3.0)),
    "experts in balance": stack({"sublayers": [ATTENTION, EXPERTS]}),
    "drawn modes": stack(
        {"sublayers": [MULTI]}, mode_router={"name": "segment_random", "params": {"segment": 4}}
    ),
    "modes by feedback": stack(
        {"sublayers": [MULTI]},
        mode_router={"name": "entropy_gate", "params": {"segment": 4, "ranks": "whole"}},
    ),
    "halting by entropy": halting("entropy_gate", ranks="whole"),
    "halting by a learned score": halting("learned"),
}


class Ragged:
    """Rows with more and more labels, the first ones of a batch with none."""

    length = LENGTH

    def train_batch(self, seed: int, step: int, batch: int) -> Batch:
        g = torch.Generator().manual_seed(100 * seed + step)
        tokens_BT = torch.randint(VOCAB, (batch, LENGTH), generator=g)
        labels_BT = torch.randint(VOCAB, (batch, LENGTH), generator=g)
        scored_B = torch.linspace(0, LENGTH, batch).long()
        return Batch(tokens_BT, labels_BT.where(torch.arange(LENGTH) < scored_B[:, None], IGNORE))


def trained(data: dict[str, Any], shard: Shard, dtype: torch.dtype) -> tuple[dict[str, Any], list[Any]]:
    """Parameters and buffers after a few steps, and the points of the curve."""
    registry = Host.load(third_party=False)
    recipe = Recipe(tokens=STEPS * BATCH * LENGTH, batch=BATCH, lr=0.01, clip=0.5, log_every=1)
    model = LanguageModel(registry.canonical(Architecture.model_validate(data)), registry, seed=3).to(dtype)
    owner = Header("a", recipe.model_dump(mode="json"), {}, seed=3, step=0, tokens=0, rung=0)
    points: list[Any] = []
    trainer = Trainer(model, Ragged(), recipe, owner, lambda record: points.extend(record.points))  # type: ignore[arg-type]
    trainer.share(shard)
    trainer.advance(recipe.tokens, lambda: False)
    return {name: x.numpy() for name, x in model.state_dict().items()}, points


def as_one_of_several(rank: int, store: str, answers: SimpleQueue) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=DEVICES)
    for name, data in ARCHITECTURES.items():
        answers.put((rank, name, trained(data, Shard(rank, DEVICES), torch.float64)))
    answers.put(
        (rank, "float32", trained(ARCHITECTURES["experts in balance"], Shard(rank, DEVICES), torch.float32))
    )
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> dict[tuple[int, str], Any]:
    """(rank, architecture) -> what each of several processes has after training together."""
    spawn = get_context("spawn")
    answers = spawn.SimpleQueue()
    store = str(tmp_path_factory.mktemp("store") / "file")
    processes = [spawn.Process(target=as_one_of_several, args=(r, store, answers)) for r in range(DEVICES)]
    for process in processes:
        process.start()
    expected = DEVICES * (len(ARCHITECTURES) + 1)
    found = {}
    for _ in range(expected):
        while answers.empty():
            assert all(process.exitcode in (None, 0) for process in processes)
            processes[0].join(0.05)
        rank, name, result = answers.get()
        found[rank, name] = result
    for process in processes:
        process.join(60)
    return found


def check(shared, data: dict[str, Any], name: str, dtype: torch.dtype, tolerance: float) -> None:
    wanted, curve = trained(data, Shard(), dtype)
    for rank in range(DEVICES):
        tensors, points = shared[rank, name]
        for key, x in wanted.items():
            assert tensors[key] == pytest.approx(x, rel=tolerance, abs=tolerance), (rank, key)
        for point, other in zip(points, curve, strict=True):
            assert point.loss_nats == pytest.approx(other.loss_nats, rel=tolerance)
            assert point.grad_norm == pytest.approx(other.grad_norm, rel=tolerance)
            assert point.aux == pytest.approx(other.aux, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_devices_that_share_batches_train_what_one_device_trains(shared, name):
    check(shared, ARCHITECTURES[name], name, torch.float64, 1e-6)


def test_in_single_precision_they_differ_by_rounding(shared):
    check(shared, ARCHITECTURES["experts in balance"], "float32", torch.float32, 2e-3)


def test_all_devices_hold_the_same_weights_to_the_last_bit(shared):
    for name in ARCHITECTURES:
        first, second = (shared[rank, name][0] for rank in range(2))
        for key, x in first.items():
            assert (x == second[key]).all(), (name, key)


def test_a_part_has_the_rows_and_row_numbers_that_it_has_in_the_whole(build, genome):
    whole = Ragged().train_batch(0, 4, BATCH)
    recipe = Recipe(tokens=1, batch=BATCH)
    model = build(genome())
    for rank in range(3):
        shard = Shard(rank, 3)
        rows = slice(2 * rank, 2 * rank + 2)
        assert torch.equal(shard.rows(whole).tokens_BT, whole.tokens_BT[rows])
        assert torch.equal(shard.rows(whole).labels_BT, whole.labels_BT[rows])
        assert shard.rows(whole).document_BT is None
        numbers_B = TrainingPass(model, recipe, 0, shard).rows_B(4)
        assert numbers_B.tolist() == list(range(4 * BATCH, 5 * BATCH))[rows]


def test_a_part_that_is_all_needs_no_other_process():
    alone, x = Shard(), torch.tensor(3.0, requires_grad=True)
    assert alone.whole(x) is x
    assert alone.sums(x) == (x,)
    assert alone.agreed(True)
    assert not alone.agreed(False)
    batch = Ragged().train_batch(0, 0, 4)
    assert alone.rows(batch) is batch


def test_gradients_travel_in_buckets_of_one_dtype():
    sizes = (BUCKET_BYTES // 8, BUCKET_BYTES // 8, BUCKET_BYTES // 2, 1, 2)
    gradients = [torch.empty(n, device="meta") for n in sizes]
    gradients.insert(4, torch.empty(1, dtype=torch.float64, device="meta"))
    found = [[g.numel() for g in bucket] for bucket in _buckets(gradients)]
    assert found == [[sizes[0], sizes[1]], [sizes[2]], [1], [1], [2]]
