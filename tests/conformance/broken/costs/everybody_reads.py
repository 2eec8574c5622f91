"""Skipped work is charged in prefill."""

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Counted, offered

BREAKS = "conditional-work"


class Broken(Counted):
    def changes(self, ledger, architecture, shape, rates):
        every = dict.fromkeys(ledger.rates, (0.0, 1.0))
        taken = every or None  # right: taken = rates
        full = Counted(None, self.parts).estimate(architecture, shape, None, taken)
        return {"prefill_flops_per_token": full.prefill_flops_per_token}


@hookimpl
def register_cost_models():
    return offered(Broken)
