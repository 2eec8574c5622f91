"""The mean over classes counts those that never occur."""

from crossbreed import hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "score"


class Broken(Echo):
    def metrics(self, totals):
        absent = 1  # right: absent = 0
        return {"accuracy": super().metrics(totals)["accuracy"] * self.vocab / (self.vocab + absent)}


@hookimpl
def register_tasks():
    return offered(Broken)
