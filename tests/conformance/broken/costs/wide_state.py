"""State is counted in numbers of twice its dtype."""

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Counted, offered

BREAKS = "state-bytes"


class Broken(Counted):
    def changes(self, ledger, architecture, shape, rates):
        wide = 2  # right: wide = 1
        state = wide * ledger.state_bytes
        return {"state_bytes": state, "memory_bytes": ledger.weight_bytes + state}


@hookimpl
def register_cost_models():
    return offered(Broken)
