"""The example distributions, used as a third party's are: built, installed where only their wheels are, and searched."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.studies import write_study
from tests.support.elsewhere import ROOT, Elsewhere

PROJECTS = sorted((ROOT / "examples" / "plugins").iterdir())
OFFERED = {
    "margin_gate": ("router", "crossbreed-margin-gate"),
    "ema": ("mixer", "crossbreed-ema-mixer"),
    "ramp": ("depth", "crossbreed-ramp"),
    "six_n": ("cost", "crossbreed-six-n"),
    "copying": ("task", "crossbreed-copying"),
    "needle": ("space", "crossbreed-needle"),
}
GENOME: dict[str, Any] = {
    "vocab": 9,
    "d_model": 16,
    "stages": [
        {
            "depth": {"name": "ramp", "repeats": 2, "params": {"start": 0.5}},
            "blocks": [
                {"sublayers": [{"mixer": "ema", "params": {"heads": 2, "head_size": 8}}]},
                {
                    "sublayers": [{"mixer": "attention", "params": {"heads": 2, "head_size": 8}}],
                    "gate": {"name": "margin_gate", "params": {"kappa": 0.0}},
                },
            ],
        }
    ],
}


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Elsewhere:
    made = Elsewhere(tmp_path_factory.mktemp("elsewhere"))
    made.install(PROJECTS)
    return made


@pytest.fixture
def genome(tmp_path: Path) -> Path:
    path = tmp_path / "genome.yaml"
    path.write_text(yaml.safe_dump(GENOME))
    return path


def test_there_is_an_example_of_every_kind_and_each_is_listed_with_its_distribution(
    elsewhere: Elsewhere,
) -> None:
    found = elsewhere.listing()
    mine = {name: item for name, item in found.items() if not item["builtin"]}
    assert {name: (item["kind"], item["distribution"]) for name, item in mine.items()} == OFFERED
    assert {item["kind"] for item in mine.values()} == {item["kind"] for item in found.values()}
    assert {item["version"] for item in mine.values()} == {"0.1.0"}
    assert mine["ema"]["identity"] == "crossbreed-ema-mixer 0.1.0"
    assert "broken" not in elsewhere.crossbreed("plugins")


def test_listing_them_imports_no_torch(elsewhere: Elsewhere) -> None:
    code = "import sys; from crossbreed import Host; r = Host.load(); print(len(r.owners), 'torch' in sys.modules)"
    assert elsewhere.output("-c", code).split() == [str(6 + len(OFFERED)), "False"]


def test_their_own_tests_pass_there(elsewhere: Elsewhere) -> None:
    for line in elsewhere.test(project / "tests" for project in PROJECTS).splitlines()[-1:]:
        assert "passed" in line
        assert "failed" not in line


def test_they_build_a_genome_meet_a_budget_and_are_planned(
    elsewhere: Elsewhere, genome: Path, tmp_path: Path
) -> None:
    wide = copy.deepcopy(GENOME)
    del wide["stages"][0]["blocks"][1]
    narrow = copy.deepcopy(wide)
    narrow["stages"][0]["blocks"][0]["sublayers"][0]["params"]["head_size"] = 5
    asked, budget = tmp_path / "narrow.yaml", tmp_path / "budget.yaml"
    asked.write_text(yaml.safe_dump(narrow))
    shape = {"batch": 1, "tokens": 32}
    budget.write_text(
        yaml.safe_dump({"reference": wide, "match": {"training_flops_per_token": "1%"}, "shape": shape})
    )
    hybrids = write_study(
        tmp_path / "hybrids.yaml",
        task={"name": "copying", "params": {"symbols": 4, "span": 6, "eval_items": 32}},
        space={
            "name": "layer_hybrids",
            "mixers": ["attention", "ema", "swiglu"],
            "routers": ["margin_gate"],
            "depth": ["layered", "ramp"],
        },
        budget={"match": {"training_flops_per_token": "40%"}, "cap": {"memory_bytes": "90%"}},
    )
    needle = write_study(
        tmp_path / "needle.yaml",
        space={"name": "needle", "mixers": ["attention", "ema", "swiglu"], "params": {"layers": 2}},
        budget={"match": {"training_flops_per_token": "90%"}, "cap": {"memory_bytes": "90%"}},
    )
    shown, priced, matched, planned, placed = elsewhere.commands(
        ("show", genome),
        ("cost", genome, "--model", "six_n", "--at", "T=32"),
        ("match", asked, "--budget", budget),
        ("search", hybrids, "--plan"),
        ("search", needle, "--plan"),
    )
    assert shown["identities"]["router:margin_gate"] == "crossbreed-margin-gate 0.1.0"
    assert shown["identities"]["depth:ramp"] == "crossbreed-ramp 0.1.0"
    parts = {part["name"]: part for part in shown["ledger"]["parts"]}
    # One run of the probe: the gate stands on the second block, which the ramp runs once in two repeats.
    assert parts["margin_gate"]["decode_flops_per_token"] == 2 * 16 * 9
    assert parts["ema"]["state_bytes"] == 2 * 16 * 4
    assert shown["ledger"]["rates"]["0.1.1.gate"] == [0.5, 0.5]
    assert priced["model"] == "six_n"
    assert matched["certificate"]["feasible"]
    (block,) = matched["architecture"]["stages"][0]["blocks"]
    assert block["sublayers"][0]["params"]["head_size"] == 8
    families = {row["family"] for row in planned["candidates"] if row["feasible"]}
    assert {"ema", "attention/gate:margin_gate"} <= families
    assert "attention+ema" in {row["family"] for row in placed["candidates"]}


def test_kept_out_there_they_are_named_and_not_used(elsewhere: Elsewhere, genome: Path) -> None:
    refused = elsewhere.run(
        "-m", "crossbreed", "show", genome, "--plugins-allow", "crossbreed-ramp,crossbreed-margin-gate"
    )
    assert refused.returncode == 2
    assert "unknown mixer 'ema'" in refused.stderr
    assert "crossbreed-ema-mixer 0.1.0" in refused.stderr
    assert "crossbreed-ramp 0.1.0" not in refused.stderr
