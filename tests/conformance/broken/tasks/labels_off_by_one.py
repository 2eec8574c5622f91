"""Labels stand one position early."""

from crossbreed import hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "solver"


class Broken(Echo):
    def labels(self, tokens_BT):
        early = 1  # right: early = 0
        return super().labels(tokens_BT).roll(-early, 1)


@hookimpl
def register_tasks():
    return offered(Broken)
