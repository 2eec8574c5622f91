"""``crossbreed init``: write a commented study file to start from."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from crossbreed.cli.options import Debug, Plugins, registry_of
from crossbreed.cli.output import log_console, program
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.errors import ConfigError
from crossbreed.core.host import Registry


def init(
    path: Annotated[Path, typer.Argument(metavar="[FILE]", help="The study file to write.")] = Path(
        "study.yaml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    plugin: Plugins = None,
    debug: Debug = False,
) -> None:
    """Write a commented study file, ready to be searched. Never replaces a file unless told to."""
    text = study_text(path.stem, registry_of(plugin))
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{str(path)!r} exists; give another name, or --force to replace it.") from None
    except OSError as error:
        raise ConfigError(f"study file {str(path)!r} cannot be written: {error.strerror}.") from error
    print(path)
    log_console().print(f"Next: {program()} search {path} --plan", markup=False)


def study_text(name: str, registry: Registry) -> str:
    """The template with the study's name, and the names that ``all`` takes now as comments."""
    from crossbreed.core.search.study_setting import searched

    template = Template(files("crossbreed.cli").joinpath("presets/study.yaml").read_text(encoding="utf-8"))
    return template.substitute(
        name=json.dumps(re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("._-") or "study"),
        **{key: ", ".join(searched(registry, kind)) for key, kind in _LISTED.items()},
    )


_LISTED: dict[str, Kind] = {"mixers": "mixer", "routers": "router", "depth": "depth"}
