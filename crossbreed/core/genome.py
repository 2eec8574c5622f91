"""The genome: one frozen description of an architecture, in YAML or JSON, with one canonical hash.

A model is stages of blocks of sublayers. Sublayers are mixers along an axis; routers stand at three sites
(a block's ``gate``, a stage's ``halt``, the architecture's ``mode_router``). Names refer to plugins; ``params``
are validated by the plugin's own config class when the genome is resolved by the host.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from crossbreed.core.errors import ConfigError, field_words, nearest, rule_words

Params = dict[str, Any]
M = TypeVar("M", bound=BaseModel)
NORM_EPS = 1e-6
"""Of RMS norms, unless the genome says otherwise."""
Eps = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


class Gene(BaseModel):
    """Base of all genome nodes: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Router(Gene):
    """A plugin router by name, with its settings. What it decides depends on the site it stands at."""

    name: str
    params: Params = Field(default_factory=dict)


class Sublayer(Gene):
    """One mixer by name, with its settings."""

    mixer: str
    params: Params = Field(default_factory=dict)


class OutputScale(Gene):
    """A learned per-channel scale on a block's output: ``sigmoid(max(raw, floor))`` (AMOR section 2).

    ``raw`` is the initial value of every channel; channels below ``floor`` receive no gradient.
    """

    kind: Literal["sigmoid_per_channel"] = "sigmoid_per_channel"
    raw: float = Field(default=0.0, allow_inf_nan=False)
    floor: float = Field(default=-1.0, allow_inf_nan=False)


class Block(Gene):
    """Sublayers around the residual stream, run together or skipped together by ``gate``.

    ``sequential``: each sublayer reads the stream after the one before it. ``parallel``: all read the same stream and
    their outputs are added. ``parallel_mean``: as parallel, each output RMS-normalised, then averaged.
    ``norm``: ``pre`` normalises each sublayer's input, ``sandwich`` its output too, ``none`` neither.
    ``output_init``: how the matrices that write into the stream start (``depth_scaled``: divided by
    the square root of the number of times the model writes into its stream). ``norm_eps``: added to the mean square by
    the block's own norms.
    """

    sublayers: tuple[Sublayer, ...] = Field(min_length=1)
    arrangement: Literal["sequential", "parallel", "parallel_mean"] = "sequential"
    norm: Literal["none", "pre", "sandwich"] = "pre"
    output_scale: OutputScale | None = None
    output_init: Literal["normal", "zero", "depth_scaled"] = "normal"
    gate: Router | None = None
    norm_eps: Eps = NORM_EPS

    @model_validator(mode="after")
    def _means_need_parts(self) -> Block:
        if self.arrangement == "parallel_mean" and len(self.sublayers) < 2:
            raise ValueError("arrangement 'parallel_mean' averages outputs and needs at least 2 sublayers")
        return self


class DepthPolicy(Gene):
    """How often a stage's blocks run and whether the repeats share weights."""

    name: str = "layered"
    repeats: int = Field(default=1, ge=1)
    params: Params = Field(default_factory=dict)


class Stage(Gene):
    """Blocks that a depth policy repeats. ``entry_norm`` puts the normalised stream in place of the stream on entry
    (``norm_eps`` is its epsilon)."""

    blocks: tuple[Block, ...] = Field(min_length=1)
    depth: DepthPolicy = DepthPolicy()
    entry_norm: bool = False
    norm_eps: Eps = NORM_EPS
    halt: Router | None = None

    @model_validator(mode="after")
    def _halting_needs_depth(self) -> Stage:
        if self.halt is not None and self.depth.repeats < 2:
            raise ValueError(
                f"halt router {self.halt.name!r} needs depth.repeats >= 2, got {self.depth.repeats}"
            )
        return self


class Architecture(Gene):
    """A whole language model. ``vocab`` and the sequence length come from the task. ``norm_eps``: of the final norm."""

    vocab: int = Field(ge=2)
    d_model: int = Field(ge=1)
    tie_embeddings: bool = True
    final_norm: bool = True
    norm_eps: Eps = NORM_EPS
    stages: tuple[Stage, ...] = Field(min_length=1)
    mode_router: Router | None = None

    @model_validator(mode="before")
    @classmethod
    def _inline_named_blocks(cls, data: Any) -> Any:
        """Expand ``named_blocks`` and patterns such as ``["ssm * 3", "attn"]``; names never reach the genome."""
        if not isinstance(data, Mapping) or "named_blocks" not in data:
            return data
        data = dict(data)
        named = data.pop("named_blocks")
        stages = []
        for stage in data.get("stages", ()):
            if isinstance(stage, Mapping) and "blocks" in stage:
                stage = {**stage, "blocks": [b for item in stage["blocks"] for b in _expand(item, named)]}
            stages.append(stage)
        data["stages"] = stages
        return data

    @field_validator("stages")
    @classmethod
    def _modes_agree(cls, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        check_readers(stages)
        return stages

    def sublayers(self) -> list[tuple[tuple[int, int, int], Sublayer]]:
        """All sublayers with their (stage, block, sublayer) index, in order."""
        return [
            ((s, b, i), sub)
            for s, stage in enumerate(self.stages)
            for b, block in enumerate(stage.blocks)
            for i, sub in enumerate(block.sublayers)
        ]

    def routers(self) -> dict[str, Router]:
        """All routers by their sites: ``mode``, ``stage.halt`` and ``stage.block.gate``."""
        found = {} if self.mode_router is None else {"mode": self.mode_router}
        for s, stage in enumerate(self.stages):
            if stage.halt is not None:
                found[f"{s}.halt"] = stage.halt
            found |= {f"{s}.{b}.gate": block.gate for b, block in enumerate(stage.blocks) if block.gate}
        return found

    def with_routers(self, routers: Mapping[str, Router]) -> Architecture:
        """A copy with other routers at some sites, by the names of ``routers()``."""
        stages = []
        for s, stage in enumerate(self.stages):
            blocks = tuple(
                block.model_copy(update={"gate": routers.get(f"{s}.{b}.gate", block.gate)})
                for b, block in enumerate(stage.blocks)
            )
            halt = routers.get(f"{s}.halt", stage.halt)
            stages.append(stage.model_copy(update={"blocks": blocks, "halt": halt}))
        mode = routers.get("mode", self.mode_router)
        return self.model_copy(update={"stages": tuple(stages), "mode_router": mode})

    def with_params(self, index: tuple[int, int, int], **changes: Any) -> Architecture:
        """A copy with some params of one sublayer changed; used by matchers and ablations."""
        s, b, i = index
        stage, block = self.stages[s], self.stages[s].blocks[b]
        sub = block.sublayers[i]
        sub = sub.model_copy(update={"params": {**sub.params, **changes}})
        block = block.model_copy(update={"sublayers": (*block.sublayers[:i], sub, *block.sublayers[i + 1 :])})
        stage = stage.model_copy(update={"blocks": (*stage.blocks[:b], block, *stage.blocks[b + 1 :])})
        return self.model_copy(update={"stages": (*self.stages[:s], stage, *self.stages[s + 1 :])})


def check_readers(stages: tuple[Stage, ...]) -> None:
    """Raise ConfigError unless all multi-mixers list the same readers in the same order, as far as they are written."""
    lists = {
        tuple(_reader_name(r) for r in sub.params.get("readers", ()))
        for stage in stages
        for block in stage.blocks
        for sub in block.sublayers
        if sub.params.get("readers")
    }
    if len(lists) > 1:
        shown = "; ".join(", ".join(names) for names in sorted(lists))
        raise ConfigError(f"all multi-mixers must list the same readers in the same order, got {shown}")


def reader_names(stages: tuple[Stage, ...]) -> list[str]:
    """Names of the readers that a mode router chooses from, in the order of their modes; [] where nothing lists two."""
    for stage in stages:
        for block in stage.blocks:
            for sub in block.sublayers:
                readers = sub.params.get("readers") or ()
                if len(readers) > 1:
                    return [_reader_name(r) for r in readers]
    return []


def _reader_name(reader: Any) -> str:
    return reader if isinstance(reader, str) else str(reader.get("name"))


def _expand(item: Any, named: Mapping[str, Any]) -> list[Any]:
    if not isinstance(item, str):
        return [item]
    match = re.fullmatch(r"\s*(\S+?)\s*(?:\*\s*(\d+))?\s*", item)
    name, count = (match[1], int(match[2] or 1)) if match else (item, 1)
    if name not in named:
        raise ValueError(f"unknown named block {name!r}{nearest(name, named)}")
    return [named[name]] * count


def digest(part: Architecture | Sublayer) -> str:
    """SHA-256 (hex) of the sorted JSON of an architecture, or of a part of one. Call it on the canonical form."""
    text = json.dumps(part.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def to_yaml(model: BaseModel) -> str:
    """YAML text of a genome (or any config model), without defaults that add nothing."""
    data = model.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def from_yaml(text: str, where: str = "genome") -> Architecture:
    """Parse a genome from YAML or JSON text. Raises ConfigError naming the field and the rule."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not valid YAML: {str(error).splitlines()[0]}") from error
    return parse(Architecture, data, where)


_SHOULD = "must be "
_UNION_MEMBER = re.compile(r"(constrained-)?(int|float|str|bool)|(literal|tuple|list|dict|function-\w+)\[.*")
"""What pydantic calls the members of a union in the place of an error, where only fields have a name for users."""


def parse(cls: type[M], data: Any, where: str) -> M:
    """Validate ``data`` as ``cls``; on failure raise one ConfigError sentence per broken field.

    Unknown keys name the nearest right one.
    """
    if isinstance(data, cls):
        return data
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_sentences(cls, where, error.errors()))) from error


def _sentences(cls: type[BaseModel], where: str, items: list[Any]) -> list[str]:
    """One sentence per broken field; a required key that an unknown one resembles is that key misspelt, said once.

    A list whose items are wrong is not called too short as well.
    """
    items = _without_members([{**item, "msg": rule_words(item["msg"])} for item in items])
    unknown = [item for item in items if item["type"] == "extra_forbidden"]
    others = [
        item
        for item in items
        if item["type"] != "extra_forbidden"
        and not (item["type"] == "missing" and any(_resembles(u["loc"], item["loc"]) for u in unknown))
        and not (item["type"] == "too_short" and any(_inside(o["loc"], item["loc"]) for o in items))
    ]
    return [_sentence(cls, where, item) for item in (*unknown, *others)]


def _without_members(items: list[Any]) -> list[Any]:
    """Errors of a union's members as one: all that would have fitted, or what is wrong deeper inside one of them."""
    at: dict[tuple[Any, ...], list[Any]] = {}
    for item in items:
        path = tuple(step for step in item["loc"] if not _UNION_MEMBER.fullmatch(str(step)))
        at.setdefault(path, []).append(item)
    found = []
    for path, group in at.items():
        if any(item["loc"] != path for item in group) and any(_inside(other, path) for other in at):
            continue
        if len(group) == 1 or not all(item["msg"].startswith(_SHOULD) for item in group):
            found += [{**item, "loc": path} for item in group]
        else:
            fitting = dict.fromkeys(item["msg"].removeprefix(_SHOULD) for item in group)
            found.append({**group[0], "loc": path, "msg": _SHOULD + " or ".join(fitting)})
    return found


def _inside(deeper: tuple[Any, ...], path: tuple[Any, ...]) -> bool:
    return len(deeper) > len(path) and deeper[: len(path)] == path


def _resembles(found: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    return found[:-1] == wanted[:-1] and bool(nearest(str(found[-1]), {str(wanted[-1])}))


def _sentence(cls: type[BaseModel], where: str, item: Any) -> str:
    path = ".".join(str(p) for p in item["loc"])
    if item["type"] == "extra_forbidden":
        known = _fields_at(cls, item["loc"][:-1])
        hint = nearest(str(item["loc"][-1]), known) or (
            f"; known: {', '.join(sorted(known))}" if known else ""
        )
        return f"{where}: unknown key {path!r}{hint}{'' if hint.endswith('?') else '.'}"
    value = item.get("input")
    shown = (
        f", got {value!r}"
        if item["type"] != "missing" and not isinstance(value, dict | list | BaseModel)
        else ""
    )
    message = item["msg"]
    if message.endswith(shown.removeprefix(", ")) or (isinstance(value, str) and repr(value) in message):
        shown = ""
    return f"{where}: {field_words(path, message)}{shown}."


def _fields_at(cls: Any, path: tuple[Any, ...]) -> set[str]:
    """Field names of the model that ``path`` leads to, following annotations as far as they go."""
    for step in path:
        if isinstance(step, int):
            continue
        field = getattr(cls, "model_fields", {}).get(step)
        if field is None:
            continue
        cls = _model_in(field.annotation)
    return set(getattr(cls, "model_fields", {}))


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for arg in getattr(annotation, "__args__", ()):
        found = _model_in(arg)
        if found is not None:
            return found
    return None
