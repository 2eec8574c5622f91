"""A block: sublayers around the residual stream, read or skipped together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from crossbreed.core import genome
from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import MixerBuild
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.model.legality import backend_for
from crossbreed.core.model.routing import RoutedSite, RouterSizes
from crossbreed.core.model.state import Carry
from crossbreed.core.ops.norm import rms_norm
from crossbreed.core.ops.one_token import Normed


class RMSNorm(nn.Module):
    """The one norm of the residual stream; gains start at 1."""

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, h_BTD: Tensor) -> Tensor:
        return rms_norm(h_BTD, self.weight, self.eps)

    def of(self, h_BTD: Tensor) -> Normed:
        """The same, not made before it is needed."""
        return Normed(h_BTD, self.weight, self.eps)


@dataclass(frozen=True)
class ModelBuild:
    """What every block of one model shares. ``writes``: how often the model writes into its residual stream; ``chosen``: see
    ``legality.backend_for``."""

    d_model: int
    vocab: int
    parts: Parts
    backend: str
    writes: int
    chosen: Mapping[str, str] = field(default_factory=dict)

    def sizes(self) -> RouterSizes:
        return RouterSizes(self.d_model, self.vocab, self.parts)


@dataclass
class Flow:
    """What travels with the stream through one stage.

    active_BT: tokens that read here (not halted, valid), or None for all. weight_BT: product of the soft weights so far,
    or None while every weight is 1. idle: known to read nowhere, so that outputs are zero.
    """

    active_BT: Tensor | None = None
    weight_BT: Tensor | None = None
    idle: bool = False

    def decided(self, site: RoutedSite, x_BTD: Tensor | Normed, context: Context, carry: Carry) -> Flow:
        """The flow past a two-way decision at ``context.site``.

        With soft weights everything is computed and weighted, so that gradients flow through the choices not taken
        too; without them, tokens not chosen are not read.
        """
        at = context.at(asked_BT=self.active_BT)
        decision, state = site(x_BTD, at, carry.router(at.site))
        carry.keep_router(at.site, state)
        if decision.weight_BTN is not None:
            weight_BT = decision.weight_BTN[..., 1]
            return Flow(self.active_BT, weight_BT if self.weight_BT is None else self.weight_BT * weight_BT)
        on_BT = decision.choice_BT == 1 if decision.taken_BT is None else decision.taken_BT
        idle = self.idle or (decision.span is not None and decision.span[1] == 0)
        return Flow(on_BT if self.active_BT is None else self.active_BT & on_BT, self.weight_BT, idle)


class Block(nn.Module):
    """Sublayers of one block, their norms, an optional per-channel output scale and an optional gate."""

    def __init__(self, gene: genome.Block, stage: int, index: int, depths: int, build: ModelBuild) -> None:
        super().__init__()
        self.gene, self.stage, self.index = gene, stage, index
        D, parts = build.d_model, build.parts
        self.mixers = nn.ModuleList()
        for sublayer in gene.sublayers:
            config = parts.config("mixer", sublayer.mixer, sublayer.params)
            mixer_build = MixerBuild(
                D, depths, backend_for(sublayer, parts, build.backend, build.chosen), parts
            )
            self.mixers.append(parts.factory("mixer", sublayer.mixer)(config, mixer_build))
        count = len(self.mixers)
        self.norms = nn.ModuleList(
            RMSNorm(D, gene.norm_eps) if gene.norm != "none" else nn.Identity() for _ in range(count)
        )
        scaled = gene.norm == "sandwich" or gene.arrangement == "parallel_mean"
        self.output_norms = nn.ModuleList(
            RMSNorm(D, gene.norm_eps) if scaled else nn.Identity() for _ in range(count)
        )
        self.scale_raw_D: nn.Parameter | None = None
        if gene.output_scale is not None:
            self.scale_raw_D = nn.Parameter(torch.full((D,), float(gene.output_scale.raw)))
        self.gate: RoutedSite | None = None
        if gene.gate is not None:
            self.gate = RoutedSite(gene.gate, f"{stage}.{index}.gate", "gate", 2, build.sizes())
        one_by_one = gene.arrangement == "sequential" or count == 1
        self._bare = gene.norm == "pre" and not scaled and one_by_one and self.scale_raw_D is None
        self._init_outputs(build.writes)

    def forward(self, h_BTD: Tensor, context: Context, carry: Carry, flow: Flow) -> Tensor:
        """Return the stream after this block at ``context.depth``; its states are replaced in ``carry``."""
        if context.recorded and self._bare:
            return self._token(h_BTD, context, carry, flow)
        first_BTD = self.norms[0](h_BTD)
        flow = self._gated(first_BTD, context, carry, flow)
        outer_BTD = h_BTD
        outputs: list[Tensor] = []
        for i, mixer in enumerate(self.mixers):
            site = f"{self.stage}.{self.index}.{context.depth}.{i}"
            x_BTD = (
                first_BTD
                if i == 0
                else self.norms[i](h_BTD if self.gene.arrangement == "sequential" else outer_BTD)
            )
            at = context.at(site=site, asked_BT=flow.active_BT)
            y_BTD, state = mixer(x_BTD, at, carry.mixer(site), flow.active_BT)
            carry.keep_mixer(site, state)
            if flow.idle and not context.training:
                continue
            y_BTD = self._scaled(self.output_norms[i](y_BTD), flow.weight_BT)
            if self.gene.arrangement == "sequential":
                h_BTD = h_BTD + y_BTD
            else:
                outputs.append(y_BTD)
        if outputs:
            total_BTD = torch.stack(outputs).sum(dim=0)
            h_BTD = outer_BTD + (
                total_BTD / len(outputs) if self.gene.arrangement == "parallel_mean" else total_BTD
            )
        return h_BTD

    def _token(self, h_B1D: Tensor, context: Context, carry: Carry, flow: Flow) -> Tensor:
        """One recorded token of each row: norms and sums are left to the mixers, whose kernels may make them on their way."""
        for i, (norm, mixer) in enumerate(zip(self.norms, self.mixers, strict=True)):
            site = f"{self.stage}.{self.index}.{context.depth}.{i}"
            stream: Normed = norm.of(h_B1D)  # type: ignore[operator]
            if i == 0 and self.gate is not None:
                flow = self._gated(stream, context, carry, flow)
            at = context.at(site=site, asked_BT=flow.active_BT)
            h_B1D, state = mixer.onto(stream, at, carry.mixer(site), flow.active_BT)  # type: ignore[operator]
            carry.keep_mixer(site, state)
        return h_B1D

    def _gated(self, x_BTD: Tensor | Normed, context: Context, carry: Carry, flow: Flow) -> Flow:
        if self.gate is None:
            return flow
        site = f"{self.stage}.{self.index}.{context.depth}.gate"
        return flow.decided(self.gate, x_BTD, context.at(site=site), carry)

    def _scaled(self, y_BTD: Tensor, weight_BT: Tensor | None) -> Tensor:
        if self.scale_raw_D is not None:
            assert self.gene.output_scale is not None
            y_BTD = y_BTD * torch.sigmoid(self.scale_raw_D.clamp(min=self.gene.output_scale.floor))
        return y_BTD if weight_BT is None else y_BTD * weight_BT[..., None].to(y_BTD.dtype)

    def _init_outputs(self, writes: int) -> None:
        """Apply ``output_init`` to the matrices that write into the stream, and to nothing else."""
        if self.gene.output_init == "normal":
            return
        factor = 0.0 if self.gene.output_init == "zero" else 1.0 / math.sqrt(writes)
        with torch.no_grad():
            for mixer in self.mixers:
                for name in sorted(mixer.output_parameters()):  # type: ignore[operator]
                    mixer.get_parameter(name).mul_(factor)
