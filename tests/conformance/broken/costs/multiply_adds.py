"""Executed FLOPs are counted in multiply-adds."""

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Counted, offered

BREAKS = "executed-flops"


class Broken(Counted):
    def changes(self, ledger, architecture, shape, rates):
        a_multiply_add = 1  # right: a_multiply_add = 2
        return {
            "executed_prefill_flops_per_token": ledger.executed_prefill_flops_per_token * a_multiply_add / 2
        }


@hookimpl
def register_cost_models():
    return offered(Broken)
