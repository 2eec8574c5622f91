"""Before training: the model that was built is the one that was certified."""

from __future__ import annotations

from typing import Any

import torch

from crossbreed.core.budget.certificate import Certificate
from crossbreed.core.errors import ConfigError
from crossbreed.core.ledger import Ledger
from crossbreed.core.model.language_model import LanguageModel

EQUAL = 1e-9
"""Relative difference of two sums of the same numbers in another order."""


def verify(model: LanguageModel, ledger: Ledger, certificate: dict[str, Any] | None, run: str) -> None:
    """Raise ConfigError unless the certificate's values are this worker's ledger's, and the ledger's weights and decode
    state those of the built model."""
    quantities = () if certificate is None else Certificate.model_validate(certificate).quantities
    for residual in quantities:
        found = ledger.quantity(residual.quantity)
        if abs(found - residual.value) > EQUAL * abs(residual.value):
            raise ConfigError(
                f"certificate of run {run} has {residual.quantity} {residual.value:g}, but this worker's ledger says {found:g}; "
                "both must come from the same plugins"
            )
    total = sum(p.numel() for p in model.parameters())
    embedding = model.embedding.weight.numel()
    if model.head is not None:
        embedding += model.head.weight.numel()
    built = {"parameters": total, "non_embedding_parameters": total - embedding}
    for quantity, count in built.items():
        if count != ledger.quantity(quantity):
            raise ConfigError(
                f"the built model has {quantity} {count}, but its ledger says {ledger.quantity(quantity):.0f}; "
                "the cost() of one of its parts does not count its weights"
            )
    state = _state_bytes(model, ledger)
    if state != ledger.state_bytes:
        raise ConfigError(
            f"the decode state of the built model takes {state} bytes after {ledger.tokens} tokens in {ledger.dtype}, but its "
            f"ledger says {ledger.state_bytes:.0f}; the cost() of one of its parts does not count its state"
        )


def _state_bytes(model: LanguageModel, ledger: Ledger) -> int:
    """Mixer state of one sequence: with all its room reserved, on no device; grown by a pass where that is not it."""
    dtype = getattr(torch, ledger.dtype)
    reserved = model.init_state(1, slots=ledger.tokens, dtype=dtype, device="meta").mixer_bytes()
    if reserved == ledger.state_bytes:
        return reserved
    # Room is a hint that a mixer may ignore; then only tokens tell.
    tokens_BT = torch.zeros(1, ledger.tokens, dtype=torch.int64, device=model.embedding.weight.device)
    labels_BT = tokens_BT if model.needs_labels else None
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            context = model.context(tokens_BT, phase="prefill", labels_BT=labels_BT)
            _, state = model(tokens_BT, context, model.init_state(1, dtype=dtype))
    finally:
        model.train(training)
    return 0 if state is None else state.mixer_bytes()
