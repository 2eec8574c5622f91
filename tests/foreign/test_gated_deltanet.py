"""Gated DeltaNet checkpoints in fla's key layout give the logits of the published recurrence."""

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
    delta_net_shapes,
    gated_delta_net,
    mlp_shapes,
    random_weights,
    rms,
    swiglu,
)

V, D, LAYERS, HEADS, K, VALUE, HIDDEN = 23, 16, 2, 4, 6, 10, 20
TOKENS = torch.randint(0, V, (2, 13), generator=torch.Generator().manual_seed(4))


def checkpoint(key_heads: int = HEADS, tied: bool = False) -> Weights:
    shapes: dict[str, tuple[int, ...]] = {"model.embeddings.weight": (V, D), "model.norm.weight": (D,)}
    if not tied:
        shapes["lm_head.weight"] = (V, D)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        shapes |= {f"{at}attn_norm.weight": (D,), f"{at}mlp_norm.weight": (D,)}
        shapes |= delta_net_shapes(f"{at}attn.", D, key_heads, HEADS, K, VALUE)
        shapes |= mlp_shapes(f"{at}mlp.", D, HIDDEN)
    return random_weights(shapes)


def expected(weights: Weights, key_heads: int = HEADS, eps: float = 1e-6) -> torch.Tensor:
    w = {key: value.double() for key, value in weights.items()}
    x = w["model.embeddings.weight"][TOKENS]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        x = x + gated_delta_net(rms(x, w[f"{at}attn_norm.weight"], eps), w, f"{at}attn.", key_heads, eps)
        x = x + swiglu(rms(x, w[f"{at}mlp_norm.weight"], eps), w, f"{at}mlp.")
    head = w.get("lm_head.weight", w["model.embeddings.weight"])
    return rms(x, w["model.norm.weight"], eps) @ head.T


def write(folder: Path, weights: Weights, **config: Any) -> Path:
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps({"model_type": "gated_deltanet", "num_heads": HEADS, **config})
    )
    return folder


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("key_heads", [HEADS, 2])
@pytest.mark.parametrize("eps", [1e-6, 1e-2])
def test_logits_are_those_of_the_recurrence(
    tmp_path: Path, imported, key_heads: int, tied: bool, eps: float
) -> None:
    weights = checkpoint(key_heads, tied)
    found = imported(write(tmp_path, weights, num_heads=key_heads, norm_eps=eps))
    assert found.format == "gated_deltanet"
    assert found.tensors == len(weights)
    wanted = expected(weights, key_heads, eps)
    torch.testing.assert_close(logits(found, TOKENS), wanted, rtol=1e-9, atol=1e-9)
    assert wanted.std() > 0.1


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"attn": {"layers": [1]}}, "attn"),
        ({"allow_neg_eigval": True}, "allow_neg_eigval True, which is not supported; it must be False"),
        ({"num_heads": 5}, "24 is not divisible by 5"),
    ],
)
def test_what_has_no_counterpart_is_refused(
    tmp_path: Path, imported, config: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        imported(write(tmp_path, checkpoint(), **config))


def test_missing_leftover_and_misshapen_tensors_are_named(tmp_path: Path, imported) -> None:
    weights = checkpoint()
    lacking = {k: v for k, v in weights.items() if k != "model.layers.1.attn.q_proj.weight"}
    with pytest.raises(ConfigError, match=r"lacks 'model\.layers\.1\.attn\.q_proj\.weight'\."):
        imported(write(tmp_path, lacking))
    more = weights | {f"model.layers.{i}.attn.rotary": torch.ones(2) for i in range(5)}
    with pytest.raises(
        ConfigError, match=r"no place here for 'model\.layers\.0\.attn\.rotary', .* and 2 more"
    ):
        imported(write(tmp_path, more))
    wide = weights | {"model.layers.1.mlp.down_proj.weight": torch.ones(D, HIDDEN + 1)}
    with pytest.raises(
        ConfigError, match=r"down_proj\.weight give shape \(16, 21\), but .*down\.weight has \(16, 20\)"
    ):
        imported(write(tmp_path, wide))
