"""After a piece the state has another dtype than before."""

from crossbreed import hookimpl
from tests.conformance.small import Decay, offered

BREAKS = "state-structure"


class Broken(Decay):
    def carried(self, x_BTD, state):
        return super().carried(x_BTD, state).to(x_BTD.dtype)

    def after(self, state, S_BD):
        S_BD = S_BD.double()  # right: pass
        return super().after(state, S_BD)


@hookimpl
def register_mixers():
    return offered(Broken, dtypes=("float32",))
