"""Generation: each token follows from a full forward pass over those before it, and every decision is that pass's."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from crossbreed.core.errors import ConfigError, NotFinite
from crossbreed.core.genome import Router
from crossbreed.core.lab.generate import Sampling, generate
from crossbreed.core.lab.operating_points import OperatingPoint
from crossbreed.presets.cells import with_router
from tests.support.miniatures import BODIES
from tests.support.passes import loud_model, whole_pass

HALT = Router(name="segment_random", params={"segment": 1, "probability": 0.5})
# Tied embeddings would have loud models repeat their last token.
MODELS = {
    name: body.model_copy(update={"tie_embeddings": False})
    for name, body in {**BODIES, "halted": with_router(BODIES["dreamer"], "halt", HALT)}.items()
}
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5]


@pytest.fixture(scope="module")
def models(registry):
    return {name: loud_model(architecture, registry) for name, architecture in MODELS.items()}


@pytest.mark.parametrize("name", MODELS)
def test_the_likeliest_token_of_a_whole_pass_follows_with_its_probability_and_its_decisions(
    models, name: str
) -> None:
    model = models[name]
    found = generate(model, PROMPT, 6)
    text = [*found.prompt, *found.new]
    assert text[:9] == PROMPT
    assert found.read == len(text) - 1 == 14
    h_BTD, taken = whole_pass(model, torch.tensor([text[:-1]]))
    log_TV = model.logits(h_BTD)[0].log_softmax(-1)
    assert log_TV[8:].argmax(-1).tolist() == list(found.new)
    wanted = log_TV[8:].gather(1, torch.tensor(found.new)[:, None])[:, 0].tolist()
    assert found.log_probabilities == pytest.approx(wanted, abs=1e-9)
    assert {site.site for site in found.sites} == taken.keys()
    for site in found.sites:
        for choice, whole in zip(site.choices, taken[site.site][0].tolist(), strict=True):
            assert choice in (whole, None)


def test_what_was_halted_is_asked_no_more(models) -> None:
    halts = [site for site in generate(models["halted"], PROMPT, 8).sites if site.kind == "halt"]
    assert len(halts) == 2
    first, second = (site.choices for site in halts)
    assert {0, 1} == set(first)
    for before, after in zip(first, second, strict=True):
        assert (after is None) == (before == 0)
    shares = halts[1].shares()
    assert shares is not None
    assert sum(shares) == pytest.approx(1)


def test_a_schedule_counts_from_the_end_of_prompt_and_new_tokens(models) -> None:
    point = OperatingPoint.parse("schedule:0=mamba2,-3=attention")
    (mode,) = [site for site in generate(models["oryx"], PROMPT, 5, point=point).sites if site.kind == "mode"]
    assert mode.names == ("mamba2", "attention")
    # Of 14 tokens the last three are read by attention; the last of all is not read any more.
    assert mode.choices == (0,) * 11 + (1,) * 2
    assert mode.runs() == [(0, 0), (11, 1)]


def test_an_entropy_gate_shows_what_it_saw(models) -> None:
    gates = [site for site in generate(models["amor"], PROMPT, 4).sites if site.kind == "gate"]
    assert gates
    for site in gates:
        assert site.entropies is not None
        assert len(site.entropies) == 12
        assert all(0 <= h <= 1 for h in site.entropies)


def test_draws_follow_the_models_probabilities_at_that_temperature(models) -> None:
    model = models["oryx"]
    h_BTD, _ = whole_pass(model, torch.tensor([PROMPT]))
    logits_V = model.logits(h_BTD)[0, -1]
    p_V = (logits_V / 2).softmax(-1)
    count = 400
    seen = Counter(Sampling(2.0, None, seed).sampler()(logits_V) for seed in range(count))
    for token, p in enumerate(p_V.tolist()):
        assert abs(seen[token] / count - p) <= 5 * math.sqrt(p * (1 - p) / count) + 1e-9
    top = logits_V.topk(3).indices.tolist()
    drawn = {Sampling(50.0, 3, seed).sampler()(logits_V) for seed in range(60)}
    assert drawn == set(top)


def test_a_seed_draws_the_same_text_again_and_another_one_another(models) -> None:
    model = models["amor"]
    first, again, other = (
        generate(model, PROMPT, 12, sampling=Sampling(3.0, None, seed)).new for seed in (1, 1, 2)
    )
    assert first == again != other
    greedy = generate(model, PROMPT, 12).new
    assert generate(model, PROMPT, 12, sampling=Sampling(3.0, 1, 7)).new == greedy


def test_a_document_that_is_over_is_not_gone_on_with(models) -> None:
    whole = generate(models["halted"], PROMPT, 8)
    end = whole.new[3]
    found = generate(models["halted"], PROMPT, 8, ending=end)
    assert found.new == whole.new[: whole.new.index(end) + 1]
    assert len(found.log_probabilities) == len(found.new) < 8
    assert {len(site.choices) for site in found.sites} == {found.read}


def test_values_out_of_range_are_sentences(models) -> None:
    with pytest.raises(ConfigError, match="temperature is -1"):
        Sampling(temperature=-1)
    with pytest.raises(ConfigError, match="temperature is nan"):
        Sampling(temperature=math.nan)
    with pytest.raises(ConfigError, match="top_k is 0"):
        Sampling(top_k=0)
    for prompt, new in (([], 3), ([1], 0)):
        with pytest.raises(ConfigError, match="both must be at least 1"):
            generate(models["amor"], prompt, new)
    with pytest.raises(NotFinite, match="not all finite"):
        Sampling().sampler()(torch.tensor([0.0, math.nan]))
