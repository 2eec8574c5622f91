"""Backends against the reference, on the device that is to serve them: a kernel may be silently wrong on a new one.

A worker asks this of every mixer that has more than the reference before it builds a candidate with it, once a process. A
backend that fails is refused by name; no other one takes its place without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import torch
from torch import Tensor, nn

from crossbreed.core import genome
from crossbreed.core.contracts.capabilities import MixerCapabilities
from crossbreed.core.contracts.mixer import Mixer
from crossbreed.core.errors import OutOfMemory, WrongBackend
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.lab.environment import backends, device_name, precision
from crossbreed.core.lab.lone import VOCAB, lone_mixers, sublayer_of
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.legality import backend_for, stated_backends

TOKENS = 130
"""Tokens of the one row: two chunks of 64 and a last partial one."""
CUTS = (0, 65, TOKENS - 1, TOKENS)
"""Pieces: the second starts inside a chunk, the last is a decoded token."""
LOUD = 1.2
"""Noise added to every matrix of a mixer, so that parts that start at zero are seen: what an output of a product is moved by.
More would saturate softmax, and the last bits of a score would decide where attention looks."""
STIRS = 16
"""Times that the last bits of the input are changed before a backend is refused: one change may turn no choice of an expert where
another order of summation turns one."""
NOISE = {"float32": 1000.0, "bfloat16": 2.0}
"""How many times what the last bits of the input change two ways of computing may differ; in bfloat16 those last bits are many,
and a choice of experts that they turn is turned by another order of summation, too."""
FLOORS = {("cpu", "float32"): 1e-4, ("cuda", "float32"): 1e-2, ("cuda", "bfloat16"): 5e-2}
"""Differences that rounding explains, as shares of the largest number; fused kernels on CUDA may take products in TF32."""


@dataclass(frozen=True)
class Probed:
    """A backend that computes what the reference does: the largest difference, and how large it might have been.

    Both are shares of the largest number of the reference, in the way of running that comes closest to its limit.
    """

    mixer: str
    backend: str
    device: str
    dtype: str
    error: float
    allowed: float


_ANSWERS: dict[tuple[str, ...], Probed | WrongBackend | None] = {}
"""Of this process, by everything that they depend on: kernels do not change while it lives."""


def probe(
    architecture: Architecture,
    registry: Registry,
    device: torch.device,
    *,
    backend: str,
    dtype: str,
    chosen: Mapping[str, str] | None = None,
) -> list[Probed]:
    """Compare ``backend``, under ``auto`` the ``chosen`` ones (see ``LanguageModel``), with the reference for every mixer that
    has more than it: one row of 130 tokens, whole, in pieces with a decoded token, and in training with its gradients.

    On a CUDA device ``auto`` has more for every mixer: kernels of our own. dtype: ``float32``, or ``bfloat16`` for autocast.
    Raises WrongBackend for the first that computes something else, and ConfigError for a backend that cannot be built here.
    """
    precision(dtype, device)
    found = []
    for alone in lone_mixers(architecture):
        stated = stated_backends(sublayer_of(alone), registry)
        built = backend_for(sublayer_of(alone), registry, backend, chosen)
        fused = built == "auto" and _kernels_of_our_own(device)
        if not fused and not (stated and backend in ("auto", "reference", *stated)):
            continue
        plugins = repr(sorted(registry.identities(alone).items()))
        key = (genome.digest(alone), plugins, built, str(device), dtype)
        if key not in _ANSWERS:
            _ANSWERS[key] = _answer(alone, registry, device, built, dtype)
        answer = _ANSWERS[key]
        if isinstance(answer, WrongBackend):
            raise answer
        if answer is not None:
            found.append(answer)
    return found


def _kernels_of_our_own(device: torch.device) -> bool:
    """Whether there are any for ``device``, in what no library computes faster."""
    return device.type == "cuda"


def _answer(
    alone: Architecture, registry: Registry, device: torch.device, backend: str, dtype: str
) -> Probed | WrongBackend | None:
    """What came of comparing one mixer's backend; raises what the reference does, and for want of memory.

    None for a mixer without backends that overflows where its weights are so loud: nothing but PyTorch can be what does.
    """
    mixer = sublayer_of(alone).mixer
    able = registry.descriptor("mixer", mixer).capabilities
    served, reference = (
        LanguageModel(alone, registry, backend=name).to(device) for name in (backend, "reference")
    )
    with precision(dtype, device):
        used = "+".join(sorted(set(backends(served).values()))) or backend
    if used == "reference" and not (backend == "auto" and _kernels_of_our_own(device)):
        return Probed(mixer, used, device_name(device), dtype, 0.0, FLOORS[device.type, dtype])
    where = f"backend {used!r} of mixer {mixer!r} on {device_name(device)} in {dtype}"
    _speak(reference)
    wanted, again = (_computed(reference, dtype, able) for _ in range(2))
    for name, right in wanted.items():
        if not right.isfinite().all():
            stated = stated_backends(sublayer_of(alone), registry)
            why = f"{where} cannot be probed: the reference's {name} are not finite"
            return WrongBackend(why) if stated else None
    try:
        served.load_state_dict(reference.state_dict())
        got = _computed(served, dtype, able)
    except (MemoryError, OutOfMemory, torch.OutOfMemoryError):
        raise
    except Exception as error:
        # Somebody's kernel may raise anything; it is what the probe found.
        return WrongBackend(f"{where} fails its probe: it raised {type(error).__name__}: {error}")
    off, noise = ({name: _share(right, of[name]) for name, right in wanted.items()} for of in (got, again))
    floor, allowed = FLOORS[device.type, dtype], dict.fromkeys(wanted, 0.0)
    for stirred in _stirred(reference, dtype):
        for name, other in _computed(stirred, dtype, able).items():
            noise[name] = max(noise[name], _share(wanted[name], other))
        allowed = {name: max(floor, NOISE[dtype] * share) for name, share in noise.items()}
        if all(share <= allowed[name] for name, share in off.items()) or inf in off.values():
            break
    closest = Probed(mixer, used, device_name(device), dtype, 0.0, 1.0)
    for name, share in off.items():
        if not share <= allowed[name]:
            return WrongBackend(
                f"{where} fails its probe: {name} of {TOKENS} tokens differ from the reference's by {share:.3g} of the largest, "
                f"and rounding explains {allowed[name]:.3g}; it is not used here"
            )
        if share / allowed[name] >= closest.error / closest.allowed:
            closest = Probed(mixer, used, device_name(device), dtype, share, allowed[name])
    return closest


def _computed(model: LanguageModel, dtype: str, able: MixerCapabilities) -> dict[str, Tensor]:
    """What its mixers compute, by way of running."""
    device = model.embedding.weight.device
    generator = torch.Generator().manual_seed(3)
    tokens_BT = torch.randint(VOCAB, (1, TOKENS), generator=generator).to(device)
    choices = 1 if model.mode is None else model.mode.choices
    forced = {"mode": torch.arange(TOKENS, device=device)[None] % choices}
    found: dict[str, Tensor] = {}
    with precision(dtype, device), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        model.eval()
        with torch.no_grad(), _outputs(model) as outputs:
            model(tokens_BT, model.context(tokens_BT, forced=forced))
            found["outputs"] = torch.cat(outputs, 1)
        with torch.no_grad(), _outputs(model) as outputs:
            state = model.init_state(1, slots=TOKENS, dtype=getattr(torch, dtype))
            whole = model.context(tokens_BT, forced=forced)
            for start, stop in pairwise(CUTS):
                at = whole.slice(start, stop).at(phase="decode" if stop - start == 1 else "prefill")
                _, after = model(tokens_BT[:, start:stop], at, state)
                assert after is not None
                state = after
            found["outputs in pieces"] = torch.cat(outputs, 1)
        if able.same_in_training:
            model.train().zero_grad()
            with _outputs(model) as outputs:
                model(tokens_BT, model.context(tokens_BT, phase="train", forced=forced))
                y = torch.cat(outputs, 1)
                found["outputs in training"] = y.detach()
                y.float().square().mean().backward()
            gradients = (p.grad for mixer in _mixers_in(model) for p in mixer.parameters())
            found["gradients"] = torch.cat([g.flatten() for g in gradients if g is not None])
    return found


@contextmanager
def _outputs(model: LanguageModel) -> Iterator[list[Tensor]]:
    """What mixers return while the block lasts."""
    found: list[Tensor] = []

    def keep(module: nn.Module, arguments: object, result: tuple[Tensor, object]) -> None:
        found.append(result[0])

    handles = [mixer.register_forward_hook(keep) for mixer in _mixers_in(model)]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _mixers_in(model: LanguageModel) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, Mixer)]


def _speak(model: LanguageModel) -> None:
    """Make the input of unit size and the weights of mixers loud."""
    generator = torch.Generator().manual_seed(1)

    def noise(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator).to(like)

    with torch.no_grad():
        model.embedding.weight.copy_(noise(model.embedding.weight))
        for parameter in (p for mixer in _mixers_in(model) for p in mixer.parameters()):
            parameter.add_(
                noise(parameter) * (LOUD / parameter.shape[-1] ** 0.5 if parameter.dim() > 1 else 0.1)
            )


def _stirred(model: LanguageModel, dtype: str) -> Iterator[LanguageModel]:
    """The model, with the last bits of its input changed in the precision that is computed in; STIRS times."""
    weight, eps = model.embedding.weight, torch.finfo(getattr(torch, dtype)).eps
    before = weight.detach().clone()
    generator = torch.Generator().manual_seed(2)
    for _ in range(STIRS):
        noise = torch.randn(weight.shape, generator=generator).to(weight)
        with torch.no_grad():
            weight.copy_(before * (1 + eps * noise))
        yield model


def _share(right: Tensor, other: Tensor) -> float:
    """The largest difference as a share of the largest number; infinite where shapes differ or one is not finite."""
    if right.shape != other.shape:
        return float("inf")
    if not right.numel():
        return 0.0
    size = float(right.double().abs().max())
    found = float((right.double() - other.double()).abs().max()) / max(size, torch.finfo(torch.float32).tiny)
    return found if found == found else float("inf")
