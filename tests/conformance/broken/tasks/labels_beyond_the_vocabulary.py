"""Labels are counted from 1, and the largest is no token."""

from crossbreed import hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "batches"


class Broken(Echo):
    def labels(self, tokens_BT):
        labels_BT = super().labels(tokens_BT)
        first = 1  # right: first = 0
        return labels_BT + first * (labels_BT >= 0)


@hookimpl
def register_tasks():
    return offered(Broken)
