"""Loss around a switch of modes, against forced passes made by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from crossbreed.core.errors import ConfigError
from crossbreed.core.lab.analytics import measures
from crossbreed.core.lab.analytics.switches import switches
from tests.core.lab.analytics.conftest import ROWS, T, loss_of
from tests.support.genomes import GENOMES, SWIGLU, architecture, block, gate, multi

THREE = architecture(
    {"blocks": [block(multi("mamba2", "gated_deltanet", "attention")), block(SWIGLU)]},
    mode_router=gate("segment_random", segment=4, probability=[0.2, 0.3, 0.5]),
)


@pytest.mark.parametrize("name", ["oryx_random", "oryx_entropy", "oryx_learned"])
def test_curves_are_those_of_forced_passes(subject_of, listed, name):
    subject = subject_of(GENOMES[name])
    found = switches(subject, 8)
    assert (found["site"], found["rows"], found["position"], found["width"]) == ("mode", ROWS, 8, 1)
    scored = [t for t in range(T) if t % 2 == 1]
    # Bins run from the first scored position to the last; every second one is empty.
    assert found["distances"] == [t - 8 for t in range(1, 20)]
    assert found["scored"] == [ROWS if t in scored else 0 for t in range(1, 20)]

    def curve(before, after):
        mode_BT = torch.where(torch.arange(T) < 8, before, after).expand(ROWS, T)
        loss_T = loss_of(subject.model, listed, forced={"mode": mode_BT}).mean(0)
        return [pytest.approx(float(loss_T[t]), abs=1e-10) if t in scored else None for t in range(1, 20)]

    assert [entry["mode"] for entry in found["alone"]] == [0, 1]
    for entry in found["alone"]:
        assert entry["mean_nats"] == curve(entry["mode"], entry["mode"])
    assert [(e["before"], e["after"]) for e in found["switched"]] == [(0, 1), (1, 0)]
    for entry in found["switched"]:
        assert entry["mean_nats"] == curve(entry["before"], entry["after"])
        alone = found["alone"][entry["after"]]["mean_nats"]
        gaps = [
            None if a is None else pytest.approx(a - b, abs=1e-12)
            for a, b in zip(entry["mean_nats"], alone, strict=True)
        ]
        assert entry["excess_nats"] == gaps
    # Before the switch a switched text is the one that stays in its first mode.
    before = sum(d < 0 for d in found["distances"])
    assert found["switched"][0]["mean_nats"][:before] == found["alone"][0]["mean_nats"][:before]


def test_bins_start_at_the_switch_so_that_none_holds_both_modes(subject_of, listed, monkeypatch):
    monkeypatch.setattr(measures, "MOST_BINS", 6)
    subject = subject_of(GENOMES["oryx_random"])
    found = switches(subject, 6)
    assert found["distances"] == [-8, -4, 0, 4, 8, 12]
    loss_BT = loss_of(subject.model, listed, forced={"mode": torch.zeros(ROWS, T, dtype=torch.int64)})
    expected = [float(np.nanmean(loss_BT[:, max(0, 6 + d) : max(0, 10 + d)])) for d in found["distances"]]
    assert found["alone"][0]["mean_nats"] == pytest.approx(expected, abs=1e-12)


def test_every_pair_of_three_readers_is_switched_at_half_the_text(subject_of):
    found = switches(subject_of(THREE, rows=2))
    assert found["position"] == T // 2
    assert found["choices"] == ["mamba2", "gated_deltanet", "attention"]
    assert [entry["mode"] for entry in found["alone"]] == [0, 1, 2]
    pairs = [(entry["before"], entry["after"]) for entry in found["switched"]]
    assert pairs == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]


@pytest.mark.parametrize("position", [0, -1, T, T + 5])
def test_a_switch_outside_the_text_is_refused(subject_of, position):
    with pytest.raises(
        ConfigError, match=rf"switch position is {position}; it must lie inside the text, from 1 to 20"
    ):
        switches(subject_of(GENOMES["oryx_random"]), position)


def test_a_switch_needs_modes(subject_of):
    assert switches(subject_of(GENOMES["amor"])) == {}
    with pytest.raises(ConfigError, match="must choose between reading modes"):
        switches(subject_of(GENOMES["amor"]), 4)
