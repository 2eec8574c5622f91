"""A decoded token that is to be recorded computes what any decoded token computes, without a look from the host."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.errors import ConfigError
from tests.support.genomes import ATTENTION, GENOMES, architecture, block
from tests.support.passes import whole_pass

PROMPT = 5


def decoded(model, tokens, taken, *, prompt: int = PROMPT, slots: int = 19):
    """Outputs after the prompt, token by token as if each were recorded; ``taken``: forced choices."""
    rows = len(tokens)
    state, outputs = model.init_state(rows, slots=slots), []
    for start, stop in [(0, prompt), *((t, t + 1) for t in range(prompt, tokens.shape[1]))]:
        if start == stop:
            continue
        cut = {site: choice[:, start:stop] for site, choice in taken.items()}
        phase = "decode" if start >= prompt else "prefill"
        context = model.context(tokens[:, start:stop], phase=phase, state=state, forced=cut)
        h_BTD, state = model(tokens[:, start:stop], context.at(recorded=phase == "decode"), state)
        outputs.append(h_BTD)
    return torch.cat(outputs, 1)


@pytest.mark.parametrize("prompt", [0, PROMPT])
@pytest.mark.parametrize("name", GENOMES)
@torch.no_grad()
def test_tokens_to_be_recorded_equal_the_whole_pass(build, tokens, name, prompt):
    model = build(GENOMES[name])
    expected, taken = whole_pass(model, tokens)
    torch.testing.assert_close(decoded(model, tokens, taken, prompt=prompt), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", GENOMES)
@torch.no_grad()
def test_their_own_decisions_are_those_of_any_decoded_token(build, tokens, name):
    model = build(GENOMES[name])
    expected, _ = whole_pass(model, tokens)
    torch.testing.assert_close(decoded(model, tokens, {}), expected, rtol=0, atol=1e-8)


@torch.no_grad()
def test_more_tokens_than_slots_are_refused(build, tokens):
    model = build(architecture({"blocks": [block(ATTENTION)]}))
    with pytest.raises(ConfigError, match="token is number 13 of its row, but the cache has 12 slots"):
        decoded(model, tokens, {}, slots=12)
