"""Importing a checkpoint and asking for its logits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from crossbreed.core.host import Registry
from crossbreed.foreign.files import read
from crossbreed.foreign.formats import Imported, import_model


@pytest.fixture
def imported(registry: Registry) -> Callable[..., Imported]:
    def load(path: Path, format: str = "auto", **settings: Any) -> Imported:
        return import_model(read(path, settings), registry, format)

    return load


@torch.no_grad()
def logits(found: Imported, tokens: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    model = found.model.to(dtype)
    return model.logits(model(tokens, model.context(tokens))[0])
