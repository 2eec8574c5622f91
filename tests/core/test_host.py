"""The plugin host: isolation, collisions, misspelt hooks, identity, and no heavy imports."""

import subprocess
import sys

import pytest

from crossbreed.core.errors import PluginError, UnknownName
from crossbreed.core.genome import Architecture, Block, Router, Stage, Sublayer
from crossbreed.core.host import Host, PluginFile

ROUTER = """
from pydantic import BaseModel
from crossbreed import RouterCapabilities, RouterDescriptor, hookimpl

class Config(BaseModel):
    pass

@hookimpl
def {hook}():
    return [RouterDescriptor("{name}", lambda: object, Config, RouterCapabilities(sites=("gate",)), "a test router")]
"""


def plugin(tmp_path, name="coin", hook="register_routers", file="p.py"):
    path = tmp_path / file
    path.write_text(ROUTER.format(name=name, hook=hook))
    return str(path)


def test_a_plugin_file_is_registered_with_its_content_hash(tmp_path):
    path = plugin(tmp_path)
    registry = Host.load([path])
    assert "coin" in registry.names("router")
    assert registry.registered("router", "coin").owner.identity == f"sha256:{PluginFile.read(path).sha256}"


def test_a_plugin_shipped_by_content_needs_no_file(tmp_path):
    file = PluginFile.read(plugin(tmp_path))
    (tmp_path / "p.py").unlink()
    assert "coin" in Host.load([file]).names("router")


def test_built_ins_come_through_entry_points():
    registry = Host.load(third_party=False)
    assert {"attention", "mamba2", "gated_deltanet", "multi_mixer", "swiglu", "experts"} <= set(
        registry.names("mixer")
    )
    assert {"entropy_gate", "segment_random", "learned"} <= set(registry.names("router"))
    assert all(registry.registered("mixer", n).owner.builtin for n in registry.names("mixer"))
    assert not registry.problems


def test_a_misspelt_hook_names_the_right_one(tmp_path):
    with pytest.raises(PluginError, match="'regster_routers'; did you mean 'register_routers'"):
        Host.load([plugin(tmp_path, hook="regster_routers")])


def test_a_missing_plugin_file_is_a_sentence():
    with pytest.raises(PluginError, match=r"'nowhere\.py' does not exist"):
        Host.load(["nowhere.py"])


def test_a_plugin_that_raises_at_import_names_the_line(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("x = 1\nraise RuntimeError('no such kernel')\n")
    with pytest.raises(PluginError, match=r"raised RuntimeError at import \(line 2\): no such kernel"):
        Host.load([str(path)])


def test_a_plugin_that_registers_nothing_is_told_what_to_do(tmp_path):
    path = tmp_path / "empty.py"
    path.write_text("x = 1\n")
    with pytest.raises(
        PluginError, match=r"registers nothing: decorate .*register_routers.* with crossbreed.hookimpl"
    ):
        Host.load([str(path)])


def test_two_plugins_with_one_name_make_it_unusable_and_name_both(tmp_path):
    first = plugin(tmp_path, file="a.py")
    second = plugin(tmp_path, file="b.py")
    (tmp_path / "b.py").write_text((tmp_path / "b.py").read_text() + "\n# differs\n")
    registry = Host.load([first, second])
    with pytest.raises(PluginError, match=r"a\.py.*b\.py"):
        registry.descriptor("router", "coin")
    assert "coin" not in registry.names("router")


def test_a_built_in_is_never_overridden(tmp_path):
    with pytest.raises(PluginError, match="has a built-in's name"):
        Host.load([plugin(tmp_path, name="entropy_gate")])


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownName, match="unknown mixer 'atention'; did you mean 'attention'"):
        Host.load(third_party=False).descriptor("mixer", "atention")


def test_a_broken_installed_plugin_is_listed_and_stops_nothing(tmp_path, monkeypatch):
    (tmp_path / "broken_plug.py").write_text("import a_package_nobody_has\n")
    info = tmp_path / "broken_plug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[crossbreed]\nbroken = broken_plug\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = Host.load()
    problem = next(p for p in registry.problems if p.owner.source == "broken-plug 1.0")
    assert "a_package_nobody_has" in problem.message
    assert "Traceback" in problem.traceback
    assert "attention" in registry.names("mixer")
    assert not Host.load(third_party=False).problems


def test_an_architecture_is_identified_by_the_readers_it_holds_too():
    registry = Host.load(third_party=False)
    sublayer = Sublayer(mixer="multi_mixer", params={"readers": ["mamba2", {"name": "attention"}]})
    stage = Stage(blocks=(Block(sublayers=(sublayer,)),))
    router = Router(name="segment_random")
    architecture = Architecture(vocab=16, d_model=16, stages=(stage,), mode_router=router)
    used = {"mixer:multi_mixer", "mixer:mamba2", "mixer:attention", "router:segment_random", "depth:layered"}
    assert set(registry.identities(architecture)) == used


def test_loading_plugins_imports_nothing_heavy():
    code = (
        "import sys; from crossbreed.core.host import Host; r = Host.load(third_party=False);"
        "assert r.names('mixer') and not r.problems;"
        "print([m for m in ('torch', 'ray', 'streamlit', 'plotly', 'optuna') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
