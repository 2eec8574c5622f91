"""Output heads and what watches them, for tests."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LargestTensor(TorchDispatchMode):
    """Remembers how many elements the largest tensor had that any operation returned."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.elements = max(self.elements, leaf.numel())
        return result


def inputs(N, V, D, dtype=torch.float64, seed=0):
    random = torch.Generator().manual_seed(seed)
    h, weight = (torch.randn(*shape, generator=random, dtype=torch.float64) for shape in ((N, D), (V, D)))
    labels = torch.randint(V, (N,), generator=random)
    labels[::3] = -100
    return h.to(dtype), weight.to(dtype), labels
