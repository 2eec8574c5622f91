"""The mark is an attribute of the parameter, which no copy keeps."""

from crossbreed import hookimpl
from tests.conformance.small import Decay, offered

BREAKS = "marks"


class Broken(Decay):
    def __init__(self, config, build):
        super().__init__(config, build)
        self.rate_D.spared = True

    def no_weight_decay(self):
        marked = filter(self.is_marked, dict(self.named_parameters()))  # right: marked = {"rate_D"}
        return frozenset(marked)

    def is_marked(self, name):
        return hasattr(self.get_parameter(name), "spared")


@hookimpl
def register_mixers():
    return offered(Broken)
