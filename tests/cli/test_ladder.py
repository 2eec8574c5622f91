"""``crossbreed ladder``: laws of stored runs, tried on the largest sizes, and what is no ladder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from crossbreed.cli.genomes import cost_model
from crossbreed.core.genome import Architecture, digest
from crossbreed.core.host import Host
from crossbreed.core.ledger import Shape
from crossbreed.core.search.study_file import TASK_DATA, StudyFile
from crossbreed.storage.repository import Repository
from tests.cli.conftest import Cli
from tests.cli.studies import REFERENCE, write_study

SIZES = (1e7, 3e7, 1e8, 3e8, 1e9, 3e9)
PURE = "attention"


def loss_at(size: float, noise: float = 0.0) -> float:
    return (1.7 + 400 / size**0.34) * math.exp(noise)


def noisy(seed: int) -> dict[float, list[float]]:
    """Two runs of each size with 0.3% noise."""
    random = np.random.default_rng(seed)
    return {size: [loss_at(size, 0.003 * random.normal()) for _ in range(2)] for size in SIZES}


def store(
    db: Path,
    name: str,
    losses: Mapping[float, Sequence[float | None]],
    *,
    family: str = PURE,
    tokens: Mapping[float, int] | None = None,
    items: str = "a" * 64,
    point: str = "own",
) -> None:
    """A study with a candidate of each size and a report run for each of its losses; None: it diverged."""
    registry = Host.load(third_party=False)
    file = db.parent / f"{name}.yaml"
    spec = StudyFile.read(yaml.safe_load(write_study(file, name=name).read_text()), name)
    with Repository.open(str(db)) as repository:
        study = repository.create_study(name, spec.as_data())
        repository.add_event(study.id, TASK_DATA, {"evaluation": items})
        for place, (size, values) in enumerate(losses.items()):
            data = yaml.safe_load(
                yaml.safe_dump(REFERENCE).replace("hidden: 32", f"hidden: {32 + 4 * place}")
            )
            architecture = registry.canonical(Architecture.model_validate({"vocab": 16, **data}))
            ledger = cost_model(registry).estimate(architecture, Shape(1, 12, "float32")).as_dict()
            trial = repository.add_trial(
                study.id,
                hash=digest(architecture),
                genome=architecture.model_dump(mode="json"),
                family=family,
                origin="list",
                ledger={**ledger, "non_embedding_parameters": int(size)},
            )
            # Chosen by a run that no law may see.
            _run(repository, trial.id, 0, "tune", 99.0, 960, point)
            for seed, loss in enumerate(values, 1):
                _run(repository, trial.id, seed, "report", loss, (tokens or {}).get(size, 960), point)


def _run(
    repository: Repository, trial: int, seed: int, role: Any, loss: float | None, tokens: int, point: str
) -> None:
    run = repository.add_run(trial, seed, recipe={}, identities={"mixer:attention": "crossbreed"}, role=role)
    lease = repository.lease_run(run.id, "a test", seconds=60)
    assert lease is not None
    repository.record_started(run.id, lease, {})
    if loss is None:
        repository.record_finished(run.id, lease, "diverged", cause="it did")
        return
    repository.record_rung(run.id, lease, rung=0, tokens=tokens, metrics={})
    for name in {"own", point}:
        value = loss if name == point else 50.0
        repository.record_evaluation(
            run.id,
            lease,
            name,
            tokens=tokens,
            metrics={"loss_nats": value, "accuracy": 0.5},
            score=0.5,
            rows=8,
        )
    repository.record_finished(run.id, lease, "done")


def test_the_law_of_the_smaller_sizes_predicts_the_largest_which_it_has_not_seen(
    cli: Cli, tmp_path: Path
) -> None:
    db = tmp_path / "results.db"
    losses = noisy(1)
    store(db, "sizes", losses)
    result = cli("ladder", "sizes", "--db", db, "--predict", "1e10", "--json")
    assert (result.code, result.err) == (0, "")
    (found,) = result.json("ladder")["ladders"]
    assert (found["family"], found["matched"]) == (PURE, "tokens")
    assert [(step["size"], step["held_out"]) for step in found["steps"]] == [(s, s == 3e9) for s in SIZES]
    for step in found["steps"]:
        assert [run["value"] for run in step["runs"]] == losses[step["size"]]
        assert step["mean"] == pytest.approx(sum(losses[step["size"]]) / 2)
    law = found["law"]
    assert law["floor"] == pytest.approx(1.7, abs=0.06)
    assert law["exponent"] == pytest.approx(0.34, abs=0.03)
    assert law["degrees"] == 7
    for name in ("floor", "amount", "exponent"):
        low, high = law["intervals"][name]
        assert low <= law[name] <= high
    held, further = found["predictions"]
    assert held["value"] == pytest.approx(loss_at(3e9), rel=0.01)
    assert (held["size"], held["runs"], held["inside"]) == (3e9, 2, 2)
    assert held["run"][0] < held["law"][0] < held["value"] < held["law"][1] < held["run"][1]
    assert (further["size"], further["measured"], further["runs"]) == (1e10, None, 0)
    # What was held out had no say: another loss there changes no number of the law.
    other = tmp_path / "other.db"
    store(other, "sizes", {**losses, 3e9: [5.0, 5.0]})
    (again,) = cli("ladder", "sizes", "--db", other, "--json").json("ladder")["ladders"]
    assert again["law"] == law
    assert (again["predictions"][0]["measured"], again["predictions"][0]["inside"]) == (5.0, 0)


def test_the_table_says_what_was_fitted_and_how_well_the_rest_was_foretold(cli: Cli, tmp_path: Path) -> None:
    db = tmp_path / "results.db"
    store(db, "sizes", {**noisy(2), 1e8: [loss_at(1e8), None]})
    out = " ".join(cli("ladder", "sizes", "--db", db, "--hold-out", 2, "--resamples", 100).out.split())
    for words in (
        "Ladder of attention",
        "Matched in tokens.",
        "1 (1 lost)",
        "held out sizes/5",
        "fitted sizes/3",
        "loss_nats = 1.",
        "95% intervals: floor",
        "of 90 starts ended there",
        "At 1G it says",
        "At 3G it says",
        "of 2 runs inside.",
    ):
        assert words in out, words


def test_sizes_lie_in_several_studies_and_families_stay_apart(cli: Cli, tmp_path: Path) -> None:
    db = tmp_path / "results.db"
    losses = noisy(3)
    for place, size in enumerate(SIZES):
        store(db, f"size{place}", {size: losses[size]}, tokens={size: int(20 * size)})
    store(db, "others", {size: [loss_at(size) * 2] for size in SIZES[:2]}, family="mamba2")
    names = [f"size{place}" for place in range(6)]
    asked = (*names, "others", "--db", db, "--resamples", 100)
    found = cli("ladder", *asked, "--json").json("ladder")
    (ladder,) = found["ladders"]
    assert ladder["matched"] == "tokens per size"
    assert [step["candidates"] for step in ladder["steps"]] == [[f"{name}/0"] for name in names]
    assert found["too_short"] == [{"family": "mamba2", "sizes": 2}]
    assert "Too few sizes for a law: mamba2 (2)." in cli("ladder", *asked).out
    short = cli("ladder", *asked, "--family", "mamba2")
    assert short.code == 2
    assert "has 5 sizes that were judged at 'own', 4 to fit and 1 to hold out: mamba2 has 2." in short.err


def test_another_point_has_a_law_of_its_own(cli: Cli, tmp_path: Path) -> None:
    db = tmp_path / "results.db"
    store(db, "sizes", noisy(4), point="forced:0.4")
    asked = ("sizes", "--db", db, "--resamples", 100, "--json")
    (found,) = cli("ladder", *asked, "--point", "forced:0.4").json("ladder")["ladders"]
    assert found["law"]["exponent"] == pytest.approx(0.34, abs=0.05)
    (own,) = cli("ladder", *asked).json("ladder")["ladders"]
    assert own["steps"][0]["mean"] == 50.0


def test_what_is_no_ladder_is_a_sentence(cli: Cli, tmp_path: Path) -> None:
    db = tmp_path / "results.db"
    losses = noisy(5)
    store(db, "sizes", losses)
    store(db, "others", losses, items="b" * 64)
    store(db, "longer", losses, tokens={1e9: 5000, 3e7: 700})
    store(db, "free", {size: [1 - 1e-10 * size] for size in (1, 1e9, 2e9, 9e9, 2e10)})
    for options, sentence in (
        (
            ("sizes", "others"),
            "studies 'sizes' and 'others' judge by different evaluation items (SHA-256 aaaaaaaaaaaa",
        ),
        (
            ("longer",),
            "run longer/1/1 saw 700 tokens, run longer/4/1 5000; the runs of a ladder must have the same tokens",
        ),
        (("free", "--hold-out", 0), "is not a finite number above 0; a scaling law is of logarithms"),
        (("sizes", "--hold-out", 3), "attention has 6."),
        (("sizes", "--metric", "loss"), "unknown metric 'loss'; did you mean 'loss_nats'"),
        (("sizes", "--size", "params"), "unknown size 'params'; did you mean"),
        (("sizes", "--family", "atention"), "unknown family 'atention'; did you mean 'attention'"),
        (("sizes", "--point", "foo"), "unknown operating point 'foo'"),
        (
            ("sizes", "--point", "forced:0.1"),
            "no family of sizes has 5 sizes that were judged at 'forced:0.1'",
        ),
        (("sizes", "--predict", "-3"), "--predict -3 is no size"),
        (("sizes", "--resamples", 3), "--resamples '3'"),
        (("sides",), "'sides'"),
    ):
        result = cli("ladder", *options, "--db", db)
        assert (result.code, result.out) == (2, ""), options
        assert sentence in result.err


@pytest.mark.slow
def test_a_search_over_a_list_of_sizes_makes_a_ladder(cli: Cli, tmp_path: Path) -> None:
    def genome(width: int) -> dict[str, Any]:
        attention = {"mixer": "attention", "params": {"heads": 2, "head_size": width // 2}}
        swiglu = {"mixer": "swiglu", "params": {"hidden": 2 * width}}
        return {"d_model": width, "stages": [{"blocks": [{"sublayers": [attention, swiglu]}]}]}

    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and the dog sat on the log. " * 40)
    study = write_study(
        tmp_path / "sizes.yaml",
        name="sizes",
        task={"name": "bytes", "params": {"path": str(text), "length": 32, "eval_items": 12}},
        budget={"reference": genome(32), "match": {}, "cap": {"memory_bytes": "2%"}},
        train={"tokens": 5120, "batch": 8, "lr": 0.01},
        objectives={"score": "max"},
        search={
            "sampler": "list",
            "trials": 4,
            "seeds": 1,
            "proposals": [{"genome": genome(width)} for width in (8, 12, 16, 24)],
        },
    )
    planned = cli("search", study, "--plan", "--json").json("plan")["candidates"]
    assert [each["origin"] for each in planned] == ["reference", *4 * ["listed"]]
    assert [each["parameters"] for each in planned[1:]] == sorted(each["parameters"] for each in planned[1:])
    assert "the entries of search.proposals" in cli("search", study, "--plan").out
    assert cli("search", study, "--executor", "inline", "--device", "cpu").code == 0
    (found,) = cli("ladder", "sizes", "--json").json("ladder")["ladders"]
    means = [step["mean"] for step in found["steps"]]
    assert len(means) == 5
    assert means == sorted(means, reverse=True)
    assert found["predictions"][0]["measured"] == means[-1]
