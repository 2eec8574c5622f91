"""``crossbreed doctor``: which devices, backends and services work here, and the fix for each that does not."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from crossbreed import __version__
from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, registry_of
from crossbreed.cli.output import data_console, duration_s, log_console, print_json, si, size, table
from crossbreed.core.contracts.capabilities import CUDA, KNOWN_NEEDS
from crossbreed.core.errors import ConfigError, StorageError
from crossbreed.core.host import Registry

State = Literal["ok", "absent", "broken"]
LIBRARIES = ("torch", "ray", "optuna", "streamlit", "plotly", "sqlalchemy", "alembic", "pydantic", "pluggy")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MARKS = {"ok": "[green]ok[/]", "absent": "[yellow]absent[/]", "broken": "[red]broken[/]"}


@dataclass(frozen=True)
class Check:
    """One thing looked at. ``fix`` says what to do when it is not ok; ``required`` ones make the command exit 1."""

    area: str
    name: str
    state: State
    detail: str
    fix: str = ""
    required: bool = False


def doctor(
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Also time this machine's devices (products by dtype, copies, launches) and keep the ceilings beside the "
            "database, for the roofline cost model. Takes about a minute; leave the devices alone meanwhile.",
        ),
    ] = False,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Check devices, backends, libraries and services, and name the fix for each that does not work.

    Exit code 1 when something that every search needs is broken; optional parts may be absent.
    """
    registry = registry_of(plugin)
    checks = [
        *_python(),
        *_libraries(),
        *_devices(),
        *_backends(registry),
        *_programs(),
        *_plugins(registry),
        *_database(db),
        *_artefacts(db),
        *(_measured(db) if measure else ()),
    ]
    if json:
        print_json("doctor", {"checks": [asdict(check) for check in checks]})
    else:
        listed = table("", ["", "what", "state", "found", "fix"])
        for check in checks:
            fix = "" if check.state == "ok" else check.fix
            listed.add_row(
                check.area, escape(check.name), MARKS[check.state], escape(check.detail), escape(fix)
            )
        data_console().print(listed)
    if any(check.required and check.state != "ok" for check in checks):
        raise typer.Exit(1)


def _python() -> Iterator[Check]:
    yield Check("python", "python", "ok", f"{platform.python_version()} ({sys.executable})", required=True)
    yield Check("python", "crossbreed", "ok", __version__, required=True)


def _libraries() -> Iterator[Check]:
    for name in LIBRARIES:
        yield _importable("library", name, name, f"pip install {name}", required=True)


def _importable(area: str, name: str, module: str, fix: str, required: bool = False) -> Check:
    """Import a module for real: an installed library may still be unusable (a wrong CUDA, a missing system library)."""
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        return Check(area, name, "absent", "not installed", fix, required)
    try:
        importlib.import_module(module)
    except Exception as error:
        return Check(
            area, name, "broken", f"{type(error).__name__}: {error}", f"reinstall it: {fix}", required
        )
    try:
        found = version(module.partition(".")[0])
    except PackageNotFoundError:
        found = "imports"
    return Check(area, name, "ok", found, required=required)


def _devices() -> Iterator[Check]:
    try:
        import torch

        from crossbreed.core.lab import mps
    except ImportError as error:
        yield Check("device", "cpu", "broken", f"torch does not import: {error}", "pip install torch", True)
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Check(
        "device", "cpu", "ok", f"{cores} cores, torch uses {torch.get_num_threads()} threads", required=True
    )
    if not torch.cuda.is_available():
        why = (
            "this torch is built without CUDA" if torch.version.cuda is None else "no CUDA device is visible"
        )
        yield Check(
            "device",
            "cuda",
            "absent",
            why,
            "see the GPU section of the README; everything also runs on a CPU",
        )
        return
    for index in range(torch.cuda.device_count()):
        seen = torch.cuda.get_device_properties(index)
        detail = f"{seen.name}, {size(seen.total_memory)}, compute {seen.major}.{seen.minor}"
        shared = mps.enabled(torch.device("cuda", index))
        detail += "" if shared is None else f", MPS {'on' if shared else 'off'}"
        try:
            torch.ones(8, device=f"cuda:{index}").sum().item()
        except RuntimeError as error:
            fix = "check the driver with nvidia-smi"
            yield Check("device", f"cuda:{index}", "broken", f"{detail}: {error}", fix)
        else:
            yield Check("device", f"cuda:{index}", "ok", detail)


def _measured(db: str) -> Iterator[Check]:
    """The ceilings of every device, measured now and kept."""
    import torch

    from crossbreed.core.lab import ceilings, lease
    from crossbreed.storage.locations import artefacts_of

    artefacts = artefacts_of(db)
    file = artefacts.shown(ceilings.FILE)
    names = [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["cpu"]
    for name in names:
        device = torch.device(name)
        with lease.alone(device, "doctor --measure", waiting=lambda why: log_console().print(escape(why))):
            found = ceilings.measure_ceilings(device)
        ceilings.store(artefacts, found)
        rates = ", ".join(
            f"{si(rate)}FLOP/s in {dtype}" for dtype, rate in found["matrix_flops_per_s"].items()
        )
        detail = f"{found['name']}: {rates}; copies {si(found['copy_bytes_per_s'])}B/s; {duration_s(found['launch_s'])} a launch"
        if found["neighbours"]:
            fix = "measure again when nothing else is at work"
            detail += f"; not measured alone: {found['neighbours']}"
            yield Check("device", f"{name} ceilings", "ok", f"{detail}; kept in {file}", fix)
        else:
            yield Check("device", f"{name} ceilings", "ok", f"{detail}; kept in {file}")


def _backends(registry: Registry) -> Iterator[Check]:
    """Every backend that a registered mixer states, with the mixers that have it."""
    users: dict[str, list[str]] = {"reference": []}
    modules: dict[str, str] = {}
    for mixer in registry.names("mixer"):
        able = registry.descriptor("mixer", mixer).capabilities
        for backend in able.backends:
            users.setdefault(backend, []).append(mixer)
            imported = [need for need in able.needs(backend) if need != CUDA]
            modules |= {backend: imported[0]} if imported else {}
    for backend, mixers in users.items():
        check = Check("backend", backend, "ok", "", required=backend == "reference")
        if backend in modules:
            fix = "pip install 'crossbreed[cuda]' (needs a CUDA device)"
            if backend not in KNOWN_NEEDS:
                fix = f"install {modules[backend].partition('.')[0]}, as the plugin's own pages say"
            check = _importable("backend", backend, modules[backend], fix)
        found = f"{check.detail}; " if check.detail else ""
        yield replace(check, detail=f"{found}{', '.join(mixers) or 'no mixer'}")


def _programs() -> Iterator[Check]:
    wanted = os.environ.get("CHROMIUM")
    found = shutil.which(wanted) if wanted else next(filter(None, map(shutil.which, BROWSERS)), None)
    fix = "install the package chromium, or set CHROMIUM (tests of the dashboard only)"
    yield Check("program", "chromium", "ok" if found else "absent", found or "not on PATH", fix)
    servers = [Path(path) for path in filter(None, [shutil.which("postgres")])]
    servers += sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    fix = "install the package postgresql (tests of the storage only), or give --db the URL of a server"
    state: State = "ok" if servers else "absent"
    yield Check("program", "postgres", state, str(servers[0]) if servers else "not on PATH", fix)
    fix = "pip install 'crossbreed[postgres]'"
    yield _importable("library", "psycopg", "psycopg", f"{fix} (for a PostgreSQL database)")


def _plugins(registry: Registry) -> Iterator[Check]:
    total = sum(len(entries) for entries in registry.entries.values())
    yield Check("plugins", "usable", "ok", f"{total} names of {len(registry.owners)} plugins")
    for problem in registry.problems:
        fix = "see its traceback with `crossbreed plugins`"
        yield Check("plugins", problem.owner.name, "broken", problem.message, fix, problem.owner.builtin)


def _artefacts(db: str) -> Iterator[Check]:
    """The place of artefacts; a store is written to, read and left as it was."""
    from crossbreed.storage.locations import ARTEFACTS, artefacts_of

    try:
        artefacts = artefacts_of(db)
        artefacts.check()
    except ConfigError as error:
        yield Check("storage", "artefacts", "broken", str(error), f"name another place in {ARTEFACTS}", True)
    else:
        yield Check("storage", "artefacts", "ok", artefacts.place)


def _database(db: str) -> Iterator[Check]:
    from crossbreed.storage.database import Database
    from crossbreed.storage.locations import parse_url, redacted

    place = parse_url(db)
    if place.get_backend_name() == "sqlite" and not Path(str(place.database)).exists():
        yield Check("storage", "database", "absent", redacted(db), "`crossbreed search` makes it")
        return
    try:
        Database.open(db, read_only=True).close()
    except StorageError as error:
        yield Check(
            "storage", "database", "broken", str(error), "name another place with --db", required=True
        )
    else:
        yield Check("storage", "database", "ok", redacted(db))
