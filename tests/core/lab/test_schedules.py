"""One trained Oryx, several operating points: schedules are judged and timed without training again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from crossbreed.core.errors import ConfigError
from crossbreed.core.lab.evaluate import evaluate
from crossbreed.core.lab.operating_points import OWN, OperatingPoint
from crossbreed.core.lab.records import Curve, Evaluated, Finished, Profiled
from crossbreed.core.model.language_model import LanguageModel
from tests.support.records import of

pytestmark = pytest.mark.usefixtures("brief_timing")

LENGTH = 12
"""Tokens of the test task's texts."""
POINTS = (
    "schedule:0=mamba2",
    "schedule:0=attention",
    "schedule:0=mamba2,-25%=attention",
    "schedule:0=1,5=0,8=1",
)
SHARES = {POINTS[0]: 0.0, POINTS[1]: 1.0, POINTS[2]: 3 / 12, POINTS[3]: 9 / 12}


def oryx(**router: Any) -> dict[str, Any]:
    mixer = {
        "mixer": "multi_mixer",
        "params": {"readers": ["mamba2", "attention"], "heads": 2, "head_size": 8},
    }
    return {
        "vocab": 20,
        "d_model": 16,
        "stages": [{"blocks": [{"sublayers": [mixer]}] * 2}],
        "mode_router": {"name": "segment_random", "params": {"segment": 4, **router}},
    }


@pytest.fixture
def trained(job: Any, records_of: Any) -> Any:
    one = job(oryx(evaluate=0))
    assert records_of(one)[-1] == Finished("done")
    return one


def test_a_trained_run_is_judged_and_timed_at_schedules_without_training(trained: Any, records_of: Any):
    again = replace(
        trained,
        lease="lease-2",
        phases=("evaluate", "profile"),
        judged=POINTS,
        points=(POINTS[2],),
    )
    records = records_of(again)
    assert records[-1] == Finished("done")
    assert not of(Curve, records)
    evaluated = of(Evaluated, records)
    # Own decisions come last: once they are stored, the run counts as judged.
    assert [e.point for e in evaluated] == [*POINTS, "own"]
    for e in evaluated[:-1]:
        assert e.rates["mode"] == pytest.approx((1 - SHARES[e.point], SHARES[e.point]))
        assert e.ledger["realised"]
        assert e.ledger["rates"]["mode"] == list(e.rates["mode"])
    # The genome evaluates in mode 0, which is the first point under another name.
    assert evaluated[-1].metrics == evaluated[0].metrics
    # The same in another mode is another model to its reader: the loss differs.
    assert len({e.metrics["loss_nats"] for e in evaluated}) == len(POINTS)
    (timed,) = of(Profiled, records)
    # Only a row's last token is decoded here, and the schedule ends in attention.
    assert (timed.point, timed.rates["mode"]) == (POINTS[2], (0.0, 1.0))


def test_a_trained_run_is_judged_and_timed_on_longer_texts(trained: Any, records_of: Any, task: Any) -> None:
    again = replace(
        trained, lease="lease-2", phases=("evaluate", "profile"), judged=("length:3",), points=("length:3",)
    )
    longer = task.at_length(36)
    first, second = (of(Evaluated, records_of(again)) for _ in range(2))
    assert first == second
    assert first[0].settings == {"length": 36, "items": longer.evaluation_hash()}
    assert (first[0].rows, first[0].ledger, first[1].settings) == (24, None, None)
    (timed,) = of(Profiled, records_of(again))
    assert {(m.phase, m.tokens) for m in timed.measurements} == {("prefill", 36), ("decode", 36)}


def test_a_schedule_is_judged_the_same_in_any_batch(build: Any, task: Any):
    model = build(oryx())
    point = OperatingPoint.parse(POINTS[2])
    small, large = (evaluate(model, task, size, point=point) for size in (5, 24))
    assert small.totals.correct == large.totals.correct
    assert small.totals.loss_nats == pytest.approx(large.totals.loss_nats, rel=1e-5)
    assert small.rates == large.rates


def test_a_gate_beside_the_modes_decides_for_itself(build: Any, task: Any):
    genome = oryx()
    gate = {"name": "learned", "params": {"target_rate": 0.4}}
    blocks = genome["stages"][0]["blocks"]
    genome["stages"][0]["blocks"] = [blocks[0], {**blocks[1], "gate": gate}]
    model = build(genome)
    with torch.no_grad():
        # The gate skips everything, so both layers' decisions are plain.
        model.get_parameter("stages.0.weight_sets.0.1.gate.router.bias").fill_(-9.0)
    found = evaluate(model, task, 24, point=OperatingPoint.parse(POINTS[1]))
    assert found.rates == {"mode": (0.0, 1.0), "0.1.0.gate": (1.0, 0.0)}
    assert evaluate(model, task, 24, point=OWN).rates["mode"] != (0.0, 1.0)


@pytest.mark.parametrize(
    ("genome", "asked", "sentence"),
    [
        (oryx(), {"judged": ("schedule:0=0,12=1",)}, "switches at '12', which is not inside a text of 12 tokens"),
        (oryx(), {"judged": ("schedule:0=gated_deltanet",)}, "takes mode 'gated_deltanet'; the modes are: mamba2, a"),
        (oryx(), {"points": ("schedule:0=2",)}, "takes mode '2'"),
        (oryx(), {"points": ("shedule:0=1",)}, "unknown operating point 'shedule:0=1'"),
        (oryx(evaluate=[[0, 0], [12, 1]]), {}, "switches at position 12, but the text has 12 tokens"),
        (oryx(evaluate=2), {}, "takes choice 2 from position 0, but the site has choices 0 to 1"),
        (oryx(segment=0), {}, "segment"),
    ],
)  # fmt: skip
def test_bad_schedules_end_in_a_sentence_before_any_weight_exists(
    job: Any, records_of: Any, monkeypatch: Any, genome: dict[str, Any], asked: Any, sentence: str
):
    def allocate(*args: object, **kwargs: object) -> None:
        raise AssertionError("a weight was about to be allocated")

    monkeypatch.setattr(torch.nn.Embedding, "__init__", allocate)
    (last,) = records_of(job(genome, **asked))
    assert (last.state, sentence in last.cause) == ("failed", True), last.cause


def test_evaluating_a_model_without_modes_at_a_schedule_is_refused(build: Any, genome: Any, task: Any):
    model: LanguageModel = build(genome())
    with pytest.raises(ConfigError, match="schedules modes, but the architecture has no mode router"):
        evaluate(model, task, 24, point=OperatingPoint.parse(POINTS[0]))
