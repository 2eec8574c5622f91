"""Installed distributions as importlib.metadata sees them, made of files alone."""

from __future__ import annotations

from pathlib import Path

ROUTER = """
from pydantic import BaseModel
from crossbreed import RouterCapabilities, RouterDescriptor, hookimpl

class Config(BaseModel):
    pass

@hookimpl
def {hook}():
    able = RouterCapabilities(sites=("gate",))
    return [RouterDescriptor("{name}", "{module}.layer:Gate", Config, able, "a test router")]
"""


def install(
    site: Path, distribution: str, text: str, *, version: str = "1.0", entry: str | None = None
) -> None:
    """Put a distribution with one module ``text`` and one entry point on the path entry ``site``."""
    module = distribution.replace("-", "_")
    (site / f"{module}.py").write_text(text)
    info = site / f"{module}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[crossbreed]\n{entry or module} = {module}\n")


def install_router(
    site: Path, distribution: str, name: str, *, hook: str = "register_routers", entry: str | None = None
) -> None:
    """A distribution that offers the router ``name``; its class cannot be imported, which a listing never does."""
    install(site, distribution, ROUTER.format(hook=hook, name=name, module="nowhere"), entry=entry)
