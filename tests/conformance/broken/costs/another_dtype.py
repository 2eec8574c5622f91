"""The ledger is of another dtype than was asked for."""

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Counted, offered

BREAKS = "complete"


class Broken(Counted):
    def changes(self, ledger, architecture, shape, rates):
        dtype = "float32"  # right: dtype = shape.dtype
        return {"dtype": dtype}


@hookimpl
def register_cost_models():
    return offered(Broken)
