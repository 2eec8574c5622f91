"""The example distributions, used as a third party's are: built, installed where only their wheels are, and searched."""

from __future__ import annotations

import copy
import json
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


def test_a_genome_of_them_has_a_ledger_and_pins_their_versions(elsewhere: Elsewhere, genome: Path) -> None:
    shown = json.loads(elsewhere.crossbreed("show", genome, "--json"))
    assert shown["identities"]["router:margin_gate"] == "crossbreed-margin-gate 0.1.0"
    assert shown["identities"]["depth:ramp"] == "crossbreed-ramp 0.1.0"
    parts = {part["name"]: part for part in shown["ledger"]["parts"]}
    # One run of the probe: the gate stands on the second block, which the ramp runs once in two repeats.
    assert parts["margin_gate"]["decode_flops_per_token"] == 2 * 16 * 9
    assert parts["ema"]["state_bytes"] == 2 * 16 * 4
    assert shown["ledger"]["rates"]["0.1.1.gate"] == [0.5, 0.5]


def test_a_budget_moves_their_free_dimensions(elsewhere: Elsewhere, genome: Path, tmp_path: Path) -> None:
    wide = yaml.safe_load(genome.read_text())
    del wide["stages"][0]["blocks"][1]
    narrow = copy.deepcopy(wide)
    narrow["stages"][0]["blocks"][0]["sublayers"][0]["params"]["head_size"] = 5
    asked = tmp_path / "narrow.yaml"
    asked.write_text(yaml.safe_dump(narrow))
    budget = {
        "reference": wide,
        "match": {"training_flops_per_token": "1%"},
        "shape": {"batch": 1, "tokens": 32},
    }
    file = tmp_path / "budget.yaml"
    file.write_text(yaml.safe_dump(budget))
    matched = json.loads(elsewhere.crossbreed("match", asked, "--budget", file, "--json"))
    assert matched["certificate"]["feasible"]
    blocks = matched["architecture"]["stages"][0]["blocks"]
    assert blocks[0]["sublayers"][0]["params"]["head_size"] == 8


def test_a_study_of_them_is_searched(elsewhere: Elsewhere, tmp_path: Path) -> None:
    study = write_study(
        tmp_path / "study.yaml",
        name="elsewhere",
        task={"name": "copying", "params": {"symbols": 4, "span": 6, "eval_items": 32}},
        space={
            "name": "layer_hybrids",
            "mixers": ["attention", "ema", "swiglu"],
            "routers": ["margin_gate"],
            "depth": ["layered", "ramp"],
        },
        budget={"match": {"training_flops_per_token": "40%"}, "cap": {"memory_bytes": "90%"}},
        search={"trials": 3, "seeds": 1, "forced_rates": [], "analytics": False},
    )
    arguments = ("search", study, "--executor", "inline", "--db", tmp_path / "results.db")
    elsewhere.crossbreed(*arguments, cwd=tmp_path)
    front = json.loads(
        elsewhere.crossbreed("front", "elsewhere", "--all", "--json", "--db", tmp_path / "results.db")
    )
    done = {row["family"] for row in front["candidates"] if row["state"] == "done"}
    assert {"ema", "attention/gate:margin_gate"} <= done


def test_a_study_in_the_space_of_one_of_them_is_planned(elsewhere: Elsewhere, tmp_path: Path) -> None:
    study = write_study(
        tmp_path / "study.yaml",
        space={"name": "needle", "mixers": ["attention", "ema", "swiglu"], "params": {"layers": 2}},
        budget={"match": {"training_flops_per_token": "90%"}, "cap": {"memory_bytes": "90%"}},
    )
    planned = json.loads(elsewhere.crossbreed("search", study, "--plan", "--json", cwd=tmp_path))
    assert {"attention+ema"} <= {row["family"] for row in planned["candidates"]}


def test_kept_out_there_they_are_named_and_not_used(elsewhere: Elsewhere, genome: Path) -> None:
    refused = elsewhere.run(
        "-m", "crossbreed", "show", genome, "--plugins-allow", "crossbreed-ramp,crossbreed-margin-gate"
    )
    assert refused.returncode == 2
    assert "unknown mixer 'ema'" in refused.stderr
    assert "crossbreed-ema-mixer 0.1.0" in refused.stderr
    assert "crossbreed-ramp 0.1.0" not in refused.stderr
