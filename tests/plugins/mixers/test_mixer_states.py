"""States: one structure from start to decode, sizes as the specs and the costs say, nothing changed behind one's back."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from crossbreed.core.ledger import Shape
from tests.plugins.mixers.helpers import (
    ALL,
    D_MODEL,
    PARTS,
    SEQUENCE,
    build,
    case,
    context,
    in_pieces,
    random_input,
    with_mode,
)


def structure(state: dict[str, torch.Tensor], slots: set[str]) -> dict[str, Any]:
    """Names, dtypes and shapes, without the slot axis."""
    return {
        name: (t.dtype, t.device, (t.shape[0], *t.shape[2:]) if name in slots else tuple(t.shape))
        for name, t in state.items()
    }


@pytest.mark.parametrize("key", SEQUENCE)
def test_structure_is_the_same_at_start_after_prefill_and_after_decode(key: str) -> None:
    mixer, x = case(key), random_input(2, 12)
    at = with_mode(mixer, context(2, 12))
    slots = {spec.name for spec in mixer.state_specs() if "slots" in spec.shape}
    start = mixer.init_state(2, dtype=x.dtype)
    with torch.no_grad():
        _, prefilled = mixer(x[:, :11], at.slice(0, 11), start)
        _, decoded = mixer(x[:, 11:], at.slice(11, 12).at(phase="decode"), prefilled)
    assert list(start) == [spec.name for spec in mixer.state_specs()]
    assert structure(start, slots) == structure(prefilled, slots) == structure(decoded, slots)


@pytest.mark.parametrize("tokens", [6, 64, 128])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("key", ALL)
def test_state_bytes_of_the_cost_are_those_of_the_real_state(key: str, dtype: str, tokens: int) -> None:
    name, params = ALL[key]
    mixer = case(key, dtype=getattr(torch, dtype))
    x = random_input(1, tokens).to(getattr(torch, dtype))
    state = mixer.init_state(1, slots=tokens, dtype=x.dtype)
    with torch.no_grad():
        _, after = in_pieces(mixer, x, with_mode(mixer, context(1, tokens)), [tokens // 2], state=state)
    cost = PARTS.factory("mixer", name).cost(
        PARTS.config("mixer", name, params), D_MODEL, Shape(1, tokens, dtype), 1, PARTS
    )
    # Scalars on the host are bookkeeping.
    measured = sum(t.numel() * t.element_size() for t in (after or {}).values() if t.dim())
    assert measured == cost.state_bytes


@pytest.mark.parametrize("key", SEQUENCE)
def test_with_gradients_the_given_state_never_changes(key: str) -> None:
    mixer, x = case(key), random_input(2, 20)
    at = with_mode(mixer, context(2, 20))
    _, state = mixer(x[:, :9], at.slice(0, 9), mixer.init_state(2, slots=20, dtype=x.dtype))
    before = {name: tensor.detach().clone() for name, tensor in state.items()}
    y, _ = mixer(x[:, 9:], at.slice(9, 20), state)
    y.sum().backward()
    for name, tensor in state.items():
        assert torch.equal(tensor, before[name])


@pytest.mark.parametrize("key", SEQUENCE)
def test_gradients_flow_through_the_state(key: str) -> None:
    mixer, x = case(key), random_input(1, 20)
    at = with_mode(mixer, context(1, 20))
    grads = []
    for cuts in ([], [6, 13]):
        leaf = x.clone().requires_grad_()
        y, _ = in_pieces(mixer, leaf, at, cuts)
        y.square().sum().backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-8, atol=1e-8)


def test_without_gradients_reserved_slots_are_written_in_place() -> None:
    mixer, x = case("attention"), random_input(1, 8)
    state = mixer.init_state(1, slots=8, dtype=x.dtype)
    with torch.no_grad():
        _, after = in_pieces(mixer, x, context(1, 8), [4, 7], state=state)
        _, grown = mixer(x[:, :1], context(1, 1, start=8, phase="decode"), after)
    assert after["0.k"].data_ptr() == state["0.k"].data_ptr()
    assert grown["0.k"].shape[1] == 12
    assert (state["0.length"], after["0.length"], grown["0.length"]) == (0, 8, 9)


def test_a_window_keeps_its_last_tokens_and_counts_all() -> None:
    mixer = case("attention windowed")
    x = random_input(2, 31)
    at = context(2, 31)
    whole, _ = mixer(x, at, None)
    with torch.no_grad():
        state, done = mixer.init_state(2, dtype=x.dtype), 0
        for size in (3, 7, 13, 1, 7):
            y, state = mixer(x[:, done : done + size], at.slice(done, done + size), state)
            torch.testing.assert_close(y, whole[:, done : done + size], rtol=0, atol=1e-10)
            done += size
            kept = state["0.position"][0][state["0.document"][0] >= 0].tolist()
            assert sorted(kept) == list(range(max(0, done - 7), done))
            assert state["0.k"].shape[1] <= 7
            assert state["0.length"] == done


@pytest.mark.parametrize("size", [3, 8, 13])
def test_a_window_of_8_holds_the_last_8_of_pieces_of_any_size(size: int) -> None:
    mixer = build("attention", {"heads": 2, "head_size": 8, "window": 8})
    x, at = random_input(1, 3 * size), context(1, 3 * size)
    whole, _ = mixer(x, at, None)
    with torch.no_grad():
        state = mixer.init_state(1, dtype=x.dtype)
        for done in range(0, 3 * size, size):
            y, state = mixer(x[:, done : done + size], at.slice(done, done + size), state)
            torch.testing.assert_close(y, whole[:, done : done + size], rtol=0, atol=1e-10)
            kept = state["0.position"][0][state["0.document"][0] >= 0].tolist()
            assert len(kept) == min(done + size, 8)
            assert sorted(kept) == list(range(max(0, done + size - 8), done + size))
            assert state["0.length"] == done + size


@pytest.mark.parametrize("key", ["attention", "attention windowed", "mamba2", "gated_deltanet", "multi tm"])
@pytest.mark.parametrize(("tokens", "cuts"), [(512, [200]), (128, list(range(64, 128)))])
def test_long_splits_agree_in_float32(key: str, tokens: int, cuts: list[int]) -> None:
    mixer, x = case(key, dtype=torch.float32), random_input(1, tokens).float()
    at = with_mode(mixer, context(1, tokens))
    with torch.no_grad():
        whole, _ = mixer(x, at, None)
        pieces, _ = in_pieces(mixer, x, at, cuts)
    assert float((whole - pieces).abs().max()) <= 1e-4 * float(whole.abs().max())


def test_a_row_that_pauses_keeps_its_window() -> None:
    # Row 1 is idle while row 0 decodes more tokens than the window holds, then goes on.
    mixer, x = case("attention windowed"), random_input(2, 40)
    with torch.no_grad():
        alone, _ = mixer(x[1:, :12], context(1, 12), None)
        _, state = mixer(x[:, :10], context(2, 10), mixer.init_state(2, dtype=x.dtype))
        busy = torch.tensor([[True], [False]])
        for t in range(10, 30):
            at = context(2, 1, start=t, phase="decode", valid_BT=busy)
            _, state = mixer(x[:, t : t + 1], at, state)
        for t in (10, 11):
            at = context(2, 1, phase="decode", valid_BT=~busy).at(positions_BT=torch.tensor([[t + 20], [t]]))
            y, state = mixer(x[:, t : t + 1], at, state)
            torch.testing.assert_close(y[1, 0], alone[0, t], rtol=0, atol=1e-10)
