"""Generation by steps that are recorded once: on a CPU by what they compute, on a CUDA device as they are replayed."""

from __future__ import annotations

import warnings
from collections import Counter

import pytest

from crossbreed.core.genome import Router
from crossbreed.core.lab import decoding
from crossbreed.core.lab.generate import Generated, Sampling, complete, generate
from crossbreed.core.lab.likelihood import Request, log_likelihoods
from crossbreed.core.lab.operating_points import OperatingPoint
from crossbreed.core.lab.steps import RecordedStep, StaticStep
from crossbreed.presets.cells import with_router
from tests.support.genomes import GENOMES
from tests.support.miniatures import BODIES
from tests.support.passes import loud_model

HALT = Router(name="segment_random", params={"segment": 1, "probability": 0.5})
MODELS = {
    name: body.model_copy(update={"tie_embeddings": False})
    for name, body in {
        **BODIES,
        "halted": with_router(BODIES["dreamer"], "halt", HALT),
        "feedback": GENOMES["oryx_entropy"],
        "learned": GENOMES["learned_gate"],
    }.items()
}
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5]
PROMPTS = [PROMPT, [1], [2, 7, 1], [8, 2, 8, 1, 8], [3], [1, 4]]


def enough(found: list[int]) -> bool:
    """Texts end apart, whatever they repeat."""
    return len(found) > 4 and sum(i * token for i, token in enumerate(found)) % 7 == 0


def counted(kind: type[StaticStep]) -> tuple[type[StaticStep], Counter[int]]:
    """The same steps, and how many tokens they read of how many texts."""
    seen: Counter[int] = Counter()

    class Counted(kind):
        def __call__(self, inputs_NB):
            seen[inputs_NB.shape[1]] += 1
            return super().__call__(inputs_NB)

    return Counted, seen


def both_ways(monkeypatch, device: str, kind: type[StaticStep], call):
    """(launched, by steps, how many tokens steps read of how many texts)"""
    monkeypatch.setattr(decoding, "LAUNCHED", 2)
    monkeypatch.delitem(decoding.STEPS, device, raising=False)
    launched = call()
    steps, seen = counted(kind)
    monkeypatch.setitem(decoding.STEPS, device, steps)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return launched, call(), seen


def same(got: Generated, wanted: Generated, tolerance: float) -> None:
    assert (got.prompt, got.new) == (wanted.prompt, wanted.new)
    assert got.log_probabilities == pytest.approx(wanted.log_probabilities, abs=tolerance)
    assert [site.site for site in got.sites] == [site.site for site in wanted.sites]
    for site, other in zip(got.sites, wanted.sites, strict=True):
        assert site.choices == other.choices
        assert site.entropies == (other.entropies and pytest.approx(other.entropies, abs=tolerance))


@pytest.mark.parametrize("temperature", [0.0, 3.0])
@pytest.mark.parametrize("name", MODELS)
def test_a_text_and_its_decisions_are_those_of_launched_tokens(registry, monkeypatch, name, temperature):
    model, sampling = loud_model(MODELS[name], registry), Sampling(temperature, seed=5)
    wanted, got, seen = both_ways(
        monkeypatch, "cpu", StaticStep, lambda: generate(model, PROMPT, 14, sampling=sampling)
    )
    same(got, wanted, 1e-9)
    # Of 14 tokens the last is not read, the first follows from the prompt, and two are launched.
    assert seen == {1: 11}


@pytest.mark.parametrize("name", ["schedule:0=mamba2,-5=attention", "forced:0.4"])
def test_a_schedule_is_followed_and_shown_in_steps_too(registry, monkeypatch, name):
    model, point = loud_model(MODELS["oryx"], registry), OperatingPoint.parse(name)
    wanted, got, seen = both_ways(
        monkeypatch, "cpu", StaticStep, lambda: generate(model, PROMPT, 14, point=point)
    )
    same(got, wanted, 1e-9)
    assert seen == {1: 11}
    (mode,) = [site for site in got.sites if site.kind == "mode"]
    assert len(mode.runs()) > 1


@pytest.mark.parametrize("temperature", [0.0, 3.0])
@pytest.mark.parametrize("name", ["feedback", "amor", "oryx"])
def test_texts_that_end_apart_are_those_of_launched_tokens(registry, monkeypatch, name, temperature):
    model, sampling = loud_model(MODELS[name], registry), Sampling(temperature, seed=5)
    point = OperatingPoint.parse("schedule:0=mamba2,-5=attention" if name == "oryx" else "own")

    def call():
        return complete(
            model,
            PROMPTS,
            13,
            batch=4,
            point=point,
            sampling=sampling,
            until=enough,
        )

    wanted, got, seen = both_ways(monkeypatch, "cpu", StaticStep, call)
    assert got == wanted
    lengths = [len(found) for found in got]
    assert len(set(lengths)) > 2
    # One step for each number of texts: of four, of those that are left, and of the last two.
    assert set(seen) <= {4, 2, 1}
    assert 4 in seen


def test_a_step_is_made_once_for_all_texts_of_a_number(registry, monkeypatch):
    made = []

    class Made(StaticStep):
        def __init__(self, *args, **settings):
            made.append(settings["rows_B"])
            super().__init__(*args, **settings)

    monkeypatch.setitem(decoding.STEPS, "cpu", Made)
    monkeypatch.setattr(decoding, "LAUNCHED", 2)
    complete(loud_model(MODELS["amor"], registry), PROMPTS * 2, 8, batch=4)
    assert [len(rows_B) for rows_B in made] == [4]


def test_few_tokens_are_launched(registry, monkeypatch):
    def refuse(*args, **settings):
        raise AssertionError("a step was made")

    monkeypatch.setitem(decoding.STEPS, "cpu", refuse)
    model = loud_model(MODELS["amor"], registry)
    generate(model, PROMPT, 1 + decoding.LAUNCHED)
    with pytest.raises(AssertionError, match="a step was made"):
        generate(model, PROMPT, 2 + decoding.LAUNCHED)


def test_what_cannot_be_recorded_says_so_once_and_is_launched(registry, monkeypatch):
    model = loud_model(MODELS["oryx"], registry)
    wanted = complete(model, PROMPTS, 9, batch=2)
    monkeypatch.setitem(decoding.STEPS, "cpu", RecordedStep)
    monkeypatch.setattr(decoding, "LAUNCHED", 2)
    with pytest.warns(RuntimeWarning, match="kernel by kernel: kernels are recorded on CUDA") as seen:
        assert complete(model, PROMPTS, 9, batch=2) == wanted
    assert len(seen) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
def test_replayed_texts_are_those_of_launched_tokens(registry, monkeypatch, name):
    model = loud_model(MODELS[name], registry).float().cuda()
    wanted, got, seen = both_ways(monkeypatch, "cuda", RecordedStep, lambda: generate(model, PROMPT, 24))
    same(got, wanted, 0.02)
    assert seen == {1: 21}
    wanted, got, seen = both_ways(
        monkeypatch, "cuda", RecordedStep, lambda: complete(model, PROMPTS, 13, batch=4, until=enough)
    )
    assert got == wanted
    assert 4 in seen


@pytest.mark.gpu
def test_replayed_texts_in_bfloat16_are_as_likely_as_they_say(registry, monkeypatch):
    """Where two tokens are about as likely rounding may choose; the text is judged by one launched pass over all of it."""
    model = loud_model(MODELS["oryx"], registry).float().cuda()
    steps, seen = counted(RecordedStep)
    monkeypatch.setitem(decoding.STEPS, "cuda", steps)
    monkeypatch.setattr(decoding, "LAUNCHED", 2)
    setting = {"point": OperatingPoint.parse("schedule:0=mamba2,-5=attention"), "dtype": "bfloat16"}
    text = generate(model, PROMPT, 24, **setting)
    assert seen == {1: 21}
    (judged,) = log_likelihoods(model, [Request(PROMPT, text.new)], batch=1, **setting)
    assert sum(text.log_probabilities) == pytest.approx(judged.nats, abs=1.0)
