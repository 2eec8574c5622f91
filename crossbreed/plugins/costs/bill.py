"""Bills: what parts of a model cost, before they are added up into a ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from crossbreed.core.contracts.capabilities import Execution
from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.genome import Architecture
from crossbreed.core.ledger import DTYPE_BYTES, GATHER_UP_TO, Cost, Part, Phase, Shape, Work

PHASES: tuple[Phase, Phase, Phase] = ("train", "prefill", "decode")

Shares = tuple[float, ...]
Rates = Mapping[str, Shares]
PerPhase = tuple[Cost, Cost, Cost]
Triple = tuple[float, float, float]
"""Train, prefill, decode."""

NOTHING: Triple = (0.0, 0.0, 0.0)

INDEX_BYTES = 8
"""Of a token's id."""


class Bill(NamedTuple):
    """The summed cost of some parts. FLOPs are per token in each phase; sites of rates and lines are relative."""

    flops: Triple = NOTHING
    executed: Triple = NOTHING
    parameters: int = 0
    active_parameters: int = 0
    state_bytes: float = 0.0
    scratch_bytes: float = 0.0
    traffic_bytes: float = 0.0
    kept_bytes: float = 0.0
    cast_weights: int = 0
    rates: dict[str, Shares] = {}  # noqa: RUF012 - never written to
    lines: tuple[Part, ...] = ()

    @staticmethod
    def of(
        line: Part,
        scratch_bytes: float = 0.0,
        rates: dict[str, Shares] | None = None,
        cast_weights: int = 0,
    ) -> Bill:
        """The bill of one line. ``cast_weights``: those that are cast under autocast, counted for each run: no fewer than there are."""
        return Bill(
            line[6:9], line[9:12], line.parameters, line.active_parameters, line.state_bytes, scratch_bytes,
            line.decode_traffic_bytes_per_token, line.kept_bytes_per_token, cast_weights, rates or {}, (line,),
        )  # fmt: skip


class Mode(NamedTuple):
    """The share of tokens per reader, in training (where a gradient computes all readers) and otherwise."""

    train: Shares
    own: Shares


class Place(NamedTuple):
    """What a genome's parts are costed at."""

    d_model: int
    vocab: int
    tokens: int
    dtype: str

    def shapes(self) -> tuple[Shape, Shape, Shape]:
        """One sequence, in each of ``PHASES``."""
        return _shapes(self.tokens, self.dtype)

    def training(self) -> Shape:
        return _shapes(self.tokens, self.dtype)[0]

    @property
    def dtype_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]


@lru_cache(maxsize=256)
def _shapes(tokens: int, dtype: str) -> tuple[Shape, Shape, Shape]:
    train, prefill, decode = (Shape(1, tokens, dtype, phase) for phase in PHASES)
    return train, prefill, decode


def pick(work: Work, phase: Phase) -> tuple[float, float]:
    """Algorithmic and executed FLOPs of a piece of work in a phase."""
    if phase == "train":
        return work.training, work.executed_training
    return work.forward, work.executed_forward


def ends(architecture: Architecture, place: Place) -> Bill:
    """Token embedding (a look-up, no FLOPs; one row is read), final norm and output head (2 D V a token).

    Kept for the backward pass: the token's id, the final norm's input and its size, and the gradient that the loss
    computes in its forward pass.
    """
    D, shape = place.d_model, place.training()
    matrix, norm = place.vocab * D, D if architecture.final_norm else 0
    head = norm + (0 if architecture.tie_embeddings else matrix)
    wide, narrow = shape.wide_bytes, shape.dtype_bytes
    flops = (6.0 * matrix, 2.0 * matrix, 2.0 * matrix)
    kept = float(D * wide + (norm_kept(D, shape) if norm else 0))
    look_up = Part(
        "embedding", "embedding", (1.0,), matrix, matrix, D, decode_traffic_bytes_per_token=D * narrow,
        kept_bytes_per_token=INDEX_BYTES,
    )  # fmt: skip
    traffic = (matrix + norm) * narrow
    output = Part("head", "head", (1.0,), head, head, matrix + norm, *flops, *flops, traffic, kept, 0.0, norm)
    return total([(1, Bill.of(look_up)), (1, Bill.of(output, cast_weights=matrix))])


def norms(site: str, parameters: int, runs: int, sets: int, kept_bytes: float, place: Place) -> Bill:
    """Gains and scales: parameters of all weight sets, and element-wise work that does not count."""
    stored, reads = parameters * sets, parameters * runs
    traffic = float(reads * place.dtype_bytes)
    line = Part(
        site, "norms", (1.0,), stored, stored, reads,
        decode_traffic_bytes_per_token=traffic, kept_bytes_per_token=kept_bytes * runs, small_parameters=stored, runs=runs,
    )  # fmt: skip
    return Bill.of(line)


def norm_kept(width: int, shape: Shape) -> int:
    """Bytes a fused RMS norm keeps of one token: its input and one size."""
    return (width + 1) * shape.wide_bytes


def router_bill(
    site: str,
    name: str,
    costs: PerPhase,
    asked: list[Triple],
    sets: int,
    shares: dict[str, Shares],
    place: Place,
) -> Bill:
    """A router's decisions: charged to the tokens asked (per depth and phase), executed for all tokens of the piece."""
    work = [pick(cost.write, phase) for cost, phase in zip(costs, PHASES, strict=True)]
    train, prefill, decode = (work[p][0] * sum(a[p] for a in asked) for p in range(3))
    count, narrow = len(asked), place.dtype_bytes
    mean = tuple(sum(column) / len(shares) for column in zip(*shares.values(), strict=True))
    write = costs[2].write
    line = Part(
        site,
        name,
        mean,
        costs[2].parameters * sets,
        costs[2].active_parameters * sets,
        int(costs[1].write.weights) * count,
        train,
        prefill,
        decode,
        work[0][1] * count,
        work[1][1] * count,
        work[2][1] * count,
        (write.weights * narrow + write.state_traffic_bytes) * count,
        costs[0].write.kept_bytes * count,
        costs[2].state_bytes * count,
        state_traffic_bytes_per_token=write.state_traffic_bytes * count,
        runs=count,
    )
    return Bill.of(line, rates=shares)


def mixer_bill(
    site: str,
    name: str,
    costs: PerPhase,
    execution: Mapping[Phase, Execution],
    reached: list[Triple],
    sets: int,
    mode: Mode,
    place: Place,
) -> Bill:
    """A mixer over all its runs; ``reached`` is the share of tokens that read at each run, per phase."""
    count, cost = len(reached), costs[2]
    paid = []
    for p, phase in enumerate(PHASES):
        # Every run is written in full; reads are paid by those who read, or by all where nothing is skipped.
        due, reads = [(costs[p].write, float(count))], costs[p].reads
        if execution[phase] == "sparse":
            tokens, shares = sum([r[p] for r in reached]), mode.train if phase == "train" else mode.own
            due += [(read, tokens * s) for read, s in zip(reads, shares, strict=True)]
        else:
            due += [(read, float(count)) for read in reads]
        paid.append(due)
    trained = prefilled = decoded = 0.0
    executed_trained = executed_prefilled = executed_decoded = 0.0
    kept = weights = state_traffic = 0.0
    for work, rate in paid[0]:
        trained += work.training * rate
        executed_trained += work.executed_training * rate
        kept += work.kept_bytes * rate
    for work, rate in paid[1]:
        prefilled += work.forward * rate
        executed_prefilled += work.executed_forward * rate
    if execution["prefill"] == "sparse":
        executed_prefilled += _masked(costs[1].reads, [r[1] for r in reached], mode.own)
    for work, rate in paid[2]:
        decoded += work.forward * rate
        executed_decoded += work.executed_forward * rate
        weights += work.weights * rate
        state_traffic += work.state_traffic_bytes * rate
    read = sum([r[2] for r in reached]) / count
    line = Part(
        site,
        name,
        tuple([read * s for s in mode.own]),
        cost.parameters * sets,
        cost.active_parameters * sets,
        cost.parameters * count,
        trained,
        prefilled,
        decoded,
        executed_trained,
        executed_prefilled,
        executed_decoded,
        weights * place.dtype_bytes + state_traffic,
        kept,
        cost.state_bytes * count,
        cost.small_parameters * sets,
        state_traffic,
        count,
    )
    return Bill.of(line, cost.scratch_bytes * count, cast_weights=line.weight_reads)


def _masked(reads: tuple[Work, ...], reached: list[float], shares: Shares) -> float:
    """FLOPs issued for tokens that do not read, where most of a piece does; ``reached``: the share that reads at each run."""
    return sum(
        read.whole * (1.0 - tokens * s)
        for read, s in zip(reads, shares, strict=True)
        if read.whole
        for tokens in reached
        if tokens * s > GATHER_UP_TO
    )


def total(bills: Iterable[tuple[int, Bill]]) -> Bill:
    """The sum of bills, each taken so many times; lines and rates are those of bills taken once, in order."""
    t = p = d = et = ep = ed = state = scratch = traffic = kept = 0.0
    parameters = active = cast = 0
    rates: dict[str, Shares] = {}
    lines: list[Part] = []
    for n, bill in bills:
        a, b, c = bill.flops
        t, p, d = t + n * a, p + n * b, d + n * c
        a, b, c = bill.executed
        et, ep, ed = et + n * a, ep + n * b, ed + n * c
        parameters += n * bill.parameters
        active += n * bill.active_parameters
        state += n * bill.state_bytes
        scratch += n * bill.scratch_bytes
        traffic += n * bill.traffic_bytes
        kept += n * bill.kept_bytes
        cast += n * bill.cast_weights
        if bill.rates:
            rates.update(bill.rates)
        lines += bill.lines
    return Bill(
        (t, p, d), (et, ep, ed), parameters, active, state, scratch, traffic, kept, cast, rates, tuple(lines)
    )


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
