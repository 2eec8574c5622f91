"""The last line of the ledger is lost."""

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Counted, offered

BREAKS = "parts"


class Broken(Counted):
    def changes(self, ledger, architecture, shape, rates):
        lines = ledger.sections[:-1]  # right: lines = ledger.sections
        return {"sections": lines}


@hookimpl
def register_cost_models():
    return offered(Broken)
