"""Models for the model's tests: float64, with settled routers, so that every choice is taken somewhere."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.genome import Architecture
from crossbreed.core.host import Host
from crossbreed.core.model.language_model import LanguageModel
from tests.support.passes import loud_model


@pytest.fixture(scope="session")
def builtins():
    return Host.load(third_party=False)


@pytest.fixture
def build(builtins):
    def make(architecture: Architecture, seed: int = 0) -> LanguageModel:
        return loud_model(architecture, builtins, seed)

    return make


@pytest.fixture
def tokens():
    return torch.randint(0, 23, (3, 19), generator=torch.Generator().manual_seed(1))
