"""A fault, and what finds it."""

from __future__ import annotations

from typing import NamedTuple

OPS = "tests/core/ops"
MIXERS = "tests/plugins/mixers"
ROUTERS = "tests/plugins/routers"


class Fault(NamedTuple):
    """what: what goes wrong. tests: ``file::function`` of tests that find it in what we ship. note: what else to know."""

    what: str
    tests: tuple[str, ...] = ()
    note: str = ""
