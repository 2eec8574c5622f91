"""Offers the depth policy ``ramp``: the first repeat runs the first blocks only, the last one runs all of them.

Early depths are cheap this way and later ones do more, as a network that is grown layer by layer, while all repeats of a
block share its weights.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from crossbreed import Choices, DepthPolicy, DepthPolicyDescriptor, Step, hookimpl


class RampConfig(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """start: share of the blocks that the first repeat runs, rounded up; at 1 every repeat runs all."""

    start: float = Field(default=0.5, gt=0, le=1)


class Ramp(DepthPolicy):
    """Repeat l of L runs the first n blocks, n rising evenly from ``start`` of them to all."""

    def plan(self, repeats: int, blocks: int) -> list[Step]:
        return [
            Step(depth, block, weights=0)
            for depth in range(repeats)
            for block in range(self.width(depth, repeats, blocks))
        ]

    def width(self, depth: int, repeats: int, blocks: int) -> int:
        """Blocks that run at a depth. The last depth runs all, so that no weight lies idle."""
        climbed = 1.0 if repeats == 1 else depth / (repeats - 1)
        share = self.config.start + (1 - self.config.start) * climbed
        # A little less than the product, so that a whole number is not rounded up for a last bit.
        return max(1, -int(-(share * blocks - 1e-9) // 1))


@hookimpl
def register_depth_policies() -> list[DepthPolicyDescriptor]:
    return [
        DepthPolicyDescriptor(
            name="ramp",
            factory=Ramp,
            config=RampConfig,
            summary="every repeat runs more of the blocks, the last one all; weights are shared",
            shares_weights=True,
            ranges={"start": Choices((0.25, 0.5, 0.75, 1.0))},
        )
    ]
