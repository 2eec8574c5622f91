"""A threshold on normalised entropy, kept as a running median and standard deviation (AMOR section 3)."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from crossbreed.core.contracts.router import RouterBuild, Thresholded
from crossbreed.plugins.routers.base import BuiltinRouter
from crossbreed.plugins.routers.configs import ThresholdConfig

C = TypeVar("C", bound=ThresholdConfig)


class ThresholdRouter(BuiltinRouter[C]):
    """choice = 1[H > tau], strict, with tau = mu + kappa * sigma + shift or mu + offset + shift; mu and sigma travel in checkpoints."""

    mu: Tensor
    sigma: Tensor

    def __init__(self, config: C, build: RouterBuild, segment: int | None) -> None:
        super().__init__(config, build, segment)
        self.register_buffer("mu", torch.tensor(config.mu_init))
        self.register_buffer("sigma", torch.tensor(config.sigma_init))

    def tau(self, mu: Tensor | None = None, sigma: Tensor | None = None) -> Tensor:
        """The threshold at given statistics, or at the running ones."""
        mu, sigma = self.mu if mu is None else mu, self.sigma if sigma is None else sigma
        config = self.config
        tau = mu + (config.kappa * sigma if config.threshold == "adaptive" else config.offset)
        tau = tau + config.shift
        return tau if config.tau_ceiling is None else tau.clamp(max=config.tau_ceiling)

    def decided(self, parts_BTP: Tensor) -> Thresholded:
        """1 where the parts of H add up to more than the running threshold."""
        return Thresholded(parts_BTP, self.tau())

    def above(self, h: Tensor, mu: Tensor | None = None, sigma: Tensor | None = None) -> Tensor:
        """int64: 1 where ``h`` exceeds the threshold."""
        return (h > self.tau(mu, sigma)).to(torch.int64)
