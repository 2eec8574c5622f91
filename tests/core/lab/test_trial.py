"""What a whole trial reports, in which order, and at which points."""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.matcher import certify
from crossbreed.core.genome import Architecture
from crossbreed.core.lab.records import (
    Analysed,
    Curve,
    Evaluated,
    Finished,
    Profiled,
    RungDone,
    Started,
    from_json,
    to_json,
)
from crossbreed.core.trust import Trust
from tests.support.distributions import install
from tests.support.records import of, points

HALF = {"name": "segment_random", "params": {"segment": 3, "probability": 0.5}}


def test_a_whole_trial_reports_everything_in_order(job, genome, records_of):
    one = job(genome(gate={"name": "learned"}), phases=("profile", "train", "evaluate", "profile"))
    records = records_of(one)
    assert isinstance(records[0], Started)
    assert records[-1] == Finished("done")
    *forced, own = of(Profiled, records)
    assert {r.point: r.rates["0.1.0.gate"][1] for r in forced} == {
        "forced:0": 0.0,
        "forced:0.1": 0.1,
        "forced:0.22": 0.22,
        "forced:0.4": 0.4,
        "forced:1": 1.0,
    }
    assert own.point == "own"
    kinds = [type(r).__name__ for r in records if not isinstance(r, Curve)]
    assert kinds == [
        "Started",
        *["Profiled"] * 5,
        "RungDone",
        "RungDone",
        "Evaluated",
        "Profiled",
        "Analysed",
        "Finished",
    ]
    assert [r.tokens for r in of(RungDone, records)] == [768, 2304]
    assert [p.step for p in points(records)] == [5, 8, 10, 15, 20, 24]
    (evaluated,) = of(Evaluated, records)
    assert evaluated.score == evaluated.metrics["accuracy"] == of(RungDone, records)[-1].metrics["accuracy"]
    assert evaluated.ledger["realised"]
    assert [part["class"] for part in evaluated.breakdown["classes"]] == ["key", "value", "filler", "query"]
    assert len(evaluated.breakdown["positions"]["labelled"]) == 12
    (analysed,) = of(Analysed, records)
    assert (analysed.point, analysed.tokens, analysed.rows) == ("own", 2304, 24)
    assert set(analysed.findings) == {"decisions", "agreement", "text"}
    (site,) = analysed.findings["decisions"]["sites"]
    assert {site["site"]: tuple(site["shares"])} == evaluated.rates
    assert [entry["class"] for entry in site["classes"]] == ["key", "value", "filler", "query"]
    assert [from_json(json.loads(json.dumps(to_json(r)))) for r in records] == records


@pytest.mark.parametrize(
    "lengths", [("length:8", "length:2", "length:4"), ("length:4", "length:8", "length:2")]
)
def test_lengths_that_were_not_trained_on_choose_no_checkpoint_in_any_order(
    job, records_of, tmp_path, lengths: tuple[str, ...]
):
    """Trained on 12 tokens and judged on up to 96: what is kept, and the score of the run, are those of a run that was not."""
    plain = records_of(job())
    longer = records_of(job(judged=lengths, artefacts=str(tmp_path / "longer")))
    kept, also_kept = of(RungDone, plain), of(RungDone, longer)
    assert [(r.rung, r.tokens, r.metrics, r.checkpoint) for r in kept] == [
        (r.rung, r.tokens, r.metrics, r.checkpoint) for r in also_kept
    ]
    # Every rung is kept; the last one is the last step, not the best.
    assert also_kept[-1].tokens == 2304
    *found, own = of(Evaluated, longer)
    assert [r.point for r in found] == list(lengths)
    assert own == of(Evaluated, plain)[0]
    assert [len(r.breakdown["positions"]["labelled"]) for r in found] == [int(n[7:]) * 12 for n in lengths]
    in_order = records_of(job(judged=tuple(sorted(lengths)), artefacts=str(tmp_path / "in order")))
    assert {r.point: r for r in of(Evaluated, in_order)} == {r.point: r for r in (*found, own)}


@pytest.mark.usefixtures("brief_timing")
def test_decisions_are_looked_at_once_trained_and_only_where_wanted(job, genome, records_of, tmp_path):
    gated = genome(gate={"name": "learned"})
    untrained = records_of(job(gated, phases=("profile",), points=("own",)))
    unwanted = records_of(job(gated, phases=("train", "evaluate", "profile"), analytics=False))
    unrouted = records_of(job(phases=("train", "evaluate", "profile"), artefacts=str(tmp_path / "other")))
    assert not of(Analysed, untrained + unwanted + unrouted)
    # The run is trained by now; its profile alone looks too.
    assert len(of(Analysed, records_of(job(gated, phases=("profile",))))) == 1


def test_an_oracle_is_shown_the_labels_wherever_it_is_judged(job, genome, records_of):
    one = job(genome(gate={"name": "oracle"}), phases=("train", "evaluate", "profile"), points=("own",))
    records = records_of(one)
    assert records[-1] == Finished("done")
    (judged,), (measured,) = of(Evaluated, records), of(Profiled, records)
    # Two queries in a row of twelve tokens; decoding runs over the last token of each row only.
    assert judged.rates["0.1.0.gate"][1] == pytest.approx(2 / 12)
    assert 0 < measured.rates["0.1.0.gate"][1] < 1


def test_a_rungs_record_names_its_file_and_hash(job, records_of):
    one = job()
    for done in of(RungDone, records_of(one)):
        data = (Path(one.artefacts) / done.checkpoint).read_bytes()
        assert (done.sha256, done.bytes) == (hashlib.sha256(data).hexdigest(), len(data))


def test_without_routed_sites_only_own_is_profiled_and_once(job, records_of):
    records = records_of(job(phases=("profile", "train", "evaluate", "profile")))
    assert [r.point for r in of(Profiled, records)] == ["own"]


def test_the_environment_is_recorded(job, records_of):
    (started,) = of(Started, records_of(job(threads=2)))
    environment = started.environment
    assert (environment["threads"], environment["torch"]) == (2, torch.__version__)
    assert environment["plugins"]["mixer:shift"].startswith("sha256:")
    assert set(environment["backends"].values()) == {"reference"}
    assert torch.get_num_threads() == 1


def test_a_worker_runs_no_installed_plugin_that_its_job_keeps_out(job, records_of, tmp_path, monkeypatch):
    trace = tmp_path / "code-ran"
    install(tmp_path, "marks-its-import", f"open({str(trace)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "marks_its_import", raising=False)
    assert records_of(job(trust=Trust(allow=())))[-1] == Finished("done")
    assert not trace.exists()
    records_of(job(trust=Trust(allow=("marks-its-import",)), artefacts=str(tmp_path / "again")))
    assert trace.exists()


def test_a_job_is_plain_data(job):
    assert pickle.loads(pickle.dumps(job())) == job()


def test_evaluation_needs_a_trained_model(job, records_of):
    last = records_of(job(phases=("evaluate",)))[-1]
    assert last.state == "failed"
    assert "run s/1/0 has no checkpoint; phase 'evaluate' needs a trained model" in last.cause


@pytest.fixture
def budgeted(job, parts, genome):
    """A job under a budget whose reference never skips: its nominal ledger is matched, its realised one need not be."""

    def budgeted(probability: float, reference_probability: float, **changes):
        def architecture(p: float) -> dict:
            router = {"name": "segment_random", "params": {"segment": 1, "probability": p}}
            return genome(gate=router)

        cost = parts.factory("cost", "analytic")(parts.config("cost", "analytic", {}), parts)

        def canonical(data: dict) -> Architecture:
            return parts.canonical(Architecture.model_validate(data))

        budget = Budget.read({"shape": {"tokens": 12}, "match": {"training_flops_per_token": "2%"}})
        reference = canonical(architecture(reference_probability))
        budget = budget.at_reference(cost.estimate(reference, budget.shape.as_shape()))
        certificate = certify(canonical(architecture(probability)), budget, cost)
        return job(
            architecture(probability),
            budget=budget.model_dump(mode="json"),
            certificate=certificate.model_dump(mode="json"),
            **changes,
        )

    return budgeted


def test_realised_rates_outside_the_budget_end_off_budget(budgeted, records_of):
    records = records_of(budgeted(0.5, 1.0))
    (evaluated,) = of(Evaluated, records)
    assert records[-1].state == "off_budget"
    assert "training_flops_per_token" in records[-1].cause
    assert not evaluated.certificate["feasible"]
    assert evaluated.certificate["rates"] == "realised"
    assert evaluated.rates["0.1.0.gate"][1] == pytest.approx(0.5, abs=0.1)


def test_realised_rates_within_the_budget_are_done(budgeted, records_of):
    records = records_of(budgeted(1.0, 1.0))
    (evaluated,) = of(Evaluated, records)
    assert records[-1] == Finished("done")
    assert evaluated.certificate["feasible"]
    assert evaluated.ledger["training_flops_per_token"] > 0


def test_a_certificate_from_other_plugins_is_refused(budgeted, records_of):
    one = budgeted(1.0, 1.0)
    certificate = json.loads(json.dumps(one.certificate))
    certificate["quantities"][0]["value"] += 1
    last = records_of(replace(one, certificate=certificate))[-1]
    assert last.state == "failed"
    assert "this worker's ledger says" in last.cause


def test_points_of_other_thresholds_are_judged_and_charged_at_their_own_rates(job, genome, records_of):
    gated = genome(gate={"name": "entropy_gate", "params": {"kappa": 0.0}})
    (own,) = of(Evaluated, records_of(job(gated)))
    ends = ("threshold:+9", "threshold:-9")
    # As for a finished run: everything from its checkpoint.
    records = records_of(job(gated, phases=("evaluate", "profile"), judged=ends, points=ends))
    assert records[-1] == Finished("done")
    assert not of(RungDone, records)
    judged = {r.point: r for r in of(Evaluated, records)}
    assert judged["own"] == own
    assert {name: judged[name].rates["0.1.0.gate"][1] for name in ends} == {ends[0]: 0.0, ends[1]: 1.0}
    flops = [judged[name].ledger["prefill_flops_per_token"] for name in (ends[0], "own", ends[1])]
    assert flops == sorted(flops)
    assert flops[0] < flops[2]
    assert [r.point for r in of(Profiled, records)] == list(ends)
