"""Schedules as text: counted from either end, by number or by reader, and refused in sentences."""

from __future__ import annotations

import pytest

from crossbreed.core.errors import ConfigError
from crossbreed.core.lab.text_schedule import TextSchedule

MODES = ("mamba2", "attention")


@pytest.mark.parametrize(
    ("text", "length", "switches"),
    [
        ("0=0", 1, ((0, 0),)),
        ("0=attention", 9, ((0, 1),)),
        ("0=0,860=1", 2048, ((0, 0), (860, 1))),
        ("0=mamba2,225=attention,860=0,1331=1,1802=mamba2", 2048, ((0, 0), (225, 1), (860, 0), (1331, 1), (1802, 0))),
        # The paper's split: the first 97.5% are context, the last 2.5% and what is generated are the prompt.
        ("0=mamba2,-2.5%=attention", 2000, ((0, 0), (1950, 1))),
        ("0=mamba2,97.5%=attention", 2000, ((0, 0), (1950, 1))),
        # 2.5% of 2048 is 51.2: the last share holds its last token in full, and the first share is the rest.
        ("0=0,-2.5%=1", 2048, ((0, 0), (1996, 1))),
        ("0=0,97.5%=1", 2048, ((0, 0), (1996, 1))),
        ("0=0,-2.5%=1", 16, ((0, 0), (15, 1))),
        ("0=1,50%=0,-1=1", 9, ((0, 1), (4, 0), (8, 1))),
    ],
)  # fmt: skip
def test_switches_fall_where_they_are_written(text: str, length: int, switches: tuple[tuple[int, int], ...]):
    schedule = TextSchedule.parse(text)
    assert str(schedule) == text
    assert schedule.at(length, MODES).switches == switches


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "'' of schedule '' is no switch"),
        ("0", "'0' of schedule '0' is no switch"),
        ("0=", "is no switch"),
        ("0=0,", "'' of schedule '0=0,' is no switch"),
        ("0=0;8=1", "is no switch"),
        ("0=0,2.5=1", "'2.5=1' of schedule '0=0,2.5=1' is no switch"),
        ("0=0,-101%=1", "'-101%=1' of schedule '0=0,-101%=1' is a share above 100%"),
        ("8=1", "schedule '8=1' must begin with '0='"),
        ("-100%=1", "must begin with '0='"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        TextSchedule.parse(text)


@pytest.mark.parametrize(
    ("text", "length", "sentence"),
    [
        ("0=0,860=1", 860, "switches at '860', which is not inside a text of 860 tokens"),
        ("0=0,-16=1", 15, "switches at '-16', which is not inside a text of 15 tokens"),
        ("0=0,100%=1", 15, "switches at '100%', which is not inside"),
        ("0=0,-16=1", 16, "switches at position 0 after it did at 0"),
        ("0=0,40=1,-16=0", 50, "switches at position 34 after it did at 40"),
        ("0=0,1%=1", 64, "switches at position 0 after it did at 0"),
        ("0=0,8=2", 64, "takes mode '2'; the modes are: mamba2, attention"),
        ("0=0,8=atention", 64, "takes mode 'atention'; did you mean 'attention'"),
        ("0=gated_deltanet", 64, "takes mode 'gated_deltanet'"),
    ],
)
def test_what_does_not_fit_the_text_or_the_model_is_refused(text: str, length: int, sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        TextSchedule.parse(text).at(length, MODES)


def test_what_fits_a_model():
    assert TextSchedule.parse("0=mamba2,-1=1").fits(MODES)
    assert not TextSchedule.parse("0=gated_deltanet,-1=attention").fits(MODES)
    assert not TextSchedule.parse("0=2").fits(MODES)
    assert not TextSchedule.parse("0=0").fits(())
