"""Profiling: throughput of a model at an operating point, as medians with quartiles after a stable warm-up."""

from __future__ import annotations

import gc
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from crossbreed.core.contracts.context import Context, ExecutionChoice, Recorder
from crossbreed.core.contracts.task import Task
from crossbreed.core.errors import CrossbreedError, NotFinite
from crossbreed.core.lab.environment import backends, device_name, policy, precision
from crossbreed.core.lab.neighbours import Watch
from crossbreed.core.lab.operating_points import OperatingPoint, Stretch, realised_rates
from crossbreed.core.lab.records import Measurement, Profiled
from crossbreed.core.lab.steps import NotRecorded, RecordedStep
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.state import ModelState

REPEATS = 7
SETTLED = 2
"""Successive warm-up calls that must bring no gain above TOLERANCE over the best before them, for measuring to start."""
TOLERANCE = 0.10
MOST_WARMUP = 30
MOST_WARMUP_S = 3.0
"""The warm-up's bounds: calls, and seconds for calls so long that this many would take minutes."""
DECODE_STEPS = 50
"""Tokens decoded per sample: the fewest at which shares of a tenth, 0.22 and two fifths are whole."""
PREFILL_TOKENS = 256
"""Prefill samples are filled up with whole rows to about this many tokens, so that short rows can be timed."""


@dataclass(frozen=True)
class Timing:
    """Seconds per call: median and quartiles of ``repeats`` calls after ``warmup`` that are in no statistic.

    ``stable`` is False when the warm-up never settled within its bound. ``neighbours``: clauses about other processes that
    were at work from the warm-up to the last repeat, empty when there were none, None when nobody looked.
    """

    median: float
    q1: float
    q3: float
    repeats: int
    warmup: int
    stable: bool
    neighbours: str | None = None


def measure(
    call: Callable[[], object],
    *,
    synchronise: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
    repeats: int = REPEATS,
    most_warmup: int = MOST_WARMUP,
    watch: Watch | None = None,
) -> Timing:
    """Time ``call``, which may be asynchronous: the device is waited for before each reading of the clock.

    The first call is never looked at. Then calls are made until SETTLED of them in a row are no faster than the best before
    them by more than TOLERANCE: caches, autotuning and clocks have then given what they give, while a call that was slowed
    by something else delays nothing. At most ``most_warmup`` calls in all or MOST_WARMUP_S seconds. Raises NotFinite
    when the clock did not advance, since no throughput follows from that.
    """

    def once() -> float:
        synchronise()
        begin = clock()
        call()
        synchronise()
        return clock() - begin

    once()
    if watch is not None:
        watch.begin()
    warmup, spent, settled, best = 1, 0.0, 0, math.inf
    with _no_collection():
        while settled < SETTLED and warmup < most_warmup and (spent < MOST_WARMUP_S or warmup <= SETTLED + 1):
            took = once()
            warmup += 1
            spent += took
            settled = 0 if took < (1 - TOLERANCE) * best else settled + 1
            best = min(best, took)
        stable = settled >= SETTLED
        seconds = [once() for _ in range(max(2, repeats))]
    neighbours = None if watch is None else watch.end()
    if min(seconds) <= 0:
        raise NotFinite(
            f"a timed call took {min(seconds)} s by the clock; a throughput needs an elapsed time above 0"
        )
    q1, median, q3 = statistics.quantiles(seconds, n=4, method="inclusive")
    return Timing(median, q1, q3, len(seconds), warmup, stable, neighbours)


def profile(
    model: LanguageModel,
    task: Task,
    point: OperatingPoint,
    *,
    backend: str = "auto",
    execution: ExecutionChoice = "auto",
    seed: int = 0,
    dtype: str = "float32",
) -> Profiled:
    """Measure ``prefill_tokens_per_s`` and ``decode_tokens_per_s`` at batch 1 and the task's length.

    Prefill: a whole row into an empty state, logits of its last token. Decode: tokens one by one at the end of a row
    of the task's length (its last eighth at most), the rest of the row being in the state already, so that the
    context is the task's length within an eighth; DECODE_STEPS tokens a sample over as many rows as that takes. Rows
    are evaluation items; building contexts is not timed. On a CUDA device a token's kernels are recorded once and replayed
    (``compiled`` in the measurement), unless that is impossible, which a warning says, or the ``execution`` of unread tokens
    is forced, which is then part of the measurement's policy. The caller holds the device's lease; other processes that were at work all the same are named.
    """
    device = next(model.parameters()).device
    T = task.length
    window = max(w for w in range(1, DECODE_STEPS + 1) if DECODE_STEPS % w == 0 and w <= max(1, T // 8))
    rows = _rows(task, max(DECODE_STEPS // window, -(-PREFILL_TOKENS // T)), device)
    watch = Watch.of(device)
    bench = _Bench(model, point, seed, dtype, execution)
    synchronise = (lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else (lambda: None)

    def measurement(phase: str, tokens: int, timing: Timing, compiled: bool = False) -> Measurement:
        return Measurement(
            metric=f"{phase}_tokens_per_s",
            unit="tokens/s",
            phase=phase,
            batch=1,
            tokens=T,
            dtype=dtype,
            device=device_name(device),
            policy=policy(backend, execution),
            compiled=compiled,
            median=tokens / timing.median,
            q1=tokens / timing.q3,
            q3=tokens / timing.q1,
            repeats=timing.repeats,
            stable=timing.stable,
            neighbours=timing.neighbours,
            threads=torch.get_num_threads(),
            backends=backends(model),
        )

    model.eval()
    with torch.inference_mode(), precision(dtype, device):
        whole = [bench.piece(row_2T, i, 0, T) for i, row_2T in enumerate(rows[: -(-PREFILL_TOKENS // T)])]
        prefill = measure(lambda: bench.prefill(whole), synchronise=synchronise, watch=watch)
        texts = [bench.text(row_2T, i, window) for i, row_2T in enumerate(rows[: DECODE_STEPS // window])]
        recorder = Recorder()
        bench.decode(texts, recorder)
        replayed = bench.replayed(texts)
        decode = measure(replayed or (lambda: bench.decode(texts)), synchronise=synchronise, watch=watch)
    return Profiled(
        point.name,
        realised_rates([recorder]),
        (
            measurement("prefill", sum(piece.tokens for piece in whole), prefill),
            measurement("decode", DECODE_STEPS, decode, compiled=replayed is not None),
        ),
    )


@dataclass(frozen=True)
class _Piece:
    """Tokens of one row with their context."""

    tokens_BT: Tensor
    context: Context

    @property
    def tokens(self) -> int:
        return int(self.tokens_BT.shape[1])


@dataclass(frozen=True)
class _Text:
    """A row whose beginning is in ``state``, and the steps that decode its end."""

    state: ModelState
    steps: list[_Piece]


class _Bench:
    """Runs pieces of rows under one operating point; makes everything that need not be timed beforehand."""

    def __init__(
        self, model: LanguageModel, point: OperatingPoint, seed: int, dtype: str, execution: ExecutionChoice
    ) -> None:
        self.model, self.point, self.seed, self.execution = model, point, seed, execution
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.sites = model.sites()

    def piece(
        self,
        row_2T: Tensor,
        row: int,
        start: int,
        stop: int,
        *,
        state: ModelState | None = None,
        decoding: int | None = None,
    ) -> _Piece:
        """``decoding`` numbers the decoded tokens of a sample, over which a forced rate is spread."""
        tokens_BT = row_2T[:1, start:stop]
        stretch = Stretch(1, stop - start, length=row_2T.shape[1], first=start, number=decoding)
        forced = self.point.forced(self.sites, stretch, device=row_2T.device)
        context = self.model.context(
            tokens_BT,
            phase="prefill" if decoding is None else "decode",
            seed=self.seed,
            rows_B=torch.tensor([row], device=row_2T.device),
            labels_BT=row_2T[1:, start:stop] if self.model.needs_labels else None,
            forced=forced,
            state=state,
        )
        return _Piece(tokens_BT, context.at(execution=self.execution))

    def text(self, row_2T: Tensor, row: int, window: int) -> _Text:
        T = row_2T.shape[1]
        state: ModelState | None = self.model.init_state(1, slots=T, dtype=self.dtype)
        if window < T:
            prompt = self.piece(row_2T, row, 0, T - window)
            _, state = self.model(prompt.tokens_BT, prompt.context, state)
        assert state is not None
        steps = []
        for i in range(window):
            step = self.piece(
                row_2T, row, T - window + i, T - window + i + 1, state=state, decoding=row * window + i
            )
            positions_BT = step.context.positions_BT + i
            steps.append(_Piece(step.tokens_BT, step.context.at(positions_BT=positions_BT)))
        return _Text(state, steps)

    def prefill(self, pieces: list[_Piece]) -> None:
        for piece in pieces:
            state = self.model.init_state(1, slots=piece.tokens, dtype=self.dtype)
            h_BTD, _ = self.model(piece.tokens_BT, piece.context, state)
            self.model.logits(h_BTD[:, -1:])

    def decode(self, texts: list[_Text], recorder: Recorder | None = None) -> None:
        for text in texts:
            state: ModelState | None = text.state
            for step in text.steps:
                context = step.context if recorder is None else step.context.at(recorder=recorder)
                h_BTD, state = self.model(step.tokens_BT, context, state)
                self.model.logits(h_BTD)

    def replayed(self, texts: list[_Text]) -> Callable[[], None] | None:
        """The same decoding by replaying one recorded token, or None where it is not recorded."""
        first = texts[0]
        if self.execution != "auto" or first.state.position_B.device.type != "cuda":
            return None
        sites = list(first.steps[0].context.forced)
        dtype = str(self.dtype).removeprefix("torch.")
        try:
            step = RecordedStep(
                self.model,
                first.state.copy(),
                room=len(first.steps),
                forced=sites,
                seed=self.seed,
                dtype=dtype,
            )
        except NotRecorded as why:
            warnings.warn(f"decoding is timed kernel by kernel: {why}", RuntimeWarning, stacklevel=3)
            return None
        inputs = [
            [torch.cat([s.tokens_BT, *(s.context.forced[site] for site in sites)]) for s in text.steps]
            for text in texts
        ]

        def decode() -> None:
            for text, tokens in zip(texts, inputs, strict=True):
                step.load(text.state, text.steps[0].context.row_id_B)
                for read_NB in tokens:
                    step(read_NB)

        return decode


def _rows(task: Task, count: int, device: torch.device) -> list[Tensor]:
    """``count`` evaluation rows, tokens over labels, begun again when there are fewer."""
    rows: list[Tensor] = []
    while len(rows) < count:
        before = len(rows)
        for batch in task.evaluation(count):
            rows += list(torch.stack((batch.tokens_BT, batch.labels_BT), dim=1).to(device))
            if len(rows) >= count:
                break
        if len(rows) == before:
            raise CrossbreedError(f"task {type(task).__name__} has no evaluation rows to profile on")
    return rows[:count]


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector out of timed regions."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
