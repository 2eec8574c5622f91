"""Grid and list over a real database: each entry once, an end in a sentence, and restarts that go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from crossbreed.core.errors import ConfigError
from crossbreed.core.host import Registry
from crossbreed.core.search.driver import Driver, DriverOptions
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import StudySetting
from crossbreed.storage import Repository
from tests.core.search.material import Scripted, by_number, drive, setting, study_data

BLOCK = {
    "sublayers": [
        {"mixer": "attention", "params": {"heads": 1, "head_size": 16}},
        {"mixer": "swiglu", "params": {"hidden": 20}},
    ]
}
PLAIN = {"d_model": 16, "stages": [{"blocks": [BLOCK]}]}


def driven(database: Path, study: StudySetting, options: DriverOptions | None = None) -> tuple[Driver, str]:
    """One session whose driver stays to be asked what ended it."""
    repository = Repository.open(str(database))
    row = repository.find_study(study.file.name) or repository.create_study(
        study.file.name, study.file.as_data()
    )
    driver = Driver(repository, row.id, study, lambda spool: Scripted(), options or DriverOptions())
    return driver, driver.run()


def test_the_grid_is_trained_once_each_and_ends_with_a_sentence(database: Path, toys: Registry) -> None:
    study = setting(toys, search={"sampler": "grid", "trials": 50, "seeds": 1})
    driver, end = driven(database, study)
    rows = by_number(driver.repository, driver.study_id)
    assert end == "done"
    assert driver.ended_by == "The grid is exhausted: every legal draw of the space was proposed."
    # Six widths; 32 is the reference's, so that draw is passed over without being trained again.
    assert sorted(int(r.family.split()[1]) for r in rows.values()) == [8, 16, 24, 32, 40, 48]
    assert all(sum(s.role == "tune" for s in r.seeds) == 1 for r in rows.values())
    assert driven(database, study)[1] == "done"
    assert len(by_number(driver.repository, driver.study_id)) == 6


def test_a_grid_goes_on_where_it_was_and_grows_with_its_space(database: Path, toys: Registry) -> None:
    few = setting(toys, search={"sampler": "grid", "trials": 3, "seeds": 1})
    drive(database, few, Scripted())
    more = setting(
        toys,
        space={"params": {"widths": [8, 16, 24, 32, 40, 48, 56]}},
        search={"sampler": "grid", "trials": 50, "seeds": 1},
    )
    end, repository, study = drive(database, more, Scripted())
    rows = by_number(repository, study)
    assert end == "done"
    assert [int(r.family.split()[1]) for r in rows.values()] == [32, 8, 16, 24, 40, 48, 56]


def test_a_list_is_proposed_in_order_and_nothing_else(database: Path, toys: Registry) -> None:
    entries = [{"draws": {"width": 40}}, {"genome": PLAIN}, {"draws": {"width": 40}}, {"draws": {"width": 8}}]
    study = setting(toys, search={"sampler": "list", "proposals": entries, "trials": 9, "seeds": 1})
    driver, end = driven(database, study)
    rows = by_number(driver.repository, driver.study_id)
    assert end == "done"
    assert [r.origin for r in rows.values()] == ["reference", "sampler", "listed", "sampler"]
    assert [r.draws for r in rows.values()] == [{}, {"width": 40}, {}, {"width": 8}]
    assert driver.ended_by == "The list is exhausted: every entry of search.proposals was proposed."
    assert len({r.hash for r in rows.values()}) == 4
    assert drive(database, study, Scripted())[0] == "done"
    assert len(by_number(driver.repository, driver.study_id)) == 4


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (
            {"draws": {"width": 9}},
            r"search\.proposals\[0\]: draw 'width' is 9, which is not in its options 8, 16",
        ),
        ({"draws": {"widht": 8}}, r"draw 'widht' is not asked for by space 'toy'.*did you mean 'width'"),
        ({"genome": {"stages": []}}, r"search\.proposals\[0\]\.genome"),
    ],
)
def test_an_entry_that_cannot_be_proposed_is_named(
    database: Path, toys: Registry, entry: dict[str, Any], sentence: str
) -> None:
    study = setting(toys, search={"sampler": "list", "proposals": [entry]})
    with pytest.raises(ConfigError, match=sentence):
        drive(database, study, Scripted())


def test_proposals_are_read_from_a_file_beside_the_study(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "mine.yaml").write_text(
        yaml.safe_dump([{"genome": "plain.yaml"}, {"draws": {"width": 8}}])
    )
    (tmp_path / "lists" / "plain.yaml").write_text(yaml.safe_dump(PLAIN))
    data = study_data(search={"sampler": "list", "proposals": "lists/mine.yaml"})
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(data))
    found = StudyFile.load(tmp_path / "study.yaml")
    assert found.search.proposals == ({"genome": PLAIN}, {"draws": {"width": 8}})
    assert StudyFile.read(found.as_data()) == found
    (tmp_path / "lists" / "mine.yaml").write_text("width: 8")
    with pytest.raises(ConfigError, match="must be a list of mappings"):
        StudyFile.load(tmp_path / "study.yaml")


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        (
            {"sampler": "list"},
            "proposals belong to sampler 'list' and it needs some; this section names none",
        ),
        ({"sampler": "tpe", "proposals": [{"draws": {}}]}, "this section is 'tpe'"),
        ({"sampler": "list", "proposals": [{"draw": {}}]}, r"proposals\[0\] has 'draw'"),
    ],
)
def test_a_list_and_its_sampler_belong_together(search: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        StudyFile.read(study_data(search=search))
