from __future__ import annotations

import pytest
import torch

from crossbreed.core.errors import CrossbreedError
from crossbreed.core.lab.operating_points import OWN, OperatingPoint
from crossbreed.core.lab.profile import MOST_WARMUP, measure, profile


class Clock:
    """A clock that only calls move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def calls(clock: Clock, *seconds: float, then: float = 1.0):
    """A function whose n-th call takes the n-th time, and ``then`` afterwards."""
    left = list(seconds)

    def call() -> None:
        clock.now += left.pop(0) if left else then

    return call


def test_a_slow_first_call_is_in_no_statistic():
    clock = Clock()
    timing = measure(calls(clock, 100.0), clock=clock)
    assert (timing.median, timing.q1, timing.q3) == (1.0, 1.0, 1.0)
    assert (timing.warmup, timing.repeats, timing.stable) == (4, 7, True)


def test_warm_up_goes_on_while_calls_get_faster():
    clock = Clock()
    timing = measure(calls(clock, 100.0, 0.8, 0.4, 0.2, 0.15, 0.1, 0.095, 0.1), clock=clock)
    assert timing.warmup == 8
    assert timing.stable


def test_a_call_slowed_by_something_else_delays_nothing():
    clock = Clock()
    timing = measure(calls(clock, 100.0, 0.1, 0.5, 0.1), clock=clock)
    assert (timing.warmup, timing.stable) == (4, True)


def test_a_warm_up_that_never_settles_is_bounded_and_said_so():
    clock = Clock()
    timing = measure(calls(clock, *[0.1 * 0.8**n for n in range(200)]), clock=clock)
    assert timing.warmup == MOST_WARMUP
    assert not timing.stable


def test_a_warm_up_of_long_calls_is_bounded_in_seconds():
    clock = Clock()
    timing = measure(calls(clock, *[100.0 * 0.8**n for n in range(50)]), clock=clock)
    assert (timing.warmup, timing.stable) == (4, False)


def test_quartiles_are_those_of_the_repeats():
    clock = Clock()
    timing = measure(calls(clock, 9.0, 1.0, 1.0, 1.0, 4.0, 1.0, 7.0, 2.0, 6.0, 3.0, 5.0), clock=clock)
    assert (timing.q1, timing.median, timing.q3) == (2.5, 4.0, 5.5)


def test_the_device_is_waited_for_on_both_sides_of_the_timed_region():
    clock, queue = Clock(), []

    def launch() -> None:
        queue.append(0.5)
        clock.now += 1e-6

    def synchronise() -> None:
        clock.now += sum(queue)
        queue.clear()

    queue.append(1000.0)  # somebody else's work, launched before
    assert measure(launch, synchronise=synchronise, clock=clock).median == pytest.approx(0.5, rel=1e-4)
    queue.clear()
    assert measure(launch, clock=clock).median == pytest.approx(1e-6, rel=1e-4)


def test_a_clock_that_stands_still_is_an_error_not_an_infinite_speed():
    with pytest.raises(CrossbreedError, match="elapsed time above 0"):
        measure(lambda: None, clock=lambda: 3.0)


def learned_gate() -> dict:
    return {"name": "learned", "params": {"target_rate": 0.4}}


def test_measurements_carry_their_whole_key(build, genome, task):
    profiled = profile(build(genome()), task, OWN, backend="reference")
    assert (profiled.point, profiled.rates) == ("own", {})
    prefill, decode = profiled.measurements
    assert (prefill.metric, decode.metric) == ("prefill_tokens_per_s", "decode_tokens_per_s")
    for found in profiled.measurements:
        assert 0 < found.q1 <= found.median <= found.q3 < float("inf")
        assert found.repeats >= 7
        assert (found.batch, found.tokens, found.dtype) == (1, 12, "float32")
        assert (found.policy, found.compiled, found.threads) == ("reference", False, 1)
        assert found.device.endswith("(1 thread)")
        assert set(found.backends.values()) == {"reference"}


@pytest.mark.parametrize("execution", ["dense", "sparse"])
def test_a_forced_execution_reaches_every_piece_and_is_part_of_the_key(build, genome, task, execution):
    model, seen = build(genome()), set()
    forward = model.forward
    model.forward = lambda tokens, context, state=None: (
        seen.add((context.phase, context.execution)),
        forward(tokens, context, state),
    )[1]
    profiled = profile(model, task, OWN, execution=execution)
    assert {execution for _, execution in seen} == {execution}
    assert {phase for phase, _ in seen} == {"prefill", "decode"}
    assert {found.policy for found in profiled.measurements} == {f"best+{execution}"}


def test_prefill_is_faster_per_token_than_decode(build, genome, task):
    prefill, decode = profile(build(genome()), task, OWN).measurements
    assert prefill.median > decode.median


def test_profiling_changes_nothing_in_the_model(build, genome, task):
    model = build(genome(gate=learned_gate()))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    profile(model, task, OperatingPoint.parse("forced:0.4"))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_decode_contexts_stand_at_the_end_of_a_row_of_the_tasks_length(build, genome, task):
    model = build(genome())
    seen: list[tuple[str, int, int]] = []
    hook = model.stages[0].register_forward_pre_hook(
        lambda _, args: seen.append((args[1].phase, args[1].positions_BT[0, 0].item(), args[0].shape[1]))
    )
    profile(model, task, OWN)
    hook.remove()
    assert {where for phase, *where in map(list, seen) if phase == "decode" for where in [tuple(where)]} == {
        (11, 1)
    }
    assert {length for phase, _, length in seen if phase == "prefill"} == {12, 11}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("point", ["own", "forced:0.4"])
def test_a_device_decodes_by_replaying_one_recorded_token_and_the_measurement_says_so(
    build, task, point, dtype
):
    sublayers = [{"mixer": "attention", "params": {"heads": 2, "head_size": 16}}]
    gated = {"sublayers": sublayers, "gate": {"name": "entropy_gate"}}
    model = build({"vocab": 20, "d_model": 32, "stages": [{"blocks": [gated]}]}).to("cuda")
    prefill, decode = profile(model, task, OperatingPoint.parse(point), dtype=dtype).measurements
    assert (prefill.compiled, decode.compiled) == (False, True)
    launched = profile(model, task, OperatingPoint.parse(point), dtype=dtype, execution="dense").measurements[
        1
    ]
    assert not launched.compiled
    assert decode.key() != launched.key()
