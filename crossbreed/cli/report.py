"""``crossbreed report``: a study as one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crossbreed.cli.options import DEFAULT_DB, Db, Debug, NewestStudy, Plugins, registry_of
from crossbreed.cli.output import log_console
from crossbreed.core.errors import ConfigError

if TYPE_CHECKING:
    from crossbreed.core.search.study import Study

FORMS = {
    ".html": "a page with front, intervals, certificates, environment, what failed and why",
    ".csv": "all candidates, a line each",
    ".parquet": "the same as a Parquet table",
    ".json": "the same as JSON records",
    ".svg": "the picture of the front",
    ".png": "the picture of the front",
}


def report(
    study: NewestStudy = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help=f"Where to write; its ending says what: {', '.join(FORMS)}. Default: STUDY.html.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    debug: Debug = False,
) -> None:
    """Write a study as one self-contained HTML file, its candidates as a table, or its front as a picture."""
    from crossbreed.cli.front import find_study
    from crossbreed.core.search.study import Study
    from crossbreed.storage.repository import Repository

    registry_of(plugin)
    with Repository.open(db, read_only=True) as repository:
        row = find_study(repository, study)
        path = out or Path(f"{row.name}.html")
        _check(path, force)
        _write(Study(repository, row), path)
    log_console().print(f"wrote {path}", highlight=False, markup=False)


def _check(path: Path, force: bool) -> None:
    if path.suffix not in FORMS:
        endings = ", ".join(FORMS)
        raise ConfigError(f"--out {str(path)!r} ends in {path.suffix!r}; it must end in one of {endings}.")
    if path.exists() and not force:
        raise ConfigError(
            f"--out {str(path)!r} is there already; choose another name, or replace it with --force."
        )
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--out {str(path)!r} lies in a folder that does not exist.")


def _write(study: Study, path: Path) -> None:
    from crossbreed.figures import report

    match path.suffix:
        case ".html":
            path.write_text(report.report_html(study), encoding="utf-8")
        case ".csv":
            study.candidates().to_csv(path, index=False)
        case ".parquet":
            study.candidates().to_parquet(path, index=False)
        case ".json":
            path.write_text(report.report_json(study), encoding="utf-8")
        case _:
            _picture(study, path)


def _picture(study: Study, path: Path) -> None:
    from crossbreed.figures.report import front_chart

    try:
        front_chart(study).write_image(path, width=1100, height=620, scale=2)
    except (ValueError, RuntimeError, OSError) as error:
        raise ConfigError(
            f"--out {str(path)!r} is a picture, which Plotly draws with Kaleido and a Chrome or Chromium: install the extra "
            f"`images`, or save the picture in the dashboard. {error}"
        ) from error
