"""The plan can be gone through once."""

from crossbreed import hookimpl
from tests.conformance.small_parts.depth import Loop, offered

BREAKS = "plan"


class Broken(Loop):
    def plan(self, repeats, blocks):
        steps = super().plan(repeats, blocks)
        return iter(steps)  # right: return steps


@hookimpl
def register_depth_policies():
    return offered(Broken)
