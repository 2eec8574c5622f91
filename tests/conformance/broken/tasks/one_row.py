"""All rows of a training batch are the first one."""

from crossbreed import Batch, hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "seeded"


class Broken(Echo):
    def train_batch(self, seed, step, size):
        batch = super().train_batch(seed, step, size)
        rows = [0] * size  # right: rows = list(range(size))
        return Batch(batch.tokens_BT[rows], batch.labels_BT[rows])


@hookimpl
def register_tasks():
    return offered(Broken)
