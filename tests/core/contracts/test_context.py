"""The counter hash and slicing: the same numbers however the text is cut and wherever it runs."""

import pytest
import torch

from crossbreed.core.contracts.context import Context, Recorder


def context(B=3, T=64, **changes):
    positions_BT = torch.arange(T).expand(B, T)
    fields = {"positions_BT": positions_BT, "row_id_B": torch.arange(B), "seed": 7, "step": 3} | changes
    return Context(**fields)


def test_uniforms_are_spread_evenly():
    u = context(B=50, T=2000).uniform("gate", torch.arange(2000).expand(50, 2000))
    assert u.dtype == torch.float64
    assert 0 <= u.min() < 1e-3
    assert 1 - 1e-3 < u.max() < 1
    histogram = torch.histc(u.float(), bins=20, min=0, max=1)
    # Chi-square with 19 degrees of freedom: 43.8 is its 99.9th percentile.
    assert ((histogram - 5000) ** 2 / 5000).sum() < 43.8
    neighbours = torch.corrcoef(torch.stack([u[:, 1:].flatten(), u[:, :-1].flatten()]))[0, 1]
    assert abs(neighbours) < 0.02


def test_every_part_of_the_counter_matters():
    index_BT = torch.arange(64).expand(3, 64)
    base = context()
    u = base.uniform("mode", index_BT)
    others = [
        base.at(seed=8).uniform("mode", index_BT),
        base.at(step=4).uniform("mode", index_BT),
        base.at(row_id_B=torch.arange(3) + 10).uniform("mode", index_BT),
        base.at(document_BT=torch.ones(3, 64, dtype=torch.int64)).uniform("mode", index_BT),
        base.uniform("0.1.gate", index_BT),
        base.uniform("mode", index_BT + 1000),
    ]
    for other in others:
        assert (other != u).float().mean() > 0.99


def test_a_row_draws_the_same_alone_and_in_a_batch():
    index_BT = torch.arange(64).expand(3, 64)
    together = context().uniform("mode", index_BT)
    alone = context(B=1, row_id_B=torch.tensor([2])).uniform("mode", index_BT[:1])
    assert torch.equal(together[2:], alone)


def test_the_output_is_read_inside_a_model_only():
    at = context().at(output_measure=lambda h_BTD, measure: measure(h_BTD.flatten(0, 1)).view(3, 64))
    h_BTD = torch.rand(3, 64, 5)
    assert torch.equal(at.measure_output(h_BTD, lambda logits_nV: logits_nV.amax(-1)), h_BTD.amax(-1))
    with pytest.raises(RuntimeError, match=r"no output head is bound at site '0\.1\.gate'"):
        context(site="0.1.gate").measure_output(h_BTD, lambda logits_nV: logits_nV.amax(-1))


def test_slices_draw_the_same_as_the_whole():
    whole = context()
    piece = whole.slice(20, 41)
    assert torch.equal(
        whole.uniform("mode", whole.positions_BT)[:, 20:41], piece.uniform("mode", piece.positions_BT)
    )


def test_a_slice_cuts_everything_along_tokens():
    whole = context(
        valid_BT=torch.ones(3, 64, dtype=torch.bool),
        forced={"mode": torch.arange(64).expand(3, 64)},
        labels_BT=torch.arange(64).expand(3, 64),
    )
    piece = whole.slice(5, 9)
    for tensor in (piece.positions_BT, piece.valid_BT, piece.labels_BT, piece.forced["mode"]):
        assert tensor.shape == (3, 4)
    assert piece.forced["mode"][0].tolist() == [5, 6, 7, 8]


def test_a_closed_recorder_takes_nothing():
    recorder = Recorder(open=False)
    closed = context(recorder=recorder, phase="train")
    closed.record(x=1)
    closed.add_loss("balance", torch.ones(()))
    assert not recorder.records
    assert not recorder.losses


def test_recorded_tensors_carry_no_graph():
    recorder = Recorder()
    context(recorder=recorder).record(load=torch.ones(2, requires_grad=True) * 2)
    assert not recorder.records[0][1]["load"].requires_grad


def test_counted_tokens_are_asked_valid_and_inside_the_loss_mask():
    ones = torch.ones(3, 64, dtype=torch.bool)
    asked, valid, mask = ones.clone(), ones.clone(), ones.clone()
    asked[:, 0] = valid[:, 1] = mask[:, 2] = False
    counted = context(asked_BT=asked, valid_BT=valid, loss_mask_BT=mask).counted_BT()
    assert counted[0, :4].tolist() == [False, False, False, True]


def test_a_copy_changes_what_is_named_and_refuses_what_does_not_exist():
    whole = context(phase="decode", depth=2)
    copy = whole.at(depth=3, site="0.0.3.gate")
    assert (copy.depth, copy.site, copy.phase) == (3, "0.0.3.gate", "decode")
    assert (whole.depth, whole.site) == (2, "")
    assert copy.positions_BT is whole.positions_BT
    with pytest.raises(TypeError, match="a Context has no dept, sit"):
        whole.at(dept=1, sit="")
