"""Every step trains on the same rows."""

from crossbreed import hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "seeded"


class Broken(Echo):
    def train_batch(self, seed, step, size):
        step = 0  # right: step = int(step)
        return super().train_batch(seed, step, size)


@hookimpl
def register_tasks():
    return offered(Broken)
