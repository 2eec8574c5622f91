"""Full forward against one-token decode."""

from __future__ import annotations

import pytest

from crossbreed.core.lab.analytics.agreement import ROWS, agreement
from crossbreed.core.lab.operating_points import OperatingPoint
from tests.core.lab.analytics.conftest import T
from tests.support.genomes import ATTENTION, GENOMES, SWIGLU, architecture, block, gate

LATE = architecture({"blocks": [block(SWIGLU), block(ATTENTION, gate=gate("every", n=3, late=1))]})
ROUTED = ["amor", "learned_gate", "random_gate", "oryx_random", "oryx_learned", "oryx_entropy", "halting"]


@pytest.mark.parametrize("name", ROUTED)
def test_a_causal_router_decides_alike_token_by_token(subject_of, name):
    found = agreement(subject_of(GENOMES[name]))
    assert (found["rows"], found["tokens"]) == (ROWS, T)
    assert found["flips"] == 0
    assert found["flip_rate"] == 0.0
    assert found["max_logit_difference"] < 1e-9 < found["max_logit"]
    assert {site["agreement"] for site in found["sites"]} == {1.0}


def test_flips_of_a_router_that_decides_otherwise_in_decode_are_counted(subject_of):
    found = agreement(subject_of(LATE))
    # Of 21 positions the full pass runs 0, 3, ..., 18 and decode 1, 4, ..., 19: 14 differ.
    (site,) = found["sites"]
    assert site == {
        "site": "0.1.0.gate",
        "decisions": ROWS * T,
        "flips": ROWS * 14,
        "agreement": pytest.approx(1 / 3),
    }
    assert (found["decisions"], found["flips"]) == (ROWS * T, ROWS * 14)
    assert found["flip_rate"] == pytest.approx(2 / 3)
    assert found["max_logit_difference"] > 1e-6


def test_forced_decisions_agree_whatever_the_router_says(subject_of):
    found = agreement(subject_of(LATE, point=OperatingPoint.parse("forced:0.4")))
    assert found["flips"] == 0
    assert found["max_logit_difference"] < 1e-9


def test_a_token_asked_in_one_way_only_is_a_flip(subject_of):
    """Halting: what goes on at depth 0 in the full pass only is asked at depth 1 in the full pass only."""
    halting = architecture(
        {
            "blocks": [block(ATTENTION)],
            "depth": {"name": "recurrent", "repeats": 3},
            "halt": gate("every", n=3, late=1),
        }
    )
    first, second = agreement(subject_of(halting))["sites"]
    assert (first["decisions"], first["flips"]) == (ROWS * T, ROWS * 14)
    assert (second["decisions"], second["flips"]) == (ROWS * 14, ROWS * 14)
