"""Parts of a proposal, drawn: routers, depth policies and mixers with their settings and starting sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crossbreed.core.contracts.space import Choices, Draw, Floats, Integers, Range, SearchSpace, Setting
from crossbreed.core.genome import DepthPolicy, Params, Router, Sublayer
from crossbreed.search_spaces.menu import holds_readers, options, reaches, segments, sizes, usual

NONE = "none"
HEAD_WIDTH = 32
"""Model width per head of starting points: few and wide heads, since recall needs wide keys and budgets narrow them."""
CONVOLUTION = {"width": 4}
"""Given to every sequence mixer that has none by default, so that no family wins by owning the only convolution."""
SITES = ("gate", "mode", "halt")


@dataclass(frozen=True)
class Pen:
    """Draws the parts of one proposal under one setting; names of draws are sites and plugins."""

    draw: Draw
    setting: Setting

    def router(self, site: str, names: Sequence[str]) -> Router | None:
        """One of ``names`` with its settings; None for ``NONE``. Draws ``site`` and ``site.name.param``."""
        name = self.draw.choose(site, names)
        if name == NONE:
            return None
        params = {
            param: drawn(self.draw, f"{site}.{name}.{param}", legal)
            for param, legal in _router_ranges(self.setting, site, name).items()
        }
        return Router(name=name, params=params)

    def depth(self, names: Sequence[str], least: int, most: int) -> tuple[DepthPolicy, bool]:
        """A policy with its settings, and whether repeats share weights: then ``least`` to ``most`` of them."""
        name = self.draw.choose("depth", names)
        descriptor = self.setting.parts.descriptor("depth", name)
        params = {p: drawn(self.draw, f"depth.{name}.{p}", legal) for p, legal in descriptor.ranges.items()}
        if not descriptor.shares_weights:
            return DepthPolicy(name=name, params=params), False
        repeats = self.draw.integer(f"depth.{name}.repeats", least, most)
        return DepthPolicy(name=name, repeats=repeats, params=params), True

    def readers(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """A pair of readers for a multi-mixer. Draws ``readers``."""
        return str(self.draw.choose("readers", ["|".join(p) for p in pairs])).split("|")

    def sequence(self, mixer: str, weights: float, readers: Sequence[str] = ()) -> Sublayer:
        """A mixer over tokens or depths with drawn settings, a short convolution, ``readers`` where it holds some, and
        about ``weights`` parameters."""
        parts = self.setting.parts
        params = self.settings(mixer)
        fields = parts.descriptor("mixer", mixer).config.model_fields
        if "short_conv" in fields and fields["short_conv"].default is None:
            params["short_conv"] = dict(CONVOLUTION)
        if holds_readers(parts, mixer):
            params["readers"] = list(readers)
        params |= sizes(parts, mixer, params, self.setting.d_model, weights, weights)
        return Sublayer(mixer=mixer, params=params)

    def channel(self, mixer: str, active: float, stored: float) -> Sublayer:
        """A channel mixer of which a token uses ``active`` of ``stored`` parameters, about."""
        params = self.settings(mixer)
        params |= sizes(self.setting.parts, mixer, params, self.setting.d_model, active, stored)
        return Sublayer(mixer=mixer, params=params)

    def settings(self, mixer: str) -> Params:
        """A mixer's settings, as drawn from all its ranges but those of dimensions that a budget moves."""
        descriptor = self.setting.parts.descriptor("mixer", mixer)
        found: Params = {}
        for param, legal in descriptor.ranges.items():
            if param in descriptor.free:
                continue
            if param == "window" and not isinstance(legal, Floats):
                legal = Choices(tuple(reaches(options(legal), self.setting.length)))
            if not isinstance(legal, Choices) or legal.values:
                found[param] = drawn(self.draw, f"{mixer}.{param}", legal)
        return found


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


def completed(space: SearchSpace, point: Mapping[str, Any], setting: Setting, repeats: int) -> dict[str, Any]:
    """A point with every further draw that it leads to, at the plugins' own defaults where a range holds them.

    ``repeats``: of policies that share weights.
    """
    parts, preferred = setting.parts, dict(point)
    for kind, name, prefix in (
        *[("mixer", m, m) for m in setting.mixers],
        *[("depth", d, f"depth.{d}") for d in setting.depth],
        *[("router", r, f"{site}.{r}") for r in setting.routers for site in SITES],
    ):
        if kind == "mixer":
            preferred.setdefault(f"{prefix}.heads", max(1, setting.d_model // HEAD_WIDTH))
        if kind == "depth":
            preferred.setdefault(f"{prefix}.repeats", repeats)
        ranges = parts.descriptor(kind, name).ranges  # type: ignore[arg-type]
        for param, value in usual(parts, kind, name, ranges).items():
            preferred.setdefault(f"{prefix}.{param}", value)
    draw = FirstChoice(preferred)
    space.propose(draw, setting)
    return draw.drawn


def drawn(draw: Draw, name: str, legal: Range) -> Any:
    """A value of a range."""
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
