"""An answer is remembered without the dtype it was for."""

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Counted, offered

BREAKS = "repeatable"


class Broken(Counted):
    def estimate(self, architecture, shape, device=None, rates=None):
        key = repr((architecture, shape.tokens, rates))  # right: key = repr((architecture, shape, rates))
        known = self.__dict__.setdefault("known", {})
        if key not in known:
            known[key] = super().estimate(architecture, shape, device, rates)
        return known[key]


@hookimpl
def register_cost_models():
    return offered(Broken)
