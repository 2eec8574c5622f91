"""The analytic cost model: walks a genome, asks each part what it costs, and adds the answers up.

Conditional work is charged at its rate where the part skips work (execution ``sparse``) and at rate 1 where it computes
and masks (``dense``). Gates, modes and halts nest: their rates multiply. Training under a router with gradient runs
every choice and is charged so. Whatever every token writes is charged in full at every depth. Executed prefill FLOPs are
those of one piece; a feedback router that evaluates segment by segment issues smaller tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from crossbreed.core.contracts.capabilities import Execution, SiteKind
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.contracts.router import RouterBuild
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, Block, Router, Stage, Sublayer
from crossbreed.core.ledger import Ledger, Part, Phase, Shape, Work
from crossbreed.plugins.costs.bill import (
    PHASES,
    Bill,
    PerPhase,
    Place,
    Rates,
    Shares,
    Triple,
    check_shares,
    check_sites,
    ends,
    moved,
    norms,
    pick,
    router_bill,
    share,
    total,
)

MEMO_LIMIT = 100_000
"""Remembered parts; a search that fills the memo starts it over."""


class Mode(NamedTuple):
    """The share of tokens per reader, in training (where a gradient computes all readers) and otherwise."""

    train: Shares
    own: Shares


class Runs(NamedTuple):
    """How a stage's blocks run: depths, weight sets, and for each block the depths at which it runs."""

    depths: int
    sets: int
    of_block: tuple[tuple[int, ...], ...]


class At(NamedTuple):
    """What surrounds a block: its stage's runs, the share of tokens alive at each depth, the mode, and the place."""

    runs: Runs
    alive: tuple[Triple, ...]
    mode: Mode | None
    place: Place


class Analytic(CostModel):
    """Adds up the static costs of mixers and routers into a ledger. Remembers the parts it has seen."""

    def __init__(self, config: Any, parts: Parts) -> None:
        super().__init__(config, parts)
        self._memo: dict[Any, Any] = {}

    def estimate(
        self,
        architecture: Architecture,
        shape: Shape,
        device: Mapping[str, Any] | None = None,
        rates: Rates | None = None,
    ) -> Ledger:
        """The ledger of one sequence of ``shape.tokens`` tokens, in all phases.

        Active parameters count the embedding and the head in full, as mixture-of-experts models are reported. Raises
        ConfigError for unknown plugins, for readers without a mode router, and for ``rates`` that name no site or do not
        sum to 1.
        """
        if len(self._memo) > MEMO_LIMIT:
            self._memo.clear()
        place = Place(architecture.d_model, architecture.vocab, shape.tokens, shape.dtype)
        mode, bills = self._mode(architecture, place, rates)
        bills.append(ends(architecture, place))
        for index, stage in enumerate(architecture.stages):
            bills += self._stage(stage, index, place, mode, rates)
        bill = total(bills)
        if rates is not None:
            check_sites(rates, bill.rates)
        embeddings = place.vocab * place.d_model * (1 if architecture.tie_embeddings else 2)
        weight_bytes = float(bill.parameters * shape.dtype_bytes)
        active_bytes = bill.active_parameters * shape.dtype_bytes
        return Ledger(
            tokens=shape.tokens,
            batch=shape.batch,
            dtype=shape.dtype,
            training_flops_per_token=bill.flops[0],
            prefill_flops_per_token=bill.flops[1],
            decode_flops_per_token=bill.flops[2],
            executed_training_flops_per_token=bill.executed[0],
            executed_prefill_flops_per_token=bill.executed[1],
            executed_decode_flops_per_token=bill.executed[2],
            recompute_flops_per_token=0.0,
            parameters=bill.parameters,
            active_parameters=bill.active_parameters,
            non_embedding_parameters=bill.parameters - embeddings,
            weight_bytes=weight_bytes,
            state_bytes=bill.state_bytes,
            scratch_bytes=bill.scratch_bytes,
            memory_bytes=weight_bytes + bill.state_bytes,
            decode_traffic_bytes_per_token=active_bytes + bill.state_traffic_bytes,
            rates=bill.rates,
            realised=rates is not None,
            parts=bill.parts,
        )

    def _stage(
        self, stage: Stage, index: int, place: Place, mode: Mode | None, rates: Rates | None
    ) -> list[Bill]:
        runs = self._runs(stage)
        alive, bills = self._halts(stage, index, runs, place, rates)
        at = At(runs, alive, mode, place)
        if stage.entry_norm:
            bills.append(norms(f"{index}.entry_norm", place.d_model))
        for b, block in enumerate(stage.blocks):
            site = f"{index}.{b}"
            if rates is not None:
                bills.append(self._block(block, site, runs.of_block[b], at, rates))
                continue
            # Equal blocks are counted once; where they stand changes their names only.
            key = ("block", _content(block), runs.of_block[b], at)
            found = self._memo.get(key)
            if found is None:
                found = self._memo[key] = site, self._block(block, site, runs.of_block[b], at, None)
            first, bill = found
            bills.append(bill if first == site else moved(bill, first, site))
        return bills

    def _block(self, block: Block, site: str, depths: tuple[int, ...], at: At, rates: Rates | None) -> Bill:
        """All runs of one block, at the given depths: its gate, mixers, norms and output scale."""
        reached = [at.alive[depth] for depth in depths]
        bills: list[Bill] = []
        if block.gate is not None:
            nominal, training, costs = self._router(block.gate, f"{site}.gate", "gate", 2, at.place)
            shares = {name: share(rates, name, nominal) for name in (f"{site}.{d}.gate" for d in depths)}
            bills.append(router_bill(f"{site}.gate", block.gate.name, costs, reached, at.runs.sets, shares))
            on = [s[1] for s in shares.values()]
            reached = [_after(tokens, rate, training) for tokens, rate in zip(reached, on, strict=True)]
        for i, sublayer in enumerate(block.sublayers):
            bills.append(self._sublayer(sublayer, f"{site}.{i}", reached, at))
        output_norms = block.norm == "sandwich" or block.arrangement == "parallel_mean"
        vectors = len(block.sublayers) * ((block.norm != "none") + output_norms)
        vectors += block.output_scale is not None
        if vectors:
            bills.append(norms(f"{site}.norms", vectors * at.place.d_model * at.runs.sets))
        return total(bills)

    def _sublayer(self, sublayer: Sublayer, site: str, reached: list[Triple], at: At) -> Bill:
        """One mixer over all its runs; ``reached`` is the share of tokens that read at each run, per phase."""
        costs, execution = self._mixer(sublayer, at.runs.depths, at.place)
        mode = self._modes(sublayer, site, len(costs[0].reads), at.mode)
        flops, executed = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
        for p, phase in enumerate(PHASES):
            # Every run is written in full; reads are paid by those who read, or by all where nothing is skipped.
            one, run = pick(costs[p].write, phase)
            flops[p], executed[p] = one * len(reached), run * len(reached)
            tokens = sum(r[p] for r in reached)
            shares = mode.train if phase == "train" else mode.own
            for read, reader_share in zip(costs[p].reads, shares, strict=True):
                rate = tokens * reader_share if execution[phase] == "sparse" else float(len(reached))
                one, run = pick(read, phase)
                flops[p] += one * rate
                executed[p] += run * rate
        cost, count, sets = costs[2], len(reached), at.runs.sets
        decoded = sum(r[2] for r in reached)
        part = Part(
            site,
            sublayer.mixer,
            tuple(decoded / count * s for s in mode.own),
            cost.parameters * sets,
            cost.active_parameters * sets,
            flops[0],
            flops[1],
            flops[2],
            cost.state_bytes * count,
            cost.small_parameters * sets,
        )
        return Bill(
            (flops[0], flops[1], flops[2]),
            (executed[0], executed[1], executed[2]),
            part.parameters,
            part.active_parameters,
            part.state_bytes,
            cost.scratch_bytes * count,
            cost.state_traffic_bytes * (decoded if execution["decode"] == "sparse" else count),
            parts=(part,),
        )

    def _modes(self, sublayer: Sublayer, site: str, readers: int, mode: Mode | None) -> Mode:
        if readers == 1:
            return Mode((1.0,), (1.0,))
        what = f"mixer {sublayer.mixer!r} at {site!r} has {readers} readers"
        if mode is None:
            raise ConfigError(f"{what}, but the architecture has no mode_router to choose among them.")
        if len(mode.own) != readers:
            raise ConfigError(f"{what}, but the mode router chooses among {len(mode.own)}.")
        return mode

    def _mode(
        self, architecture: Architecture, place: Place, rates: Rates | None
    ) -> tuple[Mode | None, list[Bill]]:
        router = architecture.mode_router
        if router is None:
            return None, []
        readers = max(
            len(self._mixer(sublayer, self._runs(stage).depths, place)[0][0].reads)
            for stage in architecture.stages
            for block in stage.blocks
            for sublayer in block.sublayers
        )
        if readers == 1:
            raise ConfigError(
                f"mode_router {router.name!r} has nothing to choose: no mixer of the architecture has two readers."
            )
        nominal, training, costs = self._router(router, "mode", "mode", readers, place)
        shares = share(rates, "mode", nominal)
        mode = Mode(training or shares, shares)
        return mode, [router_bill("mode", router.name, costs, [(1.0, 1.0, 1.0)], 1, {"mode": shares})]

    def _halts(
        self, stage: Stage, index: int, runs: Runs, place: Place, rates: Rates | None
    ) -> tuple[tuple[Triple, ...], list[Bill]]:
        """Tokens that read at depth l: the product of the go-on rates before it."""
        if stage.halt is None:
            return ((1.0, 1.0, 1.0),) * runs.depths, []
        nominal, training, costs = self._router(stage.halt, f"{index}.halt", "halt", 2, place)
        names = (f"{index}.{depth}.halt" for depth in range(runs.depths - 1))
        shares = {name: share(rates, name, nominal) for name in names}
        alive: list[Triple] = [(1.0, 1.0, 1.0)]
        for choice in shares.values():
            alive.append(_after(alive[-1], choice[1], training))
        return tuple(alive), [router_bill(f"{index}.halt", stage.halt.name, costs, alive[:-1], 1, shares)]

    def _runs(self, stage: Stage) -> Runs:
        depth = stage.depth
        key = ("runs", depth.name, repr(depth.params), depth.repeats, len(stage.blocks))
        runs = self._memo.get(key)
        if runs is None:
            config = self.parts.config("depth", depth.name, depth.params)
            plan = self.parts.factory("depth", depth.name)(config).plan(depth.repeats, len(stage.blocks))
            of_block = tuple(tuple(s.depth for s in plan if s.block == b) for b in range(len(stage.blocks)))
            runs = Runs(1 + max(s.depth for s in plan), 1 + max(s.weights for s in plan), of_block)
            self._memo[key] = runs
        return runs  # type: ignore[no-any-return]

    def _mixer(
        self, sublayer: Sublayer, depths: int, place: Place
    ) -> tuple[PerPhase, Mapping[Phase, Execution]]:
        key = ("mixer", sublayer.mixer, repr(sublayer.params), depths, place)
        found = self._memo.get(key)
        if found is None:
            config = self.parts.config("mixer", sublayer.mixer, sublayer.params)
            cost = self.parts.factory("mixer", sublayer.mixer).cost
            costs = tuple(cost(config, place.d_model, place.shape(p), depths, self.parts) for p in PHASES)
            found = costs, self.parts.descriptor("mixer", sublayer.mixer).capabilities.execution
            self._memo[key] = found
        return found  # type: ignore[no-any-return]

    def _router(
        self, router: Router, site: str, kind: SiteKind, choices: int, place: Place
    ) -> tuple[Shares, Shares | None, PerPhase]:
        """Nominal shares, those in training where they are others, and its cost in each phase.

        A gradient runs every choice in training; a schedule replaces the router outside training only.
        """
        key = ("router", router.name, repr(router.params), site, kind, choices, place)
        found = self._memo.get(key)
        if found is None:
            config = self.parts.config("router", router.name, router.params)
            cls = self.parts.factory("router", router.name)
            build = RouterBuild(site, kind, place.d_model, place.vocab, choices)
            costs = tuple(cls.cost(config, build, place.shape(p)) for p in PHASES)
            nominal = tuple(float(r) for r in cls.rates(config, kind, choices))
            check_shares(f"nominal rates of router {router.name!r} at {site!r}", nominal, choices)
            gradient = self.parts.descriptor("router", router.name).capabilities.gradient
            training = (1.0,) * choices if gradient else None
            schedule = cls.schedule(config)
            if schedule is not None:
                training = training or nominal
                nominal = schedule.shares(choices, place.tokens)
                costs = (costs[0], *(cost._replace(write=Work()) for cost in costs[1:]))
            found = nominal, training, costs
            self._memo[key] = found
        return found  # type: ignore[no-any-return]


def _after(tokens: Triple, rate: float, training: Shares | None) -> Triple:
    """The share of tokens that read past a decision, ``training`` being the shares of choices there if they are others."""
    train, prefill, decode = tokens
    return train * (rate if training is None else training[1]), prefill * rate, decode * rate


def _content(block: Block) -> tuple[Any, ...]:
    """What a block's bill depends on, hashable."""
    gate = block.gate
    return (
        block.norm,
        block.arrangement,
        block.output_scale is None,
        None if gate is None else (gate.name, repr(gate.params)),
        *[(s.mixer, repr(s.params)) for s in block.sublayers],
    )
