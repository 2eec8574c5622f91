"""The language model: embedding, stages, final norm, head; one forward for training, prefill in pieces and decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from crossbreed.core import genome
from crossbreed.core.contracts.context import Context, ExecutionPhase, Recorder
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.contracts.router import Decision, RouterState
from crossbreed.core.contracts.task import IGNORE, Batch
from crossbreed.core.model.block import ModelBuild, RMSNorm
from crossbreed.core.model.legality import check, check_backend, mode_readers
from crossbreed.core.model.routing import RoutedSite, RouterSizes, Site, segment_starts
from crossbreed.core.model.seeding import seeded
from crossbreed.core.model.stage import Stage
from crossbreed.core.model.state import Carry, ModelState, fresh_positions
from crossbreed.core.ops import casts, kernels
from crossbreed.core.ops.cross_entropy import linear_cross_entropy, token_cross_entropy
from crossbreed.core.ops.entropy import measured_output, normalised_entropy

EMBEDDING_STD = 0.02


@dataclass(frozen=True)
class Loss:
    """The result of one training or evaluation pass.

    objective: scalar to differentiate: mean loss in nats over scored positions plus auxiliary losses; where devices share a
               batch, this one's part of it.
    loss_nats: summed loss over scored positions; ``scored`` and ``correct`` count positions.
    records:   (site, statistics) of every routed site and mixer that recorded something.
    """

    objective: Tensor
    loss_nats: Tensor
    scored: Tensor
    correct: Tensor
    auxiliary: dict[str, Tensor] = field(default_factory=dict)
    records: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


@dataclass(frozen=True)
class Statistics:
    """What one step's passes left for the parts of a model: by the site of mixers, and for every router in turn."""

    mixers: dict[str, list[dict[str, Any]]]
    routers: list[list[Mapping[str, Any]]]


class LanguageModel(nn.Module):
    """A genome, in whatever form, as a module. Equal (architecture, seed) gives equal weights; the global generator is left
    untouched. With ``backend`` "reference" PyTorch computes alone, without a kernel of ours or anybody's; under "auto" mixers
    compute as ``chosen`` says, by the digests of their sublayers, or as they would of themselves.

    Raises ConfigError or MissingCapability before any weight is allocated when the genome is not legal.
    """

    def __init__(
        self,
        architecture: genome.Architecture,
        parts: Parts,
        *,
        seed: int = 0,
        backend: str = "auto",
        chosen: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        architecture = parts.canonical(architecture)
        check(architecture, parts)
        check_backend(architecture, parts, backend)
        self.architecture, self.plain = architecture, backend == "reference"
        self.chosen = dict(chosen or {})
        D, V = architecture.d_model, architecture.vocab
        build = ModelBuild(D, V, parts, backend, _stream_writes(architecture, parts), self.chosen)
        with seeded(seed):
            self.embedding = nn.Embedding(V, D)
            nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
            self.head: nn.Linear | None = None
            if not architecture.tie_embeddings:
                self.head = nn.Linear(D, V, bias=False)
                nn.init.normal_(self.head.weight, std=EMBEDDING_STD)
            self.stages = nn.ModuleList(Stage(stage, i, build) for i, stage in enumerate(architecture.stages))
            final_eps = architecture.norm_eps
            self.final_norm = RMSNorm(D, final_eps) if architecture.final_norm else nn.Identity()
            self.mode: RoutedSite | None = None
            if architecture.mode_router is not None:
                readers = tuple(mode_readers(architecture))
                sizes = RouterSizes(D, V, parts)
                self.mode = RoutedSite(architecture.mode_router, "mode", "mode", len(readers), sizes, readers)
        self._statistics: dict[str, list[dict[str, Any]]] = {}

    @property
    def output_weight_VD(self) -> Tensor:
        return self.embedding.weight if self.head is None else self.head.weight

    def forward(
        self, tokens_BT: Tensor, context: Context, state: ModelState | None = None
    ) -> tuple[Tensor, ModelState | None]:
        """Return (h_BTD after the final norm, new state). ``state`` None: start empty and keep none.

        A feedback mode router (one that must see the model's output on earlier segments) is evaluated segment by segment.
        """
        if context.output_entropy is None:
            context = context.at(output_entropy=self._output_entropy, output_measure=self._output_measure)
        with kernels.plain(self.plain), casts.once():
            if self.mode is not None and self.mode.watches(context) and not context.training:
                return self._by_segments(tokens_BT, context, state)
            return self._piece(tokens_BT, context, state)

    def logits(self, h_BTD: Tensor) -> Tensor:
        """Logits BTV. Evaluation and training use ``loss``, which never holds them all."""
        return nn.functional.linear(h_BTD, self.output_weight_VD)

    def loss(self, batch: Batch, context: Context) -> Loss:
        """Next-token loss over the batch's labels, in pieces; never a B x T x V tensor."""
        recorder = context.recorder or Recorder()
        context = context.at(recorder=recorder)
        h_BTD, _ = self(batch.tokens_BT, context)
        D = h_BTD.shape[-1]
        with kernels.plain(self.plain):
            loss_nats, scored, correct = linear_cross_entropy(
                h_BTD.reshape(-1, D), self.output_weight_VD, batch.labels_BT.reshape(-1), ignore_index=IGNORE
            )
        auxiliary = dict(recorder.losses)
        # Of a batch that devices share, objectives of all of them add up to that of the whole.
        scored_N = context.whole(scored[None])
        objective = loss_nats / scored_N.sum().clamp(min=1)
        for value in auxiliary.values():
            objective = objective + value / len(scored_N)
        if context.training and recorder.open:
            for site, statistics in recorder.records:
                self._statistics.setdefault(site, []).append(statistics)
        return Loss(objective, loss_nats.detach(), scored, correct, auxiliary, recorder.records)

    def token_losses(self, batch: Batch, context: Context) -> tuple[Tensor, Tensor]:
        """nats_BT of each label (0 where there is none) and whether it was the likeliest token; in pieces, without gradient."""
        with torch.no_grad(), kernels.plain(self.plain):
            h_BTD, _ = self(batch.tokens_BT, context)
            nats_N, right_N = token_cross_entropy(
                h_BTD.flatten(0, 1),
                self.output_weight_VD,
                batch.labels_BT.flatten(),
                ignore_index=IGNORE,
            )
        return nats_N.view(batch.labels_BT.shape), right_N.view(batch.labels_BT.shape)

    def context(
        self,
        tokens_BT: Tensor,
        *,
        phase: ExecutionPhase = "prefill",
        seed: int = 0,
        step: int = 0,
        rows_B: Tensor | None = None,
        document_BT: Tensor | None = None,
        labels_BT: Tensor | None = None,
        valid_BT: Tensor | None = None,
        forced: dict[str, Tensor] | None = None,
        state: ModelState | None = None,
        recorder: Recorder | None = None,
    ) -> Context:
        """The context of a piece. Positions continue from ``state``; with documents they restart at each change.

        Packed documents must begin inside the piece unless they are at its start, so a piece of a packed row that goes on
        with an earlier document keeps counting from ``state``.
        """
        B, T = tokens_BT.shape
        device = tokens_BT.device
        begin_B = fresh_positions(B, device) if state is None else state.position_B
        index_T = torch.arange(T, device=device)
        positions_BT = begin_B[:, None] + index_T
        if document_BT is not None:
            starts_BT = torch.zeros_like(document_BT, dtype=torch.bool)
            starts_BT[:, 1:] = document_BT[:, 1:] != document_BT[:, :-1]
            last_BT = torch.where(starts_BT, index_T, -1).cummax(dim=1).values
            positions_BT = torch.where(last_BT >= 0, index_T - last_BT, positions_BT)
        loss_mask_BT = None if labels_BT is None else labels_BT != IGNORE
        return Context(
            positions_BT=positions_BT,
            row_id_B=torch.arange(B, device=device) if rows_B is None else rows_B,
            valid_BT=valid_BT,
            document_BT=document_BT,
            loss_mask_BT=loss_mask_BT if phase == "train" else None,
            labels_BT=labels_BT,
            phase=phase,
            seed=seed,
            step=step,
            forced=forced or {},
            output_entropy=self._output_entropy,
            output_measure=self._output_measure,
            recorder=recorder,
        )

    def init_state(
        self,
        batch: int,
        *,
        slots: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> ModelState:
        """An empty state for ``batch`` rows with room for ``slots`` tokens (a hint, never a limit)."""
        device = device or self.embedding.weight.device
        dtype = dtype or self.embedding.weight.dtype
        mixers: dict[str, Any] = {}
        routers: dict[str, Any] = {}
        for stage in self._stages():
            m, r = stage.init_states(batch, slots, dtype, device)
            mixers |= m
            routers |= r
        if self.mode is not None:
            routers["mode"] = self.mode.init_state(batch, device)
        return ModelState(mixers, routers, fresh_positions(batch, device))

    def take_statistics(self) -> Statistics:
        """What training passes left for ``after_step``, taken out of the model."""
        mixers, self._statistics = self._statistics, {}
        return Statistics(mixers, [site.take_statistics() for site in self.routed_sites()])

    def give_statistics(self, statistics: Statistics) -> None:
        """Leave for ``after_step`` what was taken out of an earlier pass, whose tensors hold other numbers by now."""
        self._statistics = {site: list(found) for site, found in statistics.mixers.items()}
        for site, found in zip(self.routed_sites(), statistics.routers, strict=True):
            site.give_statistics(found)

    def after_step(self) -> None:
        """Commit running statistics of routers and mixers; call once after each optimiser step."""
        for site in self.routed_sites():
            site.after_step()
        statistics, self._statistics = self._statistics, {}
        for stage in self._stages():
            for mixer, sites in stage.mixer_sites():
                found = [item for site in sites for item in statistics.get(site, [])]
                if found:
                    mixer.after_step(found)  # type: ignore[operator]

    def routed_sites(self) -> Iterator[RoutedSite]:
        """Every router module of the model."""
        if self.mode is not None:
            yield self.mode
        for stage in self._stages():
            yield from stage.routed_sites()

    def mixer_sites(self) -> Iterator[list[str]]:
        """For every mixer module the sites it runs at, one for each depth that uses its weights."""
        for stage in self._stages():
            yield from (sites for _, sites in stage.mixer_sites())

    def sites(self) -> dict[str, Site]:
        """Decision sites by name without depth, one each (``"mode"``, ``"stage.block.gate"``, ``"stage.halt"``)."""
        return {site.name: site.site() for site in self.routed_sites()}

    @property
    def needs_labels(self) -> bool:
        """Whether any router looks at the labels, so that evaluation must show them."""
        return any(site.needs_labels for site in self.routed_sites())

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Two AdamW groups: matrices that decay, and what must not (vectors, gains, what plugins name)."""
        spared = set(self.no_weight_decay())
        groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
        for name, parameter in self.named_parameters():
            groups[parameter.dim() >= 2 and name not in spared].append(parameter)
        return [
            {"params": groups[True], "weight_decay": weight_decay},
            {"params": groups[False], "weight_decay": 0.0},
        ]

    def no_weight_decay(self) -> Iterator[str]:
        """Full names of the parameters that plugins exempt from weight decay, asked anew from the modules."""
        for prefix, module in self.named_modules():
            declared = getattr(module, "no_weight_decay", None)
            if declared is not None and module is not self:
                yield from (f"{prefix}.{name}" for name in sorted(declared()))

    def _stages(self) -> list[Stage]:
        return list(self.stages)  # type: ignore[arg-type]

    def _output_entropy(self, h_BTD: Tensor) -> Tensor:
        return normalised_entropy(h_BTD, self.output_weight_VD)

    def _output_measure(self, h_BTD: Tensor, measure: Callable[[Tensor], Tensor]) -> Tensor:
        return measured_output(h_BTD, self.output_weight_VD, measure)

    def _piece(
        self, tokens_BT: Tensor, context: Context, state: ModelState | None
    ) -> tuple[Tensor, ModelState | None]:
        """One pass over a piece in which every decision can be taken beforehand or from inside the model."""
        carry = Carry(state)
        h_BTD = self.embedding(tokens_BT)
        context = context.at(embedded_BTD=h_BTD)
        if self.mode is not None:
            decision = self._decide_mode(h_BTD, context, carry)
            context = context.at(mode=decision)
        for stage in self._stages():
            h_BTD = stage(h_BTD, context, carry, self.final_norm)
        h_BTD = self.final_norm(h_BTD)
        if self.mode is not None and self.mode.watches(context):
            observed = self.mode.observe(h_BTD.detach(), context.at(site="mode"), carry.router("mode"))
            carry.keep_router("mode", observed)
        if state is None:
            return h_BTD, None
        return h_BTD, carry.freeze(_advance(context))

    def _decide_mode(self, h_BTD: Tensor, context: Context, carry: Carry) -> Decision:
        assert self.mode is not None
        at = context.at(site="mode", asked_BT=context.valid_BT)
        decided: tuple[Decision, RouterState | None] = self.mode(h_BTD, at, carry.router("mode"))
        carry.keep_router("mode", decided[1])
        return decided[0]

    def _by_segments(
        self, tokens_BT: Tensor, context: Context, state: ModelState | None
    ) -> tuple[Tensor, ModelState | None]:
        """Cut the piece wherever a segment starts in any row, so that each choice can see the output before it."""
        assert self.mode is not None
        T = tokens_BT.shape[1]
        if T == 1 and state is not None:
            return self._piece(tokens_BT, context, state)
        given = state
        if state is None:
            state = self.init_state(tokens_BT.shape[0], slots=T, device=tokens_BT.device)
        starts_T = segment_starts(context, self.mode.segment or 1).any(dim=0)
        cuts = [0, *(t for t in starts_T.nonzero().flatten().tolist() if t > 0), T]
        outputs = []
        for start, stop in pairwise(cuts):
            h_BTD, after = self._piece(tokens_BT[:, start:stop], context.slice(start, stop), state)
            assert after is not None
            state = after
            outputs.append(h_BTD)
        # A sub-piece does not know how many tokens a ragged row wrote before it; the whole piece does.
        kept = None if given is None else replace(state, position_B=_advance(context))
        return torch.cat(outputs, dim=1), kept


def _advance(context: Context) -> Tensor:
    """The position of each row's next token: one past its last valid token of this piece."""
    if context.valid_BT is None:
        return context.positions_BT[:, -1] + 1
    count_B = context.valid_BT.sum(dim=1)
    last_B = context.positions_BT.gather(1, (count_B - 1).clamp(min=0)[:, None])[:, 0]
    # A row with no valid token stays where it was.
    return torch.where(count_B > 0, last_B + 1, context.positions_BT[:, 0])


def _stream_writes(architecture: genome.Architecture, parts: Parts) -> int:
    """How many times a forward pass writes into the residual stream."""
    total = 0
    for stage in architecture.stages:
        config = parts.config("depth", stage.depth.name, stage.depth.params)
        policy = parts.factory("depth", stage.depth.name)(config)
        for step in policy.plan(stage.depth.repeats, len(stage.blocks)):
            total += len(stage.blocks[step.block].sublayers)
    return total
