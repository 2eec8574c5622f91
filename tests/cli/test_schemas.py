"""Every ``--json`` object has a committed schema, and every schema is of an object that a command prints."""

from __future__ import annotations

import re
from pathlib import Path

import crossbreed.cli
from tests.cli.conftest import SCHEMAS

FRAGMENTS = {
    "crossbreed/certificate/1",
    "crossbreed/ledger/1",
    "crossbreed/candidates/1",
    "crossbreed/comparisons/1",
}
SOURCES = Path(crossbreed.cli.__file__).parent


def test_printed_objects_and_schemas_are_the_same_set() -> None:
    text = "\n".join(file.read_text() for file in SOURCES.glob("*.py"))
    printed = {f"crossbreed/{name}/1" for name in re.findall(r'(?:print_json|json_line)\(\s*"(\w+)"', text)}
    assert len(printed) > 8
    assert printed | FRAGMENTS == SCHEMAS.keys()


def test_every_object_says_which_schema_it_follows() -> None:
    for name in SCHEMAS.keys() - FRAGMENTS:
        rules = SCHEMAS[name].schema
        assert rules["properties"]["schema"] == {"const": name}
        assert "schema" in rules["required"]
        assert rules["additionalProperties"] is False
