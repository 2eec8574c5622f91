"""Gates are drawn from everything registered, whatever the study allows."""

from crossbreed import hookimpl
from tests.conformance.small_parts.spaces import Tower, offered

BREAKS = "restrictions"


class Broken(Tower):
    def gates(self, setting):
        parts = setting.parts
        named = parts.names("router")  # right: named = setting.routers
        able = {name: parts.descriptor("router", name).capabilities for name in named}
        return [name for name in able if able[name].searchable and "gate" in able[name].sites]


@hookimpl
def register_search_spaces():
    return offered(Broken)
