"""The fused backend sends back half of the gradient."""

from crossbreed import hookimpl
from tests.conformance.small import Attention, offered

BREAKS = "backends"


class Broken(Attention):
    def weights(self, scores_BTS):
        weights_BTS = super().weights(scores_BTS)
        if self.backend != "fused":
            return weights_BTS
        kept = weights_BTS.detach()  # right: kept = weights_BTS
        return (kept + weights_BTS) / 2


@hookimpl
def register_mixers():
    return offered(Broken, packing=False, backends=("reference", "fused"))
