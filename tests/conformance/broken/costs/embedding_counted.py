"""The embedding counts among the parameters outside the embedding."""

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Counted, offered

BREAKS = "units"


class Broken(Counted):
    def changes(self, ledger, architecture, shape, rates):
        count = ledger.parameters  # right: count = ledger.non_embedding_parameters
        return {"non_embedding_parameters": count}


@hookimpl
def register_cost_models():
    return offered(Broken)
