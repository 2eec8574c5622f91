"""Oryx's block under every setting equals its equations written out, in one pass, in pieces and token by token."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from crossbreed.core.contracts.router import Decision
from crossbreed.core.errors import ConfigError
from tests.plugins.mixers.helpers import PARTS, build, context, in_pieces, random_input
from tests.plugins.mixers.oryx_reference import oryx_reference

TOKENS = 35
FAMILIES = {"tm": "mamba2", "tg": "gated_deltanet"}


def readers(
    linear: str, *, of_linear: dict[str, Any] | None = None, **of_attention: Any
) -> list[dict[str, Any]]:
    return [
        {"name": linear, "params": of_linear or {}},
        {"name": "attention", "params": of_attention},
    ]


VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "without the convolution": {"short_conv": None},
    "a wider convolution with a bias": {"short_conv": {"width": 5, "bias": True}},
    "queries convolved too": {"short_conv": {"width": 3, "on": "qkv"}},
    "without the gate": {"gate": False},
    "neither convolution nor gate": {"short_conv": None, "gate": False},
    "without a norm": {"norm": "none"},
    "norm over everything after the gate": {"norm": "full", "norm_place": "after_gate"},
    "norm over everything before the gate": {"norm": "full", "norm_place": "before_gate"},
    "norm per head after the gate": {"norm": "head", "norm_place": "after_gate"},
    "norm per head before the gate": {"norm": "head", "norm_place": "before_gate"},
    "norm per head without a gate": {"norm": "head", "gate": False},
    "queries tied": {"tied_queries": True},
    "queries tied and convolved": {"tied_queries": True, "short_conv": {"on": "qkv"}},
    "keys and values apart": {"tied_kv": False},
    "keys and values apart, without the convolution": {"tied_kv": False, "short_conv": None},
    "everything apart but the queries": {
        "tied_kv": False,
        "tied_queries": True,
        "short_conv": {"on": "qkv", "bias": True},
    },
    "rotary for all": {"rope": "all"},
    "rotary for attention": {"rope": "attention"},
    "no rotary": {"rope": "none"},
    "half of each head rotated": {"rope": "all", "rope_fraction": 0.5, "rope_theta": 100.0},
    "SiLU on keys and values": {"kv_activation": "silu"},
    "no activation on keys and values": {"kv_activation": "none"},
    "SiLU on queries": {"q_activation": "silu"},
    "no activation on queries": {"q_activation": "none"},
    "SiLU on the recurrence's queries": {"q_activation": ["silu", "none"]},
    "SiLU on attention's queries": {"q_activation": ["none", "silu"]},
    "L2 norm on attention": {"attention": {"l2_norm": "qk"}},
    "L2 norm on attention's keys": {"attention": {"l2_norm": "k"}},
    "no append where attention does not read": {"attention": {"writes": "when_read"}},
    "no update where the recurrence does not read": {"linear": {"writes": "when_read"}},
    "neither": {"attention": {"writes": "when_read"}, "linear": {"writes": "when_read"}},
}
"""The paper's ablations (section 4.3, appendix B) and controls of our own, each a setting."""
OF_ONE_FAMILY: dict[str, tuple[str, dict[str, Any]]] = {
    "without Mamba-2's skip": ("tm", {"linear": {"skip": False}}),
    "without the delta rule's L2 norm": ("tg", {"linear": {"qk_l2_norm": False}}),
}
CASES = [(f, name, v) for f in FAMILIES for name, v in VARIANTS.items()]
CASES += [(f, name, v) for name, (f, v) in OF_ONE_FAMILY.items()]


def multi(family: str, variant: dict[str, Any], **options: Any) -> Any:
    settings = dict(variant)
    listed = readers(
        FAMILIES[family], of_linear=settings.pop("linear", None), **settings.pop("attention", {})
    )
    # Without L2 norms the delta rule needs smaller keys to stay within numbers.
    scale = 2.0 if "qk_l2_norm" in repr(variant) else 10.0
    return build(
        "multi_mixer", {"readers": listed, "heads": 2, "head_size": 8, **settings}, scale=scale, **options
    )


def modes(tokens: int = TOKENS, seed: int = 5) -> list[int]:
    """Runs of odd lengths, so that switches fall on no segment's edge."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 8, (tokens,), generator=generator)
    return (torch.arange(tokens) % 2).repeat_interleave(lengths)[:tokens].tolist()


@pytest.mark.parametrize(("family", "name", "variant"), CASES, ids=[f"{f} {n}" for f, n, _ in CASES])
def test_the_block_is_its_equations(family: str, name: str, variant: dict[str, Any]) -> None:
    mixer, x = multi(family, variant), random_input(1, TOKENS)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
        mode_T = modes()
        wanted = oryx_reference(mixer, x[0], mode_T)
        at = context(1, TOKENS).at(mode=Decision(torch.tensor([mode_T])))
        whole, _ = mixer(x, at, None)
        torch.testing.assert_close(whole[0], wanted, rtol=1e-9, atol=1e-9)
        for cuts in ([1], [3, 4, 17, 33], list(range(1, TOKENS))):
            split, _ = in_pieces(mixer, x, at, cuts)
            torch.testing.assert_close(split[0], wanted, rtol=1e-9, atol=1e-9)
    assert wanted.abs().max() > 1e-2


@pytest.mark.parametrize("family", FAMILIES)
def test_every_ablation_changes_the_block(family: str) -> None:
    """So that no setting is silently without effect; ``as published`` restates a family's defaults in several ways."""
    x = random_input(1, TOKENS)
    at = context(1, TOKENS).at(mode=Decision(torch.tensor([modes()])))
    published = multi(family, {})
    unchanged = []
    with torch.no_grad():
        wanted, _ = published(x, at, None)
        for name, variant in VARIANTS.items():
            mixer = multi(family, variant)
            if shapes(mixer) == shapes(published):
                mixer.load_state_dict(published.state_dict())
            if torch.equal(mixer(x, at, None)[0], wanted):
                unchanged.append(name)
    assert unchanged == {
        "tm": ["as published", "norm over everything after the gate", "rotary for all", "no activation on keys and values", "no activation on queries"],
        "tg": ["as published", "norm per head before the gate", "rotary for attention", "SiLU on keys and values", "SiLU on queries"],
    }[family]  # fmt: skip


def shapes(module: torch.nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_without_a_trace_keep_documents_apart_in_any_pieces(family: str, window: int | None) -> None:
    """Also where a document begins with tokens that no reader keeps."""
    control = {"writes": "when_read"}
    mixer = multi(family, {"attention": {**control, "window": window}, "linear": control})
    x, starts, tokens = random_input(2, 40), [9, 10, 27], 40
    mode = Decision(torch.tensor([modes(tokens), modes(tokens, seed=6)]))
    at = context(2, tokens, starts=starts).at(mode=mode)
    with torch.no_grad():
        apart = [
            mixer(x[:, a:b], at.slice(a, b).at(document_BT=None), None)[0]
            for a, b in itertools.pairwise([0, *starts, tokens])
        ]
        wanted = torch.cat(apart, 1)
        for cuts in ([], [9], [11], [3, 12, 30], list(range(1, tokens))):
            y, _ = in_pieces(mixer, x, at, cuts)
            torch.testing.assert_close(y, wanted, rtol=0, atol=1e-10)


class TestDefaults:
    """The paper's table of the two variants (appendix B), as the settings' defaults."""

    def config(self, *names: str) -> Any:
        return PARTS.config("mixer", "multi_mixer", {"readers": list(names)})

    def test_oryx_tm(self) -> None:
        c = self.config("mamba2", "attention")
        assert (c.kv_activation, c.q_activation, c.rope) == ("none", "none", "all")
        assert (c.norm, c.norm_place) == ("full", "after_gate")

    def test_oryx_tg(self) -> None:
        c = self.config("gated_deltanet", "attention")
        assert (c.kv_activation, c.q_activation, c.rope) == ("silu", "silu", "attention")
        assert (c.norm, c.norm_place) == ("head", "before_gate")

    @pytest.mark.parametrize("linear", FAMILIES.values())
    def test_both(self, linear: str) -> None:
        c = self.config(linear, "attention")
        assert (c.gate, c.rope_theta, c.rope_fraction) == (True, 10_000.0, 1.0)
        assert (c.tied_kv, c.tied_queries) == (True, False)
        assert (c.short_conv.width, c.short_conv.on, c.short_conv.bias) == (4, "kv", False)
        of_linear, of_attention = (choice.params for choice in c.readers)
        assert of_attention["l2_norm"] == "none"
        assert (of_attention["scale"], of_attention["window"]) == (None, None)
        assert of_linear["writes"] == of_attention["writes"] == "always"
        assert of_linear.get("qk_l2_norm", True)

    def test_the_rotated_keys_serve_both_readers_of_tm_and_attention_alone_of_tg(self) -> None:
        rotated = {family: [part.rotated for part in multi(family, {}).plan.readers] for family in FAMILIES}
        assert rotated == {"tm": [True, True], "tg": [False, True]}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"q_activation": ["silu", "silu"]}, {"q_activation": "silu"}),
        ({"norm": "none", "norm_place": "before_gate"}, {"norm": "none"}),
        ({"gate": False, "norm_place": "before_gate"}, {"gate": False, "norm_place": "after_gate"}),
        ({"norm_place": None}, {}),
        ({"readers": ["attention"], "tied_queries": True, "tied_kv": False}, {"readers": ["attention"]}),
        ({"readers": ["mamba2", "attention"]}, {"readers": ["mamba2", {"name": "attention"}]}),
    ],
)
def test_one_block_has_one_form(one: dict[str, Any], other: dict[str, Any]) -> None:
    forms = [PARTS.config("mixer", "multi_mixer", settings) for settings in (one, other)]
    assert forms[0] == forms[1]
    again = PARTS.config("mixer", "multi_mixer", forms[0].model_dump(mode="json"))
    assert again == forms[0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"q_activation": ["silu"]}, "lists 1 activations for 2 readers"),
        ({"q_activation": ["silu", "relu"]}, "q_activation"),
        ({"norm_place": "inside"}, "norm_place"),
        ({"tied_kv": "yes please"}, "tied_kv"),
        ({"readers": [{"name": "attention", "params": {"writes": "never"}}]}, "writes"),
        ({"readers": [{"name": "attention", "params": {"l2_norm": "v"}}]}, "l2_norm"),
        ({"tied_keys": True}, "did you mean 'tied_kv'|unknown key 'tied_keys'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        PARTS.config("mixer", "multi_mixer", settings)
