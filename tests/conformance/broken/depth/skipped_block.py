"""The last of several blocks never runs."""

from crossbreed import hookimpl
from tests.conformance.small_parts.depth import Loop, offered

BREAKS = "plan"


class Broken(Loop):
    def order(self, blocks):
        last = max(1, blocks - 1)  # right: last = blocks
        return range(last)


@hookimpl
def register_depth_policies():
    return offered(Broken)
