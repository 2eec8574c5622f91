"""What follows from weights alone is computed once."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from crossbreed.core.lab.constants import Constants


class Names(TorchDispatchMode):
    """Remembers what was computed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(function._schema.name)
        return function(*args, **(kwargs or {}))


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4, bias=False)
        self.log = nn.Parameter(torch.randn(4))

    def forward(self, x):
        y = nn.functional.linear(x.bfloat16(), self.linear.weight[1:].bfloat16())
        return y * self.log[1:].exp().neg() + torch.zeros_like(self.log)[1:].add_(1)


@torch.inference_mode()
def test_casts_and_functions_of_weights_are_computed_once_and_the_rest_each_time():
    module, constants = Scaled(), Constants(Scaled())
    constants = Constants(module)
    first, second = torch.randn(2, 3), torch.randn(2, 3)
    wanted = [module(first), module(second)]
    with constants:
        assert torch.equal(module(first), wanted[0])
    with Names() as names, constants:
        assert torch.equal(module(second), wanted[1])
    assert "aten::exp" not in names.seen
    assert "aten::neg" not in names.seen
    assert sum("to" in name for name in names.seen) == 1  # of the input
    assert any(name in ("aten::linear", "aten::mm") for name in names.seen)


@torch.inference_mode()
def test_writing_into_what_is_held_is_refused():
    module = Scaled()
    with Constants(module), pytest.raises(RuntimeError, match="add_ writes into a weight"):
        module.log.exp().add_(1)
