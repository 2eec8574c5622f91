"""Weights: initial values and marks that survive, gradients that arrive, settings that do something."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from crossbreed.core import genome
from crossbreed.core.conformance.case import Case, draw
from crossbreed.core.conformance.mixers.subject import D_MODEL, DEPTHS, MixerSubject, distance
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.contracts.router import Decision
from crossbreed.core.errors import ConfigError
from crossbreed.core.model.block import Block, ModelBuild
from crossbreed.core.model.seeding import seeded

LEARNING_RATE = 1e-2


def _copies(subject: MixerSubject, case: Case, bare: Any) -> dict[str, Any]:
    """A bare mixer built again, copied, cast and put into a block."""
    return {
        "a second build from the same seed": subject.bare(case.settings),
        "a deep copy": copy.deepcopy(bare),
        "a deep copy of a module that holds it": copy.deepcopy(nn.Sequential(bare))[0],
        "a cast to float64 and back": subject.bare(case.settings).double().float(),
        "evaluation and training again": subject.bare(case.settings).eval().train(),
        "a block": _block(subject, case).mixers[0],
    }


def _block(subject: MixerSubject, case: Case) -> Block:
    sublayer = genome.Sublayer(mixer=subject.name, params=dict(case.settings))
    build = ModelBuild(D_MODEL, 8, subject.registry, "auto", 1)
    with seeded(0):
        return Block(genome.Block(sublayers=(sublayer,)), 0, 0, DEPTHS, build)


@rule(
    "mixer",
    "initial-values",
    says="Initial values are those of the constructor and its seed, wherever the mixer is put.",
    measured="All parameters and buffers after a second build, deep copies, a cast and back, a change of mode and inside a block, against "
    "the bare mixer: equal exactly.",
    faults=("I1", "I2"),
)
def initial_values(subject: MixerSubject, case: Case) -> None:
    bare = subject.bare(case.settings)
    before = {name: tensor.detach().clone() for name, tensor in bare.state_dict().items()}
    for how, mixer in _copies(subject, case, bare).items():
        after = mixer.state_dict()
        require(after.keys() == before.keys(), f"after {how} it has other tensors")
        for name, tensor in before.items():
            require(
                torch.equal(after[name], tensor),
                f"after {how}, {name} has other values",
                change=distance(after[name], tensor),
            )


@rule(
    "mixer",
    "marks",
    says="What it names as exempt from weight decay and as output are its parameters, and stay named.",
    measured="``no_weight_decay`` and ``output_parameters`` name parameters of the right kind, and are the same after every copy, cast and "
    "build, on the meta device too.",
    faults=("I3",),
)
def marks(subject: MixerSubject, case: Case) -> None:
    bare = subject.bare(case.settings)
    names, wanted = dict(bare.named_parameters()), (bare.no_weight_decay(), bare.output_parameters())
    for kind, named in zip(("no_weight_decay", "output_parameters"), wanted, strict=True):
        require(
            named <= names.keys(), f"{kind} names {sorted(named - names.keys())}, which are no parameters"
        )
    for name in wanted[1]:
        require(names[name].dim() >= 2, f"output parameter {name} is no matrix")
    copies = _copies(subject, case, bare)
    with torch.device("meta"):
        copies["a build on the meta device"] = subject.bare(case.settings)
    for how, mixer in copies.items():
        now = (mixer.no_weight_decay(), mixer.output_parameters())
        for kind, then, named in zip(("no_weight_decay", "output_parameters"), wanted, now, strict=True):
            require(then == named, f"after {how}, {kind} names {sorted(named)}; it named {sorted(then)}")


@rule(
    "mixer",
    "meta-device",
    says="Built on the meta device it allocates nothing, and loaded weights make it the same mixer.",
    measured="Names, shapes and devices of all parameters and buffers; outputs after loading a real mixer's weights, up to rounding.",
    faults=("I3",),
    after=("shapes",),
)
def meta_device(subject: MixerSubject, case: Case) -> None:
    real = subject.build(case.settings)
    with torch.device("meta"):
        meta = subject.bare(case.settings)
    tensors = {**dict(meta.named_parameters()), **dict(meta.named_buffers())}
    for name, tensor in tensors.items():
        require(tensor.device.type == "meta", f"built on the meta device, {name} is on {tensor.device}")
    shapes = {name: tuple(tensor.shape) for name, tensor in meta.state_dict().items()}
    wanted = {name: tuple(tensor.shape) for name, tensor in real.state_dict().items()}
    require(shapes == wanted, f"built on the meta device it has tensors {shapes}, else {wanted}")
    meta.load_state_dict(real.state_dict(), strict=True, assign=True)
    x, at = subject.input(2, 9), subject.context(case.settings, 2, 9)
    with torch.no_grad():
        moved = distance(subject.run(real, x, at)[0], subject.run(meta.eval(), x, at)[0])
    allowed = subject.allowed(case.settings, 9)
    require(moved <= allowed, "with loaded weights it is another mixer", change=moved, allowed=allowed)


@rule(
    "mixer",
    "outputs",
    says="The matrices that it names as output are all that writes into the stream.",
    measured="With ``output_parameters`` set to zero every output is zero.",
    unless=lambda subject: "" if subject.bare({}).output_parameters() else "it names no output parameters",
    after=("marks",),
)
def outputs(subject: MixerSubject, case: Case) -> None:
    mixer, x = subject.build(case.settings), subject.input(2, 9)
    with torch.no_grad():
        for name in mixer.output_parameters():
            mixer.get_parameter(name).zero_()
        y, _ = subject.run(mixer, x, subject.context(case.settings, 2, 9))
    require(not y.any(), "with its output matrices at zero it still writes", size=float(y.abs().max()))


@rule(
    "mixer",
    "gradients",
    says="Within the declared number of training steps every parameter, and the input, has had a gradient.",
    measured="Steps of training on 2 x 40 tokens at every depth, with every mode taken: no gradient missing, none zero throughout.",
    faults=("C11",),
    after=("shapes",),
)
def gradients(subject: MixerSubject, case: Case) -> None:
    mixer = subject.bare(case.settings, depths=subject.depths).to(getattr(torch, subject.dtype)).train()
    choices = subject.choices(case.settings)
    missing = {"the input", *dict(mixer.named_parameters())}
    for step in range(subject.able.gradient_steps):
        x = subject.input(2, 40, seed=20 + step).requires_grad_()
        at = subject.context(case.settings, 2, 40, phase="train").at(step=step)
        if choices > 1:
            at = at.at(mode=Decision((torch.arange(80).view(2, 40) + step) % choices))
        y = subject.forward(mixer, x, at)
        require(y.requires_grad, "the output carries no gradient")
        y.square().sum().backward()
        for name, tensor in (("the input", x), *mixer.named_parameters()):
            if tensor.grad is not None and bool(tensor.grad.any()):
                missing.discard(name)
        with torch.no_grad():
            for parameter in mixer.parameters():
                if parameter.grad is not None:
                    parameter.sub_(LEARNING_RATE * parameter.grad / parameter.grad.norm().clamp(min=1.0))
                    parameter.grad = None
    steps = subject.able.gradient_steps
    require(not missing, f"after {steps} step(s) no gradient has reached {', '.join(sorted(missing))}")


@rule(
    "mixer",
    "same-in-training",
    says="Training and evaluation compute the same outputs.",
    measured="The module in training mode in the training phase, with gradients on, against evaluation in prefill, up to rounding.",
    unless=lambda subject: "" if subject.able.same_in_training else "it states same_in_training=False",
    after=("repeatable", "causal"),
)
def same_in_training(subject: MixerSubject, case: Case) -> None:
    x, at = subject.input(2, 40), subject.context(case.settings, 2, 40)
    mixer = subject.build(case.settings)
    with torch.no_grad():
        evaluated = subject.forward(mixer, x, at)
    trained = subject.forward(mixer.train(), x, at.at(phase="train")).detach()
    moved, allowed = distance(evaluated, trained), subject.allowed(case.settings, 40)
    require(
        moved <= allowed, "outputs in training differ from those in evaluation", change=moved, allowed=allowed
    )


@rule(
    "mixer",
    "inputs-kept",
    says="Nothing that is handed in is changed: input, masks and, with gradients on, states; nor weights by inference.",
    measured="Bits before and after: with gradients on, a piece from a given state; without, 20 decoded tokens.",
    faults=("S7",),
    after=("shapes",),
)
def inputs_kept(subject: MixerSubject, case: Case) -> None:
    mixer, x, at = subject.build(case.settings), subject.input(2, 24), subject.context(case.settings, 2, 24)
    read_BT = torch.arange(24).expand(2, 24) % 3 > 0
    valid_BT = torch.arange(24) < torch.tensor([[24], [20]])
    with torch.no_grad():
        _, states = subject.run(mixer, x[:, :4], at.slice(0, 4), states=subject.begin(mixer, x, slots=24))
    given: dict[str, Tensor] = {
        "the input": x,
        "read_BT": read_BT,
        "valid_BT": valid_BT,
        "positions_BT": at.positions_BT,
    }
    given |= {f"state {name!r}": tensor for state in states for name, tensor in state.items()}
    before = {name: tensor.clone() for name, tensor in given.items()}
    y, _ = subject.run(
        mixer, x[:, 4:], at.at(valid_BT=valid_BT).slice(4, 24), read_BT=read_BT[:, 4:], states=states
    )
    if y.requires_grad:
        y.sum().backward()
    for name, tensor in given.items():
        require(torch.equal(tensor, before[name]), f"with gradients on, {name} is changed in place")
    weights = {name: tensor.clone() for name, tensor in mixer.state_dict().items()}
    with torch.inference_mode():
        subject.run(mixer, x, at, cuts=range(4, 24))
    require(torch.equal(x, before["the input"]), "in decode, the input is changed in place")
    for name, tensor in mixer.state_dict().items():
        require(torch.equal(tensor, weights[name]), f"inference changes {name}")


@rule(
    "mixer",
    "settings",
    says="Every setting that a search draws or a budget moves changes the mixer, and unknown settings are refused.",
    measured="Of each setting in ``ranges`` and ``free`` some values beside the defaults: parameters of other shapes, or other outputs on 70 "
    "tokens from equal seeds.",
    faults=("I5", "S4"),
    after=("repeatable",),
)
def settings(subject: MixerSubject, case: Case) -> None:
    if case.settings:
        # Judged by the defaults, one setting at a time.
        return
    try:
        subject.config({"no_such_setting": 1})
    except ConfigError:
        pass
    else:
        require(False, "an unknown setting is accepted")
    for name, values in subject.ranges().items():
        found = [_fingerprint(subject, {name: value}) for value in _some(values)]
        legal = [(shapes, y) for shapes, y in filter(None, found)]
        require(bool(legal), f"no value of {name} that was tried is legal beside the defaults")
        first = legal[0]
        changed = any(shapes != first[0] or not torch.equal(y, first[1]) for shapes, y in legal[1:])
        require(changed or len(legal) == 1, f"setting {name} changes nothing")


def _some(values: Any) -> list[Any]:
    """A few values, smallest first; all of a few choices."""
    import random

    listed = getattr(values, "values", None)
    if isinstance(listed, tuple):
        return list(listed[:4])
    generator, found = random.Random(0), []
    for _ in range(12):
        value = draw(values, generator)
        if value not in found:
            found.append(value)
    return sorted(found)[:4]


def _fingerprint(subject: MixerSubject, settings: dict[str, Any]) -> tuple[dict[str, Any], Tensor] | None:
    """Shapes of all parameters, and an output; None for settings that are not legal."""
    try:
        subject.config(settings)
    except ConfigError:
        return None
    mixer, x = subject.build(settings), subject.input(1, 70)
    with torch.no_grad():
        y, _ = subject.run(mixer, x, subject.context(settings, 1, 70))
    return {name: tuple(p.shape) for name, p in mixer.named_parameters()}, y
