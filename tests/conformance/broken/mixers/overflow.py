"""A softmax that does not subtract the largest score."""

from crossbreed import hookimpl
from tests.conformance.small import Attention, offered

BREAKS = "finite"


class Broken(Attention):
    def weights(self, scores_BTS):
        top = 0.0  # right: top = scores_BTS.amax(-1, keepdim=True)
        e_BTS = (scores_BTS - top).exp()
        return e_BTS / e_BTS.sum(-1, keepdim=True)


@hookimpl
def register_mixers():
    return offered(Broken, packing=False)
