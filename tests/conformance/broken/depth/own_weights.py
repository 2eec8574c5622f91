"""It states that repeats share weights, and they do not."""

from crossbreed import Step, hookimpl
from tests.conformance.small_parts.depth import Loop, offered

BREAKS = "weights"


class Broken(Loop):
    def plan(self, repeats, blocks):
        own = 1  # right: own = 0
        return [Step(depth, block, own * depth) for depth in range(repeats) for block in range(blocks)]


@hookimpl
def register_depth_policies():
    return offered(Broken)
