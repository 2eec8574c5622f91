"""What happens to workers on a CUDA device, really done: memory that is not there, a poisoned context, memory that is held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from crossbreed.core.search.study import Study
from tests.core.search.test_survival import by_family, check_artefacts, registry, study_of

pytestmark = pytest.mark.gpu


def searched(folder: Path, *hows: str, **changes: Any) -> dict[str, Any]:
    """The runs of a search with one worker on the device, by what happens to them; the search ended in order."""
    file = study_of(folder / "marks", hows, **changes)
    with Study.start(str(folder / "study.db"), file, registry()) as study:
        assert study.run(executor="ray", workers=1, device="cuda").end == "done"
        repository, key = study.repository, study.row.id
        assert check_artefacts(repository, key) == repository.run_states(key)["done"]
        return by_family(repository, key)


def test_a_device_without_memory_ends_the_run_and_not_the_search(tmp_path: Path) -> None:
    runs = searched(tmp_path, "device", "")
    assert runs["device"].state == "out_of_memory"
    assert "OutOfMemoryError" in runs["device"].cause
    assert runs["good"].state == "done"


def test_a_worker_whose_context_is_poisoned_is_replaced(tmp_path: Path) -> None:
    runs = searched(tmp_path, "assert", "")
    assert runs["assert"].state == "failed"
    assert "device-side assert" in runs["assert"].cause
    # Nothing runs on the device any more in the process that did it, so another one has.
    assert runs["good"].state == "done"


def test_what_a_killed_run_held_is_there_for_the_next(tmp_path: Path) -> None:
    free, _ = torch.cuda.mem_get_info()
    # Too much for both together.
    runs = searched(tmp_path, "hold", "take", bytes=int(0.6 * free), search={"deadline_s": 20})
    assert runs["hold"].state == "failed"
    assert runs["hold"].cause.startswith("deadline: ")
    assert runs["take"].state == "done"
