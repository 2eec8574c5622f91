"""The mixer is answered by its number in the list of today."""

from crossbreed import hookimpl
from tests.conformance.small_parts.spaces import Tower, offered

BREAKS = "growth"


class Broken(Tower):
    def mixer(self, draw, names):
        numbers = range(len(names))  # right: numbers = names
        answer = draw.choose("mixer", list(numbers))
        return names[answer] if isinstance(answer, int) else answer

    def starting_points(self, setting):
        return []


@hookimpl
def register_search_spaces():
    return offered(Broken)
