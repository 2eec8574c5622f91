"""Write always, read where chosen: the masks, gathers and resets that readers and mixers share.

Legend: N tokens that are read in a piece, R rows that read, U tokens of the row that reads most.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import torch
from torch import Tensor

from crossbreed.core.contracts.context import Context
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import NORM_EPS
from crossbreed.core.ops.norm import rms_norm
from crossbreed.plugins.mixers.configs.readers import ReaderSettings


def read_mask(read_BT: Tensor | None, context: Context) -> Tensor | None:
    """bool: valid tokens that are read, or None when all are."""
    if read_BT is None or context.valid_BT is None:
        return context.valid_BT if read_BT is None else read_BT
    return read_BT & context.valid_BT


def masked(x: Tensor, read_BT: Tensor | None) -> Tensor:
    """``x`` of shape (B, T, ...), zero where not read."""
    return (
        x if read_BT is None else x.masked_fill(~read_BT.reshape(*read_BT.shape, *(1,) * (x.dim() - 2)), 0.0)
    )


def traced(settings: ReaderSettings, read_BT: Tensor | None) -> Tensor | None:
    """bool: tokens that leave a trace in a reader's state, or None when all that are valid do."""
    return None if settings.writes == "always" else read_BT


def chosen(read_BT: Tensor | None, context: Context) -> Chosen | None:
    """The tokens to compute, or None where that is every token: all are read, in training, under ``dense`` execution.

    Looks at the mask from the host, which waits for a device, so never in a recorded pass.
    """
    if read_BT is None or context.training or context.recorded or context.execution == "dense":
        return None
    at_N2 = read_BT.nonzero()
    return None if len(at_N2) == read_BT.numel() else Chosen(read_BT, at_N2)


@dataclass(frozen=True)
class Chosen:
    """The tokens of a piece that are read, when not all are. ``at_N2``: their rows and columns, row by row."""

    read_BT: Tensor
    at_N2: Tensor

    def __len__(self) -> int:
        return len(self.at_N2)

    @cached_property
    def index_N(self) -> Tensor:
        """Their places in the flattened piece."""
        return self.at_N2[:, 0] * self.read_BT.shape[1] + self.at_N2[:, 1]

    def gather(self, x: Tensor) -> Tensor:
        """``x`` of shape (B, T, ...) at these tokens, as one row (1, N, ...)."""
        return x.flatten(0, 1)[self.index_N].unsqueeze(0)

    def scatter(self, x: Tensor) -> Tensor:
        """``x`` of shape (1, N, ...) back in its places, (B, T, ...), zero elsewhere."""
        whole = x.new_zeros(self.read_BT.numel(), *x.shape[2:])
        whole.index_copy_(0, self.index_N, x[0])
        return whole.view(*self.read_BT.shape, *x.shape[2:])

    def rows(self) -> Rows:
        """The same tokens as rows of equal width. There must be one at least."""
        count_B = self.read_BT.sum(1)
        rows_R = count_B.nonzero().squeeze(1)
        count_R = count_B[rows_R]
        width = int(count_R.max())
        # What is read first, in its order; then unread tokens, whose results are dropped.
        token_RU = (~self.read_BT[rows_R]).to(torch.uint8).argsort(dim=1, stable=True)[:, :width]
        used_RU = torch.arange(width, device=count_R.device) < count_R[:, None]
        return Rows(rows_R, token_RU, used_RU)


@dataclass(frozen=True)
class Rows:
    """Chosen tokens row by row, for work that needs the rows apart. ``used_RU``: what is no padding."""

    rows_R: Tensor
    token_RU: Tensor
    used_RU: Tensor

    def gather(self, x: Tensor) -> Tensor:
        """``x`` of shape (B, T, ...) at these tokens: (R, U, ...)."""
        return x[self.rows_R[:, None], self.token_RU]

    def flat(self, x: Tensor) -> Tensor:
        """``x`` of shape (R, U, ...) without the padding, as one row (1, N, ...)."""
        return x[self.used_RU].unsqueeze(0)

    def runs(self) -> list[tuple[slice, slice]]:
        """(rows of the piece, rows here), for each run of rows that lie side by side: views, where an index copies."""
        rows = self.rows_R.tolist()
        found = []
        for _, run in groupby(range(len(rows)), key=lambda i: rows[i] - i):
            first, *rest = run
            last = rest[-1] if rest else first
            found.append((slice(rows[first], rows[last] + 1), slice(first, last + 1)))
        return found


def spread(x_BTGK: Tensor, heads: int) -> Tensor:
    """Each of the G heads repeated for the consecutive output heads that share it."""
    groups = x_BTGK.shape[2]
    return x_BTGK if groups == heads else x_BTGK.repeat_interleave(heads // groups, dim=2)


def starts(context: Context, carried: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """What a document's start means for a carried tensor (batch first): (the tensor to start from, resets inside).

    Without packed documents a row can only start one at its first token, so clearing what is carried is enough and the
    fast paths without resets apply.
    """
    if context.document_BT is not None:
        return carried, context.reset_BT
    if carried is None:
        return None, None
    first_B = context.positions_BT[:, 0] == 0
    if context.valid_BT is not None:
        first_B = first_B & context.valid_BT[:, 0]
    return carried.masked_fill(first_B.reshape(-1, *(1,) * (carried.dim() - 1)), 0.0), None


def embedded(context: Context) -> Tensor:
    """The piece's token embeddings, each of RMS 1: at one scale wherever and whenever they are read."""
    if context.embedded_BTD is None:
        raise ConfigError(
            f"the mixer at {context.site!r} has kv_from 'embeddings', but this pass has none; it stands in a model only"
        )
    return rms_norm(context.embedded_BTD, eps=NORM_EPS)


def inverse_softplus(x: Tensor) -> Tensor:
    """y with softplus(y) = x, exact for small x too."""
    return x + torch.log(-torch.expm1(-x))
