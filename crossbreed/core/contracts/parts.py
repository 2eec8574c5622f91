"""A read-only view of what is registered, handed to search spaces and cost models."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from crossbreed.core.genome import Architecture

Kind = Literal["mixer", "router", "depth", "cost", "task", "space"]


class Parts(Protocol):
    """Names to descriptors and validated configs."""

    def names(self, kind: Kind) -> list[str]:
        """All usable names of one kind, sorted."""
        ...

    def descriptor(self, kind: Kind, name: str) -> Any:
        """The descriptor; raises UnknownName with the nearest name."""
        ...

    def config(self, kind: Kind, name: str, params: dict[str, Any]) -> Any:
        """``params`` validated by the plugin's config class, defaults filled. Raises ConfigError."""
        ...

    def factory(self, kind: Kind, name: str) -> Any:
        """The plugin's class, imported now if it was not yet."""
        ...

    def canonical(self, architecture: Architecture) -> Architecture:
        """The one form of a genome, every default filled in. Raises ConfigError."""
        ...
