"""Settings that a plugin's config gains after genomes were stored."""

from __future__ import annotations

from typing import Any

from pydantic import Field


def later(default: Any, **field: Any) -> Any:
    """A ``pydantic.Field`` for a setting that stored genomes of this plugin do not have.

    At its default it is left out of the canonical form, so that what was stored before keeps its hash and equals what
    is written today. Takes what ``Field`` takes.
    """

    def is_default(value: Any) -> bool:
        return bool(value == default)

    return Field(default=default, exclude_if=is_default, **field)
