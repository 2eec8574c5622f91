"""Pytest classes for plugin authors: subclass the one of your plugin's kind and get a test for each rule.

    from crossbreed.core.conformance.testing import MixerConformance

    class TestRunningMean(MixerConformance):
        plugin = "running_mean"
        files = ("running_mean.py",)

A plugin that is installed needs no ``files``. A rule that does not apply is a skipped test that says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from crossbreed.core.conformance.rule import Rule, rules_of, subject_of
from crossbreed.core.conformance.subject import ProfileName, Subject
from crossbreed.core.conformance.suite import judge
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.host import Host


class Conformance:
    """One test for each rule of a kind.

    plugin:   the name under which it is registered.
    files:    plugin files to load beside what is installed.
    profile:  ``suite`` (seconds) or ``full`` (up to a minute).
    settings: further settings to try, beside the defaults and drawn ones.
    """

    kind: ClassVar[Kind]
    plugin: ClassVar[str]
    files: ClassVar[Sequence[str]] = ()
    profile: ClassVar[ProfileName] = "suite"
    settings: ClassVar[Sequence[Mapping[str, Any]]] = ()
    _subject: ClassVar[Subject]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "rule" in metafunc.fixturenames:
            rules = rules_of(self.kind)
            metafunc.parametrize("rule", rules, ids=[rule.name for rule in rules])

    @pytest.fixture
    def subject(self) -> Subject:
        cls = type(self)
        # One for all tests of a class, since rules share what they find out.
        if "_subject" not in cls.__dict__:
            made = subject_of(cls.kind)(Host.load(cls.files), cls.plugin, cls.profile, cls.settings)
            cls._subject = made
        return cls._subject

    def test_rule(self, subject: Subject, rule: Rule) -> None:
        outcome = judge(rule, subject)
        if outcome.status == "not_applicable":
            pytest.skip(outcome.why)
        assert outcome.status == "passed", f"{rule.says}\n{outcome}"


class MixerConformance(Conformance):
    """The rules of mixers."""

    kind = "mixer"


class RouterConformance(Conformance):
    """The rules of routers."""

    kind = "router"


class DepthPolicyConformance(Conformance):
    """The rules of depth policies."""

    kind = "depth"


class CostModelConformance(Conformance):
    """The rules of cost models."""

    kind = "cost"


class TaskConformance(Conformance):
    """The rules of tasks."""

    kind = "task"


class SearchSpaceConformance(Conformance):
    """The rules of search spaces."""

    kind = "space"
