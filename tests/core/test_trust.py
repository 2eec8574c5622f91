"""Whose code may run: kept-out plugins are named and none of their code runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.host import Host
from crossbreed.core.trust import NO_THIRD_PARTY, PLUGINS_ALLOW, Trust
from tests.support.distributions import ROUTER, install

MARKED = "from pathlib import Path\nPath({trace!r}).touch()\n" + ROUTER


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two distributions that leave a file when their code runs, and the folder of those files."""
    for variable in (NO_THIRD_PARTY, PLUGINS_ALLOW):
        monkeypatch.delenv(variable, raising=False)
    site, traces = tmp_path / "site", tmp_path / "traces"
    site.mkdir()
    traces.mkdir()
    for name in ("trusted-one", "other-one"):
        text = MARKED.format(
            trace=str(traces / name), hook="register_routers", name=name.replace("-", "_"), module="x"
        )
        install(site, name, text)
        # Another test's import would be found again, and run no code.
        monkeypatch.delitem(sys.modules, name.replace("-", "_"), raising=False)
    monkeypatch.syspath_prepend(str(site))
    return traces


def ran(traces: Path) -> set[str]:
    return {file.name for file in traces.iterdir()}


def test_all_installed_plugins_run_unless_something_is_said(traces: Path) -> None:
    registry = Host.load()
    assert {"trusted_one", "other_one"} <= set(registry.names("router"))
    assert ran(traces) == {"trusted-one", "other-one"}
    assert registry.refused == []


def test_with_third_party_off_no_installed_code_runs_and_what_was_kept_out_is_named(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NO_THIRD_PARTY, "1")
    registry = Host.load()
    assert ran(traces) == set()
    assert {owner.source for owner in registry.refused} >= {"trusted-one 1.0", "other-one 1.0"}
    assert "entropy_gate" in registry.names("router")
    with pytest.raises(
        UnknownName, match=r"Not loaded, because third-party plugins are off: .*other-one 1\.0"
    ):
        registry.descriptor("router", "other_one")


def test_an_allow_list_lets_in_its_distributions_however_they_are_spelt(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PLUGINS_ALLOW, "Trusted_One, never-installed")
    registry = Host.load()
    assert ran(traces) == {"trusted-one"}
    assert "trusted_one" in registry.names("router")
    assert [owner.source for owner in registry.refused if owner.name == "other_one"] == ["other-one 1.0"]


def test_a_misspelt_name_in_an_allow_list_is_told_with_the_nearest_that_is_installed(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PLUGINS_ALLOW, "trusted-one, other-oen")
    registry = Host.load()
    assert ran(traces) == {"trusted-one"}
    assert registry.absent == ["'other-oen'; did you mean 'other-one'?"]
    with pytest.raises(
        UnknownName, match=r"Allowed, but not installed: 'other-oen'; did you mean 'other-one'\?"
    ):
        registry.descriptor("router", "other_one")


def test_an_empty_allow_list_lets_in_none(traces: Path) -> None:
    assert Host.load(trust=Trust(allow=())).refused
    assert ran(traces) == set()


def test_a_given_trust_goes_before_the_environment(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NO_THIRD_PARTY, "1")
    Host.load(trust=Trust(allow=("other-one",)))
    assert ran(traces) == {"other-one"}


def test_the_environment_says_the_same_to_another_process() -> None:
    for trust in (Trust(), Trust(False), Trust(allow=()), Trust(True, ("a", "b"))):
        assert Trust.from_environment(trust.environment()) == trust


def test_a_switch_that_is_neither_on_nor_off_is_refused() -> None:
    with pytest.raises(ConfigError, match=f"{NO_THIRD_PARTY} is 'maybe'"):
        Trust.from_environment({NO_THIRD_PARTY: "maybe"})
