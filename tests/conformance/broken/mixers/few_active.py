"""It states that half of its numbers take part in a token."""

from crossbreed import hookimpl
from tests.conformance.small import Decay, offered

BREAKS = "parameters"


class Broken(Decay):
    @classmethod
    def cost(cls, config, d_model, shape, depths=1, parts=None):
        plain = super().cost(config, d_model, shape, depths, parts)
        active = plain.parameters // 2  # right: active = plain.parameters
        return plain._replace(active_parameters=active)


@hookimpl
def register_mixers():
    return offered(Broken)
