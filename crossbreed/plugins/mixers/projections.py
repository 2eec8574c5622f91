"""The projections of a sequence mixer: keys, values, each reader's queries and the gate of a token, and the way back."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from crossbreed.core.contracts.context import Context
from crossbreed.plugins.mixers.plan import Plan
from crossbreed.plugins.mixers.reading import rows_that_read

INIT_STD = 0.02


class Projections(nn.Module):
    """One matrix for everything a token is projected to, so that it is one product, and one output matrix.

    The rows of ``input`` stand in the order keys, values, each reader's queries, gate.
    """

    output_names = frozenset({"output.weight"})
    """Parameters that write into the residual stream."""

    def __init__(self, plan: Plan, d_model: int) -> None:
        super().__init__()
        self.plan = plan
        self.input = _linear(d_model, plan.projected_width)
        self.output = _linear(plan.output_width, d_model)

    def forward(self, x_BTD: Tensor, context: Context) -> Projected:
        """The projections of one piece, computed part by part as they are asked for."""
        return Projected(self, x_BTD)

    @staticmethod
    def parameters_of(plan: Plan, d_model: int) -> int:
        """Weights of projections that are not built."""
        return d_model * (plan.projected_width + plan.output_width)


class Projected:
    """What projections make of one piece: written channels, queries and gate of its tokens, and outputs from theirs."""

    def __init__(self, maps: Projections, x_BTD: Tensor) -> None:
        self.maps, self.x_BTD = maps, x_BTD

    def written(self) -> Tensor:
        """BTC: keys, values, and queries where they are convolved, of every token."""
        return self._channels(0, self.maps.plan.written_width)

    def read(self) -> list[Tensor]:
        """BTC each: every reader's queries (unless they are written) and the gate, of every token."""
        p = self.maps.plan
        widths = [] if p.queries_convolved else [p.query_width] * len(p.readers)
        widths += [p.output_width] if p.gate else []
        if not widths:
            return []
        return list(self._channels(p.written_width, p.projected_width).split(widths, -1))

    def query(self, reader: int, read_BT: Tensor | None) -> Tensor:
        """BTC: one reader's queries; of a decoded token only for the rows that it reads, zero elsewhere."""
        p = self.maps.plan
        first = p.written_width + reader * p.query_width
        if read_BT is not None:
            rows = rows_that_read(read_BT)
            if len(rows) < len(self.x_BTD):
                q_BTC = self.x_BTD.new_zeros(*self.x_BTD.shape[:2], p.query_width)
                if len(rows):
                    some_BTC = self.rows(rows)._channels(first, first + p.query_width)
                    q_BTC[rows] = some_BTC.to(q_BTC.dtype)
                return q_BTC
        return self._channels(first, first + p.query_width)

    def gate(self) -> Tensor:
        """BTC: the gate of every token."""
        p = self.maps.plan
        return self._channels(p.projected_width - p.output_width, p.projected_width)

    def output(self, o_BTC: Tensor) -> Tensor:
        """BTD: what the mixer adds to the stream."""
        return self.maps.output(o_BTC)  # type: ignore[no-any-return]

    def rows(self, rows: Tensor) -> Projected:
        """The same for some rows of the piece."""
        return Projected(self.maps, self.x_BTD[rows])

    def _channels(self, first: int, last: int) -> Tensor:
        # A product with a slice of the weight, rather than a slice of the product: large gradients are never copied.
        return F.linear(self.x_BTD, self.maps.input.weight[first:last])


def _linear(inputs: int, outputs: int) -> nn.Linear:
    linear = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(linear.weight, std=INIT_STD)
    return linear
