"""Dreamer as a whole (arXiv 2601.21582): depth attention, attention and experts in one block that runs L times.

One-token decode, any split, packed and ragged rows, causality and costs are held by the tests over all genomes
(``tests/support/genomes.py`` has four Dreamers); here are the sanity list of the fact sheet's section 10 and its table.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from crossbreed.core.contracts.context import Recorder
from crossbreed.core.contracts.task import Batch
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, parse
from crossbreed.core.ledger import Shape
from crossbreed.core.model.language_model import LanguageModel

V, D, H, SIZE, T = 64, 128, 4, 32, 64


def dreamer(
    depths: int,
    experts: int,
    hidden: int,
    *,
    top_k: int = 2,
    size: tuple[int, int, int, int] = (V, D, H, SIZE),
    depth_attention: bool = True,
    policy: str = "recurrent",
    routed: bool = True,
    routing: dict[str, Any] | None = None,
    **block: Any,
) -> Architecture:
    """The fact sheet's models: r 16, L - 1 routed and 1 shared projection of which 2 are active, 2 heads over depths, one
    expert on top of k."""
    vocab, width, heads, head = size
    routing = {"router_key": 16, **(routing or {})}
    projections = {"projection_experts": {"experts": depths - 1, **routing}} if routed else {}
    sublayers = [
        {"mixer": "depth_attention", "params": {"heads": 2, "head_size": head, **projections}},
        {"mixer": "attention", "params": {"heads": heads, "head_size": head, **projections}},
        {
            "mixer": "experts",
            "params": {
                "experts": experts,
                "hidden": hidden,
                "top_k": top_k,
                "shared_in_top_k": False,
                **routing,
            },
        },
    ]
    stage = {
        "blocks": [
            {"sublayers": sublayers[0 if depth_attention else 1 :], "output_init": "depth_scaled", **block}
        ],
        "depth": {"name": policy, "repeats": depths},
    }
    plain = {"vocab": vocab, "d_model": width, "tie_embeddings": False, "stages": [stage]}
    return parse(Architecture, plain, "Dreamer")


SMALL = (23, 16, 2, 8)


def small(**changes: Any) -> Architecture:
    return dreamer(3, 5, 6, size=SMALL, routing={"router_key": 8}, **changes)


ROWS = {
    (8, 4): (3.49, 5.40, (108, 64), (76, 100), (6, 136)),
    (8, 2): (5.87, 5.79, (102, 128), (73, 188), (6, 247)),
    (16, 4): (7.82, 10.9, (252, 64), (173, 101), (7, 137)),
    (16, 2): (11.9, 11.6, (208, 128), (148, 189), (6, 250)),
}
"""(L, k): million parameters, MFLOPs a token, (E, F) of depth-recurrent with and without depth attention, and of layered."""


@pytest.mark.parametrize(("depths", "top_k"), ROWS)
def test_the_ledger_gives_the_sheets_table(builtins, depths: int, top_k: int) -> None:
    parameters, flops, whole, without, layered = ROWS[depths, top_k]
    costs = builtins.factory("cost", "analytic")(builtins.config("cost", "analytic", {}), builtins)
    candidates = [
        dreamer(depths, *whole, top_k=top_k),
        dreamer(depths, *without, top_k=top_k, depth_attention=False),
        dreamer(depths, *layered, top_k=top_k, depth_attention=False, policy="layered", routed=False),
    ]
    ledgers = [costs.estimate(builtins.canonical(a), Shape(1, T)) for a in candidates]
    for ledger in ledgers:
        # Matched within 0.4%, and the sheet rounds to three digits.
        assert ledger.parameters / 1e6 == pytest.approx(parameters, rel=0.005 + 0.005)
        assert ledger.prefill_flops_per_token / 1e6 == pytest.approx(flops, rel=0.005 + 0.005)
        assert ledger.parameters == pytest.approx(ledgers[0].parameters, rel=0.004)
        assert ledger.prefill_flops_per_token == pytest.approx(ledgers[0].prefill_flops_per_token, rel=0.004)
        assert ledger.state_bytes == ledgers[0].state_bytes
    # 2 L H_d d_h numbers of one token in flight.
    assert ledgers[0].scratch_bytes == 2 * depths * 2 * SIZE * 4
    assert [ledger.scratch_bytes for ledger in ledgers[1:]] == [0, 0]


@pytest.mark.parametrize("arrangement", ["sequential", "parallel"])
@pytest.mark.parametrize("norm", ["pre", "sandwich"])
def test_without_depth_attentions_output_it_is_the_depth_recurrent_block(
    build, tokens, arrangement: str, norm: str
) -> None:
    whole = build(small(arrangement=arrangement, norm=norm))
    without = build(small(arrangement=arrangement, norm=norm, depth_attention=False))
    block, plain = whole.stages[0].weight_sets[0][0], without.stages[0].weight_sets[0][0]
    with torch.no_grad():
        block.mixers[0].projections.output_ECD.zero_()
        for name in ("mixers", "norms", "output_norms"):
            for i in range(2):
                getattr(plain, name)[i].load_state_dict(getattr(block, name)[i + 1].state_dict())
        without.embedding.load_state_dict(whole.embedding.state_dict())
        without.final_norm.load_state_dict(whole.final_norm.state_dict())
        y, _ = whole(tokens, whole.context(tokens))
        wanted, _ = without(tokens, without.context(tokens))
    torch.testing.assert_close(y, wanted, rtol=0, atol=1e-12)


def test_a_shared_weight_gets_the_sum_of_the_gradients_of_its_unrolled_copies(build, tokens) -> None:
    """Full backpropagation through all depths (A18)."""
    shared, apart = build(small()), build(small(policy="layered"))
    with torch.no_grad():
        for weights in apart.stages[0].weight_sets:
            weights.load_state_dict(shared.stages[0].weight_sets[0].state_dict())
        for name in ("embedding", "head", "final_norm"):
            getattr(apart, name).load_state_dict(getattr(shared, name).state_dict())
    outputs = []
    for model in (shared, apart):
        h_BTD, _ = model(tokens, model.context(tokens, phase="train"))
        h_BTD.square().sum().backward()
        outputs.append(h_BTD.detach())
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=1e-10)
    copies = [dict(weights.named_parameters()) for weights in apart.stages[0].weight_sets]
    for name, parameter in shared.stages[0].weight_sets[0].named_parameters():
        unrolled = [copy[name].grad for copy in copies]
        torch.testing.assert_close(parameter.grad, sum(unrolled), rtol=1e-8, atol=1e-8, msg=name)
    # Every depth contributes, the first one through all later ones.
    key = "0.mixers.1.projections.input_EDC"
    assert all(copy[key].grad.abs().max() > 0 for copy in copies)


def test_every_depth_keeps_keys_and_values_of_its_own(build, tokens) -> None:
    model = build(small())
    with torch.no_grad():
        _, state = model(tokens, model.context(tokens), model.init_state(3, slots=19))
    sites = [site for site in state.mixers if state.mixers[site]]
    assert sites == ["0.0.0.1", "0.0.1.1", "0.0.2.1"]
    caches = [state.mixers[site]["0.k"] for site in sites]
    assert (caches[0] - caches[1]).abs().max() > 1e-3
    # Depth attention leaves nothing behind: the state is that of attention alone.
    assert not any("0.k.0" in names for names in state.mixers.values())


@pytest.mark.parametrize("length", [2, 18])
def test_decoding_keeps_as_much_scratch_after_any_context(build, tokens, length: int) -> None:
    model, sizes = build(small()), []
    stage = model.stages[0]
    with torch.no_grad():
        _, state = model(tokens[:, :length], model.context(tokens[:, :length]), model.init_state(3))
        mixer = stage.weight_sets[0][0].mixers[0]
        handle = mixer.register_forward_hook(
            lambda m, args, out: sizes.append(sum(t.numel() for t in out[1].values()))
        )
        last = tokens[:, length : length + 1]
        model(last, model.context(last, phase="decode", state=state), state)
        handle.remove()
    assert sizes == [3 * 2 * 3 * 2 * 8] * 3


@pytest.mark.parametrize("encoding", ["rose", "none"])
def test_without_an_encoding_routing_knows_depth_by_the_state_alone(build, encoding: str) -> None:
    """An input that no depth changes is routed alike at all depths, unless routing is told the depth."""
    routing = {"router_key": 8, "depth_encoding": encoding, "bias_rate": 0.0}
    model = build(dreamer(6, 5, 6, size=SMALL, routing=routing))
    with torch.no_grad():
        for mixer in model.stages[0].weight_sets[0][0].mixers:
            for name in mixer.output_parameters():
                mixer.get_parameter(name).zero_()
        recorder = Recorder()
        tokens = torch.randint(0, 23, (3, 50), generator=torch.Generator().manual_seed(4))
        model(tokens, model.context(tokens, recorder=recorder))
    for sublayer in range(3):
        loads = [f["load"] for site, f in recorder.records if site.endswith(f".{sublayer}") and "load" in f]
        assert len(loads) == 6
        alike = all(torch.equal(load, loads[0]) for load in loads)
        assert alike == (encoding == "none")


def test_balancing_evens_the_load_over_all_depths(build) -> None:
    """From a bias that favours some experts, of projections and of channels alike, by the steps of training."""
    model = build(dreamer(4, 6, 6, size=SMALL, routing={"router_key": 8, "bias_rate": 0.05}))
    routers = [m for m in model.modules() if hasattr(m, "balance_LE")]
    with torch.no_grad():
        for router in routers:
            router.key_ER.mul_(8)
            router.balance_LE.copy_(torch.linspace(-1, 1, router.balance_LE.shape[1]))
    tokens = torch.randint(0, 23, (4, 24), generator=torch.Generator().manual_seed(4))

    def loads() -> list[torch.Tensor]:
        context = model.context(tokens, phase="train", labels_BT=tokens)
        found = model.loss(Batch(tokens, tokens), context).records
        return [
            torch.stack([f["load"] for site, f in found if site.endswith(f".{i}") and "load" in f]).double()
            for i in range(3)
        ]

    def excess(load_LE: torch.Tensor) -> float:
        total_E = load_LE.sum(0)
        return float(total_E.max() / total_E.mean()) - 1

    with torch.no_grad():
        before = loads()
        for _ in range(30):
            model.after_step()
            after = loads()
    assert len(routers) == 3
    assert all(excess(late) < 0.5 * excess(early) for early, late in zip(before, after, strict=True))
    # One bias serves all depths, so that no single depth is forced to be even.
    assert all((load_LE / load_LE.mean(1, keepdim=True) - 1).abs().max() > 0.2 for load_LE in after)


def test_the_block_is_the_sheets_equations_token_by_token(build) -> None:
    """Section 2 and 4 in plain loops over depths, tokens, heads and experts, without any code of the mixers."""
    model = build(small())
    tokens = torch.randint(0, 23, (1, 7), generator=torch.Generator().manual_seed(2))
    block = model.stages[0].weight_sets[0][0]
    depth_mixer, attention, experts = block.mixers
    L, count = 3, 7

    def norm(x, gains):
        return x / (x.square().mean() + 1e-6).sqrt() * gains

    def turn(x, position, theta):
        pairs = x.shape[-1] // 2
        angle = position * theta ** (-torch.arange(pairs, dtype=x.dtype) / pairs)
        a, b = x[..., :pairs], x[..., pairs:]
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)

    def rose(x, depth):
        past, left = x.chunk(2, -1)
        return torch.cat((turn(past, depth, 100.0), turn(left, L - depth, 100.0)), -1)

    def gates(router, u, depth, routed):
        score = router.key_ER @ rose(router.query_RD @ u, depth)
        chosen = score.topk(routed).indices.tolist()
        total = sum(score[e].sigmoid() for e in chosen) + 0.5
        return {**{e: score[e].sigmoid() / total for e in chosen}, len(score): 0.5 / total}

    def project(mixer, u, weights, widths):
        return sum(p * (u @ mixer.projections.input_EDC[e]) for e, p in weights.items()).split(widths)

    def output(mixer, o, weights):
        return sum(p * (o @ mixer.projections.output_ECD[e]) for e, p in weights.items())

    def attend(q, keys, values):
        heads = []
        for h in range(q.shape[0]):
            weight = torch.stack([q[h] @ k[h] / 8**0.5 for k in keys]).softmax(0)
            heads.append(sum(w * v[h] for w, v in zip(weight, values, strict=True)))
        return torch.cat(heads)

    with torch.no_grad():
        stream = [model.embedding.weight[i] for i in tokens[0]]
        earlier = [([], []) for _ in range(count)]
        for depth in range(L):
            past_keys, past_values, after = [], [], []
            for t in range(count):
                h = stream[t]
                u = norm(h, block.norms[0].weight)
                p = gates(depth_mixer.projections.routers["all"], u, depth, 1)
                k, v, q = (x.view(2, 8) for x in project(depth_mixer, u, p, [16, 16, 16]))
                earlier[t][0].append(rose(k, depth))
                earlier[t][1].append(v)
                a = h + output(depth_mixer, attend(rose(q, depth), *earlier[t]), p)
                u = norm(a, block.norms[1].weight)
                p = gates(attention.projections.routers["all"], u, depth, 1)
                k, v, q = (x.view(2, 8) for x in project(attention, u, p, [16, 16, 16]))
                past_keys.append(turn(k, t, 10_000.0))
                past_values.append(v)
                b = a + output(attention, attend(turn(q, t, 10_000.0), past_keys, past_values), p)
                u = norm(b, block.norms[2].weight)
                mixed = sum(
                    g * ((F.silu(u @ experts.gate_EDF[e]) * (u @ experts.up_EDF[e])) @ experts.down_EFD[e])
                    for e, g in gates(experts.router, u, depth, 2).items()
                )
                after.append(b + mixed)
            stream = after
        wanted = torch.stack([norm(h, model.final_norm.weight) for h in stream])
        y, _ = model(tokens, model.context(tokens))
    torch.testing.assert_close(y[0], wanted, rtol=0, atol=1e-9)


def test_output_matrices_start_scaled_by_the_number_of_writes(builtins) -> None:
    """N(0, 0.02) over sqrt(3 L) (A16)."""
    model = LanguageModel(dreamer(4, 8, 32), builtins)
    for mixer in model.stages[0].weight_sets[0][0].mixers:
        for name in mixer.output_parameters():
            assert mixer.get_parameter(name).std().item() == pytest.approx(0.02 / 12**0.5, rel=0.05)


def test_one_depth_is_legal_and_leaves_depth_attention_a_linear_map(build, tokens) -> None:
    """With one slot the weight is 1: the output is that of the values, whatever queries and keys say."""
    genome = dreamer(1, 5, 6, size=SMALL, routed=False, routing={"router_key": 8})
    model = build(genome)
    with torch.no_grad():
        y, _ = model(tokens, model.context(tokens))
        weight = model.stages[0].weight_sets[0][0].mixers[0].projections.input.weight
        weight[:16] *= -3
        weight[32:] *= 2
        again, _ = model(tokens, model.context(tokens))
    torch.testing.assert_close(again, y, rtol=0, atol=1e-12)


def test_a_depth_of_nothing_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"depth.repeats must be at least 1, got 0"):
        parse(
            Architecture,
            {
                "vocab": 9,
                "d_model": 8,
                "stages": [{"blocks": [{"sublayers": [{"mixer": "swiglu"}]}], "depth": {"repeats": 0}}],
            },
            "genome",
        )


@pytest.mark.parametrize(
    ("sublayer", "params", "message"),
    [
        (0, {"head_size": 6}, "head_size must be a multiple of 4"),
        (2, {"experts": 2, "top_k": 4, "shared_in_top_k": False}, "4 routed experts, but there are only 2"),
        (1, {"projection_experts": {"router_key": 10}}, "router_key must be a multiple of 4"),
    ],
)
def test_bad_settings_are_refused_before_any_weight_exists(
    builtins, monkeypatch, sublayer, params, message
) -> None:
    monkeypatch.setattr(torch.nn, "Embedding", None)
    with pytest.raises(ConfigError, match=message):
        LanguageModel(small().with_params((0, 0, sublayer), **params), builtins)
