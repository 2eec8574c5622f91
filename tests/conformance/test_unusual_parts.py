"""Parts that are right and unlike the built-ins pass: no rule asks for more than the contract says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import BaseModel

from crossbreed import (
    IGNORE,
    Architecture,
    Batch,
    Block,
    ConfigError,
    Decision,
    Router,
    Score,
    Stage,
    Step,
    Sublayer,
)
from crossbreed.core.conformance.suite import check
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.contracts.schedule import Schedule
from crossbreed.core.host import Host, Owner, Registered, Registry
from tests.conformance.reverting import failures
from tests.conformance.small_parts import depth, routers, spaces, tasks


class Always(Router, torch.nn.Module):
    """No parameter, no state, one choice."""

    def __init__(self, config: Any, build: Any) -> None:
        super().__init__()

    def forward(self, h_BTD: Any, context: Any, state: Any) -> Any:
        return Decision(torch.ones_like(context.positions_BT)), state

    @staticmethod
    def rates(config: Any, kind: Any, choices: int) -> tuple[float, ...]:
        return (0.0, 1.0, *[0.0] * (choices - 2))


class InFloat32(routers.Threshold):
    """Computes in float32 whatever it is shown, so that a choice may fall either way at the threshold."""

    def score(self, h_BTD: Any, context: Any) -> Any:
        return super().score(h_BTD.float(), context)


class Scheduled(routers.Threshold):
    """Decides in training, and follows a schedule outside it."""

    @staticmethod
    def schedule(config: Any) -> Schedule:
        return Schedule(((0, 1), (7, 0)))


class Parity(Router, torch.nn.Module):
    """Many choices by the number of positive features; a segment of 5."""

    def __init__(self, config: Any, build: Any) -> None:
        super().__init__()
        self.choices = build.choices

    def forward(self, h_BTD: Any, context: Any, state: Any) -> Any:
        return Decision((h_BTD > 0).sum(-1) % self.choices), state

    def segment_length(self) -> int:
        return 5


class Oracle(Router, torch.nn.Module):
    """Looks at the labels."""

    def __init__(self, config: Any, build: Any) -> None:
        super().__init__()

    def forward(self, h_BTD: Any, context: Any, state: Any) -> Any:
        return Decision((context.labels_BT % 2 == 1).long()), state


class BestQuarter(routers.Threshold):
    """Top-k over the sequence, which states that it is not causal."""

    def above(self, score_BT: Any, context: Any) -> Any:
        return (score_BT >= score_BT.topk(-(-score_BT.shape[1] // 4), 1).values[:, -1:]).long()


class Prelude(depth.Loop):
    """The first block runs once, the others at every depth."""

    def plan(self, repeats: int, blocks: int) -> list[Step]:
        return [Step(d, b, 0) for d in range(repeats) for b in range(blocks) if b or d == 0 or blocks == 1]


class BackAndForth(depth.Loop):
    """Blocks run in turn forwards and backwards, on two sets of weights."""

    def plan(self, repeats: int, blocks: int) -> list[Step]:
        order = list(range(blocks))
        return [Step(d, b, d % 2) for d in range(repeats) for b in (order, order[::-1])[d % 2]]


class Once(depth.Loop):
    """One depth whatever is asked for."""

    def plan(self, repeats: int, blocks: int) -> list[Step]:
        return [Step(0, block, 0) for block in range(blocks)]


class Perplexity(tasks.Echo):
    """A score made of the loss, to be small, that no solver reaches."""

    @property
    def score(self) -> Score:
        return Score("perplexity", "min", None)

    @property
    def chance(self) -> float:
        return float(self.vocab)

    def solve(self, tokens_BT: Any) -> None:
        return None

    def baselines(self) -> dict[str, float]:
        return {"uniform": self.chance}

    def metrics(self, totals: Any) -> dict[str, float]:
        return {"perplexity": math.exp(totals.loss_nats / totals.scored) if totals.scored else math.nan}


class Skewed(tasks.Echo):
    """Most answers are one symbol, and a baseline says so."""

    def drawn(self, generator: Any, shape: Any) -> Any:
        return super().drawn(generator, shape) * (generator.random(shape) < 0.5)

    def solve(self, tokens_BT: Any) -> None:
        return None

    def baselines(self) -> dict[str, float]:
        return {"uniform": self.chance, "always 0": 0.5 + 0.5 / self.vocab}


class Packed(tasks.Echo):
    """Two documents in a row, the last position scored only."""

    def documents(self, tokens_BT: Any) -> Any:
        return (torch.arange(self.length) >= self.length // 2).long().expand_as(tokens_BT).contiguous()

    def labels(self, tokens_BT: Any) -> Any:
        labels_BT = super().labels(tokens_BT)
        labels_BT[:, :-1] = IGNORE
        return labels_BT

    def train_batch(self, seed: int, step: int, size: int) -> Batch:
        batch = super().train_batch(seed, step, size)
        return Batch(batch.tokens_BT, batch.labels_BT, self.documents(batch.tokens_BT))


class OnePoint(spaces.Tower):
    """Draws nothing at all."""

    def propose(self, draw: Any, setting: Any) -> Architecture:
        names = self.mixers(setting)
        if not names:
            raise ConfigError(f"space 'small' needs a sequence mixer, the study allows {setting.mixers}")
        block = Block(sublayers=(Sublayer(mixer=names[0]),))
        return Architecture(vocab=setting.vocab, d_model=setting.d_model, stages=(Stage(blocks=(block,)),))

    def mixers(self, setting: Any) -> list[str]:
        found = super().mixers(setting)
        # The last of the alphabet keeps its place when others join.
        return found[-1:]

    def starting_points(self, setting: Any) -> list[Any]:
        return []


class NoGates(BaseModel, frozen=True, extra="forbid"):
    pass


THREE = {"sites": ("gate", "mode", "halt"), "max_choices": None}
UNUSUAL: dict[str, tuple[Kind, Callable[[], list[Any]]]] = {
    "a constant router": ("router", lambda: routers.offered(Always, config=NoGates, **THREE)),
    "a router in float32": ("router", lambda: routers.offered(InFloat32)),
    "a router with a schedule": ("router", lambda: routers.offered(Scheduled)),
    "a router with many choices": ("router", lambda: routers.offered(Parity, config=NoGates, **THREE)),
    "a router with a running average": ("router", lambda: routers.offered(routers.Smooth)),
    "a router that reads labels": (
        "router",
        lambda: routers.offered(Oracle, config=NoGates, needs_labels=True),
    ),
    "a router at one site": ("router", lambda: routers.offered(routers.Coin, sites=("halt",))),
    "a prelude": ("depth", lambda: depth.offered(Prelude)),
    "two sets of weights in turn": ("depth", lambda: depth.offered(BackAndForth)),
    "one depth": ("depth", lambda: depth.offered(Once, shares=False)),
    "perplexity": ("task", lambda: tasks.offered(Perplexity)),
    "skewed answers": ("task", lambda: tasks.offered(Skewed)),
    "packed documents": ("task", lambda: tasks.offered(Packed)),
    "a space of one point": ("space", lambda: spaces.offered(OnePoint)),
}


def beside_builtins(kind: Kind, descriptor: Any) -> Registry:
    registry = Host.load(third_party=False)
    registry.entries[kind]["small"] = Registered(descriptor, Owner("test", "test", "test"))
    return registry


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_part_that_is_right_passes(name: str) -> None:
    kind, offer = UNUSUAL[name]
    (descriptor,) = offer()
    assert failures(check(beside_builtins(kind, descriptor), kind, "small")) == {}


def test_what_does_not_apply_follows_from_what_is_stated() -> None:
    (descriptor,) = routers.offered(BestQuarter, causal=False)
    report = check(beside_builtins("router", descriptor), "router", "small")
    why = {
        outcome.rule.name: outcome.why for outcome in report.outcomes if outcome.status == "not_applicable"
    }
    assert why["causal"] == "it states that it is not causal"
    assert why["length"] == "it states that it is not causal"
    assert "gradient" in why["gradient"]
    assert not {"choices", "counter-hash", "thresholds", "rates", "cost"} & set(why)
