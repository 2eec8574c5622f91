"""A realistic study in a real database, written through the repository as a search writes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from crossbreed.core.budget.matcher import match
from crossbreed.core.genome import Architecture, digest
from crossbreed.core.host import Host
from crossbreed.core.lab.records import CurvePoint, Measurement
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import StudySetting, resolve
from crossbreed.storage import Repository
from crossbreed.storage.rows import TrialRow

STUDY = "recall-small"
DEVICE = "Some CPU @ 2.50GHz (1 thread)"
HOSTILE = '<img src=x onerror="window.hacked=1"> **bold** [link](http://example.com) $x$ `tick`'
TRACEBACK = (
    f'Traceback (most recent call last):\n  File "router.py", line 3, in forward\nValueError: {HOSTILE}\n'
)

_CONV = {"short_conv": {"width": 4, "on": "kv"}}
_ATTENTION = {"mixer": "attention", "params": {"heads": 4, "head_size": 16, **_CONV}}
_SWIGLU = {"mixer": "swiglu", "params": {"hidden": 172}}
_GATE = {"name": "learned"}

SPEC: dict[str, Any] = {
    "schema": 1,
    "name": STUDY,
    "task": {"name": "recall", "params": {"pairs": 4, "length": 32}},
    "budget": {
        "reference": {
            "d_model": 64,
            "stages": [
                {"depth": {"name": "layered", "repeats": 2}, "blocks": [{"sublayers": [_ATTENTION, _SWIGLU]}]}
            ],
        },
        "match": {"training_flops_per_token": "3%", "non_embedding_parameters": "3%"},
        "cap": {"memory_bytes": "3%"},
    },
    "train": {"tokens": 300_000, "batch": 32},
    "evaluation": {"lengths": [1, 2, 4]},
    "search": {"trials": 9, "seeds": 3},
}


def _genome(
    *sublayers: dict[str, Any], repeats: int = 2, depth: str = "layered", **more: Any
) -> dict[str, Any]:
    block = {"sublayers": list(sublayers), **({"gate": more.pop("gate")} if "gate" in more else {})}
    return {
        "d_model": 64,
        "stages": [{"depth": {"name": depth, "repeats": repeats}, "blocks": [block]}],
        **more,
    }


def _mixer(name: str, **params: Any) -> dict[str, Any]:
    return {"mixer": name, "params": params}


@dataclass(frozen=True)
class Sketch:
    """A candidate: its results are one score and one decode speed a seed. Of three it has a run before them that chose it."""

    genome: dict[str, Any]
    scores: tuple[float, ...] = ()
    speeds: tuple[float, ...] = ()
    state: str = "done"
    origin: str = "start"
    family: str | None = None
    longer: bool = False


CLASSES = ("filler", "query")
"""The first half of an evaluation's positions is of the first class, on which loss is high; on queries it is as the score says."""


def breakdown(length: int, score: float) -> dict[str, Any]:
    """As ``lab.breakdown`` keeps it, of 512 rows: the first position of a row is never labelled."""
    rows, half = 512, length // 2
    labelled = [rows * (place > 0) for place in range(length)]
    right = [round(n * (0.1 if place < half else score)) for place, n in enumerate(labelled)]
    nats = [4.0 * (n - r) for n, r in zip(labelled, right, strict=True)]
    classes = [
        {"class": name, "labelled": sum(labelled[at]), "right": sum(right[at]), "loss_nats": sum(nats[at])}
        for name, at in zip(CLASSES, (slice(half), slice(half, None)), strict=True)
    ]
    along = {"width": 1, "labelled": labelled, "right": right, "loss_nats": nats}
    return {"version": 1, "classes": classes, "positions": along}


LENGTHS = {2: 0.9, 4: 0.6}
"""Multiples of the training length at which some candidates are judged, and the share of their score that is left."""

SKETCHES: tuple[Sketch, ...] = (
    Sketch(_genome(_ATTENTION, _SWIGLU), (0.962, 0.958, 0.967), (1490.0, 1512.0, 1503.0), origin="reference", longer=True),
    Sketch(_genome(_mixer("mamba2"), _SWIGLU), (0.874, 0.881, 0.866), (1985.0, 2010.0, 1979.0)),
    Sketch(_genome(_mixer("gated_deltanet"), _SWIGLU), (0.991, 0.988, 0.994), (1204.0, 1187.0, 1212.0)),
    Sketch(
        _genome(
            _mixer("multi_mixer", readers=["mamba2", "attention"]),
            _SWIGLU,
            mode_router={"name": "segment_random"},
        ),
        (0.902,),
        (1105.0,),
        origin="sampler",
    ),
    Sketch(_genome(_ATTENTION, _SWIGLU, gate=_GATE), (0.78, 0.83, 0.74), (1610.0, 1588.0, 1640.0)),
    Sketch(
        _genome(_ATTENTION, _mixer("experts"), depth="recurrent"),
        (0.731,),
        (880.0,),
        origin="sampler",
    ),
    Sketch(_genome(_ATTENTION, _SWIGLU, depth="recurrent"), state="infeasible"),
    Sketch(_genome(_mixer("mamba2"), _SWIGLU, gate=_GATE), state="failed", family=HOSTILE),
    Sketch(
        _genome(_mixer("multi_mixer", readers=["mamba2", "attention"]), _SWIGLU, mode_router=_GATE), (0.97,), (1700.0,), state="off_budget",
    ),
)  # fmt: skip
ON_FRONT = (1, 0, 2)
"""Non-dominated in score and speed: fastest first."""
RUNNING = 4
"""A candidate that a test gives one more seed."""


@cache
def setting() -> StudySetting:
    return resolve(StudyFile.read(SPEC), Host.load(third_party=False))


def store(
    url: str | Path, sketches: Sequence[Sketch] = SKETCHES, name: str = STUDY, device: str = DEVICE
) -> None:
    """A study of these sketches; curves and forced operating points included."""
    with Repository.open(str(url)) as repository, repository.batch():
        study = repository.create_study(name, StudyFile.read({**SPEC, "name": name}).as_data())
        repository.fix_reference_point(study.id, {"score": 0.0, "decode_tokens_per_s": 0.0})
        for sketch in sketches:
            trial = _add_trial(repository, study.id, sketch)
            reported = len(sketch.scores) if len(sketch.scores) > 1 else 0
            for seed in range(1 + reported if sketch.scores else sketch.state == "failed"):
                add_run(repository, trial, seed, sketch, device)


def _add_trial(repository: Repository, study_id: int, sketch: Sketch) -> TrialRow:
    s = setting()
    drawn = s.registry.canonical(Architecture.model_validate({"vocab": s.task.vocab, **sketch.genome}))
    found = match(drawn, s.budget, s.registry, s.cost_model)
    assert found.certificate.feasible == (sketch.state != "infeasible"), found.certificate
    return repository.add_trial(
        study_id,
        hash=digest(found.architecture),
        genome=found.architecture.model_dump(mode="json"),
        family=sketch.family or s.space.family(drawn),
        origin=sketch.origin,
        certificate=found.certificate,
        ledger=found.ledger.as_dict(),
        state="queued" if found.certificate.feasible else "infeasible",
        cause=found.certificate.reason,
    )


def add_run(repository: Repository, trial: TrialRow, seed: int, sketch: Sketch, device: str = DEVICE) -> None:
    """One run of a candidate from its lease to its end."""
    run = repository.add_run(
        trial.id,
        seed,
        recipe=setting().file.train,
        identities={"mixer:attention": "crossbreed 0.1.0"},
        role="report" if seed else "tune",
    )
    lease = repository.lease_run(run.id, "worker-0", seconds=60)
    assert lease is not None
    repository.record_started(run.id, lease, {"torch": "2"})
    if sketch.state == "failed":
        cause = f"exception: ValueError: {HOSTILE}"
        repository.record_finished(run.id, lease, "failed", cause=cause, traceback=TRACEBACK)
        return
    place = (seed - 1) % len(sketch.scores)
    score, speed = sketch.scores[place], sketch.speeds[place]
    curve = [
        CurvePoint(
            step=step,
            tokens=step * 1024,
            loss_nats=4.1 * math.exp(-step / (90 + 10 * seed)) + 1.2 * (1 - score) + 0.02 * math.sin(step),
            lr=3e-3,
            grad_norm=1.0,
            aux={},
        )
        for step in range(0, 293, 10)
    ]
    repository.record_curve(run.id, lease, curve)
    repository.record_rung(run.id, lease, rung=0, tokens=300_000, metrics={"accuracy": score})
    repository.record_evaluation(
        run.id,
        lease,
        "own",
        tokens=32,
        metrics={"accuracy": score, "loss_nats": 4 * (1 - score)},
        score=score,
        rows=512,
        breakdown=breakdown(32, score),
    )
    for point, factor in (("own", 1.0), ("forced:0.1", 1.2), ("forced:1", 0.9)):
        repository.record_profile(
            run.id, lease, point, [measured(m, speed * factor, device) for m in ("decode", "prefill")]
        )
    for times, share in LENGTHS.items() if sketch.longer else ():
        point, about = f"length:{times}", {"length": 32 * times, "items": "f" * 64}
        metrics = {"accuracy": share * score, "loss_nats": 4 * (1 - share * score)}
        repository.record_evaluation(
            run.id,
            lease,
            point,
            tokens=300_000,
            metrics=metrics,
            score=share * score,
            rows=512,
            settings=about,
            breakdown=breakdown(32 * times, share * score),
        )
        repository.record_profile(
            run.id,
            lease,
            point,
            [measured(m, speed / times**0.5, device, 32 * times) for m in ("decode", "prefill")],
        )
    repository.record_finished(
        run.id, lease, sketch.state, cause="rates left the budget" if sketch.state == "off_budget" else ""
    )


def measured(phase: str, speed: float, device: str, tokens: int = 32) -> Measurement:
    median = speed if phase == "decode" else 11 * speed
    return Measurement(
        metric=f"{phase}_tokens_per_s", unit="tokens/s", phase=phase, batch=1, tokens=tokens, dtype="float32", device=device,
        policy="best", compiled=False, median=median, q1=0.98 * median, q3=1.02 * median, repeats=7,
        backends={"attention": "sdpa"},
    )  # fmt: skip
