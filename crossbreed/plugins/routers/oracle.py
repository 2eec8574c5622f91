"""The oracle: spend compute where the task asks for an answer."""

from __future__ import annotations

import torch
from torch import Tensor

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.router import Decision, RouterBuild, RouterState
from crossbreed.core.contracts.task import IGNORE
from crossbreed.core.errors import ConfigError
from crossbreed.plugins.routers.base import BuiltinRouter
from crossbreed.plugins.routers.configs import OracleConfig


class Oracle(BuiltinRouter[OracleConfig]):
    """The most expensive choice at every position that the task scores, choice 0 at every other (amor.md section 5).

    It sees which positions have a label, never what the label is: in recall the queries, in plain language modelling
    every position, where it runs everything. Labels exist in training and evaluation. Raises ConfigError without them.
    Costs nothing and has no state.
    """

    def __init__(self, config: OracleConfig, build: RouterBuild) -> None:
        super().__init__(config, build, None)

    def forward(
        self, h_BTD: Tensor, context: Context, state: RouterState | None
    ) -> tuple[Decision, RouterState | None]:
        if context.labels_BT is None:
            raise ConfigError(
                f"router 'oracle' at {context.site!r} looks at the labels, but this pass has none: it serves in training and "
                "evaluation, never in generation; 'evaluate' may name what is done there instead."
            )
        return Decision((context.labels_BT != IGNORE).to(torch.int64) * (self.build.choices - 1)), state
