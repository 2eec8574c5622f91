"""Backends race where a candidate is to train; the first answer is kept, and a run goes on with what it began with."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from crossbreed.core import genome
from crossbreed.core.artefacts import Artefacts
from crossbreed.core.contracts.task import IGNORE, Batch
from crossbreed.core.errors import ConfigError, WrongBackend
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Host, PluginFile
from crossbreed.core.lab import checkpoint, fresh, rivals, speeds
from crossbreed.core.lab.candidate import Candidate
from crossbreed.core.lab.environment import backends, device_name
from crossbreed.core.lab.kept import name_of
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.records import Finished, Started, Waiting
from crossbreed.core.model.language_model import LanguageModel

CPU = torch.device("cpu")
WRONG = {"left_out": "it is wrong"}


@pytest.fixture(scope="module")
def racers():
    return PluginFile.read(Path(__file__).with_name("rival_parts.py"))


@pytest.fixture(scope="module")
def registry(racers):
    return Host.load([racers], third_party=False)


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    """The folder of answers, empty. Runs here are short, and race all the same."""
    monkeypatch.setattr(rivals, "WORTH_FLOPS", 0.0)
    monkeypatch.setenv("CROSSBREED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / speeds.FOLDER


@pytest.fixture
def raced(monkeypatch):
    """Backends are chosen on a CPU, too."""
    monkeypatch.setattr(rivals, "contested", lambda job, device: job.backend == "auto")


@pytest.fixture
def answered(monkeypatch):
    """Rivals answer as they are told to, without a race; how often each was asked."""
    asked: Counter[str] = Counter()

    def answered(**answers):
        def told(job, entries, recipe, batch, stop):
            asked.update(rival.served for rival in entries)
            given = [answers[rival.served] for rival in entries]
            return [one if isinstance(one, dict) else {"seconds": one} for one in given]

        monkeypatch.setattr(rivals, "_told", told)
        return asked

    return answered


def holding(*able: str, d_model: int = 16) -> dict:
    sublayer = {"mixer": "rival", "params": {"able": list(able)}}
    return {"vocab": 20, "d_model": d_model, "stages": [{"blocks": [{"sublayers": [sublayer]}]}]}


def chosen(job, racers, data, **changes):
    return rivals.choose(Candidate(job(data, plugins=(racers,), **changes)), CPU)


def test_the_fastest_that_is_right_and_ready_is_chosen_in_a_process_of_its_own(job, racers, monkeypatch):
    monkeypatch.setattr(rivals, "READY_S", 3.0)
    data = holding("quick", "wrong", "deadly", "stuck")
    with pytest.warns(RuntimeWarning) as warned:
        (speed,) = chosen(job, racers, data)
    assert (speed.mixer, speed.backend, speed.device) == ("rival", "quick", device_name(CPU))
    assert (speed.batch, speed.tokens, speed.dtype) == (8, 12, "float32")
    assert 0 < speed.seconds["quick"] < speed.seconds["reference"]
    assert speed.seconds["reference"] > 0.02
    assert speed.left_out.keys() == {"wrong", "deadly", "stuck"}
    assert "fails its probe" in speed.left_out["wrong"]
    assert "ended with code 3" in speed.left_out["deadly"]
    assert speed.left_out["stuck"] == "it was not ready within 3 s"
    said = " ".join(str(one.message) for one in warned)
    for name in speed.left_out:
        assert f"backend {name!r} of mixer 'rival' is left out" in said


def test_it_is_ended_when_the_trial_is_asked_to_stop(registry, job, racers):
    architecture = registry.canonical(Architecture.model_validate(holding("stuck")))
    asked = job(holding("stuck"), plugins=(racers,))
    tokens_BT = torch.zeros(2, 4, dtype=torch.long)
    entries = rivals.rivals_of(architecture, registry, "float32", CPU)
    recipe = Recipe(tokens=1000, batch=2)
    with pytest.raises(fresh.Stopped):
        rivals._told(asked, entries[1:], recipe, Batch(tokens_BT, tokens_BT), lambda: True)


def test_what_cannot_serve_here_is_no_rival(registry):
    architecture = registry.canonical(Architecture.model_validate(holding("quick", "wrong")))
    found = rivals.rivals_of(architecture, registry, "float32", CPU)
    assert [(rival.backend, rival.served) for rival in found] == [
        ("auto", "reference"),
        ("quick", "quick"),
        ("wrong", "wrong"),
    ]


def test_a_run_that_is_over_before_a_race_would_be_has_none(job, racers, answered, monkeypatch):
    asked = answered(reference=1.0, quick=0.5)
    candidate = Candidate(job(holding("quick"), plugins=(racers,)))
    ledger = candidate.ledger(candidate.architecture)
    flops = ledger.training_flops_per_token * candidate.recipe.tokens
    for worth, backends_found in ((1.001 * flops, []), (0.999 * flops, ["quick"])):
        monkeypatch.setattr(rivals, "WORTH_FLOPS", worth)
        assert [speed.backend for speed in rivals.choose(candidate, CPU)] == backends_found
    assert asked == {"reference": 1, "quick": 1}


def test_without_a_rival_nothing_is_measured_or_kept(job, racers, answered, kept):
    asked = answered()
    assert chosen(job, racers, holding()) == ()
    assert not asked
    assert not kept.exists()


@pytest.mark.parametrize(
    ("quick", "backend"),
    [(0.5, "quick"), (0.97, "auto"), (1.5, "auto"), (WRONG, "auto")],
)
def test_what_auto_takes_stays_unless_another_is_faster_by_more_than_chance(
    job, racers, answered, quick, backend
):
    answered(reference=1.0, quick=quick)
    if quick == WRONG:
        with pytest.warns(
            RuntimeWarning, match="'quick' .* is left out .* where 'reference' serves: it is wrong"
        ):
            (speed,) = chosen(job, racers, holding("quick"))
    else:
        (speed,) = chosen(job, racers, holding("quick"))
    assert speed.backend == backend


@pytest.mark.filterwarnings("ignore:backend")
def test_one_that_is_right_serves_where_the_usual_one_is_not(job, racers, answered):
    answered(reference=WRONG, quick=9.0)
    (speed,) = chosen(job, racers, holding("quick"))
    assert speed.backend == "quick"
    answered(reference=WRONG, quick=WRONG)
    (speed,) = chosen(job, racers, holding("quick", d_model=8))
    assert speed.backend == "auto"


def test_devices_that_share_a_batch_race_on_the_rows_of_one(job, racers):
    (speed,) = chosen(job, racers, holding("quick"), devices=4)
    assert (speed.batch, speed.backend) == (2, "quick")


def test_the_first_answer_stays_until_something_that_it_depends_on_changes(job, racers, answered, recipe):
    asked = answered(reference=1.0, quick=0.5, wrong=2.0)
    first = chosen(job, racers, holding("quick"))
    answered(reference=0.1, quick=0.5, wrong=2.0)
    assert chosen(job, racers, holding("quick"), seed=5, study="another") == first
    assert asked["quick"] == 1
    for changes in (
        {"recipe": recipe | {"batch": 4}},
        {"captured": False},
    ):
        (other,) = chosen(job, racers, holding("quick"), **changes)
        assert other.backend == "auto"
    for data in (holding("quick", d_model=8), holding("quick", "wrong")):
        (other,) = chosen(job, racers, data)
        assert other.backend == "auto"


def test_of_two_workers_that_measure_at_once_the_first_answer_counts_for_both(job, racers, answered):
    answered(reference=1.0, quick=0.5)
    (mine,) = chosen(job, racers, holding("quick"))
    key = {"any": "key"}
    assert speeds.keep(key, mine) == mine
    late = speeds.Speed(**{**vars(mine), "backend": "auto"})
    assert speeds.keep(key, late) == mine == speeds.read(key)


def test_what_is_kept_can_be_read_by_people(job, racers, answered, kept):
    answered(reference=1.0, quick=0.5)
    chosen(job, racers, holding("quick"))
    (file,) = kept.iterdir()
    found = json.loads(file.read_text())
    assert found["key"]["rivals"] == ["reference", "quick"]
    assert found["key"]["versions"]["torch"] == torch.__version__
    assert found["speed"]["seconds"] == {"reference": 1.0, "quick": 0.5}


def test_a_file_that_holds_no_answer_is_named(job, racers, answered, kept):
    answered(reference=1.0, quick=0.5)
    chosen(job, racers, holding("quick"))
    (file,) = kept.iterdir()
    file.write_text("{}")
    with pytest.raises(ConfigError, match=f"{file.name}.* holds no speed of a mixer .*; remove it"):
        chosen(job, racers, holding("quick"))


@pytest.mark.filterwarnings("ignore:backend")
def test_what_memory_was_wanting_for_is_measured_again(job, racers, answered, kept):
    asked = answered(reference=1.0, quick={"left_out": "the device is full", "for_now": True})
    (speed,) = chosen(job, racers, holding("quick"))
    assert (speed.backend, speed.left_out) == ("auto", {"quick": "the device is full"})
    assert not kept.exists()
    answered(reference=1.0, quick=0.5)
    (speed,) = chosen(job, racers, holding("quick"))
    assert (speed.backend, asked["quick"]) == ("quick", 2)


def test_a_race_ends_with_the_first_that_fails_and_says_why(registry, job, racers, tmp_path):
    alone = registry.canonical(Architecture.model_validate({**holding("quick", "hungry"), "vocab": 64}))
    entries = {rival.served: rival for rival in rivals.rivals_of(alone, registry, "float32", CPU)}
    told = tmp_path / "told.jsonl"
    tokens_BT = torch.zeros(2, 4, dtype=torch.long)
    question = rivals.Question(
        job(holding(), plugins=(racers,)),
        tuple(entries[name] for name in ("quick", "hungry", "reference")),
        Recipe(tokens=1000, batch=2),
        Batch(tokens_BT, tokens_BT),
        str(told),
    )
    rivals.race(question)
    up, quick, hungry = map(json.loads, told.read_text().splitlines())
    assert (up, quick.keys()) == ({}, {"seconds"})
    assert hungry == {"left_out": "OutOfMemoryError: the device is full", "for_now": True}


def test_an_answer_that_cannot_be_kept_is_used_and_said(job, racers, answered, kept):
    answered(reference=1.0, quick=0.5)
    kept.parent.mkdir()
    kept.write_text("a file where the folder would be")
    with pytest.warns(RuntimeWarning, match="'rival' are is not kept"):
        (speed,) = chosen(job, racers, holding("quick"))
    assert speed.backend == "quick"


class Clock:
    """Advances with each pass of a mixer: the first ones are tuned for a hundred seconds."""

    def __init__(self, mixer: torch.nn.Module, seconds: float) -> None:
        self.now, self.calls, self.seconds = 0.0, 0, seconds
        mixer.register_forward_hook(self.passed)

    def passed(self, module, arguments, result):
        self.calls += 1
        self.now += 100.0 if self.calls <= 3 else self.seconds

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def rows():
    labels_BT = torch.arange(24).view(2, 12) % 20 + 100
    labels_BT[0, :5] = IGNORE
    return Batch(torch.arange(24).view(2, 12) + 70, labels_BT)


def test_tuning_is_in_no_time(registry, rows):
    alone = registry.canonical(Architecture.model_validate({**holding("quick"), "vocab": 64}))
    model = LanguageModel(alone, registry, backend="quick")
    clock = Clock(model.stages[0].weight_sets[0][0].mixers[0], 0.25)
    recipe = Recipe(tokens=1000, batch=2)
    assert rivals.pass_seconds(model, recipe, rows, captured=True, clock=clock) == pytest.approx(0.25)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_backend_whose_pass_is_not_finite_at_the_trained_shape_is_wrong(registry, rows):
    alone = registry.canonical(Architecture.model_validate({**holding("quick"), "vocab": 64}))
    model = LanguageModel(alone, registry, backend="quick")
    model.stages[0].weight_sets[0][0].mixers[0].register_forward_hook(
        lambda m, a, r: (r[0] * float("nan"), r[1])
    )
    with pytest.raises(WrongBackend, match="not finite at the shape that is trained"):
        rivals.pass_seconds(model, Recipe(tokens=1000, batch=2), rows, captured=False)


@pytest.mark.usefixtures("raced")
def test_a_run_goes_on_with_the_backends_that_it_began_with(
    job, records_of, racers, answered, stop_after, kept
):
    asked = answered(reference=1.0, quick=0.5)
    begun = records_of(job(holding("quick"), plugins=(racers,), phases=("train",)), stop_after(12))
    started = next(record for record in begun if isinstance(record, Started))
    assert any(isinstance(record, Waiting) and "rival" in record.cause for record in begun)
    assert begun[-1].state == "preempted"
    assert set(started.environment["backends"].values()) == {"quick"}
    (speed,) = started.environment["speeds"]
    assert (speed["mixer"], speed["backend"]) == ("rival", "quick")
    assert [found["backend"] for found in started.environment["probes"]] == ["quick"]
    # Elsewhere other answers are kept, or none.
    for file in kept.iterdir():
        file.unlink()
    answered(reference=1.0, quick=2.0)
    resumed, *_, last = records_of(job(holding("quick"), plugins=(racers,), phases=("train",)))
    assert last == Finished("done"), last.traceback
    assert resumed.resumed_step > 0
    assert resumed.environment["speeds"] == started.environment["speeds"]
    assert set(resumed.environment["backends"].values()) == {"quick"}
    assert asked["quick"] == 1


@pytest.mark.usefixtures("raced")
def test_a_run_takes_what_another_of_its_candidate_has_measured_on_such_a_device(
    job, records_of, racers, answered, kept
):
    asked = answered(reference=1.0, quick=0.5)
    tuned = job(holding("quick"), plugins=(racers,), phases=("train",))
    started = next(record for record in records_of(tuned) if isinstance(record, Started))
    known = {"another device": [], device_name(CPU): started.environment["speeds"]}
    for file in kept.iterdir():
        file.unlink()
    answered(reference=1.0, quick=2.0)
    place = str(kept.parent / "seed-1")
    seed = replace(tuned, seed=1, artefacts=place, speeds=known)
    started, *_, last = records_of(seed)
    assert last == Finished("done"), last.traceback
    assert set(started.environment["backends"].values()) == {"quick"}
    header = checkpoint.read_header(Artefacts.at(place), name_of(1))
    assert header.speeds == known
    assert asked["quick"] == 1


@pytest.mark.usefixtures("raced")
def test_a_forced_backend_has_no_rivals_and_is_refused_where_it_is_wrong(job, records_of, racers, answered):
    asked = answered()
    (finished,) = records_of(job(holding("quick", "wrong"), plugins=(racers,), backend="wrong"))
    assert finished.state == "failed"
    assert "backend 'wrong' of mixer 'rival'" in finished.cause
    assert not asked


def test_on_a_cpu_nothing_is_chosen(job, records_of, racers, answered):
    asked = answered()
    started, *_, last = records_of(job(holding("quick"), plugins=(racers,), phases=("train",)))
    assert last == Finished("done"), last.traceback
    assert started.environment["speeds"] is None
    assert set(started.environment["backends"].values()) == {"reference"}
    assert not asked


def test_a_model_is_built_with_what_was_chosen_for_each_of_its_mixers(registry):
    data = holding("quick")
    data["stages"][0]["blocks"] += holding("quick", "wrong")["stages"][0]["blocks"]
    architecture = registry.canonical(Architecture.model_validate(data))
    (_, first), _ = architecture.sublayers()
    model = LanguageModel(architecture, registry, chosen={genome.digest(first): "quick"})
    assert list(backends(model).values()) == ["quick", "reference"]
    forced = LanguageModel(architecture, registry, backend="reference", chosen=model.chosen)
    assert set(backends(forced).values()) == {"reference"}


@pytest.mark.gpu
@pytest.mark.parametrize("mixer", ["gated_deltanet", "mamba2"])
def test_recurrences_race_on_a_cuda_device_in_the_precision_that_they_train_in(
    job, records_of, mixer, kept, monkeypatch
):
    pytest.importorskip("fla", reason="flash-linear-attention is not installed")
    monkeypatch.setattr(rivals, "READY_S", 60.0)
    sublayers = [{"mixer": mixer}, {"mixer": "swiglu"}]
    data = {"vocab": 20, "d_model": 128, "stages": [{"blocks": [{"sublayers": sublayers}]}]}
    recipe = {"tokens": 4 * 64 * 256, "batch": 64, "dtype": "bfloat16"}
    task = {"name": "recall", "params": {"vocab": 20, "pairs": 2, "length": 256, "eval_items": 8}}
    again = {"recipe": recipe, "task": task, "device": "cuda", "phases": ("train",), "memory": False}
    found = []
    for folder in ("first", "second"):
        records = records_of(job(data, **again, artefacts=str(kept.parent / folder)))
        assert records[-1] == Finished("done"), records[-1].traceback
        found.append(next(record for record in records if isinstance(record, Started)).environment)
    first, second = found
    (speed,) = first["speeds"]
    assert (speed["mixer"], speed["batch"], speed["tokens"]) == (mixer, 64, 256)
    assert {"reference", "fla"} <= speed["seconds"].keys() | speed["left_out"].keys()
    assert all(0 < seconds < 1 for seconds in speed["seconds"].values())
    fastest = min(speed["seconds"], key=speed["seconds"].get)
    served = "reference" if speed["backend"] == "auto" else speed["backend"]
    assert served == fastest or speed["seconds"][fastest] > 0.95 * speed["seconds"][served]
    assert served in first["backends"].values()
    assert {probed["mixer"] for probed in first["probes"]} == {mixer, "swiglu"}
    # The second run takes what the first measured, and needs no process for it.
    assert (second["speeds"], second["backends"]) == (first["speeds"], first["backends"])
    assert len(list(kept.iterdir())) == 1
