"""A starting point names a mixer that is gone."""

from crossbreed import hookimpl
from tests.conformance.small_parts.spaces import Tower, offered

BREAKS = "starting-points"


class Broken(Tower):
    def starting_points(self, setting):
        mixer = "gone"  # right: mixer = self.mixers(setting)[0]
        return [*super().starting_points(setting), {"mixer": mixer, "gate": "none", "blocks": 1}]


@hookimpl
def register_search_spaces():
    return offered(Broken)
