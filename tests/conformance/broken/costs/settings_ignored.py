"""Settings that do not exist are taken without a word."""

from pydantic import BaseModel

from crossbreed import hookimpl
from tests.conformance.small_parts.costs import Counted, offered

BREAKS = "settings"


class Config(BaseModel, frozen=True):
    model_config = {"extra": "ignore"}  # right: model_config = {"extra": "forbid"}


@hookimpl
def register_cost_models():
    return offered(Counted, config=Config)
