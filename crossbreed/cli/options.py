"""Options that several commands share, and what they resolve to."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbreed.cli.providers import explained
from crossbreed.core.errors import ConfigError
from crossbreed.core.host import Host, Registry
from crossbreed.core.trust import NO_THIRD_PARTY, PLUGINS_ALLOW, Trust, distributions

DEFAULT_DB = "./crossbreed.db"

Plugins = Annotated[
    list[Path] | None,
    typer.Option("--plugin", metavar="FILE", help="A Python file that offers plugins; may be repeated."),
]
Db = Annotated[
    str,
    typer.Option(
        "--db",
        metavar="URL",
        envvar="CROSSBREED_DB",
        help="The database: an SQLite file, or a URL such as postgresql://user@host/name.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="A name from `crossbreed study list`.")]
NewestStudy = Annotated[
    str | None, typer.Argument(metavar="[STUDY]", help="A study's name; the newest one if left out.")
]
RunKey = Annotated[str, typer.Argument(metavar="RUN", help="A trained run, as study/number/seed.")]
Debug = Annotated[bool, typer.Option("--debug", help="On bad input, show the whole traceback.")]


def examples(*lines: str) -> str:
    """The epilogue of a command's help: one example a line."""
    return "\n\n".join(["[bold]Examples[/bold]", *lines])


@dataclass(frozen=True)
class Loading:
    """How a command loads plugins, beside the files it is given."""

    no_third_party: bool = False
    allow: str | None = None
    trace: bool = False

    def trust(self) -> Trust:
        """The options where they are given, else the environment. Raises ConfigError for a bad environment."""
        trust = Trust.from_environment()
        if self.no_third_party:
            trust = replace(trust, third_party=False)
        return trust if self.allow is None else replace(trust, allow=distributions(self.allow))


_BY_DEFAULT = Loading()
_loading: ContextVar[Loading] = ContextVar("loading", default=_BY_DEFAULT)

_PANEL = "Plugins"
NoThirdParty = Annotated[
    bool,
    typer.Option(
        "--no-third-party",
        rich_help_panel=_PANEL,
        help=f"Load built-ins and named files only, nothing else that is installed (or {NO_THIRD_PARTY}=1).",
    ),
]
PluginsAllow = Annotated[
    str | None,
    typer.Option(
        "--plugins-allow",
        metavar="DIST,...",
        rich_help_panel=_PANEL,
        help=f"Of what is installed, load these distributions only (or {PLUGINS_ALLOW}=DIST,...).",
    ),
]
Trace = Annotated[bool, typer.Option("--trace", rich_help_panel=_PANEL, help="Log each hook call on stderr.")]
_LOADING_OPTIONS = {
    "no_third_party": inspect.Parameter(
        "no_third_party", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=NoThirdParty
    ),
    "allow": inspect.Parameter(
        "allow", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=PluginsAllow
    ),
    "trace": inspect.Parameter("trace", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Trace),
}


class Commands(typer.Typer):
    """A Typer whose commands all take the options of ``Loading``; ``registry_of`` finds them.

    Where a command has a database, a name that is unknown for want of a plugin file is said to be that.
    """

    def command(  # type: ignore[override]
        self, name: str | None = None, **settings: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        register = super().command(name, **settings)

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            register(_with_loading(function))
            return function

        return add


def _with_loading(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def command(**arguments: Any) -> Any:
        token = _loading.set(Loading(**{name: arguments.pop(name) for name in _LOADING_OPTIONS}))
        try:
            return function(**arguments)
        except ConfigError as error:
            if "db" not in arguments or "plugin" not in arguments:
                raise
            found = explained(error, arguments["db"], arguments["plugin"])
            if found is error:
                raise
            raise found from error
        finally:
            _loading.reset(token)

    signature = inspect.signature(function, eval_str=True)
    parameters = (*signature.parameters.values(), *_LOADING_OPTIONS.values())
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def registry_of(plugins: list[Path] | None) -> Registry:
    """Everything registered, with the files named by ``--plugin``; raises PluginError for a file that cannot be used.

    Installed plugins are loaded as far as the command's options and the environment let them.
    """
    loading = _loading.get()
    trace = _trace if loading.trace else None
    return Host.load([str(path) for path in plugins or ()], trust=loading.trust(), trace=trace)


def _trace(line: str) -> None:
    print(f"trace: {line}", file=sys.stderr)
