"""Weights are given in bits."""

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Counted, offered

BREAKS = "units"


class Broken(Counted):
    def changes(self, ledger, architecture, shape, rates):
        a_byte = 8  # right: a_byte = 1
        return {"weight_bytes": a_byte * ledger.weight_bytes}


@hookimpl
def register_cost_models():
    return offered(Broken)
