"""The oracle fires exactly where the task scores a position, and says so where it cannot know."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.contracts.router import RouterBuild
from crossbreed.core.contracts.task import IGNORE
from crossbreed.core.errors import ConfigError
from crossbreed.core.ledger import Cost, Shape
from crossbreed.plugins.routers.configs import OracleConfig
from crossbreed.plugins.routers.oracle import Oracle
from tests.plugins.routers.pieces import context

LABELS = torch.tensor([[IGNORE, 4, IGNORE, 0, 7], [1, IGNORE, IGNORE, IGNORE, 2]])


def router(choices=2, **settings):
    return Oracle(
        OracleConfig(**settings), RouterBuild("0.0.gate", "gate", d_model=3, vocab=9, choices=choices)
    )


@pytest.mark.parametrize("phase", ["train", "prefill"])
@pytest.mark.parametrize("choices", [2, 3])
def test_scored_positions_take_the_most_expensive_choice(choices, phase):
    decision, _ = router(choices)(torch.randn(2, 5, 3), context(2, 5, phase=phase, labels_BT=LABELS), None)
    assert torch.equal(decision.choice_BT, (choices - 1) * (LABELS >= 0).long())


def test_what_a_label_says_is_not_looked_at():
    other = torch.where(LABELS == IGNORE, IGNORE, (LABELS + 3) % 9)
    a, b = (router()(torch.randn(2, 5, 3), context(2, 5, labels_BT=x), None)[0] for x in (LABELS, other))
    assert torch.equal(a.choice_BT, b.choice_BT)


def test_without_labels_it_refuses_in_a_sentence():
    with pytest.raises(ConfigError, match=r"router 'oracle' at '0\.0\.0\.gate' looks at the labels"):
        router()(torch.randn(1, 5, 3), context(1, 5), None)


def test_it_costs_nothing_and_states_its_nominal_rate():
    r = router(rate=0.25)
    assert Oracle.cost(r.config, r.build, Shape(tokens=8)) == Cost()
    assert Oracle.rates(r.config, "gate", 2) == (0.75, 0.25)
    assert Oracle.rates(r.config, "mode", 4) == (0.75, 0.0, 0.0, 0.25)
