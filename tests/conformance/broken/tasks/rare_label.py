"""One row in a hundred has a label beyond the vocabulary."""

from crossbreed import hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "batches"


class Broken(Echo):
    def labels(self, tokens_BT):
        labels_BT = super().labels(tokens_BT)
        rare_B = tokens_BT[:, :3].sum(1) == 0
        labels_BT[rare_B, -1] = self.vocab  # right: labels_BT[rare_B, -1] = labels_BT[rare_B, -1]
        return labels_BT


@hookimpl
def register_tasks():
    return offered(Broken)
