"""Chance is said to be twice what it is."""

from crossbreed import hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "chance"


class Broken(Echo):
    @property
    def chance(self):
        return 2.0 / self.vocab  # right: return 1.0 / self.vocab


@hookimpl
def register_tasks():
    return offered(Broken)
