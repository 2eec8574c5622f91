"""A stage: blocks repeated over depth by a depth policy, with an optional halt router between repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from crossbreed.core import genome
from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.depth import DepthPolicy
from crossbreed.core.contracts.mixer import State
from crossbreed.core.model.block import Block, Flow, ModelBuild, RMSNorm
from crossbreed.core.model.routing import RoutedSite
from crossbreed.core.model.state import Carry


class Stage(nn.Module):
    """Runs the plan of its depth policy. A halted token's stream is frozen and goes on writing deeper state."""

    def __init__(self, gene: genome.Stage, index: int, build: ModelBuild) -> None:
        super().__init__()
        self.gene, self.index = gene, index
        config = build.parts.config("depth", gene.depth.name, gene.depth.params)
        self.policy: DepthPolicy = build.parts.factory("depth", gene.depth.name)(config)
        self.plan = self.policy.plan(gene.depth.repeats, len(gene.blocks))
        self.depths = 1 + max(step.depth for step in self.plan)
        self.entry_norm = RMSNorm(build.d_model, gene.norm_eps) if gene.entry_norm else nn.Identity()
        self.weight_sets = nn.ModuleList(
            nn.ModuleList(Block(block, index, b, self.depths, build) for b, block in enumerate(gene.blocks))
            for _ in range(self.policy.weight_sets(gene.depth.repeats))
        )
        self._pass_scoped = [
            (b, i)
            for b in range(len(gene.blocks))
            for i, mixer in enumerate(self._block(0, b).mixers)
            if _pass_scoped(mixer)
        ]
        self.halt: RoutedSite | None = None
        if gene.halt is not None:
            self.halt = RoutedSite(gene.halt, f"{index}.halt", "halt", 2, build.sizes())

    def forward(
        self, h_BTD: Tensor, context: Context, carry: Carry, final_norm: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Return the stream after the stage; states are replaced in ``carry``."""
        h_BTD = self.entry_norm(h_BTD)
        entered_BTD = h_BTD
        flow = Flow(context.valid_BT)
        carry.begin_pass(self._scratch(h_BTD))
        depth = 0
        for step in self.plan:
            if step.depth > depth:
                if self.halt is not None:
                    at = context.at(site=f"{self.index}.{depth}.halt", depth=depth, depths=self.depths)
                    flow = flow.decided(self.halt, final_norm(h_BTD), at, carry)
                if self.policy.injects_input():
                    h_BTD = h_BTD + _masked(entered_BTD, flow)
                depth = step.depth
            at = context.at(depth=depth, depths=self.depths)
            h_BTD = self._block(step.weights, step.block)(h_BTD, at, carry, flow)
        carry.end_pass()
        return h_BTD

    def init_states(
        self, batch: int, slots: int, dtype: torch.dtype | None, device: torch.device | str | None
    ) -> tuple[dict[str, State], dict[str, State]]:
        """Empty (mixer, router) states of all depths, keyed by site."""
        mixers: dict[str, State] = {}
        routers: dict[str, State] = {}
        for step in self.plan:
            block = self._block(step.weights, step.block)
            head = f"{self.index}.{step.block}.{step.depth}"
            for i, mixer in enumerate(block.mixers):
                if not _pass_scoped(mixer):
                    mixers[f"{head}.{i}"] = mixer.init_state(batch, slots=slots, dtype=dtype, device=device)  # type: ignore[operator]
            if block.gate is not None:
                routers[f"{head}.gate"] = block.gate.init_state(batch, device)
        if self.halt is not None:
            for depth in range(self.depths - 1):
                routers[f"{self.index}.{depth}.halt"] = self.halt.init_state(batch, device)
        return mixers, routers

    def routed_sites(self) -> Iterator[RoutedSite]:
        """All routers of this stage; separate weight sets have separate ones."""
        for module in self.modules():
            if isinstance(module, RoutedSite):
                yield module

    def mixer_sites(self) -> Iterator[tuple[nn.Module, list[str]]]:
        """Every mixer with the sites it runs at, one for each depth that uses its weights."""
        for weights in range(len(self.weight_sets)):
            for b in range(len(self.gene.blocks)):
                depths = [step.depth for step in self.plan if (step.weights, step.block) == (weights, b)]
                for i, mixer in enumerate(self._block(weights, b).mixers):
                    yield mixer, [f"{self.index}.{b}.{depth}.{i}" for depth in depths]

    def _block(self, weights: int, block: int) -> Block:
        found: Block = self.weight_sets[weights][block]  # type: ignore[index,assignment]
        return found

    def _scratch(self, h_BTD: Tensor) -> dict[str, State]:
        """Pass-scoped states, one per mixer for all depths: every token is a row, every depth a slot."""
        B, T, _ = h_BTD.shape
        return {
            f"{self.index}.{b}.{i}": self._block(0, b)
            .mixers[i]
            .init_state(B * T, slots=self.depths, dtype=h_BTD.dtype, device=h_BTD.device)  # type: ignore[operator]
            for b, i in self._pass_scoped
        }


def _pass_scoped(mixer: nn.Module) -> bool:
    return any(spec.scope == "pass" for spec in mixer.state_specs())  # type: ignore[operator]


def _masked(x_BTD: Tensor, flow: Flow) -> Tensor:
    """``x`` for active tokens, weighted; zero for the others, whose stream is frozen."""
    if flow.active_BT is not None:
        x_BTD = x_BTD * flow.active_BT[..., None]
    return x_BTD if flow.weight_BT is None else x_BTD * flow.weight_BT[..., None].to(x_BTD.dtype)
