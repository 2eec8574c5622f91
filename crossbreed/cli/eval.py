"""``crossbreed eval``: judge a trained run again, on its own task or on those of lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crossbreed.cli.generate import DeviceOption, DtypeOption
from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, RunKey, registry_of
from crossbreed.cli.output import data_console, log_console, only_logs, print_json, table
from crossbreed.core.errors import ConfigError

if TYPE_CHECKING:
    from crossbreed.core.host import Registry
    from crossbreed.core.lab.operating_points import OperatingPoint
    from crossbreed.core.search.trained import TrainedRun
    from crossbreed.storage.repository import Repository

Numbers = dict[str, Any]
_PANEL = "lm-evaluation-harness"


def evaluate_run(
    run: RunKey,
    point: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POINT",
            help="An operating point: own (default), schedule:SWITCHES, forced:RATE, threshold:SHIFT, depth:L, fitted:ROUTERS; "
            "repeatable.",
        ),
    ] = None,
    length: Annotated[
        list[int] | None,
        typer.Option(
            "--length", min=1, metavar="TIMES", help="Texts so many times as long as in training; repeatable."
        ),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(
            "--batch",
            min=1,
            metavar="N",
            help="Texts at once; repeated, the sizes are compared. Default: the recipe's eval_batch.",
        ),
    ] = None,
    lm_eval: Annotated[
        str | None,
        typer.Option(
            "--lm-eval",
            metavar="TASKS",
            rich_help_panel=_PANEL,
            help="Its tasks instead of the run's own: names or paths of .yaml files, separated by commas.",
        ),
    ] = None,
    include: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", rich_help_panel=_PANEL, help="A folder of task files; repeatable."),
    ] = None,
    shots: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", rich_help_panel=_PANEL, help="Examples before each question."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", rich_help_panel=_PANEL, help="Documents of each task, at most."),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length",
            min=2,
            metavar="TOKENS",
            rich_help_panel=_PANEL,
            help="Tokens of a text; longer contexts are cut from the left. Default: the run's training length.",
        ),
    ] = None,
    device: DeviceOption = "cpu",
    dtype: DtypeOption = None,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Judge a trained run on its own task's evaluation items, or on tasks of lm-evaluation-harness (`--lm-eval`, with the extra
    `eval`): log-likelihoods, whole texts and generation through the run's own state, at any operating point.

    A score does not depend on the batch size beyond the tolerance that is printed with it. With several sizes that is checked;
    exit code 1 where it does not hold. Nothing is stored.
    """
    from crossbreed.core.lab.evaluate import TOLERANCE
    from crossbreed.core.search.at_point import parse_point
    from crossbreed.core.search.trained import load
    from crossbreed.storage.repository import Repository

    points = [parse_point(name) for name in point or ["own"]]
    _check_options(
        lm_eval,
        length,
        points,
        {"--include": include, "--shots": shots, "--limit": limit, "--max-length": max_length},
    )
    if lm_eval is not None:
        # Before anything is loaded: without the package nothing can be judged.
        import crossbreed.integrations.lm_harness  # noqa: F401
    registry = registry_of(plugin)
    with Repository.open(db, read_only=True) as repository:
        trained = load(repository, run, registry, device)
        batches = list(dict.fromkeys(batch or [trained.recipe.eval_batch]))
        precision = dtype or trained.recipe.dtype
        if lm_eval is None:
            own, asked = _own(repository, trained, points, length or [1], batches, precision, registry), []
        else:
            harness = _Harness(lm_eval, include or [], shots, limit, max_length)
            own, asked = [], harness.judge(repository, trained, points, batches, precision, registry)
    tolerance = TOLERANCE[precision]
    if json:
        print_json(
            "eval",
            {
                "run": run,
                "task": trained.setting.file.task.name,
                "dtype": precision,
                "batches": batches,
                "tolerance": tolerance,
                "own": own,
                "lm_eval": asked,
            },
        )
    else:
        _print(run, trained, own, asked, batches, tolerance)
    moved = [
        score for score in (*own, *(s for found in asked for s in found["scores"])) if not score["within"]
    ]
    if moved:
        log_console().print(
            f"{len(moved)} scores move with the batch size by more than {tolerance:g} of themselves, at most by "
            f"{max(score['spread'] for score in moved):.3g}."
        )
        raise typer.Exit(1)


def _check_options(
    lm_eval: str | None, length: list[int] | None, points: Sequence[OperatingPoint], theirs: dict[str, object]
) -> None:
    """Raise ConfigError for an option that the other way of judging would ignore."""
    if lm_eval is None:
        given = [name for name, value in theirs.items() if value]
        if given:
            raise ConfigError(f"{given[0]} is about tasks of lm-evaluation-harness; name them with --lm-eval")
        return
    if not [name for name in lm_eval.split(",") if name.strip()]:
        raise ConfigError(
            f"--lm-eval {lm_eval!r} names no task; it must be names or paths separated by commas"
        )
    long = [point.name for point in points if point.length is not None]
    if length or long:
        what = f"operating point {long[0]!r}" if long else "--length"
        raise ConfigError(f"{what} is about the run's own task; tasks of --lm-eval have the texts they have")


def _own(
    repository: Repository,
    trained: TrainedRun,
    points: Sequence[OperatingPoint],
    lengths: Sequence[int],
    batches: Sequence[int],
    dtype: str,
    registry: Registry,
) -> list[Numbers]:
    from crossbreed.core.search.evaluated import judge, places, spread, within

    asked = places(repository, trained, points, list(dict.fromkeys(lengths)), registry)
    with log_console().status("judging") as status:
        found = judge(
            repository,
            trained,
            asked,
            batches,
            dtype=dtype,
            progress=lambda place: status.update(
                f"judging at {place.point.name}, {place.task.length} tokens"
            ),
        )
    return [
        {
            "point": each.point,
            "times": each.times,
            "tokens": each.tokens,
            "score": each.evaluation.score,
            "metrics": each.evaluation.metrics,
            "rows": each.evaluation.rows,
            "unscored_rows": each.evaluation.unscored_rows,
            "rates": each.evaluation.rates,
            "stored": None if each.stored is None else each.stored.score,
            "stored_tolerance": None if each.stored is None else each.stored.tolerance,
            "by_batch": {str(size): score for size, score in each.scores.items()},
            "spread": None
            if len(batches) < 2
            else max(spread(found) or 0.0 for found in each.metrics.values()),
            "within": all(within(found, dtype) for found in each.metrics.values()),
        }
        for each in found
    ]


class _Harness:
    """What is asked of lm-evaluation-harness."""

    def __init__(
        self, names: str, include: list[Path], shots: int | None, limit: int | None, max_length: int | None
    ) -> None:
        self.names = [name.strip() for name in names.split(",") if name.strip()]
        self.include, self.shots, self.limit, self.max_length = include, shots, limit, max_length

    def judge(
        self,
        repository: Repository,
        trained: TrainedRun,
        points: Sequence[OperatingPoint],
        batches: Sequence[int],
        dtype: str,
        registry: Registry,
    ) -> list[Numbers]:
        from crossbreed.core.lab.operating_points import longest
        from crossbreed.core.search.at_point import at_point
        from crossbreed.integrations.lm_harness import HarnessModel, HarnessTasks

        log = log_console()
        with only_logs(), log.status("finding tasks") as status:
            tasks = HarnessTasks(self.names, self.include)
            judged = []
            for point in points:
                model = at_point(repository, trained, point, registry)
                tokens, limit = (
                    self.max_length or trained.setting.task.length,
                    longest(model.architecture, registry),
                )
                if limit is not None and tokens > limit.tokens:
                    raise ConfigError(
                        f"--max-length {tokens} is too long for run {trained.row.key}; its mixer {limit.mixer!r} reads {limit.tokens} at most"
                    )
                results = {}
                for size in batches:
                    asked = HarnessModel(
                        model,
                        trained.setting.task,
                        max_length=tokens,
                        batch=size,
                        point=point,
                        seed=trained.row.seed,
                        dtype=dtype,
                        progress=lambda what, done, of: status.update(f"{what}: {done} of {of}"),
                    )
                    results[size] = tasks.judge(asked, shots=self.shots, limit=self.limit)
                judged.append(_harness_data(point.name, tokens, results, dtype))
        return judged


def _harness_data(point: str, tokens: int, results: dict[int, Any], dtype: str) -> Numbers:
    from crossbreed.core.search.evaluated import spread, within

    first = next(iter(results.values()))
    scores = []
    for place, score in enumerate(first.scores):
        values = [result.scores[place].value for result in results.values()]
        scores.append(
            {
                "task": score.task,
                "metric": score.metric,
                "filter": score.filter,
                "value": score.value,
                "stderr": score.stderr,
                "higher_is_better": score.higher_is_better,
                "samples": first.samples.get(score.task),
                "shots": first.shots.get(score.task),
                "version": None
                if first.versions.get(score.task) is None
                else str(first.versions[score.task]),
                "by_batch": {str(size): value for size, value in zip(results, values, strict=True)},
                "spread": spread(values),
                "within": within(values, dtype),
            }
        )
    return {
        "point": point,
        "max_length": tokens,
        "requests": first.truncated.of,
        "truncated": first.truncated.requests,
        "scores": scores,
    }


def _print(
    run: str,
    trained: TrainedRun,
    own: list[Numbers],
    asked: list[Numbers],
    batches: list[int],
    tolerance: float,
) -> None:
    console = data_console()
    sizes = ", ".join(map(str, batches))
    compared = f"Batches of {sizes}; with any size a score is the same within {tolerance:g} (of itself where it is above 1)."
    if own:
        score = trained.setting.task.score
        others = [name for name in own[0]["metrics"] if name != score.name]
        columns = [score.name, "stored", *others, "rows", *(["spread"] if len(batches) > 1 else [])]
        made = table(
            f"{run} on its task {trained.setting.file.task.name}",
            ["point", ("tokens", "right"), *((name, "right") for name in columns)],
            caption=f"{compared} stored: as the search judged it.",
        )
        for each in own:
            made.add_row(
                each["point"],
                str(each["tokens"]),
                _number(each["score"]),
                _number(each["stored"]),
                *(_number(each["metrics"].get(name)) for name in others),
                str(each["rows"]),
                *([_number(each["spread"])] if len(batches) > 1 else []),
            )
        console.print(made)
    for found in asked:
        made = table(
            f"{run} at {found['point']}, texts of {found['max_length']} tokens at most",
            [
                "task",
                "metric",
                "filter",
                *((name, "right") for name in ("value", "stderr", "documents", "shots")),
                *([("spread", "right")] if len(batches) > 1 else []),
            ],
            caption=f"{compared} {found['truncated']} of {found['requests']} contexts were cut from the left to fit.",
        )
        for each in found["scores"]:
            made.add_row(
                each["task"],
                each["metric"] + {True: " ↑", False: " ↓", None: ""}[each["higher_is_better"]],
                each["filter"],
                _number(each["value"]),
                _number(each["stderr"]),
                "-" if each["samples"] is None else str(each["samples"]),
                "-" if each["shots"] is None else str(each["shots"]),
                *([_number(each["spread"])] if len(batches) > 1 else []),
            )
        console.print(made)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
