"""``crossbreed import-model``: a public checkpoint as a genome and a checkpoint of our own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crossbreed.cli.genomes import tree
from crossbreed.cli.options import Debug, Json, Plugins, registry_of
from crossbreed.cli.output import data_console, log_console, print_json
from crossbreed.cli.settings import given_settings
from crossbreed.core.errors import ConfigError
from crossbreed.core.ledger import QUANTITIES

if TYPE_CHECKING:
    from crossbreed.foreign.formats import Imported

WEIGHTS, GENOME = "model.safetensors", "genome.yaml"


def import_model(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A .safetensors or .bin file, or the folder of a model.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help=f"A folder for {WEIGHTS} and {GENOME}.")],
    format: Annotated[
        str, typer.Option("--as", metavar="FORMAT", help="amor, mamba2 or gated_deltanet; told by its keys.")
    ] = "auto",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting over those of config.json; repeatable."),
    ] = None,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Import a public checkpoint of AMOR, Mamba-2 (state-spaces or transformers) or Gated DeltaNet (fla), by key.

    Every tensor there is used and every weight here is filled, or a sentence says which is not. Weights are read as weights
    alone: nothing in a file is run.
    """
    from crossbreed.foreign.files import read
    from crossbreed.foreign.formats import import_model as build

    registry = registry_of(plugin)
    taken = [name for name in (WEIGHTS, GENOME) if (out / name).exists()]
    if taken:
        raise ConfigError(f"folder {str(out)!r} holds {taken[0]} already; choose another.")
    with log_console().status(f"reading {path}"):
        found = build(read(path, given_settings(settings or [])), registry, format)
    sha256 = _write(found, out)
    if json:
        print_json(
            "import_model",
            {
                "format": found.format,
                "genome": str(out / GENOME),
                "hash": digest_of(found),
                "checkpoint": str(out / WEIGHTS),
                "sha256": sha256,
                "tensors": found.tensors,
                "parameters": parameters(found),
                "conventions": [f"parameters: {QUANTITIES['parameters']}"],
            },
        )
        return
    console = data_console()
    console.print(tree(found.architecture))
    console.print(
        f"{found.tensors} tensors of format {found.format}, {parameters(found):,} parameters: {out / GENOME} and {out / WEIGHTS}, "
        f"genome {digest_of(found)[:12]}.",
        markup=False,
    )


def _write(found: Imported, out: Path) -> str:
    """Both files; the checkpoint belongs to no task and no step. Returns its SHA-256."""
    from crossbreed.core.artefacts import Artefacts
    from crossbreed.core.genome import to_yaml
    from crossbreed.core.lab import checkpoint

    header = checkpoint.Header(digest_of(found), recipe={}, task={}, seed=0, step=0, tokens=0, rung=0)
    stored = checkpoint.write(Artefacts.at(out), WEIGHTS, found.model, None, header)
    (out / GENOME).write_text(to_yaml(found.architecture), encoding="utf-8")
    return stored.sha256


def digest_of(found: Imported) -> str:
    from crossbreed.core.genome import digest

    return digest(found.architecture)


def parameters(found: Imported) -> int:
    return sum(p.numel() for p in found.model.parameters())
