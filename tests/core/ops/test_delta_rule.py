"""The gated delta rule against its recurrence, its definition and transformers' rule."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops.delta_rule import gated_delta_rule, gated_delta_rule_recurrent
from crossbreed.core.ops.norm import l2_norm


def inputs(B, T, H, K, V, dtype=torch.float64, seed=0, slowest=0.0, fastest=-2.0):
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    q, k, v = l2_norm(normal(B, T, H, K)), l2_norm(normal(B, T, H, K)), normal(B, T, H, V)
    log_decay = slowest + (fastest - slowest) * torch.rand(B, T, H, generator=random, dtype=torch.float64)
    beta = torch.rand(B, T, H, generator=random, dtype=torch.float64)
    return [x.to(dtype) for x in (q, k, v, log_decay, beta)], normal(B, H, K, V).to(dtype)


def gradients(rule, tensors, state, **options):
    leaves = [x.clone().requires_grad_() for x in (*tensors, state)]
    o, last = rule(*leaves[:5], state_BHKV=leaves[5], **options)
    random = torch.Generator().manual_seed(7)
    loss = sum((x * torch.randn(x.shape, generator=random, dtype=torch.float64)).sum() for x in (o, last))
    return [o, last, *torch.autograd.grad(loss, leaves)]


def assert_close(got, wanted, tolerance=1e-10):
    for name, a, b in zip(
        ("o", "state", "dq", "dk", "dv", "dg", "dbeta", "dstate"), got, wanted, strict=False
    ):
        torch.testing.assert_close(
            a, b, rtol=tolerance, atol=tolerance, msg=lambda m, name=name: f"{name}: {m}"
        )


def test_the_recurrence_is_the_definition():
    (q, k, v, log_decay, beta), state = inputs(1, 5, 1, 3, 4)
    S, eye = state[0, 0], torch.eye(3, dtype=torch.float64)
    o, last = gated_delta_rule_recurrent(q, k, v, log_decay, beta, state_BHKV=state)
    for t in range(5):
        kt, bt = k[0, t, 0], beta[0, t, 0]
        S = log_decay[0, t, 0].exp() * (eye - bt * torch.outer(kt, kt)) @ S + bt * torch.outer(kt, v[0, t, 0])
        torch.testing.assert_close(o[0, t, 0], q[0, t, 0] @ S / 3**0.5)
    torch.testing.assert_close(last[0, 0], S)


@pytest.mark.parametrize("T", [1, 2, 63, 64, 65, 127, 129, 500])
@pytest.mark.parametrize(("H", "K", "V"), [(2, 16, 24)])
def test_outputs_state_and_gradients_equal_the_recurrence(T, H, K, V):
    tensors, state = inputs(2, T, H, K, V)
    assert_close(
        gradients(gated_delta_rule, tensors, state), gradients(gated_delta_rule_recurrent, tensors, state)
    )


@pytest.mark.parametrize(("K", "V"), [(24, 48), (48, 16), (96, 96), (5, 1)])
def test_any_head_size_works(K, V):
    tensors, state = inputs(1, 70, 3, K, V)
    assert_close(
        gradients(gated_delta_rule, tensors, state), gradients(gated_delta_rule_recurrent, tensors, state)
    )


@pytest.mark.parametrize("chunk", [16, 64, 128])
def test_the_chunk_changes_nothing_but_speed(chunk):
    tensors, state = inputs(2, 130, 2, 16, 16)
    assert_close(
        gradients(gated_delta_rule, tensors, state, chunk=chunk), gradients(gated_delta_rule, tensors, state)
    )


@pytest.mark.parametrize("cut", [1, 3, 4, 31, 32, 33, 63, 64, 65, 129])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_two_pieces_equal_the_whole(cut, dtype, tolerance):
    tensors, state = inputs(2, 130, 2, 24, 16, dtype)
    o, last = gated_delta_rule(*tensors, state_BHKV=state)
    first, state = gated_delta_rule(*(x[:, :cut] for x in tensors), state_BHKV=state)
    second, state = gated_delta_rule(*(x[:, cut:] for x in tensors), state_BHKV=state)
    assert_close((torch.cat((first, second), 1), state), (o, last), tolerance)


def test_prefill_then_single_steps_equal_the_whole():
    tensors, _ = inputs(2, 128, 2, 16, 16)
    o, last = gated_delta_rule(*tensors)
    piece, state = gated_delta_rule(*(x[:, :64] for x in tensors))
    pieces = [piece]
    for t in range(64, 128):
        piece, state = gated_delta_rule(*(x[:, t : t + 1] for x in tensors), state_BHKV=state)
        pieces.append(piece)
    assert_close((torch.cat(pieces, 1), state), (o, last))


def test_the_gradient_passes_through_the_state_between_pieces():
    tensors, state = inputs(1, 80, 2, 16, 16)

    def in_pieces(*leaves, state_BHKV):
        outputs = []
        for piece in (slice(0, 33), slice(33, 34), slice(34, None)):
            o, state_BHKV = gated_delta_rule(*(x[:, piece] for x in leaves), state_BHKV=state_BHKV)
            outputs.append(o)
        return torch.cat(outputs, 1), state_BHKV

    assert_close(gradients(in_pieces, tensors, state), gradients(gated_delta_rule, tensors, state))


@pytest.mark.parametrize("starts", [[0], [5, 6], [31], [32], [33, 70], [1, 40, 41, 69]])
def test_documents_in_one_row_equal_documents_apart(starts):
    tensors, state = inputs(1, 72, 2, 16, 16)
    reset = torch.zeros(1, 72, dtype=torch.bool)
    reset[:, starts] = True
    got = gated_delta_rule(*tensors, state_BHKV=state, reset_BT=reset)
    edges = sorted({0, *starts, 72})
    outputs = []
    for begin, end in itertools.pairwise(edges):
        before = None if begin in starts else state
        o, last = gated_delta_rule(*(x[:, begin:end] for x in tensors), state_BHKV=before)
        outputs.append(o)
    assert_close(got, (torch.cat(outputs, 1), last))


def test_ragged_rows_equal_rows_apart():
    lengths = [1, 40, 70]
    tensors, state = inputs(3, 70, 2, 16, 24)
    valid = torch.arange(70) < torch.tensor(lengths).unsqueeze(1)
    o, last = gated_delta_rule(*tensors, state_BHKV=state, valid_BT=valid)
    assert not o[~valid].any()
    for row, length in enumerate(lengths):
        alone = gated_delta_rule(
            *(x[row : row + 1, :length] for x in tensors), state_BHKV=state[row : row + 1]
        )
        assert_close((o[row : row + 1, :length], last[row : row + 1]), alone)


def test_an_invalid_single_token_leaves_the_state_and_starts_nothing():
    tensors, state = inputs(2, 1, 2, 16, 16)
    valid, reset = torch.tensor([[False], [True]]), torch.tensor([[True], [True]])
    o, last = gated_delta_rule(*tensors, state_BHKV=state, valid_BT=valid, reset_BT=reset)
    fresh = gated_delta_rule(*(x[1:] for x in tensors))
    assert torch.equal(last[0], state[0])
    assert not o[0].any()
    assert_close((o[1:], last[1:]), fresh)


def test_numerical_gradients_agree():
    tensors, state = inputs(2, 19, 1, 3, 2)
    valid = torch.arange(19) < torch.tensor([[19], [17]])
    reset = torch.zeros(2, 19, dtype=torch.bool)
    reset[0, 4] = reset[1, 16] = True
    leaves = [x.requires_grad_() for x in (*tensors, state)]

    def rule(*x):
        return gated_delta_rule(*x[:5], state_BHKV=x[5], valid_BT=valid, reset_BT=reset, chunk=16)

    assert torch.autograd.gradcheck(rule, leaves)


@pytest.mark.parametrize("gates", [[-80.0, 0.0, 0.0, -1e-3], [-30.0, 0.0, -80.0, -5.0], [0.0], [-80.0]])
def test_extreme_gates_stay_finite_and_equal_the_recurrence(gates):
    tensors, state = inputs(1, 256, 2, 16, 16)
    pick = torch.randint(len(gates), (1, 256, 2), generator=torch.Generator().manual_seed(1))
    tensors[3] = torch.tensor(gates, dtype=torch.float64)[pick]
    wanted = gradients(gated_delta_rule_recurrent, tensors, state)
    got = gradients(gated_delta_rule, [x.float() for x in tensors], state.float())
    assert all(x.isfinite().all() for x in got)
    assert_close([x.double() for x in got], wanted, 2e-5)


def test_the_gradient_of_closed_gates_is_zero_not_rounding_noise():
    tensors, state = inputs(1, 128, 2, 16, 16, torch.float32)
    tensors[3] = torch.full_like(tensors[3], -80.0)
    assert gradients(gated_delta_rule, tensors, state)[5].abs().max() < 1e-25


def test_one_closed_gate_in_each_chunk_equals_the_recurrence():
    tensors, state = inputs(2, 128, 2, 16, 16)
    tensors[3] = torch.zeros_like(tensors[3])
    tensors[3][:, [10, 75, 127]] = -30.0
    assert_close(
        gradients(gated_delta_rule, tensors, state), gradients(gated_delta_rule_recurrent, tensors, state)
    )


def test_equal_keys_without_decay_do_not_lose_digits():
    """The triangular system is then all ones: a product of powers of it would cancel numbers of 1e12."""
    tensors, state = inputs(1, 128, 1, 16, 16, torch.float32)
    tensors[1] = tensors[1][:, :1].expand(1, 128, 1, 16).contiguous()
    tensors[3], tensors[4] = torch.zeros(1, 128, 1), torch.ones(1, 128, 1)
    for chunk in (32, 64):
        o, _ = gated_delta_rule(*tensors, state_BHKV=state, chunk=chunk)
        wanted, _ = gated_delta_rule_recurrent(*(x.double() for x in tensors), state_BHKV=state.double())
        torch.testing.assert_close(o.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("T", [7, 50, 64, 65, 200])
def test_gate_one_is_the_ungated_delta_rule(T):
    (q, k, v, log_decay, beta), _ = inputs(1, T, 1, 16, 16, torch.float32)
    o, _ = gated_delta_rule(q, k, v, torch.zeros_like(log_decay), beta)
    S, wanted = torch.zeros(16, 16, dtype=torch.float64), []
    for t in range(T):
        kt = k[0, t, 0].double()
        S = S + beta[0, t, 0].double() * torch.outer(kt, v[0, t, 0].double() - kt @ S)
        wanted.append(q[0, t, 0].double() @ S / 4)
    torch.testing.assert_close(o[0, :, 0].double(), torch.stack(wanted), rtol=1e-5, atol=1e-5)


def test_training_on_unnormalised_bf16_keys_stays_finite():
    tensors, _ = inputs(1, 256, 2, 64, 64, fastest=-20.0)
    tensors[1] = torch.randn(1, 256, 2, 64, generator=torch.Generator().manual_seed(3)) / 8
    leaves = [x.bfloat16().requires_grad_() for x in tensors]
    o, state = gated_delta_rule(*leaves)
    gradient = torch.autograd.grad(o.float().square().sum(), leaves)
    assert o.dtype == torch.bfloat16
    assert state.dtype == torch.float32
    assert all(x.isfinite().all() for x in (o, state, *gradient))


@pytest.mark.slow
def test_two_hundred_steps_of_training_with_gates_from_open_to_shut_stay_finite():
    """Log gates from 0 to -20, some of exactly 0 and -80; q, k and v learned in bf16, k through the norm that the reader gives it."""
    tensors, _ = inputs(1, 256, 2, 64, 64, fastest=-20.0, dtype=torch.float32)
    q, k, v, log_decay, beta = tensors
    k = torch.randn(1, 256, 2, 64, generator=torch.Generator().manual_seed(3))
    log_decay[:, ::5], log_decay[:, 3::7] = 0.0, -80.0
    target = torch.randn(1, 256, 2, 64, generator=torch.Generator().manual_seed(4))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    losses = []
    for _ in range(200):
        q_, k_, v_ = leaves
        arguments = (q_, l2_norm(k_), v_, log_decay, beta)
        o, state = gated_delta_rule(*(x.bfloat16() for x in arguments))
        loss = (o.float() - target).square().mean()
        gradients_ = torch.autograd.grad(loss, leaves)
        assert all(x.isfinite().all() for x in (o, state, *gradients_))
        with torch.no_grad():
            for leaf, gradient in zip(leaves, gradients_, strict=True):
                leaf -= 1e-2 * gradient
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_keys_that_nothing_normalises_never_end_in_a_score():
    """The rule is unstable then: what overflows must show in the loss, so that the trial is called diverged."""
    (q, _, v, _, beta), _ = inputs(1, 256, 2, 64, 64, dtype=torch.float32)
    k = 100 * torch.randn(1, 256, 2, 64, generator=torch.Generator().manual_seed(3))
    o, state = gated_delta_rule(q, k, v, torch.zeros(1, 256, 2), beta)
    assert not o.isfinite().all()
    assert not state.isfinite().all()
    assert not o.square().mean().isfinite()


@pytest.mark.parametrize("T", [1, 70])
def test_bf16_inputs_are_rounded_once_and_autocast_changes_nothing(T):
    tensors, state = inputs(2, T, 2, 16, 16, torch.bfloat16)
    plain = gated_delta_rule(*tensors, state_BHKV=state.float())
    with torch.autocast("cpu", torch.bfloat16):
        cast = gated_delta_rule(*tensors, state_BHKV=state.float())
    wide = gated_delta_rule_recurrent(*(x.double() for x in tensors), state_BHKV=state.double())
    assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))
    torch.testing.assert_close(plain[0].double(), wide[0], rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(plain[1].double(), wide[1], rtol=1e-5, atol=1e-5)


def test_inputs_are_left_alone():
    tensors, state = inputs(1, 32, 1, 16, 16)
    copies = [x.clone() for x in (*tensors, state)]
    gradients(gated_delta_rule, tensors, state)
    gated_delta_rule(*tensors, state_BHKV=state)
    assert all(torch.equal(a, b) for a, b in zip((*tensors, state), copies, strict=True))


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_pieces_resets_and_lengths_equal_the_recurrence(data):
    T = data.draw(st.integers(1, 80), "tokens")
    tensors, state = inputs(2, T, 1, 4, 3, seed=data.draw(st.integers(0, 99), "seed"))
    reset = torch.tensor(data.draw(st.lists(st.booleans(), min_size=2 * T, max_size=2 * T))).view(2, T)
    valid = torch.arange(T) < torch.tensor([[data.draw(st.integers(0, T))], [T]])
    wanted = gated_delta_rule_recurrent(*tensors, state_BHKV=state, valid_BT=valid, reset_BT=reset)
    edges = sorted({0, T, *data.draw(st.lists(st.integers(0, T), max_size=3), "cuts")})
    outputs = []
    for begin, end in itertools.pairwise(edges):
        piece = slice(begin, end)
        o, state = gated_delta_rule(
            *(x[:, piece] for x in tensors),
            state_BHKV=state,
            valid_BT=valid[:, piece],
            reset_BT=reset[:, piece],
            chunk=16,
        )
        outputs.append(o)
    assert_close((torch.cat(outputs, 1), state), wanted)


def test_it_equals_the_rule_of_transformers():
    modelling = pytest.importorskip(
        "transformers.models.qwen3_next.modeling_qwen3_next", reason="a test extra"
    )
    (q, k, v, log_decay, beta), state = inputs(2, 100, 2, 16, 24, torch.float32)
    wanted = modelling.torch_chunk_gated_delta_rule(
        q, k, v, log_decay, beta, initial_state=state, output_final_state=True
    )
    assert_close(gated_delta_rule(q, k, v, log_decay, beta, state_BHKV=state), wanted, 1e-5)


@pytest.mark.parametrize("chunk", [0, 8, 40, 50, -64])
def test_a_chunk_that_is_no_power_of_two_is_refused(chunk):
    tensors, _ = inputs(1, 200, 1, 4, 4)
    with pytest.raises(ConfigError, match=f"chunk is {chunk}; it must be a power of two"):
        gated_delta_rule(*tensors, chunk=chunk)


def test_shapes_that_do_not_fit_are_named():
    (q, k, v, log_decay, beta), state = inputs(1, 8, 2, 4, 4)
    with pytest.raises(ConfigError, match="beta has shape"):
        gated_delta_rule(q, k, v, log_decay, beta[:, :7])
    with pytest.raises(ConfigError, match="state has shape"):
        gated_delta_rule(q, k, v, log_decay, beta, state_BHKV=state[:, :1])


def test_l2_norm_of_zero_is_zero_with_a_finite_gradient():
    x = torch.zeros(2, 3, requires_grad=True)
    y = l2_norm(x)
    y.sum().backward()
    assert not y.any()
    assert x.grad.isfinite().all()
    torch.testing.assert_close(l2_norm(torch.tensor([3.0, 4.0])), torch.tensor([0.6, 0.8]))
