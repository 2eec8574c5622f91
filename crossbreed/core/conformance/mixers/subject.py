"""A mixer under check: built with weights that speak, and run in pieces as a stage would.

Legend: B rows, T tokens, D model width, C = depths x D outputs of all depths side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from crossbreed.core.conformance.rule import require
from crossbreed.core.conformance.subject import Subject
from crossbreed.core.contracts.capabilities import CUDA, MixerCapabilities
from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import MixerBuild, State
from crossbreed.core.contracts.router import Decision
from crossbreed.core.errors import ConfigError, MissingCapability
from crossbreed.core.ledger import Cost, Phase, Shape
from crossbreed.core.model.legality import HEAD_SIZES
from crossbreed.core.model.seeding import seeded

D_MODEL = 16
ROWS = 3
DEPTHS = 2
"""Repeats of a stage, where a mixer keeps something from one to the next or has weights for each."""
FLOORS = {"float64": 1e-10, "float32": 1e-4, "bfloat16": 5e-2, "float16": 1e-2}
"""Differences that rounding alone explains, as shares of the largest output."""
NOISE = 1000.0
"""How many times what one bit of the input changes two ways of computing an output may differ."""
LENGTHS = (16, 70, 130)
"""Tokens at which noise is measured: for each length the next of these, since it grows along a row."""
LOUD = 0.3
"""Noise added to every matrix, so that gates and scores are far from flat and what starts at zero speaks."""

States = list[State]
"""A mixer's states, one for each depth."""


class MixerSubject(Subject):
    """A registered mixer. Everything is drawn from fixed seeds; equal calls give equal results."""

    kind = "mixer"

    @cached_property
    def _allowed(self) -> dict[tuple[object, ...], float]:
        return {}

    @property
    def able(self) -> MixerCapabilities:
        found: MixerCapabilities = self.descriptor.capabilities
        return found

    def config(self, settings: Mapping[str, Any]) -> Any:
        made = super().config(settings)
        for name in HEAD_SIZES:
            size, legal = getattr(made, name, None), self.able.head_sizes
            if size is not None and legal is not None and size not in legal:
                raise ConfigError(f"{name} {size} of mixer {self.name!r} is none of its head sizes {legal}")
        return made

    def ranges(self) -> Mapping[str, Any]:
        # A dotted setting belongs to a part that is only there on request.
        free = {name: values for name, values in self.descriptor.free.items() if "." not in name}
        return {**free, **self.descriptor.ranges}

    @cached_property
    def cls(self) -> Any:
        return self.registry.factory("mixer", self.name)

    @cached_property
    def dtype(self) -> str:
        """The widest dtype it runs in: what its mathematics is judged in."""
        return next(name for name in FLOORS if name in self.able.dtypes)

    @cached_property
    def scratch(self) -> bool:
        """Whether it keeps state for one pass of a stage only."""
        return any(spec.scope == "pass" for spec in self.build({}).state_specs())

    @property
    def depths(self) -> int:
        return DEPTHS if self.scratch else 1

    def backends(self, settings: Mapping[str, Any]) -> Iterator[str]:
        """The declared backends that can be built here, the reference first."""
        for backend in sorted(self.able.backends, key=lambda name: name != "reference"):
            if CUDA in self.able.needs(backend) and not torch.cuda.is_available():
                continue
            try:
                self.build(settings, backend=backend)
            except MissingCapability:
                continue
            yield backend

    def dtypes(self, settings: Mapping[str, Any], backend: str) -> list[str]:
        """Declared dtypes, widest first, in which a backend runs: always the narrowest; of wider ones those it does not refuse."""
        *wider, narrowest = [name for name in FLOORS if name in self.able.dtypes]
        found = []
        for dtype in wider:
            try:
                with torch.no_grad():
                    self.run(
                        self.build(settings, dtype=dtype, backend=backend),
                        self.input(1, 2, dtype=dtype),
                        self.context(settings, 1, 2),
                    )
            except Exception:
                # A kernel may be made for narrow numbers alone; what it cannot do it must refuse, not get wrong.
                continue
            found.append(dtype)
        return [*found, narrowest]

    def bare(
        self, settings: Mapping[str, Any], *, backend: str = "auto", depths: int | None = None, seed: int = 0
    ) -> Any:
        """The mixer as its constructor leaves it, in float32."""
        depths = DEPTHS if depths is None else depths
        build = MixerBuild(D_MODEL, depths, backend, self.registry)
        with seeded(seed):
            return self.cls(self.config(settings), build)

    def build(
        self,
        settings: Mapping[str, Any],
        *,
        dtype: str = "",
        backend: str = "auto",
        depths: int | None = None,
    ) -> Any:
        """The mixer with loud weights, in evaluation."""
        mixer = self.bare(settings, backend=backend, depths=depths).to(getattr(torch, dtype or self.dtype))
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in mixer.parameters():
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_(noise.to(parameter.dtype) * (LOUD if parameter.dim() > 1 else LOUD / 3))
        # What needs a CUDA device is judged there; everything else is on the CPU, whatever this machine has.
        return mixer.to("cuda" if CUDA in self.able.needs(backend) else "cpu").eval()

    def choices(self, settings: Mapping[str, Any]) -> int:
        """How many readers a mode chooses from."""
        return max(1, len(getattr(self.config(settings), "readers", None) or ()))

    def cost(self, settings: Mapping[str, Any], phase: Phase, tokens: int, dtype: str = "") -> Cost:
        """What the mixer says one depth costs, by default in the dtype that FLOPs are counted in."""
        counted = "float32" if "float32" in self.able.dtypes else self.dtype
        shape = Shape(2, tokens, dtype or counted, phase)
        found: Cost = self.cls.cost(self.config(settings), D_MODEL, shape, DEPTHS, self.registry)
        return found

    def input(self, rows: int, tokens: int, *, seed: int = 2, dtype: str = "") -> Tensor:
        """x_BTD of unit size, as a norm leaves it."""
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(rows, tokens, D_MODEL, generator=generator, dtype=torch.float64)
        return x.to(getattr(torch, dtype or self.dtype))

    def context(
        self,
        settings: Mapping[str, Any],
        rows: int,
        tokens: int,
        *,
        starts: Sequence[int] = (),
        **fields: Any,
    ) -> Context:
        """Tokens from position 0 on; ``starts`` are first tokens of further documents. Modes are random, token by token."""
        positions, document = torch.arange(tokens), torch.zeros(tokens, dtype=torch.int64)
        for start in starts:
            document[start:] += 1
            positions[start:] = torch.arange(tokens - start)
        count, mode = self.choices(settings), None
        if count > 1:
            generator = torch.Generator().manual_seed(3)
            mode = Decision(torch.randint(count, (rows, tokens), generator=generator))
        return Context(
            positions_BT=positions.repeat(rows, 1),
            row_id_B=torch.arange(rows),
            document_BT=document.repeat(rows, 1) if len(starts) else None,
            site="0.0.0.0",
            mode=mode,
            **fields,
        )

    def begin(self, mixer: Any, x_BTD: Tensor, slots: int = 0) -> States:
        """Empty states of all depths."""
        device = _device(mixer, x_BTD)
        return [
            mixer.init_state(len(x_BTD), slots=slots, dtype=x_BTD.dtype, device=device)
            for _ in range(self.depths)
        ]

    def run(
        self,
        mixer: Any,
        x_BTD: Tensor,
        at: Context,
        *,
        cuts: Sequence[int] = (),
        read_BT: Tensor | None = None,
        states: States | None = None,
    ) -> tuple[Tensor, States]:
        """(y_BTC, states after) of pieces between ``cuts``; outside training, those of one token are decoded.

        The mixer is given everything on its own device, and y is handed back on that of x.
        """
        states = self.begin(mixer, x_BTD) if states is None else states
        home, device = x_BTD.device, _device(mixer, x_BTD)
        x_BTD, at, read_BT = (
            x_BTD.to(device),
            _on(at, device),
            None if read_BT is None else read_BT.to(device),
        )
        outputs = []
        for start, stop in pairwise([0, *cuts, x_BTD.shape[1]]):
            piece = at.slice(start, stop)
            if stop - start == 1 and not at.training:
                piece = piece.at(phase="decode")
            read = None if read_BT is None else read_BT[:, start:stop]
            y_BTC, states = self._piece(mixer, x_BTD[:, start:stop], piece, read, states)
            outputs.append(y_BTC)
        return torch.cat(outputs, 1).to(home), states

    def forward(self, mixer: Any, x_BTD: Tensor, at: Context, read_BT: Tensor | None = None) -> Tensor:
        """y_BTC of one pass that keeps no state, as in training."""
        if self.scratch:
            return self.run(mixer, x_BTD, at, read_BT=read_BT)[0]
        home, device = x_BTD.device, _device(mixer, x_BTD)
        x_BTD, at, read_BT = (
            x_BTD.to(device),
            _on(at, device),
            None if read_BT is None else read_BT.to(device),
        )
        outputs = [
            mixer(_at_depth(x_BTD, depth), at.at(depth=depth, depths=self.depths), None, read_BT)[0]
            for depth in range(self.depths)
        ]
        return torch.cat(outputs, -1).to(home)

    def _piece(
        self, mixer: Any, x_BTD: Tensor, at: Context, read_BT: Tensor | None, states: States
    ) -> tuple[Tensor, States]:
        B, T, _ = x_BTD.shape
        shared: State | None = None
        if self.scratch:
            shared = mixer.init_state(B * T, slots=self.depths, dtype=x_BTD.dtype, device=x_BTD.device)
        outputs, after = [], []
        for depth in range(self.depths):
            state = states[depth] if shared is None else shared
            here = at.at(depth=depth, depths=self.depths, site=f"0.0.{depth}.0", asked_BT=read_BT)
            y_BTD, new = mixer(_at_depth(x_BTD, depth), here, state, read_BT)
            require(new is not None, "a mixer that is given a state must return one")
            shared = None if shared is None else new
            outputs.append(y_BTD)
            after.append(new)
        return torch.cat(outputs, -1), states if self.scratch else after

    def allowed(
        self, settings: Mapping[str, Any], tokens: int, *, backend: str = "auto", dtype: str = ""
    ) -> float:
        """How far two correct ways of computing an output of so many tokens may differ.

        Measured from unperturbed runs of mixers built alike: the same input again, and with its last bits changed; so no
        correct mixer is accused for being sensitive. Never less than what rounding explains.
        """
        tokens = next((length for length in LENGTHS if length >= tokens), tokens)
        key = (repr(settings), tokens, backend, dtype)
        if key not in self._allowed:
            x, at = self.input(ROWS, tokens, dtype=dtype), self.context(settings, ROWS, tokens)
            generator = torch.Generator().manual_seed(4)
            bits = 1 + torch.finfo(x.dtype).eps * torch.randn(
                x.shape, generator=generator, dtype=torch.float64
            )
            with torch.no_grad():
                first, *others = (
                    self.run(self.build(settings, backend=backend, dtype=dtype), y, at)[0]
                    for y in (x, x, (x * bits).to(x.dtype))
                )
            noise = max(distance(first, other) for other in others)
            rounding = FLOORS[dtype or self.dtype] * max(1.0, float(first.abs().max()))
            self._allowed[key] = max(NOISE * noise, rounding)
        return self._allowed[key]


def _at_depth(x_BTD: Tensor, depth: int) -> Tensor:
    """The input at a depth: another one at each."""
    return x_BTD.roll(depth, -1)


def _device(mixer: Any, like: Tensor) -> torch.device:
    """The device of a mixer's weights, or of the input where it has none."""
    return next((tensor.device for tensor in (*mixer.parameters(), *mixer.buffers())), like.device)


def _on(at: Context, device: torch.device) -> Context:
    """A context with its tensors on a device."""
    if at.positions_BT.device == device:
        return at
    moved = {name: value.to(device) for name, value in vars(at).items() if isinstance(value, Tensor)}
    mode = None if at.mode is None else Decision(at.mode.choice_BT.to(device))
    return at.at(**moved, mode=mode)


def distance(a: Tensor, b: Tensor) -> float:
    """The largest difference, infinite where either is not finite; 0 of nothing."""
    if a.shape != b.shape:
        return float("inf")
    if not a.numel():
        return 0.0
    found = float((a.double() - b.double()).abs().max())
    return found if found == found else float("inf")


def rows(at: Context, index: Sequence[int]) -> Context:
    """The context of some rows, in that order."""
    pick = list(index)
    mode = at.mode

    def some(x: Tensor | None) -> Tensor | None:
        return None if x is None else x[pick]

    return replace(
        at,
        positions_BT=at.positions_BT[pick],
        row_id_B=at.row_id_B[pick],
        valid_BT=some(at.valid_BT),
        document_BT=some(at.document_BT),
        asked_BT=some(at.asked_BT),
        mode=None if mode is None else Decision(mode.choice_BT[pick]),
    )


def structure(specs: Sequence[Any], state: State) -> dict[str, Any]:
    """Names, dtypes and sizes of a state's tensors, without the axis that grows."""
    growing = {spec.name: spec.shape.index("slots") + 1 for spec in specs if "slots" in spec.shape}
    found = {}
    for name, tensor in state.items():
        sizes = list(tensor.shape)
        if name in growing and growing[name] < len(sizes):
            del sizes[growing[name]]
        found[name] = (str(tensor.dtype), sizes)
    return found
