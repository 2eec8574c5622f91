"""The cost counts multiply-adds for FLOPs."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "cost"


class Broken(Threshold):
    @staticmethod
    def cost(config, build, shape):
        cost = Threshold.cost(config, build, shape)
        a_multiply_add = 1  # right: a_multiply_add = 2
        return cost._replace(write=cost.write.times(a_multiply_add / 2))


@hookimpl
def register_routers():
    return offered(Broken)
