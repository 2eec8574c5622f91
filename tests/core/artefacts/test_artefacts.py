"""What every place of artefacts does, whatever lies behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ConfigError


def test_what_is_written_is_read_whole_and_in_parts(artefacts: Artefacts) -> None:
    assert (artefacts.names(), artefacts.empty()) == ([], True)
    artefacts.write("s/1/0/rung-0", b"0123456789")
    artefacts.write("top", b"")
    assert artefacts.read("s/1/0/rung-0") == b"0123456789"
    assert artefacts.read("s/1/0/rung-0", 2, 5) == b"234"
    assert artefacts.read("s/1/0/rung-0", 8, 99) == b"89"
    assert (artefacts.size("s/1/0/rung-0"), artefacts.size("top")) == (10, 0)
    assert (artefacts.exists("s/1/0/rung-0"), artefacts.exists("s/1/0/rung-1"), artefacts.exists("s/1")) == (
        True,
        False,
        artefacts.whole,
    )
    with artefacts.local("s/1/0/rung-0") as path:
        assert path.read_bytes() == b"0123456789"
    artefacts.write("s/1/0/rung-0", b"other")
    assert artefacts.read("s/1/0/rung-0") == b"other"


def test_names_are_those_directly_there_without_drafts(artefacts: Artefacts) -> None:
    for name in ("b", "a", "deep/er/c"):
        artefacts.write(name, b"x")
    assert artefacts.names() == ["a", "b"]
    assert artefacts.under("deep/er").names() == ["c"]
    assert artefacts.under("deep").names() == []
    assert (artefacts.under("deep").empty(), artefacts.under("dee").empty()) == (False, True)
    # A place names itself.
    assert Artefacts.at(artefacts.under("deep/er").place).read("c") == b"x"


def test_what_is_not_there_is_not_found_and_may_be_deleted(artefacts: Artefacts) -> None:
    artefacts.write("a", b"x")
    artefacts.delete("a")
    artefacts.delete("a")
    artefacts.drop_drafts()
    assert not artefacts.exists("a")
    for ask in (artefacts.read, artefacts.size):
        with pytest.raises(FileNotFoundError):
            ask("a")
    with pytest.raises(FileNotFoundError), artefacts.local("a"):
        raise AssertionError("there is no such file")


def test_a_block_that_fails_leaves_what_was_there(artefacts: Artefacts) -> None:
    artefacts.write("a", b"before")
    with artefacts.writing("b/c") as file:
        file.write(b"in ")
        file.write(b"pieces")

    def fail(name: str) -> None:
        with artefacts.writing(name) as file:
            file.write(b"half")
            raise ZeroDivisionError

    for name in ("a", "new"):
        with pytest.raises(ZeroDivisionError):
            fail(name)
    assert artefacts.read("b/c") == b"in pieces"
    assert (artefacts.names(), artefacts.read("a")) == (["a"], b"before")


def test_logs_grow_and_go(artefacts: Artefacts) -> None:
    spool = artefacts.under("spool")
    assert (spool.logs(".jsonl"), spool.log("a.jsonl")) == ([], b"")
    for line in (b"1\n", b"2\n"):
        spool.append("a.jsonl", line)
    spool.append("b.jsonl", b"3\n")
    # As another process goes on with it.
    again = Artefacts.at(spool.place)
    again.append("a.jsonl", b"4\n")
    assert again.log("a.jsonl") == spool.log("a.jsonl") == b"1\n2\n4\n"
    assert sorted(spool.logs(".jsonl")) == ["a.jsonl", "b.jsonl"]
    assert spool.logs(".txt") == []
    spool.drop_log("a.jsonl")
    spool.drop_log("a.jsonl")
    assert (spool.logs(".jsonl"), spool.log("a.jsonl")) == (["b.jsonl"], b"")
    spool.append("a.jsonl", b"5\n")
    assert spool.log("a.jsonl") == b"5\n"


def test_it_can_be_used_before_anything_is_there(artefacts: Artefacts) -> None:
    artefacts.reach()
    artefacts.check()
    assert artefacts.empty()


HOSTILE = ["", "/etc/x", "../x", "a/../../x", "a//b", "a/", ".", "a/./b", "a\\b", "a\0b", "a\nb", "s3://b/x", "a::b", ".x", "a/.x"]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_leads_out_touches_nothing(artefacts: Artefacts, name: str, tmp_path: Path) -> None:
    def local() -> None:
        with artefacts.local(name):
            pass

    for act in (
        lambda: artefacts.write(name, b"x"),
        lambda: artefacts.append(name, b"x"),
        lambda: artefacts.read(name),
        lambda: artefacts.size(name),
        lambda: artefacts.delete(name),
        lambda: artefacts.log(name),
        lambda: artefacts.drop_log(name),
        lambda: artefacts.under(name),
        lambda: artefacts.writing(name).__enter__(),
        local,
    ):
        with pytest.raises(ConfigError, match="breaks the rule: relative to its place"):
            act()
    assert artefacts.empty()
    assert not (tmp_path / "x").exists()


def test_names_are_no_patterns(artefacts: Artefacts) -> None:
    artefacts.write("a*", b"star")
    artefacts.write("ab", b"plain")
    artefacts.write("[ab]", b"class")
    artefacts.delete("a*")
    assert artefacts.names() == ["[ab]", "ab"]
    assert not artefacts.exists("a?")
