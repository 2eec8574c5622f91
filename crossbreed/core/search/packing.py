"""Packing: how much of a GPU a trial is given, by the memory that its training is predicted to need.

Only training shares a device. What is timed has it alone (see ``Driver._to_time``).
"""

from __future__ import annotations

from dataclasses import dataclass

from crossbreed.core import genome
from crossbreed.core.genome import Architecture
from crossbreed.core.ledger import Shape
from crossbreed.core.search.study_setting import StudySetting
from crossbreed.storage.rows import TrialRow

MARGIN = 1.25
"""Times the predicted peak: what the allocator reserved was at most 12% more where models are large (docs/training-peak.md)."""
PROCESS_BYTES = 2 * 1024**3
"""Beside it: two CUDA contexts, the worker's and that of the process which measures the peak, and libraries' workspaces."""


@dataclass(frozen=True)
class Packing:
    """At most ``most`` trials share a GPU of ``device_bytes``."""

    most: int
    device_bytes: int

    def share(self, peak_bytes: float) -> float:
        """The share of a GPU for a training step of that predicted peak: the smallest of 1, 1/2, 1/3, ... 1/``most`` that
        holds it. A trial that none holds gets a whole GPU, and ends out of memory there if the prediction is right."""
        need = (MARGIN * peak_bytes + PROCESS_BYTES) / self.device_bytes
        return 1.0 / max(1, min(self.most, int(1 / need)))

    def of(self, trial: TrialRow, setting: StudySetting) -> float:
        """The share for a candidate under its study's recipe; the ledger stored with it is of the budget's batch."""
        train = setting.file.train
        architecture = genome.parse(Architecture, trial.genome, f"trial {trial.number}")
        shape = Shape(train.batch, setting.task.length, train.dtype)
        return self.share(setting.cost_model.estimate(architecture, shape).training_peak_bytes)
