"""Packages that only one integration needs."""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from crossbreed.core.errors import MissingExtra


def need(package: str, extra: str, least: str) -> ModuleType:
    """The package, imported. Raises MissingExtra where it is absent or older than ``least``."""
    wanted = f"the package {package!r} (at least {least})"
    install = f"pip install 'crossbreed[{extra}]'"
    try:
        found = importlib.import_module(package)
        have = version(package)
    except (ImportError, PackageNotFoundError) as error:
        raise MissingExtra(f"this needs {wanted}, which cannot be imported ({error}); {install}") from error
    if _numbers(have) < _numbers(least):
        raise MissingExtra(f"this needs {wanted}, but version {have} is installed; {install}")
    return found


def _numbers(text: str) -> tuple[int, ...]:
    parts = []
    for part in text.split(".")[:3]:
        digits = part[: next((i for i, c in enumerate(part) if not c.isdigit()), len(part))]
        parts.append(int(digits or 0))
    return tuple(parts)
