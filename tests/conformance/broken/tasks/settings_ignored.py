"""Settings that do not exist are taken without a word."""

from crossbreed import hookimpl
from tests.conformance.small_parts import tasks

BREAKS = "settings"


class Config(tasks.Config, extra="ignore"):  # right: class Config(tasks.Config, extra="forbid"):
    """The settings of the task that is right."""


@hookimpl
def register_tasks():
    return tasks.offered(config=Config)
