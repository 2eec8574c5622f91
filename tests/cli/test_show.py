from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from crossbreed.core.genome import Architecture, digest
from crossbreed.core.host import Host
from tests.cli.conftest import Cli

TRANSFORMER = {
    "vocab": 64,
    "d_model": 32,
    "stages": [
        {
            "depth": {"name": "layered", "repeats": 2},
            "blocks": [
                {
                    "sublayers": [
                        {"mixer": "attention", "params": {"heads": 2, "head_size": 16}},
                        {"mixer": "swiglu", "params": {"hidden": 64}},
                    ]
                }
            ],
        }
    ],
}


@pytest.fixture
def genome(tmp_path: Path) -> Path:
    path = tmp_path / "transformer.yaml"
    path.write_text(yaml.safe_dump(TRANSFORMER))
    return path


def test_a_genome_file_shows_its_hash_tree_and_ledger(cli: Cli, genome: Path) -> None:
    result = cli("show", genome, "--tokens", 128)
    expected = digest(Host.load().canonical(Architecture.model_validate(TRANSFORMER)))
    assert result.code == 0
    assert expected in result.out
    assert "attention" in result.out
    assert "Ledger at 1 x 128 tokens in float32" in result.out
    assert "2 FLOPs" in result.out


def test_json_carries_the_canonical_form_and_exact_numbers(cli: Cli, genome: Path) -> None:
    shown = cli("show", genome, "--tokens", 128, "--json").json("show")
    registry = Host.load()
    architecture = Architecture.model_validate(shown["architecture"])
    assert registry.canonical(architecture) == architecture
    assert digest(architecture) == shown["hash"]
    swiglu = 2 * 3 * 32 * 64  # two layers of three matrices
    assert swiglu < shown["ledger"]["parameters"]
    assert shown["ledger"]["tokens"] == 128
    assert shown["identities"]["mixer:attention"].startswith("crossbreed ")


def test_longer_context_costs_more_per_token(cli: Cli, genome: Path) -> None:
    short = cli("show", genome, "--tokens", 64, "--json").json("show")["ledger"]
    long = cli("show", genome, "--tokens", 512, "--json").json("show")["ledger"]
    assert long["training_flops_per_token"] > short["training_flops_per_token"]
    assert long["parameters"] == short["parameters"]


def test_showing_builds_no_weights(cli: Cli, tmp_path: Path) -> None:
    huge = {**TRANSFORMER, "d_model": 65536}  # its weights would need hundreds of gigabytes
    (tmp_path / "huge.yaml").write_text(yaml.safe_dump(huge))
    result = cli("show", "huge.yaml", "--json")
    assert result.code == 0, result.err
    assert result.json("show")["ledger"]["parameters"] > 10**6


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mixer": "atention"}, "unknown mixer 'atention'; did you mean 'attention'?"),
        ({"params": {"heds": 2}}, "unknown key 'heds'"),
        ({"mixr": "attention"}, "unknown key"),
    ],
)
def test_a_wrong_genome_is_one_sentence(
    cli: Cli, tmp_path: Path, change: dict[str, object], sentence: str
) -> None:
    sublayer = {"mixer": "attention", "params": {"heads": 2, "head_size": 16}, **change}
    stages = [{"blocks": [{"sublayers": [sublayer]}]}]
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump({**TRANSFORMER, "stages": stages}))
    result = cli("show", "wrong.yaml")
    assert result.code == 2
    assert sentence in result.err
    assert result.out == ""
    assert "Traceback" not in result.err


def test_what_is_neither_a_file_nor_a_hash_is_named(cli: Cli) -> None:
    result = cli("show", "transformr.yaml")
    assert result.code == 2
    assert "genome file 'transformr.yaml' does not exist" in result.err
    result = cli("show", "Oryx-Mini")
    assert result.code == 2
    assert (
        "genome 'Oryx-Mini' is neither a file, a preset, a candidate as STUDY/NUMBER nor a hash prefix of 4 to 64 hex digits; "
        "did you mean 'oryx-"
    ) in result.err
    assert "`crossbreed presets` lists presets" in result.err


def test_a_file_that_is_no_genome_is_said_to_be_what_it_is(cli: Cli, tmp_path: Path) -> None:
    assert cli("init", "study.yaml").code == 0
    for command in ("show", "cost"):
        result = cli(command, "study.yaml")
        assert result.code == 2
        assert "'study.yaml' is a study file, not a genome" in result.err
    (tmp_path / "budget.yaml").write_text(yaml.safe_dump({"match": {"parameters": 1}}))
    assert "'budget.yaml' is a budget file, not a genome" in cli("show", "budget.yaml").err


def test_a_stored_candidate_is_shown_by_its_study_and_number(
    cli: Cli, db: Path, hashes: dict[int, str]
) -> None:
    assert cli("show", "small/1", "--db", db, "--json").json("show")["hash"] == hashes[1]
    assert cli("cost", "small/1", "--db", db, "--json").json("cost")["hash"] == hashes[1]
    missing = cli("show", "small/7", "--db", db)
    assert missing.code == 2
    assert "study 'small' has no candidate 7; they are numbered from 0 to 3." in missing.err


def test_a_hash_needs_a_database(cli: Cli) -> None:
    result = cli("show", "abcd1234")
    assert result.code == 2
    assert "there is no database at" in result.err
