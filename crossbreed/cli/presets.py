"""``crossbreed presets``: published systems and their rivals, to be named wherever a GENOME is asked for."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from crossbreed.cli.conventions import CONVENTIONS, MEMORY
from crossbreed.cli.genomes import cost_model
from crossbreed.cli.options import Debug, Json, Plugins, registry_of
from crossbreed.cli.output import data_console, print_json, si, table
from crossbreed.core.errors import ConfigError, nearest
from crossbreed.core.ledger import Shape
from crossbreed.presets import presets as catalogue


def presets(
    text: Annotated[
        str, typer.Argument(metavar="[TEXT]", help="List only names and families that contain it.")
    ] = "",
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List the presets: published systems and what they were compared to, at their sizes. Builds no weights."""
    found = [preset for preset in catalogue().values() if text in preset.name or text in preset.family]
    if not found:
        families = ", ".join(dict.fromkeys(preset.family for preset in catalogue().values()))
        hint = nearest(text, catalogue()) or "."
        raise ConfigError(f"no preset's name or family contains {text!r}; families: {families}{hint}")
    registry = registry_of(plugin)
    model = cost_model(registry)
    ledgers = {p.name: model.estimate(registry.canonical(p.build()), Shape()) for p in found}
    if json:
        print_json(
            "presets",
            {
                "presets": [
                    {
                        "name": preset.name,
                        "family": preset.family,
                        "summary": preset.summary,
                        "parameters": ledgers[preset.name].parameters,
                        "active_parameters": ledgers[preset.name].active_parameters,
                        "published": [
                            {"quantity": p.quantity, "value": p.value, "source": p.source}
                            for p in preset.published
                        ],
                    }
                    for preset in found
                ],
                "conventions": [CONVENTIONS, MEMORY],
            },
        )
        return
    listed = table("", ["preset", "family", ("parameters", "right"), "what it is"])
    for preset in found:
        count = si(ledgers[preset.name].parameters, 4)
        listed.add_row(*map(escape, (preset.name, preset.family, count, preset.summary)))
    data_console().print(listed)
