"""The global random generators of torch, numpy and Python, which no plugin may take numbers from."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed all three."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def generators() -> tuple[bytes, bytes, object]:
    """The states of all three, to be compared."""
    numpy: Any = np.random.get_state(legacy=False)
    return (
        torch.get_rng_state().numpy().tobytes(),
        numpy["state"]["key"].tobytes() + bytes(str(numpy["state"]["pos"]), "ascii"),
        random.getstate(),
    )
