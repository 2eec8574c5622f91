"""Command lines that Typer cannot read, as sentences like every other bad input."""

from __future__ import annotations

import re
from collections.abc import Sequence

import typer

from crossbreed.core.errors import rule_words

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Typer's own class of everything wrong with a command line; it has no public name."""
_ARGUMENT = re.compile(r"Invalid value for '(\S+)': ")


def sentence(error: Exception, arguments: Sequence[str]) -> str:
    """What was given, where, and the rule it broke; then where the rules stand."""
    parameter, context = getattr(error, "param", None), getattr(error, "ctx", None)
    names = [*getattr(parameter, "opts", ()), *getattr(parameter, "secondary_opts", ())]
    given = _given(names, arguments)
    text: str = error.format_message()  # type: ignore[attr-defined]
    if getattr(error, "message", ""):
        rule = rule_words(str(error.message))  # type: ignore[attr-defined]
        if given is not None:
            name, value = given
            text = f"{name} {value!r} {rule.removeprefix(f'{value!r} ')}"
        elif (argument := _ARGUMENT.match(text)) is not None:
            text = f"{argument[1]} {rule}"
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
