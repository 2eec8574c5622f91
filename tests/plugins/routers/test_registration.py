"""The built-in routers are offered without torch, and what they declare is what they do."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from crossbreed.core.contracts.router import RouterBuild
from crossbreed.core.contracts.space import Choices, Floats
from crossbreed.core.host import import_late
from crossbreed.core.ledger import Shape
from crossbreed.plugins.routers import register_routers
from tests.plugins.routers.pieces import context

DESCRIPTORS = {descriptor.name: descriptor for descriptor in register_routers()}


@pytest.mark.parametrize("package", ["routers", "depth", "tasks"])
def test_listing_imports_no_torch(package):
    code = f"import sys, crossbreed.plugins.{package}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "kind"), [(n, k) for n, d in DESCRIPTORS.items() for k in d.capabilities.sites]
)
def test_every_router_stands_at_every_site_as_declared(name, kind):
    d = DESCRIPTORS[name]
    build = RouterBuild("site", kind, d_model=8, vocab=23, choices=2)
    config = d.config()
    router = import_late(d.factory)(config, build)
    shares = router.rates(config, kind, 2)
    assert sum(shares) == pytest.approx(1)
    assert min(shares) >= 0
    cost = router.cost(config, build, Shape(tokens=32))
    assert cost.parameters == sum(p.numel() for p in router.parameters())
    h_BTD = torch.rand(2, 9, 8)
    phase = "prefill" if d.capabilities.fitted else "train"
    labels_BT = torch.zeros(2, 9, dtype=torch.int64) if d.capabilities.needs_labels else None
    decision, _ = router(h_BTD, context(2, 9, site=kind, phase=phase, labels_BT=labels_BT), None)
    assert decision.choice_BT.dtype == torch.int64
    assert (decision.weight_BTN is not None) == d.capabilities.gradient
    assert bool(router.init_state(2)) == (kind in d.capabilities.feedback_sites)


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_every_range_a_search_may_draw_from_is_legal(name):
    d = DESCRIPTORS[name]
    for setting, span in d.ranges.items():
        assert isinstance(span, Choices | Floats)
        values = span.values if isinstance(span, Choices) else (span.low, span.high)
        for value in values:
            assert getattr(d.config(**{setting: value}), setting) == value
