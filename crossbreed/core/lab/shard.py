"""A device's part of each batch where several train one model, and how what they have found is put together.

Every device holds the whole model, computes its own rows, and takes the same optimiser step: gradients, losses and statistics
are those of all rows. Tensors go by the backend of their device; what hosts must agree on goes between hosts, so that no host
waits for its device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from crossbreed.core.contracts.task import Batch
from crossbreed.core.model.language_model import LanguageModel, Statistics

BUCKET_BYTES = 64 << 20
"""Gradients that are added up at once: enough to fill the links between devices, and little beside the gradients themselves."""


@dataclass(frozen=True)
class Shard:
    """Part ``rank`` of ``size`` of every batch; of one part, which is all of it, nothing has to be put together.

    With more parts every method is called by all devices, as often and in the same order. They belong to torch's default
    process group.
    """

    rank: int = 0
    size: int = 1

    def rows(self, batch: Batch) -> Batch:
        """The part's rows of a whole batch, which ``size`` divides."""
        if self.size == 1:
            return batch

        def part(x_B: Tensor | None) -> Tensor | None:
            return None if x_B is None else x_B.chunk(self.size)[self.rank]

        return Batch(part(batch.tokens_BT), part(batch.labels_BT), part(batch.document_BT))  # type: ignore[arg-type]

    def whole(self, x_B: Tensor) -> Tensor:
        """``x`` of all parts, one after the other; see ``Context.whole``."""
        if self.size == 1:
            return x_B
        gathered: Tensor = _Gathered.apply(x_B, self)
        return gathered

    def sums(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Scalars added up over all parts."""
        if self.size == 1:
            return values
        total_N = torch.stack([value.to(torch.float64) for value in values])
        dist.all_reduce(total_N)
        return tuple(total.to(value.dtype) for total, value in zip(total_N, values, strict=True))

    def add_up_gradients(self, parameters: list[nn.Parameter]) -> None:
        """Give every device the sum of all parts' gradients; a parameter that no part has reached has none."""
        if self.size == 1:
            return
        reached_P = torch.tensor([p.grad is not None for p in parameters], dtype=torch.uint8)
        dist.all_reduce(reached_P, dist.ReduceOp.MAX)
        gradients = []
        for parameter, reached in zip(parameters, reached_P.tolist(), strict=True):
            if reached:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                gradients.append(parameter.grad)
        for some in _buckets(gradients):
            flat_N = torch.cat([gradient.flatten() for gradient in some])
            dist.all_reduce(flat_N)
            parts = flat_N.split([gradient.numel() for gradient in some])
            torch._foreach_copy_(some, [p.view_as(g) for p, g in zip(parts, some, strict=True)])

    def add_up_statistics(self, model: LanguageModel) -> None:
        """Leave for ``after_step`` what the passes of all parts have left: calls of other parts are further calls of the step, each
        with the number of its ``part``."""
        if self.size > 1:
            model.give_statistics(self._of_all(model.take_statistics()))

    def _of_all(self, own: Statistics) -> Statistics:
        tensors = [x.detach() for call in _calls(own) for x in call.values() if isinstance(x, Tensor)]
        if not tensors:
            return own
        flat_N = torch.cat([x.flatten().to(torch.float64) for x in tensors])
        parts: list[Iterator[Tensor]] = [
            iter(flat_n.split([x.numel() for x in tensors])) for flat_n in self._gather(flat_N[None]).unbind()
        ]

        def everyones(calls: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
            return [
                {**_with_tensors(call, part), "part": rank}
                for call in calls
                for rank, part in enumerate(parts)
            ]

        mixers = {site: everyones(calls) for site, calls in own.mixers.items()}
        return Statistics(mixers, [[*everyones(calls)] for calls in own.routers])

    def agreed(self, mine: bool) -> bool:
        """Whether all devices say yes."""
        if self.size == 1:
            return mine
        yes = torch.tensor(mine, dtype=torch.uint8)
        dist.all_reduce(yes, dist.ReduceOp.MIN)
        return bool(yes)

    def _gather(self, x_B: Tensor) -> Tensor:
        sent = x_B.to(torch.uint8) if x_B.dtype == torch.bool else x_B
        found = sent.new_empty(self.size * len(sent), *sent.shape[1:])
        dist.all_gather(list(found.chunk(self.size)), sent.contiguous())
        return found.to(x_B.dtype)


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_B: Tensor, shard: Shard) -> Tensor:
        ctx.shard = shard
        return shard._gather(x_B)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # Every device makes the same of it, so that all their gradients together are this one's times their number.
        shard: Shard = ctx.shard
        return gradient.chunk(shard.size)[shard.rank] * shard.size, None


def _buckets(gradients: list[Tensor]) -> Iterator[list[Tensor]]:
    """Successive gradients of one dtype, as many as fill a bucket."""
    some: list[Tensor] = []
    held = 0
    for gradient in gradients:
        if some and (held + gradient.nbytes > BUCKET_BYTES or gradient.dtype != some[0].dtype):
            yield some
            some, held = [], 0
        some.append(gradient)
        held += gradient.nbytes
    if some:
        yield some


def _calls(statistics: Statistics) -> Iterator[Mapping[str, Any]]:
    for of_mixer in statistics.mixers.values():
        yield from of_mixer
    for of_router in statistics.routers:
        yield from of_router


def _with_tensors(call: Mapping[str, Any], flat: Iterator[Tensor]) -> dict[str, Any]:
    """A call's statistics with the next tensors in place of its own."""
    return {
        name: next(flat).view(x.shape).to(x.dtype) if isinstance(x, Tensor) else x for name, x in call.items()
    }
