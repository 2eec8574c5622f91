"""The order of blocks is drawn from Python's generator."""

import random

from crossbreed import hookimpl
from tests.conformance.small_parts.depth import Loop, offered

BREAKS = "reproducible"


class Broken(Loop):
    def order(self, blocks):
        generator = random  # right: generator = random.Random(0)
        return generator.sample(range(blocks), blocks)


@hookimpl
def register_depth_policies():
    return offered(Broken)
