"""Readers: what a multi-mixer holds of a mixer, inside projections of the rules' own that share heads in groups.

Legend: H output heads, Q query heads, G key heads, U value heads (each divides H), K key size, V value size.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from crossbreed.core.conformance.case import Case
from crossbreed.core.conformance.mixers.subject import MixerSubject
from crossbreed.core.conformance.rule import Broken, require, rule, rules_of
from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import (
    HeadShape,
    Mixer,
    MixerBuild,
    MixerDescriptor,
    ReaderBuild,
    State,
    StateSpec,
)
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.host import Registered, Registry, import_late
from crossbreed.core.ledger import Cost, Shape, Work

NAME = "conformance.held"
"""Under which a reader in its projections is judged; no plugin can take it by accident."""
HEADS = HeadShape(heads=4, query_heads=4, key_heads=2, value_heads=1, key_size=6, value_size=6)
LEFT_OUT = {"settings", "reader"}
"""Rules that are about a mixer's own settings."""


def holder(of: MixerDescriptor) -> MixerDescriptor:
    """A mixer that holds the reader of another one, and is capable of the same. Its settings are the reader's."""
    reader_class: Any = import_late(of.reader)

    class Held(Mixer, nn.Module):
        def __init__(self, config: Any, build: MixerBuild) -> None:
            super().__init__()
            D, h = build.d_model, HEADS
            widths = (h.query_heads * h.key_size, h.key_heads * h.key_size, h.value_heads * h.value_size)
            self.into = nn.Linear(D, sum(widths), bias=False)
            self.out = nn.Linear(h.heads * h.value_size, D, bias=False)
            self.widths = widths
            self.reader = reader_class(config, ReaderBuild(D, HEADS, build.backend, build.depths))

        def forward(
            self, x_BTD: Tensor, context: Context, state: State | None, read_BT: Tensor | None = None
        ) -> tuple[Tensor, State | None]:
            q, k, v = self.into(x_BTD).split(self.widths, -1)
            o_BTHV, state = self.reader(
                q.unflatten(-1, (HEADS.query_heads, -1)),
                k.unflatten(-1, (HEADS.key_heads, -1)),
                v.unflatten(-1, (HEADS.value_heads, -1)),
                x_BTD,
                context,
                state,
                read_BT,
            )
            return self.out(o_BTHV.flatten(-2)), state

        def state_specs(self) -> tuple[StateSpec, ...]:
            specs: tuple[StateSpec, ...] = self.reader.state_specs()
            return specs

        def init_state(self, batch: int, **how: Any) -> State:
            state: State = self.reader.init_state(batch, **how)
            return state

        def no_weight_decay(self) -> frozenset[str]:
            return frozenset(f"reader.{name}" for name in self.reader.no_weight_decay())

        def output_parameters(self) -> frozenset[str]:
            return frozenset({"out.weight"})

        @staticmethod
        def cost(
            config: Any, d_model: int, shape: Shape, depths: int = 1, parts: Parts | None = None
        ) -> Cost:
            h = HEADS
            width = h.query_heads * h.key_size + h.key_heads * h.key_size + h.value_heads * h.value_size
            own = d_model * (width + h.heads * h.value_size)
            held: Cost = reader_class.cost(config, HEADS, d_model, shape, depths)
            return held._replace(
                write=held.write.plus(Work.product(2.0 * own, weights=own)),
                parameters=held.parameters + own,
                active_parameters=held.active_parameters + own,
            )

    assert of.reader_config is not None
    able = replace(of.capabilities, reader=False)
    return MixerDescriptor(NAME, Held, of.reader_config, able, f"what a multi-mixer holds of {of.name}")


@rule(
    "mixer",
    "reader",
    says="What a multi-mixer holds of it keeps the rules of mixers too.",
    measured="The other rules, but that on settings, by the reader's default settings inside plain projections, with heads that share "
    "keys and values in groups; of each rule the largest input, by the full profile all of the suite's.",
    unless=lambda subject: (
        ""
        if subject.able.reader or subject.descriptor.reader is not None
        else "it offers no reader that a multi-mixer could hold"
    ),
    after=(
        "read",
        "ragged",
        "documents",
        "finite",
        "gradients",
        "algorithmic-flops",
        "state-bytes",
        "inputs-kept",
    ),
)
def reader(subject: MixerSubject, case: Case) -> None:
    if case.settings:
        # A reader has settings of its own.
        return
    from crossbreed.core.conformance.suite import attempt

    offered = subject.descriptor.reader is not None and subject.descriptor.reader_config is not None
    require(offered, "it states that it offers a reader, but its descriptor lacks reader or reader_config")
    require(subject.able.reader, "its descriptor has a reader, but it does not state that it offers one")
    held = _beside(subject.registry, holder(subject.descriptor), subject)
    for one in rules_of("mixer"):
        if one.name in LEFT_OUT or one.unless(held):
            continue
        points = list(one.sizes.points("suite"))
        for sizes in points if subject.profile.name == "full" else points[-1:]:
            broken = attempt(one, held, Case({}, sizes))
            if broken is not None:
                raise Broken(
                    f"held by a multi-mixer, {one.name}: {broken} at {Case({}, sizes)}", **broken.numbers
                )


def _beside(registry: Registry, descriptor: MixerDescriptor, subject: MixerSubject) -> MixerSubject:
    """A reader in its projections as a subject, beside everything that is registered."""
    wider = copy.copy(registry)
    wider.entries = {kind: dict(entries) for kind, entries in registry.entries.items()}
    owner = registry.registered("mixer", subject.name).owner
    wider.entries["mixer"][NAME] = Registered(descriptor, owner)
    return MixerSubject(wider, NAME, "suite")
