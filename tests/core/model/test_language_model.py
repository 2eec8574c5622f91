"""Properties every model must have, whatever its genome: splits, causality, raggedness, documents, training."""

from __future__ import annotations

import copy
import random

import pytest
import torch

from crossbreed.core.contracts.task import IGNORE, Batch
from crossbreed.core.genome import digest
from crossbreed.core.model.language_model import LanguageModel
from tests.support.genomes import GENOMES, SWIGLU, architecture, block
from tests.support.passes import pieces, whole_pass

ALL = pytest.mark.parametrize("name", GENOMES)


@ALL
@pytest.mark.parametrize("sizes", [[19], [1] * 19, [3, 1, 4, 1, 5, 5], [16, 3], [7, 12]])
def test_any_split_equals_the_whole_with_the_same_decisions(build, tokens, name, sizes):
    model = build(GENOMES[name])
    expected, taken = whole_pass(model, tokens)
    with torch.no_grad():
        actual, _ = pieces(model, tokens, sizes, taken)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-9)


@ALL
def test_splits_agree_when_running_free(build, tokens, name):
    model = build(GENOMES[name])
    expected, _ = whole_pass(model, tokens)
    with torch.no_grad():
        actual, _ = pieces(model, tokens, [5, 1, 1, 9, 3])
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-9)


@ALL
def test_splits_agree_with_gradients_on_and_leave_the_given_state_alone(build, tokens, name):
    model = build(GENOMES[name])
    expected, taken = whole_pass(model, tokens)
    first = {site: choice[:, :8] for site, choice in taken.items()}
    rest = {site: choice[:, 8:] for site, choice in taken.items()}
    _, state = model(tokens[:, :8], model.context(tokens[:, :8], forced=first), model.init_state(3))
    kept = copy.deepcopy([{n: t.detach().clone() for n, t in s.items()} for s in state.mixers.values()])
    at = model.context(tokens[:, 8:], state=state, forced=rest)
    once, _ = model(tokens[:, 8:], at, state)
    again, _ = model(tokens[:, 8:], at, state)
    torch.testing.assert_close(once, expected[:, 8:], rtol=0, atol=1e-9)
    torch.testing.assert_close(again, once, rtol=0, atol=0)
    for before, after in zip(kept, state.mixers.values(), strict=True):
        for key, tensor in before.items():
            assert torch.equal(tensor, after[key].detach())


@ALL
@pytest.mark.parametrize("prefix", [1, 4, 7, 16])
def test_no_output_depends_on_a_later_token(build, tokens, name, prefix):
    model = build(GENOMES[name])
    expected, _ = whole_pass(model, tokens)
    changed = tokens.clone()
    changed[:, prefix:] = (changed[:, prefix:] + 5) % 23
    actual, _ = whole_pass(model, changed)
    torch.testing.assert_close(actual[:, :prefix], expected[:, :prefix], rtol=0, atol=1e-11)
    assert (actual[:, prefix:] - expected[:, prefix:]).abs().max() > 1e-3


@ALL
def test_rows_do_not_see_each_other(build, tokens, name):
    model = build(GENOMES[name])
    expected, _ = whole_pass(model, tokens)
    alone, _ = whole_pass(model, tokens[1:2], rows_B=torch.tensor([1]))
    torch.testing.assert_close(alone, expected[1:2], rtol=0, atol=1e-11)


@ALL
def test_ragged_pieces_equal_rows_run_apart(build, tokens, name):
    model = build(GENOMES[name])
    expected, taken = whole_pass(model, tokens)
    lengths = [[9, 4, 0], [6, 9, 9], [4, 6, 10]]
    rows = [[] for _ in range(3)]
    at_B = [0, 0, 0]
    state = model.init_state(3)
    for piece in lengths:
        width = max(piece)
        valid_BT = torch.arange(width) < torch.tensor(piece)[:, None]
        tokens_BT = torch.zeros(3, width, dtype=torch.int64)
        forced = {site: torch.zeros(3, width, dtype=torch.int64) for site in taken}
        for b, n in enumerate(piece):
            tokens_BT[b, :n] = tokens[b, at_B[b] : at_B[b] + n]
            for site, choice in taken.items():
                forced[site][b, :n] = choice[b, at_B[b] : at_B[b] + n]
        with torch.no_grad():
            context = model.context(tokens_BT, valid_BT=valid_BT, state=state, forced=forced)
            h_BTD, state = model(tokens_BT, context, state)
        for b, n in enumerate(piece):
            rows[b].append(h_BTD[b, :n])
            at_B[b] += n
    for b, parts in enumerate(rows):
        got = torch.cat(parts)
        torch.testing.assert_close(got, expected[b, : len(got)], rtol=0, atol=1e-9)
    assert state.position_B.tolist() == at_B


# A random router's counter holds the document number, so it draws anew for each document by design.
@pytest.mark.parametrize("name", [name for name in GENOMES if "random" not in name])
def test_packed_documents_equal_documents_run_apart(build, tokens, name):
    model = build(GENOMES[name])
    document_BT = torch.tensor([[0] * 7 + [1] * 12, [0] * 1 + [1] * 9 + [2] * 9, [0] * 19])
    packed, _ = whole_pass(model, tokens, document_BT=document_BT)
    for b in range(3):
        for d in document_BT[b].unique().tolist():
            inside = document_BT[b] == d
            alone, _ = whole_pass(model, tokens[b : b + 1, inside], rows_B=torch.tensor([b]))
            torch.testing.assert_close(packed[b, inside], alone[0], rtol=0, atol=1e-9)


@ALL
def test_packed_documents_split_like_any_row(build, tokens, name):
    model = build(GENOMES[name])
    document_BT = torch.tensor([[0] * 7 + [1] * 12, [0] * 1 + [1] * 9 + [2] * 9, [0] * 19])
    expected, taken = whole_pass(model, tokens, document_BT=document_BT)
    whole = model.context(tokens, document_BT=document_BT, forced=taken)
    state = model.init_state(3)
    outputs = []
    with torch.no_grad():
        for start, stop in [(0, 5), (5, 8), (8, 9), (9, 19)]:
            h_BTD, state = model(tokens[:, start:stop], whole.slice(start, stop), state)
            outputs.append(h_BTD)
    torch.testing.assert_close(torch.cat(outputs, dim=1), expected, rtol=0, atol=1e-9)


@ALL
def test_state_keeps_its_structure_and_dtypes(build, tokens, name):
    model = build(GENOMES[name])

    def structure(state):
        return {
            (site, key): (tensor.dtype, tensor.dim())
            for group in (state.mixers, state.routers)
            for site, tensors in group.items()
            for key, tensor in tensors.items()
        }

    with torch.no_grad():
        _, prefilled = pieces(model, tokens, [19])
        _, decoded = pieces(model, tokens, [1] * 19)
    assert structure(prefilled) == structure(decoded) == structure(model.init_state(3))


@ALL
def test_a_training_step_reaches_every_parameter_and_is_finite(build, tokens, name):
    model = build(GENOMES[name])
    labels_BT = tokens.roll(-1, 1)
    labels_BT[:, -1] = IGNORE
    reached = {n: torch.zeros(()) for n, _ in model.named_parameters()}
    for step in range(6):
        context = model.context(tokens, phase="train", step=step, labels_BT=labels_BT)
        loss = model.loss(Batch(tokens, labels_BT), context)
        model.zero_grad()
        loss.objective.backward()
        model.after_step()
        assert torch.isfinite(loss.objective)
        for n, parameter in model.named_parameters():
            if parameter.grad is not None:
                assert torch.isfinite(parameter.grad).all(), n
                reached[n] += parameter.grad.abs().sum()
    assert [n for n, total in reached.items() if total == 0] == []


def test_loss_is_cross_entropy_over_labelled_positions(build, tokens):
    model = build(GENOMES["transformer"])
    labels_BT = tokens.roll(-1, 1)
    labels_BT[:, ::3] = IGNORE
    h_BTD, _ = model(tokens, model.context(tokens))
    logits = model.logits(h_BTD).reshape(-1, 23)
    loss = model.loss(Batch(tokens, labels_BT), model.context(tokens, labels_BT=labels_BT))
    expected = torch.nn.functional.cross_entropy(logits, labels_BT.reshape(-1))
    torch.testing.assert_close(loss.objective, expected)
    assert int(loss.scored) == int((labels_BT != IGNORE).sum())
    picked = logits.argmax(-1) == labels_BT.reshape(-1)
    assert int(loss.correct) == int(picked.sum())


@ALL
def test_equal_seeds_give_equal_weights_and_leave_the_global_generator_alone(builtins, name):
    torch.manual_seed(123)
    expected_next = torch.rand(3)
    torch.manual_seed(123)
    first = LanguageModel(GENOMES[name], builtins, seed=5)
    assert torch.equal(torch.rand(3), expected_next)
    torch.manual_seed(random.randrange(1000))
    second = LanguageModel(GENOMES[name], builtins, seed=5)
    other = LanguageModel(GENOMES[name], builtins, seed=6)
    for (n, a), (_, b) in zip(first.state_dict().items(), second.state_dict().items(), strict=True):
        assert torch.equal(a, b), n
    assert not torch.equal(first.embedding.weight, other.embedding.weight)


@ALL
def test_a_meta_model_has_the_same_parameters(builtins, name):
    real = LanguageModel(GENOMES[name], builtins)
    with torch.device("meta"):
        meta = LanguageModel(GENOMES[name], builtins)
    assert {n: p.shape for n, p in meta.named_parameters()} == {
        n: p.shape for n, p in real.named_parameters()
    }
    assert all(p.is_meta for p in meta.parameters())


@ALL
def test_decay_groups_cover_every_parameter_once_and_survive_deepcopy(builtins, name):
    model = LanguageModel(GENOMES[name], builtins)
    groups = model.parameter_groups(0.1)
    ids = [id(p) for group in groups for p in group["params"]]
    assert sorted(ids) == sorted(id(p) for p in model.parameters())
    spared = {n for n, p in model.named_parameters() if any(p is q for q in groups[1]["params"])}
    assert all(n in spared for n, p in model.named_parameters() if p.dim() < 2)
    twin = copy.deepcopy(model)
    twin_groups = twin.parameter_groups(0.1)
    assert {n for n, p in twin.named_parameters() if any(p is q for q in twin_groups[1]["params"])} == spared


def test_mamba_decay_and_step_parameters_are_spared_weight_decay(builtins):
    model = LanguageModel(GENOMES["mamba2"], builtins)
    spared = {id(p) for p in model.parameter_groups(0.1)[1]["params"]}
    names = [n for n, p in model.named_parameters() if id(p) in spared]
    assert any("A_log" in n for n in names)
    assert any("dt_bias" in n for n in names)


def test_output_init_touches_only_matrices_that_write_into_the_stream(builtins):
    from tests.support.genomes import ATTENTION, SWIGLU, architecture, block

    def model(first, second):
        # Blocks of unequal norms stay two when they are initialised alike.
        blocks = [block(ATTENTION, output_init=first), block(SWIGLU, output_init=second, norm_eps=1e-5)]
        return LanguageModel(architecture({"blocks": blocks}), builtins)

    plain, scaled = model("normal", "normal"), model("zero", "depth_scaled")
    names = [[name for name, _ in of.named_parameters()] for of in (plain, scaled)]
    assert names[0] == names[1]
    changed = {
        n: (b / a).nanmean().item()
        for (n, a), (_, b) in zip(plain.named_parameters(), scaled.named_parameters(), strict=True)
        if not torch.equal(a, b)
    }
    assert len(changed) == 2
    assert sorted(round(v, 4) for v in changed.values()) == [0.0, round(2**-0.5, 4)]


def test_reserved_room_does_not_change_results_and_resets_forget(build, tokens):
    model = build(GENOMES["fused"])
    with torch.no_grad():
        reserved, _ = model(tokens, model.context(tokens), model.init_state(3, slots=19))
        grown, _ = model(tokens, model.context(tokens), model.init_state(3))
    assert torch.equal(reserved, grown)


def test_selected_rows_go_on_as_if_alone(build, tokens):
    model = build(GENOMES["amor"])
    expected, taken = whole_pass(model, tokens)
    cut = {site: choice[:, :9] for site, choice in taken.items()}
    with torch.no_grad():
        _, state = model(tokens[:, :9], model.context(tokens[:, :9], forced=cut), model.init_state(3))
        rows = torch.tensor([2, 0])
        rest = {site: choice[rows, 9:] for site, choice in taken.items()}
        picked = state.select(rows)
        at = model.context(tokens[rows, 9:], state=picked, rows_B=rows, forced=rest)
        h_BTD, _ = model(tokens[rows, 9:], at, picked)
    torch.testing.assert_close(h_BTD, expected[rows, 9:], rtol=0, atol=1e-9)


def test_every_norm_takes_its_own_epsilon(build, builtins, tokens):
    plain = {"blocks": [block(SWIGLU)], "entry_norm": True}
    eps = {"norm_eps": 0.5}
    changed = [
        architecture(plain, **eps),
        architecture({**plain, **eps}),
        architecture({**plain, "blocks": [block(SWIGLU, **eps)]}),
    ]
    models = [build(each) for each in (architecture(plain), *changed)]
    outputs = [whole_pass(model, tokens)[0] for model in models]
    assert all((a - b).abs().max() > 1e-3 for i, a in enumerate(outputs) for b in outputs[:i])
    # Without the norm its epsilon says nothing, and the architecture is the same.
    bare = [
        architecture({"blocks": [block(SWIGLU, norm="none", **e)], **e}, final_norm=False, **e)
        for e in ({}, eps)
    ]
    assert len({digest(builtins.canonical(each)) for each in bare}) == 1
