from __future__ import annotations

from itertools import pairwise

import pytest

from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import parse
from crossbreed.core.lab.recipe import Recipe


def test_rungs_by_number_grow_by_the_reduction():
    assert Recipe(tokens=9000, rungs=3, reduction=3).rung_tokens() == [1000, 3000, 9000]


def test_rungs_by_share_end_at_all_tokens():
    assert Recipe(tokens=1000, rungs=[0.25, 1.0]).rung_tokens() == [250, 1000]


def test_tokens_may_be_written_in_scientific_notation():
    assert Recipe.model_validate({"tokens": 2e6}).tokens == 2_000_000


def test_steps_are_whole_and_reach_the_tokens():
    recipe = Recipe(tokens=1000, batch=4)
    assert recipe.steps(1000, length=16) == 16
    assert recipe.steps(1024, length=16) == 16
    assert recipe.steps(1025, length=16) == 17


def test_learning_rate_warms_up_linearly_and_ends_at_its_floor():
    recipe = Recipe(tokens=1, lr=0.4, warmup=0.05, final_lr=0.1)
    rates = [recipe.lr_at(step, 200) for step in range(200)]
    assert rates[:10] == pytest.approx([0.04 * (i + 1) for i in range(10)])
    assert max(rates) == pytest.approx(0.4)
    assert rates[-1] == pytest.approx(0.04)
    assert all(a >= b for a, b in pairwise(rates[10:]))


@pytest.mark.parametrize("total", [1, 2, 3])
def test_learning_rate_is_positive_however_short_the_run(total: int):
    recipe = Recipe(tokens=1, lr=0.4)
    assert all(0 < recipe.lr_at(step, total) <= 0.4 for step in range(total))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"tokens": 0}, ["train", "tokens", "0", "must be at least 1"]),
        ({"tokens": 10.5}, ["tokens", "10.5", "whole number"]),
        ({"tokens": 100, "lr": -1}, ["lr", "must be greater than 0", "-1"]),
        ({"tokens": 100, "warmpu": 0.1}, ["unknown key 'warmpu'", "did you mean 'warmup'"]),
        ({"tokens": 100, "rungs": [0.5, 0.2, 1.0]}, ["rungs", "must rise", "0.2"]),
        ({"tokens": 100, "rungs": [0.5]}, ["rungs", "end at 1"]),
        ({"tokens": 100, "rungs": 0}, ["rungs must be at least 1"]),
        ({"tokens": 5, "rungs": 9}, ["9 rungs", "do not fit into 5 tokens"]),
        ({"tokens": 100, "betas": [0.9, 1.0]}, ["betas must lie in [0, 1)", "1.0"]),
        ({"tokens": 100, "dtype": "float16"}, ["dtype", "float32", "float16"]),
        ({"tokens": 100, "lr": float("nan")}, ["lr", "finite"]),
    ],
)
def test_bad_settings_are_sentences_with_name_value_and_rule(data: dict, words: list[str]):
    with pytest.raises(ConfigError) as caught:
        parse(Recipe, data, "train")
    for word in words:
        assert word in str(caught.value)
