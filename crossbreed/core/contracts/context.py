"""What a mixer or a router is told about the tokens it works on, beside the tokens themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from crossbreed.core.contracts.router import Decision

ExecutionPhase = Literal["train", "prefill", "decode"]
ExecutionChoice = Literal["auto", "dense", "sparse"]


@dataclass
class Recorder:
    """Collects statistics and losses of one forward pass. Closed during recomputation, so that nothing counts twice.

    ``detail`` asks for facts about every token too (choices, entropies, weights of attention over depths), which cost
    memory and time that training and profiling do not spend.
    """

    open: bool = True
    detail: bool = False
    losses: list[tuple[str, Tensor]] = field(default_factory=list)
    records: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


@dataclass(frozen=True)
class Context:
    """One piece of a batch: B rows of T tokens.

    positions_BT:  int64, restart at 0 with each document; position 0 resets conv tails, recurrent and router state.
    valid_BT:      bool, a prefix of each row of the piece, or None when every token is valid. Invalid tokens write nothing.
    document_BT:   int64 document number of each token in its row, or None when each row is one document.
    row_id_B:      int64, names each row over a whole run (part of the random counter).
    loss_mask_BT:  bool, tokens the loss counts, or None for all valid ones.
    labels_BT:     int64 targets, present in training and for oracles only; -100 is ignored.
    phase:         train, prefill (any number of tokens) or decode (one token a row).
    seed:          of the run, part of the random counter.
    step:          of the optimiser, part of the random counter; 0 in evaluation. Training may run one recorded pass for many
                   steps, so a part draws by ``uniform`` and does not look at it.
    words:         site -> what the random counter begins with there, where that lies on the device; None: of seed and step.
    forced:        {site: choice_BT int64, -1 = free}: decisions imposed from outside.
    site:          where this call stands: ``"stage.block.depth.kind"``, or ``"mode"``.
    depth:         which repeat of the stage this is, from 0.
    depths:        how many repeats there are.
    asked_BT:      bool, tokens valid and not gated off or halted here; None = all valid.
    mode:          the mode router's Decision for these tokens, or None.
    embedded_BTD:  the token embeddings of the piece, as the first stage reads them; None outside a model.
    execution:     how a part that can skip unread tokens treats them: ``sparse`` skips, ``dense`` computes and masks,
                   ``auto`` skips where that is the faster. In training only what need not be looked at from the host is
                   skipped. Results agree up to rounding.
    recorded:      this decoded token's kernels are replayed for later tokens: nothing about masks, positions or lengths may be
                   looked at from the host, shapes follow from the room there is, and what is not read is left out on the
                   device or masked. Numbers that a part keeps on the host may change by the same amount every token.
    gather:        what ``whole`` does where several devices share the step's batch, or None.
    output_entropy: h_BTD -> H_BT, see ``entropy``.
    output_measure: (h_BTD, measure) -> BT, see ``measure_output``.
    recorder:      statistics and losses of this forward pass.
    """

    positions_BT: Tensor
    row_id_B: Tensor
    valid_BT: Tensor | None = None
    document_BT: Tensor | None = None
    loss_mask_BT: Tensor | None = None
    labels_BT: Tensor | None = None
    phase: ExecutionPhase = "prefill"
    seed: int = 0
    step: int = 0
    words: Callable[[str], Tensor] | None = None
    forced: dict[str, Tensor] = field(default_factory=dict)
    site: str = ""
    depth: int = 0
    depths: int = 1
    asked_BT: Tensor | None = None
    mode: Decision | None = None
    embedded_BTD: Tensor | None = None
    execution: ExecutionChoice = "auto"
    recorded: bool = False
    gather: Callable[[Tensor], Tensor] | None = None
    output_entropy: Callable[[Tensor], Tensor] | None = None
    output_measure: Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor] | None = None
    recorder: Recorder | None = None

    @property
    def training(self) -> bool:
        """Whether this is a training pass."""
        return self.phase == "train"

    @property
    def reset_BT(self) -> Tensor:
        """bool: True where a document starts."""
        return self.positions_BT == 0

    @property
    def recording(self) -> bool:
        """Whether statistics of this pass are kept, so that computing them is worth it."""
        return self.recorder is not None and self.recorder.open

    @property
    def detailed(self) -> bool:
        """Whether the recorder of this pass wants facts about every token."""
        return self.recorder is not None and self.recorder.open and self.recorder.detail

    def asked_or_valid_BT(self) -> Tensor:
        """bool: tokens this call is asked about, as a real mask even when all are."""
        import torch

        for mask in (self.asked_BT, self.valid_BT):
            if mask is not None:
                return mask
        return torch.ones_like(self.positions_BT, dtype=torch.bool)

    def counted_BT(self) -> Tensor:
        """bool: tokens that statistics and router losses count: asked, valid and inside the loss mask."""
        counted = self.asked_or_valid_BT()
        for mask in (self.valid_BT, self.loss_mask_BT):
            if mask is not None:
                counted = counted & mask
        return counted

    def whole(self, x_B: Tensor) -> Tensor:
        """``x`` for all rows of the step's batch: what every device that shares it has, along the first dimension, in order of rows.

        It is ``x`` itself unless several devices share a batch. A part whose training looks at more than one row at a time takes
        its statistics and sums of this, so that a run is the same on any number of devices. All devices have to ask, so whether
        to ask must not depend on the data; and they must make the same of it, for its gradient is taken to be equal on all.
        """
        return x_B if self.gather is None else self.gather(x_B)

    def entropy(self, h_BTD: Tensor) -> Tensor:
        """H_BT in [0, 1]: entropy of the model's own next-token distribution read from ``h``, divided by ln(vocab).

        Taken from the output head without gradient and in pieces (AMOR section 3). A detailed recorder keeps it.
        """
        if self.output_entropy is None:
            raise RuntimeError(
                f"no output head is bound at site {self.site!r}; entropy() works inside a model only"
            )
        entropy_BT = self.output_entropy(h_BTD)
        if self.detailed:
            self.record(entropy_BT=entropy_BT)
        return entropy_BT

    def measure_output(self, h_BTD: Tensor, measure: Callable[[Tensor], Tensor]) -> Tensor:
        """BT: one number a token, made of the model's own next-token logits read from ``h``; without gradient.

        ``measure`` maps logits (n, V) of any n tokens, in at least fp32, to n numbers, each from its own row; it is called in
        pieces, so that B x T x V logits are never held. A router that reads it is charged the probe: 2 x d_model x vocab.
        """
        if self.output_measure is None:
            raise RuntimeError(
                f"no output head is bound at site {self.site!r}; measure_output() works inside a model only"
            )
        return self.output_measure(h_BTD, measure)

    def uniform(self, site: str, index_BT: Tensor) -> Tensor:
        """float64 uniforms in [0, 1): a hash of (seed, step, row, document, site, index).

        Splits, workers, resumes and recomputation agree, because no generator state exists.
        """
        import torch

        if self.words is None:
            x = torch.full_like(index_BT, counter_word(self.seed, self.step, site), dtype=torch.int64)
        else:
            x = self.words(site).expand_as(index_BT)
        document = self.document_BT if self.document_BT is not None else torch.zeros_like(index_BT)
        for part in (self.row_id_B[:, None].expand_as(index_BT), document, index_BT):
            x = _splitmix(x ^ part.to(torch.int64))
        # 53 high bits, taken as unsigned.
        return ((x >> 11) & ((1 << 53) - 1)).to(torch.float64) * 2.0**-53

    def record(self, **statistics: Any) -> None:
        """Store statistics of this site for the current pass (numbers or tensors; kept detached)."""
        if self.recorder is not None and self.recorder.open:
            kept = {k: v.detach() if hasattr(v, "detach") else v for k, v in statistics.items()}
            self.recorder.records.append((self.site, kept))

    def add_loss(self, name: str, value: Tensor) -> None:
        """Add a scalar auxiliary loss of this site to the training objective."""
        if self.recorder is not None and self.recorder.open and self.training:
            self.recorder.losses.append((f"{self.site}.{name}", value))

    def at(self, **changes: Any) -> Context:
        """A copy with some fields changed. Every block of every decoded token makes several, so it runs no constructor."""
        if not changes.keys() <= self.__dict__.keys():
            raise TypeError(f"a Context has no {', '.join(sorted(changes.keys() - self.__dict__.keys()))}")
        copy = object.__new__(Context)
        copy.__dict__.update(self.__dict__, **changes)
        return copy

    def slice(self, start: int, stop: int) -> Context:
        """The context of tokens ``start:stop`` of this piece."""
        cut = slice(start, stop)

        def along_t(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[:, cut]

        return replace(
            self,
            positions_BT=self.positions_BT[:, cut],
            valid_BT=along_t(self.valid_BT),
            document_BT=along_t(self.document_BT),
            loss_mask_BT=along_t(self.loss_mask_BT),
            labels_BT=along_t(self.labels_BT),
            asked_BT=along_t(self.asked_BT),
            forced={site: choice[:, cut] for site, choice in self.forced.items()},
            mode=None if self.mode is None else self.mode.slice(start, stop),
            embedded_BTD=along_t(self.embedded_BTD),
        )


def counter_word(seed: int, step: int, site: str) -> int:
    """What the random counter of a site begins with at a step: 64 bits, signed."""
    digest = hashlib.blake2b(f"{seed}/{step}/{site}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _splitmix(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64 on int64 tensors (wrapping arithmetic; shifts made logical by masking)."""
    x = x + -7046029254386353131
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * -4658895280553007687
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * -7723592293110705685
    return x ^ ((x >> 31) & ((1 << 33) - 1))
