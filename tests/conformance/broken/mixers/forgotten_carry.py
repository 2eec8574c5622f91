"""A prompt in pieces: the state is returned, but what comes in with it is ignored."""

from crossbreed import hookimpl
from tests.conformance.small import RunningMean, offered

BREAKS = "splits"


class Broken(RunningMean):
    def running(self, part_BTD, context, state, name):
        carried = None  # right: carried = state
        return super().running(part_BTD, context, carried, name)


@hookimpl
def register_mixers():
    return offered(Broken)
