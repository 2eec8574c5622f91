"""The solver looks one position too far back."""

from crossbreed import hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "solver"


class Broken(Echo):
    def solve(self, tokens_BT):
        back = self.delay() + 1  # right: back = self.delay()
        return tokens_BT.roll(back, 1)


@hookimpl
def register_tasks():
    return offered(Broken)
