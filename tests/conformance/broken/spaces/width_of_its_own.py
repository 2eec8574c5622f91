"""The width is the space's and not the study's."""

from crossbreed import hookimpl
from tests.conformance.small_parts.spaces import Tower, offered

BREAKS = "legal-points"


class Broken(Tower):
    def width(self, setting):
        return 64  # right: return setting.d_model


@hookimpl
def register_search_spaces():
    return offered(Broken)
