"""A space in a study that grows, or that allows little."""

from __future__ import annotations

import json
import random
from dataclasses import replace

from crossbreed.core.conformance import probes
from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.rule import Broken, require, rule
from crossbreed.core.conformance.spaces import proposals  # noqa: F401  (its rules stand before these)
from crossbreed.core.conformance.spaces.subject import RandomDraw, SpaceSubject, legal
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.errors import ConfigError
from crossbreed.core.search.draws import Fixed

NEW: tuple[Kind, ...] = ("mixer", "router", "depth")


@rule(
    "space",
    "growth",
    says="A mixer, a router or a depth policy that joins a study leaves old points valid: their answers lead to the same "
    "architectures.",
    measured="Random draws and starting points, replayed strictly beside two more mixers, one more router, two more depth policies, "
    "each alone.",
    faults=("O19",),
    sizes=Sizes({"seed": tuple(range(24))}, {"seed": tuple(range(6))}),
    after=("legal-points", "repeatable", "starting-points"),
)
def growth(subject: SpaceSubject, case: Case) -> None:
    space, setting = subject.space(case.settings), subject.setting(case["seed"])
    draw = RandomDraw(seed=case["seed"])
    old = legal(space.propose(draw, setting), setting, "a proposal")
    points = [(draw.answers, old)]
    if case["seed"] == 0:
        for answers in space.starting_points(setting):
            # Completed with what it leaves open, as a stored candidate is.
            filled = Fixed(values=answers)
            points.append(
                (filled.answers, legal(space.propose(filled, setting), setting, "a starting point"))
            )
    for kind in NEW:
        grown = subject.setting(case["seed"], probes.with_probes(subject.registry, kind))
        for answers, before in points:
            try:
                after = subject.space(case.settings).propose(
                    Fixed(values=json.loads(json.dumps(answers))), grown
                )
            except ConfigError as error:
                raise Broken(f"with another {kind} an old point is refused: {error}") from error
            require(
                legal(after, grown, "an old point") == before,
                f"with another {kind} an old point becomes another architecture",
            )


@rule(
    "space",
    "restrictions",
    says="A study that allows less gets proposals of what it allows, or one sentence that says what is missing.",
    measured="Random draws where each mixer, router and depth policy is allowed or not by a coin; a refusal must be a ConfigError.",
    sizes=Sizes({"seed": tuple(range(60))}, {"seed": tuple(range(12))}),
    after=("legal-points",),
)
def restrictions(subject: SpaceSubject, case: Case) -> None:
    coin, setting = random.Random(case["seed"]), subject.setting(case["seed"])

    def some(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if coin.random() < 0.5)

    setting = replace(
        setting, mixers=some(setting.mixers), routers=some(setting.routers), depth=some(setting.depth)
    )
    draw = RandomDraw(seed=case["seed"])
    try:
        proposed = subject.space(case.settings).propose(draw, setting)
    except ConfigError:
        # What is missing is known before anything is drawn, so that a search ends at once and not after a while.
        require(not draw.answers, f"a study is refused only after {sorted(draw.answers)} were drawn")
        return
    legal(proposed, setting, "a proposal")
