"""What a pass computes from weights alone, computed once: casts of matrices, decays of recurrences, wavelengths.

A recorded step repeats its kernels for every token. What none of them changes need not be among them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Constants(TorchDispatchMode):
    """While it is entered, an operation on constants gives what it gave before. Constant are a model's parameters and buffers,
    and what was computed from such alone.

    They hold for the weights as they are: whoever changes one has to begin anew. Raises RuntimeError for an operation that writes
    into one.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._places = {_place(tensor) for tensor in (*model.parameters(), *model.buffers())}
        self._held: dict[Hashable, Any] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        leaves = tree_leaves((args, kwargs or {}))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self._check(function, args)
        if not tensors or not _repeatable(function) or any(_place(t) not in self._places for t in tensors):
            return function(*args, **(kwargs or {}))
        key = function, *(_identity(leaf) if isinstance(leaf, Tensor) else repr(leaf) for leaf in leaves)
        if key in self._held:
            return self._held[key]
        found = function(*args, **(kwargs or {}))
        places = {_place(leaf) for leaf in tree_leaves(found) if isinstance(leaf, Tensor)}
        # A view costs nothing, and lies where a constant does.
        if not places & self._places:
            self._held[key] = found
            self._places |= places
        return found

    def _check(self, function: Any, args: tuple[Any, ...]) -> None:
        if not function._schema.is_mutable:
            return
        for argument, value in zip(function._schema.arguments, args, strict=False):
            written = argument.alias_info is not None and argument.alias_info.is_write
            if written and any(
                _place(t) in self._places for t in tree_leaves(value) if isinstance(t, Tensor)
            ):
                raise RuntimeError(
                    f"{function._schema.name} writes into a weight or what was computed from weights alone"
                )


def _repeatable(function: Any) -> bool:
    """Whether the operation gives the same each time, in memory that nobody means to write to."""
    name = function._schema.name.partition("::")[2]
    fresh = name.startswith("new_") or name.endswith("_like") or name == "clone"
    random = torch.Tag.nondeterministic_seeded in function.tags
    return not (function._schema.is_mutable or fresh or random)


def _place(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _identity(tensor: Tensor) -> Hashable:
    """The same for views of the same numbers."""
    return _place(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype
