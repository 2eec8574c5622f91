"""Spans: between which values, and in which steps, a free dimension may move."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from crossbreed.core.errors import ConfigError

WRITTEN = re.compile(r"\s*(\d+)\s*(?:\.\.\s*(\d+)\s*(?::\s*(\d+)\s*)?)?")


class Span(BaseModel):
    """The values ``low, low + step, ...`` up to ``high`` inclusive, as far as they are legal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: int = Field(ge=1)
    high: int = Field(ge=1)
    step: int = Field(default=1, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _written(cls, data: Any) -> Any:
        if isinstance(data, str):
            found = WRITTEN.fullmatch(data)
            if found is None:
                raise ValueError(_rule(data))
            low, high, step = found.groups()
            return {"low": low, "high": high or low, "step": step or 1}
        if isinstance(data, int) and not isinstance(data, bool):
            return {"low": data, "high": data}
        if isinstance(data, list | tuple) and len(data) in (2, 3):
            return dict(zip(("low", "high", "step"), data, strict=False))
        if not isinstance(data, Mapping | Span):
            raise ValueError(_rule(data))
        return data

    @model_validator(mode="after")
    def _ordered(self) -> Span:
        if self.low > self.high:
            raise ValueError(_rule(f"{self.low}..{self.high}"))
        return self

    def holds(self, value: int) -> bool:
        return self.low <= value <= self.high and (value - self.low) % self.step == 0


def read_free(data: Any) -> dict[str, Any]:
    """What may move, by dimension: a list of names, or a mapping of names to spans (nothing: the default span).

    Entries such as ``"d_model=256..1024:64"`` name and span in one. Raises ConfigError for anything else,
    and for a name that comes twice.
    """
    if isinstance(data, str):
        data = [data]
    if isinstance(data, Mapping):
        return {str(name): None if span == "" else span for name, span in data.items()}
    if isinstance(data, list | tuple) and all(isinstance(entry, str) for entry in data):
        found: dict[str, Any] = {}
        for entry in data:
            name, _, span = (part.strip() for part in entry.partition("="))
            if name in found:
                raise ConfigError(f"free names {name!r} twice, as in {entry!r}; give it once.")
            found[name] = span or None
        return found
    raise ConfigError(f"free must be a list of dimensions or a mapping of them to spans, got {data!r}.")


def _rule(got: Any) -> str:
    return f"a span is LOW..HIGH or LOW..HIGH:STEP with 1 <= LOW <= HIGH, or one number that is kept; got {got!r}"
