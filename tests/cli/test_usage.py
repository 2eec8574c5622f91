"""Command lines that cannot be read, and what printed costs mean."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest

from crossbreed.core.ledger import QUANTITIES
from tests.cli.conftest import Cli


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("cost", "x", "--phase", "both"),
            "--phase 'both' is not one of 'all', 'train', 'prefill', 'decode'. See `crossbreed cost --help`.",
        ),
        (
            ("match", "x", "--budget=b", "--solver=magic"),
            "--solver 'magic' is not one of 'auto', 'descent', 'optuna', 'enumeration'. See `crossbreed match --help`.",
        ),
        (
            ("show", "x", "--tokens", "0"),
            "--tokens '0' must be at least 1. See `crossbreed show --help`.",
        ),
        (
            ("search", "x.yaml", "--max-trials", "eight"),
            "--max-trials 'eight' must be a whole number. See `crossbreed search --help`.",
        ),
        (
            ("new", "routr", "x"),
            "KIND 'routr' is not one of 'router', 'mixer', 'depth-policy', 'cost-model', 'task', 'search-space'. See "
            "`crossbreed new --help`.",
        ),
        (("cost",), "Missing argument 'GENOME'. See `crossbreed cost --help`."),
        (("shwo",), "No such command 'shwo'"),
        (("study", "remove"), "No such command 'remove'"),
        (("cost", "x", "--fase", "all"), "No such option: --fase"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_with_name_value_and_rule(
    cli: Cli, words: tuple[str, ...], said: str
) -> None:
    result = cli(*words)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith(f"crossbreed: {said}")
    assert result.err.count("\n") == 1


def test_help_and_version_are_no_errors(cli: Cli) -> None:
    assert cli("--version").code == 0
    assert cli("cost", "--help").code == 0
    assert "Usage" in cli("cost", "--help").out


def costs(rule: Any) -> bool:
    """Whether a schema's objects hold a number that the ledger counts, a ledger or a certificate."""
    if isinstance(rule, dict):
        named = {*rule.get("properties", ()), rule.get("$ref", "").removeprefix("urn:crossbreed:")}
        return bool(named & {*QUANTITIES, "ledger:1", "certificate:1", "candidates:1"}) or any(
            map(costs, rule.values())
        )
    return isinstance(rule, list) and any(map(costs, rule))


def test_every_json_object_with_a_cost_says_what_costs_mean() -> None:
    named = set()
    for file in files("crossbreed.cli").joinpath("schemas").iterdir():
        rule = json.loads(file.read_text())
        # Without a ``schema`` field it is a part of other objects.
        if "schema" in rule.get("properties", ()) and costs(rule):
            named.add(file.name.removesuffix(".json"))
            assert "conventions" in rule["required"], file.name
    assert named >= {"cost", "show", "match", "match_all", "front", "search", "compare", "plan", "presets"}
