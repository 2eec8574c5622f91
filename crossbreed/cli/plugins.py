"""``crossbreed plugins``: everything registered, and what could not be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, is_dataclass
from typing import Any

from rich.markup import escape

from crossbreed.cli.backends import Backend, backends_of
from crossbreed.cli.options import Debug, Json, Plugins, registry_of
from crossbreed.cli.output import data_console, print_json, table
from crossbreed.core.contracts.capabilities import MixerCapabilities
from crossbreed.core.host import KIND_LABELS, Registered, Registry


def plugins(plugin: Plugins = None, json: Json = False, debug: Debug = False) -> None:
    """List mixers, routers, depth policies, cost models, tasks and search spaces, and plugins that are broken.

    A broken plugin stops nothing: it is listed with its traceback. Loading a plugin runs its code with your rights;
    installed ones that were kept out are named.
    """
    registry = registry_of(plugin)
    if json:
        print_json("plugins", listing(registry))
    else:
        _print_tables(registry)


def listing(registry: Registry) -> dict[str, Any]:
    """What is registered as plain data."""
    return {
        "plugins": [
            {
                "kind": kind,
                "name": name,
                "owner": entry.owner.name,
                "source": entry.owner.source,
                "distribution": entry.owner.distribution or None,
                "version": entry.owner.version or None,
                "identity": entry.owner.identity,
                "builtin": entry.owner.builtin,
                "capabilities": capabilities(entry),
                "backends": [
                    {
                        "name": backend.name,
                        "available": not backend.missing,
                        "missing": backend.missing or None,
                    }
                    for backend in _backends(entry)
                ],
                "summary": entry.descriptor.summary,
            }
            for kind, entries in registry.entries.items()
            for name, entry in sorted(entries.items())
        ],
        "broken": [
            {
                "owner": problem.owner.name,
                "source": problem.owner.source,
                "message": problem.message,
                "traceback": problem.traceback,
            }
            for problem in registry.problems
        ],
        "refused": [
            {"owner": owner.name, "source": owner.source, "reason": registry.trust.rule}
            for owner in registry.refused
        ],
    }


def capabilities(entry: Registered) -> dict[str, Any]:
    """What a plugin states it can do, as plain data; empty for kinds that state nothing."""
    stated = getattr(entry.descriptor, "capabilities", None)
    if stated is not None and is_dataclass(stated) and not isinstance(stated, type):
        return asdict(stated)
    flags = ("shares_weights", "needs_device")
    return {flag: getattr(entry.descriptor, flag) for flag in flags if hasattr(entry.descriptor, flag)}


def _print_tables(registry: Registry) -> None:
    console = data_console()
    listed = table("", ["kind", "name", "distribution", "version", "can", "what it is"])
    for kind, entries in registry.entries.items():
        for name, entry in sorted(entries.items()):
            owner = entry.owner
            # A file is pinned by its content as an installed plugin is by its version.
            origin = owner.distribution or owner.source
            version = owner.version or owner.identity[:19]
            cells = (KIND_LABELS[kind], name, origin, version, _can(entry), entry.descriptor.summary)
            listed.add_row(*map(escape, cells))
    console.print(listed)
    for owner in registry.refused:
        console.print(f"not loaded: {owner.name} ({owner.source}): {registry.trust.rule}", markup=False)
    for name in registry.absent:
        console.print(f"allowed, but not installed: {name}", markup=False)
    for problem in registry.problems:
        console.print(
            f"[bold red]broken[/] {escape(f'{problem.owner.name} ({problem.owner.source}): {problem.message}')}"
        )
        if problem.traceback:
            console.print(escape(problem.traceback.rstrip()), style="dim")


def _can(entry: Registered) -> str:
    """Capabilities in a few words: what tells plugins of one kind apart."""
    stated = capabilities(entry)
    words = [str(stated["axis"])] if "axis" in stated else []
    words += [f"at {'/'.join(stated['sites'])}"] if "sites" in stated else []
    words += [word for word in ("reader", "gradient", "shares_weights", "needs_device") if stated.get(word)]
    words += [f"feedback at {'/'.join(stated['feedback_sites'])}"] if stated.get("feedback_sites") else []
    words += [f"not {word}" for word in ("causal", "packing", "deterministic") if stated.get(word) is False]
    sparse = [phase for phase, execution in stated.get("execution", {}).items() if execution == "sparse"]
    words += [f"skips in {'/'.join(sparse)}"] if sparse else []
    backends = list(_backends(entry))
    if len(backends) > 1:
        words.append("runs by " + ", ".join(b.name for b in backends if not b.missing))
        words += [f"not by {b.name} ({b.missing})" for b in backends if b.missing]
    return "; ".join(words)


def _backends(entry: Registered) -> Iterable[Backend]:
    stated = getattr(entry.descriptor, "capabilities", None)
    return backends_of(stated) if isinstance(stated, MixerCapabilities) else ()
