"""It states that it does not look at its depth, and does."""

from crossbreed import hookimpl
from tests.conformance.small import Pointwise, offered

BREAKS = "depths"


class Broken(Pointwise):
    def mix(self, x_BTD, context):
        scale = 1.0 + context.depth  # right: scale = 1.0
        return self.out(scale * x_BTD)


@hookimpl
def register_mixers():
    return offered(Broken, axis="channel", sees_depth=lambda config: False)
