"""Sphinx configuration. Built in CI with warnings as errors."""

from __future__ import annotations

from crossbreed import __version__

project = "crossbreed"
author = "The crossbreed founders"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_static_path = ["_static"]
html_title = "crossbreed"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "separated"
