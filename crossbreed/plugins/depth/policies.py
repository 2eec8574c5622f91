"""The two built-in depth policies: repeats with weights of their own, and repeats that share them."""

from __future__ import annotations

from crossbreed.core.contracts.depth import DepthPolicy, Step


class Layered(DepthPolicy):
    """Depth l of the stage runs every block once, with weight set l."""

    def plan(self, repeats: int, blocks: int) -> list[Step]:
        return [Step(depth, block, weights=depth) for depth in range(repeats) for block in range(blocks)]


class Recurrent(DepthPolicy):
    """Every depth runs every block once, always with weight set 0."""

    def plan(self, repeats: int, blocks: int) -> list[Step]:
        return [Step(depth, block, weights=0) for depth in range(repeats) for block in range(blocks)]

    def injects_input(self) -> bool:
        return bool(self.config.inject)
