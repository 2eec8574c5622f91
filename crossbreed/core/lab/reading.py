"""Reading text as a user of a trained model does: through the model's own state, in any pieces, one token at a time at last.

Legend as in ``core.model``; texts are rows, and rows of one batch may have any lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from crossbreed.core.contracts.context import Context, Recorder
from crossbreed.core.errors import ConfigError, MissingCapability
from crossbreed.core.lab.environment import precision
from crossbreed.core.lab.operating_points import OWN, OperatingPoint, Stretch
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.routing import Site
from crossbreed.core.model.state import ModelState


class Reading:
    """B texts being read together, each where it stands; what they have in common is the work.

    lengths: tokens that each text will have at its end, from which schedules may count.
    rows:    numbers of the texts; a random router draws by them, so that no batch changes a decision.
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
    ) -> None:
        check_readable(model)
        self.model, self.point, self.seed = model, point, seed
        self.device = model.embedding.weight.device
        self.lengths = list(lengths)
        self.rows_B = torch.tensor(
            list(range(len(self.lengths)) if rows is None else rows), device=self.device
        )
        self._sites: dict[str, Site] = model.sites()
        for length in set(self.lengths):
            self._check(length)
        narrow = dtype == "bfloat16"
        self.state: ModelState = model.init_state(
            len(self.lengths), slots=max(self.lengths), dtype=torch.bfloat16 if narrow else None
        )

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
        h_BTD, self.state = found
        return h_BTD

    def last(self, pieces: Sequence[Sequence[int]], recorder: Recorder | None = None) -> Tensor:
        """Read on, and return logits_BV of what follows each text; of a text that got nothing they mean nothing."""
        h_BTD = self.read(pieces, recorder)
        ends_B = torch.tensor([max(0, len(piece) - 1) for piece in pieces], device=self.device)
        h_BD = h_BTD[torch.arange(len(pieces), device=self.device), ends_B]
        return wide(self.model.logits(h_BD))

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some of the texts only, by their places in the batch."""
        kept_B = torch.tensor(rows, dtype=torch.int64, device=self.device)
        self.state, self.rows_B = self.state.select(kept_B), self.rows_B[kept_B]
        self.lengths = [self.lengths[b] for b in rows]

    def _context(self, tokens_BT: Tensor, valid_BT: Tensor | None, recorder: Recorder | None) -> Context:
        one = tokens_BT.shape[1] == 1 and valid_BT is None
        return self.model.context(
            tokens_BT,
            phase="decode" if one else "prefill",
            seed=self.seed,
            rows_B=self.rows_B,
            valid_BT=valid_BT,
            forced=self._forced(tokens_BT.shape[1]),
            state=self.state,
            recorder=recorder,
        )

    def _forced(self, T: int) -> dict[str, Tensor]:
        """Every text follows the point from where it stands, whatever its neighbours do."""
        if self.point.schedule is None and self.point.rate is None:
            return {}
        found = [
            self.point.forced(
                self._sites, Stretch(1, min(T, max(1, length - begin)), length, begin), device=self.device
            )
            for length, begin in zip(self.lengths, self.state.position_B.tolist(), strict=True)
        ]
        return {site: torch.cat([_widened(row[site], T) for row in found]) for site in found[0]}

    def _check(self, length: int) -> None:
        mode = self._sites.get("mode")
        self.point.check(() if mode is None else mode.names, length)


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


def _widened(choice_1T: Tensor, T: int) -> Tensor:
    """With free choices behind a text's end, where nothing is read."""
    missing = T - choice_1T.shape[1]
    return torch.nn.functional.pad(choice_1T, (0, missing), value=-1) if missing else choice_1T
