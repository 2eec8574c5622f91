"""my_router: run a block, or go one depth further, where the model is unsure of the next token.

Legend for tensor names: B batch, T tokens, D model width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from crossbreed import (
    Context,
    Cost,
    Decision,
    Floats,
    Router,
    RouterBuild,
    RouterCapabilities,
    RouterDescriptor,
    Shape,
    Work,
    hookimpl,
)

if TYPE_CHECKING:
    from torch import Tensor


class MyRouterConfig(BaseModel, frozen=True, extra="forbid"):
    """threshold: choose 1 where the entropy of the next token, from 0 (sure) to 1 (no idea), exceeds it."""

    threshold: float = Field(default=0.5, ge=0, le=1)


# This class has no weights, so that it imports torch for type checkers alone and may stand in an installed plugin's own module.
# One with weights is ``class MyRouter(Router, torch.nn.Module)``: installed, it goes into a module beside this one, named by the
# factory as "package.module:MyRouter", so that listing plugins imports no torch.
class MyRouter(Router):
    """Choice 0 is always the cheaper one: skip the block, stop repeating."""

    def __init__(self, config: MyRouterConfig, build: RouterBuild) -> None:
        self.config = config

    def forward(
        self, h_BTD: Tensor, context: Context, state: dict[str, Tensor] | None
    ) -> tuple[Decision, dict[str, Tensor] | None]:
        # No choice may depend on a later token, and no generator may be used: ``context.uniform(site, index_BT)`` gives
        # random numbers that are the same in every piece, worker and resumed run.
        entropy_BT = context.entropy(h_BTD)
        return Decision((entropy_BT > self.config.threshold).long()), state

    @staticmethod
    def rates(config: MyRouterConfig, kind: str, choices: int) -> tuple[float, ...]:
        """Shares of the choices before anything was trained, for budgets; the real ones are measured."""
        return config.threshold, 1.0 - config.threshold

    @staticmethod
    def cost(config: MyRouterConfig, build: RouterBuild, shape: Shape) -> Cost:
        """Entropy is a product with the output head for every token asked; a multiply-add is 2 FLOPs. No gradient: the
        training pass pays it once."""
        flops = 2.0 * build.d_model * build.vocab
        return Cost(write=Work(flops, flops, flops, flops, weights=flops / 2))


@hookimpl
def register_routers() -> list[RouterDescriptor]:
    return [
        RouterDescriptor(
            name="my_router",
            factory=MyRouter,
            config=MyRouterConfig,
            # Where it may stand, and how many choices it can tell apart. Searches propose it there and nowhere else.
            capabilities=RouterCapabilities(sites=("gate", "halt"), max_choices=2),
            summary="runs where the model is unsure of the next token",
            # What a search may draw.
            ranges={"threshold": Floats(0.2, 0.8)},
        )
    ]
