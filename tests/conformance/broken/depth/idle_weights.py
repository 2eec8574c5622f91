"""A set of weights is stored for every depth, and one is used."""

from crossbreed import hookimpl
from tests.conformance.small_parts.depth import Loop, offered

BREAKS = "weights"


class Broken(Loop):
    def weight_sets(self, repeats):
        return repeats  # right: return 1


@hookimpl
def register_depth_policies():
    return offered(Broken)
