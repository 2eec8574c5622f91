"""Random numbers that are a function of what they are for, and hashes of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def generator(*name: object) -> np.random.Generator:
    """A generator keyed by ``name`` alone (counter-based Philox): the same on every worker, no state carried over."""
    text = "/".join(map(str, name)).encode()
    return np.random.Generator(
        np.random.Philox(key=int.from_bytes(hashlib.sha256(text).digest()[:16], "big"))
    )


def row_hashes(rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A 64-bit hash of each row of (N, T) token ids: mixed sums, with a key of its own for every position."""
    keys_T = _mix(np.arange(rows.shape[1], dtype=np.uint64))
    return _mix(_mix(rows.astype(np.uint64) ^ keys_T).sum(axis=1, dtype=np.uint64))


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64; uint64 arrays wrap around."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def digest(arrays: Iterable[NDArray[np.int64]]) -> str:
    """SHA-256 (hex) over shapes and contents."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(str(array.shape).encode())
        total.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return total.hexdigest()
