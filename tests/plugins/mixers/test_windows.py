"""Attention through a window over long pieces: block by block what it is at once, and in memory that grows with T x window."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from crossbreed.core.ops.attention import attention_reference
from crossbreed.plugins.mixers import accounting, softmax_reader
from tests.plugins.mixers.helpers import build, context, in_pieces, random_input

WINDOW = 7
LAYOUTS = {"one document": {}, "packed": {"starts": [5, 23, 24, 50]}}
CASES = {
    "plain": {"heads": 2, "head_size": 8},
    "grouped, normed": {"heads": 4, "kv_heads": 2, "head_size": 6, "qk_norm": True, "gate": True},
    "to the strongest": {"heads": 4, "kv_heads": 2, "head_size": 6, "top_k": 3},
    "no trace": {"heads": 2, "head_size": 8, "writes": "when_read"},
}


def reads(tokens: int) -> dict[str, torch.Tensor | None]:
    random = torch.Generator().manual_seed(4)
    few = torch.rand(2, tokens, generator=random) < 0.2
    few[1, : tokens // 2] = False
    return {"all": None, "few": few, "most": torch.rand(2, tokens, generator=random) < 0.9}


@pytest.mark.parametrize("tokens", [1, 8, 9, 63, 65])
@pytest.mark.parametrize("read", ["all", "few", "most"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CASES)
def test_blocks_give_what_the_whole_piece_gives(monkeypatch, name, layout, read, tokens):
    mixer, x = build("attention", {**CASES[name], "window": WINDOW}), random_input(2, tokens)
    starts = [at for at in LAYOUTS[layout].get("starts", []) if at < tokens] or None
    at = context(2, tokens, starts=starts)
    found = []
    for block in (tokens, 8):
        monkeypatch.setattr(accounting, "QUERIES", block)
        found.append(mixer(x, at, mixer.init_state(2, dtype=x.dtype), reads(tokens)[read]))
    (wanted, state), (got, after) = found
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)
    assert all(torch.equal(state[key], after[key]) for key in state)


@pytest.mark.parametrize("cuts", [[1, 2], [20], [40, 41], [9, 18, 27, 60], [64]])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["plain", "to the strongest"])
def test_pieces_of_any_lengths_give_what_one_block_gives(monkeypatch, name, layout, cuts):
    mixer, x = build("attention", {**CASES[name], "window": WINDOW}), random_input(2, 65)
    at = context(2, 65, **LAYOUTS[layout])
    monkeypatch.setattr(accounting, "QUERIES", 65)
    wanted, _ = mixer(x, at, None)
    monkeypatch.setattr(accounting, "QUERIES", 8)
    got, _ = in_pieces(mixer, x, at, cuts)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_gradients_of_blocks_are_those_of_the_whole_piece(monkeypatch):
    mixer, found = build("attention", {**CASES["grouped, normed"], "window": WINDOW}), []
    for block in (65, 8):
        monkeypatch.setattr(accounting, "QUERIES", block)
        mixer.zero_grad()
        x = random_input(2, 65).requires_grad_()
        y, _ = mixer(x, context(2, 65, phase="train"), None, reads(65)["most"])
        (y * random_input(2, 65, seed=9)).sum().backward()
        found.append([y, x.grad, *(p.grad.clone() for p in mixer.parameters())])
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("tokens", [1, 63, 65, 700])
def test_a_reader_sees_its_window_and_nothing_else(tokens):
    """Against the formula, with as many queries a block as always."""
    mixer = build("attention", {"heads": 2, "head_size": 8, "window": WINDOW, "rope_fraction": 0.0})
    (reader,) = mixer.readers
    q, k, v = (random_input(2, tokens, 16, seed).view(2, tokens, 2, 8) for seed in (1, 2, 3))
    got, _ = reader(q, k, v, random_input(2, tokens), context(2, tokens), None)
    torch.testing.assert_close(got, attention_reference(q, k, v, window=WINDOW), rtol=0, atol=1e-12)


class Largest(TorchDispatchMode):
    """Numbers of the largest tensor that an operation makes."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, tuple | list) else (found,):
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("earlier", [0, 100])
@pytest.mark.parametrize("read", ["all", "few", "most"])
def test_a_long_piece_makes_nothing_that_grows_with_the_square_of_its_tokens(layout, earlier, read):
    heads, window, tokens = 2, 64, 4096
    mixer = build("attention", {"heads": heads, "head_size": 8, "window": window})
    state, x = mixer.init_state(2, dtype=torch.float64), random_input(2, tokens)
    largest = {}
    for length in (tokens // 2, tokens):
        state = mixer.init_state(2, dtype=torch.float64)
        with torch.no_grad():
            if earlier:
                _, state = mixer(random_input(2, earlier), context(2, earlier), state)
            starts = LAYOUTS[layout].get("starts")
            at = context(2, length, start=0 if starts else earlier, starts=starts)
            with Largest() as seen:
                mixer(x[:, :length], at, state, reads(length)[read])
        largest[length] = seen.numbers
    assert largest[tokens] <= 2 * heads * tokens * (accounting.QUERIES + window)
    assert largest[tokens] <= 2.1 * largest[tokens // 2]
    assert softmax_reader.window_block(window) < tokens


@pytest.mark.parametrize(
    ("tokens", "window"), [(5, None), (30, 7), (8, 7), (9, 7), (65, 20), (64, 64), (129, 64)]
)
def test_keys_that_are_issued_are_counted(monkeypatch, tokens, window):
    monkeypatch.setattr(accounting, "QUERIES", 8)
    size = tokens if window is None else max(window, 8)
    total = 0
    for first in range(0, tokens, size):
        last = min(first + size, tokens)
        reached = last if window is None else last - max(0, first - window + 1)
        total += (last - first) * reached
    assert accounting.keys_issued(tokens, window) == pytest.approx(total / tokens)
