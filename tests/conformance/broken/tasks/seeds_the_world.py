"""Each batch seeds torch's global generator, and so everybody's dropout."""

import torch

from crossbreed import hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "seeded"


class Broken(Echo):
    def generator(self, *key):
        torch.manual_seed(sum(key))  # right: torch.Generator().manual_seed(sum(key))
        return super().generator(*key)


@hookimpl
def register_tasks():
    return offered(Broken)
