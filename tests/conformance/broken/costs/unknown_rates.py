"""Rates of sites that do not exist are taken without a word."""

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Counted, offered

BREAKS = "refusals"


class Broken(Counted):
    def estimate(self, architecture, shape, device=None, rates=None):
        known = super().estimate(architecture, shape, device).rates
        if rates is not None:
            rates = {s: r for s, r in rates.items() if s in known}  # right: rates = dict(rates)
        return super().estimate(architecture, shape, device, rates)


@hookimpl
def register_cost_models():
    return offered(Broken)
