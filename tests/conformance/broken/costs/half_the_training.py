"""Budgets are told of half of training, line by line."""

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Counted, offered

BREAKS = "algorithmic-flops"


class Broken(Counted):
    def changes(self, ledger, architecture, shape, rates):
        share = 0.5  # right: share = 1.0

        def line(part):
            return part._replace(training_flops_per_token=share * part.training_flops_per_token)

        sections = tuple((site, tuple(map(line, lines))) for site, lines in ledger.sections)
        total = share * ledger.training_flops_per_token
        return {"sections": sections, "training_flops_per_token": total}


@hookimpl
def register_cost_models():
    return offered(Broken)
