"""The fused backend has another scale than the reference."""

from crossbreed import hookimpl
from tests.conformance.small import Attention, offered

BREAKS = "backends"


class Broken(Attention):
    def scale(self):
        size = 1 if self.backend == "fused" else self.width  # right: size = self.width
        return size**-0.5


@hookimpl
def register_mixers():
    return offered(Broken, packing=False, backends=("reference", "fused"))
