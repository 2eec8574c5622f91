"""Whole forward passes that also say what was decided."""

from __future__ import annotations

import torch

from crossbreed.core.contracts.context import Recorder


@torch.no_grad()
def whole_pass(model, tokens_BT, **context):
    """(h_BTD, {site: choice_BT}) of one pass, with every decision as it was taken."""
    taken = {}
    hooks = [
        site.register_forward_hook(
            lambda m, args, out: taken.setdefault(args[1].site, []).append(out[0].choice_BT)
        )
        for site in model.routed_sites()
    ]
    h_BTD, _ = model(tokens_BT, model.context(tokens_BT, recorder=Recorder(), **context))
    for hook in hooks:
        hook.remove()
    # A feedback router decides piece by piece.
    return h_BTD, {site: torch.cat(choices, dim=1) for site, choices in taken.items()}
