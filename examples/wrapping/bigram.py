"""A module that exists, wrapped as a mixer: see docs/plugins/wrapping.md.

Legend for tensor names: B batch, T tokens, D model width, H hidden width.
"""

import torch
from pydantic import BaseModel, Field
from torch import nn

from crossbreed import (
    Cost,
    Integers,
    Mixer,
    MixerCapabilities,
    MixerDescriptor,
    StateSpec,
    Work,
    hookimpl,
)


# The module that exists
class Bigram(nn.Module):
    """A small network that sees each token and the one before it."""

    def __init__(self, d_model, hidden):
        super().__init__()
        self.up = nn.Linear(2 * d_model, hidden, bias=False)
        self.down = nn.Linear(hidden, d_model, bias=False)

    def forward(self, x_BTD, before_B1D):
        before_BTD = torch.cat((before_B1D, x_BTD[:, :-1]), 1)
        return self.down(torch.relu(self.up(torch.cat((x_BTD, before_BTD), -1))))


# The mixer around it
class BigramConfig(BaseModel, frozen=True, extra="forbid"):
    hidden: int = Field(default=32, ge=1)


class BigramMixer(Mixer, nn.Module):
    def __init__(self, config, build):
        super().__init__()
        self.inner = Bigram(build.d_model, config.hidden)
        self.width = build.d_model

    def forward(self, x_BTD, context, state, read_BT=None):
        carried_B1D = torch.zeros_like(x_BTD[:, :1]) if state is None else state["last"]
        # A document's first token sees nothing: rows that start one here forget what they carried.
        fresh_B11 = context.reset_BT[:, :1, None]
        y_BTD = self.inner(x_BTD, carried_B1D.masked_fill(fresh_B11, 0.0))
        for mask_BT in (read_BT, context.valid_BT):
            if mask_BT is not None:
                y_BTD = y_BTD.masked_fill(~mask_BT.unsqueeze(-1), 0.0)
        return y_BTD, None if state is None else {"last": last_valid(x_BTD, context, carried_B1D)}

    def state_specs(self):
        return (StateSpec("last", (1, self.width)),)

    def init_state(self, batch, *, slots=0, dtype=None, device=None):
        return {"last": torch.zeros(batch, 1, self.width, dtype=dtype, device=device)}

    def output_parameters(self):
        return frozenset({"inner.down.weight"})

    @staticmethod
    def cost(config, d_model, shape, depths=1, parts=None):
        weights = 3 * d_model * config.hidden
        kept = (2 * d_model + config.hidden) * shape.dtype_bytes
        read = Work.product(2.0 * weights, weights=weights, kept_bytes=kept)
        return Cost(
            reads=(read,),
            parameters=weights,
            active_parameters=weights,
            state_bytes=d_model * shape.dtype_bytes,
        )


def last_valid(x_BTD, context, carried_B1D):
    """The last valid token of each row (valid ones come first), or what was carried where there is none."""
    count_B = context.positions_BT.new_full((len(x_BTD),), x_BTD.shape[1])
    if context.valid_BT is not None:
        count_B = context.valid_BT.sum(1)
    return torch.cat((carried_B1D, x_BTD), 1)[torch.arange(len(x_BTD)), count_B].unsqueeze(1)


@hookimpl
def register_mixers():
    able = MixerCapabilities("sequence", packing=False)
    return [
        MixerDescriptor(
            "bigram",
            BigramMixer,
            BigramConfig,
            able,
            "sees the token before, through a small network",
            free={"hidden": Integers(1, 4096)},
        )
    ]
