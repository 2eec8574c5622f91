"""What is raised in a run ends it as a state with its cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossbreed.core.errors import ArtefactsLost, ConfigError, DiskFull, NotFinite
from crossbreed.core.lab import outcome
from crossbreed.core.lab.records import Finished
from crossbreed.core.lab.trial import run
from tests.support.records import points


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (NotFinite("a score is nan"), "non_finite: a score is nan"),
        (DiskFull("no room for 'rung-0'"), "disk: no room for 'rung-0'"),
        (ArtefactsLost("cannot be listed"), "unreachable: cannot be listed"),
        (ConfigError("rungs must rise"), "rungs must rise"),
        (KeyError(), "exception: KeyError: no message"),
    ],
)
def test_a_failures_cause_begins_with_what_tells_it_from_others(error: Exception, cause: str):
    last = outcome.of(error)
    assert (last.state, last.cause) == ("failed", cause)
    assert type(error).__name__ in last.traceback


@pytest.mark.parametrize(
    ("fault", "state", "cause"),
    [
        ("nan", "diverged", "loss was nan at step 6 of 24"),
        ("raise", "failed", "exception: ValueError: shapes 3 and 4 do not fit"),
        ("memory", "out_of_memory", "MemoryError: host is full"),
        ("allocator", "out_of_memory", "RuntimeError"),
    ],
)
def test_a_plugins_fault_ends_as_a_state_with_its_cause(
    job, genome, records_of, fault: str, state: str, cause: str
):
    records = records_of(job(genome(fault=fault, at=6)))
    assert isinstance(records[-1], Finished)
    assert records[-1].state == state
    assert cause in records[-1].cause
    assert ("stub_parts.py" in records[-1].traceback) == (state != "diverged")
    assert [p.step for p in points(records)] == [5]


def test_an_interrupt_is_reported_and_reaches_the_caller(job, genome, records_of):
    records = []
    with pytest.raises(KeyboardInterrupt):
        run(job(genome(fault="interrupt", at=9)), records.append, lambda: False)
    assert records[-1].state == "preempted"
    assert [p.name for p in Path(job().artefacts).iterdir()] == ["rung-0.safetensors"]


def test_what_emit_raises_is_not_taken_for_a_plugins_fault(job):
    def emit(record):
        raise ConnectionError("the driver is gone")

    with pytest.raises(ConnectionError):
        run(job(), emit, lambda: False)
