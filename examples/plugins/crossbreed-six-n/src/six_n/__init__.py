"""Offers the cost model ``six_n``: 2 FLOPs a weight and token forward, 6 in training, whatever the weight does.

The field's usual shorthand (Kaplan et al., 2020, section 2.1). It is blind to attention's scores, to recurrences, to weights
that run several times and to tokens that skip them: compare it with ``analytic`` before believing either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from crossbreed import Architecture, CostModel, CostModelDescriptor, Ledger, Parts, Shape, hookimpl

FORWARD, TRAINING = 2.0, 6.0


class SixNConfig(BaseModel, frozen=True, extra="forbid"):
    """embeddings: count the token embedding among the weights, as some papers do."""

    embeddings: bool = False


class SixN(CostModel):
    """The analytic ledger with its algorithmic FLOPs replaced, which budgets are held to.

    Parameters, state, memory and executed FLOPs stay: those are counted, not estimated.
    """

    def __init__(self, config: Any, parts: Parts) -> None:
        super().__init__(config, parts)
        self.analytic = parts.factory("cost", "analytic")(parts.config("cost", "analytic", {}), parts)

    def estimate(
        self,
        architecture: Architecture,
        shape: Shape,
        device: Mapping[str, Any] | None = None,
        rates: Mapping[str, tuple[float, ...]] | None = None,
    ) -> Ledger:
        """See ``CostModel.estimate``. ``rates`` change the ledger's rates and memory traffic, never its FLOPs."""
        ledger = self.analytic.estimate(architecture, shape, device, rates)
        tied = architecture.tie_embeddings
        sections = tuple(
            (site, tuple(self._counted(line, tied) for line in lines)) for site, lines in ledger.sections
        )
        counted = replace(ledger, sections=sections)
        fields = [f"{phase}_flops_per_token" for phase in _FACTORS]
        return replace(counted, **{f: sum(getattr(part, f) for part in counted.parts) for f in fields})

    def _counted(self, part: Any, tied: bool) -> Any:
        weights = part.active_parameters
        if part.name == "embedding":
            # A tied matrix is counted where it multiplies, in the head.
            weights = weights if self.config.embeddings and not tied else 0
        elif part.name == "head" and tied:
            weights = part.weight_reads
        flops = {f"{phase}_flops_per_token": factor * weights for phase, factor in _FACTORS.items()}
        return part._replace(**flops)


_FACTORS = {"training": TRAINING, "prefill": FORWARD, "decode": FORWARD}


@hookimpl
def register_cost_models() -> list[CostModelDescriptor]:
    return [
        CostModelDescriptor(
            name="six_n",
            factory=SixN,
            config=SixNConfig,
            summary="the field's shorthand: 6 FLOPs a weight and trained token, 2 forward",
        )
    ]
