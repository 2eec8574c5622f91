"""What a space proposes: legal points only, which a matcher can move, the same from the same draws."""

from __future__ import annotations

import json
import random

import numpy as np
import torch

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.rule import Broken, require, rule
from crossbreed.core.conformance.spaces.subject import RandomDraw, SpaceSubject, legal, moved
from crossbreed.core.conformance.stated import register_settings_rule
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import digest
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.seeding import seeded
from crossbreed.core.search.draws import Fixed
from crossbreed.core.search.proposals import Proposer

SEEDS = Sizes({"seed": tuple(range(80))}, {"seed": tuple(range(16))})

register_settings_rule("space")


@rule(
    "space",
    "legal-points",
    says="Every draw leads to an architecture of the study that can be built and trained, of nothing but what the study allows.",
    measured="Random draws in studies of four sizes: names, settings, sites, head sizes, vocabulary and width; some are built "
    "without memory for their weights.",
    faults=("S3", "S4", "O15"),
    sizes=SEEDS,
)
def legal_points(subject: SpaceSubject, case: Case) -> None:
    setting = subject.setting(case["seed"])
    try:
        proposed = subject.space(case.settings).propose(RandomDraw(seed=case["seed"]), setting)
    except ConfigError as error:
        raise Broken(f"a draw leads to an error instead of an architecture: {error}") from error
    architecture = legal(proposed, setting, "a proposal")
    if case["seed"] % 8 == 0:
        with torch.device("meta"):
            LanguageModel(architecture, subject.registry)


@rule(
    "space",
    "starting-points",
    says="Every starting point is a legal point, and every answer in it is one of those that are asked for.",
    measured="All of them in studies of four sizes, answers taken strictly.",
    sizes=Sizes({"study": (0, 1, 2, 3)}, {"study": (0, 1)}),
    after=("legal-points",),
)
def starting_points(subject: SpaceSubject, case: Case) -> None:
    space, setting = subject.space(case.settings), subject.setting(case["study"])
    for number, answers in enumerate(space.starting_points(setting)):
        stored = json.loads(json.dumps(answers))
        try:
            proposed = space.propose(Fixed(values=stored), setting)
        except ConfigError as error:
            raise Broken(f"starting point {number} is not legal: {error}", number=number) from error
        legal(proposed, setting, f"starting point {number}")


@rule(
    "space",
    "movable",
    says="A matcher can move every proposal along its free dimensions to the ends of their grids, and it stays legal and of one "
    "family.",
    measured="Random draws; all free dimensions at their smallest and at their largest values.",
    faults=("S4",),
    sizes=SEEDS,
    after=("legal-points",),
)
def movable(subject: SpaceSubject, case: Case) -> None:
    space, setting = subject.space(case.settings), subject.setting(case["seed"])
    proposed = legal(space.propose(RandomDraw(seed=case["seed"]), setting), setting, "a proposal")
    label = space.family(proposed)
    require(isinstance(label, str) and label != "", f"its family is {label!r}")
    for other in moved(proposed, subject.registry):
        legal(other, setting, "a proposal moved by a matcher")
        found = space.family(other)
        require(found == label, f"the family {label!r} becomes {found!r} where only numbers change")


@rule(
    "space",
    "repeatable",
    says="The same answers give the same architecture, and the same seed the same proposals, everywhere.",
    measured="Random draws replayed strictly from stored answers by another object; two proposals of every sampler, twice, after "
    "other seeds of all global generators.",
    faults=("O19",),
    sizes=Sizes({"seed": tuple(range(24))}, {"seed": (0, 1, 2, 3)}),
    after=("legal-points",),
)
def repeatable(subject: SpaceSubject, case: Case) -> None:
    setting, draw = subject.setting(case["seed"]), RandomDraw(seed=case["seed"])
    proposed = subject.space(case.settings).propose(draw, setting)
    stored = json.loads(json.dumps(draw.answers))
    try:
        again = subject.space(case.settings).propose(Fixed(values=stored), setting)
    except ConfigError as error:
        raise Broken(f"its own answers are refused: {error}") from error
    require(again == proposed, "the same answers give another architecture")
    if case["seed"] >= 3:
        return
    sampler = ("random", "tpe", "nsga2")[case["seed"]]
    found = []
    for seed in (1, 2):
        with seeded(seed):
            np.random.seed(seed)
            random.seed(seed)
            proposer = Proposer(subject.space(case.settings), setting, ("max", "max"), sampler, seed=7)
            found.append([digest(proposer.ask([], attempt).architecture) for attempt in range(2)])
    require(found[0] == found[1], f"the same seed of the sampler {sampler!r} gives other proposals")
