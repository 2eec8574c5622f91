"""Write always, read where chosen: the masks and resets that readers and mixers share."""

from __future__ import annotations

import torch
from torch import Tensor

from crossbreed.core.contracts.context import Context
from crossbreed.core.errors import MissingCapability
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


def rows_that_read(read_BT: Tensor) -> Tensor:
    """Indices of the rows of a one-token piece that are read."""
    return read_BT[:, 0].nonzero().squeeze(1)


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


def inverse_softplus(x: Tensor) -> Tensor:
    """y with softplus(y) = x, exact for small x too."""
    return x + torch.log(-torch.expm1(-x))


def check_backend(name: str, backend: str) -> None:
    """Raise MissingCapability unless the reference path is what was asked for."""
    if backend not in ("auto", "reference"):
        raise MissingCapability(f"mixer {name!r} has the backend 'reference' only, got {backend!r}")
