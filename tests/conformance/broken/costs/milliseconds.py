"""Times are in milliseconds."""

from dataclasses import replace

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Roofline, offered

BREAKS = "seconds"


class Broken(Roofline):
    def changes(self, ledger, architecture, shape, rates):
        unit = 1000.0  # right: unit = 1.0
        times = {phase: unit * s for phase, s in ledger.prediction.seconds_per_token.items()}
        return {"prediction": replace(ledger.prediction, seconds_per_token=times)}


@hookimpl
def register_cost_models():
    return offered(Broken, needs_device=True)
