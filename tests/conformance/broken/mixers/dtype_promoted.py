"""In bfloat16 the output is float32."""

from crossbreed import hookimpl
from tests.conformance.small import DTYPES, Pointwise, offered

BREAKS = "dtypes"


class Broken(Pointwise):
    def mix(self, x_BTD, context):
        y_BTD = super().mix(x_BTD, context)
        if y_BTD.element_size() < 4:
            y_BTD = y_BTD.float()  # right: pass
        return y_BTD


@hookimpl
def register_mixers():
    return offered(Broken, "channel", dtypes=(*DTYPES, "bfloat16"))
