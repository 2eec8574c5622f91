import math

import pytest
from sqlalchemy import text

from crossbreed.core.errors import ConfigError, StorageError, UnknownName
from crossbreed.storage import Repository
from tests.storage.material import Ledgerish, add_run, add_trial, digest


def test_numbers_run_from_zero_in_each_study_and_go_on_after_reopening(url: str) -> None:
    with Repository.open(url) as repository:
        a, b = repository.create_study("a", {}), repository.create_study("b", {})
        assert [add_trial(repository, a.id, n).number for n in "xyz"] == [0, 1, 2]
        assert add_trial(repository, b.id, "x").number == 0
    with Repository.open(url) as repository:
        assert add_trial(repository, a.id, "w").number == 3


def test_a_trial_comes_back_as_it_was_stored(repository: Repository) -> None:
    study = repository.create_study("s", {})
    certificate = {"feasible": False, "quantities": [{"residual": 0.31}]}
    made = add_trial(
        repository,
        study.id,
        state="infeasible",
        cause="parameters cannot rise",
        certificate=certificate,
        ledger=Ledgerish(7, {"0.0.0.gate": (0.6, 0.4)}),
        draws={"layers": 2, "lr": math.inf},
    )
    assert repository.trial(study.id, 0) == made
    assert (made.state, made.cause, made.certificate) == ("infeasible", "parameters cannot rise", certificate)
    assert made.ledger == {"parameters": 7, "rates": {"0.0.0.gate": [0.6, 0.4]}}
    assert made.draws == {"layers": 2, "lr": None}


def test_one_architecture_is_one_row_in_all_studies(repository: Repository) -> None:
    a, b = repository.create_study("a", {}), repository.create_study("b", {})
    for study in (a, a, b):
        add_trial(repository, study.id, "same")
    with repository.database.reading() as session:
        assert session.scalar(text("SELECT count(*) FROM architecture")) == 1
    found = repository.find_trial(a.id, digest("same"))
    assert found is not None
    assert found.number == 0
    assert repository.find_trial(a.id, digest("other")) is None


def test_a_misspelt_state_is_refused_with_the_nearest(sqlite_repository: Repository) -> None:
    study = sqlite_repository.create_study("s", {})
    with pytest.raises(UnknownName, match="'infeasible'"):
        add_trial(sqlite_repository, study.id, state="infeasable")
    assert sqlite_repository.trials(study.id) == []


def test_trials_can_be_asked_for_by_state(repository: Repository) -> None:
    study = repository.create_study("s", {})
    add_trial(repository, study.id, "a")
    late = add_trial(repository, study.id, "b")
    repository.set_trial_state(late.id, "failed", "exception: KeyError: 'x'")
    assert [(t.number, t.cause) for t in repository.trials(study.id, ["failed", "done"])] == [
        (1, "exception: KeyError: 'x'")
    ]
    assert [t.number for t in repository.trials(study.id)] == [0, 1]


def test_a_trial_with_runs_follows_them(repository: Repository) -> None:
    run = add_run(repository)
    with pytest.raises(StorageError, match="has runs"):
        repository.set_trial_state(run.trial_id, "failed")


def test_an_architecture_is_found_by_a_prefix_of_its_hash(repository: Repository) -> None:
    study = repository.create_study("s", {})
    for tail in ("0", "1"):
        add_trial(repository, study.id, hash="abcd" + tail * 60, genome={"tail": tail})
    assert repository.architecture("ABCD0").genome == {"tail": "0"}
    assert repository.architecture("abcd" + "1" * 60).genome == {"tail": "1"}
    with pytest.raises(ConfigError, match="several"):
        repository.architecture("abcd")
    with pytest.raises(UnknownName, match="architecture 'dead'"):
        repository.architecture("dead")
    for prefix in ("abc", "xyzw", "ab%d"):
        with pytest.raises(ConfigError, match="hexadecimal"):
            repository.architecture(prefix)


def test_an_unknown_number_is_a_sentence(sqlite_repository: Repository) -> None:
    study = sqlite_repository.create_study("s", {})
    with pytest.raises(StorageError, match="study 's' has no candidate 3; it has none"):
        sqlite_repository.trial(study.id, 3)


def test_a_genome_without_a_trial_can_be_kept_and_named(repository: Repository) -> None:
    study = repository.create_study("s", {})
    add_trial(repository, study.id, "a")
    for name in ("a", "b", "b"):
        repository.add_architecture(digest(name), {"vocab": 64, "name": name})
    assert repository.architecture(digest("b")[:12]).genome["name"] == "b"
    assert len(repository.trials(study.id)) == 1


def test_genomes_are_read_of_the_trials_that_are_asked_for(repository: Repository) -> None:
    study = repository.create_study("s", {}).id
    for number in range(3):
        add = {"hash": f"{number:064x}", "genome": {"width": number}, "family": "f", "origin": "start"}
        repository.add_trial(study, **add)
    assert repository.genomes(study, [0, 2]) == {0: {"width": 0}, 2: {"width": 2}}
    assert repository.genomes(study, []) == {}
