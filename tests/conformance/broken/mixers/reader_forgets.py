"""The mixer is right; the reader that it offers to multi-mixers starts anew with every piece."""

from crossbreed import hookimpl
from tests.conformance.small import Decay
from tests.conformance.small_reader import SumReader, offering_reader

BREAKS = "reader"


class Broken(SumReader):
    def carried(self, v_BTHV, state):
        return super().carried(v_BTHV, None)  # right: return super().carried(v_BTHV, state)


@hookimpl
def register_mixers():
    return offering_reader(Decay, Broken)
