"""What AMOR is compared to (amor.md, sections 5 and 9), at its sizes and, through the SwiGLU's width, its parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, Block, Router, Stage, Sublayer
from crossbreed.presets.amor import BACKBONES, RATE, SCALES, TITLES, AmorSizes, Backbone, amor, stack
from crossbreed.presets.parts import attention, layer, matrix_weights, swiglu
from crossbreed.presets.preset import Preset

BLOCKS = 3
"""K of the AMOR that a rival is matched to."""
SEGMENT = 16
"""Tokens in a segment of the segment-random gate."""

RANDOM = Router(name="segment_random", params={"segment": 1, "probability": RATE})
SEGMENT_RANDOM = Router(name="segment_random", params={"segment": SEGMENT, "probability": RATE})
LEARNED = Router(name="learned", params={"target_rate": RATE, "loss_weight": 0.1})
"""Gates at AMOR's rate: drawn for each token, drawn for each segment, and linear with the loss of section 10, point 20."""
ORACLE = Router(name="oracle")
"""The gate that knows which positions are scored; its rate is the task's."""


def transformer(sizes: AmorSizes, like: Backbone = "gdn") -> Architecture:
    """Attention in every layer; parameters of AMOR over ``like``."""
    return _model(sizes, like, [(_attention(sizes),)] * sizes.layers)


def recurrent(sizes: AmorSizes, backbone: Backbone) -> Architecture:
    """The backbone alone, as many parameters as with AMOR's blocks."""
    return _model(sizes, backbone, [(BACKBONES[backbone](sizes),)] * sizes.layers)


def serial(
    sizes: AmorSizes,
    backbone: Backbone,
    every: int | None = None,
    places: Sequence[int] | None = None,
) -> Architecture:
    """Attention replaces the recurrence in every ``every``-th layer, or at ``places`` (from 0).

    By default in as many layers as AMOR has blocks, evenly spread: equal keys and values (section 10, point 12).
    """
    chosen = attention_places(sizes.layers, every, places)
    one, other = (_attention(sizes),), (BACKBONES[backbone](sizes),)
    return _model(sizes, backbone, [one if i in chosen else other for i in range(sizes.layers)])


def fused(
    sizes: AmorSizes,
    backbone: Backbone,
    every: int | None = None,
    places: Sequence[int] | None = None,
) -> Architecture:
    """Attention beside the recurrence in the layers that ``serial`` would replace; normalised outputs are averaged.

    The sources do not define the fused hybrid; this is section 10, point 13.
    """
    chosen = attention_places(sizes.layers, every, places)
    recurrence = BACKBONES[backbone](sizes)
    both = (_attention(sizes), recurrence)
    return _model(sizes, backbone, [both if i in chosen else (recurrence,) for i in range(sizes.layers)])


def always_on(sizes: AmorSizes, backbone: Backbone) -> Architecture:
    """AMOR's blocks after the backbone, without gates: every token attends."""
    return amor(sizes, backbone, BLOCKS, gate=None)


def gated(sizes: AmorSizes, backbone: Backbone, gate: Router) -> Architecture:
    """AMOR with another gate."""
    return amor(sizes, backbone, BLOCKS, gate=gate)


def attention_places(
    layers: int, every: int | None = None, places: Sequence[int] | None = None
) -> frozenset[int]:
    """Layers (from 0) that hold attention: the last of every ``every``, or ``places``, or ``BLOCKS`` evenly spread."""
    if every is not None and places is not None:
        raise ConfigError("give every or places, not both.")
    if every is not None:
        places = range(every - 1, layers, every)
    if places is None:
        count = min(BLOCKS, layers)
        places = [(i + 1) * layers // count - 1 for i in range(count)]
    outside = [p for p in places if not 0 <= p < layers]
    if outside or not places:
        raise ConfigError(f"attention must stand in layers 0 to {layers - 1}, got {list(places)}.")
    return frozenset(places)


def _attention(sizes: AmorSizes) -> Sublayer:
    return attention(sizes.d_model, sizes.head_size)


def _model(sizes: AmorSizes, backbone: Backbone, layers: Sequence[tuple[Sublayer, ...]]) -> Architecture:
    """A model of the given sequence mixers. The SwiGLU width spends AMOR's weights that the mixers leave."""
    D, own = sizes.d_model, BACKBONES[backbone](sizes)
    amor_mixers = sizes.layers * matrix_weights(own, D) + BLOCKS * matrix_weights(_attention(sizes), D)
    mixers = sum(matrix_weights(mixer, D) for mixers in layers for mixer in mixers)
    hidden = sizes.hidden + round((amor_mixers - mixers) / (3 * D * sizes.layers))
    if len(set(map(str, layers))) == 1:
        stage = stack(_layer(layers[0], hidden)[0], sizes.layers)
    else:
        stage = Stage(blocks=tuple(block for mixers in layers for block in _layer(mixers, hidden)))
    return Architecture(vocab=sizes.vocab, d_model=D, stages=(stage,))


def _layer(mixers: tuple[Sublayer, ...], hidden: int) -> list[Block]:
    if len(mixers) == 1:
        return [layer(mixers[0], swiglu(hidden))]
    return [Block(sublayers=mixers, arrangement="parallel_mean"), Block(sublayers=(swiglu(hidden),))]


OF_BACKBONE: dict[str, tuple[str, Callable[[AmorSizes, Backbone], Architecture]]] = {
    "serial": ("attention in place of {} in 3 layers", serial),
    "fused": ("attention beside {} in 3 layers, normalised outputs averaged", fused),
    "always": ("{}, then 3 attention blocks without gates", always_on),
    "random": ("AMOR over {} with gates drawn for each token", partial(gated, gate=RANDOM)),
    "segment-random": ("AMOR over {} with gates drawn for each segment", partial(gated, gate=SEGMENT_RANDOM)),
    "learned": ("AMOR over {} with learned gates held at its rate", partial(gated, gate=LEARNED)),
    "oracle": ("AMOR over {} with gates that know the scored positions", partial(gated, gate=ORACLE)),
}
"""Name -> (summary, builder) of the rivals that exist for each backbone."""


def presets() -> Iterator[Preset]:
    """Every rival at every scale of AMOR."""
    family = "amor rivals"
    for scale, sizes in SCALES.items():
        summary = "attention and SwiGLU in every layer"
        yield Preset(f"transformer-{scale}", family, summary, partial(transformer, sizes))
        for backbone, title in TITLES.items():
            summary = f"{title} and SwiGLU in every layer"
            yield Preset(f"{backbone}-{scale}", family, summary, partial(recurrent, sizes, backbone))
            for name, (what, build) in OF_BACKBONE.items():
                made = partial(build, sizes, backbone)
                yield Preset(f"{name}-{backbone}-{scale}", family, what.format(title), made)
            # The common ratio of 3 to 1 is the same model where a quarter of the layers is as many as AMOR's blocks.
            if attention_places(sizes.layers, every=4) != attention_places(sizes.layers):
                summary = f"attention in place of {title} in every 4th layer"
                made = partial(serial, sizes, backbone, every=4)
                yield Preset(f"serial-3to1-{backbone}-{scale}", family, summary, made)
