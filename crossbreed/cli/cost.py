"""``crossbreed cost``: what a genome costs, part by part, at one shape or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape

from crossbreed.cli.conventions import CONVENTIONS, MEMORY
from crossbreed.cli.genomes import KINDS, read_genome
from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, registry_of
from crossbreed.cli.output import Column, data_console, duration_s, print_json, print_totalled, si, size
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.genome import digest
from crossbreed.core.host import Registry
from crossbreed.core.ledger import DTYPE_BYTES, Ledger, Part, Shape

PhaseAsked = Literal["all", "train", "prefill", "decode"]
PHASE_FIELDS = {
    "train": "training_flops_per_token",
    "prefill": "prefill_flops_per_token",
    "decode": "decode_flops_per_token",
}
AT_KEYS = ("T", "B", "dtype")

SECONDS = (
    "Seconds are predicted per token of a pass over the whole batch, for a device with nothing else to do."
)


def cost(
    genome: Annotated[
        str,
        typer.Argument(metavar="GENOME", help=f"The genome: {KINDS}."),
    ],
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="T=N,B=N,dtype=NAME",
            help="Tokens, batch and type of weights and activations; may be repeated. Default: T=1024,B=1,dtype=float32.",
        ),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Cost model: analytic, roofline, measured, or a plugin's.")
    ] = "analytic",
    phase: Annotated[PhaseAsked, typer.Option(help="Which phase's numbers to print.")] = "all",
    rates: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SITE=SHARE,SHARE",
            help="Share of asked tokens per choice at a routed site, in place of the nominal one; may be repeated.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Device to predict for, where several were measured (roofline, measured)."
        ),
    ] = None,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Let the measured model answer outside what was profiled.")
    ] = False,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the ledger of a genome part by part, with each part's share. Builds no weights."""
    registry = registry_of(plugin)
    architecture = read_genome(genome, db, registry)
    shapes = [read_shape(text) for text in at or ["T=1024"]]
    shares = read_rates(rates or ())
    chosen = _model(registry, model, extrapolate)
    known = None
    needs_device = registry.descriptor("cost", model).needs_device
    if device is not None and not needs_device:
        raise ConfigError(f"--device {device!r}: cost model {model!r} counts the same for every device.")
    if needs_device:
        from crossbreed.cli.devices import device_of

        known = device_of(db, device)
    ledgers = [chosen.estimate(architecture, shape, known, shares) for shape in shapes]
    if json:
        payload = {"hash": digest(architecture), "model": model, "ledgers": [x.as_dict() for x in ledgers]}
        print_json("cost", {**payload, "conventions": [CONVENTIONS, MEMORY, SECONDS]})
        return
    console = data_console()
    console.print(f"[bold]{escape(genome)}[/] {digest(architecture)}, cost model {model}")
    for ledger in ledgers:
        print_parts(ledger, list(PHASE_FIELDS) if phase == "all" else [phase])
    console.print(CONVENTIONS, style="dim")
    console.print(MEMORY, style="dim")
    if any(ledger.prediction is not None for ledger in ledgers):
        console.print(SECONDS, style="dim")


def read_shape(text: str) -> Shape:
    """A shape from ``T=2048,B=1,dtype=bfloat16``; raises ConfigError for an unknown key or a value that is none."""
    values: dict[str, str] = {}
    for item in text.split(","):
        key, found, value = item.strip().partition("=")
        if not found or key in values:
            raise ConfigError(
                f"--at {text!r} must be KEY=VALUE pairs such as T=2048,B=1, each key once; got {item!r}."
            )
        if key not in AT_KEYS:
            raise UnknownName("key of --at", key, AT_KEYS)
        values[key] = value
    dtype = values.get("dtype", "float32")
    if dtype not in DTYPE_BYTES:
        raise UnknownName("dtype", dtype, DTYPE_BYTES)
    return Shape(_count(text, "B", values.get("B", "1")), _count(text, "T", values.get("T", "1024")), dtype)


def _count(text: str, key: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise ConfigError(f"--at {text!r}: {key} must be a whole number of at least 1, got {value!r}.")
    return int(value)


def read_rates(given: Iterable[str]) -> dict[str, tuple[float, ...]] | None:
    """Shares per site from ``0.1.gate=0.6,0.4``; None where none are given. Sites and sums are the cost model's to check."""
    rates: dict[str, tuple[float, ...]] = {}
    for text in given:
        site, _, values = (part.strip() for part in text.partition("="))
        try:
            shares = tuple(float(value) for value in values.split(","))
        except ValueError:
            shares = ()
        if not shares or site in rates:
            raise ConfigError(
                f"--rates {text!r} must be SITE=SHARE,SHARE such as 0.1.gate=0.6,0.4, each site once."
            )
        rates[site] = shares
    return rates or None


def _model(registry: Registry, name: str, extrapolate: bool) -> CostModel:
    params = {"extrapolate": True} if extrapolate else {}
    made: CostModel = registry.factory("cost", name)(registry.config("cost", name, params), registry)
    return made


def print_parts(ledger: Ledger, phases: list[str]) -> None:
    """One table: equal parts together, their numbers and shares, and the total."""
    console = data_console()
    predicted = ledger.prediction
    groups = list(_equal(ledger.parts))
    first = [lines[0] for lines in groups]
    named = [
        Column("site", [*map(_where, groups), "total"], number=False),
        Column("part", [*(part.name for part in first), ""], number=False),
        Column(
            "rates", [*(" ".join(f"{rate:.3g}" for rate in part.rates) for part in first), ""], number=False
        ),
    ]

    def counted(
        heading: str, each: Callable[[Part], float], total: float, words: Callable[[float], str]
    ) -> list[Column]:
        values = [len(lines) * each(lines[0]) for lines in groups]
        shares = [*(_share(value, total) for value in values), ""]
        return [Column(heading, [*map(words, values), words(total)]), Column("", shares)]

    found = [counted("parameters", lambda part: part.parameters, ledger.parameters, lambda n: f"{n:,.0f}")]
    for phase in phases:
        name = PHASE_FIELDS[phase]
        found.append(
            counted(f"{phase}\nFLOPs/token", attrgetter(name), getattr(ledger, name), lambda n: si(n, 4))
        )
    found.append(counted("state", lambda part: part.state_bytes, ledger.state_bytes, size))
    if predicted is not None and predicted.part_seconds_per_token:
        for phase in phases:
            by_site = {site: of[phase] for site, of in predicted.part_seconds_per_token.items()}
            total = predicted.seconds_per_token[phase]
            found.append(counted(f"{phase}\ns/token", partial(_of_site, by_site), total, duration_s))
    print_totalled(
        console, f"\nLedger at {ledger.batch} x {ledger.tokens} tokens in {ledger.dtype}", named, found
    )
    for phase in phases:
        executed = getattr(ledger, f"executed_{PHASE_FIELDS[phase]}")
        console.print(f"executed in {phase}: {si(executed, 4)} FLOPs/token")
    console.print(
        f"weights {size(ledger.weight_bytes)}, with the state {size(ledger.memory_bytes)}; training peak "
        f"{size(ledger.training_peak_bytes)}; traffic {size(ledger.decode_traffic_bytes_per_token)} per decoded token"
    )
    if predicted is not None:
        for phase, seconds in predicted.seconds_per_token.items():
            error = predicted.relative_error.get(phase)
            known = (
                ""
                if error is None
                else f", off by {error:.1%} at the median on architectures held out of the fit"
            )
            console.print(
                f"{predicted.model} on {escape(predicted.device)}: {phase} {duration_s(seconds)} per token{known}"
            )


def _of_site(values: Mapping[str, float], part: Part) -> float:
    return values[part.site]


def _where(lines: Sequence[Part]) -> str:
    return lines[0].site if len(lines) == 1 else f"{lines[0].site} and {len(lines) - 1} equal"


def _equal(parts: Iterable[Part]) -> list[list[Part]]:
    """Parts in order, those that differ by their site alone together."""
    groups: dict[Any, list[Part]] = {}
    for part in parts:
        groups.setdefault(part[1:], []).append(part)
    return list(groups.values())


def _share(value: float, total: float) -> str:
    return f"{value / total:.1%}" if total else "-"
