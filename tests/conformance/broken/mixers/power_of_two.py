"""It states that any head size is legal, and its kernel drops what is beyond a power of two."""

from crossbreed import hookimpl
from tests.conformance.small import Plain, Pointwise, offered

BREAKS = "head-sizes"


class Heads(Plain):
    head_size: int = 16


class Broken(Pointwise):
    def mix(self, x_BTD, context):
        size = self.config.head_size
        if size & (size - 1):
            raise RuntimeError(f"head size {size} is no power of two")  # right: pass
        return super().mix(x_BTD, context)


@hookimpl
def register_mixers():
    return offered(Broken, "channel", Heads)
