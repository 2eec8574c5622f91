"""What it executes is stated truly, but budgets are told that its training costs nothing."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Soft, offered

BREAKS = "cost"


class Broken(Soft):
    @staticmethod
    def cost(config, build, shape):
        plain = Soft.cost(config, build, shape)
        training = 0.0  # right: training = plain.write.training
        return plain._replace(write=plain.write._replace(training=training))


@hookimpl
def register_routers():
    return offered(Broken, gradient=True)
