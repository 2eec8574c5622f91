"""Sizes are part of a family's name."""

from crossbreed import hookimpl
from tests.conformance.small_parts.spaces import Tower, offered

BREAKS = "movable"


class Broken(Tower):
    def family(self, architecture):
        mixer = architecture.stages[0].blocks[0].sublayers[0]
        return f"{mixer.mixer} {mixer.params}"  # right: return f"{mixer.mixer} by itself"


@hookimpl
def register_search_spaces():
    return offered(Broken)
