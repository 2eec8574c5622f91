"""The declared error is a tenth of the one that was measured."""

from dataclasses import replace

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Measured, offered

BREAKS = "declared-error"


class Broken(Measured):
    def changes(self, ledger, architecture, shape, rates):
        told = 0.1  # right: told = 1.0
        errors = {phase: told * e for phase, e in ledger.prediction.relative_error.items()}
        return {"prediction": replace(ledger.prediction, relative_error=errors)}


@hookimpl
def register_cost_models():
    return offered(Broken, needs_device=True)
