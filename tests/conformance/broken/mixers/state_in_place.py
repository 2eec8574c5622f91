"""The given state is written in place, gradients or not."""

from crossbreed import hookimpl
from tests.conformance.small import RunningMean, offered

BREAKS = "inputs-kept"


class Broken(RunningMean):
    def kept(self, state, sums):
        after = super().kept(state, sums)
        state["sum"].copy_(after["sum"].detach())  # right: pass
        return after


@hookimpl
def register_mixers():
    return offered(Broken)
