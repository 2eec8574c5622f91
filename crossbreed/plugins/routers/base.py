"""What the built-in routers share: their segment, and a fixed choice outside training."""

from __future__ import annotations

from typing import Generic, TypeVar

import torch
from torch import Tensor

from crossbreed.core.contracts.capabilities import SiteKind
from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.router import Decision, Router, RouterBuild
from crossbreed.plugins.routers.configs import RouterConfig

C = TypeVar("C", bound=RouterConfig)


class BuiltinRouter(Router, torch.nn.Module, Generic[C]):
    """Holds the config and the build. Raises ConfigError for settings that do not fit the site."""

    def __init__(self, config: C, build: RouterBuild, segment: int | None) -> None:
        super().__init__()
        self.config = config
        self.build = build
        self.segment = segment
        self.fixed = config.fixed_choice(build.choices)
        self.nominal = config.own_shares(build.kind, build.choices)

    def segment_length(self) -> int | None:
        return self.segment

    def fixed_decision(self, context: Context) -> Decision | None:
        """The decision of ``evaluate: n`` outside training, else None."""
        if self.fixed is None or context.training:
            return None
        return Decision(torch.full_like(context.positions_BT, self.fixed))

    def draw(self, context: Context, segment: int, shares: tuple[float, ...]) -> Tensor:
        """choice_BT: one independent draw per segment of each document, at odds ``shares``.

        The draw is a hash of seed, step, row, document, site and segment number, so any split of the row, a resumed run
        and another worker see the same map, and a short last segment is a segment like the others.
        """
        u_BT = context.uniform(context.site, context.positions_BT // segment)
        edges = torch.tensor(shares, dtype=torch.float64, device=u_BT.device).cumsum(0)
        # Dividing by the last edge makes it exactly 1, so that a choice of probability 0 is never drawn.
        return (u_BT[..., None] >= (edges / edges[-1])[:-1]).sum(-1)

    @staticmethod
    def rates(config: RouterConfig, kind: SiteKind, choices: int) -> tuple[float, ...]:
        return config.shares(kind, choices)
