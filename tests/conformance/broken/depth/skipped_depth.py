"""Depths are counted in twos."""

from crossbreed import Step, hookimpl
from tests.conformance.small_parts.depth import Loop, offered

BREAKS = "plan"


class Broken(Loop):
    def plan(self, repeats, blocks):
        stride = 2  # right: stride = 1
        return [Step(stride * depth, block, 0) for depth in range(repeats) for block in range(blocks)]


@hookimpl
def register_depth_policies():
    return offered(Broken)
