"""A small depth policy that is right, and how to offer one under the name ``small``."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from crossbreed import DepthPolicy, DepthPolicyDescriptor, Step


class Config(BaseModel, frozen=True, extra="forbid"):
    pass


class Loop(DepthPolicy):
    """All depths run every block with one set of weights."""

    def plan(self, repeats: int, blocks: int) -> list[Step]:
        return [Step(depth, block, 0) for depth in range(repeats) for block in self.order(blocks)]

    def order(self, blocks: int) -> list[int]:
        return list(range(blocks))


def offered(cls: Any = Loop, *, config: Any = Config, shares: bool = True) -> list[DepthPolicyDescriptor]:
    return [DepthPolicyDescriptor("small", cls, config, "a small depth policy", shares_weights=shares)]
