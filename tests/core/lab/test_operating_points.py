from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from crossbreed.core.contracts.context import Recorder
from crossbreed.core.errors import ConfigError
from crossbreed.core.lab.operating_points import FORCED, OWN, OperatingPoint, realised_rates, spread
from crossbreed.core.model.routing import Site


@pytest.mark.parametrize("rate", ["0", "0.1", "0.22", "0.29", "0.4", "1/3", "1"])
def test_any_prefix_has_the_nearest_share_of_ones(rate: str):
    r = Fraction(rate)
    ones = spread(r, 0, 300).cumsum(0).tolist()
    assert all(abs(count - (n + 1) * r) <= Fraction(1, 2) for n, count in enumerate(ones))


def test_pieces_of_a_text_agree_with_the_whole():
    whole = spread(Fraction("0.22"), 0, 97)
    pieces = [spread(Fraction("0.22"), a, b - a) for a, b in [(0, 1), (1, 32), (32, 97)]]
    assert torch.equal(torch.cat(pieces), whole)


def test_ones_are_evenly_spread():
    gaps = spread(Fraction("0.22"), 0, 500).nonzero().flatten().diff()
    assert set(gaps.tolist()) == {4, 5}


def test_forcing_takes_the_dearest_choice_at_every_site():
    sites = {
        "mode": Site("mode", "mode", 3, "learned", None),
        "0.1.gate": Site("0.1.gate", "gate", 2, "learned", 4),
    }
    forced = OperatingPoint.parse("forced:0.5").forced(sites, (2, 5))
    assert forced["mode"].tolist() == [[2, 0, 2, 0, 2]] * 2
    assert forced["0.1.gate"].tolist() == [[1, 0, 1, 0, 1]] * 2
    assert OWN.forced(sites, (2, 5)) == {}


def test_the_forced_points_are_those_of_the_design():
    assert [point.name for point in FORCED] == [
        "forced:0",
        "forced:0.1",
        "forced:0.22",
        "forced:0.4",
        "forced:1",
    ]


@pytest.mark.parametrize(
    "name", ["forced:1.5", "forced:-0.1", "forced:x", "forced", "owned", "forced:1/0", ""]
)
def test_unknown_points_are_refused(name: str):
    with pytest.raises(ConfigError, match="must be 'own' or 'forced:' and a rate"):
        OperatingPoint.parse(name)


def test_realised_rates_sum_over_passes_and_leave_mixers_out():
    def seen(*records):
        return Recorder(records=[(site, {"counts": torch.tensor(counts)}) for site, counts in records])

    rates = realised_rates(
        [
            seen(("0.1.0.gate", [3, 1]), ("0.0.0.1", [5, 5]), ("0.0.halt", [0, 0])),
            seen(("0.1.0.gate", [0, 4])),
        ]
    )
    assert rates == {"0.1.0.gate": (3 / 8, 5 / 8), "0.0.halt": (1.0, 0.0)}
