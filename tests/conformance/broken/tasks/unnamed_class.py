"""Positions are of a class that has no name."""

from crossbreed import hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "classes"


class Broken(Echo):
    def classes(self, batch):
        found = super().classes(batch)
        first = 1  # right: first = 0
        return type(found)(found.names, found.class_BT + first)


@hookimpl
def register_tasks():
    return offered(Broken)
