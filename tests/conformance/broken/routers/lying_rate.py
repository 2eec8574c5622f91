"""The stated rate is not the one at which it draws."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Coin, offered

BREAKS = "rates"


class Broken(Coin):
    @staticmethod
    def rates(config, kind, choices):
        share = config.rate / 2  # right: share = config.rate
        return (1 - share, share)


@hookimpl
def register_routers():
    return offered(Broken)
