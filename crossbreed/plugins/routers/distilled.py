"""The distilled router: a small network in place of the probe through the output head (AMOR section 3)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.router import Decision, Router, RouterBuild, RouterState
from crossbreed.core.errors import ConfigError
from crossbreed.core.ledger import Cost, Shape, Work
from crossbreed.core.ops import thresholds
from crossbreed.core.ops.one_token import Normed
from crossbreed.plugins.routers.configs import DistilledConfig
from crossbreed.plugins.routers.threshold import ThresholdRouter

FIT_BATCH, FIT_LR = 1024, 3e-3
"""Tokens a step and first learning rate of the fit; the sources give no recipe (amor.md section 10, point 21)."""
MARGIN = 1e-3
"""Distance kept from the most extreme prediction where all or none must fire."""


class Distilled(ThresholdRouter[DistilledConfig]):
    """choice = 1[r(z) > tau] with r(z) = w2 . SiLU(W1 z + b1) + b2 + w_s . z, in fp32 at least, and the teacher's tau.

    z is the site's input, where the teacher reads the entropy H that r predicts. It takes no part in training:
    ``learn`` fits it to the gate of a trained model.
    """

    def __init__(self, config: DistilledConfig, build: RouterBuild) -> None:
        super().__init__(config, build, None if config.segment == 1 else config.segment)
        self.inner = nn.Linear(build.d_model, config.hidden)
        self.outer = nn.Linear(config.hidden, 1)
        self.skip = nn.Linear(build.d_model, 1, bias=False)
        for linear in (self.outer, self.skip):
            nn.init.zeros_(linear.weight)

    def forward(
        self, h_BTD: Tensor, context: Context, state: RouterState | None
    ) -> tuple[Decision, RouterState | None]:
        if context.training:
            raise ConfigError(
                f"router 'distilled' at {context.site!r} takes no part in training; train with the router that it replaces, "
                "then run `crossbreed fit-router`."
            )
        if context.recorded:
            return self.decided(thresholds.skip_network_parts(h_BTD, *self._weights())), state
        return self.decided(self.signal(h_BTD, context)[..., None]), state

    def token(
        self, stream: Normed, context: Context, state: RouterState | None
    ) -> tuple[Decision, RouterState | None]:
        return self.decided(thresholds.skip_network_parts(stream, *self._weights())), state

    def signal(self, h_BTD: Tensor, context: Context) -> Tensor:
        return self.predicted(h_BTD).detach()

    def predicted(self, h: Tensor) -> Tensor:
        """r(z) for every z in the last dimension of ``h``."""
        return thresholds.skip_network(h, *self._weights())

    def _weights(self) -> tuple[Tensor, ...]:
        return (
            self.inner.weight,
            self.inner.bias,
            self.outer.weight,
            self.outer.bias,
            self.skip.weight,
        )

    def learn(
        self,
        teacher: Router,
        h_ND: Tensor,
        signal_N: Tensor,
        *,
        steps: int,
        seed: int = 0,
        progress: Callable[[], None] = lambda: None,
    ) -> float:
        """Least squares on H by Adam with a cosine to zero, then one offset so that as many tokens fire as did before."""
        if not isinstance(teacher, ThresholdRouter):
            raise ConfigError(
                f"router 'distilled' learns from a router with a threshold on entropy, not from {type(teacher).__name__}."
            )
        if not len(h_ND):
            raise ConfigError(f"router 'distilled' at {self.build.site!r} was given no token to learn from.")
        self.mu.copy_(teacher.mu)
        self.sigma.copy_(teacher.sigma)
        nn.init.constant_(self.outer.bias, float(signal_N.mean()))
        optimiser = torch.optim.Adam(self.parameters(), lr=FIT_LR)
        generator = torch.Generator().manual_seed(seed)
        for step in range(steps):
            for group in optimiser.param_groups:
                group["lr"] = FIT_LR * 0.5 * (1 + math.cos(math.pi * step / steps))
            rows_n = torch.randint(len(h_ND), (min(FIT_BATCH, len(h_ND)),), generator=generator).to(
                h_ND.device
            )
            loss = F.mse_loss(self.predicted(h_ND[rows_n]), signal_N[rows_n])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            progress()
        with torch.no_grad():
            fire = int((signal_N > self.tau()).sum())
            offset = self.tau() - self._cut(self.predicted(h_ND), fire)
            self.outer.bias.add_(offset)
        return float(offset)

    @staticmethod
    def _cut(r_N: Tensor, fire: int) -> Tensor:
        """A number that exactly ``fire`` of the predictions exceed (if no two are equal there)."""
        falling_N = r_N.sort(descending=True).values
        if fire == 0:
            return falling_N[0] + MARGIN
        if fire == len(falling_N):
            return falling_N[-1] - MARGIN
        return (falling_N[fire - 1] + falling_N[fire]) / 2

    @staticmethod
    def cost(config: DistilledConfig, build: RouterBuild, shape: Shape) -> Cost:
        """Two products and the skip. A model that uses it was trained with the teacher's probe in its place, one product with
        the output head for each token, forward only: its training is charged that, and not the fit, which is done once.
        """
        D, M = build.d_model, config.hidden
        flops, probe = 2.0 * (D * M + M + D), 2.0 * D * build.vocab
        parameters = D * M + 2 * M + D + 1
        return Cost(
            write=Work(flops, probe, flops, probe), parameters=parameters, active_parameters=parameters
        )
