"""Going on with a prompt: prefill, then one token at a time, and what every router decided meanwhile.

On a CUDA device a token's kernels are recorded once and replayed (``decoding``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from crossbreed.core.contracts.context import Recorder
from crossbreed.core.errors import ConfigError, NotFinite
from crossbreed.core.lab.analytics.decisions import choice_names
from crossbreed.core.lab.analytics.observation import in_order, per_token
from crossbreed.core.lab.decoding import Decoding
from crossbreed.core.lab.likelihood import batches
from crossbreed.core.lab.operating_points import OWN, OperatingPoint
from crossbreed.core.lab.reading import Reading, reading
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.state import without_depth


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen: the likeliest at ``temperature`` 0, else drawn from softmax(logits / temperature) over the
    ``top_k`` likeliest (all of them when None).

    ``seed``: of the draws. Raises ConfigError for values out of range.
    """

    temperature: float = 0.0
    top_k: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ConfigError(f"temperature is {self.temperature}; it must be a finite number of at least 0")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"top_k is {self.top_k}; it must be at least 1")

    def sampler(self) -> Sampler:
        """Draws for one text, the same whatever else is generated beside it."""
        return Sampler(self)


class Sampler:
    """Chooses one text's tokens in turn."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.generator = torch.Generator().manual_seed(sampling.seed)

    def __call__(self, logits_V: Tensor) -> int:
        """Raises NotFinite where the model gives no probabilities."""
        (likeliest,) = _likeliest(logits_V[None])
        if self.sampling.temperature == 0:
            return likeliest
        logits_V = logits_V.double().cpu()
        kept = len(logits_V) if self.sampling.top_k is None else min(self.sampling.top_k, len(logits_V))
        # Sorted stably, so that among equal logits the smaller token is the likelier everywhere.
        values_K, tokens_K = logits_V.sort(descending=True, stable=True)
        p_K = (values_K[:kept] / self.sampling.temperature).softmax(0)
        return int(tokens_K[torch.multinomial(p_K, 1, generator=self.generator)])


@dataclass(frozen=True)
class Decided:
    """One site at one depth over a text: ``choices`` of the tokens that were read, None where it was not asked (halted or gated
    off before). ``entropies``: what an entropy router saw, None where it looks at something else."""

    site: str
    kind: str
    router: str
    names: tuple[str, ...]
    choices: tuple[int | None, ...]
    entropies: tuple[float, ...] | None = None

    def shares(self, begin: int = 0, end: int | None = None) -> tuple[float, ...] | None:
        """Share of each choice among the asked tokens ``begin:end``; None where none was asked."""
        asked = [choice for choice in self.choices[begin:end] if choice is not None]
        return tuple(asked.count(n) / len(asked) for n in range(len(self.names))) if asked else None

    def runs(self) -> list[tuple[int, int]]:
        """(first position, choice) wherever it changes: of a mode site, the schedule that was followed."""
        found: list[tuple[int, int]] = []
        for position, choice in enumerate(self.choices):
            if choice is not None and (not found or found[-1][1] != choice):
                found.append((position, choice))
        return found


@dataclass(frozen=True)
class Generated:
    """A prompt and what followed. Every token but the last was read, and decided about.

    log_probabilities: of each new token in nats, under the model itself (temperature 1, all tokens).
    """

    prompt: tuple[int, ...]
    new: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    sites: tuple[Decided, ...] = ()

    @property
    def read(self) -> int:
        """Tokens that were read."""
        return len(self.prompt) + max(0, len(self.new) - 1)


def generate(
    model: LanguageModel,
    prompt: Sequence[int],
    new: int,
    *,
    sampling: Sampling | None = None,
    point: OperatingPoint = OWN,
    row: int = 0,
    seed: int = 0,
    dtype: str = "float32",
    ending: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Generated:
    """Go on with ``prompt`` by ``new`` tokens (at least 1), each read through the model's own state before the next is chosen; by
    fewer where one is ``ending``.

    Schedules that count from a text's end take it to have ``len(prompt) + new`` tokens. row, seed: what random routers draw
    by. Raises ConfigError for a point that does not fit, MissingCapability for routers that look at labels.
    """
    if new < 1 or not prompt:
        raise ConfigError(
            f"a prompt of {len(prompt)} tokens is to be gone on with by {new}; both must be at least 1"
        )
    choose = (sampling or Sampling()).sampler()
    found: list[int] = []
    logs: list[Tensor] = []
    recorder = Recorder(detail=True)
    with reading(model, dtype):
        length = len(prompt) + new
        decoding = Decoding(model, slots=length, room=new, seed=seed, dtype=dtype, detail=True)
        text = Reading(model, [length], point=point, rows=[row], seed=seed, dtype=dtype, decoding=decoding)
        piece = list(prompt)
        for done in range(new):
            logits_V = text.last([piece], recorder)[0]
            token = choose(logits_V)
            logs.append(logits_V.double().log_softmax(0)[token])
            found.append(token)
            piece = [token]
            progress(done + 1)
            if token == ending:
                break
    log_probabilities = torch.stack(logs).tolist()
    return Generated(tuple(prompt), tuple(found), tuple(log_probabilities), tuple(_decided(model, recorder)))


def complete(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    new: int,
    *,
    batch: int,
    until: Callable[[list[int]], bool] = lambda found: False,
    sampling: Sampling | None = None,
    point: OperatingPoint = OWN,
    seed: int = 0,
    dtype: str = "float32",
    progress: Callable[[int], None] = lambda done: None,
) -> list[list[int]]:
    """Go on with every prompt by at most ``new`` tokens, until ``until`` says that what was found is enough.

    Prompts of like length are read together, and each is gone on with as if it were alone: every text has number 0 for random
    routers, and draws of its own by its place among the prompts. Raises ConfigError for an empty prompt.
    """
    if new < 1 or not all(prompts):
        raise ConfigError(f"prompts are to be gone on with by {new} tokens; each and that must be at least 1")
    sampling = sampling or Sampling()
    found: dict[int, list[int]] = {}
    with reading(model, dtype):
        slots = max(map(len, prompts), default=0) + new
        decoding = Decoding(model, slots=slots, room=new, seed=seed, dtype=dtype)
        for places in batches([len(prompt) for prompt in prompts], batch):
            texts = Reading(
                model,
                [len(prompts[place]) + new for place in places],
                point=point,
                rows=[0] * len(places),
                seed=seed,
                dtype=dtype,
                decoding=decoding,
            )
            samplers = [replace(sampling, seed=sampling.seed + place).sampler() for place in places]
            said = _continued(
                texts,
                [prompts[place] for place in places],
                samplers,
                lambda tokens: len(tokens) == new or until(tokens),
            )
            found |= dict(zip(places, said, strict=True))
            progress(len(found))
    return [found[place] for place in range(len(prompts))]


def _continued(
    texts: Reading,
    prompts: Sequence[Sequence[int]],
    samplers: Sequence[Sampler],
    enough: Callable[[list[int]], bool],
) -> list[list[int]]:
    """What follows each prompt of a batch, the tokens of all chosen together."""
    found: list[list[int]] = [[] for _ in prompts]
    # Places among the prompts of the texts that are read, and of those among them that are not over.
    here = on = list(range(len(prompts)))
    pieces = prompts
    while on:
        logits_BV = texts.last(pieces)[[here.index(place) for place in on]]
        for place, token in zip(on, _choose(logits_BV, [samplers[place] for place in on]), strict=True):
            found[place].append(token)
        on = [place for place in on if not enough(found[place])]
        # A step is for a number of texts: those that are over go along in it until they are half of them.
        if on and len(on) < len(here) and (not texts.replaying or 2 * len(on) <= len(here)):
            texts.keep([here.index(place) for place in on])
            here = on
        pieces = [found[place][-1:] for place in here]
    return found


def _choose(logits_BV: Tensor, samplers: Sequence[Sampler]) -> list[int]:
    """The next token of each text; samplers differ in their seeds."""
    if samplers[0].sampling.temperature == 0:
        return _likeliest(logits_BV)
    return [sampler(logits_V) for sampler, logits_V in zip(samplers, logits_BV, strict=True)]


def _likeliest(logits_BV: Tensor) -> list[int]:
    """The first of the likeliest tokens of each text, looked at once. Raises NotFinite where there are no probabilities."""
    token_B, finite_B = logits_BV.argmax(-1), logits_BV.isfinite().all(-1)
    tokens, finite = torch.stack((token_B, finite_B.to(token_B.dtype))).tolist()
    if not all(finite):
        raise NotFinite("the model's logits are not all finite, so that no next token follows from them")
    return tokens  # type: ignore[no-any-return]


def _decided(model: LanguageModel, recorder: Recorder) -> list[Decided]:
    facts, sites = per_token(recorder), model.sites()
    decided = []
    for name in sorted({site for site, fact in facts if fact == "choice_BT"}, key=in_order):
        where = sites[without_depth(name)]
        choice_BT, asked_BT = facts[name, "choice_BT"], facts[name, "asked_BT"]
        # A router that asks twice for a token exposes no one entropy.
        entropy_BT = facts.get((name, "entropy_BT"))
        if entropy_BT is not None and entropy_BT.shape != choice_BT.shape:
            entropy_BT = None
        decided.append(
            Decided(
                name,
                where.kind,
                where.router,
                tuple(choice_names(where)),
                tuple(
                    c if asked else None
                    for c, asked in zip(choice_BT[0].tolist(), asked_BT[0].tolist(), strict=True)
                ),
                None if entropy_BT is None else tuple(entropy_BT[0].tolist()),
            )
        )
    return decided
