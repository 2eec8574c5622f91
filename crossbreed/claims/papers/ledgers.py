"""What the papers claim of counts and costs, from genomes and the ledger alone: nothing is trained."""

from __future__ import annotations

from collections.abc import Callable

from crossbreed.core.contracts.mixer import HeadShape
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.genome import Architecture, Router
from crossbreed.core.host import import_late
from crossbreed.core.ledger import Cost, Ledger, Shape
from crossbreed.presets import oryx, preset
from crossbreed.presets.amor import PUBLISHED_PARAMETERS, SCALES
from crossbreed.presets.oryx import published_active

MOST_TOKENS = 1 << 22
"""Up to which context a crossover is looked for."""


def ledger(parts: Parts, architecture: Architecture, tokens: int, rate: float | None = None) -> Ledger:
    """Analytic costs at one sequence of ``tokens`` in bf16; ``rate``: the share of tokens that every router runs."""
    cost = parts.factory("cost", "analytic")(parts.config("cost", "analytic", {}), parts)
    shape = Shape(tokens=tokens, dtype="bfloat16")
    canonical = parts.canonical(architecture)
    nominal: Ledger = cost.estimate(canonical, shape)
    if rate is None:
        return nominal
    found: Ledger = cost.estimate(canonical, shape, rates=dict.fromkeys(nominal.rates, (1 - rate, rate)))
    return found


def named(name: str, vocab: int | None = None) -> Architecture:
    return preset(name).build(vocab)


def amor_counts(parts: Parts) -> float:
    """The largest relative deviation of the six released models' parameters from the published ones."""
    off = [
        abs(ledger(parts, named(f"amor-{backbone}-{scale}"), 1024).parameters / count - 1)
        for (backbone, scale), count in PUBLISHED_PARAMETERS.items()
    ]
    return max(off)


def amor_share(parts: Parts, scale: str) -> float:
    """Share of AMOR's parameters that its three blocks hold, over Gated DeltaNet: counted, not by the formula."""
    whole = ledger(parts, named(f"amor-gdn-{scale}"), 1024)
    blocks = sum(part.parameters for part in whole.parts if part.site.startswith("1."))
    return blocks / whole.parameters


def amor_formula(parts: Parts) -> float:
    """The blocks' counted parameters over K(4 D^2 + D) + K D, less 1, at 440M."""
    whole = ledger(parts, named("amor-gdn-440m"), 1024)
    blocks = sum(part.parameters for part in whole.parts if part.site.startswith("1."))
    D = SCALES["440m"].d_model
    return blocks / (3 * (4 * D * D + D) + 3 * D) - 1


def crossover(cheaper: Callable[[int], bool]) -> int | None:
    """The shortest context from which on ``cheaper`` holds, None where it does not up to MOST_TOKENS; it must be monotone."""
    low, high = 0, MOST_TOKENS
    if not cheaper(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if cheaper(middle) else (middle, high)
    return high


def amor_crossover(parts: Parts, rate: float, distilled: bool = False) -> int | None:
    """Context from which a decoded token costs AMOR (440M, K = 3) fewer FLOPs than three blocks that always attend."""
    gated, always = named("amor-gdn-440m"), named("always-gdn-440m")
    if distilled:
        routers = {site: Router(name="distilled") for site in gated.routers()}
        gated = gated.with_routers(routers)

    def cheaper(tokens: int) -> bool:
        gated_flops = ledger(parts, gated, tokens, rate).decode_flops_per_token
        return gated_flops < ledger(parts, always, tokens).decode_flops_per_token

    return crossover(cheaper)


def amor_crossover_off(parts: Parts, rate: float) -> float:
    """The crossover over V / (2 (1 - p)) - D, less 1."""
    D, V = SCALES["440m"].d_model, SCALES["440m"].vocab
    found = amor_crossover(parts, rate)
    return float("inf") if found is None else found / (V / (2 * (1 - rate)) - D) - 1


def dreamer_budgets(parts: Parts) -> float:
    """The largest relative difference to Dreamer in parameters, training FLOPs or memory among the small rows' DR and layered."""
    off = []
    for row in ("l8-k4", "l8-k2", "l16-k4", "l16-k2"):
        target = ledger(parts, named(f"dreamer-{row}"), 64)
        for rival in ("dr", "layered-moe"):
            found = ledger(parts, named(f"{rival}-{row}"), 64)
            for quantity in ("parameters", "training_flops_per_token", "memory_bytes"):
                off.append(abs(found.quantity(quantity) / target.quantity(quantity) - 1))
    return max(off)


def dreamer_cache_growth(parts: Parts) -> float:
    """Bytes that the depth cache of a token in flight grows by when the text grows from 64 to 4096 tokens."""
    short, long = (ledger(parts, named("dreamer-l8-k4"), tokens).scratch_bytes for tokens in (64, 4096))
    return long - short


def dreamer_half(parts: Parts) -> float:
    """Training FLOPs of Dreamer at depth 16 over those of layers at depth 32 (shapes of about 1B and 2B parameters)."""
    half, whole = (ledger(parts, named(name), 2048) for name in ("dreamer-1b", "layered-moe-2b"))
    return half.training_flops_per_token / whole.training_flops_per_token


def oryx_sizes(parts: Parts) -> float:
    """The largest relative deviation of matrix weights a token uses from 13 D^2 L + V D, both families at all scales.

    Small tensors (convolutions, decays, gains) are left out, as the paper does.
    """
    off = []
    for scale, sizes in oryx.SCALES.items():
        if scale != oryx.MINIATURE:
            for family in oryx.LINEAR:
                found = ledger(parts, named(f"oryx-{family}-{scale}"), 1024)
                small = sum(part.small_parameters for part in found.parts)
                off.append(abs((found.active_parameters - small) / published_active(sizes) - 1))
    return max(off)


def oryx_shared(parts: Parts) -> float:
    """Share of the weights one mode uses that both modes use, at 1.4B, embedding left out."""
    whole = ledger(parts, named("oryx-tm-1.4b"), 1024)
    D, L = oryx.SCALES["1.4b"].d_model, oryx.SCALES["1.4b"].layers
    own = D * D * L
    active = whole.active_parameters - oryx.VOCAB * D
    return (active - own) / active


def oryx_ratio(parts: Parts, tokens: int) -> float:
    """FLOPs of one head of 128 with three quarters of the tokens read by Mamba-2 over all read by attention, projections left
    out (appendix C of the paper, by the ledger's conventions)."""
    attention, recurrence = (_reader(parts, name, tokens) for name in ("attention", "mamba2"))
    reads = 0.75 * recurrence.reads[0].forward + 0.25 * attention.reads[0].forward
    return (recurrence.write.forward + reads) / attention.reads[0].forward


def oryx_crossover(parts: Parts) -> float:
    """The text from whose length on that ratio is below 1, over the paper's (1 / delta + 3) C = 555."""
    found = crossover(lambda tokens: oryx_ratio(parts, tokens) < 1)
    return float("inf") if found is None else found / 555


def _reader(parts: Parts, name: str, tokens: int) -> Cost:
    descriptor = parts.descriptor("mixer", name)
    head = HeadShape(1, 1, 1, 1, 128, 128)
    # A width of 0 leaves out what decays and gates are projected from.
    found: Cost = import_late(descriptor.reader).cost(descriptor.reader_config(), head, 0, Shape(1, tokens))
    return found


def oryx_state(parts: Parts) -> float:
    """Recurrent state of a layer over its keys and values at 2048 tokens, at equal bytes a number, times 2 T / d."""
    sizes = oryx.SCALES["1.4b"]
    whole = ledger(parts, named("oryx-tm-1.4b"), 2048)
    longer = ledger(parts, named("oryx-tm-1.4b"), 4096)
    cache = longer.state_bytes - whole.state_bytes
    # The recurrent state is kept in float32, keys and values in bf16.
    state = (whole.state_bytes - cache) / 2
    return state / cache * 2 * 2048 / sizes.head_size
