"""The analytic ledger of random legal genomes against models that are really built and run.

Every mixer, every router at each of its sites and every depth policy that is registered takes its turn among random others.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from crossbreed.core.genome import Architecture, Router
from crossbreed.core.host import Host
from crossbreed.core.ledger import Shape
from crossbreed.core.model.language_model import LanguageModel
from tests.support.forced import ROWS, Forced
from tests.support.random_genomes import genomes

REGISTRY = Host.load(third_party=False)
FEW, MANY = 2, 40
UNREAD = "'sees_current': False"
"""Depth attention that sees earlier depths only: nobody reads what the last depth writes, so those products have no
backward pass. The ledger charges it all the same."""
TOKENS = (2, 17, 63, 65)
NEAR = 0.01

WANTED = [{"mixer": name} for name in REGISTRY.names("mixer")]
WANTED += [{"depth": name} for name in REGISTRY.names("depth")]
WANTED += [
    {"router": (name, site)}
    for name in REGISTRY.names("router")
    for site in REGISTRY.descriptor("router", name).capabilities.sites
]
IDS = ["-".join(x) if isinstance(x, tuple) else x for wanted in WANTED for x in wanted.values()]


def examples(count: int) -> settings:
    """The same examples each time; how many is what sets the two depths of this proof apart."""
    checks = [HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=checks,
    )


def routers(genome: Architecture) -> list[Router]:
    found = [genome.mode_router, *(s.halt for s in genome.stages)]
    found += [block.gate for stage in genome.stages for block in stage.blocks]
    return [router for router in found if router is not None]


def trains(router: Router) -> bool:
    """Whether decisions forced in training are the ledger's rates: a schedule gives training rates of its own, and a fitted
    router takes no part."""
    config = REGISTRY.config("router", router.name, router.params)
    cls = REGISTRY.factory("router", router.name)
    scheduled = cls.schedule(config) is not None or cls.training_schedule(config) is not None
    return not scheduled and not REGISTRY.descriptor("router", router.name).capabilities.fitted


def prove(genome: Architecture, tokens: int, rates: tuple[float, ...] = (0.0, 0.5, 1.0)) -> None:
    """Parameters, state bytes and executed FLOPs of one genome, whose sites all decide at these rates, 0.5 among them."""
    costs = REGISTRY.factory("cost", "analytic")(None, REGISTRY)
    with torch.device("meta"):
        parameters = sum(p.numel() for p in LanguageModel(genome, REGISTRY).parameters())
    forced = {rate: Forced(REGISTRY, genome, rate) for rate in rates}
    if not forced[0.5].choices:
        forced = {0.5: forced[0.5]}
    model = forced[0.5].model.eval()
    for length in (1, tokens + 9):
        ledger = costs.estimate(genome, Shape(1, length))
        assert ledger.parameters == parameters
        tokens_BT = torch.zeros(1, length, dtype=torch.int64)
        state = model.init_state(1, slots=length)
        with torch.no_grad():
            context = model.context(tokens_BT, state=state, labels_BT=tokens_BT)
            _, state = model(tokens_BT, context, state)
        assert state is not None
        assert ledger.state_bytes == state.mixer_bytes()
    for one in forced.values():
        if all(map(trains, routers(genome))):
            counted, ledger = one.train(tokens)
            if UNREAD in repr(genome):
                assert counted <= ledger.executed_training_flops_per_token * (1 + NEAR)
            else:
                assert counted == pytest.approx(ledger.executed_training_flops_per_token, rel=NEAR)
        counted, ledger = one.decode(tokens)
        assert counted == pytest.approx(ledger.executed_decode_flops_per_token, rel=NEAR)
        piece = whole_piece(one, tokens)
        if piece is not None:
            counted, ledger = one.prefill(piece)
            assert counted == pytest.approx(ledger.executed_prefill_flops_per_token, rel=NEAR)


def whole_piece(forced: Forced, tokens: int) -> int | None:
    """Tokens of a prefill in one piece, or None where there is none to count.

    A feedback router is evaluated segment by segment, so its piece is one segment. Where half of the decisions fall either
    way, a piece holds every combination of them equally often, since the ledger multiplies their rates. One token of a
    recurrence is a step, which is written element by element.
    """
    mode = forced.model.mode
    if mode is not None and mode.feedback:
        return mode.segment if mode.segment > 1 and forced.rate != 0.5 else None
    return -(-tokens // ROWS) * ROWS if forced.rate == 0.5 else tokens


@pytest.mark.parametrize("wanted", WANTED, ids=IDS)
def test_the_ledger_is_that_of_the_model(wanted: dict) -> None:
    @examples(FEW)
    @given(genomes(REGISTRY, **wanted), st.sampled_from(TOKENS))
    def drawn(genome: Architecture, tokens: int) -> None:
        # None and all of the decisions are counted at fixed genomes (``test_executed_flops``) and in the slow test below.
        prove(genome, tokens, rates=(0.5,))

    drawn()


@pytest.mark.slow
@pytest.mark.parametrize("wanted", WANTED, ids=IDS)
def test_the_ledger_is_that_of_many_models(wanted: dict) -> None:
    @examples(MANY)
    @given(genomes(REGISTRY, **wanted), st.sampled_from(TOKENS))
    def drawn(genome: Architecture, tokens: int) -> None:
        prove(genome, tokens)

    drawn()


@examples(10)
@given(st.lists(genomes(REGISTRY), min_size=2, max_size=3))
def test_a_model_that_has_seen_other_genomes_answers_to_the_last_bit_as_a_new_one(found: list) -> None:
    """Genes are looked up as the objects they are and by content, so each genome comes twice: as it is, and read anew."""
    used = REGISTRY.factory("cost", "analytic")(None, REGISTRY)
    again = [Architecture.model_validate(genome.model_dump(mode="json")) for genome in found]
    for genome in [*found, *again, *found]:
        for shape in (Shape(2, 65), Shape(1, 17, "bfloat16")):
            new = REGISTRY.factory("cost", "analytic")(None, REGISTRY)
            ledger = used.estimate(genome, shape)
            assert repr(ledger) == repr(new.estimate(genome, shape))
            even = {site: (1 / len(shares),) * len(shares) for site, shares in ledger.rates.items()}
            assert repr(used.estimate(genome, shape, rates=even)) == repr(
                new.estimate(genome, shape, rates=even)
            )
