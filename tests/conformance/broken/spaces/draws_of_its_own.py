"""The mixer comes from Python's generator, beside the answers."""

import random

from crossbreed import hookimpl
from tests.conformance.small_parts.spaces import Tower, offered

BREAKS = "repeatable"


class Broken(Tower):
    def mixer(self, draw, names):
        return random.choice(names)  # right: return draw.choose("mixer", names)


@hookimpl
def register_search_spaces():
    return offered(Broken)
