"""The entropy gate's causal feedback rule at mode: a segment reads what the segment before it called for."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from crossbreed.core.contracts.context import Recorder
from crossbreed.plugins.routers.entropy_gate import EntropyGate
from tests.plugins.routers.gated import noise, router
from tests.plugins.routers.pieces import context, entropies, positions_of


def run_feedback(r, h_BT, pieces, **fields):
    """Choices as a model takes them: pieces cut where a segment starts, each decided before it is observed."""
    B, T = h_BT.shape
    whole = context(B, T, **{"site": "mode", **fields})
    starts = (whole.positions_BT % r.segment_length() == 0).any(0).nonzero().flatten().tolist()
    cuts = sorted({0, *starts, *pieces, T})
    state, choices = r.init_state(B), []
    for start, stop in pairwise(cuts):
        piece, c = entropies(h_BT[:, start:stop]), whole.slice(start, stop)
        decision, state = r(piece, c, state)
        choices.append(decision.choice_BT)
        state = r.observe(piece, c, state)
    return torch.cat(choices, dim=1), state


def test_a_segment_reads_what_the_segment_before_it_calls_for():
    r = router("mode", segment=4, mu_init=0.5, kappa=0.0)
    h_BT = torch.tensor([[0.9] * 4 + [0.1] * 4 + [0.9] * 4 + [0.9] * 2, [0.1] * 14])
    choice_BT, _ = run_feedback(r, h_BT, [])
    assert choice_BT.tolist() == [[1] * 4 + [1] * 4 + [0] * 4 + [1] * 2, [1] * 4 + [0] * 10]


@pytest.mark.parametrize("first", [0, 1])
def test_the_first_segment_of_every_document_takes_the_declared_choice(first):
    positions_BT, document_BT = positions_of(6, 9)
    r = router("mode", segment=4, mu_init=0.5, kappa=0.0, first_choice=first)
    h_BT = torch.full((1, 15), 0.9 if first == 0 else 0.1)
    choice_BT, _ = run_feedback(r, h_BT, [], positions_BT=positions_BT, document_BT=document_BT)
    other = 1 - first
    assert choice_BT[0].tolist() == [first] * 4 + [other] * 2 + [first] * 4 + [other] * 5


@pytest.mark.parametrize("pieces", [[1], [3], [4], [5], [2, 9, 10], list(range(1, 23))])
def test_any_split_ends_in_the_same_choices_and_state(pieces):
    r = router("mode", segment=4, mu_init=0.5, kappa=0.0).double()
    h_BT = noise(5, 23)
    whole, end = run_feedback(r, h_BT, [])
    choice_BT, state = run_feedback(r, h_BT, pieces)
    assert torch.equal(choice_BT, whole)
    assert whole[:, 4:].unique().tolist() == [0, 1]
    for name, value in end.items():
        assert torch.allclose(state[name], value, atol=1e-14), name
        assert state[name].dtype == value.dtype


@pytest.mark.parametrize("lengths", [(17,), (6, 11), (4, 4, 9), (3, 2, 12), (16, 1)])
def test_one_long_observation_equals_token_by_token(lengths):
    positions_BT, document_BT = positions_of(*lengths)
    r = router("mode", segment=4).double()
    h_BT = noise(1, 17)
    c = context(1, 17, site="mode", positions_BT=positions_BT, document_BT=document_BT)
    long = r.observe(entropies(h_BT), c, r.init_state(1))
    short = r.init_state(1)
    for t in range(17):
        short = r.observe(entropies(h_BT[:, t : t + 1]), c.slice(t, t + 1), short)
    for name, value in short.items():
        assert torch.allclose(long[name], value, atol=1e-14), name
    assert long["count_B"].item() == lengths[-1] % 4


def test_rows_of_different_length_do_not_disturb_each_other():
    r = router("mode", segment=4).double()
    h_BT, valid_BT = noise(3, 11), torch.arange(11) < torch.tensor([[11], [6], [0]])
    together = r.observe(entropies(h_BT), context(3, 11, site="mode", valid_BT=valid_BT), r.init_state(3))
    for row, length in ((0, 11), (1, 6)):
        alone = r.observe(
            entropies(h_BT[row : row + 1, :length]), context(1, length, site="mode"), r.init_state(1)
        )
        assert all(torch.allclose(together[k][row], alone[k][0]) for k in alone)
    assert all(torch.equal(together[k][2], r.init_state(1)[k][0]) for k in together)


def test_no_choice_depends_on_its_own_segment_or_a_later_token():
    r = router("mode", segment=4, mu_init=0.5, kappa=0.0).double()
    h_BT = noise(4, 64)
    before, _ = run_feedback(r, h_BT, [])
    for prefix in (1, 3, 7, 15, 31, 32, 63):
        changed = h_BT.clone()
        changed[:, prefix:] = 1 - changed[:, prefix:]
        after, _ = run_feedback(r, changed, [])
        stop = -(-prefix // 4) * 4
        assert torch.equal(before[:, :stop], after[:, :stop])


def test_training_draws_segments_while_observation_fits_the_threshold():
    r = router("mode", segment=4, train_rate=0.25).double()
    h_BT, recorder = noise(300, 19), Recorder()
    c = context(300, 19, site="mode", phase="train", recorder=recorder)
    decision, _ = r(entropies(h_BT), c, None)
    choice_BT = decision.choice_BT
    assert torch.equal(choice_BT[:, 0:16:4].repeat_interleave(4, dim=1), choice_BT[:, :16])
    assert choice_BT.double().mean().item() == pytest.approx(0.25, abs=0.05)
    assert r.observe(entropies(h_BT), c, None) is None
    assert r.mu.item() == pytest.approx(0.3)
    r.after_step([statistics for _, statistics in recorder.records])
    # The unfinished segment of 3 tokens is no segment mean.
    means = h_BT[:, :16].reshape(300, 4, 4).mean(-1).flatten()
    assert r.mu.item() == pytest.approx(means.median().item(), abs=1e-6)
    assert r.sigma.item() == pytest.approx(means.std().item(), abs=1e-6)


def test_segments_without_a_counted_token_are_no_statistics():
    r, h_BT = router("mode", segment=4).double(), noise(2, 12)
    mask_BT = torch.zeros(2, 12, dtype=torch.bool)
    mask_BT[0, 5] = mask_BT[1, 8] = True
    recorder = Recorder()
    c = context(2, 12, site="mode", phase="train", loss_mask_BT=mask_BT, recorder=recorder)
    r.observe(entropies(h_BT), c, None)
    ((_, found),) = recorder.records
    expected = torch.stack([h_BT[0, 4:8].mean(), h_BT[1, 8:12].mean()])
    assert found["count"] == 2
    assert found["median"].item() == pytest.approx(expected.min().item())


def test_recomputation_and_evaluation_record_nothing():
    r, h_BTD = router("mode", segment=4), entropies(torch.rand(2, 12))
    for phase, is_open in (("train", False), ("prefill", True)):
        recorder = Recorder(open=is_open)
        r.observe(h_BTD, context(2, 12, site="mode", phase=phase, recorder=recorder), r.init_state(2))
        assert recorder.records == []


def test_training_and_evaluation_share_one_nominal_rate_by_default():
    r = router("mode", segment=1)
    c = context(200, 200, site="mode", phase="train")
    choice_BT = r(torch.zeros(200, 200, 2), c, None)[0].choice_BT
    assert choice_BT.double().mean().item() == pytest.approx(
        EntropyGate.rates(r.config, "mode", 2)[1], abs=0.01
    )


def test_segments_are_always_used():
    assert router("mode").segment_length() == 16
    assert router("mode", segment=1).segment_length() == 1
