"""Commands that pages show are commands, with options that they have; the README's genome is one."""

from __future__ import annotations

import shlex
from itertools import takewhile

import pytest
import typer
import yaml

from crossbreed.cli.app import app
from crossbreed.core.budget.matcher import match
from crossbreed.core.genome import Architecture, parse
from crossbreed.core.host import Registry
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import resolve
from tests.docs.pages import DOCS, fences

PAGES = ["../README.md", *sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))]
SHOWN = [
    (page, line)
    for page in PAGES
    for fence in fences(page)
    if fence.language == "console"
    for line in fence.commands()
    if "crossbreed " in line
]


def words(line: str) -> list[str]:
    """Of the command itself: without a comment, settings before it, and what its output goes to."""
    found = shlex.split(line, comments=True)
    return list(takewhile(lambda word: word not in {"|", ">", "&&"}, found[found.index("crossbreed") + 1 :]))


@pytest.mark.parametrize(("page", "line"), SHOWN, ids=lambda text: text.split("#")[0].strip())
def test_a_command_that_a_page_shows_is_understood(page: str, line: str) -> None:
    command, name, given = typer.main.get_command(app), "crossbreed", words(line)
    while commands := getattr(command, "commands", None):
        name, *given = given
        command = commands[name]
    command.make_context(name, given)


def test_the_genome_of_the_readme_can_be_moved_into_the_quickstarts_budget(registry: Registry) -> None:
    (text,) = (fence.text for fence in fences("../README.md") if fence.text.startswith("d_model"))
    setting = resolve(StudyFile.load(DOCS.parent / "examples" / "quickstart.yaml"), registry)
    genome = parse(Architecture, {**yaml.safe_load(text), "vocab": setting.task.vocab}, "README")
    matched = match(registry.canonical(genome), setting.budget, registry, setting.cost_model)
    assert matched.certificate.feasible, matched.certificate.reason
