"""The length of a segment is no whole number."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "segments"


class Broken(Threshold):
    def segment_length(self):
        return 8 / 2  # right: return 8 // 2


@hookimpl
def register_routers():
    return offered(Broken)
