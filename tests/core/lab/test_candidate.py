"""A job that asks for what is not there, or does not fit, fails with a sentence."""

from __future__ import annotations

import pytest


def test_a_task_with_another_vocabulary_is_refused(job, genome, records_of):
    last = records_of(job({**genome(), "vocab": 21}))[-1]
    assert (last.state, "architecture.vocab is 21, but task 'recall' has 20" in last.cause) == (
        "failed",
        True,
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device": "tpu9"}, "unknown device 'tpu9'"),
        ({"device": "cuda:77"}, "device 'cuda:77' is not there"),
        ({"rungs": (768, 9999)}, "must rise and end within the recipe's 2304 tokens"),
        ({"points": ("forced:2",), "phases": ("profile",)}, "unknown operating point 'forced:2'"),
        ({"phases": ("tarin",)}, "unknown phase 'tarin'"),
        ({"recipe": {"tokens": -1}}, "tokens"),
        ({"task": {"name": "recal"}}, "unknown task 'recal'; did you mean 'recall'"),
    ],
)
def test_bad_jobs_fail_with_a_sentence(job, records_of, change: dict, words: str):
    last = records_of(job(**change))[-1]
    assert last.state == "failed"
    assert words in last.cause
