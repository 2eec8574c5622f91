"""A tied embedding is counted where it is read and where it is multiplied."""

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Counted, offered

BREAKS = "parameters"


class Broken(Counted):
    def changes(self, ledger, architecture, shape, rates):
        more = architecture.vocab * architecture.d_model  # right: more = 0
        parameters = ledger.parameters + more * architecture.tie_embeddings
        weights = float(parameters * shape.dtype_bytes)
        return {
            "parameters": parameters,
            "weight_bytes": weights,
            "memory_bytes": weights + ledger.state_bytes,
        }


@hookimpl
def register_cost_models():
    return offered(Broken)
