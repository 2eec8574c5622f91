"""``crossbreed check``: whether a plugin keeps its contract, rule by rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from crossbreed.cli.options import Debug, Json, Plugins, registry_of
from crossbreed.cli.output import data_console, print_json, program, table
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.errors import ConfigError, PluginError, UnknownName
from crossbreed.core.host import KIND_LABELS, Owner, Registry
from crossbreed.core.trust import NO_THIRD_PARTY, plain

if TYPE_CHECKING:
    from crossbreed.core.conformance.report import Report

MARKS = {"passed": "[green]passed[/]", "failed": "[red]failed[/]", "not_applicable": "[dim]not applicable[/]"}
Found = list[tuple[Kind, str]]


def check(
    what: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE|DISTRIBUTION", help="A plugin, a plugin file, or an installed distribution."
        ),
    ],
    profile: Annotated[
        Literal["suite", "full"],
        typer.Option(help="suite: a few seconds a plugin; full: more sizes and settings, up to a minute."),
    ] = "full",
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Check what a plugin states and promises: one line a rule, with the smallest input on which it does not hold.

    Loading a plugin runs its code. Exit code 1 when a rule failed.
    """
    files = list(plugin or ())
    is_file = Path(what).suffix == ".py" or Path(what).is_file()
    registry = registry_of([*files, Path(what)] if is_file else files)
    found = _of_file(registry, Path(what)) if is_file else _named(registry, what)
    # Late, since rules import torch.
    from crossbreed.core.conformance.suite import check as judged

    reports = [judged(registry, kind, name, profile) for kind, name in found]
    if json:
        passed = all(report.passed for report in reports)
        print_json("check", {"passed": passed, "plugins": [report.as_dict() for report in reports]})
    else:
        for report in reports:
            _print(report)
    if not all(report.passed for report in reports):
        raise typer.Exit(1)


def _of_file(registry: Registry, path: Path) -> Found:
    return _owned(registry, lambda owner: owner.source == str(path))


def _named(registry: Registry, what: str) -> Found:
    """Every plugin of that name, else every plugin of that distribution."""
    found: Found = [(kind, what) for kind in KIND_LABELS if what in registry.names(kind)]
    found = found or _owned(registry, lambda owner: plain(what) == plain(owner.distribution))
    if found:
        return found
    for kind, name in registry.collisions:
        if name == what:
            registry.registered(kind, name)
    _unusable(registry, what)
    known = {name for kind in KIND_LABELS for name in registry.names(kind)}
    known |= {owner.distribution for owner in registry.owners if owner.distribution}
    raise UnknownName("plugin, file or distribution", what, known)


def _unusable(registry: Registry, what: str) -> None:
    """Raise PluginError when ``what`` is installed but broken or kept out, and ConfigError when it is a file without its ending."""
    for problem in registry.problems:
        if _is(problem.owner, what):
            raise PluginError(
                f"{problem.owner.name!r} of {problem.owner.source} is broken: {problem.message}; `{program()} plugins` shows "
                "its traceback."
            )
    for owner in registry.refused:
        if _is(owner, what):
            let_in = (
                f"--plugins-allow {owner.distribution}"
                if registry.trust.third_party
                else f"leave --no-third-party out, or unset {NO_THIRD_PARTY}"
            )
            raise PluginError(
                f"{owner.name!r} of {owner.source} is installed, but was kept out: {registry.trust.rule}; to let it in: {let_in}."
            )
    file = Path(f"{what}.py")
    if file.is_file():
        raise ConfigError(
            f"no plugin or distribution is called {what!r}, but there is a file {file}: {program()} check {file}"
        )


def _is(owner: Owner, what: str) -> bool:
    """Whether a plugin that offers nothing is meant: by its distribution, or by its entry point, which mostly has its name."""
    return what == owner.name or (bool(owner.distribution) and plain(what) == plain(owner.distribution))


def _owned(registry: Registry, wanted: Callable[[Owner], bool]) -> Found:
    return [
        (kind, name)
        for kind in KIND_LABELS
        for name in registry.names(kind)
        if wanted(registry.registered(kind, name).owner)
    ]


def _print(report: Report) -> None:
    label = f"{KIND_LABELS[report.kind]} {report.name}"
    failed, count = len(report.failures), len(report.outcomes)
    verdict = (
        f"[red]{failed} of {count} rules failed[/]" if failed else f"[green]none of {count} rules failed[/]"
    )
    console = data_console()
    console.print(
        f"[bold]{escape(label)}[/] from {escape(report.source)}, {report.profile} profile: {verdict} in {report.seconds:.1f} s"
    )
    listed = table("", ["rule", "outcome", "why"])
    for outcome in report.outcomes:
        # What holds needs no explanation; what does not is named with its rule.
        why = f"{outcome.rule.says} {outcome}" if outcome.status == "failed" else str(outcome)
        listed.add_row(escape(outcome.rule.name), MARKS[outcome.status], escape(why))
    console.print(listed)
