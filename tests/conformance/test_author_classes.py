"""The pytest classes of all kinds but mixers, used as an author uses them: one test a rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossbreed.core.conformance import testing
from crossbreed.core.conformance.testing import Conformance

ROOT = Path(__file__).parents[2]


class TestRouter(testing.RouterConformance):
    plugin = "oracle"


class TestDepthPolicy(testing.DepthPolicyConformance):
    plugin = "recurrent"
    settings = ({"inject": True},)


class TestCostModel(testing.CostModelConformance):
    plugin = "roofline"
    settings = ({"launches_per_run": 3},)


class TestTask(testing.TaskConformance):
    """Its path has no default: the descriptor's example is tried."""

    plugin = "bytes"


class TestSearchSpace(testing.SearchSpaceConformance):
    plugin = "oryx"
    settings = ({"layers": 3},)


class TestFromFile(testing.RouterConformance):
    plugin = "fixed_gate"
    files = (str(ROOT / "examples/fixed_gate.py"),)


@pytest.mark.parametrize("kind", ["mixer", "router", "depth", "cost", "task", "space"])
def test_every_kind_has_a_class(kind: str) -> None:
    classes = [
        cls for cls in Conformance.__subclasses__() if cls.kind == kind and cls.__module__ == testing.__name__
    ]
    assert len(classes) == 1


def test_the_readme_shows_the_router_that_is_checked() -> None:
    router = (ROOT / "examples/fixed_gate.py").read_text()
    assert router.partition("import torch")[2] in (ROOT / "README.md").read_text()
