"""The hash of the evaluation items leaves out their labels."""

import hashlib

from crossbreed import hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "every-setting"


class Broken(Echo):
    def evaluation_hash(self):
        hashed = [self.items()]  # right: hashed = [self.items(), self.labels(self.items())]
        return hashlib.sha256(b"".join(part.numpy().tobytes() for part in hashed)).hexdigest()


@hookimpl
def register_tasks():
    return offered(Broken)
