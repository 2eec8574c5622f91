"""What a Ray worker asks of its cluster, beside its CPU threads: GPUs, custom resources, placement, an environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from crossbreed.core.genome import parse

Amount = Annotated[float, Field(gt=0)]


class Resources(BaseModel):
    """The file of ``--ray-resources``; everything may be left out.

    gpus:        GPUs of each worker: 0, a fraction below 1, or a whole number; default: an equal share of those there are.
    gpu_memory_bytes: memory of the smallest GPU of the cluster; asked for where trials are packed by it (``search.per_gpu``).
    memory_bytes: host memory that Ray sets aside for each worker; it places no more workers on a node than fit.
    resources:   custom resources of each worker by name, such as ``{"accelerator_type:A100": 0.01}``.
    labels:      labels of the nodes that may run workers, such as ``{"ray.io/market-type": on-demand}``.
    placement:   ``pack`` fills a node before the next, ``spread`` puts workers on all nodes.
    runtime_env: Ray's runtime environment: ``pip``, ``env_vars``, ``working_dir`` and so on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpus: float | None = Field(default=None, ge=0)
    gpu_memory_bytes: int | None = Field(default=None, gt=0)
    memory_bytes: int | None = Field(default=None, gt=0)
    resources: dict[str, Amount] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    placement: Literal["pack", "spread"] = "pack"
    runtime_env: dict[str, Any] = Field(default_factory=dict)

    @field_validator("gpus")
    @classmethod
    def _is_a_share(cls, gpus: float | None) -> float | None:
        if gpus is not None and gpus > 1 and gpus != int(gpus):
            raise ValueError(
                "GPUs are shared below 1 and whole above it: one worker is never given parts of two"
            )
        return gpus

    @staticmethod
    def load(path: Path) -> Resources:
        """Read a YAML or JSON file. Raises ConfigError with the key and the rule."""
        from crossbreed.core.search.study_file import read_mapping

        return parse(Resources, read_mapping(path, "resources file"), str(path))

    def options(self, gpus: float | None = None) -> dict[str, Any]:
        """As options of a Ray actor, which may have another share of the GPUs."""
        found: dict[str, Any] = {"num_gpus": (self.gpus or 0.0) if gpus is None else gpus}
        if self.memory_bytes is not None:
            found["memory"] = self.memory_bytes
        if self.resources:
            found["resources"] = dict(self.resources)
        if self.labels:
            found["label_selector"] = dict(self.labels)
        if self.placement == "spread":
            found["scheduling_strategy"] = "SPREAD"
        return found

    def shown(self, threads: int) -> str:
        """For messages: ``2 CPU, 0.5 GPU, 1 A100``."""
        parts = [f"{threads} CPU"]
        if self.gpus:
            parts.append(f"{self.gpus:g} GPU")
        if self.memory_bytes is not None:
            parts.append(f"{self.memory_bytes} bytes of memory")
        parts += [f"{amount:g} {name}" for name, amount in self.resources.items()]
        parts += [f"label {name}={value}" for name, value in self.labels.items()]
        return ", ".join(parts)
