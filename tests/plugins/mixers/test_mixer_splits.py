"""One forward for training, prefill in any pieces and decode: all give the same outputs."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.plugins.mixers.helpers import (
    CHANNEL,
    SEQUENCE,
    build,
    case,
    context,
    in_pieces,
    random_input,
    with_mode,
)

TOLERANCE = 1e-10


@pytest.mark.parametrize("key", [*SEQUENCE, *CHANNEL])
@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 65, 129])
def test_a_prefill_with_state_equals_the_forward_without(key: str, tokens: int) -> None:
    mixer, x = case(key), random_input(2, tokens)
    at = with_mode(mixer, context(2, tokens))
    whole, none = mixer(x, at, None)
    y, state = mixer(x, at, mixer.init_state(2, dtype=x.dtype))
    assert none is None
    torch.testing.assert_close(y, whole, rtol=0, atol=TOLERANCE)
    assert sorted(state) == sorted(spec.name for spec in mixer.state_specs())


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("key", SEQUENCE)
def test_any_split_equals_the_whole(key: str, grad: bool) -> None:
    tokens = 70
    mixer, x = case(key), random_input(2, tokens)
    at = with_mode(mixer, context(2, tokens))
    with torch.set_grad_enabled(grad):
        whole, _ = mixer(x, at, None)
        for cut in (1, 3, 4, 7, 8, 63, 64, 65, 69):
            split, _ = in_pieces(mixer, x, at, [cut])
            torch.testing.assert_close(split, whole, rtol=0, atol=TOLERANCE)
        for cuts in ([3, 11, 24], [1, 2, 3, 4, 5, 20, 69], list(range(1, tokens))):
            split, _ = in_pieces(mixer, x, at, cuts)
            torch.testing.assert_close(split, whole, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("size", [16, 24, 48, 96])
@pytest.mark.parametrize("name", ["attention", "mamba2", "gated_deltanet", "multi_mixer"])
def test_head_sizes_need_not_be_powers_of_two(name: str, size: int) -> None:
    sizes = {
        "attention": {"head_size": size},
        "mamba2": {"head_size": size, "state_size": size},
        "gated_deltanet": {"key_size": size, "value_size": size},
        "multi_mixer": {"head_size": size},
    }
    mixer, x = build(name, {"heads": 2, **sizes[name]}, scale=3.0), random_input(1, 37)
    at = with_mode(mixer, context(1, 37))
    with torch.no_grad():
        whole, _ = mixer(x, at, None)
        split, _ = in_pieces(mixer, x, at, [5, 35, 36])
    torch.testing.assert_close(split, whole, rtol=0, atol=1e-9)


@pytest.mark.parametrize("key", SEQUENCE)
def test_ragged_pieces_equal_each_row_alone(key: str) -> None:
    lengths, tokens = [13, 4, 0, 9], 13
    mixer = case(key)
    x, more = random_input(4, tokens), random_input(4, 6, seed=2)
    positions = torch.arange(tokens).expand(4, tokens)
    valid = positions < torch.tensor(lengths)[:, None]
    at = with_mode(mixer, context(4, tokens, valid_BT=valid))
    # A second piece continues each row where it stopped, ragged again; the third row only starts in it.
    more_lengths = torch.tensor([2, 6, 5, 0])
    later = context(4, 6).at(
        positions_BT=torch.tensor(lengths)[:, None] + torch.arange(6),
        valid_BT=torch.arange(6) < more_lengths[:, None],
    )
    later = with_mode(mixer, later, seed=9)
    with torch.no_grad():
        first, state = mixer(x, at, mixer.init_state(4, dtype=x.dtype))
        second, state = mixer(more, later, state)
        assert not first[~valid].any()
        assert not second[~later.valid_BT].any()
        for row, (a, b) in enumerate(zip(lengths, more_lengths.tolist(), strict=True)):
            alone = torch.cat((x[row : row + 1, :a], more[row : row + 1, :b]), 1)
            own = context(1, a + b)
            if at.mode is not None and later.mode is not None:
                choice = torch.cat((at.mode.choice_BT[row, :a], later.mode.choice_BT[row, :b]))
                own = own.at(mode=type(at.mode)(choice[None]))
            y, _ = mixer(alone, own, None)
            ragged = torch.cat((first[row, :a], second[row, :b]))
            torch.testing.assert_close(ragged, y[0], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("key", SEQUENCE)
def test_packed_documents_stay_apart(key: str) -> None:
    tokens, starts = 40, [9, 10, 27]
    mixer, x = case(key), random_input(2, tokens)
    at = with_mode(mixer, context(2, tokens, starts=starts))
    apart = []
    for start, stop in itertools.pairwise([0, *starts, tokens]):
        y, _ = mixer(x[:, start:stop], at.slice(start, stop).at(document_BT=None), None)
        apart.append(y)
    whole, _ = mixer(x, at, None)
    torch.testing.assert_close(whole, torch.cat(apart, 1), rtol=0, atol=TOLERANCE)
    with torch.no_grad():
        for cuts in ([4], [9], [10], [11], [26], [28], [3, 12, 30], list(range(1, tokens))):
            split, _ = in_pieces(mixer, x, at, cuts)
            torch.testing.assert_close(split, whole.detach(), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("key", SEQUENCE)
def test_a_state_of_an_earlier_sequence_is_forgotten_at_position_zero(key: str) -> None:
    mixer, x, other = case(key), random_input(2, 12), random_input(2, 17, seed=5)
    at = with_mode(mixer, context(2, 12))
    with torch.no_grad():
        fresh, _ = mixer(x, at, None)
        _, used = mixer(other, with_mode(mixer, context(2, 17)), mixer.init_state(2, dtype=x.dtype))
        for cuts in ([], [1], [5], list(range(1, 12))):
            y, _ = in_pieces(mixer, x, at, cuts, state=used)
            torch.testing.assert_close(y, fresh, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("key", SEQUENCE)
def test_outputs_do_not_depend_on_later_tokens(key: str) -> None:
    tokens = 64
    mixer, x = case(key), random_input(1, tokens)
    at = with_mode(mixer, context(1, tokens))
    with torch.no_grad():
        before, _ = mixer(x, at, None)
        for prefix in (1, 3, 7, 15, 31, 32, 63):
            changed = torch.cat((x[:, :prefix], random_input(1, tokens - prefix, seed=prefix)), 1)
            after, _ = mixer(changed, at, None)
            torch.testing.assert_close(after[:, :prefix], before[:, :prefix], rtol=0, atol=1e-13)
            assert (after[:, prefix] - before[:, prefix]).abs().max() > 1e-6
