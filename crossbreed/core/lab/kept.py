"""What a run keeps: a checkpoint at the end of each rung, and one where it was stopped."""

from __future__ import annotations

from crossbreed.core.artefacts import Artefacts, patiently
from crossbreed.core.lab import checkpoint
from crossbreed.core.lab.checkpoint import SUFFIX, Header, Stored
from crossbreed.core.lab.records import RungDone
from crossbreed.core.lab.train import Trainer

STOPPED = f"stopped{SUFFIX}"


class Kept:
    """The checkpoints of one run, in a place of its own."""

    def __init__(self, place: str) -> None:
        self.folder = Artefacts.at(place)

    def begun(self) -> bool:
        """Whether there is any."""
        return any(name.endswith(SUFFIX) for name in self.folder.names())

    def furthest(self, reach: int) -> tuple[str, Header] | None:
        """The name and header of the furthest one within ``reach`` tokens, if there is one."""
        within = [(n, h) for n, h in checkpoint.headers(self.folder).items() if h.tokens <= reach]
        return max(within, key=lambda one: one[1].step, default=None)

    def has(self, rung: int) -> bool:
        return self.folder.exists(name_of(rung))

    def again(self, rung: int) -> RungDone:
        """Report a rung that was kept before: the record may have been lost with the process that wrote the file."""
        return _done(rung, checkpoint.describe(self.folder, name_of(rung)))

    def keep(self, trainer: Trainer, rung: int, metrics: dict[str, float]) -> RungDone:
        """Write the checkpoint of a rung's end. Raises DiskFull when there is no room for it; nothing of it is left then."""
        stored = self._save(trainer, name_of(rung), rung, metrics)
        self.folder.delete(STOPPED)
        return _done(rung, stored)

    def keep_stopped(self, trainer: Trainer, rung: int) -> None:
        """Write where a stopped run stands. Raises DiskFull; it is taken up from its last rung then."""
        self._save(trainer, STOPPED, rung)

    def _save(
        self, trainer: Trainer, name: str, rung: int, metrics: dict[str, float] | None = None
    ) -> Stored:
        what = f"checkpoint {self.folder.shown(name)!r} could not be written"
        return patiently(lambda: trainer.save(self.folder, name, rung, metrics), what)


def name_of(rung: int) -> str:
    """The name of a rung's checkpoint in its run's folder."""
    return f"rung-{rung}{SUFFIX}"


def _done(rung: int, stored: Stored) -> RungDone:
    return RungDone(
        rung=rung,
        tokens=stored.header.tokens,
        metrics=stored.header.metrics,
        checkpoint=stored.name,
        sha256=stored.sha256,
        bytes=stored.bytes,
    )
