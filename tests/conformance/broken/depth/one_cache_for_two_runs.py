"""Every block runs twice at one depth, on one cache."""

from crossbreed import hookimpl
from tests.conformance.small_parts.depth import Loop, offered

BREAKS = "caches-by-depth"


class Broken(Loop):
    def order(self, blocks):
        times = 2  # right: times = 1
        return list(range(blocks)) * times


@hookimpl
def register_depth_policies():
    return offered(Broken)
