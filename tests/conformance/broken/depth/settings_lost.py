"""A setting is not stored as it was given."""

from pydantic import BaseModel, Field

from crossbreed import hookimpl
from tests.conformance.small_parts.depth import Loop, offered

BREAKS = "settings"


class Config(BaseModel, frozen=True, extra="forbid"):
    every: int = Field(default=2, exclude=False)

    def model_dump(self, **how):
        kept = super().model_dump(**how)
        kept["every"] += 1  # right: kept["every"] += 0
        return kept


@hookimpl
def register_depth_policies():
    return offered(Loop, config=Config)
