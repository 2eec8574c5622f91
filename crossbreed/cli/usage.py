"""Command lines that Typer cannot read, as sentences like every other bad input."""

from __future__ import annotations

from collections.abc import Sequence

import typer

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Typer's own class of everything wrong with a command line; it has no public name."""


def sentence(error: Exception, arguments: Sequence[str]) -> str:
    """What was given, where, and the rule it broke; then where the rules stand."""
    parameter, context = getattr(error, "param", None), getattr(error, "ctx", None)
    names = [*getattr(parameter, "opts", ()), *getattr(parameter, "secondary_opts", ())]
    given = _given(names, arguments)
    text: str = error.format_message()  # type: ignore[attr-defined]
    if given is not None:
        name, value = given
        # Pydantic's own words, which begin with what kind of error it took them for.
        rule = str(getattr(error, "message", text)).removeprefix("Value error, ")
        rule = rule.removeprefix(f"{value!r} ")
        rule = rule[0].lower() + rule[1:] if rule.startswith("Input ") else rule
        text = f"{name} {value!r}: {rule}" if rule.startswith("input ") else f"{name} {value!r} {rule}"
    where = "crossbreed" if context is None else context.command_path
    return f"{text.rstrip('.')}. See `{where} --help`."


def _given(names: Sequence[str], arguments: Sequence[str]) -> tuple[str, str] | None:
    """An option as it was written and its value, the last one where it was repeated."""
    found = None
    for i, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in names and name.startswith("-"):
            if equals:
                found = name, value
            elif i + 1 < len(arguments):
                found = name, arguments[i + 1]
    return found
