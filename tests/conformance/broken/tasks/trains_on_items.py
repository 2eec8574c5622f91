"""One row of every step is an evaluation item."""

from crossbreed import hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "overlap"


class Broken(Echo):
    def train_batch(self, seed, step, size):
        batch = super().train_batch(seed, step, size)
        leaked = 1  # right: leaked = 0
        batch.tokens_BT[:leaked] = self.items()[:leaked]
        batch.labels_BT[:leaked] = self.labels(self.items())[:leaked]
        return batch


@hookimpl
def register_tasks():
    return offered(Broken)
