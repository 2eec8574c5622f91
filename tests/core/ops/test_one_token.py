"""The kernels of one decoded token against plain PyTorch in float64.

Under TRITON_INTERPRET=1 they run on a CPU as well (``-m gpu``), in float16, since Triton's interpreter takes bfloat16 for integers.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from crossbreed.core.ops import one_token, thresholds
from crossbreed.core.ops.attention import attention_reference
from crossbreed.core.ops.one_token import Normed

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NARROW, NEAR = (torch.bfloat16, 2e-2) if DEVICE == "cuda" else (torch.float16, 3e-3)
TOLERANCE = {torch.float32: 1e-5, NARROW: NEAR}
NEVER = torch.iinfo(torch.int32).max


class Random:
    """Numbers of one seed, drawn in float64 and rounded, so that a reference sees what a kernel sees."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(0)

    def __call__(self, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64).to(dtype).to(DEVICE)


def near(got: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> None:
    """The difference is a small share of the norm."""
    assert got.shape == wanted.shape
    assert torch.isfinite(got).all()
    off, norm = (got.double() - wanted).norm(), wanted.norm()
    assert off <= tolerance * norm + 1e-9, f"off by {float(off / norm):.2e}"


def caches(random: Random, B: int, S: int, G: int, K: int, V: int, dtype: torch.dtype, used: list[int]):
    """A cache whose rows hold two documents: the second from slot 0 on, what is left of the first behind it."""
    slot_BS = torch.arange(S, device=DEVICE).expand(B, S)
    used_B1 = torch.tensor(used, device=DEVICE)[:, None]
    document_BS = torch.where(slot_BS < used_B1, 2, 1).masked_fill(slot_BS >= used_B1 + 9, -1)
    keys, values = random(B, S, G, K, dtype=dtype), random(B, S, G, V, dtype=dtype)
    return keys, values, document_BS.int(), slot_BS.int().contiguous()


SHAPES: list[tuple[int, int, int, int, int, int]] = [
    (1, 4, 4, 64, 64, 300),
    (3, 4, 2, 24, 24, 130),
    (2, 3, 3, 48, 48, 65),
    (2, 6, 1, 96, 96, 200),
    (1, 32, 2, 128, 128, 70),
    (2, 2, 2, 16, 40, 33),
]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("B", "H", "G", "K", "V", "S"), SHAPES)
def test_attention_sees_the_slots_of_its_document_up_to_its_position(B, H, G, K, V, S, dtype):
    from crossbreed.core.ops.kernels.decode_attention import decode_attention

    random = Random()
    used = [S - 9 if b == 0 else 1 + 7 * b for b in range(B)]
    k, v, document_BS, position_BS = caches(random, B, S, G, K, V, dtype, used)
    position_BS[0, 3] = NEVER
    q_BHK = random(B, H, K, dtype=dtype)
    at_B, own_B = torch.tensor(used, device=DEVICE) - 1, torch.full((B,), 2, device=DEVICE).int()
    read_B = torch.tensor([b != 1 for b in range(B)], device=DEVICE)
    for window, read in ((None, None), (20, read_B)):
        got_BHV = decode_attention(q_BHK, k, v, position_BS, document_BS, at_B, own_B, read, window, K**-0.5)
        visible_BS = (position_BS <= at_B[:, None]) & (document_BS == 2)
        if window:
            visible_BS &= position_BS > at_B[:, None] - window
        if read is not None:
            visible_BS &= read[:, None]
        exact = [x.double() for x in (q_BHK[:, None], k, v)]
        near(got_BHV, attention_reference(*exact, visible_BTS=visible_BS[:, None])[:, 0], TOLERANCE[dtype])


@pytest.mark.gpu
def test_a_written_token_lies_in_its_slot_and_leaves_a_trace_only_where_it_should():
    from crossbreed.core.ops.kernels.decode_attention import write_slots

    random = Random()
    at_B = torch.tensor([4, 13, 0], device=DEVICE)
    k, v = (
        random(3, 3, 24, dtype=torch.float16),
        random(3, 3 * 40, dtype=torch.float16)[:, :60].view(3, 3, 20),
    )
    for trace in (None, torch.tensor([True, False, True], device=DEVICE)):
        found = []
        for write in (write_slots, None):
            slots = tuple(
                torch.full((3, 8, *shape), fill, dtype=dtype, device=DEVICE)
                for shape, fill, dtype in (
                    ((3, 24), 0.0, torch.float16),
                    ((3, 20), 0.0, torch.float16),
                    ((), -1, torch.int32),
                    ((), 0, torch.int32),
                )
            )
            # The tokens before: of document 2, of 3, and none in the last row, whose document begins.
            slots[2][0, 3], slots[2][1, 4], slots[2][2, 6] = 2, 3, 5
            if write is None:
                own_B = torch.tensor([2, 3, 6], device=DEVICE).int()
                for tensor, new in zip(slots, (k, v, own_B, at_B), strict=True):
                    for row, slot in enumerate((4, 5, 0)):
                        tensor[row, slot] = new[row]
                if trace is not None:
                    slots[3][1, 5] = NEVER
            else:
                own_B = write(slots, k, v, at_B, trace, 8, NEVER)
            found.append((*slots, own_B))
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("D", "O"), [(24, 5), (1984, 17), (2048, 9001)])
def test_a_map_of_one_row_is_the_product_and_touches_nothing_where_it_is_not_read(D, O, dtype):  # noqa: E741
    from crossbreed.core.ops.kernels.token_linear import token_linear

    random = Random()
    weight = random(O, 2 * D, dtype=dtype)[:, D:]
    x, onto = random(2 * D, dtype=torch.float32), random(O, dtype=torch.float32)
    wanted = weight.double() @ x[:D].to(dtype).double()
    near(token_linear(x[:D], weight), wanted, TOLERANCE[dtype])
    inner = torch.nn.functional.silu(x[:D].double()) * x[D:].double()
    near(token_linear(x, weight, gated=True), weight.double() @ inner, TOLERANCE[dtype])
    for read in (True, False):
        flag = torch.tensor([read], device=DEVICE)
        near(token_linear(x[:D], weight, flag), wanted * read, TOLERANCE[dtype])
        got = token_linear(x[:D], weight, flag, onto_O=onto)
        assert got.dtype == torch.float32
        near(got, wanted * read + onto.double(), TOLERANCE[dtype])
        some = torch.where(torch.arange(O, device=DEVICE) < 3, 1.0, float(read))
        near(token_linear(x[:D], weight, flag, always=3), wanted * some, TOLERANCE[dtype])


NORMS = [
    ((1, 1, 24), False),
    ((1, 1, 1984), False),
    ((1, 1, 1536), True),
    ((1, 1, 3, 40), True),
    ((1, 1, 12, 128), True),
]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("gate_first", [True, False])
@pytest.mark.parametrize(("shape", "gated"), NORMS)
def test_a_map_normalises_its_row_by_itself(shape, gated, gate_first, dtype):
    from crossbreed.core.ops.kernels.token_linear import token_linear

    random, V = Random(), shape[-1]
    h = random(*shape, dtype=torch.float32)
    gate = random(8 + h.numel(), dtype=dtype)[8:].view(shape) if gated else None
    gain, onto = random(V, dtype=torch.float32), random(19, dtype=torch.float32)
    weight = random(19, h.numel(), dtype=dtype)
    exact = Normed(h.double(), gain.double(), 1e-5, None if gate is None else gate.double(), gate_first)
    wanted = weight.double() @ exact.x.flatten()
    stream = Normed(h, gain, 1e-5, gate, gate_first)
    near(token_linear(stream, weight, onto_O=onto), wanted + onto.double(), TOLERANCE[dtype])
    assert (stream.made is None) == gated
    if not gated:
        near(stream.made, exact.x, 1e-6)
    unread = torch.tensor([False], device=DEVICE)
    for always in (0, 6):
        stream = Normed(h, gain, 1e-5, gate, gate_first)
        some = torch.arange(19, device=DEVICE) < always
        near(token_linear(stream, weight, unread, always=always), wanted * some, TOLERANCE[dtype])
        assert (stream.made is None) == (gated or not always)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("D", "M"), [(24, 5), (1100, 512), (1024, 1)])
def test_the_parts_of_a_score_add_up_to_the_networks(D, M, dtype):
    from crossbreed.core.ops.kernels.token_gate import network_parts

    random = Random()
    z, h, gain = random(3, 1, D, dtype=dtype), random(3, 1, D, dtype=dtype), random(D, dtype=torch.float32)
    weights = [random(*shape, dtype=torch.float32) / 9 for shape in ((M, D), (M,), (1, M), (1,), (1, D))]
    exact = [w.double() for w in weights]
    wanted_B1 = thresholds.skip_network(z.double(), *exact)
    near(network_parts(z, *weights).double().sum(-1), wanted_B1, 1e-5)
    stream, normed = Normed(h, gain, 1e-5), Normed(h.double(), gain.double(), 1e-5).x
    near(network_parts(stream, *weights).double().sum(-1), thresholds.skip_network(normed, *exact), 1e-5)
    near(stream.x, normed, TOLERANCE[dtype])


@pytest.mark.gpu
def test_a_gate_fires_above_its_threshold_unless_a_choice_is_forced():
    from crossbreed.core.ops.kernels.token_gate import decide

    parts = torch.tensor([[[0.2, 0.1, 0.1]], [[0.2, 0.2, 0.0]], [[0.5, 0.5, 0.5]]], device=DEVICE)
    tau = torch.tensor(0.4, device=DEVICE) + 1e-7
    for forced in (None, [-1, -1, -1], [1, -1, 0], [0, 1, -1]):
        given = None if forced is None else torch.tensor([[0, 0, 0], forced], device=DEVICE)[1][:, None]
        choice, taken = decide(parts, tau, given)
        wanted = (
            [0, 0, 1]
            if forced is None
            else [w if f < 0 else f for f, w in zip(forced, (0, 0, 1), strict=True)]
        )
        assert choice.dtype == torch.int64
        assert choice.flatten().tolist() == wanted
        assert taken.dtype == torch.bool
        assert taken.flatten().tolist() == [bool(w) for w in wanted]
        entropy = parts.sum(-1)
        assert torch.equal(decide(entropy[..., None], tau, given)[0], choice)


def recurrences() -> Iterator[tuple[str, dict[str, object]]]:
    for name, heads, K, V in (
        ("own", (4, 4, 4), 16, 32),
        ("shared", (1, 2, 4), 48, 24),
        ("values shared", (4, 4, 2), 128, 64),
    ):
        for delta in (True, False):
            yield (
                f"{name}, {'delta' if delta else 'ssd'}, {K} x {V}",
                {
                    "heads": heads,
                    "delta": delta,
                    "K": K,
                    "V": V,
                },
            )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", [case for _, case in recurrences()], ids=[name for name, _ in recurrences()])
def test_a_step_of_a_recurrence_is_the_references(case, dtype):
    from crossbreed.core.ops.kernels.recurrent_step import recurrent_step

    random, B, H = Random(), 3, 4
    (Q, G, U), K, V, delta = case["heads"], case["K"], case["V"], case["delta"]
    # Parts of one product, as a mixer hands them over.
    both = random(B, Q * K + G * K + U * V, dtype=dtype)
    q, k, v = both.split([Q * K, G * K, U * V], -1)
    q, k, v = q.view(B, Q, K), k.view(B, G, K), v.view(B, U, V)
    x, weight = random(B, 70, dtype=dtype), random(2 * H if delta else H, 80, dtype=dtype)[:, 10:]
    weight = weight / 4
    A_log, dt_bias, skip = (random(H, dtype=torch.float32) for _ in range(3))
    dt_bias = dt_bias - 6
    state = random(B, H, K, V, dtype=torch.float32)
    position_B = torch.tensor([5, 0, 7], device=DEVICE)
    flags_B = torch.tensor([True, True, False], device=DEVICE)
    for read, trace in ((None, None), (flags_B, None), (flags_B, flags_B)):
        got = recurrent_step(
            q, k, v, x, weight, A_log, dt_bias, None if delta else skip, state,
            position_B, read, trace, delta, 2.0, K**-0.5 if delta else 1.0,
        )  # fmt: skip
        exact = [given.double().unsqueeze(1) for given in (q, k, v, x)]
        wanted = one_token.recurrence(
            *exact,
            weight.double(),
            A_log.double(),
            dt_bias.double(),
            state.double(),
            position_B=position_B,
            skip_H=None if delta else skip.double(),
            read_B=read,
            trace_B=trace,
            normalise=delta,
            most=2.0,
            scale=K**-0.5 if delta else 1.0,
        )
        near(got[0], wanted[0][:, 0], TOLERANCE[dtype])
        near(got[1], wanted[1], 1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("C", "W"), [(40, 4), (300, 2), (17, 1)])
def test_a_step_of_a_convolution_is_the_references(C, W, dtype):
    from crossbreed.core.ops.kernels.recurrent_step import conv_step

    random, B = Random(), 3
    x, tail = random(B, C, dtype=dtype), random(B, W - 1, C, dtype=dtype)
    weight, bias = random(C, W, dtype=torch.float32), random(C, dtype=torch.float32)
    position_B = torch.tensor([5, 0, 7], device=DEVICE)
    for silu, own in ((False, bias), (True, None)):
        got = conv_step(x, weight, own, tail, position_B, silu)
        wanted = one_token.convolution(
            x.double().unsqueeze(1),
            weight.double(),
            None if own is None else own.double(),
            tail.double(),
            position_B=position_B,
            silu=silu,
        )
        near(got[0], wanted[0][:, 0], TOLERANCE[dtype])
        assert torch.equal(got[1].double(), wanted[1])
