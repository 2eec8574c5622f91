"""Every mixer is charged for scores of every pair of tokens."""

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Counted, offered

BREAKS = "monotone-length"


class Broken(Counted):
    def changes(self, ledger, architecture, shape, rates):
        pairs = shape.tokens  # right: pairs = 0
        return {"prefill_flops_per_token": ledger.prefill_flops_per_token + 4.0 * pairs}


@hookimpl
def register_cost_models():
    return offered(Broken)
