from __future__ import annotations

import hashlib
import json
import pickle
import shutil
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

from crossbreed.core.artefacts import Artefacts
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

HALF = {"name": "segment_random", "params": {"segment": 3, "probability": 0.5}}


def of(kind, records) -> list:
    return [record for record in records if isinstance(record, kind)]


def points(records) -> list:
    return [point for curve in of(Curve, records) for point in curve.points]


def files(job) -> list[str]:
    return sorted(p.name for p in Path(job.artefacts).iterdir())


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


@pytest.mark.parametrize("asks", [0, 1, 5, 9, 15])
def test_a_stopped_run_goes_on_to_exactly_the_same_losses(
    job, genome, records_of, stop_after, tmp_path, asks: int
):
    architecture = genome(dropout=0.1, gate=HALF)
    whole = records_of(job(architecture, artefacts=str(tmp_path / "whole")))
    one = job(architecture)
    first = records_of(one, stop_after(asks))
    assert first[-1].state == "preempted"
    second = records_of(replace(one, lease="lease-2"))
    assert second[-1] == Finished("done")
    assert points(first) + points(second) == points(whole)
    assert of(Evaluated, second) == of(Evaluated, whole)
    assert {r.rung: r.metrics for r in of(RungDone, first) + of(RungDone, second)} == {
        r.rung: r.metrics for r in of(RungDone, whole)
    }
    assert files(one) == ["rung-0.safetensors", "rung-1.safetensors"]


def test_rungs_may_be_given_one_job_at_a_time(job, records_of, tmp_path):
    whole = records_of(job(artefacts=str(tmp_path / "whole")))
    first = records_of(job(rungs=(768,), phases=("train",)))
    second = records_of(job(rungs=(768, 2304), lease="lease-2"))
    assert points(first) + points(second) == points(whole)
    assert of(Started, second)[0].resumed_step == 8
    assert [r.rung for r in of(RungDone, first)] == [0]
    # Rung 0 is reported again, equal to the last bit, in case its record was lost.
    assert of(RungDone, second)[0] == of(RungDone, first)[0]


def test_a_finished_run_trains_no_further(job, records_of):
    first = records_of(job())
    again = records_of(job(lease="lease-2", phases=("train", "evaluate", "profile")))
    assert points(again) == []
    assert of(RungDone, again) == of(RungDone, first)
    assert of(Evaluated, again) == of(Evaluated, first)
    assert again[-1] == Finished("done")


def test_a_checkpoint_of_another_genome_fails_the_run_with_a_sentence(job, genome, records_of):
    records_of(job())
    other = records_of(job(genome(hidden=40)))
    assert other[-1].state == "failed"
    assert "belongs to architecture" in other[-1].cause
    assert points(other) == []


def test_a_missing_checkpoint_of_a_middle_rung_is_not_made_up(job, records_of):
    one = job()
    records_of(one)
    (Path(one.artefacts) / "rung-0.safetensors").unlink()
    last = records_of(one)[-1]
    assert (last.state, "'rung-0.safetensors' of run s/1/0 is missing" in last.cause) == ("failed", True)


def test_evaluation_needs_a_trained_model(job, records_of):
    last = records_of(job(phases=("evaluate",)))[-1]
    assert last.state == "failed"
    assert "run s/1/0 has no checkpoint; phase 'evaluate' needs a trained model" in last.cause


@pytest.mark.parametrize(
    ("fault", "state", "cause"),
    [
        ("nan", "diverged", "loss was nan at step 6 of 24"),
        ("raise", "failed", "exception: ValueError: shapes 3 and 4 do not fit"),
        ("memory", "out_of_memory", "MemoryError: host is full"),
        ("allocator", "out_of_memory", "RuntimeError"),
    ],
)
def test_a_plugins_fault_ends_as_a_state_with_its_cause(
    job, genome, records_of, fault: str, state: str, cause: str
):
    records = records_of(job(genome(fault=fault, at=6)))
    assert isinstance(records[-1], Finished)
    assert records[-1].state == state
    assert cause in records[-1].cause
    assert ("stub_parts.py" in records[-1].traceback) == (state != "diverged")
    assert [p.step for p in points(records)] == [5]


def test_an_interrupt_is_reported_and_reaches_the_caller(job, genome, records_of):
    records = []
    from crossbreed.core.lab.trial import run

    with pytest.raises(KeyboardInterrupt):
        run(job(genome(fault="interrupt", at=9)), records.append, lambda: False)
    assert records[-1].state == "preempted"
    assert files(job()) == ["rung-0.safetensors"]


def test_a_ledger_that_miscounts_weights_is_refused(job, genome, records_of):
    last = records_of(job(genome(fault="miscount")))[-1]
    assert last.state == "failed"
    assert "the built model has parameters" in last.cause


def test_a_ledger_that_miscounts_state_is_refused(job, genome, records_of):
    last = records_of(job(genome(fault="misstate")))[-1]
    assert last.state == "failed"
    assert "the decode state of the built model takes" in last.cause


def test_a_mixer_that_reserves_no_room_is_measured_after_a_pass(job, genome, records_of):
    assert records_of(job(genome(fault="no_room")))[-1] == Finished("done")


def test_a_task_with_another_vocabulary_is_refused(job, genome, records_of):
    last = records_of(job({**genome(), "vocab": 21}))[-1]
    assert (last.state, "architecture.vocab is 21, but task 'recall' has 20" in last.cause) == (
        "failed",
        True,
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device": "tpu9"}, "unknown device 'tpu9'"),
        ({"device": "cuda:77"}, "device 'cuda:77' is not there"),
        ({"rungs": (768, 9999)}, "must rise and end within the recipe's 2304 tokens"),
        ({"points": ("forced:2",), "phases": ("profile",)}, "unknown operating point 'forced:2'"),
        ({"phases": ("tarin",)}, "unknown phase 'tarin'"),
        ({"recipe": {"tokens": -1}}, "tokens"),
        ({"task": {"name": "recal"}}, "unknown task 'recal'; did you mean 'recall'"),
    ],
)
def test_bad_jobs_fail_with_a_sentence(job, records_of, change: dict, words: str):
    last = records_of(job(**change))[-1]
    assert last.state == "failed"
    assert words in last.cause


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


def test_what_emit_raises_is_not_taken_for_a_plugins_fault(job):
    from crossbreed.core.lab.trial import run

    def emit(record):
        raise ConnectionError("the driver is gone")

    with pytest.raises(ConnectionError):
        run(job(), emit, lambda: False)


def test_a_copied_folder_serves_another_worker(job, records_of, tmp_path, stop_after):
    one = job()
    records_of(one, stop_after(9))
    shutil.copytree(one.artefacts, tmp_path / "elsewhere")
    records = records_of(replace(one, artefacts=str(tmp_path / "elsewhere"), lease="lease-2"))
    assert records[-1] == Finished("done")
    assert of(Started, records)[0].resumed_step == 8


def test_a_run_in_a_store_goes_on_there_and_one_that_cannot_read_it_says_so(
    job, records_of, stop_after, monkeypatch
):
    place = f"memory://{uuid.uuid4().hex}"
    one = job(artefacts=place)
    assert records_of(one, stop_after(9))[-1].state == "preempted"
    assert Artefacts.at(place).names() == ["rung-0.safetensors", "stopped.safetensors"]

    def refuse(*arguments: object, **named: object) -> None:
        raise RuntimeError("the token has expired")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryFileSystem, "ls", refuse)
        (last,) = records_of(one)
    assert last.state == "failed"
    assert last.cause.startswith(f"unreachable: artefacts '{place}' cannot be listed from host ")
    assert last.cause.endswith("RuntimeError: the token has expired")
    records = records_of(one)
    assert (of(Started, records)[0].resumed_step, records[-1]) == (8, Finished("done"))
    assert Artefacts.at(place).names() == ["rung-0.safetensors", "rung-1.safetensors"]


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
