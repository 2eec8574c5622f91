"""A plugin file for tests of what survives: a mixer that kills, hangs or fills its worker, and a space and a task for it.

``folder`` keeps a mark of what happens once only, so that the run's next worker is spared. A mishap called after one of
PHASES holds its worker still there, until the test kills it or makes the mark ``go``: its own mark holds the worker's process id.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import nn

from crossbreed import Architecture, SearchSpace, SearchSpaceDescriptor, hookimpl
from crossbreed.core.contracts.capabilities import MixerCapabilities
from crossbreed.core.contracts.mixer import Mixer, MixerDescriptor
from crossbreed.core.contracts.task import TaskDescriptor
from crossbreed.core.lab.records import RungDone
from crossbreed.core.ledger import Cost, Work
from crossbreed.core.search.executors.base import Spool
from crossbreed.plugins.tasks.recall import Recall, RecallConfig

SEEN = {"infinite": False}
"""What the mixer has done to this process, for the task to see."""

PHASES = ("training", "evaluation", "checkpoint", "record")
"""Where a worker can be held: in a step, while the model is judged, with a checkpoint written but not in its place, and with
a rung's record written down but not sent."""


class MishapConfig(BaseModel):
    """how: what happens at training step ``at``, or while the trained model is judged. ``seconds``: each step takes longer."""

    model_config = ConfigDict(extra="forbid")

    how: str = ""
    at: int = 3
    folder: str = ""
    hidden: int = 16
    seconds: float = 0.0
    bytes: int = 0


class Mishap(Mixer, nn.Module):
    """A two-layer map of each token."""

    def __init__(self, config: MishapConfig, build: Any) -> None:
        nn.Module.__init__(self)
        self.config, self.backend = config, "reference"
        self.inner = nn.Linear(build.d_model, config.hidden, bias=False)
        self.outer = nn.Linear(config.hidden, build.d_model, bias=False)
        self.trained = self.standing = False

    def forward(self, x_BTD, context, state, read_BT=None):
        y_BTD = self.outer(torch.relu(self.inner(x_BTD)))
        if context.training:
            self.trained = True
            time.sleep(self.config.seconds)
            if context.step == self.config.at:
                y_BTD = self._happen(y_BTD)
        elif self.trained and self.config.how == "evaluation":
            self._stand_still()
        return y_BTD if read_BT is None else y_BTD * read_BT[..., None], state

    def _happen(self, y_BTD):
        how = self.config.how
        if how == "die" or (how == "die_once" and self._first_time()):
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "training":
            self._stand_still()
        elif how == "checkpoint":
            _before(os, "fsync", lambda file: self._stand_still())
        elif how == "record":
            _after(
                Spool,
                "append",
                lambda of, lease, record: isinstance(record, RungDone) and self._stand_still(),
            )
        elif how == "hang":
            time.sleep(3600)
        elif how == "nan":
            return y_BTD * float("nan")
        elif how == "infinite":
            SEEN["infinite"] = True
        elif how == "allocator":
            torch.empty(1 << 60, dtype=torch.uint8, device=y_BTD.device)
        elif how == "hoard":
            _hoard()
        elif how == "disk":
            # Smaller than this model's checkpoint, larger than anything else that a worker writes.
            resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        elif how == "assert":
            torch.zeros(4, device=y_BTD.device)[torch.full((1,), 99, device=y_BTD.device)].sum().item()
        elif how in ("hold", "take"):
            self.held = torch.ones(self.config.bytes, dtype=torch.uint8, device=y_BTD.device)
            torch.cuda.synchronize()
            if how == "hold" and self._first_time():
                time.sleep(60)
        elif how == "device":
            torch.empty(1 << 50, dtype=torch.uint8, device=y_BTD.device)
        return y_BTD

    def _first_time(self) -> bool:
        try:
            with (Path(self.config.folder) / self.config.how).open("x") as mark:
                mark.write(f"{os.getpid()}\n")
        except FileExistsError:
            return False
        return True

    def _stand_still(self) -> None:
        while (self._first_time() or self.standing) and not (Path(self.config.folder) / "go").exists():
            self.standing = True
            time.sleep(0.1)

    @staticmethod
    def cost(config, d_model, shape, depths=1, parts=None):
        weights = 2 * d_model * config.hidden
        return Cost(reads=(Work.product(2.0 * weights),), parameters=weights, active_parameters=weights)


def _before(owner: Any, name: str, act: Callable[..., object]) -> None:
    """From now on ``act`` comes before what a function of this process does, with its arguments."""
    function = getattr(owner, name)

    def both(*arguments: Any) -> Any:
        act(*arguments)
        return function(*arguments)

    setattr(owner, name, both)


def _after(owner: Any, name: str, act: Callable[..., object]) -> None:
    """The same, afterwards."""
    function = getattr(owner, name)

    def both(*arguments: Any) -> Any:
        done = function(*arguments)
        act(*arguments)
        return done

    setattr(owner, name, both)


def _hoard() -> None:
    """Take memory, and use it, until somebody ends this process; 12 GB at most."""
    held = []
    for _ in range(240):
        held.append(b"x" * 50_000_000)
        time.sleep(0.02)
    raise AssertionError("nobody minded 12 GB")


class MishapsConfig(BaseModel):
    """The mishaps to propose, one candidate each; a number in front of ``:`` tells candidates of one kind apart."""

    model_config = ConfigDict(extra="forbid")

    hows: tuple[str, ...] = ("",)
    folder: str = ""
    seconds: float = 0.0
    bytes: int = 0


class Mishaps(SearchSpace):
    def propose(self, draw, setting):
        how = draw.choose("how", self.config.hows)
        name, number = how.split(":")[-1], self.config.hows.index(how)
        params = self.config.model_dump(exclude={"hows"}) | {"how": name}
        # Every candidate is an architecture of its own; the checkpoint that is not to fit is a large one.
        params["hidden"] = 4000 if name == "disk" else 17 + number
        sublayers = [
            {"mixer": "attention", "params": {"heads": 1, "head_size": 16}},
            {"mixer": "mishap", "params": params},
        ]
        block = {"sublayers": sublayers}
        return Architecture.model_validate(
            {"vocab": setting.vocab, "d_model": setting.d_model, "stages": [{"blocks": [block]}]}
        )

    def starting_points(self, setting):
        return [{"how": how} for how in self.config.hows]

    def family(self, architecture):
        return architecture.sublayers()[1][1].params["how"] or "good"


class Tale(Recall):
    """Recall whose score is infinite once the mixer of that name was here."""

    def metrics(self, totals):
        found = super().metrics(totals)
        return {**found, "accuracy": float("inf")} if SEEN["infinite"] else found


@hookimpl
def register_mixers():
    able = MixerCapabilities(axis="channel")
    return [MixerDescriptor("mishap", lambda: Mishap, MishapConfig, able, "mishaps")]


@hookimpl
def register_search_spaces():
    return [SearchSpaceDescriptor("mishaps", Mishaps, MishapsConfig, "candidates that end badly")]


@hookimpl
def register_tasks():
    return [TaskDescriptor("tale", lambda: Tale, RecallConfig, "recall with an infinite score at times")]
