"""The host: finds plugins, keeps broken ones apart, and answers by name.

Built-ins come through the same entry points as anybody's. A plugin found by entry point that fails is listed with its
traceback and stops nothing; one named by ``--plugin`` that fails is an error.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

from crossbreed.core import genome
from crossbreed.core.contracts import hookspecs
from crossbreed.core.contracts.canonical import canonical
from crossbreed.core.contracts.cost import CostModelDescriptor
from crossbreed.core.contracts.depth import DepthPolicyDescriptor
from crossbreed.core.contracts.hookspecs import PROJECT
from crossbreed.core.contracts.mixer import MixerDescriptor
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.contracts.router import RouterDescriptor
from crossbreed.core.contracts.space import SearchSpaceDescriptor
from crossbreed.core.contracts.task import TaskDescriptor
from crossbreed.core.errors import PluginError, UnknownName, nearest
from crossbreed.core.trust import Trust

HOOKS: dict[str, tuple[Kind, type]] = {
    "register_mixers": ("mixer", MixerDescriptor),
    "register_routers": ("router", RouterDescriptor),
    "register_depth_policies": ("depth", DepthPolicyDescriptor),
    "register_cost_models": ("cost", CostModelDescriptor),
    "register_tasks": ("task", TaskDescriptor),
    "register_search_spaces": ("space", SearchSpaceDescriptor),
}
KIND_LABELS: dict[Kind, str] = {
    "mixer": "mixer",
    "router": "router",
    "depth": "depth policy",
    "cost": "cost model",
    "task": "task",
    "space": "search space",
}

KEEP_OUT = "keep what is installed out with --no-third-party, or with --plugins-allow naming the others"
"""What to do where a plugin file and an installed distribution offer one name, and the file is meant."""


@dataclass(frozen=True)
class Owner:
    """Where a plugin came from. ``identity`` pins its content: distribution and version, or a file's SHA-256.

    ``distribution`` and ``version`` are those of an installed plugin, and empty for a file.
    """

    name: str
    source: str
    identity: str
    builtin: bool = False
    distribution: str = ""
    version: str = ""


@dataclass(frozen=True)
class PluginFile:
    """A plugin given as a file: what is stored with a study and shipped to workers."""

    path: str
    sha256: str
    text: str

    @staticmethod
    def read(path: str | Path) -> PluginFile:
        """Read a plugin file; raises PluginError naming the path when it cannot be read."""
        file = Path(path)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
            raise PluginError(
                f"plugin file {str(path)!r} {reason}; --plugin needs a readable Python file."
            ) from error
        return PluginFile(str(path), hashlib.sha256(text.encode()).hexdigest(), text)


@dataclass
class Problem:
    """A plugin that could not be used, or a name that two plugins claim."""

    owner: Owner
    message: str
    traceback: str = ""


@dataclass
class Registered:
    """One usable descriptor and who offers it."""

    descriptor: Any
    owner: Owner


@dataclass
class Registry:
    """Everything registered, by kind and name; implements the ``Parts`` view that plugins receive."""

    entries: dict[Kind, dict[str, Registered]] = field(
        default_factory=lambda: {kind: {} for kind in KIND_LABELS}
    )
    collisions: dict[tuple[Kind, str], list[Owner]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    owners: list[Owner] = field(default_factory=list)
    files: list[PluginFile] = field(default_factory=list)
    trust: Trust = field(default_factory=Trust)
    refused: list[Owner] = field(default_factory=list)
    """Installed plugins that ``trust`` keeps out: none of their code ran."""
    absent: list[str] = field(default_factory=list)
    """What ``trust`` lets in, but is not installed, each with the nearest that is: a name may be misspelt."""

    def names(self, kind: Kind) -> list[str]:
        return sorted(self.entries[kind])

    def registered(self, kind: Kind, name: str) -> Registered:
        """The entry; raises UnknownName with the nearest name, or PluginError when two plugins claim the name."""
        if (kind, name) in self.collisions:
            owners = self.collisions[kind, name]
            who = " and ".join(f"{o.name} ({o.source})" for o in owners)
            installed = [o.distribution for o in owners if o.distribution]
            keep = f", or {KEEP_OUT}" if 0 < len(installed) < len(owners) else ""
            raise PluginError(
                f"{KIND_LABELS[kind]} {name!r} is offered by {who}; rename or remove one of them{keep}."
            )
        try:
            return self.entries[kind][name]
        except KeyError:
            hint = " Some plugins failed to load; see `crossbreed plugins`." if self.problems else ""
            if self.refused:
                out = ", ".join(dict.fromkeys(owner.source for owner in self.refused))
                hint += f" Not loaded, because {self.trust.rule}: {out}."
            if self.absent:
                hint += f" Allowed, but not installed: {', '.join(self.absent)}."
            raise UnknownName(KIND_LABELS[kind], name, self.entries[kind], hint) from None

    def descriptor(self, kind: Kind, name: str) -> Any:
        return self.registered(kind, name).descriptor

    def config(self, kind: Kind, name: str, params: dict[str, Any]) -> Any:
        return genome.parse(self.descriptor(kind, name).config, params, f"{KIND_LABELS[kind]} {name!r}")

    def factory(self, kind: Kind, name: str) -> Any:
        entry = self.registered(kind, name)
        try:
            return import_late(entry.descriptor.factory)
        except Exception as error:
            raise PluginError(
                f"{KIND_LABELS[kind]} {name!r} of {entry.owner.name} failed to import: {type(error).__name__}: {error}"
            ) from error

    def canonical(self, architecture: genome.Architecture) -> genome.Architecture:
        """The one form of an architecture, see ``canonical``. Raises ConfigError for unknown names or settings."""
        return canonical(architecture, self)

    def identities(self, architecture: genome.Architecture) -> dict[str, str]:
        """``kind:name`` -> identity of every plugin an architecture uses, those of readers included; seeds pool only within
        equal identities."""
        used: set[tuple[Kind, str]] = set()
        for _, sub in architecture.sublayers():
            readers = getattr(self.config("mixer", sub.mixer, sub.params), "readers", None) or ()
            used |= {("mixer", name) for name in (sub.mixer, *(reader.name for reader in readers))}
        used |= {("router", router.name) for router in architecture.routers().values()}
        used |= {("depth", stage.depth.name) for stage in architecture.stages}
        return {f"{kind}:{name}": self.registered(kind, name).owner.identity for kind, name in sorted(used)}


def import_late(factory: Any) -> Any:
    """A class from ``"module:Class"``; a class as it is; anything else callable is called to get the class."""
    if isinstance(factory, str):
        module, _, attribute = factory.partition(":")
        return getattr(importlib.import_module(module), attribute)
    return factory if isinstance(factory, type) else factory()


class Host:
    """Loads plugins into a registry. ``Host.load()`` is what every command calls first."""

    def __init__(self, trust: Trust, trace: Callable[[str], None] | None) -> None:
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self.registry = Registry(trust=trust)
        if trace is not None:
            self._manager.add_hookcall_monitoring(*_tracers(trace))

    @staticmethod
    def load(
        plugins: Iterable[str | PluginFile] = (),
        *,
        third_party: bool = True,
        trust: Trust | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> Registry:
        """Built-ins, then installed plugins as far as ``trust`` goes, then plugin files.

        ``trust`` None takes that of the environment; ``third_party`` False keeps all installed plugins out. ``trace``
        receives a line before and after each hook call. Raises PluginError for a plugin file that is missing, raises at
        import, or registers nothing right, and ConfigError for an environment that cannot be read.
        """
        trust = Trust.from_environment() if trust is None else trust
        host = Host(trust if third_party else Trust(third_party=False), trace)
        for entry, owner in _installed():
            if owner.builtin or host.registry.trust.permits(owner.distribution):
                host._register_entry_point(entry, owner)
            else:
                host.registry.refused.append(owner)
        host.registry.absent = host._absent()
        for item in plugins:
            host._register_file(item if isinstance(item, PluginFile) else PluginFile.read(item))
        return host.registry

    def _absent(self) -> list[str]:
        trust, kept_out = self.registry.trust, {owner.distribution for owner in self.registry.refused}
        installed = {owner.distribution for owner in self.registry.owners} | {
            problem.owner.distribution for problem in self.registry.problems
        }
        return [
            f"{name!r}{nearest(name, kept_out)}"
            for name in trust.allow or ()
            if trust.third_party and not any(Trust(allow=(name,)).permits(other) for other in installed)
        ]

    def _register_entry_point(self, entry: EntryPoint, owner: Owner) -> None:
        # Somebody else's import may raise anything: it is kept for the listing and stops nothing.
        try:
            self._register(entry.load(), owner)
        except Exception as error:
            self.registry.problems.append(
                Problem(owner, f"{type(error).__name__}: {error}", traceback.format_exc())
            )

    def _register_file(self, file: PluginFile) -> None:
        name = f"crossbreed_plugin_{file.sha256[:16]}"
        owner = Owner(Path(file.path).name, file.path, f"sha256:{file.sha256}")
        if file.sha256 in {f.sha256 for f in self.registry.files}:
            return
        try:
            self._register(_module_from_text(name, file), owner)
        except PluginError:
            raise
        except Exception as error:
            where = _line_in(error, file.path)
            raise PluginError(
                f"plugin {file.path!r} raised {type(error).__name__} at import{where}: {error}"
            ) from error
        self.registry.files.append(file)

    def _register(self, plugin: ModuleType | object, owner: Owner) -> None:
        _check_hook_names(plugin, owner)
        try:
            self._manager.register(plugin, name=f"{owner.name}@{owner.source}")
        except pluggy.PluginValidationError as error:
            raise PluginError(f"plugin {owner.name!r} has a wrong hook signature: {error}") from error
        offered = [
            (kind, descriptor)
            for hook, (kind, expected) in HOOKS.items()
            for descriptor in self._call(plugin, hook, expected, owner)
        ]
        self.registry.owners.append(owner)
        for kind, descriptor in offered:
            self._claim(kind, descriptor, owner)

    def _call(self, plugin: Any, hook: str, expected: type, owner: Owner) -> list[Any]:
        others = [p for p in self._manager.get_plugins() if p is not plugin]
        caller = self._manager.subset_hook_caller(hook, remove_plugins=others)
        found = [d for result in caller() for d in _listed(result)]
        for descriptor in found:
            if not isinstance(descriptor, expected):
                raise PluginError(
                    f"plugin {owner.name!r}: {hook}() must return a list of {expected.__name__}, "
                    f"got {type(descriptor).__name__}"
                )
        return found

    def _claim(self, kind: Kind, descriptor: Any, owner: Owner) -> None:
        registry, name = self.registry, descriptor.name
        holder = registry.entries[kind].get(name)
        claimed = registry.collisions.get((kind, name))
        if holder is None and claimed is None:
            registry.entries[kind][name] = Registered(descriptor, owner)
            return
        if holder is not None and holder.owner.builtin:
            # A built-in is never overridden: the newcomer loses its claim.
            message = f"{KIND_LABELS[kind]} {name!r} of {owner.name} ({owner.source}) has a built-in's name; rename it"
            registry.problems.append(Problem(owner, message))
            if owner.identity.startswith("sha256:"):
                raise PluginError(message)
            return
        owners = [*(claimed or []), *([holder.owner] if holder else []), owner]
        registry.entries[kind].pop(name, None)
        registry.collisions[kind, name] = owners
        who = " and ".join(f"{o.name} ({o.source})" for o in owners)
        registry.problems.append(
            Problem(owner, f"{KIND_LABELS[kind]} {name!r} is offered by {who}; neither is used")
        )


def _installed() -> list[tuple[EntryPoint, Owner]]:
    """Entry points of the group, ours first, so that a built-in's name is always taken by the built-in."""
    found = [(entry, _owner(entry)) for entry in entry_points(group=PROJECT)]
    return sorted(found, key=lambda pair: (not pair[1].builtin, pair[0].name, pair[0].value))


def _owner(entry: EntryPoint) -> Owner:
    if entry.dist is None:
        return Owner(entry.name, entry.value, entry.value)
    # Each look at a distribution's name or version reads and parses its whole metadata.
    metadata = entry.dist.metadata
    name, version = metadata["Name"], metadata["Version"]
    label = f"{name} {version}"
    return Owner(entry.name, label, label, name == PROJECT, name, version)


def _module_from_text(name: str, file: PluginFile) -> ModuleType:
    """Import a plugin from its text, so that a worker runs exactly the bytes whose hash was recorded."""
    spec = importlib.util.spec_from_loader(name, loader=None, origin=file.path)
    if spec is None:
        raise PluginError(f"plugin {file.path!r} cannot be made a module")
    module = importlib.util.module_from_spec(spec)
    module.__file__ = file.path
    sys.modules[name] = module
    try:
        exec(compile(file.text, file.path, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _check_hook_names(plugin: Any, owner: Owner) -> None:
    marked = [
        n for n in dir(plugin) if getattr(getattr(plugin, n, None), f"{PROJECT}_impl", None) is not None
    ]
    for name in marked:
        if name not in HOOKS:
            raise PluginError(f"plugin {owner.name!r} implements unknown hook {name!r}{nearest(name, HOOKS)}")
    if not marked:
        raise PluginError(
            f"plugin {owner.name!r} registers nothing: decorate a function named one of "
            f"{', '.join(sorted(HOOKS))} with crossbreed.hookimpl"
        )


def _tracers(trace: Callable[[str], None]) -> tuple[Callable[..., None], Callable[..., None]]:
    """Functions for pluggy to call before and after a hook; plugins that do not implement it are not mentioned."""
    began: list[float] = []

    def before(hook: str, implementations: Sequence[Any], arguments: Any) -> None:
        for implementation in implementations:
            trace(f"{hook}() of {implementation.plugin_name}")
        began.append(time.perf_counter())

    def after(outcome: Any, hook: str, implementations: Sequence[Any], arguments: Any) -> None:
        took = f"{(time.perf_counter() - began.pop()) * 1e3:.2f} ms"
        if outcome.exception is not None:
            trace(f"{hook}() raised {type(outcome.exception).__name__} after {took}: {outcome.exception}")
        elif implementations:
            found = [d for result in outcome.get_result() for d in _listed(result)]
            names = ", ".join(str(getattr(d, "name", d)) for d in found)
            trace(f"{hook}() returned in {took}: {names or 'nothing'}")

    return before, after


def _listed(result: Any) -> Sequence[Any]:
    return result if isinstance(result, list | tuple) else [result]


def _line_in(error: BaseException, path: str) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    return f" (line {frames[-1].lineno})" if frames else ""
