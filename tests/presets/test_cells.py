"""Every router at every site of every body: builds, trains, is causal in evaluation, and splits agree."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from crossbreed.core.contracts.task import IGNORE, Batch
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, Block, Router, Stage, Sublayer
from crossbreed.core.host import Registry
from crossbreed.core.ledger import Shape
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.presets.cells import with_router
from tests.support.miniatures import BODIES, V
from tests.support.passes import loud_model, pieces, whole_pass

ROUTERS = {
    "entropy_gate": {"mu_init": 0.6, "sigma_init": 0.1, "kappa": 0.0, "warm_start": False},
    "segment_random": {"segment": 4, "probability": 0.5},
    "learned": {"segment": 4, "target_rate": 0.5},
}
SITES = ("gate", "mode", "halt")
T = 19


def cell(router: str, site: str, body: str) -> Architecture:
    # At mode the entropy gate decides by segments, of 16 tokens unless told otherwise.
    short = {"segment": 4} if site == "mode" else {}
    return with_router(BODIES[body], site, Router(name=router, params=ROUTERS[router] | short))  # type: ignore[arg-type]


CELLS = pytest.mark.parametrize(("router", "site", "body"), list(product(ROUTERS, SITES, BODIES)))


@pytest.fixture(scope="module")
def tokens() -> torch.Tensor:
    return torch.randint(0, V, (3, T), generator=torch.Generator().manual_seed(1))


def settled(registry: Registry, architecture: Architecture, tokens: torch.Tensor) -> LanguageModel:
    """A model whose entropy thresholds lie at the median of what each site sees first, so that both choices are taken."""
    model = loud_model(architecture, registry)

    def settle(site: torch.nn.Module, args: tuple) -> None:
        h_BTD, context = args[:2]
        if hasattr(site.router, "mu") and site.kind != "mode" and site not in seen:
            seen.add(site)
            site.router.mu.copy_(context.entropy(h_BTD).median())

    seen: set[torch.nn.Module] = set()
    hooks = [site.register_forward_pre_hook(settle) for site in model.routed_sites()]
    h_BTD, _ = whole_pass(model, tokens)
    for hook in hooks:
        hook.remove()
    if model.mode is not None and hasattr(model.mode.router, "mu"):
        model.mode.router.mu.copy_(model.context(tokens).entropy(h_BTD).median())
    return model


def standing(architecture: Architecture) -> dict[str, set[str]]:
    """Names of the routers at each kind of site."""
    found: dict[str, set[str]] = {site: set() for site in SITES}
    if architecture.mode_router is not None:
        found["mode"].add(architecture.mode_router.name)
    for stage in architecture.stages:
        if stage.halt is not None:
            found["halt"].add(stage.halt.name)
        found["gate"] |= {block.gate.name for block in stage.blocks if block.gate is not None}
    return found


@CELLS
def test_the_router_stands_at_its_site_and_other_sites_keep_what_the_body_publishes(
    registry: Registry, router: str, site: str, body: str
) -> None:
    here, published = standing(cell(router, site, body)), standing(BODIES[body])
    assert here == {**published, site: {router}}
    costs = registry.factory("cost", "analytic")(None, registry)
    rates = costs.estimate(registry.canonical(cell(router, site, body)), Shape(1, T)).rates
    assert any(name.rpartition(".")[2] == site for name in rates)


@CELLS
def test_it_trains_three_steps(
    registry: Registry, tokens: torch.Tensor, router: str, site: str, body: str
) -> None:
    model = LanguageModel(cell(router, site, body), registry)
    optimiser = torch.optim.AdamW(model.parameter_groups(0.1), lr=1e-2)
    labels_BT = tokens.roll(-1, 1)
    labels_BT[:, -1] = IGNORE
    losses = []
    for step in range(3):
        context = model.context(tokens, phase="train", step=step, labels_BT=labels_BT)
        loss = model.loss(Batch(tokens, labels_BT), context)
        optimiser.zero_grad()
        loss.objective.backward()
        optimiser.step()
        model.after_step()
        losses.append(float(loss.loss_nats / loss.scored))
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert losses[2] < losses[0]


@CELLS
def test_no_output_depends_on_a_later_token(
    registry: Registry, tokens: torch.Tensor, router: str, site: str, body: str
) -> None:
    model = settled(registry, cell(router, site, body), tokens)
    expected, _ = whole_pass(model, tokens)
    for prefix in (1, 7, 16):
        changed = tokens.clone()
        changed[:, prefix:] = (changed[:, prefix:] + 5) % V
        actual, _ = whole_pass(model, changed)
        torch.testing.assert_close(actual[:, :prefix], expected[:, :prefix], rtol=0, atol=1e-11)
        assert (actual[:, prefix:] - expected[:, prefix:]).abs().max() > 1e-3


@CELLS
def test_splits_agree_with_the_same_decisions(
    registry: Registry, tokens: torch.Tensor, router: str, site: str, body: str
) -> None:
    model = settled(registry, cell(router, site, body), tokens)
    expected, taken = whole_pass(model, tokens)
    mine = torch.cat([c.flatten() for name, c in taken.items() if name.rpartition(".")[2] == site])
    assert set(mine.tolist()) == {0, 1}, "one choice alone would prove nothing"
    for sizes in ([5, 1, 1, 1, 1, 1, 1, 8], [3, 1, 12, 3]):
        with torch.no_grad():
            actual, _ = pieces(model, tokens, sizes, taken)
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-9)


def test_a_body_without_a_sequence_mixer_is_refused() -> None:
    block = Block(sublayers=(Sublayer(mixer="swiglu"),))
    body = Architecture(vocab=V, d_model=16, stages=(Stage(blocks=(block,)),))
    with pytest.raises(ConfigError, match="a router at halt needs a body with a sequence mixer"):
        with_router(body, "halt", Router(name="learned"))


def test_under_a_mode_router_dreamer_keeps_its_light_projections() -> None:
    (stage,) = cell("learned", "mode", "dreamer").stages
    mixers = {sub.mixer: sub.params for sub in stage.blocks[0].sublayers}
    assert mixers.keys() == {"depth_attention", "multi_mixer", "experts"}
    assert mixers["multi_mixer"]["readers"] == ["gated_deltanet", "attention"]
    assert mixers["multi_mixer"]["projection_experts"] == mixers["depth_attention"]["projection_experts"]
