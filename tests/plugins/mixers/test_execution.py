"""Computing all and masking, or only what is read: equal results, and work that falls with what is read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import State
from crossbreed.core.contracts.router import Decision
from tests.plugins.mixers.helpers import SEQUENCE, build, case, context, random_input, with_mode

B, T = 3, 27
CUTS = [9, 10, 11, 20]


def masks() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    ragged = torch.rand(B, T, generator=generator) < torch.tensor([[0.1], [0.4], [0.7]])
    one_row_off = torch.ones(B, T, dtype=torch.bool)
    one_row_off[1] = False
    one_token = torch.zeros(B, T, dtype=torch.bool)
    one_token[2, 13] = True
    return {
        "ragged": ragged,
        "one row off": one_row_off,
        "one token": one_token,
        "off": torch.zeros(B, T, dtype=torch.bool),
        "on": torch.ones(B, T, dtype=torch.bool),
    }


LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "packed": {"starts": [4, 12, 13, 22]},
    "ragged": {"valid_BT": torch.arange(T) < torch.tensor([[27], [9], [0]])},
}


def run(
    mixer: Any, x: Tensor, at: Context, read: Tensor, execution: str, cuts: list[int]
) -> tuple[Tensor, State]:
    """Pieces between ``cuts``, those of one token in decode."""
    at = at.at(execution=execution)
    state = mixer.init_state(len(x), dtype=x.dtype)
    outputs = []
    for start, stop in zip([0, *cuts], [*cuts, T], strict=True):
        piece = at.slice(start, stop)
        piece = piece.at(phase="decode") if stop - start == 1 else piece
        y, state = mixer(x[:, start:stop], piece, state, read[:, start:stop])
        outputs.append(y)
    return torch.cat(outputs, 1), state


@pytest.mark.parametrize("cuts", [[], CUTS], ids=["whole", "pieces"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("key", SEQUENCE)
@torch.no_grad()
def test_dense_sparse_and_auto_agree(key: str, layout: str, cuts: list[int]) -> None:
    mixer, x = case(key), random_input(B, T)
    at = with_mode(mixer, context(B, T, **LAYOUTS[layout]))
    for name, read in masks().items():
        dense, state = run(mixer, x, at, read, "dense", cuts)
        for execution in ("sparse", "auto"):
            y, after = run(mixer, x, at, read, execution, cuts)
            torch.testing.assert_close(y, dense, rtol=0, atol=1e-11, msg=f"{name}, {execution}")
            assert state.keys() == after.keys()
            for tensor in state:
                torch.testing.assert_close(after[tensor], state[tensor], rtol=0, atol=1e-12)


@pytest.mark.parametrize("key", SEQUENCE)
def test_gradients_of_a_prompt_agree(key: str) -> None:
    mixer, read = case(key), masks()["ragged"]
    gradients = []
    for execution in ("dense", "sparse"):
        x = random_input(B, T).requires_grad_()
        mixer.zero_grad()
        y, _ = mixer(x, with_mode(mixer, context(B, T, execution=execution)), None, read)
        y.square().sum().backward()
        gradients.append([x.grad, *(p.grad for p in mixer.parameters())])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


def flops(mixer: Any, read: Tensor, *, mode: int = 0, **fields: Any) -> int:
    at = context(*read.shape, **fields).at(mode=Decision(torch.full(read.shape, mode)))
    x = random_input(*read.shape).to(next(mixer.parameters()).dtype)
    with FlopCounterMode(display=False) as counter:
        mixer(x, at, None, read)
    return counter.get_total_flops()


def every(step: int, tokens: int = 64) -> Tensor:
    return (torch.arange(tokens) % step == step - 1).expand(1, tokens)


@pytest.mark.parametrize("key", SEQUENCE)
def test_prefill_issues_less_the_less_is_read_and_dense_always_the_same(key: str) -> None:
    mixer = case(key)
    issued = {step: flops(mixer, every(step)) for step in (1, 2, 4, 16)}
    assert issued[1] > issued[2] > issued[4] > issued[16]
    dense = [flops(mixer, every(step), execution="dense") for step in (1, 16)]
    assert dense[0] == dense[1] >= issued[1]


@pytest.mark.parametrize("key", SEQUENCE)
def test_training_computes_everything_whatever_the_execution(key: str) -> None:
    mixer = case(key)
    whole = flops(mixer, every(1), phase="train")
    assert flops(mixer, every(4), phase="train", execution="sparse") == whole


def on_device(at: Context) -> Context:
    names = ("positions_BT", "row_id_B", "document_BT", "valid_BT")
    given = {name: getattr(at, name) for name in names}
    moved = {name: None if tensor is None else tensor.cuda() for name, tensor in given.items()}
    return at.at(**moved, mode=None if at.mode is None else Decision(at.mode.choice_BT.cuda()))


@pytest.mark.gpu
@pytest.mark.parametrize("key", ["attention", "attention windowed", "multi tm", "multi tg"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_training_on_a_device_gives_the_same_whether_scores_are_skipped_or_masked(
    key: str, layout: str
) -> None:
    mixer = case(key).to("cuda", torch.float32)
    found = []
    for execution in ("dense", "auto"):
        x = random_input(B, T).float().cuda().requires_grad_()
        mixer.zero_grad()
        at = on_device(with_mode(mixer, context(B, T, phase="train", execution=execution, **LAYOUTS[layout])))
        with torch.autocast("cuda", torch.bfloat16):
            y, _ = mixer(x, at, None, masks()["ragged"].cuda())
        y.float().square().sum().backward()
        found.append([y, x.grad, *(p.grad for p in mixer.parameters())])
    for dense, skipped in zip(*found, strict=True):
        assert (dense.float() - skipped.float()).norm() <= 0.02 * dense.float().norm() + 1e-6


@pytest.mark.gpu
@pytest.mark.parametrize("key", ["attention", "attention windowed", "multi tm", "multi tg"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_prefill_on_a_device_gives_the_same_whether_scores_are_skipped_or_masked(
    key: str, layout: str
) -> None:
    mixer = case(key).to("cuda", torch.float32)
    x, found = random_input(B, T).float().cuda(), []
    for execution in ("dense", "sparse"):
        at = on_device(
            with_mode(mixer, context(B, T, phase="prefill", execution=execution, **LAYOUTS[layout]))
        )
        state = mixer.init_state(B, slots=T, device="cuda")
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
            y, after = mixer(x, at, state, masks()["ragged"].cuda())
        found.append([y, *(tensor for _, tensor in sorted(after.items()))])
    for dense, sparse in zip(*found, strict=True):
        assert (dense.double() - sparse.double()).norm() <= 0.02 * dense.double().norm() + 1e-6


def test_queries_gate_and_scores_of_unread_tokens_are_not_issued() -> None:
    heads, size, D, tokens = 2, 8, 12, 64
    mixer = build("attention", {"heads": heads, "head_size": size, "gate": True}, scale=1.0)
    written, read_by = 2 * D * 2 * heads * size, 3 * 2 * D * heads * size
    # Scores and weighted values are one fused operation, which this counter sees only on other devices.
    assert flops(mixer, every(4)) == tokens * written + tokens // 4 * read_by


def test_only_the_chosen_reader_is_computed_for_a_token_of_a_prompt() -> None:
    mixer = build("multi_mixer", {"heads": 2, "head_size": 64, "readers": ["mamba2", "attention"]})
    everywhere, nowhere = every(1), torch.zeros(1, 64, dtype=torch.bool)
    by_mode = [flops(mixer, everywhere, mode=mode) for mode in (0, 1)]
    queries, out = 2 * 12 * 128, 2 * 2 * 12 * 128
    written = flops(mixer, nowhere)
    assert by_mode[0] == written + 64 * (queries + out)
    assert by_mode[1] == written + 64 * (queries + out)


class Widths:
    """How many queries each call of the attention operation is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from crossbreed.plugins.mixers import softmax_reader

        self.seen: list[int] = []
        real = softmax_reader.attention

        def attention(q: Tensor, *args: Any, **which: Any) -> Tensor:
            self.seen.append(q.shape[1])
            return real(q, *args, **which)

        monkeypatch.setattr(softmax_reader, "attention", attention)


@pytest.mark.parametrize(
    ("execution", "step", "widths"),
    [("auto", 4, [16]), ("auto", 2, [32]), ("sparse", 2, [32]), ("dense", 4, [64])],
)
def test_attention_gets_the_queries_that_are_read(
    monkeypatch: pytest.MonkeyPatch, execution: str, step: int, widths: list[int]
) -> None:
    mixer, calls = case("attention"), Widths(monkeypatch)
    flops(mixer, every(step), execution=execution)
    assert calls.seen == widths


@pytest.mark.parametrize(
    ("key", "fields", "widths"),
    [("attention", {}, [64]), ("attention windowed", {}, [48]), ("attention", {"starts": [5]}, [48])],
)
def test_auto_leaves_most_of_a_causal_piece_to_the_causal_kernel(
    monkeypatch: pytest.MonkeyPatch, key: str, fields: dict[str, Any], widths: list[int]
) -> None:
    """Three quarters read: only the kernel of a whole causal piece skips scores by itself."""
    mixer, calls = case(key), Widths(monkeypatch)
    flops(mixer, ~every(4), **fields)
    assert calls.seen == widths
    calls.seen.clear()
    flops(mixer, ~every(4), execution="sparse", **fields)
    assert calls.seen == [48]


def test_rows_side_by_side_share_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    mixer, calls = case("attention"), Widths(monkeypatch)
    read = torch.zeros(5, 8, dtype=torch.bool)
    read[0, :2] = read[1, 3] = read[4, 7] = True
    flops(mixer, read)
    assert calls.seen == [2, 2]
