"""Models whose weights are far from zero; whole forward passes that also say what was decided, and passes in pieces."""

from __future__ import annotations

import torch

from crossbreed.core.contracts.context import Recorder
from crossbreed.core.model.language_model import LanguageModel


def loud_model(architecture, parts, seed=0):
    """A float64 model with larger weights than usual, so that tokens differ and zero-initialised parts speak."""
    model = LanguageModel(architecture, parts, seed=seed).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.1 * noise)
        model.embedding.weight.mul_(8)
    return model.eval()


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


def pieces(model, tokens_BT, sizes, forced=None, **context):
    """The pass cut into pieces of the given sizes, one-token pieces as decode."""
    state = model.init_state(tokens_BT.shape[0])
    outputs, start = [], 0
    for size in sizes:
        piece = tokens_BT[:, start : start + size]
        cut = {site: choice[:, start : start + size] for site, choice in (forced or {}).items()}
        at = model.context(
            piece, phase="decode" if size == 1 else "prefill", state=state, forced=cut, **context
        )
        h_BTD, state = model(piece, at, state)
        outputs.append(h_BTD)
        start += size
    return torch.cat(outputs, dim=1), state
