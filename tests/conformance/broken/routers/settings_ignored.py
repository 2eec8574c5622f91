"""Settings that do not exist are taken without a word."""

from pydantic import BaseModel

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "settings"


class Config(BaseModel, frozen=True):
    model_config = {"extra": "ignore"}  # right: model_config = {"extra": "forbid"}

    segment: int | None = None


@hookimpl
def register_routers():
    return offered(Threshold, config=Config)
