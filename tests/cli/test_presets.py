"""Presets on the command line: listed, shown, and taken wherever a genome is."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from crossbreed.core.host import Host
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import resolve
from crossbreed.presets import preset, presets
from tests.cli.conftest import Cli
from tests.cli.studies import write_study


def test_presets_are_listed_with_what_they_are(cli: Cli) -> None:
    result = cli("presets")
    assert result.code == 0
    for name in presets():
        assert f" {name} " in result.out
    assert "amor rivals" in result.out
    some = cli("presets", "oryx-tm")
    assert "oryx-tm-130m" in some.out
    assert "amor" not in some.out


def test_listed_as_json(cli: Cli) -> None:
    listed = cli("presets", "--json").json("presets")["presets"]
    assert [item["name"] for item in listed] == list(presets())
    known = {item["name"]: item["published"] for item in listed}
    assert known["amor-gdn-180m"][0]["value"] == 181_967_832


def test_a_filter_without_a_match_is_refused_with_the_families(cli: Cli) -> None:
    result = cli("presets", "orix-tm-130m")
    assert result.code == 2
    assert "families: amor, oryx" in result.err
    assert "did you mean 'oryx-tm-130m'?" in result.err


def test_a_preset_is_shown_with_the_figures_of_its_source(cli: Cli) -> None:
    shown = cli("show", "oryx-tm-380m", "--json").json("show")
    assert shown["preset"] == "oryx-tm-380m"
    (figure,) = shown["published"]
    assert figure["counted"] - figure["value"] == 24_576
    assert shown["bookkeeping"]["shared_of_active"] == pytest.approx(12 / 13, rel=1e-4)
    text = cli("show", "oryx-tm-380m").out
    for words in ("378,618,880", "378,643,456", "+24,576", "92.31%", "85.72%", "13 D^2 L"):
        assert words in text


def test_showing_a_preset_builds_no_weights(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a module was built")

    monkeypatch.setattr(torch.nn.Module, "__init__", refuse)
    assert cli("show", "amor-gdn-1.5b").code == 0


def test_a_misspelt_preset_names_the_nearest(cli: Cli) -> None:
    result = cli("show", "amor-gdn-180")
    assert result.code == 2
    assert "is neither a file, a preset, a candidate as STUDY/NUMBER nor a hash prefix" in result.err
    assert "did you mean 'amor-gdn-180m'?" in result.err


def test_a_file_goes_before_a_preset_of_its_name(cli: Cli, tmp_path: Path) -> None:
    tiny = {
        "vocab": 9,
        "d_model": 8,
        "stages": [{"blocks": [{"sublayers": [{"mixer": "swiglu"}]}]}],
    }
    (tmp_path / "amor-gdn-180m").write_text(yaml.safe_dump(tiny))
    shown = cli("show", "amor-gdn-180m", "--json").json("show")
    assert shown["architecture"]["vocab"] == 9
    assert shown["preset"] is None


def test_a_study_takes_a_preset_as_its_reference_with_the_task_s_vocabulary(tmp_path: Path) -> None:
    study = yaml.safe_load(write_study(tmp_path / "tiny.yaml").read_text())
    study["budget"]["reference"] = "amor-gdn-mini"
    path = tmp_path / "preset.yaml"
    path.write_text(yaml.safe_dump(study))
    setting = resolve(StudyFile.load(path), Host.load(third_party=False))
    assert setting.reference is not None
    assert setting.reference.vocab == setting.task.vocab
    assert setting.registry.canonical(preset("amor-gdn-mini").build(setting.task.vocab)) == setting.reference


def test_a_budget_file_and_match_take_presets(cli: Cli, tmp_path: Path) -> None:
    budget = {
        "reference": "amor-gdn-mini",
        "shape": {"tokens": 64},
        "match": {"parameters": "1%"},
    }
    (tmp_path / "budget.yaml").write_text(yaml.safe_dump(budget))
    matched = cli("match", "serial-gdn-mini", "--budget", "budget.yaml", "--json").json("match")
    assert matched["feasible"]
    assert matched["architecture"]["vocab"] == 512
    budget["reference"] = "amor-gdn-minni"
    (tmp_path / "budget.yaml").write_text(yaml.safe_dump(budget))
    refused = cli("match", "serial-gdn-mini", "--budget", "budget.yaml")
    assert refused.code == 2
    assert "did you mean 'amor-gdn-mini'?" in refused.err
