"""Of all passes of a step the last one alone moves the threshold."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "thresholds"


class Broken(Threshold):
    def after_step(self, statistics):
        counted = statistics[-1:]  # right: counted = statistics
        super().after_step(counted)


@hookimpl
def register_routers():
    return offered(Broken)
