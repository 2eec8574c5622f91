"""``crossbreed study export`` and ``import``: a study as one file, from any database into any other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, StudyName, registry_of
from crossbreed.cli.output import data_console, log_console, print_json, size

if TYPE_CHECKING:
    from crossbreed.storage.archive import Contents


def export_study(
    name: StudyName,
    place: Annotated[
        str,
        typer.Argument(
            metavar="FILE|DIR|URL",
            help="The zip file to write, or a folder (a URL that ends with /) to write STUDY.zip into.",
        ),
    ],
    files: Annotated[
        bool, typer.Option("--files", help="Take along checkpoints and other files of runs.")
    ] = False,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a study into one file: its rows, its plugin files, and with --files its checkpoints."""
    from crossbreed.core.artefacts import Artefacts
    from crossbreed.storage import archive
    from crossbreed.storage.repository import Repository

    registry_of(plugin)
    path = place
    if place.endswith("/") or Path(place).is_dir():
        path = f"{place.rstrip('/')}/{name}.zip"
    with Repository.open(db, read_only=True) as repository, _progress("Writing") as note:
        repository.open_study(name)
        contents = archive.write(repository.database, name, path, files=files, note=note)
    folder, file = Artefacts.file(path)
    bytes = folder.size(file)
    if json:
        print_json("study_export", {**_data(contents), "file": path, "bytes": bytes})
        return
    data_console().print(
        f"{path}: study {name}, {_words(contents)}, {size(bytes)}.",
        markup=False,
        soft_wrap=True,
    )


def import_study(
    file: Annotated[str, typer.Argument(metavar="FILE|URL", help="What `crossbreed study export` wrote.")],
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Store the study of an exported file in a database, all of it or nothing. Twice is as once; nothing of it is run."""
    from crossbreed.storage import unarchive
    from crossbreed.storage.repository import Repository

    registry_of(plugin)
    with Repository.open(db) as repository, _progress("Storing") as note:
        contents, known = unarchive.read(repository.database, file, note)
        shown = repository.database.shown
    if json:
        print_json("study_import", {**_data(contents), "already_there": known})
    elif known:
        data_console().print(
            f"Study {contents.study} is in {shown} already, the same; nothing was changed.", markup=False
        )
    else:
        data_console().print(
            f"Study {contents.study} is in {shown}: {_words(contents)}.", markup=False, soft_wrap=True
        )


@contextlib.contextmanager
def _progress(verb: str) -> Iterator[Callable[[str], None]]:
    """A line on stderr that names what is at work, where somebody looks."""
    console = log_console()
    if not console.is_terminal:
        yield lambda name: None
        return
    with console.status(f"{verb} ...") as status:
        yield lambda name: status.update(f"{verb} {name} ...")


def _data(contents: Contents) -> dict[str, Any]:
    return {
        "study": contents.study,
        "rows": dict(contents.rows),
        "files": contents.files,
        "sha256": contents.sha256,
    }


def _words(contents: Contents) -> str:
    rows = contents.rows
    words = [f"{rows.get(table, 0)} {what}" for table, what in (("trial", "candidates"), ("run", "runs"))]
    return ", ".join([*words, f"{sum(rows.values())} rows", f"{contents.files} files"])
