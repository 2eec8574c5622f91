"""What a run records about where it ran."""

from __future__ import annotations

import pytest

from crossbreed.core.lab import environment
from crossbreed.figures.report import _flat

OWNERS = {"fla": ["fla-core", "flash-linear-attention"], "flash_attn": ["flash-attn"], "torch": ["torch"]}
VERSIONS = {"fla-core": "0.6.0", "flash-linear-attention": "0.6.1", "flash-attn": "2.8.3"}


def test_versions_of_what_backends_import_are_recorded_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "packages_distributions", lambda: OWNERS)
    monkeypatch.setattr(environment, "version", VERSIONS.__getitem__)
    found = environment.libraries(["reference+fla, fla conv", "sdpa"])
    assert found == {"fla-core": "0.6.0", "flash-linear-attention": "0.6.1"}
    assert environment.libraries(["flash_attn"]) == {"flash-attn": "2.8.3"}
    said = _flat({"torch": "2.13", "backends": {"0": "fla"}, "libraries": found})
    assert said == {"torch": "2.13", "backends": "fla", **found}


def test_pytorchs_own_kernels_are_of_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "packages_distributions", lambda: OWNERS)
    assert environment.libraries(["reference", "sdpa", "reference+sdpa"]) == {}
