"""Most answers are one symbol, and no baseline says so."""

from crossbreed import hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "chance"


class Broken(Echo):
    def drawn(self, generator, shape):
        odds = 0.5  # right: odds = 0.0
        drawn = super().drawn(generator, shape)
        return drawn * (generator.random(shape) >= odds)


@hookimpl
def register_tasks():
    return offered(Broken)
