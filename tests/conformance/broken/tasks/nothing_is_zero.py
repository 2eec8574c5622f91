"""Nothing scored has the score 0."""

from crossbreed import hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "score"


class Broken(Echo):
    def metrics(self, totals):
        count = max(totals.scored, 1)  # right: count = totals.scored or float("nan")
        return {"accuracy": totals.correct / count}


@hookimpl
def register_tasks():
    return offered(Broken)
