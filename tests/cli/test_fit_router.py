"""``crossbreed fit-router`` on a run that was really trained: what it reports, what it keeps, what it leaves alone."""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from crossbreed.cli import run
from crossbreed.core.artefacts import Artefacts
from crossbreed.core.genome import from_yaml
from crossbreed.core.host import Host
from crossbreed.core.lab import checkpoint
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.storage.repository import Repository
from tests.cli.conftest import Cli
from tests.cli.studies import REFERENCE, write_study

RUN = "tiny-compare/0/0"
ATTENTION = REFERENCE["stages"][0]["blocks"][0]["sublayers"][0]
GATED: dict[str, Any] = {
    "d_model": 16,
    "stages": [
        {
            "blocks": [
                {"sublayers": [{"mixer": "mamba2", "params": {"heads": 2, "head_size": 8, "state_size": 8}}]}
            ]
        },
        {
            "entry_norm": True,
            "blocks": [{"sublayers": [ATTENTION], "norm": "none", "gate": {"name": "entropy_gate"}}] * 2,
        },
    ],
}


@pytest.fixture(scope="module")
def _trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database in which an AMOR of two gated blocks is trained, and an ungated model beside it."""
    folder = tmp_path_factory.mktemp("trained")
    genome = folder / "amor.yaml"
    genome.write_text(yaml.safe_dump(GATED))
    study = write_study(
        folder / "study.yaml",
        budget={"reference": REFERENCE, "match": {}, "cap": {"memory_bytes": "90%"}},
        search={"trials": 0, "seeds": 1, "forced_rates": []},
    )
    arguments = [
        "compare",
        genome,
        "--budget",
        study,
        "--seeds",
        "1",
        "--executor",
        "inline",
        "--device",
        "cpu",
    ]
    assert run([*map(str, arguments), "--db", str(folder / "results.db")]) == 0
    return folder


@pytest.fixture
def trained(_trained: Path, tmp_path: Path) -> Path:
    """A copy of it: the database's path."""
    shutil.copytree(_trained, tmp_path / "trained")
    return tmp_path / "trained" / "results.db"


@pytest.fixture
def key(trained: Path) -> str:
    """The run of the gated model."""
    with Repository.open(str(trained), read_only=True) as repository:
        (study,) = repository.list_studies()
        (number,) = [t.number for t in repository.trials(study.id) if "entropy_gate" in json.dumps(t.genome)]
    return f"{study.name}/{number}/0"


def hashes(db: Path) -> dict[str, str]:
    files = [
        p for p in db.parent.rglob("*") if p.is_file() and "fitted" not in str(p) and ".db" not in p.name
    ]
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def artefacts(db: Path) -> Path:
    with Repository.open(str(db), read_only=True) as repository:
        return repository.artefacts.path


def test_it_reports_each_block_and_keeps_a_model_that_show_and_front_find(
    cli: Cli, trained: Path, key: str
) -> None:
    before = hashes(trained)
    result = cli("fit-router", key, "--steps", 60, "--db", trained, "--json")
    assert result.code == 0, result.err
    found = result.json("fit_router")
    assert [site["site"] for site in found["sites"]] == ["1.0.0.gate", "1.1.0.gate"]
    assert found["judged_rows"] == 16
    assert all(site["fitted_tokens"] == 16 * 12 for site in found["sites"])
    assert (
        found["speeds"].keys()
        == found["native_speeds"].keys()
        == {"decode_tokens_per_s", "prefill_tokens_per_s"}
    )
    # Nothing of the run was touched, and what was made is a model that loads and whose ledger has no probe.
    assert hashes(trained) == before
    folder = artefacts(trained)
    path = folder / found["checkpoint"]
    architecture = from_yaml((path.parent / "genome.yaml").read_text())
    registry = Host.load()
    model = LanguageModel(registry.canonical(architecture), registry)
    header = checkpoint.read_header(Artefacts.at(path.parent), path.name)
    assert header.architecture == found["genome"]
    checkpoint.read(Artefacts.at(path.parent), path.name, model, None, header)
    assert all(torch.isfinite(p).all() for p in model.parameters())
    shown = cli("show", found["genome"][:12], "--db", trained, "--json").json("show")
    assert shown["hash"] == found["genome"]
    gates = [part for part in shown["ledger"]["parts"] if part["name"] == "distilled"]
    assert len(gates) == 2
    assert all(part["decode_flops_per_token"] == 2 * (512 * 16 + 512 + 16) for part in gates)
    front = cli("front", "--db", trained, "--json").json("front")
    (fitted,) = front["fitted"]
    assert (fitted["run"], fitted["point"], fitted["genome"]) == (key, "fitted:distilled", found["genome"])
    assert fitted["score"] == pytest.approx(found["fitted_score"])
    assert f"{key} at fitted:distilled: score" in cli("front", "--db", trained).out


def test_the_table_says_what_is_measured_and_a_second_fit_replaces_the_first(
    cli: Cli, trained: Path, key: str
) -> None:
    for steps in (2, 40):
        result = cli("fit-router", key, "--steps", steps, "--no-profile", "--db", trained)
        assert result.code == 0, result.err
    for words in ("1.1.0.gate", "rank correlation", "rate before", "Score on 16 rows", "fitted:distilled"):
        assert words in result.out
    with Repository.open(str(trained), read_only=True) as repository:
        row = repository.run_by_key(key)
        detail = next(d for d in repository.trial_detail(row.study_id, row.number).runs if d.run.id == row.id)
    point = detail.points["fitted:distilled"]
    assert detail.run.state == "done"
    assert point.settings["sites"][0]["mse"] > 0
    assert not point.measurements
    assert point.ledger["realised"]
    kinds = sorted(artefact.kind for artefact in detail.artefacts)
    assert kinds == ["checkpoint", "fitted model", "genome"]
    for artefact in detail.artefacts:
        content = (artefacts(trained) / artefact.path).read_bytes()
        assert hashlib.sha256(content).hexdigest() == artefact.sha256


def test_analytics_look_at_the_fitted_routers_and_anew_after_another_fit(
    cli: Cli, trained: Path, key: str
) -> None:
    point = ("--point", "fitted:distilled", "--db", trained)
    refused = cli("routers", key, *point)
    assert refused.code == 2
    assert (
        f"unknown fitted operating point 'fitted:distilled'; known: none. `crossbreed fit-router {key}`"
        in refused.err
    )
    for steps in (2, 40):
        fitted = cli("fit-router", key, "--steps", steps, "--no-profile", "--db", trained, "--json")
        found = cli("routers", key, *point, "--json").json("routers")
        assert {site["router"] for site in found["decisions"]["sites"]} == {"distilled"}
        assert found["agreement"]["flips"] == 0
        with Repository.open(str(trained), read_only=True) as repository:
            row = repository.run_by_key(key)
            detail = next(
                d for d in repository.trial_detail(row.study_id, row.number).runs if d.run.id == row.id
            )
            kinds = repository.analytics(row.id, "fitted:distilled")
        assert found["realised"] == detail.points["fitted:distilled"].rates
        assert kinds["decisions"].payload == found["decisions"]
        again = cli("routers", key, *point)
        assert again.err == "", "what was stored is shown"
    model = artefacts(trained) / fitted.json("fit_router")["checkpoint"]
    model.write_bytes(model.read_bytes()[:-1] + b"x")
    changed = cli("routers", key, *point, "--rows", 4)
    assert changed.code == 2
    assert f"the model of {key} at fitted:distilled" in changed.err


def test_an_interrupt_leaves_the_run_as_it_was(
    cli: Cli, trained: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossbreed.core.lab import fit_router

    before = hashes(trained)

    def interrupted(*arguments: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fit_router, "evaluate", interrupted)
    result = cli("fit-router", key, "--steps", 2, "--db", trained)
    assert result.code == 130
    assert f"run {key} is as it was" in result.err
    assert hashes(trained) == before
    assert not list(artefacts(trained).rglob("fitted*"))
    assert not cli("front", "--db", trained, "--json").json("front")["fitted"]


def test_what_cannot_be_fitted_is_a_sentence(cli: Cli, trained: Path, key: str) -> None:
    study, number, _ = key.split("/")
    ungated = cli("fit-router", f"{study}/{1 - int(number)}/0", "--db", trained)
    assert (ungated.code, "no router of this model has a student" in ungated.err) == (2, True)
    assert cli("fit-router", f"{study}/{number}/7", "--db", trained).code == 2
    path = next(artefacts(trained).rglob(f"{number}/0/rung-0.safetensors"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    changed = cli("fit-router", key, "--db", trained)
    assert (changed.code, "it was changed" in changed.err) == (2, True)
    path.unlink()
    assert "does not exist" in cli("fit-router", key, "--db", trained).err


def test_a_fitted_genome_cannot_be_trained(cli: Cli, trained: Path, tmp_path: Path) -> None:
    data = yaml.safe_load(yaml.safe_dump(GATED).replace("entropy_gate", "distilled"))
    genome = tmp_path / "distilled.yaml"
    genome.write_text(yaml.safe_dump(data))
    result = cli("compare", genome, "--budget", trained.parent / "study.yaml", "--executor", "inline")
    assert result.code == 2
    assert "router 'distilled' at 1.0.gate takes no part in training" in result.err


def test_a_store_keeps_fitted_routers_as_a_folder_does(
    cli: Cli, trained: Path, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = key.split("/")[0]
    assert cli("study", "export", study, f"{tmp_path}/", "--files", "--db", trained).code == 0
    place = f"memory://{uuid.uuid4().hex}"
    monkeypatch.setenv("CROSSBREED_ARTEFACTS", place)
    db = tmp_path / "again.db"
    taken = cli("study", "import", tmp_path / f"{study}.zip", "--db", db, "--json").json("study_import")
    made = cli("fit-router", key, "--steps", 20, "--no-profile", "--db", db, "--json")
    assert made.code == 0, made.err
    folder, name = Artefacts.file(f"{place}/{made.json('fit_router')['checkpoint']}")
    assert folder.names() == ["genome.yaml", name]
    point = ("--point", "fitted:distilled", "--rows", 4, "--db", db)
    found = cli("routers", key, *point)
    assert found.code == 0, found.err
    # Taken along, and found again elsewhere.
    out = cli("study", "export", study, f"{place}/out/", "--files", "--db", db, "--json").json("study_export")
    assert (out["file"], out["files"]) == (f"{place}/out/{study}.zip", taken["files"] + 2)
    folder.write("genome.yaml", b"vocab: 1")
    changed = cli("routers", key, *point)
    assert changed.code == 2
    assert (
        f"the genome of {key} at fitted:distilled, '{folder.place}/genome.yaml', has SHA-256" in changed.err
    )
