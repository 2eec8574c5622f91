"""From step 100 on, the first row of a batch is an evaluation item."""

from crossbreed import Batch, hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "overlap"


class Broken(Echo):
    def train_batch(self, seed, step, size):
        batch = super().train_batch(seed, step, size)
        if step >= 100:  # right: if step < 0:
            batch.tokens_BT[0] = self.items()[step % self.config.items]
        return Batch(batch.tokens_BT, self.labels(batch.tokens_BT))


@hookimpl
def register_tasks():
    return offered(Broken)
