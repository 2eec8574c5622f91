"""State-space duality against its recurrence and its quadratic dual."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops.ssd import ssd, ssd_recurrent


def inputs(B, T, Q, G, H, K, V, dtype=torch.float64, seed=0, fastest=-2.0):
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    log_decay = fastest * torch.rand(B, T, H, generator=random, dtype=torch.float64)
    tensors = (normal(B, T, Q, K), normal(B, T, G, K), normal(B, T, H, V), log_decay)
    return [x.to(dtype) for x in tensors], normal(B, H, K, V).to(dtype)


def gradients(rule, tensors, state, **options):
    leaves = [x.clone().requires_grad_() for x in (*tensors, state)]
    o, last = rule(*leaves[:4], state_BHKV=leaves[4], **options)
    random = torch.Generator().manual_seed(7)
    loss = sum((x * torch.randn(x.shape, generator=random, dtype=torch.float64)).sum() for x in (o, last))
    return [o, last, *torch.autograd.grad(loss, leaves)]


def assert_close(got, wanted, tolerance=1e-10):
    for name, a, b in zip(("o", "state", "dq", "dk", "dv", "dg", "dstate"), got, wanted, strict=False):
        torch.testing.assert_close(
            a, b, rtol=tolerance, atol=tolerance, msg=lambda m, name=name: f"{name}: {m}"
        )


def test_the_recurrence_is_its_quadratic_dual():
    (q, k, v, log_decay), state = inputs(1, 6, 1, 1, 1, 3, 4)
    o, last = ssd_recurrent(q, k, v, log_decay, state_BHKV=state)
    for t in range(6):
        wanted = log_decay[0, : t + 1, 0].sum().exp() * q[0, t, 0] @ state[0, 0]
        for s in range(t + 1):
            wanted = (
                wanted + log_decay[0, s + 1 : t + 1, 0].sum().exp() * (q[0, t, 0] @ k[0, s, 0]) * v[0, s, 0]
            )
        torch.testing.assert_close(o[0, t, 0], wanted)
    torch.testing.assert_close(q[0, 5, 0] @ last[0, 0], o[0, 5, 0])


@pytest.mark.parametrize("T", [1, 2, 63, 64, 65, 127, 129, 500])
def test_outputs_state_and_gradients_equal_the_recurrence(T):
    tensors, state = inputs(2, T, 1, 1, 3, 16, 24)
    assert_close(gradients(ssd, tensors, state), gradients(ssd_recurrent, tensors, state))


@pytest.mark.parametrize(("Q", "G", "H"), [(1, 1, 1), (6, 1, 6), (1, 6, 6), (2, 3, 6), (3, 3, 6), (6, 6, 6)])
@pytest.mark.parametrize("T", [1, 70])
def test_any_sharing_of_queries_and_keys_equals_heads_of_their_own(Q, G, H, T):
    (q, k, v, log_decay), state = inputs(2, T, Q, G, H, 5, 7)

    def expanded(q, k, v, log_decay, **options):
        q, k = q.repeat_interleave(H // Q, 2), k.repeat_interleave(H // G, 2)
        return ssd_recurrent(q, k, v, log_decay, **options)

    assert_close(
        gradients(ssd, (q, k, v, log_decay), state), gradients(expanded, (q, k, v, log_decay), state)
    )


@pytest.mark.parametrize("T", [1, 2, 65])
@pytest.mark.parametrize("masked", [False, True])
def test_step_and_skip_scale_the_writes_and_add_the_values(T, masked):
    (q, k, v, log_decay), state = inputs(2, T, 1, 2, 4, 5, 3)
    random = torch.Generator().manual_seed(5)
    step = torch.rand(2, T, 4, generator=random, dtype=torch.float64)
    step[:, ::3] = 0.0  # softplus underflows to an exact zero
    skip = torch.randn(4, generator=random, dtype=torch.float64)
    masks = {}
    if masked:
        masks["valid_BT"] = torch.arange(T) < torch.tensor([[T], [T // 2]])
        masks["reset_BT"] = torch.arange(T).expand(2, T) % 7 == 3

    def fused(q, k, v, log_decay, step, skip, state):
        return ssd(q, k, v, log_decay, step_BTH=step, skip_H=skip, state_BHKV=state, **masks)

    def by_the_caller(q, k, v, log_decay, step, skip, state):
        o, last = ssd_recurrent(q, k, v * step.unsqueeze(-1), log_decay, state_BHKV=state, **masks)
        shown = masks.get("valid_BT", torch.ones(2, T, dtype=torch.bool))
        return o + (v * skip.unsqueeze(-1)).masked_fill(~shown[..., None, None], 0.0), last

    results = []
    for function in (fused, by_the_caller):
        leaves = [x.clone().requires_grad_() for x in (q, k, v, log_decay, step, skip, state)]
        o, last = function(*leaves)
        random.manual_seed(7)
        loss = sum((x * torch.randn(x.shape, generator=random, dtype=torch.float64)).sum() for x in (o, last))
        results.append([o, last, *torch.autograd.grad(loss, leaves)])
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("K", "V"), [(24, 48), (48, 16), (96, 96), (5, 1)])
def test_any_head_size_works(K, V):
    tensors, state = inputs(1, 70, 1, 1, 2, K, V)
    assert_close(gradients(ssd, tensors, state), gradients(ssd_recurrent, tensors, state))


@pytest.mark.parametrize("chunk", [16, 32, 128])
def test_the_chunk_changes_nothing_but_speed(chunk):
    tensors, state = inputs(2, 130, 2, 1, 4, 16, 16)
    assert_close(gradients(ssd, tensors, state, chunk=chunk), gradients(ssd, tensors, state))


@pytest.mark.parametrize("cut", [1, 3, 4, 31, 32, 33, 63, 64, 65, 129])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_two_pieces_equal_the_whole(cut, dtype, tolerance):
    tensors, state = inputs(2, 130, 1, 1, 2, 24, 16, dtype)
    o, last = ssd(*tensors, state_BHKV=state)
    first, state = ssd(*(x[:, :cut] for x in tensors), state_BHKV=state)
    second, state = ssd(*(x[:, cut:] for x in tensors), state_BHKV=state)
    assert_close((torch.cat((first, second), 1), state), (o, last), tolerance)


def test_the_gradient_passes_through_the_state_between_pieces():
    tensors, state = inputs(1, 80, 1, 1, 2, 16, 16)

    def in_pieces(*leaves, state_BHKV):
        outputs = []
        for piece in (slice(0, 33), *(slice(t, t + 1) for t in range(33, 40)), slice(40, None)):
            o, state_BHKV = ssd(*(x[:, piece] for x in leaves), state_BHKV=state_BHKV)
            outputs.append(o)
        return torch.cat(outputs, 1), state_BHKV

    assert_close(gradients(in_pieces, tensors, state), gradients(ssd, tensors, state))


@pytest.mark.parametrize("starts", [[0], [5, 6], [63], [64], [33, 70], [1, 40, 41, 69]])
def test_documents_in_one_row_equal_documents_apart(starts):
    tensors, state = inputs(1, 72, 1, 2, 4, 16, 16)
    reset = torch.zeros(1, 72, dtype=torch.bool)
    reset[:, starts] = True
    got = ssd(*tensors, state_BHKV=state, reset_BT=reset)
    edges = sorted({0, *starts, 72})
    outputs = []
    for begin, end in itertools.pairwise(edges):
        o, last = ssd(*(x[:, begin:end] for x in tensors), state_BHKV=None if begin in starts else state)
        outputs.append(o)
    assert_close(got, (torch.cat(outputs, 1), last))


def test_ragged_rows_equal_rows_apart():
    lengths = [1, 40, 70]
    tensors, state = inputs(3, 70, 1, 1, 2, 16, 24)
    valid = torch.arange(70) < torch.tensor(lengths).unsqueeze(1)
    o, last = ssd(*tensors, state_BHKV=state, valid_BT=valid)
    assert not o[~valid].any()
    for row, length in enumerate(lengths):
        alone = ssd(*(x[row : row + 1, :length] for x in tensors), state_BHKV=state[row : row + 1])
        assert_close((o[row : row + 1, :length], last[row : row + 1]), alone)


def test_numerical_gradients_agree():
    tensors, state = inputs(2, 19, 1, 2, 2, 3, 2)
    valid = torch.arange(19) < torch.tensor([[19], [17]])
    reset = torch.zeros(2, 19, dtype=torch.bool)
    reset[0, 4] = reset[1, 16] = True
    leaves = [x.requires_grad_() for x in (*tensors, state)]

    def rule(*x):
        return ssd(*x[:4], state_BHKV=x[4], valid_BT=valid, reset_BT=reset, chunk=16)

    assert torch.autograd.gradcheck(rule, leaves)


@pytest.mark.parametrize("gates", [[-80.0, 0.0, 0.0, -1e-3], [-30.0, 0.0, -80.0, -5.0], [0.0], [-80.0]])
def test_extreme_gates_stay_finite_and_equal_the_recurrence(gates):
    tensors, state = inputs(1, 256, 1, 1, 2, 16, 16)
    pick = torch.randint(len(gates), (1, 256, 2), generator=torch.Generator().manual_seed(1))
    tensors[3] = torch.tensor(gates, dtype=torch.float64)[pick]
    wanted = gradients(ssd_recurrent, tensors, state)
    got = gradients(ssd, [x.float() for x in tensors], state.float())
    assert all(x.isfinite().all() for x in got)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=2e-5, atol=2e-6 * max(1.0, b.abs().max().item()))


def test_the_gradient_of_closed_gates_is_zero_not_rounding_noise():
    tensors, state = inputs(1, 128, 1, 1, 2, 16, 16, torch.float32)
    tensors[3] = torch.full_like(tensors[3], -80.0)
    assert gradients(ssd, tensors, state)[5].abs().max() < 1e-25


def test_one_closed_gate_in_each_chunk_equals_the_recurrence():
    tensors, state = inputs(2, 128, 1, 1, 2, 16, 16)
    tensors[3] = torch.zeros_like(tensors[3])
    tensors[3][:, [10, 75, 127]] = -30.0
    assert_close(gradients(ssd, tensors, state), gradients(ssd_recurrent, tensors, state))


@pytest.mark.parametrize("T", [1, 70])
def test_bf16_inputs_are_rounded_once_and_autocast_changes_nothing(T):
    tensors, state = inputs(2, T, 1, 1, 2, 16, 16, torch.bfloat16)
    plain = ssd(*tensors, state_BHKV=state.float())
    with torch.autocast("cpu", torch.bfloat16):
        cast = ssd(*tensors, state_BHKV=state.float())
    wide = ssd_recurrent(*(x.double() for x in tensors), state_BHKV=state.double())
    assert plain[0].dtype == torch.bfloat16
    assert plain[1].dtype == torch.float32
    assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))
    torch.testing.assert_close(plain[0].double(), wide[0], rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(plain[1].double(), wide[1], rtol=1e-5, atol=1e-5)


def test_inputs_are_left_alone():
    tensors, state = inputs(1, 32, 1, 1, 1, 16, 16)
    copies = [x.clone() for x in (*tensors, state)]
    gradients(ssd, tensors, state)
    ssd(*tensors, state_BHKV=state)
    assert all(torch.equal(a, b) for a, b in zip((*tensors, state), copies, strict=True))


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_pieces_resets_and_lengths_equal_the_recurrence(data):
    T = data.draw(st.integers(1, 80), "tokens")
    tensors, state = inputs(2, T, 1, 2, 2, 4, 3, seed=data.draw(st.integers(0, 99), "seed"))
    reset = torch.tensor(data.draw(st.lists(st.booleans(), min_size=2 * T, max_size=2 * T))).view(2, T)
    valid = torch.arange(T) < torch.tensor([[data.draw(st.integers(0, T))], [T]])
    wanted = ssd_recurrent(*tensors, state_BHKV=state, valid_BT=valid, reset_BT=reset)
    edges = sorted({0, T, *data.draw(st.lists(st.integers(0, T), max_size=3), "cuts")})
    outputs = []
    for begin, end in itertools.pairwise(edges):
        piece = slice(begin, end)
        masks = {"valid_BT": valid[:, piece], "reset_BT": reset[:, piece]}
        o, state = ssd(*(x[:, piece] for x in tensors), state_BHKV=state, chunk=16, **masks)
        outputs.append(o)
    assert_close((torch.cat(outputs, 1), state), wanted)


@pytest.mark.parametrize("chunk", [0, 8, 40, 50])
def test_a_chunk_that_is_no_power_of_two_is_refused(chunk):
    tensors, _ = inputs(1, 200, 1, 1, 1, 4, 4)
    with pytest.raises(ConfigError, match=f"chunk is {chunk}; it must be a power of two"):
        ssd(*tensors, chunk=chunk)


def test_shapes_that_do_not_fit_are_named():
    (q, k, v, log_decay), _ = inputs(1, 8, 2, 1, 3, 4, 4)
    with pytest.raises(ConfigError, match=r"q has shape \(1, 8, 2, 4\).*a divisor of 3"):
        ssd(q, k, v, log_decay)
    with pytest.raises(ConfigError, match="log_decay has shape"):
        ssd(k, k, v, log_decay[:, 1:])
    with pytest.raises(ConfigError, match="step has shape"):
        ssd(k, k, v, log_decay, step_BTH=log_decay[:, 1:])
    with pytest.raises(ConfigError, match="skip has shape"):
        ssd(k, k, v, log_decay, skip_H=torch.ones(2))
