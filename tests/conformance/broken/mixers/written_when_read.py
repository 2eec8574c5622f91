"""A token that does not read leaves no trace."""

from crossbreed import hookimpl
from tests.conformance.small import RunningMean, offered

BREAKS = "read"


class Broken(RunningMean):
    def written(self, x_BTD, context, read_BT):
        valid_BT = super().written(x_BTD, context, read_BT)
        if read_BT is not None:
            valid_BT = valid_BT & read_BT  # right: pass
        return valid_BT


@hookimpl
def register_mixers():
    return offered(Broken)
