"""The projections of a mixer: keys, values, each reader's queries and the gate of a token, and the way back.

Either one matrix for everybody, or Dreamer's light sparse experts (arXiv 2601.21582): with weights p that a router gives
each token, X = sum_e p_e u W_X^e for every projected part X, and the output is sum_e p_e o W_O^e with the same p.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossbreed.core.contracts.context import Context
from crossbreed.core.ledger import Shape
from crossbreed.core.ops import casts, one_token
from crossbreed.core.ops.chunks import product_dtype
from crossbreed.core.ops.one_token import Normed
from crossbreed.core.ops.routed_linear import routed_linear
from crossbreed.plugins.mixers.accounting import input_kept
from crossbreed.plugins.mixers.expert_routing import ExpertRouter, Route
from crossbreed.plugins.mixers.plan import Plan
from crossbreed.plugins.mixers.reading import Chosen

INIT_STD = 0.02
ALL = "all"
"""The part that one decision for everything is made for."""
OUTPUT = "output"

Routes = Mapping[str, Route]
"""The decisions of a token, by the part they are made for; none for plain matrices."""


class Projections(nn.Module):
    """One matrix for everything a token is projected to, so that it is one product, and one output matrix.

    The rows of ``input`` stand in the order of ``plan.channels``.
    """

    output_names = frozenset({"output.weight"})
    """Parameters that write into the residual stream."""

    def __init__(self, plan: Plan, d_model: int) -> None:
        super().__init__()
        self.plan = plan
        self.input = _linear(d_model, plan.projected_width)
        self.output = _linear(plan.output_width, d_model)

    def forward(self, x_BTD: Tensor, context: Context, read_BT: Tensor | None) -> Projected:
        """The projections of one piece, computed part by part as they are asked for."""
        if context.recorded:
            return TokenProjected(self, x_BTD, read_BT)
        return Projected(self, x_BTD, {})

    def channels(self, x_BTD: Tensor, first: int, last: int, routes: Routes) -> Tensor:
        """BTC: channels ``first:last`` of the projected ones."""
        # A product with a slice of the weight, rather than a slice of the product: large gradients are never copied.
        return F.linear(x_BTD, casts.cast(self.input.weight[first:last], product_dtype(x_BTD)))

    def out(self, o_BTC: Tensor, routes: Routes) -> Tensor:
        """BTD: what the mixer adds to the stream."""
        return self.output(o_BTC)  # type: ignore[no-any-return]

    def after_step(self, statistics: list[dict[str, Any]]) -> None:
        """Plain matrices balance nothing."""

    def no_weight_decay(self) -> frozenset[str]:
        return frozenset()


class RoutedProjections(nn.Module):
    """E sets of all matrices and the router that weighs them, one decision a token for all parts, or one for each.

    Every valid token is routed, whether it reads or not, since its keys and values follow the decision too.
    """

    output_names = frozenset({"output_ECD"})

    def __init__(self, plan: Plan, d_model: int, depths: int) -> None:
        super().__init__()
        assert plan.experts is not None
        self.plan, E = plan, plan.experts.stored
        self.input_EDC = nn.Parameter(torch.empty(E, d_model, plan.projected_width))
        self.output_ECD = nn.Parameter(torch.empty(E, plan.output_width, d_model))
        for weight in self.parameters():
            nn.init.normal_(weight, std=INIT_STD)
        self.routers = nn.ModuleDict(
            {
                part: ExpertRouter(plan.experts, d_model, depths, "load" if part == ALL else f"load.{part}")
                for part in routed_parts(plan)
            }
        )

    def forward(self, x_BTD: Tensor, context: Context, read_BT: Tensor | None) -> Projected:
        x_ND = x_BTD.flatten(0, 1)
        routes = {part: router(x_ND, context) for part, router in self.routers.items()}
        if context.recording:
            counted_N = context.counted_BT().flatten()
            for part, route in routes.items():
                self.routers[part].record(route, counted_N, context)  # type: ignore[operator]
        return Projected(self, x_BTD, routes)

    def channels(self, x_BTD: Tensor, first: int, last: int, routes: Routes) -> Tensor:
        x_ND, found, start = x_BTD.flatten(0, 1), [], 0
        spans = ((ALL, self.plan.projected_width),) if ALL in routes else self.plan.channels
        for part, width in spans:
            low, high = max(first, start), min(last, start + width)
            if low < high:
                route = routes[part]
                weight_EDC = self.input_EDC[..., low:high]
                found.append(routed_linear(x_ND, weight_EDC, route.dispatch, route.weight_NJ))
            start += width
        whole_NC = found[0] if len(found) == 1 else torch.cat(found, -1)
        return whole_NC.view(*x_BTD.shape[:2], last - first)

    def out(self, o_BTC: Tensor, routes: Routes) -> Tensor:
        route = routes[ALL] if ALL in routes else routes[OUTPUT]
        o_NC = o_BTC.flatten(0, 1)
        y_ND = routed_linear(o_NC, self.output_ECD, route.dispatch, route.weight_NJ)
        return y_ND.view(*o_BTC.shape[:2], -1)

    def after_step(self, statistics: list[dict[str, Any]]) -> None:
        for router in self.routers.values():
            router.after_step(statistics)  # type: ignore[operator]

    def no_weight_decay(self) -> frozenset[str]:
        return frozenset(
            f"routers.{part}.{name}"
            for part, router in self.routers.items()
            for name in router.no_weight_decay()  # type: ignore[operator]
        )


class Projected:
    """What projections make of one piece: written channels, queries and gate of its tokens, and outputs from theirs."""

    def __init__(self, maps: Projections | RoutedProjections, x_BTD: Tensor, routes: Routes) -> None:
        self.maps, self.x_BTD, self.routes = maps, x_BTD, routes

    def written(self, source_BTD: Tensor) -> Tensor:
        """BTC: keys and values, from ``source_BTD``, and queries where they are convolved, of every token."""
        p = self.maps.plan
        if source_BTD is self.x_BTD:
            return self._channels(0, p.written_width)
        kv_BTC = self.maps.channels(source_BTD, 0, p.kv_width, self.routes)
        if not p.queries_convolved:
            return kv_BTC
        return torch.cat((kv_BTC, self._channels(p.kv_width, p.written_width)), -1)

    def read(self) -> list[Tensor]:
        """BTC each: every stream's queries (unless they are written) and the gate, of every token."""
        p = self.maps.plan
        widths = [] if p.queries_convolved else [p.query_width] * p.query_streams
        widths += [p.output_width] if p.gate else []
        if not widths:
            return []
        return list(self._channels(p.written_width, p.projected_width).split(widths, -1))

    def query(self, stream: int) -> Tensor:
        """BTC: one stream's queries of every token, where they are not written."""
        p = self.maps.plan
        first = p.written_width + stream * p.query_width
        return self._channels(first, first + p.query_width)

    def gate(self) -> Tensor:
        """BTC: the gate of every token."""
        p = self.maps.plan
        return self._channels(p.projected_width - p.output_width, p.projected_width)

    def output(self, o_BTC: Tensor | Normed) -> Tensor:
        """BTD: what the mixer adds to the stream."""
        if isinstance(o_BTC, Normed):
            o_BTC = o_BTC.x.view(*self.x_BTD.shape[:2], -1)
        return self.maps.out(o_BTC, self.routes)

    def some(self, chosen: Chosen) -> Projected:
        """The same for some tokens of the piece, as one row."""
        routes = {part: route.rows(chosen.index_N) for part, route in self.routes.items()}
        return Projected(self.maps, chosen.gather(self.x_BTD), routes)

    def _channels(self, first: int, last: int) -> Tensor:
        return self.maps.channels(self.x_BTD, first, last, self.routes)


class TokenProjected(Projected):
    """The same of one token a row in a recorded pass, where the device sees what is read; one product gives all channels.

    x: what is projected, or the stream that it is the norm of, to which the output is then added.
    """

    maps: Projections

    def __init__(self, maps: Projections, x: Tensor | Normed, read_B1: Tensor | None) -> None:
        self.read_B = None if read_B1 is None else read_B1[:, 0]
        width = maps.plan.written_width
        self._all_B1C = one_token.linear(x, maps.input.weight, self.read_B, always=width)
        self._onto_B1D = x.h if isinstance(x, Normed) else None
        super().__init__(maps, x.x if isinstance(x, Normed) else x, {})

    def output(self, o_BTC: Tensor | Normed) -> Tensor:
        # Of what is not read nothing comes, and nothing is made of nothing.
        return one_token.linear(o_BTC, self.maps.output.weight, self.read_B, onto_B1O=self._onto_B1D)

    def _channels(self, first: int, last: int) -> Tensor:
        return self._all_B1C[..., first:last]


class Toll(NamedTuple):
    """What projections cost, beside the width they have: sets of matrices stored and used by a token, and routing.

    kept_bytes: what training keeps of one token, the outputs of the readers left out.
    """

    stored: int
    used: int
    router_parameters: int
    router_flops: float
    kept_bytes: float


def build_projections(plan: Plan, d_model: int, depths: int) -> Projections | RoutedProjections:
    """The projections of a plan, with initial values."""
    return Projections(plan, d_model) if plan.experts is None else RoutedProjections(plan, d_model, depths)


def toll(plan: Plan, d_model: int, shape: Shape) -> Toll:
    """The cost of projections that are not built."""
    products = 2 if plan.projected_width > plan.written_width else 1
    # Embeddings of RMS 1 are an input of their own, beside the stream, which convolved queries are projected from apart.
    own = plan.kv_from == "embeddings"
    products += own and plan.queries_convolved
    source = float(shape.wide_bytes) if own else 0.0
    if plan.experts is None:
        inputs = [1, products - 1] if own else [products]
        kept = sum(input_kept(d_model, count, shape) for count in inputs)
        return Toll(1, 1, 0, 0.0, kept + source)
    experts, count = plan.experts, len(routed_parts(plan))
    router = ExpertRouter.cost(experts, d_model)
    # The router's input; for each slot the rows of every product and of the output, and what was weighted.
    rows = products if experts.tied else len(plan.channels)
    slot = (rows + 1) * d_model + plan.projected_width + plan.output_width
    kept = float(d_model * shape.wide_bytes + experts.slots * slot * shape.dtype_bytes)
    kept += count * ExpertRouter.kept(experts, shape) + source
    return Toll(experts.stored, experts.slots, router.parameters * count, router.flops * count, kept)


def routed_parts(plan: Plan) -> tuple[str, ...]:
    """What decisions are made for: everything at once, or every projected part and the output."""
    assert plan.experts is not None
    return (ALL,) if plan.experts.tied else (*(part for part, _ in plan.channels), OUTPUT)


def _linear(inputs: int, outputs: int) -> nn.Linear:
    linear = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(linear.weight, std=INIT_STD)
    return linear
