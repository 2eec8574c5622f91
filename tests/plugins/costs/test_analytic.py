"""The analytic cost model against sums made by hand, with parts whose costs are round numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import BaseModel, ConfigDict

from crossbreed.core.contracts.capabilities import MixerCapabilities, RouterCapabilities
from crossbreed.core.contracts.mixer import Mixer, MixerDescriptor
from crossbreed.core.contracts.router import Router, RouterDescriptor
from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.genome import Architecture, Block, DepthPolicy, OutputScale, Stage, Sublayer
from crossbreed.core.genome import Router as RouterGene
from crossbreed.core.host import Host, Owner, Registered, Registry
from crossbreed.core.ledger import Cost, Ledger, Shape, Work

V, D, T = 32, 8, 16
SHAPE = Shape(batch=1, tokens=T)
HEAD = 2 * V * D


class RoundConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    readers: tuple[str, ...] = ()
    rate: float = 0.25


class RoundMixer(Mixer):
    """Writes 10 FLOPs and reads 100 a token (1000 for a second reader); executes twice as much.

    Writing touches 20 weights and moves 40 bytes of state, reading touches 30 weights and keeps 8 bytes.
    """

    @staticmethod
    def cost(config, d_model, shape, depths=1, parts=None):  # type: ignore[no-untyped-def]
        read = Work.product(100, 200, weights=30, kept_bytes=8)
        reads = (read, Work.product(1000, 2000))[: max(1, len(config.readers))]
        write = Work.product(10, 20, weights=20, state_traffic_bytes=40)
        return Cost(write, reads, 70, 50, 3.0 * shape.tokens, 5.0)


class RoundRouter(Router):
    @staticmethod
    def rates(config, kind, choices):  # type: ignore[no-untyped-def]
        return (1 - config.rate, config.rate)

    @staticmethod
    def cost(config, build, shape):  # type: ignore[no-untyped-def]
        return Cost(write=Work.product(1, 2), parameters=9, active_parameters=9)


@pytest.fixture
def parts() -> Registry:
    registry = Host.load(third_party=False)
    owner = Owner("test", "test", "test")
    sparse = {"train": "sparse", "prefill": "sparse", "decode": "sparse"}
    for name, execution in (("skipping", sparse), ("masking", dict.fromkeys(sparse, "dense"))):
        able = MixerCapabilities(axis="sequence", execution=execution)  # type: ignore[arg-type]
        descriptor = MixerDescriptor(name, lambda: RoundMixer, RoundConfig, able, "round numbers")
        registry.entries["mixer"][name] = Registered(descriptor, owner)
    hard = RouterDescriptor(
        "hard", lambda: RoundRouter, RoundConfig, RouterCapabilities(("gate", "mode", "halt")), "fixed rate"
    )
    soft = replace(
        hard, name="soft", capabilities=RouterCapabilities(("gate", "mode", "halt"), gradient=True)
    )
    for descriptor_ in (hard, soft):
        registry.entries["router"][descriptor_.name] = Registered(descriptor_, owner)
    return registry


def estimate(parts: Registry, architecture: Architecture, **more: object) -> Ledger:
    model = parts.factory("cost", "analytic")(None, parts)
    return model.estimate(architecture, SHAPE, **more)  # type: ignore[no-any-return]


def model_of(*blocks: Block, **more: object) -> Architecture:
    stage = {k: more.pop(k) for k in ("depth", "halt", "entry_norm") if k in more}
    return Architecture(vocab=V, d_model=D, stages=(Stage(blocks=blocks, **stage),), **more)  # type: ignore[arg-type]


def one(mixer: str = "skipping", **more: object) -> Block:
    return Block(sublayers=(Sublayer(mixer=mixer, params=more.pop("params", {})),), **more)  # type: ignore[arg-type]


GATED = RouterGene(name="hard")
SOFT = RouterGene(name="soft")
RECURRENT = DepthPolicy(name="recurrent", repeats=3)


def test_a_plain_model_is_the_sum_of_its_parts(parts: Registry) -> None:
    ledger = estimate(parts, model_of(one(), one()))
    assert ledger.prefill_flops_per_token == HEAD + 2 * 110
    assert ledger.training_flops_per_token == 3 * (HEAD + 2 * 110)
    assert ledger.decode_flops_per_token == HEAD + 2 * 110
    assert ledger.executed_prefill_flops_per_token == HEAD + 2 * 220
    assert ledger.parameters == V * D + D + 2 * (70 + D)
    assert ledger.non_embedding_parameters == ledger.parameters - V * D
    assert ledger.active_parameters == ledger.parameters - 2 * 20
    assert ledger.state_bytes == 2 * 3 * T
    assert ledger.scratch_bytes == 2 * 5
    assert ledger.memory_bytes == 4 * ledger.parameters + ledger.state_bytes
    # Of the embedding one row is read, and the head's matrix is the same one, read in full.
    weights = V * D + D + D + 2 * (20 + 30 + D)
    assert ledger.decode_traffic_bytes_per_token == 4 * weights + 2 * 40
    assert sum(p.decode_traffic_bytes_per_token for p in ledger.parts) == 4 * weights + 2 * 40
    assert sum(p.kept_bytes_per_token for p in ledger.parts) == ledger.kept_bytes_per_token
    assert sum(p.parameters for p in ledger.parts) == ledger.parameters
    assert sum(p.training_flops_per_token for p in ledger.parts) == ledger.training_flops_per_token


def test_an_untied_head_is_a_second_embedding(parts: Registry) -> None:
    tied, untied = (estimate(parts, model_of(one(), tie_embeddings=t)) for t in (True, False))
    assert untied.parameters - tied.parameters == V * D
    assert untied.non_embedding_parameters == tied.non_embedding_parameters
    assert untied.training_flops_per_token == tied.training_flops_per_token


def test_norms_and_scales_store_one_gain_per_channel(parts: Registry) -> None:
    def stored(**more: object) -> int:
        sublayers = (Sublayer(mixer="skipping"), Sublayer(mixer="masking"))
        return estimate(parts, model_of(Block(sublayers=sublayers, **more))).parameters  # type: ignore[arg-type]

    bare = stored(norm="none")
    assert stored(norm="pre") - bare == 2 * D
    assert stored(norm="sandwich") - bare == 4 * D
    assert stored(norm="none", arrangement="parallel") - bare == 0
    assert stored(norm="pre", arrangement="parallel_mean") - bare == 4 * D
    assert stored(norm="none", output_scale=OutputScale()) - bare == D
    assert (
        estimate(parts, model_of(one(), entry_norm=True)).parameters
        == estimate(parts, model_of(one())).parameters + D
    )


@pytest.mark.parametrize(
    ("mixer", "router", "training", "prefill"),
    [
        ("skipping", GATED, 3 * (1 + 10 + 25), 1 + 10 + 25),
        ("skipping", SOFT, 3 * (1 + 10 + 100), 1 + 10 + 25),
        ("masking", GATED, 3 * (1 + 10 + 100), 1 + 10 + 100),
    ],
)
def test_a_gate_charges_reads_at_its_rate_only_where_work_is_skipped(
    parts: Registry, mixer: str, router: RouterGene, training: float, prefill: float
) -> None:
    ledger = estimate(parts, model_of(one(mixer, gate=router)))
    assert ledger.training_flops_per_token - 3 * HEAD == training
    assert ledger.prefill_flops_per_token - HEAD == prefill
    assert ledger.rates == {"0.0.0.gate": (0.75, 0.25)}


def test_modes_share_the_reads_and_write_once(parts: Registry) -> None:
    pair = {"readers": ("a", "b")}
    hard = estimate(parts, model_of(one(params=pair), mode_router=GATED))
    assert hard.prefill_flops_per_token - HEAD == 1 + 10 + 0.75 * 100 + 0.25 * 1000
    assert hard.training_flops_per_token == 3 * hard.prefill_flops_per_token
    soft = estimate(parts, model_of(one(params=pair), mode_router=SOFT))
    assert soft.training_flops_per_token == 3 * (HEAD + 1 + 10 + 1100)
    assert soft.prefill_flops_per_token == hard.prefill_flops_per_token
    dense = estimate(parts, model_of(one("masking", params=pair), mode_router=GATED))
    assert dense.prefill_flops_per_token - HEAD == 1 + 10 + 1100


def test_shared_weights_are_stored_once_and_run_at_every_depth(parts: Registry) -> None:
    once = estimate(parts, model_of(one(gate=GATED)))
    shared = estimate(parts, model_of(one(gate=GATED), depth=RECURRENT))
    layered = estimate(parts, model_of(one(gate=GATED), depth=DepthPolicy(name="layered", repeats=3)))
    assert shared.parameters == once.parameters
    assert layered.parameters - once.parameters == 2 * (70 + 9 + D)
    for ledger in (shared, layered):
        assert ledger.prefill_flops_per_token - HEAD == 3 * (once.prefill_flops_per_token - HEAD)
        assert ledger.state_bytes == 3 * once.state_bytes
        assert set(ledger.rates) == {f"0.0.{d}.gate" for d in range(3)}


def test_halting_saves_reads_but_not_writes(parts: Registry) -> None:
    """Tokens go on with 1/4: reads at depth l cost (1/4)^l, and halts are asked of the tokens still alive."""
    ledger = estimate(parts, model_of(one(), depth=RECURRENT, halt=GATED))
    alive = [1, 1 / 4, 1 / 16]
    assert ledger.prefill_flops_per_token - HEAD == 3 * 10 + 100 * sum(alive) + 1 * sum(alive[:2])
    assert ledger.parameters == V * D + D + 70 + D + 9
    soft = estimate(parts, model_of(one(), depth=RECURRENT, halt=SOFT))
    assert soft.training_flops_per_token == 3 * (HEAD + 3 * 110 + 2)


def test_gates_modes_and_halts_multiply(parts: Registry) -> None:
    block = one(params={"readers": ("a", "b")}, gate=GATED)
    ledger = estimate(parts, model_of(block, depth=RECURRENT, halt=GATED, mode_router=GATED))
    alive = 1 + 1 / 4 + 1 / 16
    read = 0.75 * 100 + 0.25 * 1000
    decisions = 1 + alive + (1 + 1 / 4)
    assert ledger.prefill_flops_per_token - HEAD == pytest.approx(30 + alive * 0.25 * read + decisions)


def test_a_hard_gate_under_a_soft_halt_skips_in_training_what_the_gate_skips(parts: Registry) -> None:
    ledger = estimate(parts, model_of(one(gate=GATED), depth=RECURRENT, halt=SOFT))
    assert ledger.training_flops_per_token == 3 * (HEAD + 3 * (1 + 10 + 25) + 2)


def test_realised_rates_replace_nominal_ones(parts: Registry) -> None:
    architecture = model_of(one(gate=GATED), depth=RECURRENT)
    nominal = estimate(parts, architecture)
    exact = estimate(parts, architecture, rates={"0.0.gate": (1.0, 0.0), "0.0.2.gate": (0.0, 1.0)})
    assert not nominal.realised
    assert exact.realised
    assert exact.rates == {"0.0.0.gate": (1.0, 0.0), "0.0.1.gate": (1.0, 0.0), "0.0.2.gate": (0.0, 1.0)}
    assert exact.prefill_flops_per_token - HEAD == 3 * 11 + 100


def test_rates_of_no_site_or_that_do_not_sum_to_one_are_refused(parts: Registry) -> None:
    architecture = model_of(one(gate=GATED))
    with pytest.raises(UnknownName, match=r"'0\.1\.gate'; did you mean"):
        estimate(parts, architecture, rates={"0.1.gate": (0.5, 0.5)})
    with pytest.raises(ConfigError, match="2 shares that sum to 1"):
        estimate(parts, architecture, rates={"0.0.gate": (0.5, 0.6)})


def test_readers_and_mode_routers_need_each_other(parts: Registry) -> None:
    pair = one(params={"readers": ("a", "b")})
    with pytest.raises(ConfigError, match=r"2 readers, but the architecture has no mode_router"):
        estimate(parts, model_of(pair))
    with pytest.raises(ConfigError, match=r"'hard' has nothing to choose"):
        estimate(parts, model_of(one(), mode_router=GATED))


def test_what_is_remembered_never_changes_an_answer(parts: Registry) -> None:
    """One model asked many things answers each as a fresh one does, whatever it was asked before."""
    genomes = [
        model_of(one(), one(gate=GATED)),
        model_of(one(gate=SOFT), one()),
        model_of(one(gate=RouterGene(name="hard", params={"rate": 0.5})), one("masking")),
        model_of(one(params={"readers": ("a", "b")}), mode_router=SOFT),
        model_of(one(params={"readers": ("a", "b")}), mode_router=GATED),
        model_of(one(), depth=RECURRENT, halt=GATED),
        model_of(one(norm="sandwich"), depth=RECURRENT),
    ]
    used = parts.factory("cost", "analytic")(None, parts)
    for architecture in genomes + genomes[::-1]:
        for shape in (SHAPE, Shape(tokens=4, dtype="bfloat16")):
            fresh = parts.factory("cost", "analytic")(None, parts).estimate(architecture, shape)
            assert used.estimate(architecture, shape) == fresh
