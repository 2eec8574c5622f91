"""Study files: every mistake is a sentence with the name, the value and the rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from crossbreed.core.errors import ConfigError, MissingCapability, UnknownName
from crossbreed.core.host import Host, Registry
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import resolve
from tests.core.search.material import plugin, study_data, toy_registry
from tests.core.search.routers import COIN


@pytest.fixture(scope="module")
def toys() -> Registry:
    return toy_registry()


def changed(path: str, value: Any) -> dict[str, Any]:
    data = study_data()
    *parents, last = path.split(".")
    place = data
    for key in parents:
        place = place.setdefault(key, {})
    place[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("sarch", {}, r"unknown key 'sarch'; did you mean 'search'"),
        ("search.smapler", "tpe", r"unknown key 'search.smapler'; did you mean 'sampler'"),
        ("search.sampler", "nsga-2", r"unknown sampler 'nsga-2'; did you mean 'nsga2'"),
        ("search.trials", -1, "search.trials must be at least 0, got -1"),
        ("train.tokens", 0, r"train.tokens must be at least 1, got 0"),
        ("objectives", {"speed": "max"}, r"unknown objective 'speed'"),
        ("objectives", {}, r"at least one objective"),
        ("objectives", {"decode_tokens_per_s": "min"}, r"is a speed; its direction is 'max'"),
        ("name", "a/b", r"letters, digits"),
        (
            "search.devices_per_trial",
            3,
            r"train.batch is \d+, but search.devices_per_trial is 3; .*must be divisible",
        ),
        (
            "search",
            {"per_gpu": 4, "devices_per_trial": 2},
            r"per_gpu is 4 and devices_per_trial is 2; .*one of them must be 1",
        ),
        ("schema", 2, r"schema.*got 2"),
        ("budget.reference", None, r"without a reference genome needs values.memory_bytes"),
    ],
)
def test_mistakes_in_the_file(path: str, value: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        StudyFile.read(changed(path, value), "study.yaml")


@pytest.mark.parametrize(
    ("path", "value", "error", "sentence"),
    [
        ("space.mixers", ["atention"], UnknownName, r"unknown mixer 'atention'; did you mean 'attention'"),
        ("space.routers", "lerned", UnknownName, r"unknown router 'lerned'; did you mean 'learned'"),
        ("space.name", "toi", UnknownName, r"unknown search space 'toi'; did you mean 'toy'"),
        ("space.params", {"with": 1}, ConfigError, r"unknown key 'with'; did you mean 'widths'"),
        ("task.name", "recal", UnknownName, r"unknown task 'recal'; did you mean 'recall'"),
        ("task.params", {"pairs": 40, "length": 16}, ConfigError, r"task 'recall'.*length"),
        ("budget.match", {"flops": "2%"}, ConfigError, r"unknown quantity 'flops'"),
        ("budget.cap", {"memory_bytes": "200%"}, ConfigError, r"tolerance of 'memory_bytes'.*'200%'"),
        ("budget.shape", {"dtype": "float8"}, ConfigError, r"unknown dtype 'float8'"),
        ("budget.reference.vocab", 99, ConfigError, r"vocab 99, but task 'recall' has 24 tokens"),
        ("budget.reference.d_modell", 9, ConfigError, r"unknown key 'd_modell'; did you mean 'd_model'"),
        ("objectives", {"score": "min"}, ConfigError, r"objectives.score is 'min', but task 'recall'"),
        (
            "search",
            {"backend": "cuda"},
            ConfigError,
            r"search.backend is 'cuda'; it must be one .*: .*fla.*sdpa",
        ),
    ],
)
def test_mistakes_that_need_the_plugins(
    toys: Registry, path: str, value: Any, error: type[ConfigError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        resolve(StudyFile.read(changed(path, value)), toys)


def test_a_file_on_disk_with_a_reference_beside_it(tmp_path: Path, toys: Registry) -> None:
    data = study_data()
    reference = data["budget"]["reference"]
    (tmp_path / "reference.yaml").write_text(yaml.safe_dump(reference))
    data["budget"]["reference"] = "reference.yaml"
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(data))
    study = StudyFile.load(tmp_path / "study.yaml")
    assert study == StudyFile.read(study_data())
    assert StudyFile.read(study.as_data()) == study
    setting = resolve(study, toys)
    assert setting.reference is not None
    assert setting.reference.vocab == 24
    assert setting.budget.shape.tokens == 16
    assert setting.setting.d_model == 16


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"study file '.*none.yaml' does not exist"):
        StudyFile.load(tmp_path / "none.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: x\ntask: [1, 2\n")
    with pytest.raises(ConfigError, match=r"not valid YAML at line \d"):
        StudyFile.load(bad)
    bad.write_text("- a list\n")
    with pytest.raises(ConfigError, match="must be a mapping"):
        StudyFile.load(bad)
    data = study_data()
    data["budget"]["reference"] = "gone.yaml"
    bad.write_text(yaml.safe_dump(data))
    with pytest.raises(
        ConfigError,
        match=r"reference genome 'gone.yaml' is neither a file \('.*gone.yaml' does not exist\) nor a preset",
    ):
        StudyFile.load(bad)


def test_a_budget_in_numbers_needs_a_width(toys: Registry) -> None:
    data = study_data()
    data["budget"] = {"cap": {"memory_bytes": 0.1}, "values": {"memory_bytes": 20000.0}}
    with pytest.raises(ConfigError, match="needs d_model"):
        StudyFile.read(data)
    data["budget"]["d_model"] = 16
    setting = resolve(StudyFile.read(data), toys)
    assert setting.reference is None
    assert setting.setting.d_model == 16
    assert setting.budget.target("memory_bytes") == 20000.0


def test_all_takes_what_is_registered_and_capable(toys: Registry) -> None:
    blind = COIN.replace("RouterCapabilities(", "RouterCapabilities(causal=False, ")
    setting = resolve(StudyFile.read(study_data()), toy_registry(plugin("coin.py", blind)))
    assert "learned" in setting.setting.routers
    assert "coin" not in setting.setting.routers
    assert setting.left_out == ("router 'coin' is not causal; language models are judged token by token.",)
    named = StudyFile.read(changed("space.routers", ["coin"]))
    with pytest.raises(MissingCapability, match="router 'coin' is not causal"):
        resolve(named, toy_registry(plugin("coin.py", blind)))
    lazy = COIN.replace('"coin", Coin,', '"coin", "no_such_module:Coin",')
    setting = resolve(StudyFile.read(study_data()), toy_registry(plugin("coin.py", lazy)))
    assert "coin" not in setting.setting.routers
    assert "failed to import" in setting.left_out[0]


def test_identities_of_a_run_hold_that_of_a_task_of_the_users_own(toys: Registry) -> None:
    setting = resolve(StudyFile.read(study_data()), toys)
    assert setting.reference is not None
    assert not any(part.startswith("task:") for part in setting.identities(setting.reference))
    offer = "from crossbreed import TaskDescriptor, hookimpl\nfrom crossbreed.plugins.tasks.recall import Recall, RecallConfig\n"
    hook = "@hookimpl\ndef register_tasks():\n    return [TaskDescriptor('mine', Recall, RecallConfig, 'recall')]\n"
    file = plugin("mine.py", offer + hook)
    data = study_data()
    own = resolve(StudyFile.read({**data, "task": {**data["task"], "name": "mine"}}), toy_registry(file))
    assert own.identities(setting.reference)["task:mine"] == f"sha256:{file.sha256}"


def test_what_sees_the_labels_is_never_searched(toys: Registry) -> None:
    setting = resolve(StudyFile.read(study_data()), toys)
    assert "oracle" not in setting.setting.routers
    assert not setting.left_out
    named = StudyFile.read(changed("space.routers", ["oracle"]))
    with pytest.raises(MissingCapability, match="router 'oracle' looks at the labels"):
        resolve(named, toys)


def test_a_study_may_grow_but_not_change_what_it_measures() -> None:
    stored = StudyFile.read(study_data())
    StudyFile.read(study_data(search={"trials": 50}, space={"mixers": ["attention"]})).check_continues(stored)
    for section, change in {
        "train": {"tokens": 4096},
        "task": {"params": {"pairs": 2, "length": 18}},
        "budget": {"cap": {"memory_bytes": "5%"}},
    }.items():
        other = StudyFile.read(study_data(**{section: change}))
        with pytest.raises(ConfigError, match=rf"exists with another '{section}' section"):
            other.check_continues(stored)


def test_the_study_file_that_init_writes_is_readable(tmp_path: Path) -> None:
    from crossbreed.cli.init import study_text

    file = tmp_path / "study.yaml"
    file.write_text(study_text("fresh", Host.load(third_party=False)))
    assert StudyFile.load(file).name == "fresh"


def test_a_study_frees_dimensions_and_gives_values_with_units(toys: Registry) -> None:
    data = changed("budget.free", {"d_model": "8..64:8", "attention.heads": None})
    data["budget"]["values"] = {"memory_bytes": "10 MB"}
    file = StudyFile.read(data)
    assert StudyFile.read(file.as_data()) == file
    budget = resolve(file, toys).budget
    assert budget.free["attention.heads"] is None
    assert budget.free["d_model"] is not None
    assert budget.free["d_model"].high == 64
    assert budget.target("memory_bytes") == 10_000_000


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("budget.free", ["d_modell"], r"unknown free dimension 'd_modell'; did you mean 'd_model'"),
        ("budget.free", {"d_model": "9..3"}, r"a span is LOW..HIGH"),
        (
            "budget.values",
            {"memory_bytes": 8},
            r"reference is itself outside the budget: memory_bytes is \+.*Change values.memory_bytes or the reference",
        ),
        ("budget.values", {"memory_bytes": "10M"}, r"units it takes: none, B, kB"),
    ],
)
def test_a_budget_that_nothing_could_meet_is_refused_before_the_search(
    toys: Registry, path: str, value: Any, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        resolve(StudyFile.read(changed(path, value)), toys)
