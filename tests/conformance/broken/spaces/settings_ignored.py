"""Settings that do not exist are taken without a word."""

from pydantic import BaseModel

from crossbreed import hookimpl
from tests.conformance.small_parts.spaces import Tower, offered

BREAKS = "settings"


class Config(BaseModel, frozen=True):
    model_config = {"extra": "ignore"}  # right: model_config = {"extra": "forbid"}


@hookimpl
def register_search_spaces():
    return offered(Tower, config=Config)
