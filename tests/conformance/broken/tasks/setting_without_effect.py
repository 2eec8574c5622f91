"""The delay that is set is never used."""

from crossbreed import hookimpl
from tests.conformance.small_parts.tasks import Echo, offered

BREAKS = "every-setting"


class Broken(Echo):
    def delay(self):
        return 2  # right: return int(self.config.delay)


@hookimpl
def register_tasks():
    return offered(Broken)
