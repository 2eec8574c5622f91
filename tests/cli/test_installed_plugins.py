"""Listing installed plugins: light, complete about what is broken, and as far as they are trusted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Result, in_process
from tests.cli.test_plugins import HEAVY
from tests.support.distributions import install, install_router

FAST_MIXER = """
from pydantic import BaseModel
from crossbreed import MixerCapabilities, MixerDescriptor, hookimpl

class Config(BaseModel):
    pass

@hookimpl
def register_mixers():
    able = MixerCapabilities(
        "sequence",
        backends=("reference", "sdpa", "swift", "flash_attn"),
        backend_needs={"swift": ("a_kernel_nobody_has", "cuda")},
    )
    return [MixerDescriptor("fast", "nowhere:Fast", Config, able, "has kernels")]
"""


Listing = Callable[..., Result]


@pytest.fixture
def listing(cli: Cli, site: Path, monkeypatch: pytest.MonkeyPatch) -> Listing:
    """``crossbreed plugins`` with options, where no CUDA device is visible."""

    def run(*options: str, **variables: str) -> Result:
        for name, value in {"CUDA_VISIBLE_DEVICES": "", **variables}.items():
            monkeypatch.setenv(name, value)
        result = cli("plugins", *options)
        assert result.code == 0, result.err
        return result

    return run


def offered(result: Result) -> dict[str, dict[str, object]]:
    return {item["name"]: item for item in result.json("plugins")["plugins"]}


def test_fifty_installed_plugins_are_listed_without_importing_anything_heavy(site: Path) -> None:
    # Asked at exit, in the process that listed: what it imports costs more than what it looks at.
    (site / "sitecustomize.py").write_text(
        f"import atexit, sys\natexit.register(lambda: print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr))"
    )
    for i in range(50):
        install_router(site, f"plug-{i}", f"router_{i}")
    searched = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    result = in_process("plugins", "--json", cwd=site.parent, environment={"PYTHONPATH": searched})
    found = offered(result)
    assert {f"router_{i}" for i in range(50)} <= found.keys()
    assert found["router_7"]["distribution"] == "plug-7"
    assert found["router_7"]["version"] == "1.0"
    assert result.err.strip() == "[]"


def test_what_is_broken_is_listed_with_its_traceback_and_stops_nothing(site: Path, listing: Listing) -> None:
    install(site, "needs-kernels", "import flash_attn_nobody_has\n")
    install_router(site, "misspelt", "coin", hook="regster_routers")
    install(site, "silent", "x = 1\n")
    install_router(site, "fine", "fair")
    result = listing("--json")
    broken = {item["source"]: item for item in result.json("plugins")["broken"]}
    assert "flash_attn_nobody_has" in broken["needs-kernels 1.0"]["message"]
    assert "needs_kernels.py" in broken["needs-kernels 1.0"]["traceback"]
    assert "did you mean 'register_routers'?" in broken["misspelt 1.0"]["message"]
    assert "registers nothing" in broken["silent 1.0"]["message"]
    assert "fair" in offered(result)
    printed = listing().out
    assert "Traceback (most recent call last)" in printed
    assert "broken needs_kernels (needs-kernels 1.0)" in printed


def test_a_name_that_two_distributions_offer_is_used_of_neither_and_both_are_named(
    site: Path, listing: Listing
) -> None:
    # The entry points have one name too, which pluggy would skip without a word.
    install_router(site, "first-gates", "gate", entry="gates")
    install_router(site, "second-gates", "gate", entry="gates")
    install_router(site, "impostor", "entropy_gate")
    result = listing("--json")
    messages = "\n".join(item["message"] for item in result.json("plugins")["broken"])
    assert "'gate' is offered by gates (first-gates 1.0) and gates (second-gates 1.0)" in messages
    assert "'entropy_gate' of impostor (impostor 1.0) has a built-in's name" in messages
    assert "gate" not in offered(result)
    assert offered(result)["entropy_gate"]["builtin"]


def test_backends_say_whether_they_work_here_and_what_they_lack(site: Path, listing: Listing) -> None:
    install(site, "fast-mixer", FAST_MIXER)
    result = listing("--json")
    backends = {item["name"]: item for item in offered(result)["fast"]["backends"]}
    assert backends["reference"] == {"name": "reference", "available": True, "missing": None}
    assert backends["sdpa"]["available"]
    assert backends["swift"]["missing"] == "a_kernel_nobody_has is not installed, no CUDA device"
    assert "no CUDA device" in backends["flash_attn"]["missing"]
    line = next(line for line in listing().out.splitlines() if " fast " in line)
    assert "runs by reference, sdpa" in line
    assert "not by swift (a_kernel_nobody_has is not installed" in line


def test_a_plugin_that_needs_an_absent_kernel_is_listed_without_a_device(
    site: Path, listing: Listing
) -> None:
    # Its class imports the kernel; its offer does not, which is what factories by name are for.
    text = FAST_MIXER.replace("nowhere:Fast", "late_kernel_layer:Fast")
    install(site, "late-kernel", text)
    (site / "late_kernel_layer.py").write_text("import flash_attn_nobody_has\n")
    # One that imports it at once is broken, and alone in that.
    install(site, "early-kernel", "import flash_attn_nobody_has\n" + text)
    result = listing("--json")
    assert offered(result)["fast"]["distribution"] == "late-kernel"
    assert [item["source"] for item in result.json("plugins")["broken"]] == ["early-kernel 1.0"]


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        (["--no-third-party"], {}),
        ([], {"CROSSBREED_NO_THIRD_PARTY": "true"}),
        (["--plugins-allow", "other-plug"], {"CROSSBREED_PLUGINS_ALLOW": "first-plug"}),
    ],
    ids=["option", "variable", "allow list"],
)
def test_kept_out_plugins_are_named_with_the_reason(
    site: Path, listing: Listing, options: list[str], variables: dict[str, str]
) -> None:
    install_router(site, "first-plug", "first")
    result = listing(*options, "--json", **variables)
    assert "first" not in offered(result)
    refused = {item["source"]: item["reason"] for item in result.json("plugins")["refused"]}
    assert refused["first-plug 1.0"] in ("third-party plugins are off", "only other-plug may run")


def test_trace_shows_each_hook_call_on_stderr_and_leaves_stdout_alone(site: Path, listing: Listing) -> None:
    install_router(site, "first-plug", "first")
    result = listing("--trace", "--json")
    lines = result.err.splitlines()
    at = lines.index("trace: register_routers() of first_plug@first-plug 1.0")
    assert lines[at + 1].startswith("trace: register_routers() returned in ")
    assert lines[at + 1].endswith(": first")
    assert "trace: register_mixers() of mixers@crossbreed 0.1.0" in lines
    # A hook that a plugin does not implement is no call.
    assert not any("register_tasks() of first_plug" in line for line in lines)
    assert "first" in offered(result)


def test_trace_shows_the_hook_that_raised(site: Path, listing: Listing) -> None:
    install(
        site, "raises", "import crossbreed\n@crossbreed.hookimpl\ndef register_tasks():\n    return 1 / 0\n"
    )
    assert "register_tasks() raised ZeroDivisionError" in listing("--trace").err


def test_every_command_can_keep_third_party_plugins_out(cli: Cli, site: Path, tmp_path: Path) -> None:
    install_router(site, "kept-out-plug", "kept_out")
    study = tmp_path / "study.yaml"
    assert cli("init", study).code == 0
    assert "kept_out" in study.read_text()
    assert cli("init", study, "--force", "--no-third-party").code == 0
    assert "kept_out" not in study.read_text()
    # The setting is the command's own: the next one loads again what is installed.
    assert cli("init", study, "--force").code == 0
    assert "kept_out" in study.read_text()
