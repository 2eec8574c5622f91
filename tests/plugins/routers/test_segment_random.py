"""Segment-random routing is one map, whoever draws it and however the row is cut."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from crossbreed.core.contracts.router import RouterBuild
from crossbreed.core.errors import ConfigError
from crossbreed.core.ledger import Cost, Shape
from crossbreed.plugins.routers.configs import SegmentRandomConfig
from crossbreed.plugins.routers.segment_random import SegmentRandom
from tests.plugins.routers.pieces import context, positions_of


def build(choices=2, kind="gate"):
    return RouterBuild("0.0.gate", kind, d_model=2, vocab=23, choices=choices)


def router(choices=2, **settings):
    return SegmentRandom(SegmentRandomConfig(**settings), build(choices))


def choose(router, context):
    B, T = context.positions_BT.shape
    return router(torch.zeros(B, T, 2), context, None)[0].choice_BT


def test_one_choice_a_segment_and_the_short_last_one_is_covered_once():
    choice_BT = choose(router(segment=8, probability=0.5), context(64, 21, phase="train"))
    for start in (0, 8, 16):
        part = choice_BT[:, start : start + 8]
        assert (part == part[:, :1]).all()
        assert part[:, 0].unique().tolist() == [0, 1]
    # Segments draw apart from one another.
    assert (choice_BT[:, 0] != choice_BT[:, 8]).any()
    assert (choice_BT[:, 8] != choice_BT[:, 16]).any()


@pytest.mark.parametrize("cut", [1, 3, 7, 8, 9, 16, 20])
def test_any_split_draws_the_same_map(cut):
    r = router(segment=8, probability=0.5)
    whole = choose(r, context(5, 21))
    halves = [choose(r, context(5, cut)), choose(r, context(5, 21 - cut, start=cut))]
    assert torch.equal(torch.cat(halves, dim=1), whole)


def test_another_worker_and_a_resumed_step_draw_the_same_map():
    code = (
        "from tests.plugins.routers.pieces import context\n"
        "from tests.plugins.routers.test_segment_random import choose, router\n"
        "c = context(4, 30, phase='train', seed=3, step=17)\n"
        "print(choose(router(segment=4, probability=0.5), c).tolist())"
    )
    script = f"import sys; sys.path[:0] = {[str(p) for p in sys.path]!r}\n{code}"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    r = router(segment=4, probability=0.5)
    mine = choose(r, context(4, 30, phase="train", seed=3, step=17))
    assert other.stdout.strip() == str(mine.tolist())
    assert not torch.equal(mine, choose(r, context(4, 30, phase="train", seed=3, step=18)))
    assert not torch.equal(mine, choose(r, context(4, 30, phase="train", seed=4, step=17)))


def test_rows_keep_their_map_when_the_batch_is_reordered():
    r = router(segment=4, probability=0.5)
    straight = choose(r, context(6, 16, row_id_B=torch.arange(6)))
    turned = choose(r, context(6, 16, row_id_B=torch.arange(5, -1, -1)))
    assert torch.equal(turned.flip(0), straight)


def test_segments_restart_with_each_document():
    positions_BT, document_BT = positions_of(6, 11)
    r = router(segment=4, probability=0.5)
    packed = [
        choose(r, context(1, 17, positions_BT=positions_BT, document_BT=document_BT, seed=seed))
        for seed in range(40)
    ]
    for choice_BT in packed:
        for a, b in ((0, 4), (4, 6), (6, 10), (10, 14), (14, 17)):
            assert choice_BT[0, a:b].unique().numel() == 1
    assert any(c[0, 4] != c[0, 6] for c in packed)
    # The first segments of two documents are two draws.
    assert any(c[0, 0] != c[0, 6] for c in packed)


@pytest.mark.parametrize("shares", [(0.75, 0.25), (0.2, 0.5, 0.3), (0.0, 1.0), (0.6, 0.4, 0.0)])
def test_the_realised_shares_are_those_asked_for(shares):
    r = router(choices=len(shares), segment=1, probability=shares)
    choice_BT = choose(r, context(100, 400))
    found = torch.bincount(choice_BT.flatten(), minlength=len(shares)) / choice_BT.numel()
    # 4 standard errors of 40,000 draws.
    assert torch.allclose(found, torch.tensor(shares), atol=4 * 0.5 / 200)
    for share, count in zip(shares, found, strict=True):
        assert share > 0 or count == 0


@pytest.mark.parametrize("shares", [(0.75, 0.25), (0.5, 0.25, 0.25), (1.0, 0.0), (2 / 3, 1 / 3)])
def test_exact_shares_hold_in_every_run_of_segments_in_drawn_order(shares):
    r = router(choices=len(shares), segment=3, probability=shares, balance="exact")
    run = {2: 3 if shares[0] == 2 / 3 else 4, 3: 4}[len(shares)] if max(shares) < 1 else 1
    choice_BT = choose(r, context(200, 3 * run * 4))
    segments_BRN = choice_BT[:, ::3].unflatten(1, (4, run))
    assert torch.equal(choice_BT, choice_BT[:, ::3].repeat_interleave(3, 1))
    for choice, share in enumerate(shares):
        assert ((segments_BRN == choice).sum(-1) == round(share * run)).all()
        # Every place is as likely as any other: 4 standard errors of 800 draws.
        found = (segments_BRN == choice).double().mean((0, 1))
        assert (found - share).abs().max() < 4 * 0.5 / 800**0.5


@pytest.mark.parametrize("cut", [1, 7, 12, 20])
def test_exact_shares_draw_one_map_for_any_split(cut):
    r = router(segment=3, probability=0.25, balance="exact")
    whole = choose(r, context(5, 31))
    halves = [choose(r, context(5, cut)), choose(r, context(5, 31 - cut, start=cut))]
    assert torch.equal(torch.cat(halves, dim=1), whole)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"segment": 4, "probability": 0.2468013}, "shares that a run of at most 64 segments holds exactly"),
        ({"segment": "sequence", "probability": 0.25}, "draws once for a whole sequence"),
    ],
)
def test_shares_that_cannot_be_exact_are_refused(settings, rule):
    with pytest.raises(ValueError, match=rule):
        router(**settings, balance="exact")


def test_tokens_do_not_matter():
    r, c = router(segment=4, probability=0.5), context(3, 16)
    a = r(torch.randn(3, 16, 2), c, None)[0].choice_BT
    b = r(torch.randn(3, 16, 2), c, None)[0].choice_BT
    assert torch.equal(a, b)


@pytest.mark.parametrize("tokens", [1, 2, 3, 4])
def test_a_quarter_stays_a_quarter_on_the_shortest_rows(tokens):
    choice_BT = choose(router(segment=1, probability=0.25), context(4000, tokens))
    assert abs(choice_BT.double().mean() - 0.25) < 4 * (0.25 * 0.75 / choice_BT.numel()) ** 0.5


@pytest.mark.parametrize("cut", [1, 8, 13])
def test_a_whole_sequence_may_be_one_draw(cut):
    r = router(segment="sequence", probability=0.5)
    whole = choose(r, context(64, 21))
    assert (whole == whole[:, :1]).all()
    assert whole.unique().tolist() == [0, 1]
    assert torch.equal(choose(r, context(64, 21 - cut, start=cut)), whole[:, cut:])
    # Each document of a packed row draws for itself.
    positions_BT, document_BT = positions_of(6, 11)
    rows = [
        choose(r, context(1, 17, positions_BT=positions_BT, document_BT=document_BT, seed=s))[0]
        for s in range(20)
    ]
    assert all(row[:6].unique().numel() == row[6:].unique().numel() == 1 for row in rows)
    assert any(row[0] != row[6] for row in rows)


def test_a_batch_may_share_one_map():
    r = router(segment=4, probability=0.5, draws="per_batch")
    shared = choose(r, context(6, 40, phase="train", step=2))
    assert (shared == shared[:1]).all()
    assert shared[0].unique().tolist() == [0, 1]
    # Which rows a worker holds, and how they are cut, does not matter; the step does.
    others = context(2, 40, phase="train", step=2, row_id_B=torch.tensor([9, 70]))
    assert torch.equal(choose(r, others), shared[:2])
    assert torch.equal(choose(r, others.slice(7, 40)), shared[:2, 7:])
    assert not torch.equal(choose(r, others.at(step=3)), shared[:2])
    apart = choose(router(segment=4, probability=0.5), context(6, 40, phase="train", step=2))
    assert (apart != apart[:1]).any()


def test_the_published_defaults():
    config = SegmentRandomConfig()
    assert (config.segment, config.probability, config.draws) == (128, 0.25, "per_sequence")
    choice_BT = choose(router(), context(2000, 512, phase="train"))
    per_segment = choice_BT.unflatten(1, (4, 128))
    assert (per_segment == per_segment[..., :1]).all()
    # 8,000 independent draws: 4 standard errors.
    assert abs(per_segment[..., 0].double().mean() - 0.25) < 4 * (0.25 * 0.75 / 8000) ** 0.5


def test_nominal_rates_and_cost():
    assert SegmentRandom.rates(SegmentRandomConfig(), "mode", 2) == (0.75, 0.25)
    assert SegmentRandom.rates(SegmentRandomConfig(probability=(0.5, 0.3, 0.2)), "mode", 3) == (0.5, 0.3, 0.2)
    assert SegmentRandom.cost(SegmentRandomConfig(), build(), Shape(tokens=8)) == Cost()


@pytest.mark.parametrize(
    ("settings", "choices", "sentence"),
    [
        ({"probability": 0.5}, 3, "2 choices, but the site has 3"),
    ],
)
def test_settings_that_do_not_fit_the_site_are_refused(settings, choices, sentence):
    with pytest.raises(ConfigError, match=sentence):
        router(choices=choices, **settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"probability": 1.5}, r"must lie in \[0, 1\]"),
        ({"probability": float("nan")}, r"must lie in \[0, 1\]"),
        ({"probability": (0.5, 0.2)}, "sum to 1"),
        ({"segment": 0}, "segment"),
        ({"segment": "row"}, "segment"),
        ({"draws": "per_token"}, "draws"),
        ({"evaluate": -1}, "evaluate"),
        ({"evaluate": "always"}, "evaluate"),
        ({"evaluate": [(4, 1)]}, r"must begin at 0 and rise, got \[4\]"),
        ({"evaluate": [(0, 1), (8, 0), (8, 1)]}, r"must begin at 0 and rise, got \[0, 8, 8\]"),
        ({"segments": 4}, "segments"),
    ],
)
def test_settings_out_of_range_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        SegmentRandomConfig(**settings)
