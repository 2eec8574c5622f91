"""The analytic cost model: walks a genome, asks each part what it costs, and adds the answers up.

Conditional work is charged at its rate where the part skips work (execution ``sparse``) and at rate 1 where it computes
and masks (``dense``). Gates, modes and halts nest: their rates multiply. Training under a router with gradient runs
every choice and is charged so. Whatever every token writes is charged in full at every depth. Executed prefill FLOPs are
those of one piece; a feedback router that evaluates segment by segment issues smaller tiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from crossbreed.core.contracts.capabilities import Execution, SiteKind
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.contracts.router import RouterBuild
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, Block, Router, Stage, Sublayer
from crossbreed.core.ledger import Ledger, Phase, Shape, Work
from crossbreed.plugins.costs.bill import (
    Bill,
    Mode,
    PerPhase,
    Place,
    Rates,
    Shares,
    Triple,
    check_shares,
    check_sites,
    ends,
    mixer_bill,
    norm_kept,
    norms,
    router_bill,
    share,
    total,
)
from crossbreed.plugins.costs.depths import weighed
from crossbreed.plugins.costs.training_memory import block_kept, training_peak

BLOCK = itemgetter("sublayers", "gate", "norm", "arrangement", "output_scale")
"""Of a block's fields, at once: a model of pydantic answers for each much slower than its dictionary."""

MEMO_LIMIT = 100_000
"""Remembered parts; a search that fills the memo starts it over."""


class Runs(NamedTuple):
    """How a stage's blocks run: depths, weight sets, and for each block the depths at which it runs."""

    depths: int
    sets: int
    of_block: tuple[tuple[int, ...], ...]


class At(NamedTuple):
    """What surrounds a block: its stage's runs, the share of tokens alive at each depth, the mode, and the place.

    ``soft``: a halt weights what the stage's blocks write, in training.
    """

    runs: Runs
    alive: tuple[Triple, ...]
    soft: bool
    mode: Mode | None
    place: Place


class Routed(NamedTuple):
    """A router at a site: nominal shares, those in training where they are others, soft weights or not, and its cost."""

    nominal: Shares
    training: Shares | None
    gradient: bool
    costs: PerPhase


class Gate(NamedTuple):
    """A block's gate: its shares at each run, and what is known of its router."""

    shares: tuple[Shares, ...]
    routed: Routed


class Analytic(CostModel):
    """Adds up the static costs of mixers and routers into a ledger. Remembers the parts it has seen."""

    def __init__(self, config: Any, parts: Parts) -> None:
        super().__init__(config, parts)
        self._memo: dict[Any, Any] = {}
        self._numbers: dict[Any, int] = {}
        # Genes never change, so one seen before is known by itself; it is held so that its id stays its own.
        self._known: dict[int, int] = {}
        self._held: list[Any] = []
        self._same: dict[Any, Bill] = {}

    def estimate(
        self,
        architecture: Architecture,
        shape: Shape,
        device: Mapping[str, Any] | None = None,
        rates: Rates | None = None,
    ) -> Ledger:
        """The ledger of ``shape.batch`` sequences of ``shape.tokens`` tokens, in all phases.

        Active parameters count the embedding and the head in full, as mixture-of-experts models are reported. Raises
        ConfigError for unknown plugins, for readers without a mode router, and for ``rates`` that name no site or do not
        sum to 1.
        """
        if len(self._memo) + len(self._held) + len(self._same) > MEMO_LIMIT:
            for remembered in (self._memo, self._numbers, self._known, self._held, self._same):
                remembered.clear()
        place = Place(architecture.d_model, architecture.vocab, shape.tokens, shape.dtype)
        mode, placed = self._mode(architecture, place, rates)
        placed.append(("", self._ends(architecture, place)))
        for index, stage in enumerate(architecture.stages):
            placed += self._stage(stage, index, place, mode, rates)
        named = {site + name: r for site, part in placed if part.rates for name, r in part.rates.items()}
        if rates is not None:
            check_sites(rates, named)
        sites, parts = zip(*placed, strict=True)
        # Equal blocks have one bill: it is added up once, so many times.
        numbers = list(map(id, parts))
        times = Counter(numbers)
        bill = total([(times[n], part) for n, part in dict(zip(numbers, parts, strict=True)).items()])
        embeddings = place.vocab * place.d_model * (1 if architecture.tie_embeddings else 2)
        weight_bytes = float(bill.parameters * shape.dtype_bytes)
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
            training_peak_bytes=training_peak(bill, place.vocab, place.d_model, shape),
            kept_bytes_per_token=bill.kept_bytes,
            decode_traffic_bytes_per_token=bill.traffic_bytes,
            rates=named,
            realised=rates is not None,
            sections=tuple(zip(sites, [part.lines for part in parts], strict=True)),
        )

    def _stage(
        self, stage: Stage, index: int, place: Place, mode: Mode | None, rates: Rates | None
    ) -> list[tuple[str, Bill]]:
        runs = self._runs(stage)
        alive, soft, placed = self._halts(stage, index, runs, place, rates)
        at = At(runs, alive, soft, mode, place)
        around = self._number(at)
        if stage.entry_norm:
            kept = norm_kept(place.d_model, place.training())
            placed.append((f"{index}", norms(".entry_norm", place.d_model, 1, 1, kept, place)))
        for site, block, depths in zip(
            _sites(index, len(stage.blocks)), stage.blocks, runs.of_block, strict=True
        ):
            sublayers, router, norm, arrangement, scale = BLOCK(vars(block))
            gate = decides = None
            if router is not None:
                gate = self._gate(router, site, depths, place, rates)
                decides = router.name, repr(router.params), gate.shares
            # What a bill depends on; sublayers are looked up as the objects they are, then by content.
            same = around, depths, norm, arrangement, scale is None, decides, *map(id, sublayers)
            bill = self._same.get(same)
            if bill is None:
                numbers = tuple(map(self._sublayer_number, sublayers))
                equal = *same[:6], *numbers
                bill = self._memo.get(equal)
                if bill is None:
                    bill = self._block(block, numbers, site, depths, at, around, gate)
                    self._memo[equal] = bill
                self._same[same] = bill
            placed.append((site, bill))
        return placed

    def _gate(
        self, router: Router, site: str, depths: tuple[int, ...], place: Place, rates: Rates | None
    ) -> Gate:
        routed = self._router(router, f"{site}.gate", "gate", 2, place)
        return Gate(tuple(share(rates, f"{site}.{d}.gate", routed.nominal) for d in depths), routed)

    def _block(
        self,
        block: Block,
        numbers: tuple[int, ...],
        site: str,
        depths: tuple[int, ...],
        at: At,
        around: int,
        gate: Gate | None,
    ) -> Bill:
        """All runs of one block, at the given depths: its gate, mixers (with their numbers), norms and output scale."""
        place, sets, count = at.place, at.runs.sets, len(block.sublayers)
        reached = [at.alive[depth] for depth in depths]
        bills: list[Bill] = []
        if gate is not None and block.gate is not None:
            shares = {f".{d}.gate": s for d, s in zip(depths, gate.shares, strict=True)}
            costs, training = gate.routed.costs, gate.routed.training
            bills.append(router_bill(".gate", block.gate.name, costs, reached, sets, shares, place))
            reached = [_after(tokens, s[1], training) for tokens, s in zip(reached, gate.shares, strict=True)]
        gated = None if gate is None else (gate.shares, gate.routed.training)
        for i, (sublayer, number) in enumerate(zip(block.sublayers, numbers, strict=True)):
            key = number, i, depths, around, gated
            bill = self._memo.get(key)
            if bill is None:
                bill = self._memo[key] = self._sublayer(sublayer, f".{i}", site, depths, reached, at)
            bills.append(bill)
        output_norms = block.norm == "sandwich" or block.arrangement == "parallel_mean"
        vectors = count * ((block.norm != "none") + output_norms) + (block.output_scale is not None)
        soft = at.soft or (gate is not None and gate.routed.gradient)
        if vectors or soft:
            form = around, len(depths), count, block.norm, block.arrangement, block.output_scale is None, soft
            found = self._memo.get(("norms", form))
            if found is None:
                kept = block_kept(block, output_norms, soft, place.d_model, place.training())
                found = norms(".norms", vectors * place.d_model, len(depths), sets, kept, place)
                self._memo["norms", form] = found
            bills.append(found)
        return total([(1, bill) for bill in bills])

    def _sublayer(
        self,
        sublayer: Sublayer,
        name: str,
        block_site: str,
        depths: tuple[int, ...],
        reached: list[Triple],
        at: At,
    ) -> Bill:
        """One mixer over its runs, at these depths; ``reached`` is the share of tokens that read at each, per phase."""
        costs, execution = self._mixer(sublayer, at.runs.depths, at.place)
        uneven = len(set(reached)) > 1 or len(depths) < at.runs.depths
        if uneven and self.parts.descriptor("mixer", sublayer.mixer).capabilities.axis == "depth":
            costs = weighed(
                lambda depth: self._mixer(sublayer, depth, at.place)[0], depths, reached, costs, execution
            )
        mode = self._modes(sublayer, block_site + name, len(costs[0].reads), at.mode)
        return mixer_bill(name, sublayer.mixer, costs, execution, reached, at.runs.sets, mode, at.place)

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
    ) -> tuple[Mode | None, list[tuple[str, Bill]]]:
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
        routed = self._router(router, "mode", "mode", readers, place)
        shares = share(rates, "mode", routed.nominal)
        mode = Mode(routed.training or shares, shares)
        everyone = [(1.0, 1.0, 1.0)]
        bill = router_bill("mode", router.name, routed.costs, everyone, 1, {"mode": shares}, place)
        return mode, [("", bill)]

    def _halts(
        self, stage: Stage, index: int, runs: Runs, place: Place, rates: Rates | None
    ) -> tuple[tuple[Triple, ...], bool, list[tuple[str, Bill]]]:
        """Tokens that read at depth l: the product of the go-on rates before it."""
        if stage.halt is None:
            return ((1.0, 1.0, 1.0),) * runs.depths, False, []
        routed = self._router(stage.halt, f"{index}.halt", "halt", 2, place)
        names = (f".{depth}.halt" for depth in range(runs.depths - 1))
        shares = {name: share(rates, f"{index}{name}", routed.nominal) for name in names}
        alive: list[Triple] = [(1.0, 1.0, 1.0)]
        for choice in shares.values():
            alive.append(_after(alive[-1], choice[1], routed.training))
        bill = router_bill(".halt", stage.halt.name, routed.costs, alive[:-1], 1, shares, place)
        return tuple(alive), routed.gradient, [(f"{index}", bill)]

    def _ends(self, architecture: Architecture, place: Place) -> Bill:
        key = ("ends", architecture.tie_embeddings, architecture.final_norm, place)
        bill = self._memo.get(key)
        if bill is None:
            bill = self._memo[key] = ends(architecture, place)
        return bill  # type: ignore[no-any-return]

    def _runs(self, stage: Stage) -> Runs:
        depth = stage.depth
        key = ("runs", depth.name, repr(depth.params), depth.repeats, len(stage.blocks))
        runs = self._memo.get(key)
        if runs is None:
            config = self.parts.config("depth", depth.name, depth.params)
            plan = self.parts.factory("depth", depth.name)(config).plan(depth.repeats, len(stage.blocks))
            of_block: list[list[int]] = [[] for _ in stage.blocks]
            for step in plan:
                of_block[step.block].append(step.depth)
            depths, sets = (
                1 + max(numbers) for numbers in zip(*((s.depth, s.weights) for s in plan), strict=True)
            )
            runs = Runs(depths, sets, tuple(map(tuple, of_block)))
            self._memo[key] = runs
        return runs  # type: ignore[no-any-return]

    def _mixer(
        self, sublayer: Sublayer, depths: int, place: Place
    ) -> tuple[PerPhase, Mapping[Phase, Execution]]:
        key = ("mixer", self._sublayer_number(sublayer), depths, place)
        found = self._memo.get(key)
        if found is None:
            name = sublayer.mixer
            kind = self._memo.get(("class", name))
            if kind is None:
                execution = self.parts.descriptor("mixer", name).capabilities.execution
                kind = self._memo["class", name] = self.parts.factory("mixer", name).cost, execution
            cost, execution = kind
            config = self.parts.config("mixer", name, sublayer.params)
            costs = tuple(
                [cost(config, place.d_model, shape, depths, self.parts) for shape in place.shapes()]
            )
            found = self._memo[key] = costs, execution
        return found  # type: ignore[no-any-return]

    def _router(self, router: Router, site: str, kind: SiteKind, choices: int, place: Place) -> Routed:
        """What is known of a router before it decides anything.

        A gradient runs every choice in training, unless a schedule takes the choices there; a schedule outside training
        replaces the router.
        """
        key = ("router", router.name, repr(router.params), site, kind, choices, place)
        found = self._memo.get(key)
        if found is None:
            config = self.parts.config("router", router.name, router.params)
            cls = self.parts.factory("router", router.name)
            build = RouterBuild(site, kind, place.d_model, place.vocab, choices)
            costs = tuple([cls.cost(config, build, shape) for shape in place.shapes()])
            nominal = tuple(float(r) for r in cls.rates(config, kind, choices))
            check_shares(f"nominal rates of router {router.name!r} at {site!r}", nominal, choices)
            gradient = self.parts.descriptor("router", router.name).capabilities.gradient
            training = (1.0,) * choices if gradient else cls.training_rates(config, kind, choices)
            trained = cls.training_schedule(config)
            if trained is not None:
                training, gradient = trained.shares(choices, place.tokens), False
            schedule = cls.schedule(config)
            if schedule is not None:
                training = training or nominal
                nominal = schedule.shares(choices, place.tokens)
                costs = (costs[0], *(cost._replace(write=Work()) for cost in costs[1:]))
            found = Routed(nominal, training, gradient, costs)
            self._memo[key] = found
        return found  # type: ignore[no-any-return]

    def _number(self, content: Any) -> int:
        """A small number for hashable content: equal content, equal number."""
        return self._numbers.setdefault(content, len(self._numbers))

    def _sublayer_number(self, sublayer: Sublayer) -> int:
        """The same of a mixer and its settings, known by the gene itself once it was seen."""
        known = self._known.get(id(sublayer))
        if known is None:
            self._held.append(sublayer)
            known = self._known[id(sublayer)] = self._number((sublayer.mixer, repr(sublayer.params)))
        return known


@lru_cache(maxsize=1024)
def _sites(stage: int, blocks: int) -> tuple[str, ...]:
    """The sites of a stage's blocks."""
    return tuple(f"{stage}.{block}" for block in range(blocks))


def _after(tokens: Triple, rate: float, training: Shares | None) -> Triple:
    """The share of tokens that read past a decision, ``training`` being the shares of choices there if they are others."""
    train, prefill, decode = tokens
    return train * (rate if training is None else training[1]), prefill * rate, decode * rate
