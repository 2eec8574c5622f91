"""Diversity, reuse and distance of experts, by hand and on models."""

from __future__ import annotations

import math

import numpy as np
import pytest

from crossbreed.core.lab.analytics.depth_attention import depth_attention
from crossbreed.core.lab.analytics.experts import _pool, diversity, experts, js_distance
from crossbreed.core.lab.analytics.observation import observe
from tests.core.lab.analytics.conftest import ROWS, T
from tests.support.genomes import ATTENTION, EXPERTS, GENOMES, architecture, block


def test_diversity_is_the_number_of_equally_used_experts():
    assert diversity(np.array([0.25, 0.25, 0.25, 0.25])) == pytest.approx(4.0)
    assert diversity(np.array([1.0, 0.0, 0.0])) == 1.0
    # Entropy of (1/2, 1/4, 1/4) is 1.5 ln 2.
    assert diversity(np.array([0.5, 0.25, 0.25])) == pytest.approx(2**1.5)
    assert diversity(np.zeros(3)) is None


def test_distance_is_nought_for_equal_one_for_disjoint_and_exact_between():
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.5, 0.5])
    assert js_distance(p, p) == 0.0
    assert js_distance(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(1.0)
    # Half of either is at log2(0.5 / 0.25) = 1 bit, the other half at 0.
    assert js_distance(p, q) == pytest.approx(math.sqrt(0.5))
    assert js_distance(p, np.zeros(3)) is None


def test_a_pool_by_hand():
    """Three depths, four experts; the threshold of use is 0.1 / 4 = 0.025 of a depth's slots."""
    loads = {"0.1.0.0": [50, 50, 0, 0], "0.1.1.0": [97, 1, 1, 1], "0.1.2.0": [25, 25, 25, 25]}
    found = _pool({site: np.array(load, dtype=float) for site, load in loads.items()})
    assert (found["sites"], found["experts"], found["slots"]) == (list(loads), 4, [100.0] * 3)
    assert found["load"][1] == [0.97, 0.01, 0.01, 0.01]
    assert found["reuse"] == [3, 2, 1, 1]
    assert found["used_once"] == [3, 3, 2, 2]
    assert found["share_used_at_7"] == 0.0
    # 0.4 of three depths is 1.2: used at two or more.
    assert found["share_used_at_04"] == 0.5
    assert found["diversity"] == pytest.approx(
        [2.0, math.exp(-0.97 * math.log(0.97) - 0.03 * math.log(0.01)), 4.0]
    )
    distance = np.array(found["distance"])
    assert (np.diag(distance) == 0).all()
    assert np.array_equal(distance, distance.T)
    assert distance[0, 2] == pytest.approx(
        math.sqrt((2 * 0.25 * math.log2(0.25 / 0.375) + 0.5 + math.log2(0.5 / 0.375)) / 2)
    )


def test_shared_weights_are_one_pool_over_depths(subject_of):
    subject = subject_of(GENOMES["recurrent_experts"])
    found = experts(observe(subject), subject.model)
    (pool,) = found["pools"]
    assert pool["sites"] == ["0.0.0.1", "0.0.1.1", "0.0.2.1"]
    # One routed slot a token at each depth; the always-on expert takes the other and is left out.
    assert pool["slots"] == [1.0 * ROWS * T] * 3
    assert pool["experts"] == 4
    low, median, high = sorted(pool["diversity"])
    assert found["diversity"] == [{"mixer": "0.0.1", "part": "", "min": low, "median": median, "max": high}]


def test_layers_of_their_own_are_pools_of_their_own(subject_of):
    layered = architecture(
        {"blocks": [block(ATTENTION), block(EXPERTS)], "depth": {"name": "layered", "repeats": 3}}
    )
    subject = subject_of(layered)
    found = experts(observe(subject), subject.model)
    assert [pool["sites"] for pool in found["pools"]] == [["0.0.0.1"], ["0.0.1.1"], ["0.0.2.1"]]
    assert all(max(pool["reuse"]) <= 1 and pool["distance"] == [[0.0]] for pool in found["pools"])
    low, median, high = sorted(pool["diversity"][0] for pool in found["pools"])
    assert found["diversity"] == [{"mixer": "0.0.1", "part": "", "min": low, "median": median, "max": high}]


def test_a_model_without_experts_has_no_pools(subject_of):
    subject = subject_of(GENOMES["amor"])
    assert experts(observe(subject), subject.model) == {}


def test_several_sets_of_experts_of_one_mixer_are_pools_by_part(subject_of):
    subject = subject_of(GENOMES["recurrent_experts"])
    seen = observe(subject)
    for site in ("0.0.0.0", "0.0.1.0", "0.0.2.0"):
        seen.totals[site] = {"load.q": np.array([2.0, 2.0]), "load.o": np.array([4.0, 0.0])}
    found = experts(seen, subject.model)
    parts = {pool["part"]: pool for pool in found["pools"]}
    assert set(parts) == {"", "q", "o"}
    assert parts["q"]["diversity"] == pytest.approx([2.0] * 3)
    assert parts["o"]["diversity"] == [1.0] * 3
    assert parts["o"]["used_once"] == [3, 0]
    spread = {(each["mixer"], each["part"]): each for each in found["diversity"]}
    assert set(spread) == {("0.0.1", ""), ("0.0.0", "q"), ("0.0.0", "o")}
    assert (spread["0.0.0", "o"]["min"], spread["0.0.0", "o"]["max"]) == (1.0, 1.0)


def test_attention_over_depths_is_the_mean_weight_per_head(subject_of):
    subject = subject_of(GENOMES["amor"])
    seen = observe(subject)
    assert depth_attention(seen) == {}
    # Two heads; ten tokens at depth 0, four at depth 1, which sees both.
    seen.totals["2.0.0.1"] = {"depth_weight_HS": np.full((2, 1), 10.0), "depth_tokens": np.array(10.0)}
    seen.totals["2.0.1.1"] = {
        "depth_weight_HS": np.array([[1.0, 3.0], [4.0, 0.0]]),
        "depth_tokens": np.array(4.0),
    }
    assert depth_attention(seen)["mixers"] == [
        {
            "mixer": "2.0.1",
            "sites": ["2.0.0.1", "2.0.1.1"],
            "tokens": [10, 4],
            "weights": [[[1.0], [0.25, 0.75]], [[1.0], [1.0, 0.0]]],
        }
    ]


@pytest.mark.parametrize(
    "name", ["dreamer", "dreamer_halting", "dreamer_parallel", "layered_depth_attention"]
)
def test_dreamers_depths_are_mapped(subject_of, name):
    subject = subject_of(GENOMES[name])
    seen = observe(subject)
    (mixer,) = depth_attention(seen)["mixers"]
    depths = subject.model.stages[0].depths
    assert len(mixer["sites"]) == depths > 1
    for rows in mixer["weights"]:
        for depth, (weights, tokens) in enumerate(zip(rows, mixer["tokens"], strict=True)):
            # All tokens of the halting one stop after the first depth.
            assert weights is None if not tokens else len(weights) == depth + 1
            assert not tokens or sum(weights) == pytest.approx(1.0)
    assert 0 < mixer["tokens"][0] <= ROWS * T
