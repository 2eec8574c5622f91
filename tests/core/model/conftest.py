"""Models for the model's tests: float64, with settled routers, so that every choice is taken somewhere."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.genome import Architecture
from crossbreed.core.host import Host
from crossbreed.core.model.language_model import LanguageModel


@pytest.fixture(scope="session")
def builtins():
    return Host.load(third_party=False)


@pytest.fixture
def build(builtins):
    def make(architecture: Architecture, seed: int = 0) -> LanguageModel:
        """A float64 model with larger weights than usual, so that tokens differ and zero-initialised parts speak."""
        model = LanguageModel(architecture, builtins, seed=seed).double()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_(0.1 * noise)
            model.embedding.weight.mul_(8)
        return model.eval()

    return make


@pytest.fixture
def tokens():
    return torch.randint(0, 23, (3, 19), generator=torch.Generator().manual_seed(1))
