"""``crossbreed export-model``: a trained run as files that transformers loads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crossbreed.cli.conventions import CONVENTIONS, MEMORY
from crossbreed.cli.generate import PointOption
from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, RunKey, registry_of
from crossbreed.cli.output import data_console, print_json


def export_model(
    run: RunKey,
    out: Annotated[Path, typer.Argument(metavar="DIR", help="A folder for the model's files.")],
    point: PointOption = "own",
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a trained model as safetensors with its config, genome and card, to be loaded by transformers'
    `AutoModelForCausalLM` after `import crossbreed.integrations.transformers`.

    A tokenizer that the run's task has goes with it. The card has the certificate, the stored results and where everything comes from; crossbreed.json has the same as data. A
    schedule of modes that counts from the start becomes the model's own; one that counts from a text's end cannot.
    """
    from crossbreed.core.search.at_point import at_point, parse_point
    from crossbreed.core.search.trained import load
    from crossbreed.integrations import model_card, model_files
    from crossbreed.storage.repository import Repository

    asked = parse_point(point)
    registry = registry_of(plugin)
    with Repository.open(db, read_only=True) as repository:
        trained = load(repository, run, registry)
        model = at_point(repository, trained, asked, registry)
        schedule = model_files.check_exportable(model, asked)
        record = model_card.record_of(repository, trained, asked.name, model)
    config = model_files.config_of(
        model, registry, seed=trained.row.seed, schedule=schedule, origin={"run": run, "point": asked.name}
    )
    task = trained.setting.task
    made = model_files.write(
        out, model, config, model_card.card(record, model, task), record, tokenizer=task.tokenizer
    )
    if json:
        print_json(
            "export_model",
            {
                "folder": str(made.folder),
                "files": made.files,
                "tensors": made.tensors,
                "mode_schedule": config["mode_schedule"],
                "record": record,
                "conventions": [CONVENTIONS, MEMORY],
            },
        )
        return
    console = data_console()
    for name in made.files:
        console.print(str(made.folder / name), markup=False, soft_wrap=True)
    console.print(
        f"{run} at {asked.name}: {made.tensors} tensors, {record['parameters']:,} parameters, genome {record['genome'][:12]}.",
        markup=False,
    )
