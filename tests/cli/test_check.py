"""``crossbreed check``: a table and an exit code for a plugin by name, by file and by distribution."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossbreed.cli.check import _named
from crossbreed.core.host import KIND_LABELS, Registry
from tests.cli.conftest import Cli
from tests.support.distributions import install

LEAKY = '''
"""A channel mixer that subtracts the mean of the whole piece."""
import torch
from pydantic import BaseModel
from crossbreed import Mixer, MixerCapabilities, MixerDescriptor, hookimpl
from crossbreed.core.ledger import Cost


class Config(BaseModel, extra="forbid"):
    pass


class Centred(Mixer, torch.nn.Module):
    def __init__(self, config, build):
        super().__init__()

    def forward(self, x_BTD, context, state, read_BT=None):
        return x_BTD - x_BTD.mean(1, keepdim=True), state

    @staticmethod
    def cost(config, d_model, shape, depths=1, parts=None):
        return Cost()


@hookimpl
def register_mixers():
    return [MixerDescriptor("centred", Centred, Config, MixerCapabilities("channel"), "Centres a piece.")]
'''


@pytest.fixture
def leaky(tmp_path: Path) -> Path:
    path = tmp_path / "leaky.py"
    path.write_text(LEAKY)
    return path


def test_a_builtin_passes_by_name(cli: Cli) -> None:
    result = cli("check", "swiglu", "--profile", "suite")
    assert result.code == 0
    assert "mixer swiglu from crossbreed" in result.out
    assert "none of" in result.out
    report = cli("check", "swiglu", "--profile", "suite", "--json").json("check")
    assert report["passed"]
    assert [plugin["name"] for plugin in report["plugins"]] == ["swiglu"]
    assert {rule["rule"] for rule in report["plugins"][0]["rules"]} >= {"shapes", "causal"}


def test_a_file_with_a_leak_fails_with_the_smallest_input_and_numbers(cli: Cli, leaky: Path) -> None:
    result = cli("check", leaky, "--profile", "suite", "--json")
    assert result.code == 1
    report = result.json("check")
    rules = {rule["rule"]: rule for rule in report["plugins"][0]["rules"]}
    assert not report["passed"]
    assert rules["shapes"]["status"] == "passed"
    assert rules["causal"]["status"] == "failed"
    assert rules["causal"]["sizes"] == {"prefix": 1}
    assert rules["causal"]["numbers"]["change"] > 1000 * rules["causal"]["numbers"]["allowed"]
    table = cli("check", leaky, "--profile", "suite")
    assert table.code == 1
    assert "No output depends on a later token." in table.out
    assert "prefix 1" in table.out


def test_a_plugin_of_a_file_given_beside_it_is_checked_by_name(cli: Cli, leaky: Path) -> None:
    assert cli("check", "centred", "--plugin", leaky, "--profile", "suite").code == 1


def test_a_distribution_is_everything_that_it_offers(registry: Registry) -> None:
    found = _named(registry, "crossbreed")
    assert found == [(kind, name) for kind in KIND_LABELS for name in registry.names(kind)]
    assert ("mixer", "swiglu") in found
    assert _named(registry, "swiglu") == [("mixer", "swiglu")]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["mamba3"], "unknown plugin, file or distribution 'mamba3'; did you mean 'mamba2'?"),
        (["nowhere.py"], "plugin file 'nowhere.py' does not exist"),
        (["swiglu", "--profile", "quick"], "'quick'"),
    ],
)
def test_bad_input_is_exit_2(cli: Cli, arguments: list[str], sentence: str) -> None:
    result = cli("check", *arguments)
    assert result.code == 2
    assert result.out == ""
    assert sentence in result.err


def test_an_installed_plugin_that_is_broken_or_kept_out_is_said_to_be_that(cli: Cli, site: Path) -> None:
    install(site, "crossbreed-sharp-gate", "import a_kernel_nobody_has\n", entry="sharp_gate")
    for what in ("sharp_gate", "crossbreed-sharp-gate", "crossbreed_sharp_gate"):
        result = cli("check", what)
        assert result.code == 2
        assert (
            "'sharp_gate' of crossbreed-sharp-gate 1.0 is broken: ModuleNotFoundError: No module named"
            in result.err
        )
        result = cli("check", what, "--no-third-party")
        assert result.code == 2
        assert "kept out: third-party plugins are off; to let it in: leave --no-third-party out" in result.err
        result = cli("check", what, "--plugins-allow", "another")
        assert (
            "kept out: only another may run; to let it in: --plugins-allow crossbreed-sharp-gate."
            in result.err
        )


def test_a_files_name_without_its_ending_names_the_file(cli: Cli, leaky: Path) -> None:
    result = cli("check", "leaky")
    assert result.code == 2
    assert "there is a file leaky.py: crossbreed check leaky.py" in result.err


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("segment_random", "router segment_random"),
        ("layered", "depth policy layered"),
        ("bytes", "task bytes"),
    ],
)
def test_a_builtin_of_another_kind_passes_by_name(cli: Cli, name: str, label: str) -> None:
    result = cli("check", name, "--profile", "suite")
    assert result.code == 0
    assert f"{label} from crossbreed" in result.out


def test_a_router_that_looks_ahead_fails_with_the_smallest_prefix(cli: Cli) -> None:
    path = Path(__file__).parents[1] / "conformance/broken/routers/block_mean.py"
    result = cli("check", path, "--profile", "suite", "--json")
    assert result.code == 1
    (plugin,) = result.json("check")["plugins"]
    (failed,) = (rule for rule in plugin["rules"] if rule["status"] == "failed")
    assert (failed["rule"], failed["sizes"]) == ("causal", {"prefix": 1})
    assert failed["numbers"]["changed"] > 0
