"""Routers are drawn for a gate whatever their sites."""

from crossbreed import hookimpl
from tests.conformance.small_parts.spaces import Tower, offered

BREAKS = "legal-points"


class Broken(Tower):
    def gates(self, setting):
        gates = ["nothing"]  # right: gates = super().gates(setting)
        return gates


@hookimpl
def register_search_spaces():
    return offered(Broken)
