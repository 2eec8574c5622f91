"""A depth policy under check: its plans, and small models whose stage follows them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, pairwise
from types import FrameType
from typing import Any, TypeVar

import torch
from torch import Tensor

from crossbreed.core.conformance import probes
from crossbreed.core.conformance.rule import Broken, require
from crossbreed.core.conformance.subject import Subject
from crossbreed.core.contracts.context import Recorder
from crossbreed.core.contracts.depth import DepthPolicy, Step
from crossbreed.core.genome import Architecture, Block, Router, Stage, Sublayer
from crossbreed.core.genome import DepthPolicy as DepthGene
from crossbreed.core.model.language_model import LanguageModel

LINES, STEPS = 100_000, 10_000
"""Lines of Python after which a plan counts as endless, and runs that a plan may have."""
R = TypeVar("R")


class DepthSubject(Subject):
    """A registered depth policy."""

    kind = "depth"

    def policy(self, settings: Mapping[str, Any]) -> DepthPolicy:
        made: DepthPolicy = self.registry.factory("depth", self.name)(self.config(settings))
        return made

    def plan(self, settings: Mapping[str, Any], repeats: int, blocks: int) -> list[Step]:
        """The plan of a policy of its own; Broken where it does not end."""
        policy = self.policy(settings)
        # What a stage is given once and goes through many times.
        made = within(LINES, lambda: policy.plan(repeats, blocks))
        require(isinstance(made, list), f"the plan is a {type(made).__name__}, not a list")
        steps = list(islice(made, STEPS + 1))
        require(len(steps) <= STEPS, f"the plan of {repeats} repeats of {blocks} blocks does not end")
        return steps

    def model(
        self, settings: Mapping[str, Any], repeats: int, blocks: int, halt: Router | None
    ) -> LanguageModel:
        """A float64 model of one stage, of blocks that each keep a state of another kind."""
        mixers = (probes.FADING, probes.LOOKING)
        architecture = Architecture(
            vocab=11,
            d_model=8,
            stages=(
                Stage(
                    blocks=tuple(
                        Block(sublayers=(Sublayer(mixer=mixers[b % 2], params={"width": 5}),))
                        for b in range(blocks)
                    ),
                    depth=DepthGene(name=self.name, repeats=repeats, params=dict(settings)),
                    halt=halt,
                ),
            ),
        )
        model = LanguageModel(architecture, probes.with_probes(self.registry), seed=1).double().eval()
        with torch.no_grad():
            model.embedding.weight.mul_(30)
        return model


@torch.no_grad()
def run(
    model: LanguageModel, tokens_BT: Tensor, cuts: Sequence[int] = ()
) -> tuple[Tensor, dict[str, Tensor]]:
    """(h_BTD, {site: choice_BT}) of pieces between ``cuts``; those of one token are decoded. One piece keeps no state."""
    state = model.init_state(len(tokens_BT)) if cuts else None
    outputs: list[Tensor] = []
    taken: dict[str, list[Tensor]] = {}
    for start, stop in pairwise([0, *cuts, tokens_BT.shape[1]]):
        piece, recorder = tokens_BT[:, start:stop], Recorder(detail=True)
        phase = "decode" if stop - start == 1 and cuts else "prefill"
        at = model.context(piece, phase=phase, state=state, recorder=recorder)  # type: ignore[arg-type]
        h_BTD, state = model(piece, at, state)
        outputs.append(h_BTD)
        for site, statistics in recorder.records:
            if "choice_BT" in statistics:
                taken.setdefault(site, []).append(statistics["choice_BT"])
    return torch.cat(outputs, 1), {site: torch.cat(choices, 1) for site, choices in taken.items()}


def within(lines: int, work: Callable[[], R]) -> R:
    """What ``work`` returns; Broken after so many lines of Python, since a loop without end would never be judged."""
    left = lines

    def watch(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Broken(f"the plan does not end: {lines} lines of Python have run", lines=lines)
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        return work()
    finally:
        sys.settrace(before)
