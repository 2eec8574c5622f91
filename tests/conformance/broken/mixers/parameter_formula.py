"""The cost forgets the decays."""

from crossbreed import hookimpl
from tests.conformance.small import Decay, offered

BREAKS = "parameters"


class Broken(Decay):
    @classmethod
    def cost(cls, config, d_model, shape, depths=1, parts=None):
        plain = super().cost(config, d_model, shape, depths, parts)
        matrices = d_model * d_model  # right: matrices = plain.parameters
        return plain._replace(parameters=matrices, active_parameters=matrices)


@hookimpl
def register_mixers():
    return offered(Broken)
