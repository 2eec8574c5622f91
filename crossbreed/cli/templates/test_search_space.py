"""my_search_space by every rule of its kind: only legal points, and equal draws give equal points."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crossbreed import ConfigError, Host, Setting
from crossbreed.core.conformance.testing import SearchSpaceConformance
from crossbreed.core.model.legality import check

FILES = (str(Path(__file__).with_name("my_search_space.py")),)
PARTS = Host.load(FILES)
SPACE = PARTS.factory("space", "my_search_space")(PARTS.config("space", "my_search_space", {"layers": 3}))


class TestRules(SearchSpaceConformance):
    plugin = "my_search_space"
    files = FILES


class Drawn:
    """Answers at random, from a seed, or as a point says."""

    def __init__(self, seed: int, point: dict[str, Any] | None = None) -> None:
        self.random, self.point = random.Random(seed), point or {}

    def choose(self, name: str, options: Sequence[Any]) -> Any:
        value = self.point.get(name, self.random.choice(list(options)))
        assert value in options
        return value


def setting(*mixers: str) -> Setting:
    return Setting(
        vocab=11, length=32, d_model=32, mixers=mixers, routers=(), depth=("layered",), parts=PARTS
    )


ALL = setting(*PARTS.names("mixer"))


def test_every_draw_is_legal_and_equal_draws_give_equal_points() -> None:
    for seed in range(10):
        genome = SPACE.propose(Drawn(seed), ALL)
        check(PARTS.canonical(genome), PARTS)
        assert SPACE.propose(Drawn(seed), ALL) == genome


def test_starting_points_show_every_mixer() -> None:
    families = [SPACE.family(SPACE.propose(Drawn(0, point), ALL)) for point in SPACE.starting_points(ALL)]
    assert "attention+attention+attention" in families
    assert len(families) == len(set(families)) > 2


def test_no_sequence_mixer_is_too_few() -> None:
    with pytest.raises(ConfigError, match="needs a sequence mixer"):
        SPACE.propose(Drawn(0), setting("swiglu"))
