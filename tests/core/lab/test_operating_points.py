from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch

from crossbreed.core.contracts.context import Recorder
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.lab.operating_points import (
    FORCED,
    OWN,
    OperatingPoint,
    Stretch,
    realised_rates,
    spread,
)
from crossbreed.core.model.language_model import LanguageModel
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
    forced = OperatingPoint.parse("forced:0.5").forced(sites, Stretch(2, 5, length=5))
    assert forced["mode"].tolist() == [[2, 0, 2, 0, 2]] * 2
    assert forced["0.1.gate"].tolist() == [[1, 0, 1, 0, 1]] * 2
    assert OWN.forced(sites, Stretch(2, 5, length=5)) == {}


def test_a_rate_is_spread_over_the_decoded_tokens_wherever_they_lie():
    sites = {"0.1.gate": Site("0.1.gate", "gate", 2, "learned", 4)}
    point = OperatingPoint.parse("forced:0.5")
    for number in range(4):
        (choice,) = point.forced(sites, Stretch(1, 1, length=64, first=60, number=number)).values()
        assert choice.item() == 1 - number % 2


def test_a_schedule_forces_modes_by_their_place_in_the_text_and_nothing_else():
    sites = {
        "mode": Site("mode", "mode", 2, "segment_random", 4, ("mamba2", "attention")),
        "0.1.gate": Site("0.1.gate", "gate", 2, "learned", 4),
    }
    point = OperatingPoint.parse("schedule:0=mamba2,-3=attention")
    assert set(point.forced(sites, Stretch(2, 8, length=8))) == {"mode"}
    assert point.forced(sites, Stretch(2, 8, length=8))["mode"].tolist() == [[0] * 5 + [1] * 3] * 2
    # A piece from inside the text, and a decoded token, whatever its number in a timed sample.
    assert point.forced(sites, Stretch(1, 3, length=8, first=4))["mode"].tolist() == [[0, 1, 1]]
    assert point.forced(sites, Stretch(1, 1, length=8, first=4, number=99))["mode"].tolist() == [[0]]


@pytest.mark.parametrize(
    "name",
    [
        "own",
        "forced:0.22",
        "threshold:+0.05",
        "threshold:-1e-05",
        "depth:3",
        "schedule:0=0,860=1",
        "schedule:0=mamba2,-2.5%=attention",
        "schedule:0=1",
    ],
)
def test_a_name_leads_back_to_its_point(name: str):
    point = OperatingPoint.parse(name)
    assert point.name == name
    assert OperatingPoint.parse(point.name) == point


def test_a_schedule_written_with_spaces_is_the_same_point():
    assert OperatingPoint.parse("schedule: 0=0, 860=1") == OperatingPoint.parse("schedule:0=0,860=1")


def recurrent(**stage: Any) -> Architecture:
    """A stage of three repeats with a gate, and a layered one that nothing can cut."""
    plain = {"sublayers": [{"mixer": "shift", "params": {}}]}
    gated = {**plain, "gate": {"name": "entropy_gate", "params": {"kappa": 0.0}}}
    looped = {"blocks": [plain, gated], "depth": {"name": "recurrent", "repeats": 3}, **stage}
    stages = [looped, {"blocks": [plain], "depth": {"name": "layered", "repeats": 2}}]
    return Architecture.model_validate({"vocab": 20, "d_model": 16, "stages": stages})


def test_what_a_point_fits(parts: Registry) -> None:
    plain = Architecture.model_validate(
        {
            "vocab": 20,
            "d_model": 16,
            "stages": [{"blocks": [{"sublayers": [{"mixer": "shift", "params": {}}]}]}],
        }
    )
    looped = recurrent(halt={"name": "segment_random", "params": {"segment": 4}})
    fits = {
        name: (
            OperatingPoint.parse(name).fits(plain, parts, 12),
            OperatingPoint.parse(name).fits(looped, parts, 12),
        )
        for name in ("own", "forced:0.1", "schedule:0=1", "threshold:+0.1", "depth:2", "depth:3", "length:4")
    }
    assert fits == {
        "own": (True, True),
        "forced:0.1": (False, True),
        "schedule:0=1": (False, False),
        "threshold:+0.1": (False, True),
        "depth:2": (False, True),
        "depth:3": (False, False),
        "length:4": (True, True),
    }


def test_a_cut_ends_stages_of_shared_weights_and_leaves_others(parts: Registry) -> None:
    looped = recurrent(halt={"name": "learned", "params": {}})
    two, one = (OperatingPoint.parse(f"depth:{n}").variant(looped, parts) for n in (2, 1))
    assert [stage.depth.repeats for stage in two.stages] == [2, 2]
    assert two.stages[0].halt == looped.stages[0].halt
    assert [stage.depth.repeats for stage in one.stages] == [1, 2]
    assert one.stages[0].halt is None


@pytest.mark.parametrize("depth", [1, 2])
def test_a_cut_model_is_the_smaller_model_with_the_same_weights(parts: Registry, depth: int) -> None:
    looped = recurrent(halt={"name": "learned", "params": {}})
    trained = LanguageModel(looped, parts, seed=1).eval()
    point = OperatingPoint.parse(f"depth:{depth}")
    cut = point.model(trained, parts)
    tokens_BT = torch.arange(12)[None] % 20
    expected = LanguageModel(point.variant(looped, parts), parts, seed=2).eval()
    expected.load_state_dict(trained.state_dict(), strict=False)
    with torch.inference_mode():
        (found, _), (wanted, _), (whole, _) = (
            model(tokens_BT, model.context(tokens_BT)) for model in (cut, expected, trained)
        )
    assert torch.equal(found, wanted)
    assert not torch.equal(found, whole)
    # The same tensors, not copies of them.
    assert cut.embedding.weight.data_ptr() == trained.embedding.weight.data_ptr()


def test_a_shift_moves_thresholds_and_no_weight(parts: Registry) -> None:
    trained = LanguageModel(recurrent(), parts, seed=1).eval()
    tokens_BT = torch.arange(12)[None] % 20

    def opened(name: str) -> float:
        model, recorder = OperatingPoint.parse(name).model(trained, parts), Recorder()
        with torch.inference_mode():
            model(tokens_BT, model.context(tokens_BT, recorder=recorder))
        return sum(shares[1] for shares in realised_rates([recorder]).values()) / 3

    assert opened("threshold:-2") == 1.0
    assert opened("threshold:+2") == 0.0
    moved = OperatingPoint.parse("threshold:+0.25").model(trained, parts)
    (before,), (after,) = ([s.router.tau() for s in m.routed_sites()] for m in (trained, moved))
    assert after - before == pytest.approx(0.25)
    assert OperatingPoint.parse("own").model(trained, parts) is trained


def test_a_schedule_for_a_model_without_modes_is_refused():
    with pytest.raises(ConfigError, match="'schedule:0=1' schedules modes, but the architecture has no mode"):
        OperatingPoint.parse("schedule:0=1").forced({}, Stretch(1, 4, length=4))


def test_the_forced_points_are_those_of_the_design():
    assert [point.name for point in FORCED] == [
        "forced:0",
        "forced:0.1",
        "forced:0.22",
        "forced:0.4",
        "forced:1",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "forced:1.5",
        "forced:-0.1",
        "forced:x",
        "forced",
        "owned",
        "forced:1/0",
        "threshold:0",
        "threshold:nan",
        "depth:0",
        "depth:x",
        "",
    ],
)
def test_unknown_points_are_refused(name: str):
    with pytest.raises(
        ConfigError, match=r"must be 'own', 'forced:' and a rate in .*, 'depth:' .*, or 'schedule:' and"
    ):
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
