"""Layer hybrids: which sequence mixer stands in which layer, what is gated, who reads, and how depth is spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from crossbreed.core.contracts.space import Choices, Draw, Floats, Integers, Range, SearchSpace, Setting
from crossbreed.core.genome import Architecture, Block, DepthPolicy, Params, Router, Stage, Sublayer
from crossbreed.search_spaces.menu import Menu, holds_readers, menu, options, reaches, segments, sizes, usual

NONE = "none"
PLAIN_CHANNEL = "swiglu"
"""The channel mixer that family labels leave unsaid."""
HEAD_WIDTH = 32
"""Model width per head of starting points: few and wide heads, since recall needs wide keys and budgets narrow them."""
CONVOLUTION = {"width": 4}
"""Given to every sequence mixer that has none by default, so that no family wins by owning the only convolution."""


class LayerHybrids(SearchSpace):
    """One stage of layers, each a sequence mixer and a channel mixer.

    A depth policy that shares weights repeats a single layer; any other has ``config.layers`` of them. Attention-like
    layers may be gated (the sequence mixer alone, as in AMOR); multi-mixers share readers and a mode router.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        # Axes of the mixers that a setting allowed, for labels: a genome alone does not say what its mixers mix.
        self._axes: dict[str, str] = {}

    def propose(self, draw: Draw, setting: Setting) -> Architecture:
        """See ``SearchSpace.propose``. Draws: ``depth``, ``channel``, ``layer0.sequence`` ..., ``gate``, ``mode``,
        ``readers``, and the plugins' own ranges under their site and name."""
        allowed = self._menu(setting)
        depth, layers = self._depth(draw, setting, allowed)
        target = self._target(setting.d_model, layers, depth.repeats)
        mixers = [draw.choose(f"layer{i}.sequence", allowed.sequence) for i in range(layers)]
        channel = draw.choose("channel", allowed.channel) if allowed.channel else None
        multi = any(m in allowed.multi for m in mixers)
        readers = draw.choose("readers", ["|".join(p) for p in allowed.pairs]).split("|") if multi else []
        mode = self._router(draw, setting, "mode", allowed.modes) if multi else None
        gate = None
        if allowed.gates and any(m in allowed.growing for m in mixers):
            gate = self._router(draw, setting, "gate", (NONE, *allowed.gates))
        heads = {m: self._sequence(draw, setting, m, target, readers) for m in dict.fromkeys(mixers)}
        tail = () if channel is None else (self._channel(draw, setting, channel, target),)
        blocks: list[Block] = []
        for mixer in mixers:
            head = heads[mixer]
            if gate is not None and mixer in allowed.growing:
                blocks.append(Block(sublayers=(head,), gate=gate))
                blocks += [Block(sublayers=tail)] if tail else []
            else:
                blocks.append(Block(sublayers=(head, *tail)))
        return Architecture(
            vocab=setting.vocab,
            d_model=setting.d_model,
            stages=(Stage(blocks=tuple(blocks), depth=depth),),
            mode_router=mode,
        )

    def starting_points(self, setting: Setting) -> list[dict[str, Any]]:
        """One point for every sequence mixer, router at gate and at mode, channel mixer and depth policy."""
        allowed = self._menu(setting)
        layers, found = self.config.layers, []
        own = [p for p in allowed.depth if not _shares(setting, p)]
        shared = [p for p in allowed.depth if _shares(setting, p)]

        def layered(*cycle: str, **more: str) -> dict[str, Any]:
            pattern = {f"layer{i}.sequence": cycle[i % len(cycle)] for i in range(layers)}
            return {**({"depth": own[0]} if own else {}), **pattern, **more}

        hybrids = [
            (constant, growing) if layers > 1 else (growing,)
            for growing in allowed.growing
            for constant in allowed.constant or (growing,)
        ]
        found += [layered(m) for m in allowed.constant]
        found += [layered(*hybrid) for hybrid in hybrids[:1]]
        found += [layered(*hybrids[i % len(hybrids)], gate=g) for i, g in enumerate(allowed.gates) if hybrids]
        for i, mode in enumerate(allowed.modes if allowed.multi else ()):
            pair = allowed.pairs[i % len(allowed.pairs)]
            found.append(layered(allowed.multi[i % len(allowed.multi)], mode=mode, readers="|".join(pair)))
        found += [layered(m) for m in allowed.multi[len(allowed.modes) :]]
        found += [layered(allowed.sequence[0], channel=c) for c in allowed.dense[1:]]
        singles = (*allowed.growing[:1], *allowed.constant[:1])
        for policy in shared:
            found += [
                {"depth": policy, "layer0.sequence": m, "channel": c} for c in allowed.sparse for m in singles
            ]
        # Weights shared over depth without experts: met by no budget on both FLOPs and parameters, and shown as such.
        for policy in shared[:1]:
            found += [
                {"depth": policy, "layer0.sequence": m, "channel": c}
                for c in allowed.dense[:1]
                for m in singles[:1]
            ]
        found += [layered(m) for m in allowed.growing]
        return [self._complete(point, setting) for point in found]

    def family(self, architecture: Architecture) -> str:
        """Depth policy unless every layer has its own weights once, sequence mixers in order of appearance, channel
        mixers unless plain, and the routers: ``"mamba2+attention/gate:learned"``, ``"recurrent attention experts"``."""
        sequence: dict[str, None] = {}
        channel: dict[str, None] = {}
        gates: dict[str, None] = {}
        depth: dict[str, None] = {}
        for stage in architecture.stages:
            if stage.depth.repeats > 1:
                depth[stage.depth.name] = None
            for block in stage.blocks:
                if block.gate is not None:
                    gates[block.gate.name] = None
                # A block's last sublayer is its channel mixer; a block of one is whatever its neighbours are not.
                for sub in block.sublayers:
                    (sequence if self._mixes_tokens(sub, block) else channel)[_label(sub)] = None
        text = " ".join([*depth, "+".join(sequence), *[c for c in channel if c != PLAIN_CHANNEL]])
        if architecture.mode_router is not None:
            text += f"/{architecture.mode_router.name}"
        return text + "".join(f"/gate:{g}" for g in gates)

    def _mixes_tokens(self, sublayer: Sublayer, block: Block) -> bool:
        """Whether a sublayer is a sequence mixer: by its axis where a setting told it, else by its place."""
        axis = self._axes.get(sublayer.mixer)
        if axis is None:
            return len(block.sublayers) == 1 or sublayer is not block.sublayers[-1]
        return axis != "channel"

    def _menu(self, setting: Setting) -> Menu:
        for name in setting.mixers:
            self._axes[name] = setting.parts.descriptor("mixer", name).capabilities.axis
        return menu(setting)

    def _depth(self, draw: Draw, setting: Setting, allowed: Menu) -> tuple[DepthPolicy, int]:
        """The policy with its settings, and how many layers the stage holds."""
        name = draw.choose("depth", allowed.depth)
        descriptor = setting.parts.descriptor("depth", name)
        params = {p: _draw(draw, f"depth.{name}.{p}", legal) for p, legal in descriptor.ranges.items()}
        if not descriptor.shares_weights:
            return DepthPolicy(name=name, params=params), self.config.layers
        repeats = draw.integer(f"depth.{name}.repeats", 2, max(2, 2 * self.config.layers))
        return DepthPolicy(name=name, repeats=repeats, params=params), 1

    def _router(self, draw: Draw, setting: Setting, site: str, names: Sequence[str]) -> Router | None:
        name = draw.choose(site, names)
        if name == NONE:
            return None
        params = {
            param: _draw(draw, f"{site}.{name}.{param}", legal)
            for param, legal in _router_ranges(setting, site, name).items()
        }
        return Router(name=name, params=params)

    def _target(self, d_model: int, layers: int, repeats: int) -> Target:
        """Parameters to start from. ``config.layers`` Transformer layers of 4 D^2 and 8 D^2 are spread over the layers:
        a token uses them once, however often a layer runs, and what one run cannot use is stored."""
        share = self.config.layers / (layers * repeats)
        whole = 12 * d_model**2 * self.config.layers / layers
        sequence = 4 * d_model**2 * min(1.0, share)
        return Target(sequence, 8 * d_model**2 * share, whole - sequence)

    def _sequence(
        self, draw: Draw, setting: Setting, mixer: str, target: Target, readers: list[str]
    ) -> Sublayer:
        """A sequence mixer with drawn settings, starting sizes, a short convolution and its readers."""
        parts = setting.parts
        params = self._drawn(draw, setting, mixer)
        fields = parts.descriptor("mixer", mixer).config.model_fields
        if "short_conv" in fields and fields["short_conv"].default is None:
            params["short_conv"] = dict(CONVOLUTION)
        if holds_readers(parts, mixer):
            params["readers"] = list(readers)
        params |= sizes(parts, mixer, params, setting.d_model, target.sequence, target.sequence)
        return Sublayer(mixer=mixer, params=params)

    def _channel(self, draw: Draw, setting: Setting, mixer: str, target: Target) -> Sublayer:
        params = self._drawn(draw, setting, mixer)
        params |= sizes(
            setting.parts, mixer, params, setting.d_model, target.channel_active, target.channel_stored
        )
        return Sublayer(mixer=mixer, params=params)

    def _drawn(self, draw: Draw, setting: Setting, mixer: str) -> Params:
        """A mixer's settings, as drawn from all its ranges but those of dimensions that a budget moves."""
        descriptor = setting.parts.descriptor("mixer", mixer)
        found: Params = {}
        for param, legal in descriptor.ranges.items():
            if param in descriptor.free:
                continue
            if param == "window" and not isinstance(legal, Floats):
                legal = Choices(tuple(reaches(options(legal), setting.length)))
            if not isinstance(legal, Choices) or legal.values:
                found[param] = _draw(draw, f"{mixer}.{param}", legal)
        return found

    def _complete(self, point: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
        """A point with every further draw that it leads to, at the plugins' own defaults where a range holds them."""
        parts, preferred = setting.parts, dict(point)
        for kind, name, prefix in (
            *[("mixer", m, m) for m in setting.mixers],
            *[("depth", d, f"depth.{d}") for d in setting.depth],
            *[("router", r, f"{site}.{r}") for r in setting.routers for site in ("gate", "mode")],
        ):
            if kind == "mixer":
                preferred.setdefault(f"{prefix}.heads", max(1, setting.d_model // HEAD_WIDTH))
            if kind == "depth":
                preferred.setdefault(f"{prefix}.repeats", max(2, self.config.layers))
            ranges = parts.descriptor(kind, name).ranges  # type: ignore[arg-type]
            for param, value in usual(parts, kind, name, ranges).items():
                preferred.setdefault(f"{prefix}.{param}", value)
        draw = FirstChoice(preferred)
        self.propose(draw, setting)
        return draw.drawn


class Target(NamedTuple):
    """Parameters that one run of a sequence mixer and of a channel mixer start from; stored: all of the channel mixer."""

    sequence: float
    channel_active: float
    channel_stored: float


class FirstChoice:
    """Answers from preferred values where they are legal, else with the first option; keeps what it answered."""

    def __init__(self, preferred: Mapping[str, Any]) -> None:
        self.preferred = preferred
        self.drawn: dict[str, Any] = {}

    def choose(self, name: str, options: Sequence[Any]) -> Any:
        wanted = self.preferred.get(name)
        return self._keep(name, wanted if wanted in options else options[0])

    def integer(self, name: str, low: int, high: int, step: int = 1) -> int:
        wanted = self.preferred.get(name)
        return int(self._keep(name, wanted if wanted in range(low, high + 1, step) else low))

    def number(self, name: str, low: float, high: float, log: bool = False) -> float:
        wanted = self.preferred.get(name, low)
        return float(self._keep(name, min(max(wanted, low), high)))

    def _keep(self, name: str, value: Any) -> Any:
        self.drawn[name] = value
        return value


def _draw(draw: Draw, name: str, legal: Range) -> Any:
    if isinstance(legal, Choices):
        return draw.choose(name, legal.values)
    if isinstance(legal, Integers):
        return draw.integer(name, legal.low, legal.high, legal.step)
    return draw.number(name, legal.low, legal.high, legal.log)


def _router_ranges(setting: Setting, site: str, name: str) -> dict[str, Range]:
    """A router's ranges, with segments that are too long for the task or too many for a feedback router left out."""
    descriptor = setting.parts.descriptor("router", name)
    ranges = dict(descriptor.ranges)
    legal = ranges.get("segment")
    if legal is not None and not isinstance(legal, Floats):
        feedback = site in descriptor.capabilities.feedback_sites
        kept = segments(options(legal), setting.length, feedback)
        ranges["segment"] = Choices(tuple(kept or options(legal)[:1]))
    return ranges


def _shares(setting: Setting, policy: str) -> bool:
    return bool(setting.parts.descriptor("depth", policy).shares_weights)


def _label(sublayer: Sublayer) -> str:
    readers = sublayer.params.get("readers") or ()
    names = [r if isinstance(r, str) else str(r["name"]) for r in readers]
    return f"{sublayer.mixer}({'|'.join(names)})" if names else sublayer.mixer
