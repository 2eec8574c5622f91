"""What a plugin states it can do. The search proposes only what is stated; conformance checks that it is true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from crossbreed.core.ledger import Phase

Axis = Literal["sequence", "depth", "channel"]
SiteKind = Literal["gate", "mode", "halt"]
Execution = Literal["dense", "sparse"]
"""``dense``: computed for every token, then masked, charged at rate 1. ``sparse``: skipped work skips time."""

CUDA = "cuda"
"""Among a backend's needs: a CUDA device."""

KNOWN_NEEDS: Mapping[str, tuple[str, ...]] = {
    "sdpa": ("torch.nn.functional",),
    "flex": ("torch.nn.attention.flex_attention",),
    "flash_attn": ("flash_attn", CUDA),
    "fla": ("fla", CUDA),
    "mamba_ssm": ("mamba_ssm", CUDA),
}
"""What backends of a usual name need; a mixer's own ``backend_needs`` come first."""

ALL_DENSE: Mapping[Phase, Execution] = {"train": "dense", "prefill": "dense", "decode": "dense"}


@dataclass(frozen=True)
class MixerCapabilities:
    """What a mixer can do.

    axis:        what it mixes.
    reader:      it offers a reader that a multi-mixer can hold.
    head_sizes:  legal values of the settings ``head_size``, ``key_size`` and ``value_size``, or None for any.
    dtypes:      activation dtypes it runs in.
    longest:     tokens of the longest text that it can read, or None for any: a table of positions has an end.
    packing:     it keeps documents packed into one row apart.
    causal:      no output depends on a later token.
    deterministic: equal inputs give equal bits on one device.
    same_in_training: outputs in training equal those in evaluation; False with dropout, say.
    gradient_steps: training steps within which every parameter has had a gradient, where every choice is taken.
    execution:   per phase, whether unread tokens skip time in every implementation, the reference included; one of
                 several may skip more, which budgets do not count on.
    backends:    implementations it has; ``reference`` always exists and runs on a CPU.
    backend_needs: modules that a backend imports and, as ``cuda``, a CUDA device, for backends of an unusual name.
    """

    axis: Axis
    reader: bool = False
    head_sizes: tuple[int, ...] | None = None
    dtypes: tuple[str, ...] = ("float64", "float32", "bfloat16")
    longest: int | None = None
    packing: bool = True
    causal: bool = True
    deterministic: bool = True
    same_in_training: bool = True
    gradient_steps: int = 1
    execution: Mapping[Phase, Execution] = field(default_factory=lambda: dict(ALL_DENSE))
    backends: tuple[str, ...] = ("reference",)
    backend_needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def needs(self, backend: str) -> tuple[str, ...]:
        """Modules that a backend imports, and ``cuda`` where it needs a CUDA device."""
        return tuple(self.backend_needs.get(backend, KNOWN_NEEDS.get(backend, ())))


@dataclass(frozen=True)
class RouterCapabilities:
    """What a router can do.

    sites:       where it may stand.
    causal:      in evaluation no choice depends on a later token.
    gradient:    it learns through its soft weights, so training runs every choice and is charged so.
    feedback_sites: sites at which it needs the model's output on earlier segments (evaluated segment by segment).
    max_choices: the largest number of choices it can tell apart, or None for any.
    deterministic: the same counter gives the same choice.
    needs_labels: it looks at ``context.labels_BT``, which no other router is shown: an upper bound for training and
                 evaluation that no generation can use, so a search never proposes it.
    fitted:      it is fitted to a trained router (``crossbreed fit-router``) and takes no part in training.
    """

    sites: tuple[SiteKind, ...]
    causal: bool = True
    gradient: bool = False
    feedback_sites: tuple[SiteKind, ...] = ()
    max_choices: int | None = None
    deterministic: bool = True
    needs_labels: bool = False
    fitted: bool = False

    @property
    def searchable(self) -> bool:
        """Whether a search may propose it: it trains with the model and is still there when the model is used."""
        return self.causal and not self.needs_labels and not self.fitted
