"""One run of an arm: trained, judged at its operating points, looked at. Plain data in, plain data out."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from crossbreed.claims.measures import OWN, compact
from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.matcher import certify
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.errors import Diverged, NotFinite, OutOfMemory
from crossbreed.core.host import Host
from crossbreed.core.lab import analytics
from crossbreed.core.lab.environment import device_name
from crossbreed.core.lab.evaluate import evaluate
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.operating_points import OperatingPoint
from crossbreed.core.lab.train import Trainer
from crossbreed.core.lab.trial import trainer_of

LEDGER = ("decode_flops_per_token", "prefill_flops_per_token", "training_flops_per_token")


@dataclass(frozen=True)
class Order:
    """A run to be made. ``head``: what identifies it, kept as its data begins; ``points``: beside its own decisions, by the names they are kept under."""

    head: Mapping[str, Any]
    points: dict[str, str]
    architecture: dict[str, Any]
    certificate: dict[str, Any]
    budget: dict[str, Any]
    task: dict[str, Any]
    recipe: dict[str, Any]
    device: str


def make(order: Order) -> dict[str, Any]:
    """Train and judge. A run that diverges, or does not fit into memory, ends with that state and its cause, and no numbers."""
    torch.set_num_threads(1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="crossbreed-claims-") as folder:
        job = Job(
            study="claims",
            number=0,
            seed=order.head["seed"],
            lease="claims",
            architecture=order.architecture,
            task=order.task,
            recipe={**order.recipe, "lr": order.head["lr"]},
            artefacts=folder,
            budget=order.budget,
            certificate=order.certificate,
            device=order.device,
            memory=False,
        )
        trainer = trainer_of(job)
    found: dict[str, Any] = {"state": "done", "cause": "", "curve": [], "points": {}, "seen": {}}
    try:
        for tokens in trainer.recipe.rung_tokens():
            trainer.advance(tokens, lambda: False)
            found["points"][OWN] = _judged(trainer, OWN, order)
            found["curve"].append([trainer.tokens, found["points"][OWN]["score"]])
        for name, point in order.points.items():
            found["points"][name] = _judged(trainer, point, order)
        found["seen"] = _seen(trainer, order.head["seed"])
    except Diverged as error:
        found |= {"state": "diverged", "cause": str(error), "points": {}}
    except NotFinite as error:
        found |= {"state": "failed", "cause": str(error), "points": {}}
    except (MemoryError, OutOfMemory, torch.OutOfMemoryError) as error:
        found |= {"state": "out_of_memory", "cause": str(error).splitlines()[0], "points": {}}
    return {
        **order.head,
        **found,
        "tokens": trainer.tokens,
        "seconds": round(time.monotonic() - began, 2),
        "device": device_name(trainer.device),
    }


def _judged(trainer: Trainer, name: str, order: Order) -> dict[str, Any]:
    """The evaluation at one operating point, with the ledger and the certificate of the rates it had."""
    registry = Host.load()
    cost: CostModel = registry.factory("cost", "analytic")(registry.config("cost", "analytic", {}), registry)
    point = OperatingPoint.parse(name)
    model, task = point.model(trainer.model, registry), point.task(trainer.task)
    rows = max(1, trainer.recipe.eval_batch // (point.length or 1))
    found = evaluate(model, task, rows, point=point, seed=order.head["seed"], dtype=trainer.recipe.dtype)
    budget = Budget.read(order.budget)
    architecture = point.variant(trainer.model.architecture, registry)
    ledger = cost.estimate(architecture, budget.shape.as_shape(), rates=found.rates)
    certificate = certify(architecture, budget, cost, rates=found.rates)
    return {
        "score": found.score,
        "metrics": found.metrics,
        "rates": {site: [round(share, 6) for share in shares] for site, shares in found.rates.items()},
        "ledger": {quantity: getattr(ledger, quantity) for quantity in LEDGER},
        "classes": {
            c["class"]: [c["labelled"], c["right"], round(c["loss_nats"], 3)]
            for c in found.breakdown["classes"]
        },
        "residuals": {r.quantity: round(r.residual, 6) for r in certificate.quantities},
    }


def _seen(trainer: Trainer, seed: int) -> dict[str, Any]:
    subject = analytics.Subject(
        trainer.model,
        trainer.task,
        analytics.few_rows(trainer.task),
        batch=trainer.recipe.eval_batch,
        seed=seed,
        dtype=trainer.recipe.dtype,
    )
    return compact(analytics.analyse(subject).kinds)
