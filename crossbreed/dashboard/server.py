"""The dashboard's server, run by Streamlit: the app, ready before the first visitor asks for it.

What a first visitor would wait for is done while the server starts: importing what draws, and reading the newest study. And a
page's document names the parts of Streamlit's own front end that the page will need, so that a browser fetches and compiles
them while the page is still being made, instead of afterwards.
"""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import streamlit as st
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crossbreed.core.errors import CrossbreedError
from crossbreed.dashboard import queries

FRONT_END = Path(st.__file__).parent / "static"
CHART, TABLE, CODE = "PlotlyChart", "DataFrame", "StreamlitSyntaxHighlighter"
PARTS = {
    "": (CHART,),
    "front": (CHART, TABLE),
    "candidates": (TABLE,),
    "candidate": (CHART, TABLE),
    "routers": (CHART, TABLE),
    "compare": (CHART, TABLE),
    "budgets": (CHART, TABLE),
    "health": (TABLE,),
}
"""Page -> what Streamlit loads when such an element arrives."""

_IMPORTS = re.compile(r'from"\./([\w.~-]+\.js)"')


@cache
def modules(part: str) -> tuple[str, ...]:
    """Paths of the scripts that a part of Streamlit's front end is made of and that its documents do not name themselves; ()
    where this version has none of that name, which only makes its pages slower."""
    named = (FRONT_END / "index.html").read_text(encoding="utf-8")
    found = sorted((FRONT_END / "static" / "js").glob(f"{part}.*.js"))[:1]
    names = [file.name for file in found] + [n for file in found for n in _IMPORTS.findall(_head(file))]
    return tuple(f"static/js/{name}" for name in dict.fromkeys(names) if name not in named)


def _head(file: Path) -> str:
    """Where a bundled script says what it imports."""
    with file.open(encoding="utf-8") as opened:
        return opened.read(20_000)


class Preload:
    """Says in a page's document, by a Link header, which scripts the page will need."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = str(scope.get("path", "")).strip("/")
        if scope["type"] != "http" or page not in PARTS:
            await self.app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Link"] = link(PARTS[page])
            await send(message)

        await self.app(scope, receive, sending)


def link(parts: Iterable[str]) -> str:
    """The header's value for some parts of the front end; relative, so that it holds behind a proxy's prefix."""
    names = dict.fromkeys(name for part in parts for name in modules(part))
    return ", ".join(f"<./{name}>; rel=modulepreload; crossorigin" for name in names)


def warm() -> None:
    """Import what pages are made of, and read the newest study."""
    for page in PARTS:
        import_module(f"crossbreed.dashboard.views.{page or 'studies'}")
    try:
        for study in queries.studies()[-1:]:
            queries.results(study, queries.stamp(study))
    except CrossbreedError:
        # The pages say what is wrong, and go on when it is not any more.
        return


@asynccontextmanager
async def ready(_: Any) -> AsyncIterator[None]:
    threading.Thread(target=warm, name="warm", daemon=True).start()
    yield


app = st.App(Path(__file__).with_name("app.py"), lifespan=ready, middleware=[Middleware(Preload)])
