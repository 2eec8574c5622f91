"""The declared claims themselves: every arm meets its budget at both scales, and every term names something that is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crossbreed.claims.claim import SCALES, Exact, Paper, Scale, Test
from crossbreed.claims.judge import exactly
from crossbreed.claims.measures import AT_POINTS, BY_CLASS, OWN, SEEN
from crossbreed.claims.papers import PAPERS, paper
from crossbreed.claims.plan import Planner, at_rate
from crossbreed.claims.record import Record
from crossbreed.core.errors import UnknownName
from crossbreed.core.host import Host, Registry
from crossbreed.core.lab.operating_points import OperatingPoint

METRICS = {"score", "rate", "loss_nats", "accuracy", *AT_POINTS}
each_paper = pytest.mark.parametrize("one", PAPERS.values(), ids=list(PAPERS))
each_scale = pytest.mark.parametrize("scale", SCALES)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Host.load(third_party=False)


@each_paper
@each_scale
def test_every_arm_is_certified_inside_its_budget(
    one: Paper, scale: Scale, registry: Registry, tmp_path: Path
) -> None:
    for experiment in one.experiments[scale]:
        # What is told another arm's rate is looked at as if that were 0.4.
        told = tuple(
            replace(a, architecture=at_rate(a.architecture, 0.4), rate_of=None) for a in experiment.arms
        )
        record = Record.at(tmp_path / "record.json", one.name, scale)
        planner = Planner(replace(experiment, arms=told), registry, record)
        for arm in told:
            made = planner.matched(arm)
            assert made is not None
            assert made["certificate"]["feasible"], (experiment.name, arm.name)
            modes = made["genome"]["mode_router"] is not None
            for name in arm.points.values():
                point = OperatingPoint.parse(name)
                assert point.name == name
                assert modes or point.schedule is None


@each_paper
def test_every_term_names_an_arm_and_a_number_that_its_runs_have(one: Paper) -> None:
    for claim in one.claims:
        for part in claim.parts:
            if not isinstance(part, Test):
                continue
            for _, measure in part.terms:
                for scale in SCALES:
                    experiment = one.experiment(scale, measure.experiment)
                    # The smaller scale may leave some out.
                    if scale == "cpu" and (
                        experiment is None or measure.arm not in {a.name for a in experiment.arms}
                    ):
                        continue
                    assert experiment is not None, (claim.id, measure)
                    arm = experiment.arm(measure.arm)
                    name, _, point = measure.quantity.partition("@")
                    assert (point or OWN) in (OWN, *arm.points), (claim.id, measure)
                    assert name in METRICS or name.partition(":")[0] in {*SEEN, *BY_CLASS}, (
                        claim.id,
                        measure,
                    )


@each_paper
def test_claims_have_ids_of_their_own_and_digests_that_their_margins_move(one: Paper) -> None:
    assert len({c.id for c in one.claims}) == len(one.claims)
    for claim in one.claims:
        moved = replace(claim, parts=tuple(replace(p, margin=p.margin + 0.01) for p in claim.parts))
        assert moved.digest() != claim.digest()
        assert replace(claim, note="other words").digest() == claim.digest()


@each_paper
def test_the_cpu_scale_has_claims_about_learned_scores(one: Paper) -> None:
    here = {(e.name, a.name) for e in one.experiments["cpu"] for a in e.arms}
    learned = [
        c
        for c in one.claims
        if c.learned
        and any(
            all((m.experiment, m.arm) in here for _, m in p.terms) for p in c.parts if isinstance(p, Test)
        )
    ]
    assert len(learned) >= 3
    assert len(one.claims) >= 3


def test_what_follows_from_the_ledger_is_answered_without_training(registry: Registry) -> None:
    for one in PAPERS.values():
        for claim in one.claims:
            for part in claim.parts:
                if isinstance(part, Exact):
                    found = exactly(part.value(registry) - part.target, part.direction, part.margin)
                    assert found.verdict == "supported", (one.name, claim.id, part.says, found.effect)


def test_an_unknown_paper_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="did you mean 'dreamer'"):
        paper("dreemer")
