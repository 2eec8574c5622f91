"""What a depth policy writes down: which block runs when, with which weights."""

from __future__ import annotations

import random
from itertools import pairwise

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.depth.subject import DepthSubject
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.conformance.stated import register_settings_rule
from crossbreed.core.contracts.depth import Step
from crossbreed.core.model.seeding import seeded

GRID = Sizes(
    {"repeats": (1, 2, 3, 4, 7, 16), "blocks": (1, 2, 3)},
    {"repeats": (1, 2, 4, 16), "blocks": (1, 3)},
)

MANY = 12
"""Repeats of which some must share weights, where any do."""

register_settings_rule("depth")


@rule(
    "depth",
    "plan",
    says="A plan ends, is a list of steps, counts depths from 0 without gaps and never back, and runs every block.",
    measured="Plans of 1 to 16 repeats of 1 to 3 blocks; one that takes more than 100,000 lines of Python or 10,000 steps does not "
    "end.",
    sizes=GRID,
)
def plan(subject: DepthSubject, case: Case) -> None:
    repeats, blocks = case["repeats"], case["blocks"]
    steps = subject.plan(case.settings, repeats, blocks)
    require(len(steps) > 0, "the plan is empty")
    for step in steps:
        whole = isinstance(step, Step) and all(isinstance(number, int) for number in step)
        require(whole, f"{step!r} is no Step of whole numbers")
        legal = 0 <= step.block < blocks and step.weights >= 0
        require(legal, f"{step} names a block or weights that do not exist; blocks are 0 to {blocks - 1}")
    depths = [step.depth for step in steps]
    rising = depths[0] == 0 and all(b - a in (0, 1) for a, b in pairwise(depths))
    require(rising, f"depths do not rise from 0 by one: {depths}", deepest=max(depths))
    idle = set(range(blocks)) - {step.block for step in steps}
    require(not idle, f"blocks {sorted(idle)} of {blocks} never run", idle=len(idle))


@rule(
    "depth",
    "reproducible",
    says="The same repeats and blocks give the same plan, and the same answer on what is injected, each time and everywhere.",
    measured="Twice by one policy and once by another, after other seeds of torch and Python.",
    faults=("C10",),
    sizes=GRID,
    after=("plan",),
)
def reproducible(subject: DepthSubject, case: Case) -> None:
    repeats, blocks = case["repeats"], case["blocks"]
    policy, found = subject.policy(case.settings), []
    for seed in (1, 2):
        with seeded(seed):
            random.seed(seed)
            found.append((list(policy.plan(repeats, blocks)), policy.injects_input()))
            other = subject.policy(case.settings)
            found.append((list(other.plan(repeats, blocks)), other.injects_input()))
    same = all(plan == found[0] for plan in found)
    require(same, f"plans of {repeats} repeats of {blocks} blocks differ from one time to the next")


@rule(
    "depth",
    "weights",
    says="Weights are shared over depth where the descriptor says so and nowhere else, and none that are stored lie idle.",
    measured="Every block of every stored set must run; of 12 repeats some share weights where sharing is stated, and no two depths "
    "where it is not.",
    sizes=GRID,
    after=("plan", "reproducible"),
)
def weights(subject: DepthSubject, case: Case) -> None:
    repeats, blocks = case["repeats"], case["blocks"]
    steps, policy = subject.plan(case.settings, repeats, blocks), subject.policy(case.settings)
    sets = policy.weight_sets(repeats)
    used = {(step.weights, step.block) for step in steps}
    idle = {(weights, block) for weights in range(sets) for block in range(blocks)} - used
    require(not idle, f"{len(idle)} of {sets * blocks} stored blocks never run", idle=len(idle))
    beyond = max(weights for weights, _ in used)
    require(beyond < sets, f"weight set {beyond} is used, but there are {sets}", sets=sets)
    stated = subject.descriptor.shares_weights
    # Weights may be shared by some of many depths; where they are said to be nobody's, two depths tell.
    many = subject.plan(case.settings, MANY if stated else repeats, blocks)
    shared = len(set(many)) > len({(step.weights, step.block) for step in many})
    require(
        shared == stated,
        f"it states shares_weights={stated}, but {len(many)} runs say {shared}",
        runs=len(many),
    )
