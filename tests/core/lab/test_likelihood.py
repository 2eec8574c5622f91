"""Likelihoods and answers in batches: what a whole pass over each text alone gives."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Router
from crossbreed.core.lab.generate import Sampling, complete, generate
from crossbreed.core.lab.likelihood import Request, batches, log_likelihoods
from crossbreed.core.lab.operating_points import OWN, OperatingPoint, Stretch
from crossbreed.presets.cells import with_router
from tests.support.miniatures import BODIES, V
from tests.support.passes import loud_model

HALT = Router(name="segment_random", params={"segment": 3, "probability": 0.5})
MODELS = {
    name: body.model_copy(update={"tie_embeddings": False})
    for name, body in {**BODIES, "halted": with_router(BODIES["dreamer"], "halt", HALT)}.items()
}
SCHEDULE = OperatingPoint.parse("schedule:0=0,-3=1")


@pytest.fixture(scope="module")
def models(registry):
    return {name: loud_model(architecture, registry) for name, architecture in MODELS.items()}


def some_requests() -> list[Request]:
    generator = torch.Generator().manual_seed(2)
    sizes = [(4, 3), (1, 6), (9, 1), (2, 2), (5, 8), (4, 3), (3, 1)]
    return [Request(*(torch.randint(V, (n,), generator=generator).tolist() for n in size)) for size in sizes]


def by_a_whole_pass(model, request: Request, point: OperatingPoint = OWN) -> tuple[float, bool]:
    text_BT = torch.tensor([[*request.context, *request.continuation]])
    T = text_BT.shape[1]
    forced = point.forced(model.sites(), Stretch(1, T, length=T))
    with torch.no_grad():
        h_BTD, _ = model(text_BT, model.context(text_BT, forced=forced))
        log_TV = model.logits(h_BTD)[0].log_softmax(-1)
    first = len(request.context) - 1
    judged_TV, labels_T = log_TV[first:-1], text_BT[0, first + 1 :]
    nats = float(judged_TV.gather(1, labels_T[:, None]).sum())
    return nats, bool((judged_TV.argmax(-1) == labels_T).all())


@pytest.mark.parametrize("name", MODELS)
def test_every_request_has_the_likelihood_of_a_whole_pass_in_any_batch(models, name: str) -> None:
    model, requests = models[name], some_requests()
    # One that the model would say itself.
    requests.append(Request([3, 1, 4], generate(model, [3, 1, 4], 4).new))
    wanted = [by_a_whole_pass(model, request) for request in requests]
    assert [greedy for _, greedy in wanted].count(True) >= 1
    for size in (1, 3, 32):
        found = log_likelihoods(model, requests, batch=size)
        assert [f.nats for f in found] == pytest.approx([nats for nats, _ in wanted], abs=1e-9)
        assert [f.greedy for f in found] == [greedy for _, greedy in wanted]


def test_a_schedule_takes_a_text_to_be_context_and_continuation(models) -> None:
    model, requests = models["oryx"], [r for r in some_requests() if len(r.context) + len(r.continuation) > 3]
    found = log_likelihoods(model, requests, batch=4, point=SCHEDULE)
    wanted = [by_a_whole_pass(model, request, SCHEDULE)[0] for request in requests]
    assert [f.nats for f in found] == pytest.approx(wanted, abs=1e-9)
    assert [f.nats for f in log_likelihoods(model, requests, batch=4)] != pytest.approx(wanted, abs=1e-3)


def test_nothing_to_judge_is_certain_and_nothing_to_begin_with_is_refused(models) -> None:
    found = log_likelihoods(models["amor"], [Request([1, 2], []), Request([1], [5])], batch=2)
    assert found[0] == (0.0, True)
    assert found[1].nats < 0
    assert log_likelihoods(models["amor"], [], batch=2) == []
    with pytest.raises(ConfigError, match="a context is empty"):
        log_likelihoods(models["amor"], [Request([], [1])], batch=2)


def test_progress_counts_what_is_done(models) -> None:
    seen: list[int] = []
    log_likelihoods(models["amor"], some_requests(), batch=3, progress=seen.append)
    assert seen == [3, 6, 7]


def test_batches_are_of_like_lengths_and_hold_each_text_once() -> None:
    assert list(batches([2, 9, 2, 5], 3)) == [[1, 3, 0], [2]]
    assert list(batches([], 3)) == []


@pytest.mark.parametrize("name", MODELS)
def test_prompts_in_batches_are_gone_on_with_as_each_alone(models, name: str) -> None:
    model, prompts = models[name], [list(r.context) for r in some_requests()]
    wanted = [list(generate(model, prompt, 7).new) for prompt in prompts]
    assert len({tuple(w) for w in wanted}) > 2
    for size in (1, 3, 32):
        assert complete(model, prompts, 7, batch=size) == wanted


def test_each_answer_ends_when_it_is_enough(models) -> None:
    model, prompts = models["halted"], [list(r.context) for r in some_requests()]
    whole = complete(model, prompts, 9, batch=4)
    stop = whole[0][3]
    cut = complete(model, prompts, 9, batch=4, until=lambda found: found[-1] == stop)
    for all_, found in zip(whole, cut, strict=True):
        assert found == (all_[: all_.index(stop) + 1] if stop in all_ else all_)
    assert any(len(found) < 9 for found in cut)


def test_draws_belong_to_the_prompt_and_not_to_the_batch(models) -> None:
    model, prompts = models["amor"], [[3, 1]] * 5
    warm = Sampling(temperature=4.0, seed=11)
    alone = complete(model, prompts, 8, batch=1, sampling=warm)
    assert complete(model, prompts, 8, batch=5, sampling=warm) == alone
    assert len({tuple(found) for found in alone}) == 5


def test_no_prompt_may_be_empty(models) -> None:
    with pytest.raises(ConfigError, match="each and that must be at least 1"):
        complete(models["amor"], [[1], []], 3, batch=2)
    with pytest.raises(ConfigError, match="by 0 tokens"):
        complete(models["amor"], [[1]], 0, batch=2)
