"""What the built-in routers share: their segment, their draws, and a schedule in place of decisions outside training."""

from __future__ import annotations

from itertools import accumulate
from typing import Generic, TypeVar

import torch
from torch import Tensor

from crossbreed.core.contracts.capabilities import SiteKind
from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.router import Router, RouterBuild
from crossbreed.core.contracts.schedule import Schedule
from crossbreed.plugins.routers.configs import RouterConfig

C = TypeVar("C", bound=RouterConfig)


class BuiltinRouter(Router, torch.nn.Module, Generic[C]):
    """Holds the config and the build. Raises ConfigError for settings that do not fit the site."""

    def __init__(self, config: C, build: RouterBuild, segment: int | None) -> None:
        super().__init__()
        self.config = config
        self.build = build
        self.segment = segment
        self.nominal = config.shares(build.kind, build.choices)

    def segment_length(self) -> int | None:
        return self.segment

    def draw(self, context: Context, segment: int | None, shares: tuple[float, ...]) -> Tensor:
        """choice_BT: one independent draw per segment of each document, at odds ``shares``; None: one per document.

        The draw is a hash of seed, step, row, document, site and segment number, so any split of the row, a resumed run
        and another worker see the same map, and a short last segment is a segment like the others.
        """
        positions_BT = context.positions_BT
        number_BT = torch.zeros_like(positions_BT) if segment is None else positions_BT // segment
        u_BT = context.uniform(context.site, number_BT)
        *edges, last = accumulate(shares)
        choice_BT = torch.zeros_like(positions_BT)
        for edge in edges:
            # Dividing by the last edge makes it exactly 1, so that a choice of probability 0 is never drawn.
            choice_BT += u_BT >= edge / last
        return choice_BT

    @staticmethod
    def schedule(config: RouterConfig) -> Schedule | None:
        return config.schedule()

    @staticmethod
    def training_schedule(config: RouterConfig) -> Schedule | None:
        return config.training_schedule()

    @staticmethod
    def rates(config: RouterConfig, kind: SiteKind, choices: int) -> tuple[float, ...]:
        return config.shares(kind, choices)
