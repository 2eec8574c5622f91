"""With more than three rows, each gets another one's output."""

from crossbreed import hookimpl
from tests.conformance.small import Decay, offered

BREAKS = "rows"


class Broken(Decay):
    def mixed(self, S_BTD, x_BTD, context):
        shift = 1 if len(x_BTD) > 3 else 0  # right: shift = 0
        return self.out(S_BTD).roll(shift, 0)


@hookimpl
def register_mixers():
    return offered(Broken)
