"""What jobs are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from crossbreed.core.search.dispatch import settled
from crossbreed.storage.rows import RunRow


def run(environment: dict[str, Any] | None) -> RunRow:
    return cast(RunRow, SimpleNamespace(environment=environment))


def test_all_runs_of_a_candidate_take_what_the_first_on_each_device_has_measured() -> None:
    first, second = [{"backend": "fla"}], [{"backend": "auto"}]
    runs = [
        run(None),
        run({"device": "a processor", "speeds": None}),
        run({"device": "a GPU"}),
        run({"device": "a GPU", "speeds": first}),
        run({"device": "a GPU", "speeds": second}),
        run({"device": "another GPU", "speeds": []}),
    ]
    assert settled(runs) == {"a GPU": first, "another GPU": []}
