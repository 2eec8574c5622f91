"""Built-in mixers with one thing broken in them fail the rule that names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from crossbreed.core.conformance.suite import check
from crossbreed.core.host import Registry
from crossbreed.plugins.mixers import kv_cache, sequence, softmax_reader, ssd_reader
from crossbreed.plugins.mixers.experts import Experts
from crossbreed.plugins.mixers.sequence import SequenceMixer
from crossbreed.plugins.mixers.swiglu import SwiGLU
from tests.conformance.reverting import failures

Mutate = Callable[[pytest.MonkeyPatch], None]


def no_causal_mask_in_training(patch: pytest.MonkeyPatch) -> None:
    real = softmax_reader.SoftmaxReader._every

    def every(self: Any, q_BTHK: Any, slots: Any, document_BT: Any, context: Any, *read_BT: Any) -> Any:
        if not context.training:
            return real(self, q_BTHK, slots, document_BT, context, *read_BT)
        B, T = q_BTHK.shape[:2]
        return self._attend(q_BTHK, slots, visible_BTS=torch.ones(B, T, T, dtype=torch.bool))

    patch.setattr(softmax_reader.SoftmaxReader, "_every", every)


def a_conv_tail_after_the_convolution(patch: pytest.MonkeyPatch) -> None:
    real = sequence.short_conv

    def after(x_BTC: Any, *arguments: Any, tail_BWC: Any = None, **named: Any) -> Any:
        y_BTC, tail = real(x_BTC, *arguments, tail_BWC=tail_BWC, **named)
        before = torch.zeros_like(tail) if tail_BWC is None else tail_BWC
        return y_BTC, torch.cat((before, y_BTC), 1)[:, -tail.shape[1] :]

    patch.setattr(sequence, "short_conv", after)


def a_state_formula_without_the_values(patch: pytest.MonkeyPatch) -> None:
    real = kv_cache.slot_bytes
    patch.setattr(softmax_reader.kv_cache, "slot_bytes", lambda heads, size: real(heads, size) // 2)


def decays_that_decay(patch: pytest.MonkeyPatch) -> None:
    """The marks of what a multi-mixer holds change once a module is copied."""
    real = SequenceMixer.no_weight_decay

    def lost(self: SequenceMixer) -> frozenset[str]:
        first = self.__dict__.setdefault("_first", id(self)) == id(self)
        return real(self) if first else frozenset()

    patch.setattr(SequenceMixer, "no_weight_decay", lost)


def experts_that_compute_what_is_not_read(patch: pytest.MonkeyPatch) -> None:
    real = Experts.forward

    def everything(self: Experts, x: Any, context: Any, state: Any, read_BT: Any = None) -> Any:
        y, state = real(self, x, context, state)
        return (y if read_BT is None else y.masked_fill(~read_BT[..., None], 0.0)), state

    patch.setattr(Experts, "forward", everything)


def a_cost_of_two_matrices_for_three(patch: pytest.MonkeyPatch) -> None:
    real = SwiGLU.cost

    def cheaper(config: Any, d_model: int, shape: Any, depths: int = 1, parts: Any = None) -> Any:
        cost = real(config, d_model, shape, depths, parts)
        return cost._replace(reads=(cost.reads[0].times(2 / 3),))

    patch.setattr(SwiGLU, "cost", staticmethod(cheaper))


def a_recurrence_that_forgets_padding(patch: pytest.MonkeyPatch) -> None:
    real = ssd_reader.SsdReader.forward

    def unmasked(
        self: Any, q: Any, k: Any, v: Any, x: Any, context: Any, state: Any, read_BT: Any = None
    ) -> Any:
        o, state = real(self, q, k, v, x, context.at(valid_BT=None), state, read_BT)
        keep = context.valid_BT
        return (o if keep is None else o.masked_fill(~keep[..., None, None], 0.0)), state

    patch.setattr(ssd_reader.SsdReader, "forward", unmasked)


MUTATIONS: list[tuple[str, str, Mutate]] = [
    ("attention", "causal", no_causal_mask_in_training),
    ("gated_deltanet", "splits", a_conv_tail_after_the_convolution),
    ("attention", "state-bytes", a_state_formula_without_the_values),
    ("mamba2", "marks", decays_that_decay),
    ("experts", "skips", experts_that_compute_what_is_not_read),
    ("swiglu", "executed-flops", a_cost_of_two_matrices_for_three),
    ("mamba2", "ragged", a_recurrence_that_forgets_padding),
]


@pytest.mark.parametrize(
    ("name", "rule", "mutate"), MUTATIONS, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_mutated_builtin_fails_only_the_rule_that_names_it(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, name: str, rule: str, mutate: Mutate
) -> None:
    mutate(monkeypatch)
    sequence._cost.cache_clear()
    found = failures(check(registry, "mixer", name))
    sequence._cost.cache_clear()
    assert list(found) == [rule], found
