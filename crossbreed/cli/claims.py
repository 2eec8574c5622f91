"""``crossbreed claims``: run the miniature of a paper's claims, and say which hold."""

from __future__ import annotations

import os
import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from crossbreed.cli.options import Debug, Json, registry_of
from crossbreed.cli.output import (
    data_console,
    duration,
    log_console,
    only_logs,
    print_json,
    program,
    si,
    table,
)

if TYPE_CHECKING:
    from crossbreed.claims.record import Record
    from crossbreed.claims.verdicts import Answer

SEEDS = {"cpu": 3, "gpu": 5}
MOST = {"cpu": 6, "gpu": 15}
MINUTES = {"cpu": 20.0, "gpu": None}


def claims(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="amor, oryx, dreamer or cross.")],
    scale: Annotated[
        Literal["cpu", "gpu"], typer.Option(help="Minutes on two cores, or hours on a GPU.")
    ] = "cpu",
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Runs of every arm; default: 3 at cpu, 5 at gpu. Intervals need 3."),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(min=1, help="Go on with what is undecided up to so many; default: 6 at cpu, 15 at gpu."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Where runs add up; default: claims/PAPER-SCALE.json."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.01, help="Begin nothing more after so many; default: 20 at cpu, no limit at gpu."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at once; default: the cores at cpu (2 at most), 4 at gpu.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="DEVICE", help="cpu or cuda; default: the scale's.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Run nothing: judge what is recorded.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run a published system's claims in miniature, and say of each: supported, contradicted, equal or undecided.

    Every model of a claim meets one budget, has its learning rate tuned over the same settings and runs on shared seeds. Runs
    add up in one file: interrupted and run again, it continues. Ctrl-C once finishes what runs; twice ends at once.
    """
    from crossbreed.claims import papers
    from crossbreed.claims.record import Record
    from crossbreed.claims.runner import Progress as Made
    from crossbreed.claims.runner import Runner

    found = papers.paper(paper)
    kept = Record.at(record or Path("claims") / f"{paper}-{scale}.json", paper, scale)
    asked = seeds or SEEDS[scale]
    runner = Runner(
        found,
        kept,
        registry_of(None),
        asked,
        max(asked, most or MOST[scale]),
        device=device or ("cpu" if scale == "cpu" else "cuda"),
        workers=workers or (min(2, os.cpu_count() or 1) if scale == "cpu" else 4),
        minutes=minutes or MINUTES[scale],
    )
    end = "shown"
    if not show:
        log = log_console()
        with only_logs(), _bar() if log.is_terminal else nullcontext() as bar:
            task = None if bar is None else bar.add_task(paper, total=None)

            def said(made: Made) -> None:
                run = made.run
                line = f"{run['experiment']}/{run['arm']} seed {run['seed']} lr {run['lr']:g}: {_ended(run)}"
                if bar is None or task is None:
                    log.print(f"{made.made}/{made.known} {line}", markup=False)
                else:
                    bar.update(task, completed=made.made, total=made.known, description=escape(line))

            runner.on_run = said
            end = runner.run()
    answers = runner.answers()
    if json:
        print_json("claims", claims_data(end, kept, answers))
    else:
        _print(kept, found.title, answers)
    if end in ("interrupted", "time"):
        words = [program(), "claims", paper, "--scale", scale, "--seeds", str(asked)]
        again = shlex.join([*words, *(["--record", str(record)] if record else [])])
        why = "Interrupted" if end == "interrupted" else "The time is used up"
        log_console().print(f"{why}; every finished run is recorded. To go on: {again}", markup=False)
    if end == "interrupted":
        raise typer.Exit(130)


def claims_data(end: str, record: Record, answers: list[Answer]) -> dict[str, Any]:
    """What ``--json`` prints."""
    from crossbreed.claims.words import lacking, late

    return {
        "paper": record.paper,
        "scale": record.scale,
        "record": str(record.path),
        "end": end,
        "runs": len(record.runs),
        "tokens": record.tokens,
        "seconds": record.seconds,
        "claims": [
            {
                "id": a.claim.id,
                "sentence": a.claim.sentence,
                "paper": a.claim.paper,
                "learned": a.claim.learned,
                "verdict": a.verdict,
                "seeds": a.seeds,
                "tokens": a.tokens,
                "seconds": a.seconds,
                "diverged": a.diverged,
                "lacks": lacking(a),
                "warning": late(a),
                "declared": record.declared.get(a.claim.id),
                "parts": [
                    {
                        "says": f.part.says,
                        "direction": f.part.direction,
                        "margin": f.part.margin,
                        "unit": f.part.unit,
                        "verdict": f.judged.verdict if f.asked else None,
                        "seeds": f.judged.seeds,
                        "effect": f.judged.effect,
                        "interval": None if f.judged.interval is None else list(f.judged.interval[1:]),
                        "needs": f.judged.needs,
                        "why": f.why,
                        "means": dict(f.means or {}),
                    }
                    for f in a.parts
                ],
            }
            for a in answers
        ],
    }


def _print(record: Record, title: str, answers: list[Answer]) -> None:
    from crossbreed.claims.words import effect, expected, grounds, lacking, late, verdict

    console = data_console()
    for a in answers:
        shown = table(f"{a.claim.id}  {a.claim.sentence}", ["", "expected", "found", "", "verdict"])
        for f in a.parts:
            said = (
                f.part.says,
                expected(f.part),
                effect(f.judged, f.part.unit),
                grounds(f),
                verdict(f),
            )
            shown.add_row(*map(escape, said))
        console.print(shown)
        spent = f", {si(a.tokens)} tokens, {duration(a.seconds)}" if a.tokens else ""
        console.print(f"[bold]{a.verdict}[/]{spent}. Paper: {escape(a.claim.paper)}.")
        for line in filter(None, (lacking(a), late(a), a.claim.note)):
            console.print(line, markup=False, style="dim")
    counts = {
        v: sum(a.verdict == v for a in answers) for v in ("supported", "contradicted", "equal", "undecided")
    }
    counted = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    console.print(
        f"{title}, scale {record.scale}: {counted}; {len(record.runs)} runs, {si(record.tokens)} tokens, "
        f"{duration(record.seconds)} of work.",
        markup=False,
    )


def _ended(run: dict[str, Any]) -> str:
    if run["state"] != "done":
        return f"{run['state']}: {run['cause']}"
    return f"{run['points']['own']['score']:.3f} in {duration(run['seconds'])}"


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=log_console(), transient=True)
