"""A setting that never arrives."""

from crossbreed import hookimpl
from tests.conformance.small import FACTORS, Factor, Sized, offered

BREAKS = "settings"


class Broken(Sized):
    def factor(self):
        return 1.0  # right: return float(self.config.factor)


@hookimpl
def register_mixers():
    return offered(Broken, "channel", Factor, ranges=FACTORS)
