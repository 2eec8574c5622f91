"""my_depth_policy: run a stage's blocks forwards, then backwards, with shared weights."""

from __future__ import annotations

from pydantic import BaseModel

from crossbreed import DepthPolicy, DepthPolicyDescriptor, Step, hookimpl


class MyDepthPolicyConfig(BaseModel, frozen=True, extra="forbid"):
    """back_first: begin with the backward run."""

    back_first: bool = False


class MyDepthPolicy(DepthPolicy):
    """A policy is a plan: which block runs at which depth, with which set of weights."""

    def plan(self, repeats: int, blocks: int) -> list[Step]:
        # Depths count from 0 without gaps and each runs a block at least. Weight set 0 everywhere: repeats share weights;
        # ``weights=depth`` would give each repeat its own.
        found = []
        for depth in range(repeats):
            forwards = (depth % 2 == 0) != self.config.back_first
            order = range(blocks) if forwards else reversed(range(blocks))
            found += [Step(depth, block, weights=0) for block in order]
        return found


@hookimpl
def register_depth_policies() -> list[DepthPolicyDescriptor]:
    return [
        DepthPolicyDescriptor(
            name="my_depth_policy",
            factory=MyDepthPolicy,
            config=MyDepthPolicyConfig,
            summary="runs the blocks there and back",
            shares_weights=True,
        )
    ]
