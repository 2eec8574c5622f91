"""On a GPU: Gated DeltaNet equals fla's layer with its weights, copied by the table that imports its checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from crossbreed.foreign.files import Source
from crossbreed.foreign.gated_deltanet import mixer_rules, sublayer
from crossbreed.foreign.table import assemble
from tests.plugins.mixers.helpers import build, context


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [1, 48, 130])
@pytest.mark.parametrize("value_heads", [None, 4])
def test_gated_deltanet_equals_flas_layer(tokens: int, value_heads: int | None) -> None:
    layers = pytest.importorskip("fla.layers")
    torch.manual_seed(0)
    theirs = layers.GatedDeltaNet(
        hidden_size=64, head_dim=32, num_heads=2, num_v_heads=value_heads, expand_v=2, layer_idx=0
    ).cuda()
    source = Source(Path("fla"), {name: t.detach().cpu() for name, t in theirs.state_dict().items()}, {})
    ours = build(
        "gated_deltanet", sublayer(source, "", eps=1e-5, key_heads=2).params, d_model=64, dtype=torch.float32
    )
    ours.load_state_dict(assemble(mixer_rules(source, "", ""), source, ours.state_dict(), {}))
    x = torch.randn(2, tokens, 64)
    with torch.no_grad():
        # Their kernels round products to tf32 at best, ours on the CPU do not.
        wanted = theirs.eval()(x.cuda())[0].cpu()
        y, _ = ours(x, context(2, tokens), None)
    torch.testing.assert_close(y, wanted, rtol=2e-2, atol=2e-2 * wanted.abs().max().item())
