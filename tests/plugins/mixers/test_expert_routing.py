"""Routing of tokens to experts, and projections as experts: every setting against the formula written out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from crossbreed.core.contracts.context import Recorder
from crossbreed.core.errors import ConfigError
from crossbreed.plugins.mixers.configs import ProjectionExperts, RoutingSettings
from crossbreed.plugins.mixers.expert_routing import ExpertRouter
from tests.plugins.mixers.helpers import PARTS, build, context, in_pieces, random_input

D = 12


def router(depths: int = 1, **settings: Any) -> ExpertRouter:
    torch.manual_seed(0)
    made = ExpertRouter(RoutingSettings(**{"router_key": 8, **settings}), D, depths).double()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.mul_(20.0)
    return made


def tokens(count: int, seed: int = 1) -> Tensor:
    return random_input(1, count, D, seed)[0]


@pytest.mark.parametrize("gate_norm", ["l1", "l2", "none"])
@pytest.mark.parametrize("shared_scale", ["score", "learned"])
@pytest.mark.parametrize("bias_on", ["score", "sigmoid"])
def test_weights_are_the_formula_for_every_setting(gate_norm: str, shared_scale: str, bias_on: str) -> None:
    made = router(
        experts=5, top_k=4, shared=2, gate_norm=gate_norm, shared_scale=shared_scale, bias_on=bias_on,
        shared_score=0.7,
    )  # fmt: skip
    made.balance_LE[0].copy_(torch.tensor([0.3, -0.4, 0.0, 0.5, -0.1]))
    if made.shared_scale_S is not None:
        with torch.no_grad():
            made.shared_scale_S.copy_(torch.tensor([0.2, 1.5], dtype=torch.float64))
    x = tokens(40)
    route = made(x, context(1, 40))
    for n in range(40):
        score = (made.query_RD @ x[n]) @ made.key_ER.T
        rank = (score if bias_on == "score" else score.sigmoid()) + made.balance_LE[0]
        chosen = rank.argsort(descending=True)[:2].tolist()
        gates = score[chosen].sigmoid()
        inside = (
            gates if shared_scale == "learned" else torch.cat((gates, torch.full((2,), 0.7, dtype=x.dtype)))
        )
        size = {"l1": inside.sum(), "l2": inside.square().sum().sqrt(), "none": torch.tensor(1.0)}[gate_norm]
        always = (
            torch.tensor([0.2, 1.5], dtype=x.dtype)
            if shared_scale == "learned"
            else torch.full((2,), 0.7, dtype=x.dtype) / size
        )
        assert route.expert_NJ[n].tolist() == [*chosen, 5, 6]
        wanted = torch.cat((gates / size, always))
        torch.testing.assert_close(route.weight_NJ[n], wanted, rtol=0, atol=1e-12)


def test_where_the_bias_is_added_changes_the_choice() -> None:
    before, after = router(experts=6), router(experts=6, bias_on="sigmoid")
    for made in (before, after):
        made.balance_LE[0, 2] = 0.4
    x = tokens(60)
    assert not torch.equal(before(x, context(1, 60)).expert_NJ, after(x, context(1, 60)).expert_NJ)


@pytest.mark.parametrize(("shared_scale", "learns"), [("score", True), ("learned", False)])
def test_one_routed_expert_teaches_the_router_only_beside_a_score(shared_scale: str, learns: bool) -> None:
    """Normalised alone, the gate of one expert is 1 whatever its score (Dreamer's sheet, section 4)."""
    mixer = build("experts", {"experts": 4, "hidden": 4, "shared_scale": shared_scale})
    y, _ = mixer(random_input(1, 20), context(1, 20, phase="train"), None)
    y.square().sum().backward()
    assert (mixer.router.key_ER.grad.abs().max() > 1e-9) == learns
    if mixer.router.shared_scale_S is not None:
        assert mixer.router.shared_scale_S.grad.abs().max() > 0
        assert mixer.no_weight_decay() == {"router.shared_scale_S"}


def test_each_depth_balances_alone_or_all_together() -> None:
    loads = [torch.tensor([6, 2, 0, 0]), torch.tensor([0, 2, 6, 0])]
    statistics = [{"load": load, "depth": depth} for depth, load in enumerate(loads)]
    apart, together = (
        router(2, experts=4, balance=kind, bias_rate=0.1) for kind in ("each_depth", "all_depths")
    )
    for made in (apart, together):
        made.after_step(statistics)
    assert apart.balance_LE.tolist() == [
        pytest.approx([-0.1, 0.0, 0.1, 0.1]),
        pytest.approx([0.1, 0.0, -0.1, 0.1]),
    ]
    assert together.balance_LE.tolist() == [pytest.approx([-0.1, 0.0, -0.1, 0.1])]
    apart.balance_LE[1, 3] = 100.0
    x = tokens(9)
    routes = [apart(x, context(1, 9, depth=d, depths=2)).expert_NJ[:, 0] for d in range(2)]
    assert (routes[1] == 3).all()
    assert not (routes[0] == 3).all()


@pytest.mark.parametrize("encoding", ["rose", "index", "none"])
def test_the_encoding_decides_what_routing_knows_of_depth(encoding: str) -> None:
    """Without one, routing depends on depth through the state alone (section 10)."""
    made = router(8, experts=6, depth_encoding=encoding)
    x = tokens(80)

    def chosen(depth: int, depths: int) -> Tensor:
        return made(x, context(1, 80, depth=depth, depths=depths)).expert_NJ

    assert torch.equal(chosen(1, 8), chosen(5, 8)) == (encoding == "none")
    assert torch.equal(chosen(1, 8), chosen(1, 5)) == (encoding != "rose")


def effective(mixer: Any, x_BTD: Tensor, part: str, weight_EIO: Tensor) -> Tensor:
    """Each token's own matrix, the sum of its experts' by the weights of its decision (B, T, I, O)."""
    made = mixer.projections.routers[part]
    route = made(x_BTD.flatten(0, 1), context(*x_BTD.shape[:2]))
    share_NE = torch.zeros(len(route.expert_NJ), len(weight_EIO), dtype=x_BTD.dtype)
    share_NE.scatter_add_(1, route.expert_NJ, route.weight_NJ)
    found: Tensor = torch.einsum("ne,eio->nio", share_NE, weight_EIO).unflatten(0, x_BTD.shape[:2])
    return found


EXPERTS = {"experts": 4, "top_k": 3, "router_key": 8}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("count", [1, 63, 65])
def test_routed_attention_is_attention_with_each_tokens_own_matrices(tied: bool, count: int) -> None:
    """X = sum_e p_e u W_X^e for queries, keys, values and gate, and o sum_e p_e W_O^e, with one p if tied."""
    heads, size = 2, 6
    mixer = build(
        "attention",
        {
            "heads": heads,
            "head_size": size,
            "gate": True,
            "rope_fraction": 0.0,
            "projection_experts": EXPERTS | {"tied": tied},
        },
    )
    x = random_input(2, count)
    projections, width = mixer.projections, heads * size
    with torch.no_grad():
        found, first = {}, 0
        for part in ("key", "value", "query0", "gate"):
            weight = projections.input_EDC[..., first : first + width]
            own = effective(mixer, x, "all" if tied else part, weight)
            found[part] = torch.einsum("btd,btdc->btc", x, own).unflatten(-1, (heads, size))
            first += width
        score = torch.einsum("bthk,bshk->bhts", found["query0"], found["key"]) / size**0.5
        hidden = torch.ones(count, count, dtype=torch.bool).triu(1)
        weight = score.masked_fill(hidden, -torch.inf).softmax(-1)
        o = torch.einsum("bhts,bshv->bthv", weight, found["value"])
        o = (o * torch.nn.functional.silu(found["gate"])).flatten(-2)
        out = effective(mixer, x, "all" if tied else "output", projections.output_ECD)
        y, _ = mixer(x, context(2, count), None)
        torch.testing.assert_close(y, torch.einsum("btc,btcd->btd", o, out), rtol=0, atol=1e-10)
    assert len(projections.routers) == (1 if tied else 5)


def test_every_token_writes_its_decision_whether_it_reads_or_not() -> None:
    mixer, x = build("attention", {"projection_experts": EXPERTS}), random_input(2, 20)
    read = torch.rand(2, 20, generator=torch.Generator().manual_seed(3)) < 0.4
    with torch.no_grad():
        whole, _ = mixer(x, context(2, 20), None)
        _, state = mixer(
            x[:, :15], context(2, 20).slice(0, 15), mixer.init_state(2, dtype=x.dtype), read[:, :15]
        )
        rest, _ = in_pieces(mixer, x[:, 15:], context(2, 5, start=15), [1, 2], state=state)
    torch.testing.assert_close(rest, whole[:, 15:], rtol=0, atol=1e-11)


def test_projections_record_their_loads_and_balance_them() -> None:
    mixer = build("attention", {"projection_experts": EXPERTS | {"bias_rate": 0.5, "tied": False}})
    x, recorder = random_input(2, 20), Recorder()
    mask = torch.arange(20).expand(2, 20) >= 5
    mixer(x, context(2, 20, phase="train", recorder=recorder, loss_mask_BT=mask), None)
    statistics = [found for _, found in recorder.records]
    # 30 counted tokens with 2 routed slots each.
    labels = {label for found in statistics for label in found if label != "depth"}
    assert labels == {"load.key", "load.value", "load.query0", "load.output"}
    assert all(
        int(load.sum()) == 60 for found in statistics for label, load in found.items() if label != "depth"
    )
    mixer.after_step(statistics)
    for part, made in mixer.projections.routers.items():
        load = next(found[f"load.{part}"] for found in statistics if f"load.{part}" in found).double()
        torch.testing.assert_close(made.balance_LE[0].double(), 0.5 * torch.sign(load.mean() - load))


def test_projection_experts_equal_one_matrix_where_all_experts_are_equal() -> None:
    routed = build("mamba2", {"heads": 2, "projection_experts": EXPERTS})
    plain = build("mamba2", {"heads": 2})
    with torch.no_grad():
        routed.projections.input_EDC.copy_(plain.projections.input.weight.T.expand(5, -1, -1))
        routed.projections.output_ECD.copy_(plain.projections.output.weight.T.expand(5, -1, -1))
        for own, other in zip(routed.readers.parameters(), plain.readers.parameters(), strict=True):
            own.copy_(other)
        routed.conv_CW.copy_(plain.conv_CW)
        x = random_input(2, 30)
        wanted, _ = plain(x, context(2, 30), None)
        y, _ = routed(x, context(2, 30), None)
    torch.testing.assert_close(y, wanted, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["attention", "mamba2", "gated_deltanet", "multi_mixer", "depth_attention"])
def test_every_mixer_with_projections_can_route_them(name: str) -> None:
    config = PARTS.config("mixer", name, {"projection_experts": {"experts": 15}})
    assert config.projection_experts == ProjectionExperts(experts=15)
    assert config.projection_experts.slots == 2
    assert config.projection_experts.stored == 16


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"experts": 1, "top_k": 3}, "2 routed experts, but there are only 1"),
        ({"top_k": 1}, r"top_k \(1\) must exceed shared \(1\)"),
        ({"router_key": 6}, "router_key must be a multiple of 4 for depth_encoding 'rose'.*got 6"),
        ({"router_key": 5, "depth_encoding": "index"}, "multiple of 2"),
        (
            {"router_key": None, "depth_encoding": "rose"},
            "'rose' rotates routing queries and needs a router_key",
        ),
        ({"gate_norm": "l3"}, "'l1', 'l2' or 'none'"),
        ({"balance": "each"}, "'all_depths' or 'each_depth'"),
    ],
)
@pytest.mark.parametrize("where", ["experts", "attention"])
def test_illegal_routing_is_a_sentence(where: str, params: dict[str, Any], message: str) -> None:
    given = params if where == "experts" else {"projection_experts": params}
    with pytest.raises(ConfigError, match=message):
        PARTS.config("mixer", where, given)


def test_without_a_key_there_is_no_encoding() -> None:
    config = PARTS.config("mixer", "experts", {"router_key": None})
    assert config.depth_encoding == "none"
    assert PARTS.config("mixer", "experts", config.model_dump()) == config


@pytest.mark.parametrize("gate_norm", ["l1", "l2"])
def test_scores_that_all_underflow_weigh_nothing(gate_norm: str) -> None:
    made = router(experts=4, top_k=2, shared=0, gate_norm=gate_norm, router_key=None).float()
    with torch.no_grad():
        made.key_ER.copy_(torch.ones_like(made.key_ER))
    x = torch.full((3, D), -50.0, requires_grad=True)
    weight_NJ = made(x, context(1, 3)).weight_NJ
    weight_NJ.sum().backward()
    assert not weight_NJ.any()
    assert x.grad is not None
    assert x.grad.isfinite().all()
