"""Fitting the routers of a trained model to cheaper students: the same decisions without the probe (AMOR section 3).

The text is the task's evaluation items, which training never saw: every second row is fitted on, the rows between are
judged. Nothing looks at a label while fitting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from crossbreed.core import genome
from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.task import Batch, Score, Task, TokenClasses, Totals
from crossbreed.core.errors import ConfigError
from crossbreed.core.host import Registry
from crossbreed.core.lab.environment import precision
from crossbreed.core.lab.evaluate import Evaluation, evaluate
from crossbreed.core.lab.train import on_device
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.routing import RoutedSite

Progress = Callable[[str, int, int], None]
"""(what is done, steps done, steps in all)."""


@dataclass(frozen=True)
class SiteFit:
    """One site's student against its teacher, over ``tokens`` judged tokens of the teacher's own stream.

    mse: of the student's signal without the ``offset`` that matches its rate. rank_correlation: Spearman's, between the two signals.
    Rates are shares of tokens that run; ``agreement`` is the share of equal decisions.
    """

    site: str
    teacher: str
    student: str
    fitted_tokens: int
    tokens: int
    mse: float
    offset: float
    rank_correlation: float
    native_rate: float
    fitted_rate: float
    agreement: float


@dataclass(frozen=True)
class Fitted:
    """A model with students in place of its routers, and both models judged on the same rows, each deciding for itself."""

    model: LanguageModel
    sites: tuple[SiteFit, ...]
    native: Evaluation
    fitted: Evaluation

    @property
    def architecture(self) -> genome.Architecture:
        return self.model.architecture


def fit_routers(
    model: LanguageModel,
    task: Task,
    registry: Registry,
    *,
    steps: int = 2000,
    tokens: int = 32_768,
    batch: int = 32,
    seed: int = 0,
    dtype: str = "float32",
    progress: Progress = lambda what, done, total: None,
) -> Fitted:
    """Fit a student for every router of a trained model that has one, on at most ``tokens`` tokens a site.

    The model itself is not changed. Raises ConfigError when none of its routers has a student, or when the task has fewer
    than 2 evaluation rows.
    """
    students = {
        site.name: genome.Router(name=found[0], params=found[1])
        for site in model.routed_sites()
        if (found := site.router.student()) is not None
    }
    if not students:
        names = ", ".join(sorted({site.router_name for site in model.routed_sites()})) or "none"
        raise ConfigError(f"no router of this model has a student to fit; its routers: {names}.")
    model.eval()
    pupils = _with_students(model, students, registry, seed)
    pairs = [
        _Pair(teacher, pupil)
        for teacher, pupil in zip(model.routed_sites(), pupils.routed_sites(), strict=True)
        if teacher.name in students
    ]
    with torch.no_grad(), precision(dtype, _device(model)), _watching(pairs, _Pair.collect):
        for rows in Share(task, 0).evaluation(batch):
            _pass(model, rows)
            if all(pair.collected >= tokens for pair in pairs):
                break
    done, total = 0, steps * len(pairs)

    def step(pair: _Pair) -> None:
        nonlocal done
        done += 1
        progress(f"fitting {pair.site}", done, total)

    for pair in pairs:
        pair.fit(tokens, steps, seed, partial(step, pair))
    judged = Share(task, 1)
    with torch.no_grad(), precision(dtype, _device(model)), _watching(pairs, _Pair.judge):
        native = evaluate(model, judged, batch, seed=seed, dtype=dtype)
    fitted = evaluate(pupils.eval(), judged, batch, seed=seed, dtype=dtype)
    return Fitted(pupils, tuple(pair.report() for pair in pairs), native, fitted)


class Share(Task):
    """Every second evaluation row of a task, from row ``first`` (0 or 1) on."""

    def __init__(self, task: Task, first: int) -> None:
        super().__init__(task.config)
        self.task, self.first = task, first

    @property
    def length(self) -> int:
        return self.task.length

    @property
    def score(self) -> Score:
        return self.task.score

    def judged(self, batch: Batch) -> Tensor:
        return self.task.judged(batch)

    def classes(self, batch: Batch) -> TokenClasses:
        return self.task.classes(batch)

    def metrics(self, totals: Totals) -> dict[str, float]:
        return self.task.metrics(totals)

    def evaluation(self, size: int) -> Iterator[Batch]:
        before, found = 0, False
        for rows in self.task.evaluation(size):
            kept = slice((self.first - before) % 2, None, 2)
            before += len(rows.tokens_BT)
            if len(rows.tokens_BT[kept]):
                found = True
                document_BT = None if rows.document_BT is None else rows.document_BT[kept]
                yield Batch(rows.tokens_BT[kept], rows.labels_BT[kept], document_BT)
        if not found:
            raise ConfigError(f"the task has {before} evaluation rows; fitting and judging a router takes 2.")


@dataclass
class _Pair:
    """A router of the trained model and the student that stands at the same place."""

    teacher: RoutedSite
    pupil: RoutedSite
    site: str = ""
    collected: int = 0
    seen: dict[str, list[Tensor]] = field(default_factory=dict)
    offset: float = 0.0

    def collect(self, h_BTD: Tensor, context: Context) -> None:
        """Keep what the teacher saw and the signal it made of it, where it was asked."""
        self.site = self.site or context.site
        asked_BT = context.counted_BT()
        self._keep(h=h_BTD[asked_BT], signal=self.teacher.router.signal(h_BTD, context)[asked_BT])
        self.collected += len(self.seen["h"][-1])

    def fit(self, tokens: int, steps: int, seed: int, progress: Callable[[], None]) -> None:
        h_ND, signal_N = (torch.cat(self.seen.pop(name))[:tokens] for name in ("h", "signal"))
        self.collected = len(h_ND)
        self.offset = self.pupil.router.learn(
            self.teacher.router, h_ND, signal_N, steps=steps, seed=seed, progress=progress
        )

    def judge(self, h_BTD: Tensor, context: Context) -> None:
        """Keep both signals and both decisions on the teacher's stream."""
        asked_BT = context.counted_BT()
        routers = (self.teacher.router, self.pupil.router)
        signals = [router.signal(h_BTD, context)[asked_BT] for router in routers]
        choices = [router.forward(h_BTD, context, None)[0].choice_BT[asked_BT] for router in routers]
        self._keep(native=signals[0], fitted=signals[1], chose=choices[0], choice=choices[1])

    def report(self) -> SiteFit:
        native, fitted, chose, choice = (
            torch.cat(self.seen[name]).double() for name in ("native", "fitted", "chose", "choice")
        )
        return SiteFit(
            site=self.site,
            teacher=self.teacher.router_name,
            student=self.pupil.router_name,
            fitted_tokens=self.collected,
            tokens=len(native),
            mse=float((fitted - self.offset - native).square().mean()),
            offset=self.offset,
            rank_correlation=spearman(native, fitted),
            native_rate=float((chose > 0).double().mean()),
            fitted_rate=float((choice > 0).double().mean()),
            agreement=float((chose == choice).double().mean()),
        )

    def _keep(self, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            self.seen.setdefault(name, []).append(tensor)


def spearman(a_N: Tensor, b_N: Tensor) -> float:
    """Rank correlation; equal values share their mean rank. NaN where one of the two never varies."""
    ranks = torch.stack([_ranks(x) for x in (a_N, b_N)])
    return float(torch.corrcoef(ranks)[0, 1])


def _ranks(x_N: Tensor) -> Tensor:
    _, group_N, count = x_N.unique(return_inverse=True, return_counts=True)
    middle: Tensor = count.cumsum(0) - (count - 1) / 2
    return middle[group_N]


@contextmanager
def _watching(pairs: list[_Pair], look: Callable[[_Pair, Tensor, Context], None]) -> Iterator[None]:
    """Show every call of the teachers' sites to ``look``."""
    hooks = [
        pair.teacher.register_forward_pre_hook(lambda module, args, p=pair: look(p, args[0], args[1]))
        for pair in pairs
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _pass(model: LanguageModel, batch: Batch) -> None:
    batch = on_device(batch, _device(model))
    model(batch.tokens_BT, model.context(batch.tokens_BT, document_BT=batch.document_BT))


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _with_students(
    model: LanguageModel, students: Mapping[str, genome.Router], registry: Registry, seed: int
) -> LanguageModel:
    """The same model with other routers at the sites named; everything else has the same weights."""
    architecture = registry.canonical(model.architecture.with_routers(students))
    made = LanguageModel(architecture, registry, seed=seed)
    made.to(_device(model), next(model.parameters()).dtype)
    for old, new in zip(model.routed_sites(), made.routed_sites(), strict=True):
        if old.name not in students:
            new.load_state_dict(old.state_dict())
    own, routers = model.state_dict(), _router_keys(made) | _router_keys(model)
    shared = {name: tensor for name, tensor in own.items() if name not in routers}
    lacking = sorted(made.state_dict().keys() - shared.keys() - routers)
    if lacking:
        raise ConfigError(
            f"the model with students has the tensor {lacking[0]!r}, which the trained one lacks."
        )
    made.load_state_dict(shared, strict=False)
    return made


def _router_keys(model: LanguageModel) -> set[str]:
    return {
        f"{prefix}.{name}"
        for prefix, module in model.named_modules()
        if isinstance(module, RoutedSite)
        for name in module.state_dict()
    }
