"""Reading through a model's own state: beside other texts of any length, in pieces, and without changing the model."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.errors import ConfigError, MissingCapability
from crossbreed.core.genome import Router
from crossbreed.core.lab.operating_points import OWN, OperatingPoint, Stretch
from crossbreed.core.lab.reading import Reading, check_room, reading
from crossbreed.presets.cells import with_router
from tests.support.miniatures import BODIES, V
from tests.support.passes import loud_model

HALTED = with_router(
    BODIES["dreamer"], "halt", Router(name="segment_random", params={"segment": 3, "probability": 0.5})
)
MODELS = {**BODIES, "halted": HALTED}


@pytest.fixture(scope="module")
def models(registry):
    return {name: loud_model(architecture, registry) for name, architecture in MODELS.items()}


def some_texts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(V, (n,), generator=generator).tolist() for n in (9, 5, 12, 1)]


def logits_alone(model, text: list[int], row: int, point: OperatingPoint = OWN) -> torch.Tensor:
    """Logits after the whole text, by one forward pass without state."""
    tokens_BT = torch.tensor([text])
    forced = point.forced(model.sites(), Stretch(1, len(text), length=len(text)))
    h_BTD, _ = model(tokens_BT, model.context(tokens_BT, rows_B=torch.tensor([row]), forced=forced))
    return model.logits(h_BTD)[0, -1]


@pytest.mark.parametrize("name", MODELS)
def test_texts_of_any_lengths_beside_each_other_read_as_each_alone(models, name: str) -> None:
    model, texts = models[name], some_texts()
    with reading(model, "float32"):
        together = Reading(model, [len(t) + 3 for t in texts], rows=[4, 7, 1, 2])
        found = [together.last(texts)]
        grown = [list(text) for text in texts]
        for step in range(3):
            for b, text in enumerate(grown):
                text.append((3 * step + b) % V)
            found.append(together.last([text[-1:] for text in grown]))
        for b, row in enumerate((4, 7, 1, 2)):
            for step in range(4):
                alone = logits_alone(model, grown[b][: len(texts[b]) + step], row)
                torch.testing.assert_close(found[step][b], alone, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_a_text_that_gets_nothing_stays_where_it_is(models, name: str) -> None:
    model, (long, short, *_) = models[name], some_texts()
    with reading(model, "float32"):
        pair = Reading(model, [len(long), len(short)])
        pair.read([long[:4], short[:4]])
        pair.read([long[4:8], []])
        found = pair.last([long[8:], short[4:]])
        for b, text in enumerate((long, short)):
            torch.testing.assert_close(found[b], logits_alone(model, text, b), rtol=0, atol=1e-9)


def test_some_of_the_texts_can_be_gone_on_with(models) -> None:
    model, texts = models["oryx"], some_texts()
    with reading(model, "float32"):
        several = Reading(model, [len(t) + 1 for t in texts])
        several.read(texts)
        several.keep([2, 0])
        found = several.last([[3], [8]])
        for place, (b, token) in enumerate(((2, 3), (0, 8))):
            alone = logits_alone(model, [*texts[b], token], b)
            torch.testing.assert_close(found[place], alone, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["schedule:0=0,-2=1", "schedule:0=mamba2,50%=attention", "forced:0.4"])
def test_each_text_follows_a_point_from_where_it_stands(models, name: str) -> None:
    model, texts = models["oryx"], some_texts()[:3]
    point, lengths = OperatingPoint.parse(name), [len(t) for t in texts]
    with reading(model, "float32"):
        together = Reading(model, lengths, point=point)
        together.read([text[:3] for text in texts])
        found = together.last([text[3:] for text in texts])
        for b, text in enumerate(texts):
            alone = logits_alone(model, text, b, point)
            torch.testing.assert_close(found[b], alone, rtol=0, atol=1e-9)
        free = Reading(model, lengths).last(texts)
    assert not torch.allclose(found, free, atol=1e-3)


def test_reading_changes_no_parameter(models) -> None:
    model = models["amor"]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with reading(model, "float32"):
        text = Reading(model, [24])
        text.read([[1, 2, 3]])
        for token in range(20):
            text.read([[token]])
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_what_cannot_be_read_is_a_sentence(models, registry) -> None:
    oracle = with_router(BODIES["amor"], "gate", Router(name="oracle"))
    with pytest.raises(MissingCapability, match=r"router 'oracle' at 1\.0\.gate looks at the right answers"):
        Reading(loud_model(oracle, registry), [3])
    with pytest.raises(ConfigError, match="takes mode 'mamba3'; did you mean 'mamba2'"):
        Reading(models["oryx"], [9], point=OperatingPoint.parse("schedule:0=mamba3"))
    with pytest.raises(ConfigError, match="not inside a text of 3 tokens"):
        Reading(models["oryx"], [9, 3], point=OperatingPoint.parse("schedule:0=0,-4=1"))
    with pytest.raises(ConfigError, match="no mode router"):
        Reading(models["amor"], [9], point=OperatingPoint.parse("schedule:0=0"))
    with pytest.raises(ConfigError, match="texts of 10 tokens at most"):
        check_room(8, 3, 10, "the prompt")
    with pytest.raises(ConfigError, match="the prompt is empty"):
        check_room(0, 3, None, "the prompt")
    check_room(7, 3, 10, "the prompt")
