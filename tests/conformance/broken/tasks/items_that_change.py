"""Evaluation items are drawn anew each time."""

from crossbreed import hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "evaluation-fixed"


class Broken(Echo):
    def items(self):
        self.calls = getattr(self, "calls", 0) + 1
        call = self.calls  # right: call = 0
        return self.rows(self.generator(0, call), self.config.items, True)


@hookimpl
def register_tasks():
    return offered(Broken)
