"""Mamba-2 checkpoints as transformers and mamba_ssm write them give the same logits here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from crossbreed.core.errors import ConfigError
from tests.foreign.conftest import logits

TOKENS = torch.randint(0, 29, (2, 17), generator=torch.Generator().manual_seed(4))


def transformers_model(**changes: Any) -> torch.nn.Module:
    from transformers import Mamba2Config, Mamba2ForCausalLM

    settings = {
        "vocab_size": 29,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_heads": 4,
        "head_dim": 8,
        "state_size": 6,
        "n_groups": 1,
        "chunk_size": 8,
        "tie_word_embeddings": True,
    }
    model = Mamba2ForCausalLM(Mamba2Config(**{**settings, **changes})).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": False},
        {"layer_norm_epsilon": 1e-3},
        {"use_conv_bias": False},
    ],
)
@pytest.mark.parametrize("how", [{}, {"max_shard_size": "2KB"}])
def test_logits_equal_transformers(
    tmp_path: Path, imported, how: dict[str, Any], changes: dict[str, Any]
) -> None:
    theirs = transformers_model(**changes)
    theirs.save_pretrained(tmp_path, **how)
    assert len(list(tmp_path.glob("*.safetensors"))) > (1 if how else 0)
    found = imported(tmp_path)
    assert found.format == "mamba2"
    assert found.architecture.tie_embeddings == changes.get("tie_word_embeddings", True)
    with torch.no_grad():
        wanted = theirs(TOKENS).logits
    torch.testing.assert_close(logits(found, TOKENS, torch.float32), wanted, rtol=1e-3, atol=1e-4)
    assert wanted.std() > 0.1


def state_spaces(folder: Path, theirs: torch.nn.Module, **config: Any) -> Path:
    """The same weights as mamba_ssm keeps them: another key for the embedding, a tied head written out, a torch file."""
    weights = {
        key.replace("backbone.embeddings.", "backbone.embedding."): value
        for key, value in theirs.state_dict().items()
    }
    weights.setdefault("lm_head.weight", weights["backbone.embedding.weight"])
    torch.save(weights, folder / "pytorch_model.bin")
    settings = {
        "d_model": 16,
        "n_layer": 2,
        "vocab_size": 27,
        "pad_vocab_size_multiple": 1,
        "ssm_cfg": {"layer": "Mamba2"},
    }
    (folder / "config.json").write_text(json.dumps({**settings, **config}))
    return folder


def test_a_checkpoint_of_mamba_ssm_is_read_from_a_torch_file(tmp_path: Path, imported) -> None:
    theirs = transformers_model()
    found = imported(state_spaces(tmp_path, theirs))
    with torch.no_grad():
        wanted = theirs(TOKENS).logits
    torch.testing.assert_close(logits(found, TOKENS, torch.float32), wanted, rtol=1e-3, atol=1e-4)
    assert found.architecture.tie_embeddings
    assert found.architecture.norm_eps == 1e-5


def test_norms_by_group_are_refused(tmp_path: Path, imported) -> None:
    transformers_model(n_groups=2).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="has 2 groups, each normalised apart"):
        imported(tmp_path)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"ssm_cfg": {"layer": "Mamba2", "ngroups": 2}}, "has 2 groups"),
        ({"attn_layer_idx": [1]}, r"attn_layer_idx \(1,\), which is not supported"),
        ({"time_step_limit": [0.0, 0.5]}, "time_step_limit"),
    ],
)
def test_what_the_mixer_here_does_not_do_is_refused(
    tmp_path: Path, imported, config: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        imported(state_spaces(tmp_path, transformers_model(), **config))
