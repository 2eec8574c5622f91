"""What a run records about where it ran."""

from __future__ import annotations

import pytest

from crossbreed.core.lab import environment
from crossbreed.core.lab.records import Finished, Profiled, Started
from crossbreed.figures.report import _flat
from tests.support.records import of

OWNERS = {"fla": ["fla-core", "flash-linear-attention"], "flash_attn": ["flash-attn"], "torch": ["torch"]}
VERSIONS = {"fla-core": "0.6.0", "flash-linear-attention": "0.6.1", "flash-attn": "2.8.3"}


def test_versions_of_what_backends_import_are_recorded_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "packages_distributions", lambda: OWNERS)
    monkeypatch.setattr(environment, "version", VERSIONS.__getitem__)
    found = environment.libraries(["reference+fla", "sdpa"])
    assert found == {"fla-core": "0.6.0", "flash-linear-attention": "0.6.1"}
    assert environment.libraries(["flash_attn"]) == {"flash-attn": "2.8.3"}
    said = _flat({"torch": "2.13", "backends": {"0": "fla"}, "libraries": found})
    assert said == {"torch": "2.13", "backends": "fla", **found}


def test_pytorchs_own_kernels_are_of_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "packages_distributions", lambda: OWNERS)
    assert environment.libraries(["reference", "sdpa", "reference+sdpa"]) == {}


def test_a_backend_that_a_study_forces_leaves_models_without_it_to_the_reference(job, records_of):
    records = records_of(job(backend="fla", phases=("train", "evaluate", "profile")))
    assert records[-1] == Finished("done"), records[-1].traceback
    (started,) = of(Started, records)
    assert set(started.environment["backends"].values()) == {"reference"}
    # One policy for the whole study, so that its candidates are compared with each other.
    assert {m.policy for r in of(Profiled, records) for m in r.measurements} == {"forced:fla"}


def test_a_forced_backend_that_is_not_installed_is_named(job, records_of):
    block = {"sublayers": [{"mixer": "mamba2", "params": {"heads": 2, "head_size": 8, "state_size": 8}}]}
    data = {"vocab": 20, "d_model": 16, "stages": [{"blocks": [block]}]}
    (finished,) = records_of(job(data, backend="mamba_ssm"))
    assert finished.state == "failed"
    assert "backend 'mamba_ssm'" in finished.cause
    assert "not installed" in finished.cause
