"""Whether a genome can be built: every name exists, every setting is legal, every part can stand where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from crossbreed.core import genome
from crossbreed.core.contracts.capabilities import SiteKind
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.errors import ConfigError, MissingCapability

HEAD_SIZES = ("head_size", "key_size", "value_size")
"""Settings that a mixer's legal head sizes are about."""


def check(architecture: genome.Architecture, parts: Parts) -> None:
    """Raise one clear error for the first thing that cannot work; allocates nothing.

    UnknownName for a missing plugin, ConfigError for a setting, MissingCapability for a part in the wrong place.
    """
    for (s, b, i), sublayer in architecture.sublayers():
        _check_mixer(sublayer, f"{s}.{b}.{i}", parts)
    for stage in architecture.stages:
        parts.config("depth", stage.depth.name, stage.depth.params)
    _check_modes(architecture)
    for where, router in architecture.routers().items():
        kind = cast(SiteKind, where.rpartition(".")[2])
        choices = len(mode_readers(architecture)) if kind == "mode" else 2
        _check_router(router, where, kind, choices, parts)


def check_training(architecture: genome.Architecture, parts: Parts) -> None:
    """Raise MissingCapability for a part that takes no part in training; allocates nothing."""
    for where, router in architecture.routers().items():
        if parts.descriptor("router", router.name).capabilities.fitted:
            raise MissingCapability(
                f"router {router.name!r} at {where} takes no part in training; train with the router that it replaces, then "
                "run `crossbreed fit-router`."
            )


def stated_backends(sublayer: genome.Sublayer, parts: Parts) -> frozenset[str]:
    """Implementations that a mixer, or a reader that it holds, states beside the reference."""
    readers = getattr(parts.config("mixer", sublayer.mixer, sublayer.params), "readers", None) or ()
    names = [sublayer.mixer, *(reader.name for reader in readers)]
    stated = {one for name in names for one in parts.descriptor("mixer", name).capabilities.backends}
    return frozenset(stated - {"reference"})


def backend_for(
    sublayer: genome.Sublayer, parts: Parts, backend: str, chosen: Mapping[str, str] | None = None
) -> str:
    """What a mixer is built with: beside one that has the forced backend, one without it computes as it would of itself.

    ``chosen``: under ``auto``, the backends of mixers by the digests of their sublayers.
    """
    if backend == "auto":
        return (chosen or {}).get(genome.digest(sublayer), backend)
    return backend if backend in ("reference", *stated_backends(sublayer, parts)) else "auto"


def check_backend(architecture: genome.Architecture, parts: Parts, backend: str) -> None:
    """Raise MissingCapability where a backend is forced that none of the mixers states."""
    if backend in ("auto", "reference"):
        return
    stated = [stated_backends(sublayer, parts) for _, sublayer in architecture.sublayers()]
    if not any(backend in names for names in stated):
        has = ", ".join(sorted(frozenset().union(*stated, {"reference"})))
        raise MissingCapability(
            f"backend {backend!r} is forced, but no mixer of this architecture has it; theirs: {has}"
        )


def backend_within(architecture: genome.Architecture, parts: Parts, backend: str) -> str:
    """What a model is built with where a whole study forces ``backend``: as a part without it beside one that has it, so a
    model without it computes as it would of itself.
    """
    stated = (stated_backends(sublayer, parts) for _, sublayer in architecture.sublayers())
    return backend if backend == "reference" or any(backend in names for names in stated) else "auto"


def mode_readers(architecture: genome.Architecture) -> list[str]:
    """Names of the readers that a mode router chooses from, or an empty list."""
    return genome.reader_names(architecture.stages)


def _check_mixer(sublayer: genome.Sublayer, where: str, parts: Parts) -> None:
    config = parts.config("mixer", sublayer.mixer, sublayer.params)
    able = parts.descriptor("mixer", sublayer.mixer).capabilities
    name = f"mixer {sublayer.mixer!r} at {where}"
    if not able.causal:
        raise MissingCapability(f"{name} is not causal; a language model needs causal mixers")
    _check_head_sizes(config, able.head_sizes, name)
    for reader in getattr(config, "readers", ()):
        descriptor = parts.descriptor("mixer", reader.name)
        if descriptor.reader is None or descriptor.reader_config is None:
            readers = [m for m in parts.names("mixer") if parts.descriptor("mixer", m).reader is not None]
            raise MissingCapability(
                f"{name} lists the reader {reader.name!r}, but that mixer offers no reader; these do: {', '.join(readers)}"
            )
        genome.parse(descriptor.reader_config, reader.params, f"reader {reader.name!r} of {name}")
        _check_head_sizes(config, descriptor.capabilities.head_sizes, f"reader {reader.name!r} of {name}")


def _check_head_sizes(config: object, legal: tuple[int, ...] | None, name: str) -> None:
    for setting in HEAD_SIZES:
        size = getattr(config, setting, None)
        if legal is not None and size is not None and size not in legal:
            allowed = ", ".join(map(str, legal))
            raise MissingCapability(f"{name} cannot run {setting} {size}; it runs {allowed}")


def _check_modes(architecture: genome.Architecture) -> None:
    readers = mode_readers(architecture)
    if readers and architecture.mode_router is None:
        raise ConfigError(
            f"mode_router is missing: a multi-mixer holds the readers {', '.join(readers)} and something must choose"
        )
    if architecture.mode_router is not None and not readers:
        raise ConfigError(
            f"mode_router {architecture.mode_router.name!r} has nothing to choose: no multi-mixer lists 2 readers or more"
        )


def _check_router(router: genome.Router, where: str, kind: SiteKind, choices: int, parts: Parts) -> None:
    config = parts.config("router", router.name, router.params)
    able = parts.descriptor("router", router.name).capabilities
    name = f"router {router.name!r} at {where}"
    if kind not in able.sites:
        raise MissingCapability(f"{name}: it can stand at {', '.join(able.sites)}, not at a {kind} site")
    if not able.causal:
        raise MissingCapability(f"{name} is not causal; its choices would see later tokens in evaluation")
    if able.max_choices is not None and choices > able.max_choices:
        raise MissingCapability(
            f"{name} tells at most {able.max_choices} choices apart, the site has {choices}"
        )
    if kind in able.feedback_sites and able.gradient:
        raise MissingCapability(
            f"{name} declares both feedback and gradient; feedback cannot be differentiated"
        )
    cls = parts.factory("router", router.name)
    shares = cls.rates(config, kind, choices)
    if len(shares) != choices:
        raise ConfigError(f"{name} has rates for {len(shares)} choices, but the site has {choices}")
    for schedule in (cls.schedule(config), cls.training_schedule(config)):
        if schedule is not None:
            schedule.check(choices, f"the schedule of {name}")
