"""``crossbreed new``: write a small, working plugin with its test, to start from."""

from __future__ import annotations

import ast
import importlib.util
import keyword
import re
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated, Literal

import typer

from crossbreed import __version__
from crossbreed.cli.options import Debug, Plugins, registry_of
from crossbreed.cli.output import log_console, program
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.errors import ConfigError
from crossbreed.core.host import KIND_LABELS, PluginFile, Registry

KindName = Literal["router", "mixer", "depth-policy", "cost-model", "task", "search-space"]
KINDS: dict[KindName, Kind] = {
    "router": "router",
    "mixer": "mixer",
    "depth-policy": "depth",
    "cost-model": "cost",
    "task": "task",
    "search-space": "space",
}
NAME = re.compile(r"[a-z][a-z0-9_]*")
LONGEST = 60


@dataclass(frozen=True)
class Start:
    """What is to be written: a kind of plugin under a name. ``distribution`` is what it would be installed as."""

    kind: KindName
    name: str

    @property
    def distribution(self) -> str:
        return f"crossbreed-{self.name.replace('_', '-')}"

    def text(self, template: str) -> str:
        """A template of ``cli/templates`` under this name."""
        old, module = f"my_{self._stem}", f"crossbreed.cli.templates.{self._stem}_package"
        text = files("crossbreed.cli").joinpath("templates", template).read_text(encoding="utf-8")
        text = text.replace(module, old).replace(old, self.name)
        return text.replace(_camel(old), _camel(self.name))

    def form(self, template: str) -> str:
        """A form with ``$fields``, such as the README."""
        text = files("crossbreed.cli").joinpath("templates", template).read_text(encoding="utf-8")
        return Template(text).substitute(
            name=self.name,
            distribution=self.distribution,
            kind=KIND_LABELS[KINDS[self.kind]],
            version=__version__,
        )

    def as_file(self) -> dict[str, str]:
        """A plugin file for ``--plugin`` and its test, by path."""
        return {
            f"{self.name}.py": self.text(f"{self._stem}.py"),
            f"test_{self.name}.py": self.text(f"test_{self._stem}.py"),
        }

    def as_package(self, own: OwnText | None = None) -> dict[str, str]:
        """A distribution with an entry point, by path, of a user's ``own`` plugin file, or anew.

        A listing of one that is written anew imports no torch: a class that needs it stands in a module of its own.
        """
        source = f"src/{self.name}"
        templates = files("crossbreed.cli").joinpath("templates")
        package = templates.joinpath(f"{self._stem}_package")
        if own is not None:
            modules = {f"{source}/__init__.py": own.plugin}
        elif package.is_dir():
            modules = {
                f"{source}/{file.name}": self.text(f"{self._stem}_package/{file.name}")
                for file in sorted(package.iterdir(), key=lambda file: file.name)
                if file.name.endswith(".py")
            }
        else:
            modules = {f"{source}/__init__.py": self.text(f"{self._stem}.py")}
        return {
            "pyproject.toml": self.form("pyproject.toml.txt"),
            "README.md": self.form("README.md.txt"),
            **modules,
            f"{source}/py.typed": "",
            f"tests/test_{self.name}.py": _installed(
                self.text(f"test_{self._stem}.py") if own is None or own.test is None else own.test, self.name
            ),
        }

    @property
    def _stem(self) -> str:
        return self.kind.replace("-", "_")


@dataclass(frozen=True)
class OwnText:
    """A plugin file of the user's, and the test beside it where it loads the plugin as ours does."""

    path: Path
    plugin: str
    test: str | None

    @staticmethod
    def read(path: Path, name: str) -> OwnText:
        """Raises PluginError for a file that cannot be read, ConfigError for one that does not offer ``name``."""
        from crossbreed.core.search.plugin_files import offered

        plugin = PluginFile.read(path)
        if name not in offered(plugin.text):
            raise ConfigError(
                f"{str(path)!r} offers no plugin called {name!r}; give its name, or another file with --from."
            )
        test = path.with_name(f"test_{path.stem}.py")
        text = test.read_text(encoding="utf-8") if test.is_file() else ""
        return OwnText(path, plugin.text, text if _loads(path.stem) in text and path.stem == name else None)


def new(
    kind: Annotated[KindName, typer.Argument(metavar="KIND", help=f"One of {', '.join(KINDS)}.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The plugin's name, such as my_router.")],
    package: Annotated[
        bool, typer.Option("--package", help="Write an installable distribution with an entry point.")
    ] = False,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="With --package: the plugin file to make a distribution of; by default NAME.py, where there is one.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write into.")] = Path(),
    plugin: Plugins = None,
    debug: Debug = False,
) -> None:
    """Write a small, working plugin and its test, to be changed step by step. Never replaces a file.

    With --package a plugin file of that name becomes the distribution's, with its test; without one it is written anew.
    """
    if source is not None and not package:
        raise ConfigError("--from takes a plugin file into a distribution; add --package.")
    start = Start(kind, name)
    check_name(start, registry_of(plugin))
    folder = out / start.distribution if package else out
    file = source or Path(f"{name}.py")
    own = OwnText.read(file, name) if package and (source is not None or file.is_file()) else None
    found = start.as_package(own) if package else start.as_file()
    taken = [folder / path for path in found if (folder / path).exists()]
    if taken:
        raise ConfigError(f"{str(taken[0])!r} exists; give another name, or another folder with --out.")
    check_module(start)
    written = [_write(folder / path, text) for path, text in found.items()]
    for path in written:
        print(path)
    console = log_console()
    if own is not None:
        tested = "with its test" if own.test is not None else "with a test that is written anew"
        console.print(f"The plugin is that of {own.path}, {tested}; the file stays as it is.", markup=False)
        if _imports_torch(own.plugin):
            console.print(
                f"It imports torch, so every listing of plugins will: move the class into a module beside it, and name it in the "
                f'descriptor as factory="{name}.MODULE:CLASS".',
                markup=False,
            )
    for line in _next(start, folder, package):
        console.print(f"Next: {line}", markup=False)


def check_name(start: Start, registry: Registry) -> None:
    """Raise ConfigError for a name that cannot be a module's, or that something registered has."""
    name, kind = start.name, KINDS[start.kind]
    if not NAME.fullmatch(name) or keyword.iskeyword(name) or len(name) > LONGEST:
        better = re.sub(r"\W+", "_", name).strip("_").lower()
        hint = f", such as {better!r}" if NAME.fullmatch(better) and not keyword.iskeyword(better) else ""
        raise ConfigError(
            f"{name!r} cannot be a plugin's name; it must begin with a letter and hold small letters, digits and underscores "
            f"only, be no word of Python and no longer than {LONGEST}{hint}."
        )
    if name in registry.entries[kind]:
        owner = registry.registered(kind, name).owner
        raise ConfigError(
            f"{KIND_LABELS[kind]} {name!r} is offered by {owner.source} already; take another name."
        )


def check_module(start: Start) -> None:
    """Raise ConfigError for a name under which something installed is imported: a file of that name would hide it."""
    found = importlib.util.find_spec(start.name)
    here = found is not None and found.origin is not None and Path(found.origin).is_relative_to(Path.cwd())
    if start.name in sys.stdlib_module_names or (found is not None and not here):
        raise ConfigError(
            f"{start.name!r} is the name of an installed module, which a plugin of that name could hide; take another name."
        )


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be written: {error.strerror}.") from error
    return path


def _installed(test: str, name: str) -> str:
    """A test of a plugin file as that of an installed one, which its entry point finds."""
    assert _loads(name) in test, "a template's test must load its plugin by this line"
    test = test.replace(_loads(name), "FILES = ()  # installed: found by its entry point\n")
    return test if "Path(" in test else test.replace("from pathlib import Path\n", "", 1)


def _loads(name: str) -> str:
    """The line by which a test loads the plugin file beside it."""
    return f'FILES = (str(Path(__file__).with_name("{name}.py")),)\n'


def _imports_torch(text: str) -> bool:
    """Whether a module's own lines import torch; what stands in functions, or for type checkers alone, does not count."""
    names = [
        name
        for node in ast.parse(text).body
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    ]
    return any(name.split(".")[0] == "torch" for name in names)


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _next(start: Start, folder: Path, package: bool) -> list[str]:
    if package:
        return [f"pip install -e '{folder}[test]'", f"{program()} check {start.name}", f"pytest {folder}"]
    file = folder / f"{start.name}.py"
    return [
        f"{program()} plugins --plugin {file}",
        f"{program()} check {file}",
        f"pip install pytest && pytest {folder / f'test_{start.name}.py'}",
    ]
