"""Random legal genomes as Hypothesis strategies, enumerated through the host: plugins added later are drawn unasked.

Settings come from each plugin's config class (every field whose kind of value is known), sizes from small numbers, so that
models stay tiny. A setting is kept only if the plugin still accepts the whole; a genome only if it can be built.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from hypothesis import assume
from hypothesis import strategies as st
from pydantic import BaseModel

from crossbreed.core.contracts.space import Choices
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, parse
from crossbreed.core.host import Registry
from crossbreed.core.model import legality

SMALL = (1, 2, 3, 4, 6, 8, 12)
"""Sizes and counts drawn for whole numbers."""
D_MODEL, VOCAB = 12, 19


def settings(draw: st.DrawFn, registry: Registry, kind: Any, name: str) -> dict[str, Any]:
    """Legal settings of one plugin: a few fields set to other values than their defaults."""
    descriptor = registry.descriptor(kind, name)
    ranges = dict(getattr(descriptor, "ranges", {}))
    params: dict[str, Any] = {}
    for field, info in descriptor.config.model_fields.items():
        if field == "readers":
            value: Any = draw(_readers(registry))
        elif isinstance(ranges.get(field), Choices) and draw(st.booleans()):
            value = draw(
                st.sampled_from([v for v in ranges[field].values if not _large(v)] or [info.default])
            )
        else:
            value = draw(_values(info.annotation, list(info.metadata), info.default))
        params = _kept(registry, kind, name, params, field, value)
    return params


def _kept(
    registry: Registry, kind: Any, name: str, params: dict[str, Any], field: str, value: Any
) -> dict[str, Any]:
    """``params`` with one more setting, or as they were where it is not legal beside them."""
    changed = {**params, field: value}
    try:
        registry.config(kind, name, changed)
    except ConfigError:
        return params
    return changed


def _large(value: Any) -> bool:
    return isinstance(value, int) and value > 32


def _readers(registry: Registry) -> st.SearchStrategy[Any]:
    able = [n for n in registry.names("mixer") if registry.descriptor("mixer", n).reader is not None]
    return st.lists(st.sampled_from(able), min_size=2, max_size=3, unique=True)


def _values(annotation: Any, metadata: list[Any], default: Any) -> st.SearchStrategy[Any]:
    """Values of one field; its default where its kind is not known."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        options = [_values(a, metadata, None) for a in get_args(annotation) if a is not NoneType]
        return st.one_of(st.none(), *options) if NoneType in get_args(annotation) else st.one_of(*options)
    if origin is Literal:
        return st.sampled_from(get_args(annotation))
    if origin is not None and hasattr(annotation, "__metadata__"):
        inner, *more = get_args(annotation)
        return _values(inner, [*metadata, *_flat(more)], default)
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        return st.sampled_from([n for n in SMALL if _within(n, metadata)] or [default])
    if annotation is float:
        return st.sampled_from([x for x in (0.0, 0.25, 0.5, 1.0) if _within(x, metadata)] or [default])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = {
            name: _values(info.annotation, list(info.metadata), info.default)
            for name, info in annotation.model_fields.items()
        }
        return st.fixed_dictionaries({}, optional=fields)
    return st.just(default)


def _flat(metadata: list[Any]) -> list[Any]:
    return [m for item in metadata for m in (item.metadata if hasattr(item, "metadata") else [item])]


def _within(value: float, metadata: list[Any]) -> bool:
    return all(
        (not isinstance(m, Ge) or value >= m.ge)  # type: ignore[operator]
        and (not isinstance(m, Gt) or value > m.gt)  # type: ignore[operator]
        and (not isinstance(m, Le) or value <= m.le)  # type: ignore[operator]
        and (not isinstance(m, Lt) or value < m.lt)  # type: ignore[operator]
        for m in metadata
    )


@st.composite
def genomes(
    draw: st.DrawFn,
    registry: Registry,
    *,
    mixer: str | None = None,
    router: tuple[str, str] | None = None,
    depth: str | None = None,
) -> Architecture:
    """A legal genome that holds the named mixer, router (at a site kind) or depth policy among drawn parts."""
    where = None if router is None else router[1]
    stages = []
    for index in range(draw(st.integers(1, 2))):
        first = index == 0
        policy = depth if first and depth else draw(st.sampled_from(registry.names("depth")))
        repeats = draw(st.integers(2 if first and where == "halt" else 1, 3))
        blocks = [
            _block(draw, registry, mixer if first and not b else None, router if first and not b else None)
            for b in range(draw(st.integers(1, 2)))
        ]
        stage: dict[str, Any] = {
            "blocks": blocks,
            "depth": {
                "name": policy,
                "repeats": repeats,
                "params": settings(draw, registry, "depth", policy),
            },
            "entry_norm": draw(st.booleans()),
        }
        if repeats > 1 and ((first and where == "halt") or draw(st.integers(0, 3)) == 0):
            stage["halt"] = _router(draw, registry, "halt", router)
        stages.append(stage)
    held = [
        s for stage in stages for b in stage["blocks"] for s in b["sublayers"] if "readers" in s["params"]
    ]
    data: dict[str, Any] = {
        "vocab": VOCAB, "d_model": D_MODEL, "stages": stages,
        "tie_embeddings": draw(st.booleans()), "final_norm": draw(st.booleans()),
    }  # fmt: skip
    if held:
        # All multi-mixers list the same readers; a mode router chooses among them.
        for sublayer in held:
            sublayer["params"]["readers"] = held[0]["params"]["readers"]
        data["mode_router"] = _router(draw, registry, "mode", router)
    try:
        genome = registry.canonical(parse(Architecture, data, "drawn genome"))
        legality.check(genome, registry)
    except ConfigError:
        assume(False)
    return genome


def _block(
    draw: st.DrawFn, registry: Registry, mixer: str | None, router: tuple[str, str] | None
) -> dict[str, Any]:
    names = [mixer] if mixer else []
    where = None if router is None else router[1]
    if where == "mode":
        names.append(_holder(registry))
    names += draw(st.lists(st.sampled_from(registry.names("mixer")), min_size=not names, max_size=1))
    arrangements = ["sequential", "parallel", "parallel_mean"] if len(names) > 1 else ["sequential"]
    block: dict[str, Any] = {
        "sublayers": [{"mixer": n, "params": settings(draw, registry, "mixer", n)} for n in names],
        "arrangement": draw(st.sampled_from(arrangements)),
        "norm": draw(st.sampled_from(["none", "pre", "sandwich"])),
        "output_scale": draw(st.sampled_from([None, {"raw": 0.5}])),
    }
    if where == "gate" or draw(st.integers(0, 3)) == 0:
        block["gate"] = _router(draw, registry, "gate", router)
    return block


def _holder(registry: Registry) -> str:
    """A mixer that holds several readers."""
    return next(
        n for n in registry.names("mixer") if "readers" in registry.descriptor("mixer", n).config.model_fields
    )


def _router(draw: st.DrawFn, registry: Registry, kind: str, wanted: tuple[str, str] | None) -> dict[str, Any]:
    if wanted is not None and wanted[1] == kind:
        name = wanted[0]
    else:
        able = [n for n in registry.names("router") if _serves(registry, n, kind)]
        name = draw(st.sampled_from(able))
    return {"name": name, "params": settings(draw, registry, "router", name)}


def _serves(registry: Registry, name: str, kind: str) -> bool:
    able = registry.descriptor("router", name).capabilities
    # A fitted router keeps a whole model from being trained; it has its own turn.
    return kind in able.sites and not able.fitted
