"""What a token keeps is shared by the width of the model."""

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Counted, offered

BREAKS = "monotone-size"


class Broken(Counted):
    def changes(self, ledger, architecture, shape, rates):
        share = architecture.d_model**2  # right: share = 1
        return {"kept_bytes_per_token": ledger.kept_bytes_per_token / share}


@hookimpl
def register_cost_models():
    return offered(Broken)
