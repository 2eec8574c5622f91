"""Prefill is that of a token of every row of the batch."""

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Counted, offered

BREAKS = "per-token"


class Broken(Counted):
    def changes(self, ledger, architecture, shape, rates):
        rows = shape.batch  # right: rows = 1
        return {"prefill_flops_per_token": rows * ledger.prefill_flops_per_token}


@hookimpl
def register_cost_models():
    return offered(Broken)
