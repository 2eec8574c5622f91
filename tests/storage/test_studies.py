from datetime import UTC, datetime, timedelta

import pytest

from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.storage import Repository
from tests.storage.material import add_run, add_trial, curve, digest, running


def test_a_study_comes_back_as_it_was_stored(repository: Repository) -> None:
    spec = {"schema": 1, "budget": {"match": {"parameters": "2%"}}, "lists": [1, 2.5, None, "ü"]}
    made = repository.create_study("quick.start-1", spec)
    found = repository.open_study("quick.start-1")
    assert found == made
    assert found.spec == spec
    assert found.created_at.tzinfo is not None
    assert abs(datetime.now(UTC) - found.created_at) < timedelta(seconds=10)


def test_a_name_is_taken_once(repository: Repository) -> None:
    repository.create_study("s", {})
    with pytest.raises(ConfigError, match="'s' is already"):
        repository.create_study("s", {})
    assert len(repository.list_studies()) == 1


@pytest.mark.parametrize("name", ["", "a/b", "-x", "a b", "x" * 101])
def test_a_name_that_would_break_run_keys_is_refused(sqlite_repository: Repository, name: str) -> None:
    with pytest.raises(ConfigError, match="breaks the rule"):
        sqlite_repository.create_study(name, {})


def test_an_unknown_study_names_the_nearest(sqlite_repository: Repository) -> None:
    sqlite_repository.create_study("quickstart", {})
    with pytest.raises(UnknownName, match="did you mean 'quickstart'"):
        sqlite_repository.open_study("quickstrat")


def test_a_study_file_can_change_and_a_reference_point_cannot(repository: Repository) -> None:
    study = repository.create_study("s", {"trials": 12})
    repository.set_spec(study.id, {"trials": 20})
    assert repository.fix_reference_point(study.id, {"score": 0.1}) == {"score": 0.1}
    assert repository.fix_reference_point(study.id, {"score": 0.9}) == {"score": 0.1}
    found = repository.open_study("s")
    assert (found.spec, found.reference_point) == ({"trials": 20}, {"score": 0.1})


def test_plugin_files_are_kept_by_content(repository: Repository) -> None:
    study, other = repository.create_study("s", {}), repository.create_study("t", {})
    for text in ("a = 1\n", "a = 1\n", "a = 2\n"):
        repository.add_plugin_file(study.id, "router.py", digest(text), text)
    repository.add_plugin_file(other.id, "router.py", digest("a = 1\n"), "a = 1\n")
    assert [p.text for p in repository.plugin_files(study.id)] == ["a = 1\n", "a = 2\n"]
    assert [p.sha256 for p in repository.plugin_files(other.id)] == [digest("a = 1\n")]


def test_events_are_read_in_order_and_onward(repository: Repository) -> None:
    study, other = repository.create_study("s", {}), repository.create_study("t", {})
    for i in range(5):
        repository.add_event(study.id, "step", {"i": i})
        repository.add_event(other.id, "noise")
    events = repository.events(study.id)
    assert [e.payload["i"] for e in events] == [0, 1, 2, 3, 4]
    assert [e.payload["i"] for e in repository.events(study.id, after=events[2].id)] == [3, 4]
    assert [e.payload["i"] for e in repository.events(study.id, limit=2)] == [3, 4]


def test_the_stamp_changes_with_every_trial_and_record(repository: Repository) -> None:
    study = repository.create_study("s", {})
    stamps = [repository.stamp(study.id)]
    run = add_run(repository, "s")
    stamps.append(repository.stamp(study.id))
    lease = running(repository, run)
    stamps.append(repository.stamp(study.id))
    repository.record_curve(run.id, lease, curve(0, 3))
    stamps.append(repository.stamp(study.id))
    add_trial(repository, study.id, "b", state="infeasible")
    stamps.append(repository.stamp(study.id))
    assert len(set(stamps)) == 5
    assert repository.stamp(study.id) == stamps[-1]
