"""Published sizes, exactly; and rivals of equal parameters."""

from __future__ import annotations

import pytest
import torch

from crossbreed.cli.bookkeeping import Bookkeeping, counted
from crossbreed.core.errors import ConfigError
from crossbreed.core.host import Registry
from crossbreed.core.ledger import Ledger, Shape
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.presets import dreamer, oryx, presets, rivals
from crossbreed.presets.amor import RATE, SCALES

V = 50_257
ORYX = {"130m": (768, 12, 0), "380m": (1024, 24, 24_576), "810m": (1536, 24, 0), "1.4b": (2048, 24, -49_152)}


def ledger(registry: Registry, name: str, tokens: int = 64) -> Ledger:
    costs = registry.factory("cost", "analytic")(None, registry)
    return costs.estimate(registry.canonical(presets()[name].build()), Shape(1, tokens))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("amor-gdn-180m", 181_967_832),
        ("amor-gdn-440m", 442_133_056),
        ("amor-gdn-1.5b", 1_524_025_472),
        ("amor-mamba2-180m", 184_396_896),
        ("amor-mamba2-440m", 448_650_496),
        ("amor-mamba2-1.5b", 1_537_425_920),
    ],
)
def test_amor_has_the_parameters_of_the_released_models(registry: Registry, name: str, count: int) -> None:
    assert ledger(registry, name).parameters == count
    assert ledger(registry, f"{name}-h").parameters == count
    (figure,) = presets()[name].published
    assert (figure.value, counted(figure, ledger(registry, name))) == (count, count)
    # Each block but the first: W_Q, W_K, W_V, W_O, a norm and the scale (amor.md, section 4).
    D = presets()[name].build().d_model
    assert count - ledger(registry, f"{name}-k1").parameters == 2 * (4 * D**2 + 2 * D)


@pytest.mark.parametrize("family", ["tm", "tg"])
@pytest.mark.parametrize("scale", ORYX)
def test_oryx_has_the_active_parameters_of_the_formula(registry: Registry, family: str, scale: str) -> None:
    D, L, difference = ORYX[scale]
    F = round(8 * D / 3)
    found = ledger(registry, f"oryx-{family}-{scale}")
    books = Bookkeeping.of(found)
    assert books.active_matrix_parameters == 5 * D**2 * L + 3 * D * F * L + V * D
    assert books.stored_matrix_parameters == 6 * D**2 * L + 3 * D * F * L + V * D
    assert books.small_parameters < 0.006 * found.parameters
    (figure,) = presets()[f"oryx-{family}-{scale}"].published
    assert counted(figure, found) - figure.value == difference
    assert books.shared_of_active == pytest.approx(12 / 13, rel=1e-4)
    assert books.shared_of_stored == pytest.approx(12 / 14, rel=1e-4)


@pytest.mark.parametrize("family", ["tm", "tg"])
def test_small_tensors_are_those_of_the_built_model(registry: Registry, family: str) -> None:
    """Convolutions, decay and gate parameters, norms: counted on the module, by name."""
    architecture = presets()[f"oryx-{family}-380m"].build()
    with torch.device("meta"):
        model = LanguageModel(architecture, registry)
    D, H, L = 1024, 8, 24
    decays = {"tm": D * H + 3 * H, "tg": 2 * D * H + 2 * H}[family]
    gains = {"tm": D, "tg": 128}[family]
    expected = L * (2 * D * 4 + decays + gains + 2 * D) + D
    books = Bookkeeping.of(ledger(registry, f"oryx-{family}-380m"))
    assert books.small_parameters == expected
    large = [p.numel() for p in model.parameters() if p.dim() == 2 and min(p.shape) >= D]
    assert books.stored_matrix_parameters == sum(large)


@pytest.mark.parametrize("scale", ["130m", "380m", "810m", "1.4b"])
@pytest.mark.parametrize("name", oryx.BASELINES)
def test_oryx_rivals_have_13_d2_weights_a_layer(registry: Registry, name: str, scale: str) -> None:
    D, L, _ = ORYX[scale]
    books = Bookkeeping.of(ledger(registry, f"{name}-13d2-{scale}"))
    # The SwiGLU's width is a whole number, so a layer is off by less than half of 3 D.
    assert abs(books.active_matrix_parameters - (13 * D**2 * L + V * D)) <= 1.5 * D * L


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("backbone", ["gdn", "mamba2"])
def test_amor_rivals_have_its_parameters_within_one_percent(
    registry: Registry, backbone: str, scale: str
) -> None:
    wanted = ledger(registry, f"amor-{backbone}-{scale}").parameters
    for name in (f"{backbone}-{scale}", *[f"{rival}-{backbone}-{scale}" for rival in rivals.OF_BACKBONE]):
        assert ledger(registry, name).parameters == pytest.approx(wanted, rel=0.01), name
    if backbone == "gdn":
        assert ledger(registry, f"transformer-{scale}").parameters == pytest.approx(wanted, rel=0.0105)


@pytest.mark.parametrize("rival", ["random", "segment-random", "learned"])
def test_gates_of_rivals_stand_at_the_rate_of_amor(registry: Registry, rival: str) -> None:
    wanted = ledger(registry, "amor-gdn-180m").rates
    found = ledger(registry, f"{rival}-gdn-180m").rates
    assert found.keys() == wanted.keys()
    for site, shares in found.items():
        assert shares == pytest.approx(wanted[site], abs=1e-4)
        assert shares[1] == pytest.approx(RATE)


def test_attention_places() -> None:
    assert rivals.attention_places(12) == {3, 7, 11}
    assert rivals.attention_places(12, every=4) == {3, 7, 11}
    assert rivals.attention_places(24, every=4) == {3, 7, 11, 15, 19, 23}
    assert rivals.attention_places(24) == {7, 15, 23}
    assert rivals.attention_places(4, places=[1, 2]) == {1, 2}
    assert rivals.attention_places(2) == {0, 1}
    for wrong in ({"places": [4]}, {"every": 5}, {"every": 2, "places": [1]}):
        with pytest.raises(ConfigError, match=r"attention must stand in layers 0 to 3|give every or places"):
            rivals.attention_places(4, **wrong)  # type: ignore[arg-type]


# dreamer.md, section 5: parameters and forward FLOPs per token of a row, in millions.
ROWS = {"l8-k4": (3.49, 5.40), "l8-k2": (5.87, 5.79), "l16-k4": (7.82, 10.9), "l16-k2": (11.9, 11.6)}


@pytest.mark.parametrize("scale", ROWS)
def test_dreamer_rows_are_those_of_the_sheet(registry: Registry, scale: str) -> None:
    found = {name: ledger(registry, f"{name}-{scale}") for name in ("dreamer", "dr", "layered-moe")}
    whole = found["dreamer"]
    assert whole.parameters / 1e6 == pytest.approx(ROWS[scale][0], rel=0.005)
    assert whole.prefill_flops_per_token / 1e6 == pytest.approx(ROWS[scale][1], rel=0.005)
    for name, other in found.items():
        for quantity in ("parameters", "training_flops_per_token", "memory_bytes"):
            assert other.quantity(quantity) == pytest.approx(whole.quantity(quantity), rel=0.005), name


@pytest.mark.parametrize("scale", dreamer.SCALES)
@pytest.mark.parametrize("name", [name for name in dreamer.MODELS if name != "dreamer"])
def test_dreamer_rivals_meet_its_budget(registry: Registry, name: str, scale: str) -> None:
    tokens = 64 if scale in ROWS else 2048
    wanted, found = ledger(registry, f"dreamer-{scale}", tokens), ledger(registry, f"{name}-{scale}", tokens)
    loose = name == "prelude-core-coda" or scale not in ROWS
    for quantity in ("parameters", "training_flops_per_token", "memory_bytes"):
        off = found.quantity(quantity) / wanted.quantity(quantity) - 1
        assert abs(off) < (0.01 if loose else 0.005), quantity


@pytest.mark.parametrize(("scale", "depth", "count"), [("1b", 16, 1e9), ("2b", 32, 2e9)])
def test_large_dreamers_have_about_the_published_parameters(
    registry: Registry, scale: str, depth: int, count: float
) -> None:
    (stage,) = presets()[f"dreamer-{scale}"].build().stages
    assert stage.depth.repeats == depth
    assert ledger(registry, f"dreamer-{scale}").parameters == pytest.approx(count, rel=0.02)


def test_a_prelude_a_core_and_a_coda_are_as_deep_as_their_rivals() -> None:
    architecture = presets()["prelude-core-coda-l8-k4"].build()
    assert [s.depth.repeats for s in architecture.stages] == [1, 6, 1]
    assert [s.depth.params.get("inject") for s in architecture.stages] == [None, True, None]
    for depth, ends in ((3, 1), (8, 0), (8, 4)):
        with pytest.raises(ConfigError, match=f"must run twice, but the depth is {depth}"):
            dreamer.prelude_core_coda(dreamer.DreamerSizes(64, 32, depth, 2, 16, 1, 4, 8, 2), ends)
