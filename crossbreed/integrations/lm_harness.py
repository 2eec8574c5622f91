"""Our models in EleutherAI's lm-evaluation-harness: its tasks ask, a trained run answers through its own state."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partialmethod
from pathlib import Path
from typing import Any

from crossbreed.core.contracts.task import Task
from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.lab.generate import Sampling, complete
from crossbreed.core.lab.likelihood import Likelihood, Request, log_likelihoods
from crossbreed.core.lab.operating_points import OWN, OperatingPoint
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.integrations.extras import need

LEAST = "0.4.13"
need("lm_eval", "eval", LEAST)

from lm_eval import evaluator, simple_evaluate  # noqa: E402 - after the sentence that says it is missing
from lm_eval.api.model import LM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

NEW_TOKENS = 256
"""Of an answer where a task does not say."""
LENGTH_NAMES = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
KNOWN = {"until", "do_sample", "temperature", "top_k", *LENGTH_NAMES}
"""Settings of generation that are followed."""
PASSED_OVER = {"num_beams": 1, "top_p": 1.0, "repetition_penalty": 1.0}
"""Settings that are followed by ignoring them where they have the value that means nothing."""
Progress = Callable[[str, int, int], None]
"""(what is done, requests done, requests in all)."""


@dataclass
class Truncated:
    """Requests whose context was cut from the left to fit, of all."""

    requests: int = 0
    of: int = 0


class HarnessModel(LM):
    """A model at an operating point, judged in batches that change no answer beyond rounding.

    task:       spells text as tokens; its ``separator`` stands where a text begins with nothing before it.
    max_length: tokens read of one text; longer contexts are cut from the left and counted in ``truncated``.
    """

    def __init__(
        self,
        model: LanguageModel,
        task: Task,
        *,
        max_length: int,
        batch: int = 16,
        point: OperatingPoint = OWN,
        seed: int = 0,
        dtype: str = "float32",
        progress: Progress = lambda what, done, of: None,
    ) -> None:
        super().__init__()
        separator = task.separator
        if separator is None:
            raise ConfigError(
                f"task {type(task).__name__} is made of symbols, and lm-evaluation-harness asks in text; only a run of a task whose "
                "tokens are text, such as bytes, can answer"
            )
        self.model, self.task, self.separator = model, task, separator
        self.max_length, self.batch, self.progress = max_length, batch, progress
        self.settings: dict[str, Any] = {"point": point, "seed": seed, "dtype": dtype}
        self.truncated = Truncated()

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """(log-probability in nats, whether greedy decoding would say it) of each continuation."""
        asked = [self._cut(*self._pair(*request.args)) for request in requests]
        found = self._judge("log-likelihoods", asked)
        return [(likelihood.nats, likelihood.greedy) for likelihood in found]

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        """Log-probability in nats of whole texts: of each token given up to ``max_length`` before it, as the harness cuts windows."""
        windows: list[Request] = []
        owners: list[int] = []
        for place, request in enumerate(requests):
            (text,) = request.args
            for window in self._windows(self.task.encode(text)):
                windows.append(window)
                owners.append(place)
        sums = [0.0] * len(requests)
        for place, likelihood in zip(owners, self._judge("texts", windows), strict=True):
            sums[place] += likelihood.nats
        return sums

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """What the model says until a stop, which is not part of it."""
        found: dict[int, str] = {}
        groups: dict[str, list[int]] = {}
        for place, request in enumerate(requests):
            groups.setdefault(repr(request.args[1]), []).append(place)
        for places in groups.values():
            said = self._answers([requests[place].args for place in places])
            found |= dict(zip(places, said, strict=True))
        return [found[place] for place in range(len(requests))]

    @property
    def tokenizer_name(self) -> str:
        """For the harness's cache of requests."""
        return f"crossbreed-{type(self.task).__name__}"

    def _answers(self, asked: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
        """To questions with the same settings of generation."""
        stops, new, sampling = _generation(asked[0][1])
        if new >= self.max_length:
            raise ConfigError(
                f"{new} new tokens are asked for, and texts have at most {self.max_length} with their prompts; raise --max-length"
            )

        def enough(tokens: list[int]) -> bool:
            said = self.task.decode(tokens)
            return tokens[-1] == self.task.ending or any(stop in said for stop in stops)

        said = complete(
            self.model,
            [self._prompt(question, new) for question, _ in asked],
            new,
            batch=self.batch,
            until=enough,
            sampling=sampling,
            progress=lambda done: self.progress("answers", done, len(asked)),
            **self.settings,
        )
        written = [tokens[:-1] if tokens[-1] == self.task.ending else tokens for tokens in said]
        return [_before(self.task.decode(tokens), stops) for tokens in written]

    def _judge(self, what: str, requests: Sequence[Request]) -> list[Likelihood]:
        return log_likelihoods(
            self.model,
            requests,
            batch=self.batch,
            progress=lambda done: self.progress(what, done, len(requests)),
            **self.settings,
        )

    def _pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Both in tokens as the harness splits them: spaces that end the context belong to what follows, and the text is
        tokenised whole, since tokens may not end where the context does."""
        bare = context.rstrip()
        first, whole = self.task.prompt(bare), self.task.prompt(context + continuation)
        if not first:
            return [self.separator], whole
        return first, whole[len(first) :]

    def _cut(self, context: list[int], continuation: list[int]) -> Request:
        """The last token of a text is judged and not read. Raises ConfigError for a continuation that leaves no room."""
        room = self.max_length + 1 - len(continuation)
        if room < 1:
            raise ConfigError(
                f"a continuation has {len(continuation)} tokens, and texts have at most {self.max_length}; raise --max-length"
            )
        self.truncated.of += 1
        self.truncated.requests += len(context) > room
        return Request(context[-room:], continuation)

    def _prompt(self, text: str, new: int) -> list[int]:
        tokens = self.task.prompt(text) or [self.separator]
        room = self.max_length - new
        self.truncated.of += 1
        self.truncated.requests += len(tokens) > room
        return tokens[-room:]

    def _windows(self, tokens: Sequence[int]) -> Iterator[Request]:
        """Each token once, in windows of at most ``max_length``; the last one gets a full context."""
        whole, longest = [self.separator, *tokens], self.max_length
        for begin in range(0, len(tokens), longest):
            end = min(begin + longest, len(tokens))
            # Of the tokens read before the first that is judged, one at least.
            first = max(0, end - longest)
            yield Request(whole[first : begin + 1], whole[begin + 1 : end + 1])


@dataclass(frozen=True)
class HarnessScore:
    """One metric of one task or group. ``filter``: of the answers before judging, ``none`` for none."""

    task: str
    metric: str
    filter: str
    value: float
    stderr: float | None
    higher_is_better: bool | None


@dataclass(frozen=True)
class HarnessResult:
    """samples: documents that were judged by task. versions: of the tasks. truncated: contexts cut to fit."""

    scores: tuple[HarnessScore, ...]
    samples: dict[str, int] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    shots: dict[str, int] = field(default_factory=dict)
    truncated: Truncated = field(default_factory=Truncated)


class HarnessTasks:
    """Tasks by name or by the path of a YAML file, found once. Names are those that the harness ships and those below ``include``.

    Raises UnknownName for one that is neither.
    """

    def __init__(self, names: Sequence[str], include: Sequence[Path] = ()) -> None:
        for folder in include:
            if not folder.is_dir():
                raise ConfigError(f"--include {str(folder)!r} is no folder; it must hold task files (.yaml)")
        paths = [str(folder) for folder in include] or None
        self.manager = TaskManager(include_path=paths, include_defaults=False)
        # Those that the harness ships take seconds to be looked through.
        if any(not Path(name).suffix and name not in self.manager.all_tasks for name in names):
            self.manager = TaskManager(include_path=paths, include_defaults=True)
        self.specs: list[str] = []
        for name in names:
            path = Path(name)
            if name in self.manager.all_tasks:
                self.specs.append(name)
            elif path.suffix in (".yaml", ".yml") and path.is_file():
                self.specs.append(str(path.resolve()))
            else:
                raise UnknownName(
                    "lm-eval task", name, _near(name, self.manager.all_tasks), " A path must end in .yaml."
                )

    def judge(
        self, model: HarnessModel, *, shots: int | None = None, limit: int | None = None
    ) -> HarnessResult:
        """Ask every task, at most ``limit`` documents of each. Raises ConfigError for a task that cannot be loaded."""
        model.truncated = Truncated()
        try:
            with _quiet():
                found = simple_evaluate(
                    model=model,
                    tasks=list(self.specs),
                    num_fewshot=shots,
                    limit=limit,
                    batch_size=model.batch,
                    task_manager=self.manager,
                    log_samples=False,
                    bootstrap_iters=1000,
                )
        except (OSError, KeyError, ImportError) as error:
            raise ConfigError(
                f"a task of {', '.join(self.specs)} cannot be loaded: {type(error).__name__}: {error}"
            ) from error
        assert found is not None
        return HarnessResult(
            tuple(_scores(found)),
            {name: int(counts["effective"]) for name, counts in found.get("n-samples", {}).items()},
            dict(found.get("versions", {})),
            {name: int(number) for name, number in found.get("n-shot", {}).items()},
            model.truncated,
        )


def _scores(found: Mapping[str, Any]) -> Iterator[HarnessScore]:
    better = found.get("higher_is_better", {})
    # Groups stand among the results too.
    for task, metrics in {**found.get("groups", {}), **found.get("results", {})}.items():
        for name, value in metrics.items():
            metric, comma, kind = name.partition(",")
            if not comma or metric.endswith("_stderr") or not isinstance(value, int | float):
                continue
            stderr = metrics.get(f"{metric}_stderr,{kind}")
            yield HarnessScore(
                task,
                metric,
                kind,
                float(value),
                float(stderr) if isinstance(stderr, int | float) else None,
                (better.get(task) or {}).get(metric),
            )


def _generation(settings: dict[str, Any]) -> tuple[list[str], int, Sampling]:
    """Stops, new tokens and sampling. Raises ConfigError for what would have to be ignored."""
    for name, value in settings.items():
        if name not in KNOWN and (name not in PASSED_OVER or value != PASSED_OVER[name]):
            raise ConfigError(
                f"generation setting {name!r} is {value!r}, which is not followed; the settings are {', '.join(sorted(KNOWN))}"
            )
    until = settings.get("until") or []
    stops = [stop for stop in ([until] if isinstance(until, str) else until) if stop]
    new = next((int(settings[name]) for name in LENGTH_NAMES if settings.get(name) is not None), NEW_TOKENS)
    temperature = float(settings.get("temperature") or 0.0)
    draws = settings.get("do_sample", temperature > 0)
    top_k = settings.get("top_k") or None
    return stops, new, Sampling((temperature or 1.0) if draws else 0.0, top_k if draws else None)


def _before(text: str, stops: Sequence[str]) -> str:
    ends = [text.index(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else text


def _near(name: str, known: Sequence[str]) -> list[str]:
    """A few of thousands of names."""
    import difflib

    return difflib.get_close_matches(name, known, n=5, cutoff=0.5)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The harness's own logs and bars stay out of ours, and it does not ask git where it is."""
    from tqdm import tqdm

    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets", "evaluate")]
    levels, begin, git = [logger.level for logger in loggers], tqdm.__init__, evaluator.get_git_commit_hash
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    tqdm.__init__ = partialmethod(begin, disable=True)
    evaluator.get_git_commit_hash = lambda: None
    try:
        yield
    finally:
        tqdm.__init__ = begin
        evaluator.get_git_commit_hash = git
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
