"""Colours that people with any colour vision tell apart, on light and on dark (Okabe and Ito 2008), and marker shapes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

COLOURS = ("#0F85C9", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8A8F98")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon", "star")
"""Seven colours and eight shapes: 56 pairs before one comes again."""

NEUTRAL = "#8A8F98"
AXES = {"sequence": "#0F85C9", "depth": "#CC79A7", "channel": "#009E73", "unknown": NEUTRAL}
"""What a mixer mixes along -> its colour in drawings."""
ROUTER = "#E69F00"
INK = {"light": "#262730", "dark": "#FAFAFA"}
"""Theme -> colour of text on coloured cells: Plotly and Streamlit choose ones too pale."""
STANDINGS: dict[str, Literal["green", "blue", "gray"]] = {
    "running": "green",
    "complete": "blue",
    "idle": "gray",
}


def styles(families: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Family -> (colour, marker), in order of appearance, so that a family keeps its style while a study grows."""
    found = dict.fromkeys(families)
    return {f: (COLOURS[i % len(COLOURS)], SYMBOLS[i % len(SYMBOLS)]) for i, f in enumerate(found)}


def faded(colour: str, alpha: float) -> str:
    """A hex colour with an opacity."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"
