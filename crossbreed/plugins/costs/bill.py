"""Bills: what parts of a model cost, before they are added up into a ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.genome import Architecture
from crossbreed.core.ledger import Cost, Part, Phase, Shape, Work

PHASES: tuple[Phase, Phase, Phase] = ("train", "prefill", "decode")

Shares = tuple[float, ...]
Rates = Mapping[str, Shares]
PerPhase = tuple[Cost, Cost, Cost]
Triple = tuple[float, float, float]
"""Train, prefill, decode."""

NOTHING: Triple = (0.0, 0.0, 0.0)


class Bill(NamedTuple):
    """The summed cost of some parts: algorithmic and executed FLOPs per token in each phase, numbers and bytes."""

    flops: Triple = NOTHING
    executed: Triple = NOTHING
    parameters: int = 0
    active_parameters: int = 0
    state_bytes: float = 0.0
    scratch_bytes: float = 0.0
    state_traffic_bytes: float = 0.0
    rates: dict[str, Shares] = {}  # noqa: RUF012 - never written to
    parts: tuple[Part, ...] = ()


class Place(NamedTuple):
    """What a genome's parts are costed at."""

    d_model: int
    vocab: int
    tokens: int
    dtype: str

    def shape(self, phase: Phase) -> Shape:
        return Shape(1, self.tokens, self.dtype, phase)


def pick(work: Work, phase: Phase) -> tuple[float, float]:
    """Algorithmic and executed FLOPs of a piece of work in a phase."""
    if phase == "train":
        return work.training, work.executed_training
    return work.forward, work.executed_forward


def ends(architecture: Architecture, place: Place) -> Bill:
    """Token embedding (a look-up, no FLOPs), final norm and output head (2 D V a token)."""
    matrix = place.vocab * place.d_model
    norm = place.d_model if architecture.final_norm else 0
    head = 0 if architecture.tie_embeddings else matrix
    flops = (6.0 * matrix, 2.0 * matrix, 2.0 * matrix)
    parts = (
        Part("embedding", "embedding", (1.0,), matrix, matrix, *NOTHING, 0.0),
        Part("head", "head", (1.0,), head + norm, head + norm, *flops, 0.0, norm),
    )
    stored = matrix + head + norm
    return Bill(flops, flops, stored, stored, parts=parts)


def norms(site: str, parameters: int) -> Bill:
    """Gains and scales: parameters, and element-wise work that does not count."""
    part = Part(site, "norms", (1.0,), parameters, parameters, *NOTHING, 0.0, parameters)
    return Bill(parameters=parameters, active_parameters=parameters, parts=(part,))


def router_bill(
    site: str,
    name: str,
    costs: PerPhase,
    asked: list[Triple],
    sets: int,
    shares: dict[str, Shares],
) -> Bill:
    """A router's decisions: charged to the tokens asked (per depth and phase), executed for all tokens of the piece."""
    work = [pick(cost.write, phase) for cost, phase in zip(costs, PHASES, strict=True)]
    train, prefill, decode = (work[p][0] * sum(a[p] for a in asked) for p in range(3))
    flops = (train, prefill, decode)
    count = len(asked)
    executed = (work[0][1] * count, work[1][1] * count, work[2][1] * count)
    parameters, active = costs[2].parameters * sets, costs[2].active_parameters * sets
    state = costs[2].state_bytes * count
    mean = tuple(sum(column) / len(shares) for column in zip(*shares.values(), strict=True))
    part = Part(site, name, mean, parameters, active, *flops, state)
    return Bill(flops, executed, parameters, active, state, rates=shares, parts=(part,))


def total(bills: Iterable[Bill]) -> Bill:
    """The sum of bills, parts in order."""
    t = p = d = et = ep = ed = state = scratch = traffic = 0.0
    parameters = active = 0
    rates: dict[str, Shares] = {}
    parts: list[Part] = []
    for bill in bills:
        a, b, c = bill.flops
        t, p, d = t + a, p + b, d + c
        a, b, c = bill.executed
        et, ep, ed = et + a, ep + b, ed + c
        parameters += bill.parameters
        active += bill.active_parameters
        state += bill.state_bytes
        scratch += bill.scratch_bytes
        traffic += bill.state_traffic_bytes
        if bill.rates:
            rates.update(bill.rates)
        parts += bill.parts
    return Bill((t, p, d), (et, ep, ed), parameters, active, state, scratch, traffic, rates, tuple(parts))


def moved(bill: Bill, first: str, site: str) -> Bill:
    """The bill of a block at ``first``, as that of an equal block at ``site``."""
    cut = len(first)
    parts = []
    for p in bill.parts:
        t, f, d = p.training_flops_per_token, p.prefill_flops_per_token, p.decode_flops_per_token
        name, stored, active = p.name, p.parameters, p.active_parameters
        place, small = site + p.site[cut:], p.small_parameters
        parts.append(Part(place, name, p.rates, stored, active, t, f, d, p.state_bytes, small))
    rates = {site + name[cut:]: r for name, r in bill.rates.items()}
    return Bill(*bill[:7], rates, tuple(parts))


def share(rates: Rates | None, site: str, nominal: Shares) -> Shares:
    """The given shares of a site (by its full name, or by the name without the depth), else the nominal ones."""
    if rates is None:
        return nominal
    given = rates.get(site, rates.get(without_depth(site)))
    if given is None:
        return nominal
    check_shares(f"rates of site {site!r}", tuple(given), len(nominal))
    return tuple(float(r) for r in given)


def check_shares(what: str, shares: Shares, choices: int) -> None:
    """Raise ConfigError unless there is one share per choice and they sum to 1."""
    legal = len(shares) == choices and min(shares) >= 0 and abs(sum(shares) - 1.0) <= 1e-6
    if not legal:
        raise ConfigError(f"{what} must be {choices} shares that sum to 1, got {tuple(shares)}.")


def check_sites(rates: Rates, known: Mapping[str, Any]) -> None:
    """Raise UnknownName for a rate that belongs to no routed site."""
    names = set(known) | {without_depth(site) for site in known}
    for site in rates:
        if site not in names:
            raise UnknownName("routed site", site, names)


def without_depth(site: str) -> str:
    """``"0.1.2.gate"`` -> ``"0.1.gate"``; ``"0.2.halt"`` -> ``"0.halt"``; ``"mode"`` stays."""
    head, _, kind = site.rpartition(".")
    return f"{head.rpartition('.')[0]}.{kind}" if head else site
