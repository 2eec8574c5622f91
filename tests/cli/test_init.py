from __future__ import annotations

from pathlib import Path

import yaml

from crossbreed.core.host import Host
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import resolve
from tests.cli.conftest import Cli


def test_the_study_file_it_writes_is_one_that_can_be_searched(cli: Cli, tmp_path: Path) -> None:
    result = cli("init", "first.yaml")
    assert (result.code, result.out) == (0, "first.yaml\n")
    file = StudyFile.load(tmp_path / "first.yaml")
    assert file.name == "first"
    registry = Host.load()
    setting = resolve(file, registry)
    assert setting.setting.mixers == tuple(registry.names("mixer"))
    assert setting.budget.values["training_flops_per_token"] > 0


def test_its_comments_name_what_is_registered_now(cli: Cli, tmp_path: Path, router_file: Path) -> None:
    cli("init", "--plugin", router_file)
    routers = next(line for line in Path("study.yaml").read_text().splitlines() if "routers:" in line)
    assert "every_third" in routers
    assert "entropy_gate" in routers
    # A search never proposes what sees the labels, or what is fitted after training.
    assert "oracle" not in routers
    assert "distilled" not in routers
    assert Path("study.yaml").read_text().count("#") > 10


def test_a_file_that_exists_is_kept_unless_forced(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("precious")
    result = cli("init")
    assert result.code == 2
    assert "'study.yaml' exists" in result.err
    assert "--force" in result.err
    assert path.read_text() == "precious"
    assert cli("init", "--force").code == 0
    assert yaml.safe_load(path.read_text())["schema"] == 1


def test_a_name_that_studies_cannot_have_is_made_one(cli: Cli, tmp_path: Path) -> None:
    cli("init", "my first study.yaml")
    assert StudyFile.load(tmp_path / "my first study.yaml").name == "my-first-study"
    cli("init", "2024.yaml")
    assert StudyFile.load(tmp_path / "2024.yaml").name == "2024"


def test_a_folder_that_is_not_there_is_named(cli: Cli) -> None:
    result = cli("init", "nowhere/study.yaml")
    assert result.code == 2
    assert "study file 'nowhere/study.yaml' cannot be written: No such file or directory." in result.err
