"""Plugin files of a study: edited, not given, or installed meanwhile, each said in a sentence that tells how to go on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from crossbreed.cli import run
from crossbreed.core.host import PluginFile
from crossbreed.storage.repository import Repository
from tests.cli.conftest import ROUTER, Cli
from tests.cli.studies import REFERENCE, write_study
from tests.support.distributions import install

EDITED = ROUTER.replace("% 3", "% 2")
GATED: dict[str, Any] = yaml.safe_load(yaml.safe_dump(REFERENCE))
GATED["stages"][0]["blocks"][0]["gate"] = {"name": "every_third"}


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study's file, its plugin file and its database: the reference runs that file's router."""
    folder = tmp_path_factory.mktemp("searched")
    router = folder / "every_third.py"
    router.write_text(ROUTER)
    study = write_study(
        folder / "tiny.yaml",
        budget={"reference": GATED, "match": {"training_flops_per_token": "60%"}},
        search={"trials": 0, "seeds": 1},
    )
    command = ["search", study, "--executor", "inline", "--plugin", router, "--db", folder / "crossbreed.db"]
    assert run([str(word) for word in command]) == 0
    return folder


@pytest.fixture
def router_file(searched: Path) -> Path:
    """The plugin file of the study, as it was used."""
    path = searched / "every_third.py"
    path.write_text(ROUTER)
    return path


@pytest.fixture
def study(cli: Cli, searched: Path, tmp_path: Path) -> Path:
    """The file of the study, with a database of this test's own that holds its results."""
    shutil.copy(searched / "crossbreed.db", tmp_path)
    return searched / "tiny.yaml"


def short(text: str, tmp_path: Path) -> str:
    path = tmp_path / "another.py"
    path.write_text(text)
    return PluginFile.read(path).sha256[:12]


def test_an_edited_file_is_said_once_and_its_runs_are_told_apart(
    cli: Cli, tmp_path: Path, router_file: Path, study: Path
) -> None:
    old, new = short(ROUTER, tmp_path), short(EDITED, tmp_path)
    assert "older text" not in cli("front", "--all").out
    router_file.write_text(EDITED)
    again = ("search", study, "--executor", "inline", "--plugin", router_file)
    changed = cli(*again)
    assert changed.code == 0, changed.err
    (sentence,) = (line for line in changed.err.splitlines() if "has changed" in line)
    assert (
        f"Plugin file '{router_file}' has changed since study 'tiny' used it (sha256 {old} then, {new} now)"
        in sentence
    )
    assert "1 candidate has runs of an older text" in sentence
    assert "has changed" not in cli(*again).err
    front = cli("front", "--all")
    assert f"an older text of plugin file {router_file} (sha256 {old}; last used: {new})" in front.out
    assert "the numbers of candidate 0." in front.out
    (text,) = cli("front", "--all", "--json").json("front")["older_plugins"]
    assert (text["sha256"][:12], text["now"][:12], text["numbers"], text["chosen"]) == (old, new, [0], [])
    # Back to the first text, whose runs are there: nothing on the front is of an older one any more.
    router_file.write_text(ROUTER)
    assert f"(sha256 {new} then, {old} now): no candidates have runs of an older text" in cli(*again).err
    assert "older text" not in cli("front", "--all").out


def test_report_runs_of_a_new_text_show_that_an_old_one_chose_their_setting(
    cli: Cli, tmp_path: Path, router_file: Path, study: Path
) -> None:
    with Repository.open("crossbreed.db") as repository, repository.database.writing() as session:
        # As if the search had ended before the fresh run that reports the candidate.
        session.connection().exec_driver_sql("DELETE FROM run WHERE role = 'report'")
    router_file.write_text(EDITED)
    assert cli("search", study, "--executor", "inline", "--plugin", router_file).code == 0
    (text,) = cli("front", "--all", "--json").json("front")["older_plugins"]
    assert (text["numbers"], text["chosen"]) == ([], [0])
    assert "the run that chose the setting of candidate 0." in cli("front", "--all").out


def test_a_command_without_the_file_names_the_file_to_give(
    cli: Cli, tmp_path: Path, router_file: Path, study: Path
) -> None:
    genome = tmp_path / "genome.yaml"
    genome.write_text(yaml.safe_dump({"vocab": 16, **GATED}))
    sentence = f"router 'every_third' comes from plugin file {router_file}, which was not given; add --plugin {router_file}"
    for command in (
        ("show", genome),
        ("cost", "tiny/0"),
        ("match", "tiny/0", "--budget", study),
        ("compare", genome, "--budget", study),
        ("reproduce", "tiny/0/0"),
    ):
        refused = cli(*command)
        assert refused.code == 2, command
        assert sentence in refused.err, command
    assert sentence in cli("show", "tiny/0").err
    resumed = cli("search", study, "--executor", "inline")
    assert resumed.code == 2
    assert f"study 'tiny' uses plugin file '{router_file}'" in resumed.err
    assert f"add --plugin {router_file}" in resumed.err
    # What is wrong before any plugin is met is said first.
    missing = cli("compare", "nosuch.yaml", "--budget", study)
    assert "genome file 'nosuch.yaml' does not exist" in missing.err


def test_a_run_is_reproduced_without_plugins_that_only_the_search_names(
    cli: Cli, tmp_path: Path, router_file: Path
) -> None:
    study = write_study(
        tmp_path / "tiny.yaml",
        space={"routers": ["every_third"]},
        search={"trials": 0, "seeds": 1},
    )
    assert cli("search", study, "--executor", "inline", "--plugin", router_file).code == 0
    assert cli("reproduce", "tiny/0/0").code == 0
    unknown = cli("reproduce", "tiny/9/0")
    assert (
        "run 'tiny/9/0' does not exist: study 'tiny' has no candidate 9; they are numbered from 0 to 0."
        in unknown.err
    )


def test_a_file_that_was_installed_meanwhile_is_one_sentence_that_tells_how_to_go_on(
    cli: Cli, router_file: Path, study: Path, site: Path
) -> None:
    install(site, "crossbreed-every-third", ROUTER)
    for given in ((), ("--plugin", router_file)):
        refused = cli("search", study, "--executor", "inline", *given)
        assert refused.code == 2
        (sentence,) = refused.err.strip().splitlines()
        assert (
            "whose router 'every_third' is offered by the installed crossbreed-every-third 1.0 now"
            in sentence
        )
        assert (
            "uninstall crossbreed-every-third or keep what is installed out with --no-third-party" in sentence
        )
        assert (f"add --plugin {router_file}" in sentence) == (not given)
        assert "start a study under another name" in sentence
    reproduced = cli("reproduce", "tiny/0/0")
    assert (
        "but here it is of crossbreed-every-third 1.0; give the same plugin file with --plugin"
        in reproduced.err
    )
    assert "keep what is installed out with --no-third-party" in reproduced.err
    collides = cli("reproduce", "tiny/0/0", "--plugin", router_file)
    assert "rename or remove one of them, or keep what is installed out with --no-third-party" in collides.err
    kept_out = ("--no-third-party", "--plugin", router_file)
    assert cli("search", study, "--executor", "inline", *kept_out).code == 0
