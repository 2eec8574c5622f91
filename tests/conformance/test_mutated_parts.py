"""Built-in routers, policies, cost models, tasks and spaces with one thing broken in them fail the rule that names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crossbreed.core.conformance.suite import check
from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.host import Registry
from crossbreed.core.model import routing
from crossbreed.plugins.costs import analytic, measured
from crossbreed.plugins.depth.policies import Recurrent
from crossbreed.plugins.routers.base import BuiltinRouter
from crossbreed.plugins.routers.entropy_gate import EntropyGate
from crossbreed.plugins.routers.learned import Learned
from crossbreed.plugins.routers.segment_random import SegmentRandom
from crossbreed.plugins.tasks import text_bytes
from crossbreed.plugins.tasks.recall import Recall, Rows
from crossbreed.search_spaces.layer_hybrids import LayerHybrids
from tests.conformance.reverting import failures

Mutate = Callable[[pytest.MonkeyPatch], None]


def a_threshold_that_follows_evaluation(patch: pytest.MonkeyPatch) -> None:
    real = EntropyGate.forward

    def follows(self: EntropyGate, h: Any, context: Any, state: Any) -> Any:
        self.mu.add_(1e-3)
        return real(self, h, context, state)

    patch.setattr(EntropyGate, "forward", follows)


def an_entropy_of_the_whole_row(patch: pytest.MonkeyPatch) -> None:
    real = EntropyGate.signal

    def centred(self: EntropyGate, h: Any, context: Any) -> Any:
        found = real(self, h, context)
        return found if context.training else found - 0.2 * found.mean(1, keepdim=True)

    patch.setattr(EntropyGate, "signal", centred)


def segments_of_the_piece(patch: pytest.MonkeyPatch) -> None:
    real = BuiltinRouter.draw

    def restarted(self: Any, context: Context, segment: Any, shares: Any) -> Any:
        first = context.positions_BT[:, :1]
        return real(self, context.at(positions_BT=context.positions_BT - first), segment, shares)

    patch.setattr(BuiltinRouter, "draw", restarted)


def odds_that_are_not_those_stated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        SegmentRandom, "rates", staticmethod(lambda config, kind, choices: (1 / choices,) * choices)
    )


def a_loss_of_every_token(patch: pytest.MonkeyPatch) -> None:
    real = Learned.rate_loss
    patch.setattr(Learned, "rate_loss", lambda self, w, context: real(self, w, context.at(loss_mask_BT=None)))


def every_block_twice(patch: pytest.MonkeyPatch) -> None:
    real = Recurrent.plan
    patch.setattr(
        Recurrent, "plan", lambda self, r, b: sorted(2 * real(self, r, b), key=lambda step: step.depth)
    )


def segments_that_are_not_held(patch: pytest.MonkeyPatch) -> None:
    """A model in which a halted token of a segment wakes in the next piece."""
    real = routing._hold
    patch.setattr(routing, "_hold", lambda decision, at, segment, held: real(decision, at, segment, None))


def norms_that_weigh_nothing(patch: pytest.MonkeyPatch) -> None:
    real = analytic.norms
    patch.setattr(analytic, "norms", lambda name, weights, *rest: real(name, 0 * weights, *rest))


def errors_on_what_was_fitted(patch: pytest.MonkeyPatch) -> None:
    real = measured.Measured._fit

    def fitted(self: Any, *arguments: Any) -> Any:
        fit = real(self, *arguments)
        return measured.Fit(fit.weights, fit.low, fit.high, fit.error / 10)

    patch.setattr(measured.Measured, "_fit", fitted)


def labels_one_query_late(patch: pytest.MonkeyPatch) -> None:
    real = Recall.write

    def late(self: Recall, u: Any, judged: bool) -> Rows:
        tokens, labels = real(self, u, judged)
        right = labels != -100
        labels[right] = labels[right][::-1]
        return Rows(tokens, labels)

    patch.setattr(Recall, "write", late)


def text_that_is_trained_on_and_kept(patch: pytest.MonkeyPatch) -> None:
    real = text_bytes.split

    def all_of_it(text: Any, config: Any) -> Any:
        _, kept = real(text, config)
        # A longest training row is a window of the kept text.
        return [(a, a + config.length + 1) for a, _ in kept], kept

    patch.setattr(text_bytes, "split", all_of_it)


def points_of_yesterday(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LayerHybrids, "starting_points", lambda self, setting: [{"depth": "gone"}])


MUTATIONS: list[tuple[Kind, str, str, Mutate]] = [
    ("router", "entropy_gate", "thresholds", a_threshold_that_follows_evaluation),
    ("router", "entropy_gate", "causal", an_entropy_of_the_whole_row),
    ("router", "segment_random", "splits", segments_of_the_piece),
    ("router", "segment_random", "rates", odds_that_are_not_those_stated),
    ("router", "learned", "counted-only", a_loss_of_every_token),
    ("depth", "recurrent", "caches-by-depth", every_block_twice),
    ("depth", "recurrent", "halting", segments_that_are_not_held),
    ("cost", "analytic", "parameters", norms_that_weigh_nothing),
    ("cost", "measured", "declared-error", errors_on_what_was_fitted),
    ("task", "recall", "solver", labels_one_query_late),
    ("task", "bytes", "overlap", text_that_is_trained_on_and_kept),
    ("space", "layer_hybrids", "starting-points", points_of_yesterday),
]


@pytest.mark.parametrize(
    ("kind", "name", "rule", "mutate"), MUTATIONS, ids=[m[3].__name__ for m in MUTATIONS]
)
def test_a_mutated_builtin_fails_only_the_rule_that_names_it(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, kind: Kind, name: str, rule: str, mutate: Mutate
) -> None:
    mutate(monkeypatch)
    found = failures(check(registry, kind, name))
    assert list(found) == [rule], found
