"""Certificates as tables and as words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from crossbreed.cli.output import si, table
from crossbreed.core.budget.certificate import Certificate, percents
from crossbreed.core.ledger import QUANTITIES

if TYPE_CHECKING:
    from crossbreed.core.search.families import FamilyMatch


def certificate_table(certificate: Certificate, title: str = "") -> Table:
    """One line a budgeted quantity: its rule, the reference, the value and the signed residual."""
    made = table(
        title,
        ["quantity", "rule", ("reference", "right"), ("value", "right"), ("residual", "right"), ""],
        caption=". ".join(
            f"{entry.quantity}: {QUANTITIES[entry.quantity]}" for entry in certificate.quantities
        ),
    )
    for entry in certificate.quantities:
        rule = f"within {entry.tolerance:.3g}" if entry.kind == "match" else f"at most +{entry.tolerance:.3g}"
        made.add_row(
            entry.quantity,
            f"{entry.kind} {rule}",
            si(entry.target, 5),
            si(entry.value, 5),
            percents(entry.residual, entry.tolerance, 2)[0],
            "[green]ok[/]" if entry.ok else "[red]off[/]",
        )
    return made


def verdict(certificate: Certificate) -> str:
    """One line under a certificate, in console markup."""
    dimensions = ", ".join(f"{name}={value}" for name, value in certificate.dimensions.items())
    how = "as given" if certificate.path == "given" else f"found by {certificate.path.replace('_', ' ')}"
    moved = f"{how}; {certificate.rates} rates"
    if certificate.feasible:
        moved += f"; {dimensions}" if dimensions else ""
        return f"[green]feasible[/] ({escape(moved)})"
    return f"[red]infeasible[/]: {escape(certificate.reason or 'out of tolerance')} ({escape(moved)})"


def residual_line(certificate: Certificate) -> str:
    """Every residual in one line, under short names."""
    return ", ".join(
        f"{SHORT.get(q.quantity, q.quantity)} {percents(q.residual, q.tolerance, 2)[0]}"
        for q in certificate.quantities
    )


def family_table(matches: Iterable[FamilyMatch], title: str = "") -> Table:
    """One line a family: its residuals, how its dimensions were found, and the verdict."""
    made = table(title, ["family", "residuals", "found by", "dimensions", ""])
    for entry in matches:
        certificate = None if entry.match is None else entry.match.certificate
        sizes = {} if certificate is None else certificate.dimensions
        made.add_row(
            escape(entry.family),
            "-" if certificate is None else residual_line(certificate),
            "-" if certificate is None else certificate.path.replace("_", " "),
            escape(", ".join(f"{name}={value}" for name, value in sizes.items())),
            "[green]feasible[/]" if entry.feasible else "[red]infeasible[/]",
        )
    return made


SHORT = {
    "training_flops_per_token": "train FLOPs",
    "prefill_flops_per_token": "prefill FLOPs",
    "decode_flops_per_token": "decode FLOPs",
    "parameters": "params",
    "active_parameters": "active params",
    "non_embedding_parameters": "non-emb. params",
    "state_bytes": "state",
    "batch_state_bytes": "batch state",
    "memory_bytes": "memory",
}
