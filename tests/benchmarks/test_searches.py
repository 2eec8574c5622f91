"""The searches that the documentation shows: their studies can be begun, and what they found becomes a record and a page."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.searches import summary, text
from crossbreed.core.host import Registry
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import resolve
from tests.core.search.material import Scripted, drive, setting, toy_registry
from tests.docs.pages import generator

STUDIES = sorted((Path(text.__file__).parent).glob("*.yaml"))


@pytest.fixture
def page() -> ModuleType:
    return generator("gpu_search")


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_a_study_can_be_begun(
    file: Path, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["text", "topics.txt"])
    text.main()
    study = StudyFile.load(file)
    assert study.name == file.stem
    found = resolve(study, registry)
    assert found.space.starting_points(found.setting)
    assert 9e6 < found.budget.target("non_embedding_parameters") < 11e6


def test_what_a_search_found_becomes_a_record_and_a_page(
    tmp_path: Path, page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, out = tmp_path / "found.db", tmp_path / "record.json"
    drive(database, setting(toy_registry(), search={"trials": 3, "seeds": 3}), Scripted())[1].close()
    monkeypatch.setattr("sys.argv", ["summary", str(database), "--out", str(out)])
    for _ in range(2):
        summary.main()
    (study,) = json.loads(out.read_text(), parse_constant=pytest.fail)["studies"]
    assert study["hypervolume"] > 0
    front = [c for c in study["candidates"] if c["on_front"]]
    assert front
    assert all(len(c["seeds"]) == 3 and c["objectives"]["score"]["low"] is not None for c in front)
    lines = list(page.section(study))
    rows = [line for line in lines if line.startswith("| ")]
    # Two tables, each with a heading: the front, and all candidates.
    assert len(rows) == 2 + len(front) + len(study["candidates"])
    assert lines[0] == "## tiny"
