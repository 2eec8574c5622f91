"""On a CUDA device every genome computes what it computes on a CPU, and trains under bf16 autocast."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.contracts.task import Batch
from crossbreed.core.model.language_model import LanguageModel
from tests.support.genomes import GENOMES
from tests.support.passes import whole_pass

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", GENOMES)
def test_a_device_computes_what_the_cpu_computes(build, tokens, name):
    model = build(GENOMES[name])
    expected, taken = whole_pass(model, tokens)
    model = model.to("cuda")
    forced = {site: choice.to("cuda") for site, choice in taken.items()}
    actual, _ = whole_pass(model, tokens.to("cuda"), forced=forced)
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", GENOMES)
def test_decoding_on_a_device_equals_the_whole_pass(build, tokens, name):
    model = build(GENOMES[name]).to("cuda")
    tokens = tokens.to("cuda")
    expected, taken = whole_pass(model, tokens)
    state = model.init_state(3)
    with torch.no_grad():
        for t in range(tokens.shape[1]):
            cut = {site: choice[:, t : t + 1] for site, choice in taken.items()}
            context = model.context(tokens[:, t : t + 1], phase="decode", state=state, forced=cut)
            h_BTD, state = model(tokens[:, t : t + 1], context, state)
            torch.testing.assert_close(h_BTD[:, 0], expected[:, t], rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", GENOMES)
def test_training_under_autocast_lowers_the_loss(builtins, name):
    model = LanguageModel(GENOMES[name], builtins, seed=0).to("cuda")
    optimiser = torch.optim.AdamW(model.parameter_groups(0.0), lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 23, (8, 65), generator=generator).to("cuda")
    labels = tokens.roll(-1, 1)
    losses = []
    for step in range(30):
        with torch.autocast("cuda", torch.bfloat16):
            context = model.context(tokens, phase="train", step=step, labels_BT=labels)
            loss = model.loss(Batch(tokens, labels), context)
        optimiser.zero_grad()
        loss.objective.backward()
        optimiser.step()
        model.after_step()
        losses.append(float(loss.loss_nats))
    assert all(torch.isfinite(torch.tensor(losses)))
    assert losses[-1] < 0.9 * losses[0]
