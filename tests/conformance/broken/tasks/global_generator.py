"""Training rows come from numpy's generator."""

import numpy as np

from crossbreed import hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "seeded"


class Broken(Echo):
    def generator(self, *key):
        drawn = np.random.randint(1 << 30) if key[0] else 0  # right: drawn = 0
        return np.random.default_rng((*key, drawn))


@hookimpl
def register_tasks():
    return offered(Broken)
