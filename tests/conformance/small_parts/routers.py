"""Small routers that are right, and how to offer one under the name ``small``. Broken ones differ from them in one line."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import BaseModel, Field
from torch import Tensor, nn

from crossbreed import Cost, Decision, Router, RouterCapabilities, RouterDescriptor, Shape
from crossbreed.core.contracts.router import RouterBuild
from crossbreed.core.ledger import Work


class Config(BaseModel, frozen=True, extra="forbid"):
    segment: int | None = Field(default=None, ge=1)
    rate: float = Field(default=0.25, ge=0, le=1)


class Threshold(Router, nn.Module):
    """Choice 1 where a linear score of the token's direction exceeds a running mean. No gradient."""

    def __init__(self, config: Any, build: RouterBuild) -> None:
        super().__init__()
        self.config, self.build = config, build
        self.weight_D = nn.Parameter(torch.randn(build.d_model))
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, h_BTD: Tensor, context: Any, state: Any) -> tuple[Decision, Any]:
        score_BT = self.score(h_BTD, context)
        choice_BT = self.above(score_BT, context)
        if not context.training:
            return Decision(choice_BT), state
        return Decision(choice_BT, statistics=self.summary(score_BT, context)), state

    def score(self, h_BTD: Tensor, context: Any) -> Tensor:
        return nn.functional.normalize(h_BTD, dim=-1, eps=1e-30) @ self.weight_D.to(h_BTD.dtype)

    def above(self, score_BT: Tensor, context: Any) -> Tensor:
        return (score_BT > self.mean).long()

    def summary(self, score_BT: Tensor, context: Any) -> dict[str, Tensor]:
        counted_BT = context.counted_BT()
        return {"sum": score_BT.detach().where(counted_BT, 0.0).sum(), "count": counted_BT.sum()}

    @torch.no_grad()
    def after_step(self, statistics: Any) -> None:
        total, count = (sum(call[name] for call in statistics) for name in ("sum", "count"))
        if count > 0:
            self.mean = 0.9 * self.mean + 0.1 * total / count

    def segment_length(self) -> int | None:
        return self.config.segment

    @staticmethod
    def cost(config: Any, build: RouterBuild, shape: Shape) -> Cost:
        flops = 2.0 * build.d_model
        work = Work(flops, flops, flops, flops)
        return Cost(write=work, parameters=build.d_model, active_parameters=build.d_model)


class Coin(Router, nn.Module):
    """One draw a segment of 4, at odds of its own, whatever the input."""

    def __init__(self, config: Any, build: RouterBuild) -> None:
        super().__init__()
        self.config, self.build = config, build

    def forward(self, h_BTD: Tensor, context: Any, state: Any) -> tuple[Decision, Any]:
        u_BT = self.draw(context)
        return Decision((u_BT < self.config.rate).long()), state

    def draw(self, context: Any) -> Tensor:
        return context.uniform(context.site, context.positions_BT // 4)

    @staticmethod
    def rates(config: Any, kind: Any, choices: int) -> tuple[float, ...]:
        return (1 - config.rate, config.rate)


class Soft(Threshold):
    """A score with straight-through weights, and a loss that pulls its mean towards zero."""

    def forward(self, h_BTD: Tensor, context: Any, state: Any) -> tuple[Decision, Any]:
        score_BT = self.score(h_BTD, context)
        choice_BT = (score_BT > 0).long()
        if not context.training:
            return Decision(choice_BT), state
        soft_BTN = self.soft(score_BT)
        hard_BTN = nn.functional.one_hot(choice_BT, 2).to(soft_BTN.dtype)
        loss = self.loss(score_BT, context.counted_BT())
        return Decision(choice_BT, hard_BTN + soft_BTN - soft_BTN.detach(), {"mean": loss}), state

    def soft(self, score_BT: Tensor) -> Tensor:
        return torch.stack((-score_BT, score_BT), -1).softmax(-1)

    def loss(self, score_BT: Tensor, counted_BT: Tensor) -> Tensor:
        return (score_BT * counted_BT).sum().square() / counted_BT.sum().clamp_min(1)

    @staticmethod
    def cost(config: Any, build: RouterBuild, shape: Shape) -> Cost:
        # Backward, the gradient of the input is an outer product, which is no matrix product.
        flops = 2.0 * build.d_model
        work = Work(flops, 2 * flops, flops, 2 * flops)
        return Cost(write=work, parameters=build.d_model, active_parameters=build.d_model)


class Smooth(Threshold):
    """Choice 1 where a running average of the score along the document is positive: a state of its own."""

    def init_state(self, batch: int, device: Any = None) -> dict[str, Tensor]:
        return {"average_B": torch.zeros(batch, dtype=torch.float64, device=device)}

    def forward(self, h_BTD: Tensor, context: Any, state: Any) -> tuple[Decision, Any]:
        score_BT = self.score(h_BTD, context).double()
        average_B = torch.zeros_like(score_BT[:, 0]) if state is None else state["average_B"]
        valid_BT = torch.ones_like(context.reset_BT) if context.valid_BT is None else context.valid_BT
        keep_BT = self.kept(context)
        found = []
        for t in range(score_BT.shape[1]):
            new_B = 0.8 * average_B * keep_BT[:, t] + score_BT[:, t]
            average_B = torch.where(valid_BT[:, t], new_B, average_B)
            found.append(average_B)
        return Decision((torch.stack(found, 1) > 0).long()), None if state is None else {
            "average_B": average_B
        }

    def kept(self, context: Any) -> Tensor:
        return context.positions_BT != 0

    def after_step(self, statistics: Any) -> None:
        return None


def offered(cls: Any, *, config: Any = Config, **able: Any) -> list[RouterDescriptor]:
    stated = RouterCapabilities(**{"sites": ("gate", "halt"), "max_choices": 2, **able})
    return [RouterDescriptor("small", cls, config, stated, "a small router")]
