"""One step's forward and backward pass: plainly, or as a recorded sequence of kernels that the device replays.

A small model's step is bound by the host, which launches hundreds of kernels that take microseconds each. A CUDA graph holds
them all and is launched as one. It computes what it computed when it was recorded, so everything that changes between steps
has to lie in memory that it reads: tokens, labels, row numbers, and what random counters begin with. Statistics for routers
and the optimiser stay outside, where plugins may do as they like.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from crossbreed.core.contracts.context import Context, counter_word
from crossbreed.core.contracts.task import Batch
from crossbreed.core.lab.environment import precision
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.shard import Shard
from crossbreed.core.lab.waiting import waiting_forbidden
from crossbreed.core.model.language_model import LanguageModel, Statistics

WARM = 2
"""Plain passes before one is recorded: kernels are chosen and their workspaces made in them."""
COMPARED = 2
"""Replayed passes that are compared with plain ones, each at its own step, before replays are trusted."""
TOLERANCE, SMALL = 0.02, 0.001
"""Allowed norm of the difference between a replayed and a plain gradient, as a share of its norm and beside that of the norm over
all parameters: sums in another order, in bfloat16."""
ELSEWHERE = "another device that shares its batches cannot replay them"
SITES = 1024
"""Sites whose random counters a recorded pass has room for."""


@dataclass(frozen=True)
class Passed:
    """What a pass leaves beside the gradients of the parameters, which are clipped.

    numbers_3: objective, mean loss in nats over scored tokens, and the norm of the gradient before it was clipped.
    auxiliary: losses of routers and mixers by name.
    """

    numbers_3: Tensor
    auxiliary: dict[str, Tensor]


class TrainingPass:
    """Loss and gradients of a batch, launched kernel by kernel; with a ``shard``, of the batch whose rows are a part of it."""

    def __init__(self, model: LanguageModel, recipe: Recipe, seed: int, shard: Shard) -> None:
        self.model, self.recipe, self.seed, self.shard = model, recipe, seed, shard
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.device = self.parameters[0].device

    def __call__(self, batch: Batch, step: int) -> Passed:
        return self.run(batch, self.context(batch, self.rows_B(step), step))

    def release(self) -> None:
        """Nothing is kept between steps."""

    def rows_B(self, step: int) -> Tensor:
        """Numbers of the step's rows over the whole run; of a part's, those they have in the whole batch."""
        rows = self.recipe.batch // self.shard.size
        first = step * self.recipe.batch + self.shard.rank * rows
        return torch.arange(first, first + rows, device=self.device)

    def context(self, batch: Batch, rows_B: Tensor, step: int) -> Context:
        return self.model.context(
            batch.tokens_BT,
            phase="train",
            seed=self.seed,
            step=step,
            rows_B=rows_B,
            document_BT=batch.document_BT,
            labels_BT=batch.labels_BT,
        ).at(gather=None if self.shard.size == 1 else self.shard.whole)

    def run(self, batch: Batch, context: Context) -> Passed:
        with precision(self.recipe.dtype, self.device):
            loss = self.model.loss(batch, context)
        loss.objective.backward()
        self.shard.add_up_gradients(self.parameters)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip, foreach=True)
        objective, loss_nats, scored = self.shard.sums(loss.objective.detach(), loss.loss_nats, loss.scored)
        nats = loss_nats / scored.clamp(min=1)
        auxiliary = {name: value.detach() for name, value in loss.auxiliary.items()}
        return Passed(torch.stack((objective, nats, norm)), auxiliary)


class CapturedPass:
    """Loss and gradients of a batch by replaying a recorded pass.

    The first steps are plain. Then a pass is recorded, unless the model waits for the device in it or looks at the number of
    the step; a warning says so, and training goes on plainly. Batches of another shape than the recorded one are computed
    plainly, too. Devices that share a batch do the same at every step: one that must go on plainly takes the others along.
    """

    def __init__(self, plain: TrainingPass) -> None:
        self.plain = plain
        self.refused = ""
        self._seen = 0
        self._recorded: _Recorded | None = None

    @property
    def replaying(self) -> bool:
        """Whether steps are replayed now."""
        return self._recorded is not None

    def __call__(self, batch: Batch, step: int) -> Passed:
        self._seen += 1
        if self.refused or self._seen <= WARM:
            return self.plain(batch, step)
        if self._recorded is None:
            return self._record(batch, step)
        if not self._recorded.fits(batch):
            return self.plain(batch, step)
        if self._seen <= WARM + COMPARED:
            return self._compare(batch, step)
        return self._recorded.replay(batch, step)

    def release(self) -> None:
        """Give up what was recorded, with the memory and the connections that it holds."""
        if self._recorded is not None:
            self._recorded.graph.reset()
            self._recorded = None

    def _record(self, batch: Batch, step: int) -> Passed:
        """Record this step's pass after a plain run of the very same thing has shown that it may be."""
        why = _too_large()
        if not self.plain.shard.agreed(not why):
            return self._refuse(why or ELSEWHERE, batch, step)
        recorded = _Recorded(self.plain, batch)
        try:
            recorded.set(batch, step)
            with _drawing_again(self.plain.device), waiting_forbidden():
                recorded.run()
            self._forget()
            recorded.record()
        except torch.OutOfMemoryError:
            raise
        except (_StepRead, RuntimeError) as error:
            why = (str(error).splitlines() or [""])[0] or type(error).__name__
        if not self.plain.shard.agreed(not why):
            return self._refuse(why or ELSEWHERE, batch, step)
        self._recorded = recorded
        self._forget()
        return self._compare(batch, step)

    def _compare(self, batch: Batch, step: int) -> Passed:
        """This step plainly and replayed; the plain one counts where they differ, now and from now on."""
        assert self._recorded is not None
        parameters = self.plain.parameters
        with _drawing_again(self.plain.device):
            wanted = self.plain(batch, step)
        statistics, gradients = self.plain.model.take_statistics(), [p.grad for p in parameters]
        got = self._recorded.replay(batch, step)
        if self.plain.shard.agreed(_agree(gradients, [p.grad for p in parameters], wanted, got)):
            return got
        self._recorded = None
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        self.plain.model.give_statistics(statistics)
        self._warn("a replayed pass gives other numbers than the pass itself")
        return wanted

    def _refuse(self, why: str, batch: Batch, step: int) -> Passed:
        self._forget()
        self._warn(why)
        return self.plain(batch, step)

    def _warn(self, why: str) -> None:
        self.refused = why
        warnings.warn(f"training steps are launched kernel by kernel: {why}", RuntimeWarning, stacklevel=2)

    def _forget(self) -> None:
        """Drop gradients and statistics of a pass that does not count."""
        for parameter in self.plain.parameters:
            parameter.grad = None
        self.plain.model.take_statistics()


class _Recorded:
    """A recorded pass with the memory that it reads and leaves its results in."""

    def __init__(self, plain: TrainingPass, batch: Batch) -> None:
        self.plain = plain
        self.batch = Batch(*(None if x is None else x.clone() for x in _tensors(batch)))  # type: ignore[arg-type]
        self.rows_B = plain.rows_B(0)
        self.words = _Words(plain.seed, plain.device)
        self.graph = torch.cuda.CUDAGraph()
        self.passed: Passed | None = None
        self.gradients: list[Tensor | None] = []
        self.statistics: Statistics | None = None

    def fits(self, batch: Batch) -> bool:
        return [None if x is None else x.shape for x in _tensors(batch)] == [
            None if x is None else x.shape for x in _tensors(self.batch)
        ]

    def set(self, batch: Batch, step: int) -> None:
        """Put a step's inputs where the pass reads them."""
        for mine, given in zip(_tensors(self.batch), _tensors(batch), strict=True):
            if mine is not None and given is not None:
                mine.copy_(given, non_blocking=True)
        self.rows_B.copy_(self.plain.rows_B(step))
        self.words.set(step)

    def run(self) -> Passed:
        context = self.plain.context(self.batch, self.rows_B, step=_Step())  # type: ignore[arg-type]
        return self.plain.run(self.batch, context.at(words=self.words))

    def record(self) -> None:
        # Another thread pins the next batches meanwhile, which is no part of the recording and must not spoil it.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.passed = self.run()
        self.gradients = [p.grad for p in self.plain.parameters]
        self.statistics = self.plain.model.take_statistics()

    def replay(self, batch: Batch, step: int) -> Passed:
        assert self.passed is not None
        assert self.statistics is not None
        self.set(batch, step)
        self.graph.replay()
        for parameter, gradient in zip(self.plain.parameters, self.gradients, strict=True):
            parameter.grad = gradient
        self.plain.model.give_statistics(self.statistics)
        # The next replay writes into the same memory; what is kept for later is copied out.
        return Passed(self.passed.numbers_3.clone(), self.passed.auxiliary)


class _Words:
    """What the random counter of each site begins with, on the device, so that one recorded pass serves every step."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.seed, self.device, self._step = seed, device, 0
        self._places: dict[str, int] = {}
        self._words_N = torch.zeros(SITES, dtype=torch.int64, device=device)

    def __call__(self, site: str) -> Tensor:
        if site not in self._places:
            if len(self._places) == SITES:
                raise _StepRead(f"its parts draw at more than {SITES} sites")
            self._places[site] = len(self._places)
            # The plain run before the recording meets every site.
            self.set(self._step)
        return self._words_N[self._places[site]]

    def set(self, step: int) -> None:
        self._step = step
        words = [counter_word(self.seed, step, site) for site in self._places]
        if words:
            held = torch.tensor(words, pin_memory=self.device.type == "cuda")
            self._words_N[: len(words)].copy_(held, non_blocking=True)


class _StepRead(Exception):
    """A part looked at the number of the step."""


class _Step:
    """In the place of the step's number in a recorded pass, which has none."""

    def _read(self, *_: Any) -> NoReturn:
        raise _StepRead(
            "a part reads context.step, which a recorded pass does not have; draw by context.uniform"
        )

    __eq__ = __bool__ = __format__ = __str__ = __hash__ = __int__ = __float__ = __index__ = _read  # type: ignore[assignment]
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __truediv__ = __rtruediv__ = (
        _read
    )
    __floordiv__ = __lt__ = __le__ = __gt__ = __ge__ = __pow__ = _read


def _tensors(batch: Batch) -> tuple[Tensor | None, ...]:
    return batch.tokens_BT, batch.labels_BT, batch.document_BT


def _agree(wanted: list[Tensor | None], got: list[Tensor | None], passed: Passed, replayed: Passed) -> bool:
    if [g is None for g in wanted] != [g is None for g in got]:
        return False
    own, other = ([g for g in gradients if g is not None] for gradients in (wanted, got))
    off_P = torch.stack(torch._foreach_norm(torch._foreach_sub(other, own)))
    norm_P = torch.stack(torch._foreach_norm(own))
    numbers = torch.allclose(
        passed.numbers_3[:2], replayed.numbers_3[:2], rtol=TOLERANCE, atol=1e-6, equal_nan=True
    )
    # Numbers that are not finite agree with themselves: whoever reads the norms stops the run.
    return numbers and not bool((off_P > TOLERANCE * norm_P + SMALL * norm_P.norm()).any())


@contextmanager
def _drawing_again(device: torch.device) -> Iterator[None]:
    """What follows the block draws the numbers that the block drew."""
    state = torch.cuda.get_rng_state(device)
    try:
        yield
    finally:
        torch.cuda.set_rng_state(state, device)


def _too_large() -> str:
    """Why a recorded pass has no room on this device, or nothing: it keeps its activations to itself, beside a plain pass."""
    activations = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
    free, whole = torch.cuda.mem_get_info()
    allowed = torch.cuda.get_per_process_memory_fraction() * whole - torch.cuda.memory_reserved()
    room = min(free, allowed) + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    if room > 2.2 * activations:
        return ""
    gib = 1 << 30
    return f"a recorded pass beside a plain one needs {2.2 * activations / gib:.1f} GiB, {room / gib:.1f} GiB are free"
