"""A trained run as it is at an operating point: its own model, one with other settings on the same weights, or a fitted one."""

from __future__ import annotations

from crossbreed.core.errors import ConfigError
from crossbreed.core.host import Registry
from crossbreed.core.lab.operating_points import FITTED, OperatingPoint
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.legality import mode_readers
from crossbreed.core.search import fitted
from crossbreed.core.search.trained import TrainedRun
from crossbreed.storage import Repository


def parse_point(name: str) -> OperatingPoint:
    """The operating point of that name; ``fitted:...`` is one too, at which another model decides for itself."""
    return OperatingPoint(name) if name.startswith(FITTED) else OperatingPoint.parse(name)


def at_point(
    repository: Repository, run: TrainedRun, point: OperatingPoint, registry: Registry
) -> LanguageModel:
    """The model that decides at a point, on the run's device.

    Raises ConfigError for a point that says nothing about the run, UnknownName for a fitted one that nobody made.
    """
    if point.name.startswith(FITTED):
        return fitted.load(repository, run, point.name, registry)
    architecture = run.model.architecture
    point.check_modes(mode_readers(architecture))
    if not point.fits(architecture, registry, run.setting.task.length):
        raise ConfigError(
            f"operating point {point.name!r} says nothing about run {run.row.key}: it has nothing to force, to move or to cut."
        )
    return point.model(run.model, registry)
