"""Where kernels compute, and where PyTorch is asked to compute alone."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.genome import Architecture
from crossbreed.core.host import Host
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.ops import kernels

SWIGLU = {"vocab": 8, "d_model": 16, "stages": [{"blocks": [{"sublayers": [{"mixer": "swiglu"}]}]}]}


class OnCuda:
    """As much of a tensor on a CUDA device as the question needs."""

    is_cuda, dtype = True, torch.bfloat16


def test_pytorch_alone_is_asked_for_a_while_and_from_within(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_installed", lambda: True)
    assert kernels.usable(OnCuda())  # type: ignore[arg-type]
    with kernels.plain():
        with kernels.plain(False):
            assert not kernels.usable(OnCuda())  # type: ignore[arg-type]
        assert not kernels.usable(OnCuda())  # type: ignore[arg-type]
    assert kernels.usable(OnCuda())  # type: ignore[arg-type]
    assert not kernels.usable(torch.zeros(1))


@pytest.mark.parametrize(("backend", "used"), [("auto", True), ("reference", False)])
def test_a_model_of_the_reference_uses_none(
    monkeypatch: pytest.MonkeyPatch, backend: str, used: bool
) -> None:
    monkeypatch.setattr(kernels, "_installed", lambda: True)
    model = LanguageModel(Architecture.model_validate(SWIGLU), Host.load(third_party=False), backend=backend)
    seen = []
    model.final_norm.register_forward_hook(lambda *_: seen.append(kernels.usable(OnCuda())))  # type: ignore[arg-type]
    tokens_BT = torch.zeros(1, 3, dtype=torch.int64)
    model(tokens_BT, model.context(tokens_BT))
    assert seen == [used]
