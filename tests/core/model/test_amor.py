"""AMOR inside a model: the unit properties of the fact sheet's section 9 and the gradient facts of its section 3."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.contracts.context import Recorder
from crossbreed.core.contracts.task import IGNORE, Batch
from crossbreed.core.genome import digest
from crossbreed.core.lab import checkpoint
from crossbreed.core.model.language_model import LanguageModel
from tests.support.genomes import MAMBA2, SWIGLU, architecture, block, gate
from tests.support.passes import whole_pass

D, T = 16, 19
PLAIN = {"mixer": "attention", "params": {"heads": 2, "head_size": 8}}
PUBLISHED = {"momentum": 0.99, "warm_start": False, "mu_init": 0.3, "sigma_init": 0.1}


def amor(*, blocks=3, router="entropy_gate", output_init="normal", **params):
    """A recurrent backbone, its final norm on entry, then gated attention blocks: the classic stack of section 2."""
    attention = [
        block(
            PLAIN,
            norm="pre" if i else "none",
            gate=gate(router, **params),
            output_scale={},
            output_init=output_init,
        )
        for i in range(blocks)
    ]
    return architecture({"blocks": [block(MAMBA2), block(SWIGLU)]}, {"entry_norm": True, "blocks": attention})


SITES = ["1.0.gate", "1.1.gate", "1.2.gate"]
CALLS = ["1.0.0.gate", "1.1.0.gate", "1.2.0.gate"]


def settled(model, tokens):
    """Put every threshold into the widest gap between the middle entropies, so that rounding flips nothing."""
    for site in model.routed_sites():
        seen = []
        hook = site.register_forward_hook(
            lambda m, args, out, seen=seen: seen.append(args[1].entropy(args[0]))
        )
        whole_pass(model, tokens)
        hook.remove()
        h = seen[0].flatten().sort().values
        middle = h[len(h) // 3 : 2 * len(h) // 3]
        i = int((middle[1:] - middle[:-1]).argmax())
        site.router.mu.copy_((middle[i] + middle[i + 1]) / 2)
        site.router.sigma.zero_()
    return model


def loss_of(model, tokens, labels=None, **context):
    labels = tokens if labels is None else labels
    context = {"phase": "train", "labels_BT": labels, **context}
    return model.loss(Batch(tokens, labels), model.context(tokens, **context))


def masks(tokens, seed=0):
    """A forced decision of about two tokens in five at each gate."""
    generator = torch.Generator().manual_seed(seed)
    return {site: (torch.rand(tokens.shape, generator=generator) < 0.4).long() for site in SITES}


def test_dense_and_masked_equals_truly_sparse_and_prefill_with_decode_equals_the_whole(build, tokens):
    model = settled(build(amor()), tokens)
    h_BTD, taken = whole_pass(model, tokens)
    rates = [taken[site].double().mean().item() for site in CALLS]
    assert all(0.2 < rate < 0.8 for rate in rates), rates
    for start in (0, 1, 7, T - 1):
        state, pieces = model.init_state(3, slots=T), []
        with torch.no_grad():
            if start:
                first_BTD, state = model(
                    tokens[:, :start], model.context(tokens[:, :start], state=state), state
                )
                pieces.append(first_BTD)
            for t in range(start, T):
                # Decoding runs queries, scores and output of the rows that fired alone.
                piece = tokens[:, t : t + 1]
                out_BTD, state = model(piece, model.context(piece, phase="decode", state=state), state)
                pieces.append(out_BTD)
        torch.testing.assert_close(torch.cat(pieces, 1), h_BTD, rtol=1e-9, atol=1e-9)


def test_a_zero_output_matrix_makes_logits_independent_of_the_gates(builtins, tokens):
    model = LanguageModel(amor(output_init="zero"), builtins).double().eval()
    outputs = [
        model.logits(whole_pass(model, tokens, forced=forced)[0])
        for forced in ({}, masks(tokens), *({s: torch.full_like(tokens, c) for s in SITES} for c in (0, 1)))
    ]
    assert all(torch.equal(other, outputs[0]) for other in outputs[1:])


def test_at_the_first_step_only_the_output_matrix_of_a_block_learns(builtins, tokens):
    model = LanguageModel(amor(output_init="zero"), builtins).double()
    loss_of(model, tokens, forced=masks(tokens)).objective.backward()
    for stage_block in model.stages[1].weight_sets[0]:
        found = {
            name: p.grad.abs().max() > 0 for name, p in stage_block.named_parameters() if p.grad is not None
        }
        assert [name for name, learns in found.items() if learns] == ["mixers.0.projections.output.weight"]


def test_tau_is_frozen_in_evaluation_and_comes_back_from_a_checkpoint(builtins, tokens, tmp_path):
    genome = amor(**PUBLISHED)
    model = LanguageModel(genome, builtins)
    optimiser = torch.optim.AdamW(model.parameter_groups(0.1), lr=1e-3)
    for _ in range(3):
        loss_of(model, tokens).objective.backward()
        optimiser.step()
        optimiser.zero_grad()
        model.after_step()
    taus = [site.router.tau().item() for site in model.routed_sites()]
    assert all(tau != pytest.approx(0.32, abs=1e-4) for tau in taus)
    whole_pass(model.eval(), tokens)
    model.after_step()
    assert [site.router.tau().item() for site in model.routed_sites()] == taus
    header = checkpoint.Header(digest(genome), {}, {}, seed=0, step=3, tokens=3, rung=0)
    checkpoint.write(Artefacts.at(tmp_path), "m.safetensors", model, optimiser, header)
    fresh = LanguageModel(genome, builtins, seed=1)
    checkpoint.read(Artefacts.at(tmp_path), "m.safetensors", fresh, None, header)
    assert [site.router.tau().item() for site in fresh.routed_sites()] == taus
    assert [site.router.steps.item() for site in fresh.routed_sites()] == [3, 3, 3]


def test_no_gradient_reaches_anything_through_the_gates(build, tokens):
    model = build(amor())
    recorded = {}
    for site in model.routed_sites():
        site.register_forward_hook(lambda m, a, out: recorded.update({m.name: out[0].choice_BT}))
    loss_of(model, tokens).objective.backward()
    deciding = {name: p.grad.clone() for name, p in model.named_parameters()}
    assert sum(int(choice.sum()) for choice in recorded.values()) > 0
    model.zero_grad()
    # The same decisions, imposed from outside by gates that read nothing.
    imposed = build(amor(router="segment_random"))
    imposed.load_state_dict(model.state_dict(), strict=False)
    loss_of(imposed, tokens, forced=recorded).objective.backward()
    for name, p in imposed.named_parameters():
        torch.testing.assert_close(p.grad, deciding[name], msg=name)


def test_keys_and_values_learn_at_unfired_positions_and_queries_only_where_something_fired(build):
    """With the rows of the unit matrix as input, column j of a projection's gradient is what position j taught it."""
    model = build(amor(blocks=1))
    stack = model.stages[1].weight_sets[0][0]
    mixer, weight = stack.mixers[0], stack.mixers[0].projections.input.weight
    x_BTD = torch.eye(D, dtype=torch.float64)[None]
    read_BT = torch.zeros(1, D, dtype=torch.bool)
    read_BT[0, [5, 9]] = True
    context = model.context(torch.zeros(1, D, dtype=torch.int64), phase="train")
    y_BTD, _ = mixer(x_BTD, context, None, read_BT)
    (y_BTD * torch.randn(D, D, generator=torch.Generator().manual_seed(2))).sum().backward()
    keys, values, queries = (part.abs().amax(0) > 0 for part in weight.grad.split(D))
    # Queries 5 and 9 see the positions up to their own, fired or not.
    assert keys.tolist() == values.tolist() == [j <= 9 for j in range(D)]
    assert queries.nonzero().flatten().tolist() == [5, 9]
    weight.grad = None
    y_BTD, _ = mixer(x_BTD, context, None, torch.zeros_like(read_BT))
    assert not y_BTD.any()
    y_BTD.sum().backward()
    assert not weight.grad.any()


def test_scale_and_output_matrix_learn_from_fired_positions_alone(build, tokens):
    model = build(amor(blocks=1))
    stack = model.stages[1].weight_sets[0][0]
    none = {"1.0.gate": torch.zeros_like(tokens)}
    loss_of(model, tokens, forced=none).objective.backward()
    assert all(p.grad is None or not p.grad.any() for p in stack.parameters())
    one = {"1.0.gate": torch.zeros_like(tokens).index_fill(1, torch.tensor([T - 1]), 1)}
    # Only the last position fires, so only its label can teach the block.
    deaf = tokens.clone()
    deaf[:, -1] = IGNORE
    model.zero_grad()
    loss_of(model, tokens, deaf, forced=one).objective.backward()
    assert all(not p.grad.any() for p in stack.parameters())
    model.zero_grad()
    loss_of(model, tokens, forced=one).objective.backward()
    assert stack.scale_raw_D.grad.any()
    assert stack.mixers[0].projections.output.weight.grad.any()


@pytest.mark.parametrize("momentum", [0.99, 0.3])
def test_a_training_pass_updates_first_and_thresholds_with_the_updated_statistics(build, tokens, momentum):
    model = build(amor(**{**PUBLISHED, "momentum": momentum}))
    seen = {}
    for site in model.routed_sites():
        site.register_forward_hook(
            lambda m, args, out: seen.update({m.name: (args[1].entropy(args[0]), out[0].choice_BT)})
        )
    loss_of(model, tokens)
    before = [(site.router.mu.item(), site.router.sigma.item()) for site in model.routed_sites()]
    assert before == [(pytest.approx(0.3), pytest.approx(0.1))] * 3
    model.after_step()
    for site in model.routed_sites():
        h_BT, choice_BT = seen[site.name]
        mu = momentum * 0.3 + (1 - momentum) * h_BT.flatten().sort().values[(h_BT.numel() - 1) // 2].item()
        sigma = momentum * 0.1 + (1 - momentum) * h_BT.std(correction=1).item()
        assert site.router.mu.item() == pytest.approx(mu, abs=1e-7)
        assert site.router.sigma.item() == pytest.approx(sigma, abs=1e-7)
        assert torch.equal(choice_BT, (h_BT > mu + 0.2 * sigma).long())
        if momentum < 0.9:
            # Here it shows that the old threshold would have chosen otherwise.
            assert not torch.equal(choice_BT, (h_BT > 0.3 + 0.2 * 0.1).long())


def test_a_recomputed_pass_takes_the_same_decisions_and_commits_nothing(build, tokens):
    model = build(amor(**PUBLISHED))
    taken = []
    for site in model.routed_sites():
        site.register_forward_hook(lambda m, args, out: taken.append(out[0].choice_BT) or None)
    loss_of(model, tokens)
    loss_of(model, tokens, recorder=Recorder(open=False))
    assert all(torch.equal(a, b) for a, b in zip(taken[:3], taken[3:], strict=True))
    model.after_step()
    once = [site.router.mu.item() for site in model.routed_sites()]
    assert [site.router.steps.item() for site in model.routed_sites()] == [1, 1, 1]
    alone = build(amor(**PUBLISHED))
    loss_of(alone, tokens)
    alone.after_step()
    assert [site.router.mu.item() for site in alone.routed_sites()] == once


@pytest.mark.parametrize("what", ["padded", "loss-masked"])
def test_tokens_that_are_padded_or_not_scored_do_not_move_the_threshold(build, tokens, what):
    def committed(tail):
        model, text = build(amor()), tokens.clone()
        text[:, 12:] = tail
        labels = text.clone()
        valid_BT = None
        if what == "padded":
            valid_BT = (torch.arange(T) < 12).expand(3, T)
        labels[:, 12:] = IGNORE
        loss_of(model, text, labels, valid_BT=valid_BT)
        model.after_step()
        return [(site.router.mu.item(), site.router.sigma.item()) for site in model.routed_sites()]

    assert committed(3) == committed(17)


class RowsOfScores(TorchDispatchMode):
    """Rows of every attention that is computed."""

    def __init__(self):
        super().__init__()
        self.queries = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        # Four dimensions tell attention's softmax from that of the entropy probe.
        if ("scaled_dot_product" in func.name() or "softmax" in func.name()) and args[0].dim() == 4:
            self.queries.append(args[0].shape[0])
        return out


def test_one_decode_batch_of_mixed_gates_computes_the_fired_rows_and_writes_all_into_the_reserved_cache(
    build, tokens
):
    model = build(amor())
    with torch.no_grad():
        state = model.init_state(3, slots=T)
        prompt = tokens[:, :6]
        _, state = model(prompt, model.context(prompt, state=state), state)
        places = {site: s["0.k"].data_ptr() for site, s in state.mixers.items() if "0.k" in s}
        assert len(places) == 3
        for t, fired in enumerate(([0, 2], [1], [], [0, 1, 2]), start=6):
            piece = tokens[:, t : t + 1]
            choice = torch.zeros(3, 1, dtype=torch.int64)
            choice[fired] = 1
            context = model.context(piece, phase="decode", state=state, forced=dict.fromkeys(SITES, choice))
            with RowsOfScores() as looked:
                _, state = model(piece, context, state)
            # Rows that do not lie side by side are computed apart, over views of the cache.
            assert sum(looked.queries) == len(fired) * 3
            for site, place in places.items():
                cache = state.mixers[site]
                assert cache["0.k"].data_ptr() == place
                assert (cache["0.k"][:, t].abs().flatten(1).sum(-1) > 0).all()
                assert (cache["0.v"][:, t].abs().flatten(1).sum(-1) > 0).all()
                assert cache["0.position"][:, t].tolist() == [t] * 3


def test_an_oracle_sees_labels_in_training_and_evaluation_and_other_routers_never_do(build, tokens):
    shown = []

    def look(model):
        for site in model.routed_sites():
            forward = site.router.forward
            site.router.forward = lambda h, c, s, f=forward: (shown.append(c.labels_BT), f(h, c, s))[1]
        return model

    labels = tokens.clone()
    labels[:, ::3] = IGNORE
    model = look(build(amor(router="oracle")))
    assert model.needs_labels
    _, taken = whole_pass(model, tokens, labels_BT=labels)
    assert torch.equal(taken["1.0.0.gate"], (labels != IGNORE).long())
    assert all(seen is not None for seen in shown)
    shown.clear()
    model = look(build(amor(router="learned")))
    assert not model.needs_labels
    loss_of(model, tokens, labels)
    assert shown == [None] * 3
