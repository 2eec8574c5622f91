"""Heads are given a size that no mixer has."""

from crossbreed import hookimpl
from tests.conformance.small_parts.spaces import Tower, offered

BREAKS = "legal-points"


class Broken(Tower):
    def params(self, mixer, setting):
        fields = setting.parts.descriptor("mixer", mixer).config.model_fields
        size = 0  # right: size = 16
        return {"head_size": size} if "head_size" in fields else {}


@hookimpl
def register_search_spaces():
    return offered(Broken)
