"""Sphinx configuration. Built in CI with warnings as errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from crossbreed import __version__
from crossbreed.presets import presets

project = "crossbreed"
author = "The crossbreed founders"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_generate", "_generated"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_static_path = ["_static"]
html_title = "crossbreed"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "separated"

_FIELD = re.compile(r"^([A-Za-z_][\w /,]*):\s+(?=\S)")


def fields_as_lists(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Show a paragraph of ``name: meaning`` lines, as our docstrings write fields, as a list of fields."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines))
    for i, paragraph in enumerate(paragraphs):
        rows = paragraph.split("\n")
        if all(not row or _FIELD.match(row) or row.startswith(" ") for row in rows) and _FIELD.match(rows[0]):
            paragraphs[i] = "\n".join(_FIELD.sub(r":\1: ", row) for row in rows)
    lines[:] = "\n\n".join(paragraphs).split("\n")


def write_presets(app: Any) -> None:
    """Write the tables of presets, a row for each structure, into ``_generated``."""
    families: dict[str, dict[str, list[str]]] = {}
    for preset in presets().values():
        families.setdefault(preset.family, {}).setdefault(preset.summary, []).append(f"`{preset.name}`")
    lines: list[str] = []
    for family, rows in families.items():
        lines += [f"### {family}", "", "| what it is | presets |", "|---|---|"]
        lines += [f"| {summary} | {', '.join(names)} |" for summary, names in rows.items()]
        lines.append("")
    folder = Path(app.srcdir) / "_generated"
    folder.mkdir(exist_ok=True)
    (folder / "presets.md").write_text("\n".join(lines), encoding="utf-8")


def setup(app: Any) -> None:
    app.connect("builder-inited", write_presets)
    app.connect("autodoc-process-docstring", fields_as_lists)
