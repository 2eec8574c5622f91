"""Numbers of a run by name, each against what was planted in it."""

from __future__ import annotations

from typing import Any

import pytest

from crossbreed.claims.measures import compact, measured
from crossbreed.core.errors import ConfigError


def run(**changes: Any) -> dict[str, Any]:
    def gate(entropy: float, query: float) -> dict[str, Any]:
        return {"kind": "gate", "entropy": entropy, "classes": {"filler": [90, 0.1], "query": [10, query]}}

    return {
        "state": "done",
        "arm": "amor",
        "curve": [[100, 0.2], [200, 0.5], [400, 0.9]],
        "points": {
            "own": {
                "score": 0.9,
                "metrics": {"accuracy": 0.9, "loss_nats": 0.3},
                "rates": {"1.0.0.gate": [0.6, 0.4], "1.1.0.gate": [0.8, 0.2]},
                "ledger": {"decode_flops_per_token": 7.0, "prefill_flops_per_token": 8.0},
                "classes": {"filler": [90, 45, 9.0], "query": [10, 9, 1.0], "end": [0, 0, 0.0]},
            },
            "length:2": {"score": 0.5, "metrics": {"loss_nats": 1.0}, "rates": {}, "ledger": {}},
        },
        "seen": {
            "sites": {"1.0.0.gate": gate(0.5, 0.9), "1.1.0.gate": gate(0.3, 0.7)},
            "experts": {"diversity": [4.0, 6.0], "reuse": [0.5]},
        },
        **changes,
    }


@pytest.mark.parametrize(
    ("quantity", "wanted"),
    [
        ("score", 0.9),
        ("loss_nats", 0.3),
        ("score@length:2", 0.5),
        ("loss_nats@length:2", 1.0),
        ("rate", 0.3),
        ("loss:filler", 0.1),
        ("loss:filler+query", 0.1),
        ("right:query", 0.9),
        ("right:filler+query", 0.54),
        ("decode_flops", 7.0),
        ("recall:query", 0.8),
        ("recall:query+filler", (0.1 * 90 + 9 + 0.1 * 90 + 7) / 200),
        ("precision:query", (9 / 18 + 7 / 16) / 2),
        ("entropy_drop", 0.2),
        ("log2_tokens_to:0.25", 7.643856),
        # Never reached: all of its tokens.
        ("log2_tokens_to:0.95", 8.643856),
        ("experts.diversity", 5.0),
        ("experts.reuse", 0.5),
    ],
)
def test_it_is_what_was_planted(quantity: str, wanted: float) -> None:
    assert measured(run(), quantity) == pytest.approx(wanted)


def test_a_run_that_diverged_has_no_number() -> None:
    assert measured(run(state="diverged", points={}), "score") is None


def test_what_a_model_does_not_have_is_none() -> None:
    assert measured(run(seen={}), "entropy_drop") is None
    assert measured(run(seen={}), "experts.reuse") is None
    assert measured(run(seen={}), "switch:a>b") is None


@pytest.mark.parametrize(
    ("quantity", "named"),
    [
        ("scroe", "scroe"),
        ("loss:fillre", "fillre"),
        ("score@depth:2", "depth:2"),
        ("recall:querry", "querry"),
    ],
)
def test_a_misspelt_one_is_refused(quantity: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        measured(run(), quantity)


def test_a_class_that_nobody_is_in_has_no_mean() -> None:
    assert measured(run(), "loss:end") is None


def test_experts_are_those_of_the_largest_pools() -> None:
    def pool(count: int, diversity: list[float], share: float) -> dict[str, Any]:
        return {"experts": count, "diversity": diversity, "share_used_at_04": share}

    kinds = {"experts": {"pools": [pool(3, [2.9], 1.0), pool(8, [4.0, 6.0], 0.5), pool(8, [8.0], 0.7)]}}
    assert compact(kinds)["experts"] == {"diversity": [4.0, 6.0, 8.0], "reuse": [0.5, 0.7]}


def test_the_excess_after_a_switch_is_the_mean_over_what_is_scored_from_it_on() -> None:
    found = compact(
        {
            "switches": {
                "choices": ["gdn", "attention"],
                "distances": [-4, 0, 4],
                "scored": [9, 1, 3],
                "switched": [{"before": 0, "after": 1, "excess_nats": [5.0, 0.4, 0.0]}],
            }
        }
    )
    assert found["switches"] == {"gdn>attention": pytest.approx(0.1)}
