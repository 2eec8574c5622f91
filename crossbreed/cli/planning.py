"""What a search would do, as tables or JSON."""

from __future__ import annotations

from rich.markup import escape

from crossbreed.cli.certificates import residual_line
from crossbreed.cli.conventions import MATCHED
from crossbreed.cli.output import data_console, duration, print_json, si, size, table
from crossbreed.core.errors import InfeasibleBudget
from crossbreed.core.host import Registry
from crossbreed.core.search import executors
from crossbreed.core.search.plan import Plan, plan
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import resolve


def show_plan(
    file: StudyFile, registry: Registry, *, workers: int | None, device: str | None, as_json: bool
) -> None:
    """Print the plan of a study. Raises InfeasibleBudget after it when no candidate can meet the budget."""
    search = file.search
    place = executors.choose(
        "ray",
        workers=workers or search.workers,
        threads=search.threads,
        device=device,
        devices=search.devices_per_trial,
    )
    made = plan(resolve(file, registry), place.workers)
    if as_json:
        print_json("plan", _data(file, made))
    else:
        _print_tables(file, made)
    if all(row.reason is not None for row in made.rows):
        raise InfeasibleBudget(
            "nothing that would be proposed first meets the budget; see the reasons in the plan."
        )


def _data(file: StudyFile, made: Plan) -> dict[str, object]:
    return {
        "study": file.name,
        "families": made.families,
        "candidates": [
            {
                "family": row.family,
                "origin": row.origin,
                "hash": row.hash,
                "feasible": row.reason is None,
                "reason": row.reason,
                "certificate": None if row.certificate is None else row.certificate.model_dump(mode="json"),
                "parameters": None if row.ledger is None else row.ledger.parameters,
                "training_flops_per_token": None
                if row.ledger is None
                else row.ledger.training_flops_per_token,
                "memory_bytes": None if row.ledger is None else row.ledger.memory_bytes,
            }
            for row in made.rows
        ],
        "conventions": [MATCHED],
        "left_out": list(made.left_out),
        "workers": made.workers,
        "seconds_per_run": made.seconds_per_run,
        "runs": list(made.runs),
        "seconds": list(made.seconds),
        "disk_bytes": list(made.disk_bytes),
    }


def _print_tables(file: StudyFile, made: Plan) -> None:
    console = data_console()
    first = (
        "the entries of search.proposals" if file.search.sampler == "list" else "the space's starting points"
    )
    listed = table(
        f"Plan of {file.name}: the reference and {first}",
        [
            "family",
            ("parameters", "right"),
            ("train FLOPs/token", "right"),
            ("memory", "right"),
            "residuals",
            "",
        ],
    )
    for row in made.rows:
        ledger = row.ledger
        listed.add_row(
            escape(row.family),
            "-" if ledger is None else si(ledger.parameters, 4),
            "-" if ledger is None else si(ledger.training_flops_per_token, 4),
            "-" if ledger is None else size(ledger.memory_bytes),
            "-" if row.certificate is None else residual_line(row.certificate),
            "[green]feasible[/]" if row.reason is None else f"[red]infeasible[/]: {escape(row.reason)}",
        )
    console.print(listed)
    for sentence in made.left_out:
        console.print(f"Left out: {sentence}", markup=False)
    least, most = made.runs
    console.print(
        f"{file.search.trial_limit()} candidates beside the reference, {least} to {most} runs on {made.workers} "
        f"workers: {duration(made.seconds[0])} to {duration(made.seconds[1])} of training "
        f"({duration(made.seconds_per_run)} a run, timed on this machine), profiling apart; "
        f"{size(made.disk_bytes[0])} to {size(made.disk_bytes[1])} of checkpoints."
    )
