"""AMOR checkpoints in the authors' key layout give the logits of the fact sheet's equations, gates included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from crossbreed.core.errors import ConfigError
from tests.foreign.conftest import logits
from tests.foreign.references import (
    Weights,
    amor_stack,
    delta_net_shapes,
    gated_delta_net,
    mlp_shapes,
    random_weights,
    rms,
    swiglu,
)

V, D, LAYERS, HIDDEN, BLOCKS, HEADS = 23, 16, 2, 20, 3, 2
TOKENS = torch.randint(0, V, (2, 13), generator=torch.Generator().manual_seed(4))


def stack_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "embed.weight": (V, D),
        "norm_f.weight": (D,),
        "final_norm.weight": (D,),
    }
    for i in range(BLOCKS):
        at = f"amor_blocks.{i}."
        for name in ("q_proj", "kv_proj.k_proj", "kv_proj.v_proj", "out_proj"):
            shapes[f"{at}{name}.weight"] = (D, D)
        shapes[f"{at}raw_alpha"] = (D,)
        if i:
            shapes[f"amor_pre_norms.{i}.weight"] = (D,)
    return shapes


def gates(weights: Weights, level: float) -> Weights:
    """Thresholds amid the entropies that such weights give, written as the scalars they are."""
    for i in range(BLOCKS):
        weights[f"amor_blocks.{i}.gate.running_threshold"] = torch.tensor(level + 0.01 * i)
        weights[f"amor_blocks.{i}.gate.running_std"] = torch.tensor(0.05)
    weights["lm_head.weight"] = weights["embed.weight"].clone()
    return weights


def on_gated_deltanet() -> tuple[Weights, torch.Tensor]:
    """(checkpoint, output of the backbone)."""
    shapes = stack_shapes()
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        shapes |= {f"{at}norm_ssm.weight": (D,), f"{at}norm_mlp.weight": (D,)}
        shapes |= delta_net_shapes(f"{at}gdn.", D, 3, 3, 4, 8) | mlp_shapes(f"{at}mlp.", D, HIDDEN)
    weights = gates(random_weights(shapes), 0.82)
    w = {key: value.double() for key, value in weights.items()}
    x = w["embed.weight"][TOKENS]
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        x = x + gated_delta_net(rms(x, w[f"{at}norm_ssm.weight"], 1e-6), w, f"{at}gdn.", 3, 1e-5)
        x = x + swiglu(rms(x, w[f"{at}norm_mlp.weight"], 1e-6), w, f"{at}mlp.")
    return weights, x


def on_mamba2() -> tuple[Weights, torch.Tensor]:
    """The authors' code takes transformers' blocks; so does this."""
    from tests.foreign.test_mamba2 import transformers_model

    theirs = transformers_model(vocab_size=V, num_hidden_layers=LAYERS)
    shapes = stack_shapes()
    for layer in range(LAYERS):
        shapes |= mlp_shapes(f"mlps.{layer}.", D, HIDDEN) | {f"mlp_norms.{layer}.weight": (D,)}
    weights = gates(random_weights(shapes), 0.7)
    blocks = theirs.backbone.layers
    for layer in range(LAYERS):
        for key, value in blocks[layer].state_dict().items():
            weights[f"ssd_layers.{layer}.{key}"] = value
    x = weights["embed.weight"][TOKENS]
    with torch.no_grad():
        for layer in range(LAYERS):
            x = blocks[layer](x)
            x = x + swiglu(rms(x, weights[f"mlp_norms.{layer}.weight"], 1e-6), weights, f"mlps.{layer}.")
    return weights, x.double()


BACKBONES = {"gated_deltanet": (on_gated_deltanet, 1e-6), "mamba2": (on_mamba2, 1e-5)}


def write(folder: Path, weights: Weights, **config: Any) -> Path:
    save_file({key: value.contiguous() for key, value in weights.items()}, folder / "model.safetensors")
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("residual", ["classic", "h"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_logits_are_those_of_the_equations(tmp_path: Path, imported, backbone: str, residual: str) -> None:
    made, first_eps = BACKBONES[backbone]
    weights, x = made()
    path = write(tmp_path, weights, n_heads=HEADS, residual_mode=residual, offset_k=0.5)
    found = imported(path)
    assert found.format == "amor"
    wanted, rate = amor_stack(
        x,
        {key: value.double() for key, value in weights.items()},
        blocks=BLOCKS,
        heads=HEADS,
        first_eps=first_eps,
        classic=residual == "classic",
        kappa=0.5,
    )
    assert 0.1 < rate < 0.9
    dtype = torch.float64 if backbone == "gated_deltanet" else torch.float32
    tolerance = 1e-9 if dtype == torch.float64 else 1e-3
    got = logits(found, TOKENS, dtype).double()
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)
    assert wanted.std() > 0.1


def test_settings_come_from_the_command_over_the_file_over_the_defaults(tmp_path: Path, imported) -> None:
    weights, _ = on_gated_deltanet()
    with pytest.raises(ConfigError, match=r"does not say its attention heads, .* add --set n_heads=NUMBER"):
        imported(write(tmp_path, weights))
    found = imported(write(tmp_path, weights, n_heads=4), n_heads=HEADS, offset_mode="fixed")
    blocks = found.architecture.stages[1].blocks
    assert found.architecture.stages[1].entry_norm
    assert [b.norm for b in blocks] == ["none", "pre", "pre"]
    assert blocks[0].sublayers[0].params["heads"] == HEADS
    gate = blocks[0].gate.params
    assert (gate["threshold"], gate["kappa"], gate["offset"], gate["momentum"]) == ("fixed", 0.2, 0.03, 0.99)
    thresholds = [site.router.mu.item() for site in found.model.routed_sites()]
    assert thresholds == [pytest.approx(0.82 + 0.01 * i) for i in range(BLOCKS)]
    with pytest.raises(ConfigError, match="residual_mode 'g', which is not supported"):
        imported(tmp_path, residual_mode="g")


def test_a_head_that_is_not_the_embedding_is_a_head_of_its_own(tmp_path: Path, imported) -> None:
    weights, _ = on_gated_deltanet()
    weights["lm_head.weight"] = weights["lm_head.weight"] + 1
    found = imported(write(tmp_path, weights, n_heads=HEADS))
    assert not found.architecture.tie_embeddings
    assert torch.equal(found.model.head.weight, weights["lm_head.weight"])
