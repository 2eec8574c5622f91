"""``crossbreed ladder``: a family's scaling law from stored runs of several sizes, tried on sizes that it has not seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, registry_of
from crossbreed.cli.output import data_console, log_console, print_json, si, table
from crossbreed.core.errors import ConfigError, UnknownName

if TYPE_CHECKING:
    from crossbreed.core.search.ladder import Ladder, Question, TooShort


def ladder(
    studies: Annotated[
        list[str], typer.Argument(metavar="STUDY...", help="Studies whose candidates differ in size.")
    ],
    family: Annotated[
        list[str] | None,
        typer.Option(metavar="FAMILY", help="Only this family; repeatable. Default: all with enough sizes."),
    ] = None,
    size: Annotated[
        str, typer.Option(metavar="QUANTITY", help="A quantity of the ledger that the law is of.")
    ] = "non_embedding_parameters",
    metric: Annotated[str, typer.Option(metavar="NAME", help="The metric that falls with it.")] = "loss_nats",
    point: Annotated[
        str, typer.Option(metavar="POINT", help="The operating point at which runs were judged.")
    ] = "own",
    hold_out: Annotated[
        int,
        typer.Option(
            "--hold-out", min=0, metavar="N", help="So many of the largest sizes are predicted, not fitted."
        ),
    ] = 1,
    predict: Annotated[
        list[float] | None, typer.Option(metavar="SIZE", help="Another size to predict; repeatable.")
    ] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Of the intervals.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="Of the resamples.")] = 0,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Fit a scaling law, loss = floor + amount / size^exponent, to stored runs of one family at several sizes, and compare what it
    says of the largest with what was measured there. Nothing is trained.

    Sizes must have been trained on the same tokens, or on the same tokens for each unit of size. Report runs count where there
    are any.
    """
    from crossbreed.core.search import ladder as climbing
    from crossbreed.core.search.at_point import parse_point
    from crossbreed.storage.repository import Repository

    registry_of(plugin)
    bad = [wanted for wanted in predict or [] if not 0 < wanted < float("inf")]
    if bad:
        raise ConfigError(f"--predict {bad[0]:g} is no size; it must be a finite number above 0")
    question = climbing.Question(
        size, metric, parse_point(point).name, hold_out, tuple(predict or []), resamples, seed
    )
    with Repository.open(db, read_only=True) as repository:
        steps = climbing.steps(repository, list(dict.fromkeys(studies)), question)
    unknown = [name for name in family or [] if name not in steps]
    if unknown:
        raise UnknownName("family", unknown[0], steps)
    found: list[Ladder | TooShort] = []
    with log_console().status("fitting") as status:
        for name in family or steps:
            status.update(f"fitting {escape(name)}")
            found.append(climbing.climb(name, steps[name], question))
    fitted = [each for each in found if isinstance(each, climbing.Ladder)]
    short = [each for each in found if isinstance(each, climbing.TooShort)]
    if not fitted:
        raise ConfigError(_too_short(studies, short, question))
    if json:
        print_json("ladder", _data(studies, question, fitted, short))
        return
    console = data_console()
    for each in fitted:
        console.print(_steps(each, question))
        for sentence in _sentences(each, question):
            console.print(sentence, markup=False, soft_wrap=True)
        console.print()
    if short:
        names = ", ".join(f"{each.family} ({each.sizes})" for each in short)
        console.print(f"Too few sizes for a law: {names}.", markup=False, soft_wrap=True)


def _too_short(studies: Sequence[str], short: Sequence[TooShort], question: Question) -> str:
    from crossbreed.core.search.scaling import LEAST_SIZES

    listed = ", ".join(f"{each.family} has {each.sizes}" for each in short) or "there are no candidates"
    return (
        f"no family of {', '.join(studies)} has {LEAST_SIZES + question.held} sizes that were judged at {question.point!r}, "
        f"{LEAST_SIZES} to fit and {question.held} to hold out: {listed}."
    )


def _steps(found: Ladder, question: Question) -> Table:
    made = table(
        f"Ladder of {escape(found.family)}",
        [
            (question.size, "right"),
            *((heading, "right") for heading in ("tokens", "runs", question.metric, "law", "off by")),
            "used",
            "candidates",
        ],
        caption=f"{question.metric}: mean over runs. Matched in {found.matched}.",
    )
    fitted = len(found.steps) - found.held
    for place, step in enumerate(found.steps):
        law = found.law.at(step.size)
        made.add_row(
            si(step.size, 4),
            si(step.tokens, 4),
            str(len(step.runs)) + (f" ({step.lost} lost)" if step.lost else ""),
            f"{step.mean:.4g}",
            f"{law:.4g}",
            f"{step.mean / law - 1:+.2%}",
            "fitted" if place < fitted else "held out",
            escape(", ".join(step.numbers)),
        )
    return made


def _sentences(found: Ladder, question: Question) -> Iterator[str]:
    fit, spans = found.fit, found.intervals
    yield f"{question.metric} = {fit.law}, N the {question.size}."
    yield (
        "95% intervals: "
        + ", ".join(f"{name} {low:.4g} to {high:.4g}" for name, (low, high) in spans.items())
        + "."
    )
    yield (
        f"{fit.agreeing} of {fit.starts} starts ended there; a run lies {fit.spread:.2%} about the law "
        f"({fit.degrees} degree{'s' if fit.degrees != 1 else ''} of freedom)."
    )
    for edge in fit.edges:
        what = "0" if edge == "floor" else "a bound"
        yield f"The {edge} is not told from {what} by these sizes."
    for each in found.predictions:
        (low, high), (least, most) = each.law, each.run
        said = f"At {si(each.size, 4)} it says {each.loss:.4g} (95% {low:.4g} to {high:.4g}; one run {least:.4g} to {most:.4g})"
        if each.measured is None:
            yield said + "."
        else:
            yield f"{said}; measured {each.measured:.4g}, {each.inside} of {each.runs} runs inside."


def _data(
    studies: Sequence[str], question: Question, fitted: Sequence[Ladder], short: Sequence[TooShort]
) -> dict[str, Any]:
    return {
        "studies": list(dict.fromkeys(studies)),
        "size": question.size,
        "metric": question.metric,
        "point": question.point,
        "ladders": [_ladder_data(each) for each in fitted],
        "too_short": [{"family": each.family, "sizes": each.sizes} for each in short],
    }


def _ladder_data(found: Ladder) -> dict[str, Any]:
    fitted = len(found.steps) - found.held
    return {
        "family": found.family,
        "matched": found.matched,
        "steps": [
            {
                "size": step.size,
                "candidates": list(step.numbers),
                "runs": [{"run": run.key, "tokens": run.tokens, "value": run.loss} for run in step.runs],
                "lost": step.lost,
                "mean": step.mean,
                "law": found.law.at(step.size),
                "held_out": place >= fitted,
            }
            for place, step in enumerate(found.steps)
        ],
        "law": {
            "floor": found.law.floor,
            "amount": found.law.amount,
            "exponent": found.law.exponent,
            "intervals": {name: list(span) for name, span in found.intervals.items()},
            "spread": found.fit.spread,
            "degrees": found.fit.degrees,
            "starts": found.fit.starts,
            "agreeing": found.fit.agreeing,
            "edges": list(found.fit.edges),
        },
        "predictions": [
            {
                "size": each.size,
                "value": each.loss,
                "law": list(each.law),
                "run": list(each.run),
                "measured": each.measured,
                "runs": each.runs,
                "inside": each.inside,
            }
            for each in found.predictions
        ],
    }
