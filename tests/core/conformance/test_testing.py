"""The classes that plugin authors subclass: a test a rule, failing as the rule does."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

AUTHOR = """
from crossbreed.core.conformance.testing import MixerConformance

class TestMine(MixerConformance):
    plugin = "mine"
    files = ("mine.py",)

class TestSwiGLU(MixerConformance):
    plugin = "swiglu"
    settings = ({"hidden": 5},)
"""


def test_an_author_gets_a_test_for_each_rule(pytester: pytest.Pytester) -> None:
    from crossbreed.core.conformance.rule import rules_of
    from tests.cli.test_check import LEAKY

    pytester.path.joinpath("mine.py").write_text(LEAKY.replace('"centred"', '"mine"'))
    pytester.makepyfile(test_mine=AUTHOR)
    done = pytester.runpytest("-p", "no:cacheprovider", "-rA")
    counts = done.parseoutcomes()
    assert sum(counts.get(key, 0) for key in ("passed", "failed", "skipped")) == 2 * len(rules_of("mixer"))
    done.stdout.fnmatch_lines(["FAILED test_mine.py::TestMine::test_rule[[]causal[]]*"])
    done.stdout.fnmatch_lines(["PASSED test_mine.py::TestSwiGLU::test_rule[[]causal[]]"])
    done.stdout.fnmatch_lines(["*No output depends on a later token.*"])
