"""Write always, read where chosen: unread tokens give zeros, and are written all the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from crossbreed.core.contracts.router import Decision
from crossbreed.core.errors import ConfigError
from tests.plugins.mixers.helpers import (
    ALL,
    SEQUENCE,
    build,
    case,
    context,
    in_pieces,
    random_input,
    with_mode,
)


def random_mask(batch: int, tokens: int) -> torch.Tensor:
    return torch.rand(batch, tokens, generator=torch.Generator().manual_seed(7)) < 0.5


@pytest.mark.parametrize("phase", ["train", "prefill"])
@pytest.mark.parametrize("key", ALL)
def test_y_is_zero_where_not_read_and_unchanged_elsewhere(key: str, phase: str) -> None:
    mixer, x, read = case(key), random_input(3, 20), random_mask(3, 20)
    at = with_mode(mixer, context(3, 20, phase=phase))
    everything, _ = mixer(x, at, None)
    y, _ = mixer(x, at, None, read)
    assert not y[~read].any()
    torch.testing.assert_close(y[read], everything[read], rtol=0, atol=1e-12)


@pytest.mark.parametrize("key", ALL)
def test_an_unread_prompt_is_seen_by_later_tokens(key: str) -> None:
    mixer, x = case(key), random_input(3, 30)
    at = with_mode(mixer, context(3, 30))
    read = torch.zeros(3, 20, dtype=torch.bool)
    with torch.no_grad():
        whole, _ = mixer(x, at, None)
        first, state = mixer(x[:, :20], at.slice(0, 20), mixer.init_state(3, dtype=x.dtype), read)
        assert not first.any()
        rest, _ = in_pieces(mixer, x[:, 20:], at.slice(20, 30), [1, 2, 6], state=state)
    torch.testing.assert_close(rest, whole[:, 20:], rtol=0, atol=1e-10)


@pytest.mark.parametrize("key", ALL)
@pytest.mark.parametrize("rows", [[], [1], [0, 2], [0, 1, 2]])
def test_decode_reads_some_rows_and_writes_all(key: str, rows: list[int]) -> None:
    mixer, x = case(key), random_input(3, 14)
    at = with_mode(mixer, context(3, 14))
    with torch.no_grad():
        whole, _ = mixer(x, at, None)
        _, state = mixer(x[:, :9], at.slice(0, 9), mixer.init_state(3, dtype=x.dtype))
        for t in range(9, 14):
            read = torch.zeros(3, 1, dtype=torch.bool)
            read[rows] = True
            y, state = mixer(x[:, t : t + 1], at.slice(t, t + 1).at(phase="decode"), state, read)
            torch.testing.assert_close(y[read], whole[:, t : t + 1][read], rtol=0, atol=1e-10)
            assert not y[~read].any()


def flops_of_decode(mixer: Any, read: bool, mode: int = 0) -> int:
    x = random_input(1, 33)
    at = context(1, 33).at(mode=Decision(torch.full((1, 33), mode)))
    with torch.no_grad():
        _, state = mixer(x[:, :32], at.slice(0, 32), mixer.init_state(1, dtype=x.dtype))
        with FlopCounterMode(display=False) as counter:
            mixer(x[:, 32:], at.slice(32, 33).at(phase="decode"), state, torch.full((1, 1), read))
    return counter.get_total_flops()


@pytest.mark.parametrize("key", ALL)
def test_decode_skips_the_work_of_unread_tokens(key: str) -> None:
    mixer = case(key)
    assert flops_of_decode(mixer, read=False) < 0.85 * flops_of_decode(mixer, read=True)


def test_decode_computes_the_chosen_reader_only() -> None:
    # Queries of 2 x 64 channels: the queries of the reader that is not chosen must not be projected.
    mixer = build("multi_mixer", {"heads": 2, "head_size": 64, "readers": ["mamba2", "gated_deltanet"]})
    queries, reads = 2 * 12 * 128, 2 * 2 * 64 * 64
    both = flops_of_decode(mixer, read=True) + queries + reads
    nothing = flops_of_decode(mixer, read=False)
    out = 2 * 2 * 12 * 128
    assert both == nothing + out + 2 * (queries + reads)


def test_every_token_follows_its_own_mode() -> None:
    mixer = build("multi_mixer", {"readers": ["mamba2", "attention"], "heads": 2, "head_size": 6})
    x, base = random_input(2, 25), context(2, 25)
    by_mode = [mixer(x, base.at(mode=Decision(torch.full((2, 25), m))), None)[0] for m in (0, 1)]
    choice = random_mask(2, 25).long()
    y, _ = mixer(x, base.at(mode=Decision(choice)), None)
    wanted = torch.where((choice == 1).unsqueeze(-1), by_mode[1], by_mode[0])
    torch.testing.assert_close(y, wanted, rtol=0, atol=1e-12)
    assert (by_mode[0] - by_mode[1]).abs().max() > 1e-3


def test_states_do_not_depend_on_the_modes() -> None:
    mixer, x = case("multi tg"), random_input(2, 25)
    states = [
        mixer(x, context(2, 25).at(mode=Decision(choice)), mixer.init_state(2, dtype=x.dtype))[1]
        for choice in (torch.zeros(2, 25, dtype=torch.long), random_mask(2, 25).long())
    ]
    for name, tensor in states[0].items():
        torch.testing.assert_close(tensor, states[1][name], rtol=0, atol=0)


def test_queries_of_a_reader_nobody_chose_get_no_gradient() -> None:
    mixer, x = case("multi tm"), random_input(1, 16)
    p = mixer.plan
    for mode in (0, 1):
        mixer.zero_grad()
        y, _ = mixer(x, context(1, 16, phase="train").at(mode=Decision(torch.full((1, 16), mode))), None)
        y.square().sum().backward()
        start = p.written_width
        grads = mixer.projections.input.weight.grad[start : start + 2 * p.query_width].chunk(2)
        assert grads[mode].abs().max() > 0
        assert not grads[1 - mode].any()


def test_soft_weights_run_and_weight_all_readers_in_training() -> None:
    mixer, x = case("multi tg"), random_input(1, 16)
    weight = torch.rand(1, 16, 2, dtype=torch.float64, requires_grad=True)
    choice = weight.argmax(-1)
    y, _ = mixer(x, context(1, 16, phase="train").at(mode=Decision(choice, weight)), None)
    y.square().sum().backward()
    assert weight.grad is not None
    assert (weight.grad.abs().sum((0, 1)) > 0).all()
    one_hot = torch.nn.functional.one_hot(choice, 2).double()
    soft, _ = mixer(x, context(1, 16, phase="train").at(mode=Decision(choice, one_hot)), None)
    hard, _ = mixer(x, context(1, 16, phase="train").at(mode=Decision(choice)), None)
    torch.testing.assert_close(soft, hard, rtol=0, atol=1e-12)


def test_one_reader_ignores_the_mode() -> None:
    mixer, x = case("attention"), random_input(1, 9)
    plain, _ = mixer(x, context(1, 9), None)
    y, _ = mixer(x, context(1, 9).at(mode=Decision(torch.ones(1, 9, dtype=torch.long))), None)
    assert torch.equal(plain, y)


def test_several_readers_without_a_mode_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"2 readers \(mamba2, attention\) needs a mode"):
        case("multi tm")(random_input(1, 4), context(1, 4), None)
    wrong = Decision(torch.zeros(1, 4, dtype=torch.long), torch.ones(1, 4, 3))
    with pytest.raises(ConfigError, match="3 choices, but this multi_mixer has 2 readers"):
        case("multi tm")(random_input(1, 4), context(1, 4).at(mode=wrong), None)


@pytest.mark.parametrize("key", SEQUENCE)
def test_bfloat16_keeps_recurrent_states_in_float32(key: str) -> None:
    mixer = case(key, dtype=torch.bfloat16, scale=3.0)
    x = random_input(2, 20).bfloat16()
    at = with_mode(mixer, context(2, 20))
    with torch.no_grad():
        y, state = in_pieces(mixer, x, at, [7, 18, 19])
    assert y.dtype == torch.bfloat16
    assert y.isfinite().all()
    for spec in mixer.state_specs():
        wanted = torch.bfloat16 if spec.dtype == "activation" else getattr(torch, spec.dtype)
        assert state[spec.name].dtype == wanted


@pytest.mark.parametrize("key", ALL)
def test_autocast_to_bfloat16_stays_close_in_every_phase(key: str) -> None:
    mixer, x = case(key, dtype=torch.float32, scale=3.0), random_input(3, 20).float()
    at = with_mode(mixer, context(3, 20))
    exact, _ = mixer(x, at, None)
    with torch.autocast("cpu", torch.bfloat16):
        y, _ = mixer(x, at.at(phase="train"), None)
        y.float().square().mean().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in mixer.parameters())
        with torch.no_grad():
            outputs, state = [], mixer.init_state(3, dtype=torch.bfloat16)
            first, state = mixer(x[:, :17], at.slice(0, 17), state)
            outputs.append(first)
            read = torch.tensor([[True], [False], [True]])
            for t in range(17, 20):
                one, state = mixer(x[:, t : t + 1], at.slice(t, t + 1).at(phase="decode"), state, read)
                outputs.append(one)
    # Of nearly equal experts, or keys, lower precision may choose others, for few tokens; all others are close.
    chooses = "experts" in key or "strongest" in key
    for found, wanted in ((y, exact), (torch.cat(outputs, 1)[[0, 2]], exact[[0, 2]])):
        far = (found - wanted).abs().amax(-1) >= 0.06 * exact.abs().max()
        assert far.float().mean() <= (0.05 if chooses else 0)
