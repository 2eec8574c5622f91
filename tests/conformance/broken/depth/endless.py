"""The plan goes on for ever."""

from crossbreed import Step, hookimpl
from tests.conformance.small_parts.depth import Loop, offered

BREAKS = "plan"


class Broken(Loop):
    def plan(self, repeats, blocks):
        steps, depth = [], 0
        while True:  # right: while depth < repeats:
            steps += [Step(depth, block, 0) for block in range(blocks)]
            depth += 1
        return steps


@hookimpl
def register_depth_policies():
    return offered(Broken)
