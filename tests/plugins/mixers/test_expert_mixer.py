"""Sparse experts: selection, gates, balancing, depth-aware routing."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from crossbreed.core.contracts.context import Recorder
from crossbreed.core.errors import ConfigError
from crossbreed.core.ops.rotary import rotary
from tests.plugins.mixers.helpers import PARTS, build, context, random_input


@pytest.mark.parametrize("shared", [0, 1, 2])
@pytest.mark.parametrize("counted", [True, False])
def test_output_is_the_written_formula(shared: int, counted: bool) -> None:
    mixer = build(
        "experts",
        {
            "experts": 6,
            "hidden": 5,
            "top_k": 3,
            "shared": shared,
            "shared_in_top_k": counted,
            "shared_score": 0.7,
            "router_key": 4,
        },
    )
    routed = 3 - shared if counted else 3
    mixer.router.balance_LE[0].copy_(torch.tensor([0.0, 1.0, -1.0, 0.5, 2.0, -2.0]))
    x = random_input(2, 7)
    y, _ = mixer(x, context(2, 7), None)
    for u, found in zip(x.flatten(0, 1), y.flatten(0, 1), strict=True):
        scores = (u @ mixer.router.query_RD.T) @ mixer.router.key_ER.T
        chosen = (scores + mixer.router.balance_LE[0]).argsort(descending=True)[:routed].tolist()
        total = sum(scores[e].sigmoid() for e in chosen) + shared * 0.7
        wanted = torch.zeros_like(u)
        for e, gate in [*((e, scores[e].sigmoid()) for e in chosen), *((6 + s, 0.7) for s in range(shared))]:
            hidden = F.silu(u @ mixer.gate_EDF[e]) * (u @ mixer.up_EDF[e])
            wanted += gate / total * (hidden @ mixer.down_EFD[e])
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-11)


def test_balancing_moves_the_bias_towards_equal_loads_and_reaches_them() -> None:
    mixer = build("experts", {"experts": 4, "hidden": 4, "top_k": 2, "bias_rate": 0.05}, scale=30.0)
    x = random_input(4, 32) + 0.5
    loads = []
    for _ in range(120):
        recorder = Recorder()
        mixer(x, context(4, 32, phase="train", recorder=recorder), None)
        (record,) = recorder.records
        loads.append(record[1]["load"])
        assert loads[-1].sum() == 4 * 32
        before = mixer.router.balance_LE[0].clone()
        mixer.after_step([record[1]])
        moved = mixer.router.balance_LE[0] - before
        assert torch.equal(moved.sign(), torch.sign(loads[-1].double().mean() - loads[-1]))
    assert loads[-1].max() < loads[0].max()
    assert loads[-1].max() - loads[-1].min() < 0.25 * (loads[0].max() - loads[0].min())


def test_loads_count_read_and_counted_tokens_over_all_depths() -> None:
    mixer = build("experts", {"experts": 4, "hidden": 4, "top_k": 3}, depths=2)
    x, recorder = random_input(2, 10), Recorder()
    read = torch.arange(10).expand(2, 10) < 6
    mask = torch.arange(10).expand(2, 10) >= 2
    for depth in range(2):
        at = context(2, 10, recorder=recorder, asked_BT=read, loss_mask_BT=mask, depth=depth, depths=2)
        mixer(x, at, None, read)
    loads = [statistics["load"] for _, statistics in recorder.records]
    # 2 rows x 4 tokens x 2 routed slots at each depth.
    assert [int(load.sum()) for load in loads] == [16, 16]
    recorder.open = False
    mixer(x, context(2, 10, recorder=recorder), None)
    assert len(recorder.records) == 2
    mixer.after_step([statistics for _, statistics in recorder.records])
    load = (loads[0] + loads[1]).double()
    torch.testing.assert_close(
        mixer.router.balance_LE[0], 1e-3 * torch.sign(load.mean() - load), rtol=0, atol=1e-9
    )


def test_the_bias_changes_the_choice_and_not_the_gates() -> None:
    mixer = build("experts", {"experts": 4, "hidden": 4, "top_k": 3, "shared": 1})
    x = random_input(1, 20)
    before, _ = mixer(x, context(1, 20), None)
    mixer.router.balance_LE[0] += 5.0
    same, _ = mixer(x, context(1, 20), None)
    torch.testing.assert_close(same, before, rtol=0, atol=1e-12)
    mixer.router.balance_LE[0][0] -= 100.0
    changed, _ = mixer(x, context(1, 20), None)
    assert not torch.allclose(changed, before)


def test_routing_knows_the_depth_and_the_depths_left() -> None:
    mixer = build("experts", {"experts": 6, "hidden": 4, "router_key": 8}, depths=4)
    x = random_input(1, 30)

    def at(depth: int, depths: int) -> torch.Tensor:
        return mixer(x, context(1, 30, depth=depth, depths=depths), None)[0]

    assert not torch.allclose(at(0, 4), at(1, 4))
    assert not torch.allclose(at(1, 4), at(1, 3))
    query = x[0] @ mixer.router.query_RD.T
    halves = query.chunk(2, -1)
    turned = [
        rotary(half[:, None, None], torch.full((30, 1), steps), 100.0).flatten(1)
        for half, steps in zip(halves, (1, 3), strict=True)
    ]
    scores = torch.cat(turned, -1) @ mixer.router.key_ER.T
    recorder = Recorder()
    mixer(x, context(1, 30, depth=1, depths=4, recorder=recorder), None)
    wanted = torch.bincount(scores.argmax(-1), minlength=6)
    assert torch.equal(recorder.records[0][1]["load"], wanted)
    plain = build("experts", {"experts": 6, "hidden": 4, "router_key": 8, "depth_encoding": "none"}, depths=4)
    one, two = (plain(x, context(1, 30, depth=d, depths=4), None)[0] for d in (0, 1))
    assert torch.equal(one, two)


def test_the_router_learns_with_a_single_routed_expert() -> None:
    mixer = build("experts", {"experts": 4, "hidden": 4, "top_k": 2, "shared": 1})
    y, _ = mixer(random_input(1, 20), context(1, 20, phase="train"), None)
    y.square().sum().backward()
    assert mixer.router.key_ER.grad.abs().max() > 0
    assert mixer.router.query_RD.grad.abs().max() > 0


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"top_k": 1}, r"top_k \(1\) must exceed shared \(1\)"),
        ({"experts": 2, "top_k": 4}, "3 routed experts, but there are only 2"),
        ({"router_key": 6}, "multiple of 4"),
        ({"expert": 3}, "did you mean 'experts'"),
    ],
)
def test_illegal_settings_are_sentences(params: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PARTS.config("mixer", "experts", params)
