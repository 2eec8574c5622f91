"""Only legal points, equal draws give equal points, and a mixer that is added leaves old points as they were."""

import random

import pytest
from needle_space import Needle, NeedleConfig

from crossbreed import ConfigError, Host, Setting
from crossbreed.core.conformance.testing import SearchSpaceConformance
from crossbreed.core.model.legality import check

PARTS = Host.load()
MIXERS = ("attention", "gated_deltanet", "mamba2", "multi_mixer", "swiglu")


class TestRules(SearchSpaceConformance):
    plugin = "needle"


def setting(mixers=MIXERS):
    return Setting(
        vocab=11, length=32, d_model=32, mixers=mixers, routers=(), depth=("layered",), parts=PARTS
    )


class Recorded:
    """Draws at random, or again what was drawn."""

    def __init__(self, seed=0, recorded=None):
        self.random, self.recorded, self.drawn = random.Random(seed), recorded or {}, {}

    def choose(self, name, options):
        value = self.recorded.get(name) or self.random.choice(list(options))
        assert value in options
        self.drawn[name] = value
        return value

    def integer(self, name, low, high, step=1):
        value = self.recorded.get(name, self.random.randrange(low, high + 1, step))
        self.drawn[name] = value
        return value


def test_every_draw_is_legal_and_has_one_needle():
    space = Needle(NeedleConfig(layers=4))
    for seed in range(30):
        genome = space.propose(Recorded(seed), setting())
        check(PARTS.canonical(genome), PARTS)
        names = [block.sublayers[0].mixer for block in genome.stages[0].blocks]
        assert sorted(names.count(name) for name in set(names)) == [1, 3]
        assert "multi_mixer" not in names


def test_equal_draws_give_equal_points_and_a_new_mixer_keeps_them():
    space, drawn = Needle(NeedleConfig()), Recorded(3)
    genome = space.propose(drawn, setting(("attention", "mamba2", "swiglu")))
    assert space.propose(Recorded(9, drawn.drawn), setting()) == genome


def test_starting_points_show_every_pair_and_every_place():
    space = Needle(NeedleConfig(layers=3))
    genomes = [space.propose(Recorded(0, point), setting()) for point in space.starting_points(setting())]
    families = {space.family(genome) for genome in genomes}
    assert families == {
        f"{hay}*2+{needle}"
        for hay in ("attention", "gated_deltanet", "mamba2")
        for needle in ("attention", "gated_deltanet", "mamba2")
        if hay != needle
    }
    assert len(genomes) == len({genome.model_dump_json() for genome in genomes}) == 6 + 2


def test_one_mixer_is_too_few():
    with pytest.raises(
        ConfigError, match=r"needs 2 sequence mixers; the study allows the mixers: mamba2, swiglu"
    ):
        Needle(NeedleConfig()).propose(Recorded(), setting(("mamba2", "swiglu")))
