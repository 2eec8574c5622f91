"""Reading text as a user of a trained model does: through the model's own state, in any pieces, one token at a time at last.

Legend as in ``core.model``; texts are rows, and rows of one batch may have any lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from crossbreed.core.contracts.context import Context, Recorder
from crossbreed.core.errors import ConfigError, MissingCapability
from crossbreed.core.lab.decoding import Decoding
from crossbreed.core.lab.environment import precision
from crossbreed.core.lab.operating_points import OWN, OperatingPoint, Stretch
from crossbreed.core.lab.steps import StaticStep
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.routing import Site
from crossbreed.core.model.state import ModelState


class Reading:
    """B texts being read together, each where it stands; what they have in common is the work.

    lengths:  tokens that each text will have at its end, from which schedules may count.
    rows:     numbers of the texts; a random router draws by them, so that no batch changes a decision.
    decoding: of this model, seed and dtype: by it ``last`` reads one token of every text, where it has a step for that.
    """

    def __init__(
        self,
        model: LanguageModel,
        lengths: Sequence[int],
        *,
        point: OperatingPoint = OWN,
        rows: Sequence[int] | None = None,
        seed: int = 0,
        dtype: str = "float32",
        decoding: Decoding | None = None,
    ) -> None:
        check_readable(model)
        self.model, self.seed = model, seed
        self.device = model.embedding.weight.device
        count = len(lengths)
        self.rows_B = torch.tensor(list(range(count) if rows is None else rows), device=self.device)
        sites = model.sites()
        self._plans = [_plan(point, sites, length) for length in lengths]
        self._read = [0] * count
        slots = max(lengths) if decoding is None else decoding.slots
        narrow = dtype == "bfloat16"
        self._state: ModelState = model.init_state(
            count, slots=slots, dtype=torch.bfloat16 if narrow else None
        )
        self._decoding = decoding
        self._step: StaticStep | None = None

    @property
    def state(self) -> ModelState:
        """After everything that was read."""
        return self._state if self._step is None else self._step.state

    @property
    def replaying(self) -> bool:
        """Whether the last token of every text was read by a step of ``decoding``, which is one for so many texts."""
        return self._step is not None

    def read(self, pieces: Sequence[Sequence[int]], recorder: Recorder | None = None) -> Tensor:
        """Read the next tokens of every text, none of some if need be, and return h_BTD after the final norm.

        Only the first ``len(pieces[b])`` positions of row b mean anything. One token for every text is a decoding step.
        """
        counts = [len(piece) for piece in pieces]
        T = max(counts)
        tokens_BT = torch.zeros(len(pieces), T, dtype=torch.int64)
        for b, piece in enumerate(pieces):
            tokens_BT[b, : counts[b]] = torch.tensor(piece, dtype=torch.int64)
        tokens_BT = tokens_BT.to(self.device)
        valid_BT = None
        if min(counts) < T:
            counts_B = torch.tensor(counts, device=self.device)
            valid_BT = torch.arange(T, device=self.device) < counts_B[:, None]
        context = self._context(tokens_BT, valid_BT, recorder)
        found: tuple[Tensor, ModelState] = self.model(tokens_BT, context, self.state)
        h_BTD, self._state = found
        self._step = None
        self._read = [read + count for read, count in zip(self._read, counts, strict=True)]
        return h_BTD

    def last(self, pieces: Sequence[Sequence[int]], recorder: Recorder | None = None) -> Tensor:
        """Read on, and return logits_BV of what follows each text; of a text that got nothing they mean nothing."""
        if all(len(piece) == 1 for piece in pieces) and (step := self._ready()) is not None:
            return self._stepped(step, [token for (token,) in pieces], recorder)
        h_BTD = self.read(pieces, recorder)
        ends_B = torch.tensor([max(0, len(piece) - 1) for piece in pieces], device=self.device)
        h_BD = h_BTD[torch.arange(len(pieces), device=self.device), ends_B]
        return wide(self.model.logits(h_BD))

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some of the texts only, by their places in the batch."""
        kept_B = torch.tensor(rows, dtype=torch.int64, device=self.device)
        self._state, self._step, self.rows_B = self.state.select(kept_B), None, self.rows_B[kept_B]
        self._plans, self._read = [self._plans[b] for b in rows], [self._read[b] for b in rows]

    def _ready(self) -> StaticStep | None:
        """A step that stands where the texts stand."""
        if self._step is None and self._decoding is not None:
            self._step = self._decoding.step(self._state, self.rows_B, sorted(self._plans[0]))
            # The step has a copy, and caches are large.
            self._state = self.state
        return self._step

    def _stepped(self, step: StaticStep, tokens: list[int], recorder: Recorder | None) -> Tensor:
        forced = self._forced(1)
        inputs_NB = torch.tensor([tokens, *(forced[site][:, 0].tolist() for site in step.sites)])
        logits_BV = wide(step(inputs_NB)).clone()
        if recorder is not None:
            recorder.records += step.records()
        self._read = [read + 1 for read in self._read]
        return logits_BV

    def _context(self, tokens_BT: Tensor, valid_BT: Tensor | None, recorder: Recorder | None) -> Context:
        one = tokens_BT.shape[1] == 1 and valid_BT is None
        return self.model.context(
            tokens_BT,
            phase="decode" if one else "prefill",
            seed=self.seed,
            rows_B=self.rows_B,
            valid_BT=valid_BT,
            forced={site: x_BT.to(self.device) for site, x_BT in self._forced(tokens_BT.shape[1]).items()},
            state=self.state,
            recorder=recorder,
        )

    def _forced(self, T: int) -> dict[str, Tensor]:
        """Every text follows the point from where it stands, whatever its neighbours do; on the host."""
        return {
            site: torch.stack(
                [
                    _widened(plan[site][read : read + T], T)
                    for plan, read in zip(self._plans, self._read, strict=True)
                ]
            )
            for site in self._plans[0]
        }


def check_readable(model: LanguageModel) -> None:
    """Raise MissingCapability for a router that looks at labels, which a text that is being written does not have."""
    for site in model.routed_sites():
        if site.needs_labels and site.schedule is None:
            raise MissingCapability(
                f"router {site.router_name!r} at {site.name} looks at the right answers, which a text that is read or gone on "
                "with does not have; it serves in training and evaluation alone"
            )


@contextmanager
def reading(model: LanguageModel, dtype: str) -> Iterator[None]:
    """Evaluation mode without gradients, in the precision that a run was trained in.

    Raises ConfigError where the model's device does not have it.
    """
    model.eval()
    with torch.inference_mode(), precision(dtype, model.embedding.weight.device):
        yield


def wide(logits: Tensor) -> Tensor:
    """Logits in at least float32, as probabilities need them."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def check_room(prompt: int, new: int, longest: int | None, what: str) -> None:
    """Raise ConfigError for a text that is empty or longer than the model can read."""
    if prompt < 1:
        raise ConfigError(f"{what} is empty; it must hold at least one token")
    if longest is not None and prompt + new > longest:
        raise ConfigError(
            f"{what} has {prompt} tokens and {new} more are asked for; the model can read texts of {longest} tokens at most"
        )


def _plan(point: OperatingPoint, sites: Mapping[str, Site], length: int) -> dict[str, Tensor]:
    """The choices forced at each site over a whole text. Raises ConfigError for a point that does not fit."""
    mode = sites.get("mode")
    point.check(() if mode is None else mode.names, length)
    return {site: choice_1T[0] for site, choice_1T in point.forced(sites, Stretch(1, length, length)).items()}


def _widened(choice_T: Tensor, T: int) -> Tensor:
    """With free choices behind a text's end, where nothing is read."""
    missing = T - len(choice_T)
    return torch.nn.functional.pad(choice_T, (0, missing), value=-1) if missing else choice_T
