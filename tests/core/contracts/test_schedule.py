"""A schedule is a choice for every position, and says what it does not allow."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.contracts.schedule import Schedule
from crossbreed.core.errors import ConfigError

SWITCHING = Schedule(((0, 1), (3, 0), (7, 2)))


def test_each_choice_holds_until_the_next_switch():
    positions_BT = torch.stack((torch.arange(9), torch.arange(3, 12)))
    assert SWITCHING.choices_at(positions_BT).tolist() == [
        [1, 1, 1, 0, 0, 0, 0, 2, 2],
        [0, 0, 0, 0, 2, 2, 2, 2, 2],
    ]
    assert Schedule.always(1).choices_at(positions_BT).unique().tolist() == [1]


@pytest.mark.parametrize("tokens", [8, 9, 100])
def test_shares_are_those_of_the_choices_made(tokens: int):
    choice_T = SWITCHING.choices_at(torch.arange(tokens))
    counted = torch.bincount(choice_T, minlength=4) / tokens
    assert SWITCHING.shares(4, tokens) == pytest.approx(counted.tolist(), abs=1e-7)


@pytest.mark.parametrize("tokens", [1, 7])
def test_a_schedule_longer_than_the_text_is_refused(tokens: int):
    with pytest.raises(ConfigError, match=rf"switches at position 7, but the text has {tokens} tokens"):
        SWITCHING.shares(3, tokens)


@pytest.mark.parametrize(
    ("switches", "sentence"),
    [
        ((), r"must begin at 0 and rise, got \[\]"),
        (((1, 0),), r"must begin at 0 and rise, got \[1\]"),
        (((0, 0), (5, 1), (5, 0)), r"must begin at 0 and rise, got \[0, 5, 5\]"),
        (((0, 0), (5, -1)), "takes choice -1 from position 5"),
    ],
)
def test_what_is_no_schedule_is_refused(switches: tuple[tuple[int, int], ...], sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        Schedule(switches)


def test_a_choice_the_site_does_not_have_is_refused():
    with pytest.raises(
        ConfigError, match="it takes choice 2 from position 7, but the site has choices 0 to 1"
    ):
        SWITCHING.check(2, "it")
