"""Algorithmic FLOPs against arithmetic that is written out and counted number by number."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import MixerBuild
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.ledger import Shape, Work
from crossbreed.core.ops.attention import attention_reference
from crossbreed.core.ops.delta_rule import gated_delta_rule_recurrent
from crossbreed.core.ops.ssd import ssd_recurrent
from tests.plugins.costs.brute_force import Tally, attention, delta, ssd
from tests.support.genomes import EXPERTS, SWIGLU, architecture, block

D, H, K, V = 7, 2, 3, 4


def cost(registry: Registry, name: str, params: dict[str, Any], tokens: int, phase: str = "prefill") -> Work:
    """Everything a token pays, read included."""
    config = registry.config("mixer", name, params)
    found = registry.factory("mixer", name).cost(
        config,
        D,
        Shape(1, tokens, "float64", phase),
        1,
        registry,  # type: ignore[arg-type]
    )
    return found.write.plus(found.reads[0])  # type: ignore[no-any-return]


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def same(rows: list[list[float]], expected_BTHV: Tensor) -> None:
    torch.testing.assert_close(torch.tensor(rows, dtype=torch.float64), expected_BTHV[0, :, 0])


@pytest.mark.parametrize("tokens", [1, 5, 63, 70])
@pytest.mark.parametrize(
    ("window", "top_k"),
    [(None, None), (1, None), (6, None), (64, None), (None, 1), (None, 4), (None, 64), (6, 4), (6, 9)],
)
def test_attention_touches_visible_pairs_only(
    registry: Registry, tokens: int, window: int | None, top_k: int | None
) -> None:
    """And of the visible ones those that are not among the strongest are scored, but neither weighed nor added."""
    q, k, v = (drawn(1, tokens, 1, V + i) for i in (0, 0, 1))
    tally = Tally()
    rows = attention(
        tally,
        *((x[0, :, 0] * s).tolist() for x, s in ((q, V**-0.5), (k, 1.0), (v[..., :V], 1.0))),
        window,
        top_k,
    )
    same(rows, attention_reference(q, k, v[..., :V], window=window, top_k=top_k))
    params = {"heads": H, "head_size": V, "window": window, "top_k": top_k}
    projections = 2 * D * H * V * 4
    found = cost(registry, "attention", params, tokens)
    assert found.forward * tokens == pytest.approx(projections * tokens + H * tally.flops)


@pytest.mark.parametrize("tokens", [2, 63, 64, 65, 150])
def test_state_space_duality_counts_its_chunks(registry: Registry, tokens: int) -> None:
    q, k, v = drawn(1, tokens, 1, K), drawn(1, tokens, 1, K) / 2, drawn(1, tokens, 1, V)
    log_decay = -drawn(1, tokens, 1).abs()
    tally = Tally()
    rows = ssd(
        tally,
        q[0, :, 0].tolist(),
        k[0, :, 0].tolist(),
        v[0, :, 0].tolist(),
        log_decay[0, :, 0].exp().tolist(),
    )
    same(rows, ssd_recurrent(q, k, v, log_decay)[0])
    # A group of its own for each head, so that nothing is shared between heads.
    params = {
        "heads": H, "groups": H, "head_size": V, "state_size": K, "gate": False, "norm": "none", "short_conv": None,
    }  # fmt: skip
    projections = 2 * D * H * (2 * K + V + 1) + 2 * D * H * V
    found = cost(registry, "mamba2", params, tokens)
    assert found.forward * tokens == pytest.approx(projections * tokens + H * tally.flops)


@pytest.mark.parametrize("tokens", [2, 63, 64, 65, 130])
def test_the_delta_rule_counts_its_chunks(registry: Registry, tokens: int) -> None:
    q, k, v = drawn(1, tokens, 1, K), drawn(1, tokens, 1, K), drawn(1, tokens, 1, V)
    k = k / k.norm(dim=-1, keepdim=True)
    log_decay, beta = -drawn(1, tokens, 1).abs(), drawn(1, tokens, 1).sigmoid()
    lists = [x[0, :, 0].tolist() for x in (q, k, v, log_decay.exp(), beta)]
    tally = Tally()
    rows = delta(tally, *lists)
    same(rows, gated_delta_rule_recurrent(q, k, v, log_decay, beta, scale=1.0)[0])
    params = {"heads": H, "key_size": K, "value_size": V, "gate": False, "norm": "none", "short_conv": None}
    projections = 2 * D * H * (2 * K + V + 2) + 2 * D * H * V
    found = cost(registry, "gated_deltanet", params, tokens)
    assert found.forward * tokens == pytest.approx(projections * tokens + H * tally.flops)


@pytest.mark.parametrize("sublayer", [SWIGLU, EXPERTS], ids=lambda s: s["mixer"])
def test_feed_forward_layers_count_two_for_each_weight_that_moves_a_token(
    registry: Registry, sublayer: dict
) -> None:
    config = registry.config("mixer", sublayer["mixer"], sublayer["params"])
    mixer = registry.factory("mixer", sublayer["mixer"])(config, MixerBuild(D, 1, "auto", registry)).double()
    output, _ = mixer(drawn(1, 1, D), Context(torch.tensor([[0]]), row_id_B=torch.tensor([0])), None)
    output.sum().backward()
    # A matrix is multiplied whole (a router scores every expert); of stacked experts only those that were chosen.
    used = sum(
        weight[0].numel() * int(weight.grad.flatten(1).any(1).sum()) if weight.dim() == 3 else weight.numel()
        for weight in mixer.parameters()
    )
    found = registry.factory("mixer", sublayer["mixer"]).cost(config, D, Shape(1, 9), 1, registry)
    assert found.reads[0].forward == 2 * used


def test_the_mean_over_a_sequence_is_the_mean_of_its_decoded_tokens(registry: Registry) -> None:
    """For everything but recurrences, whose chunk form differs from their steps."""
    genome = registry.canonical(
        architecture(
            {
                "blocks": [
                    block({"mixer": "attention", "params": {"heads": 2, "head_size": 4, "window": 9}}),
                    block({"mixer": "attention", "params": {"heads": 2, "head_size": 4}}, SWIGLU),
                ]
            }
        )
    )
    costs, tokens = registry.factory("cost", "analytic")(None, registry), 23
    marginal = [costs.estimate(genome, Shape(1, t)).decode_flops_per_token for t in range(1, tokens + 1)]
    assert costs.estimate(genome, Shape(1, tokens)).prefill_flops_per_token == pytest.approx(
        sum(marginal) / tokens
    )


class TestGrowth:
    """Per-token cost over lengths: constant for recurrences, affine for attention, capped for windows."""

    def at(self, registry: Registry, genome: Architecture, lengths: list[int]) -> list[float]:
        costs = registry.factory("cost", "analytic")(None, registry)
        return [costs.estimate(genome, Shape(1, t)).training_flops_per_token for t in lengths]

    def genome(self, registry: Registry, mixer: str, **params: Any) -> Architecture:
        return registry.canonical(architecture({"blocks": [block({"mixer": mixer, "params": params})]}))

    def test_every_mixer_without_a_cache_costs_the_same_at_any_length(self, registry: Registry) -> None:
        constant = set()
        costs = registry.factory("cost", "analytic")(None, registry)
        for name in registry.names("mixer"):
            readers = {"readers": ["mamba2"]} if name == "multi_mixer" else {}
            genome = self.genome(registry, name, **readers)
            if len({costs.estimate(genome, Shape(1, t)).state_bytes for t in (128, 4096)}) > 1:
                continue
            short, long = self.at(registry, genome, [128, 4096])
            assert short == pytest.approx(long), name
            constant.add(name)
        assert constant >= {"mamba2", "gated_deltanet", "multi_mixer", "depth_attention", "swiglu", "experts"}

    def test_attention_is_affine_and_a_window_caps_it(self, registry: Registry) -> None:
        a, b, c = self.at(registry, self.genome(registry, "attention"), [100, 200, 300])
        assert c - b == pytest.approx(b - a)
        assert b > a
        windowed = self.at(registry, self.genome(registry, "attention", window=64), [64, 1 << 12, 1 << 20])
        assert windowed[0] < windowed[1] < windowed[2]
        full = self.at(registry, self.genome(registry, "attention"), [128])[0]
        assert windowed[2] < full + 1e-3


class TestTraining:
    """Where training is three times the forward pass, and where it is not."""

    def test_a_product_has_two_in_its_backward_pass(self, registry: Registry) -> None:
        """One for each factor; the first layer's input is the embedding, which is trained."""
        for name, params in (("attention", {}), ("swiglu", {}), ("gated_deltanet", {}), ("mamba2", {})):
            work = cost(registry, name, params, 65, "train")
            assert work.training == pytest.approx(3 * work.forward), name

    def test_a_probe_has_none(self, registry: Registry) -> None:
        def ledger(gate: dict | None) -> Any:
            genome = architecture({"blocks": [block(SWIGLU, gate=gate)]})
            return registry.factory("cost", "analytic")(None, registry).estimate(
                registry.canonical(genome), Shape(1, 16)
            )

        plain, probed = ledger(None), ledger({"name": "entropy_gate", "params": {}})
        part = next(p for p in probed.parts if p.name == "entropy_gate")
        probe = 2 * 23 * 16
        assert part.training_flops_per_token == part.prefill_flops_per_token == probe
        assert plain.training_flops_per_token > probed.training_flops_per_token - probe

    def test_fused_attention_computes_its_scores_again(self, registry: Registry) -> None:
        work = cost(registry, "attention", {"heads": H, "head_size": V}, 64, "train")
        scores = 4 * H * V * 64
        products = 2 * D * H * V * 4
        assert work.executed_training == pytest.approx(3 * products + 3.5 * scores)
