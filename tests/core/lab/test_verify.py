"""A model that is not what its ledger says is not trained."""

from __future__ import annotations

from crossbreed.core.lab.records import Finished


def test_a_ledger_that_miscounts_weights_is_refused(job, genome, records_of):
    last = records_of(job(genome(fault="miscount")))[-1]
    assert last.state == "failed"
    assert "the built model has parameters" in last.cause


def test_a_ledger_that_miscounts_state_is_refused(job, genome, records_of):
    last = records_of(job(genome(fault="misstate")))[-1]
    assert last.state == "failed"
    assert "the decode state of the built model takes" in last.cause


def test_a_mixer_that_reserves_no_room_is_measured_after_a_pass(job, genome, records_of):
    assert records_of(job(genome(fault="no_room")))[-1] == Finished("done")
