"""Where trials run: in this process, or on a pool of Ray workers. Both stream records to the driver."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.search.executors.base import Executor, Spool
from crossbreed.core.search.executors.resources import Resources
from crossbreed.core.search.packing import Packing

KINDS = ("inline", "ray")


@dataclass(frozen=True)
class Place:
    """Where a search runs: the executor's kind, how many workers, on which device, with how many threads each; ``devices`` for every
    trial, each with its threads.

    ``resources``: what each worker asks of a Ray cluster beside its threads, its share of the GPUs filled in; where
    trials are packed (``packing``), the least share, and a job says which one it needs.
    """

    kind: str
    workers: int
    device: str
    threads: int
    resources: Resources = field(default_factory=Resources)
    address: str | None = None
    packing: Packing | None = None
    devices: int = 1

    def check_artefacts(self, artefacts: Artefacts, *, joined: bool = False) -> None:
        """Raise ConfigError where its workers, or a driver and a helper that has ``joined`` it, cannot share a place of artefacts,
        and ArtefactsLost where that cannot be used from here."""
        if not artefacts.shared and (sharing := self._sharing(joined)):
            raise ConfigError(
                f"artefacts {artefacts.place!r} are in the memory of one process, which {sharing} cannot share; name a folder or a store "
                "that all of them reach, or use --executor inline with one device for each trial."
            )
        artefacts.check()

    def _sharing(self, joined: bool) -> str:
        """Which processes use the artefacts, if there are several."""
        if joined:
            return "a helper and its driver"
        if self.kind != "inline":
            return f"the workers of executor {self.kind!r}"
        return "the processes of one trial" if self.devices > 1 else ""

    def starter(self) -> Callable[[Spool], Executor]:
        """What starts the executor, once the driver holds the study."""

        def start(spool: Spool) -> Executor:
            if self.kind == "inline":
                from crossbreed.core.search.executors.inline import InlineExecutor

                return InlineExecutor()
            from crossbreed.core.search.executors.ray import RayExecutor

            threads = self.threads * self.devices
            return RayExecutor(self.workers, spool, self.device, threads, self.resources, self.address)

        return start


def choose(
    kind: str = "ray",
    *,
    workers: int | None = None,
    threads: int = 1,
    device: str | None = None,
    address: str | None = None,
    resources: Resources | None = None,
    per_gpu: int = 1,
    devices: int = 1,
) -> Place:
    """Fill in what was left open: the GPU if there is one, and ``per_gpu`` workers per GPU or one per ``threads`` CPU cores; with
    several ``devices`` for every trial, one worker for as many of them.

    On CPUs ``per_gpu`` says nothing. Raises UnknownName for another kind and ConfigError for several workers inline, for an address or resources without Ray,
    for a share of GPUs on a CPU, and for workers with more or fewer GPUs than a trial's.
    """
    import torch

    if kind not in KINDS:
        raise UnknownName("executor", kind, KINDS)
    if kind == "inline" and (workers or 1) > 1:
        raise ConfigError(f"executor 'inline' has 1 worker, not {workers}; use --executor ray for more.")
    if kind == "inline" and address is not None:
        raise ConfigError(f"executor 'inline' cannot use the Ray cluster {address!r}; use --executor ray.")
    if kind == "inline" and resources is not None:
        raise ConfigError("executor 'inline' asks no cluster for resources; use --executor ray.")
    gpus = torch.cuda.device_count()
    device = device or ("cuda" if gpus else "cpu")
    on_gpu = device.startswith("cuda")
    if kind == "inline":
        workers = 1
    elif workers is None:
        workers = (
            max(1, gpus // devices) * per_gpu if on_gpu else max(1, available_cpus() // (threads * devices))
        )
    resources = resources or Resources()
    if not on_gpu and resources.gpus:
        raise ConfigError(
            f"resources.gpus is {resources.gpus:g}, but workers run on device {device!r}; add --device cuda."
        )
    if on_gpu and devices > 1:
        _check_gpus(devices, workers, gpus if address is None else None, resources)
    if resources.gpus is None:
        # How many GPUs this machine has says nothing about a cluster's nodes.
        share = 1.0 / per_gpu if address is not None else gpu_share(gpus, workers)
        share = 0.0 if not on_gpu else share if devices == 1 else float(devices)
        resources = resources.model_copy(update={"gpus": share})
    packing = None
    if per_gpu > 1 and on_gpu and kind == "ray":
        packing = Packing(per_gpu, _gpu_memory(resources, gpus, address))
    return Place(kind, workers, device, threads, resources, address, packing, devices)


def _check_gpus(devices: int, workers: int, gpus: int | None, resources: Resources) -> None:
    """Raise ConfigError unless every worker has as many GPUs as a trial takes, of the ``gpus`` of this machine if it is its own."""
    if resources.gpus is not None and resources.gpus != devices:
        raise ConfigError(
            f"resources.gpus is {resources.gpus:g}, but search.devices_per_trial is {devices}; a worker has the GPUs of one trial, so "
            "leave resources.gpus out."
        )
    if gpus is not None and workers * devices > gpus:
        raise ConfigError(
            f"search.devices_per_trial is {devices}, and {workers} worker{'s' if workers > 1 else ''} would take {workers * devices} "
            f"GPUs; this machine has {gpus}."
        )


def _gpu_memory(resources: Resources, gpus: int, address: str | None) -> int:
    """Bytes of the smallest GPU that workers may get: as given, or as this machine's are when they run here."""
    import torch

    if resources.gpu_memory_bytes is not None:
        return resources.gpu_memory_bytes
    if address is not None or not gpus:
        raise ConfigError(
            "search.per_gpu shares GPUs by their memory, which nobody has said of this cluster's; add gpu_memory_bytes to the "
            "file of --ray-resources."
        )
    return min(torch.cuda.get_device_properties(i).total_memory for i in range(gpus))


def available_cpus() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpu_share(gpus: int, workers: int) -> float:
    """GPUs for each of ``workers``: whole ones, or an equal fraction of one.

    Ray takes fractions only below 1, and never makes one worker's share out of two GPUs.
    """
    if gpus == 0:
        return 0.0
    if workers <= gpus:
        return float(gpus // workers)
    return 1.0 / -(-workers // gpus)
