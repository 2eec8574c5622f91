"""Every preset is legal, is built on the meta device, and has the parameters that the ledger counts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import digest
from crossbreed.core.host import Registry
from crossbreed.core.ledger import Shape
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.presets import preset, presets


@pytest.mark.parametrize("name", presets())
def test_a_meta_model_has_the_parameters_of_the_ledger(registry: Registry, name: str) -> None:
    architecture = registry.canonical(presets()[name].build())
    with torch.device("meta"):
        model = LanguageModel(architecture, registry)
    costs = registry.factory("cost", "analytic")(None, registry)
    ledger = costs.estimate(architecture, Shape(1, 64))
    assert ledger.parameters == sum(p.numel() for p in model.parameters())


def test_names_are_words_and_no_two_presets_of_one_family_are_equal(registry: Registry) -> None:
    seen: dict[str, str] = {}
    for name, found in presets().items():
        assert name == found.name
        assert name == name.lower()
        assert " " not in name
        architecture = digest(registry.canonical(found.build()))
        assert architecture not in seen, f"{name} and {seen.get(architecture)} are one architecture"
        seen[architecture] = name


def test_a_vocabulary_replaces_the_published_one() -> None:
    found = preset("amor-gdn-180m")
    assert found.build().vocab == 128_256
    small = found.build(48)
    assert small.vocab == 48
    assert small.stages == found.build().stages


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown preset 'oryx-tm-130'; did you mean 'oryx-tm-130m'\?"):
        preset("oryx-tm-130")
    with pytest.raises(ConfigError, match="unknown preset 'zzz'; `crossbreed presets` lists them"):
        preset("zzz")


def test_building_every_preset_imports_no_torch() -> None:
    code = (
        "import sys, json; from crossbreed.presets import presets; "
        "[p.build() for p in presets().values()]; print(json.dumps('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) is False
