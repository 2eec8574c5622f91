"""``crossbreed import-model``: a checkpoint and a genome that this program's own tools read."""

from __future__ import annotations

from pathlib import Path

import torch

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.host import Host
from crossbreed.core.lab import checkpoint
from crossbreed.core.model.language_model import LanguageModel
from tests.cli.conftest import Cli
from tests.foreign.test_amor import HEADS, on_gated_deltanet, write


def test_what_is_imported_shows_and_loads_here(cli: Cli, tmp_path: Path) -> None:
    weights, _ = on_gated_deltanet()
    (source := tmp_path / "theirs").mkdir()
    write(source, weights)
    out = tmp_path / "ours"
    found = cli("import-model", source, out, "--set", f"n_heads={HEADS}", "--json").json("import_model")
    assert (found["format"], found["tensors"]) == ("amor", len(weights))
    shown = cli("show", out / "genome.yaml", "--json").json("show")
    assert shown["hash"] == found["hash"]
    assert shown["ledger"]["parameters"] == found["parameters"]
    registry = Host.load()
    header = checkpoint.read_header(Artefacts.at(out), "model.safetensors")
    model = LanguageModel(registry.canonical(_genome(out)), registry)
    checkpoint.read(Artefacts.at(out), "model.safetensors", model, None, header)
    assert header.architecture == found["hash"]
    assert torch.equal(model.embedding.weight, weights["embed.weight"])
    again = cli("import-model", source, out, "--set", f"n_heads={HEADS}")
    assert (again.code, "holds model.safetensors already" in again.err) == (2, True)
    table = cli("import-model", source, tmp_path / "more", "--as", "amor", "--set", f"n_heads={HEADS}")
    assert f"{len(weights)} tensors of format amor" in table.out
    assert "gate: entropy_gate" in table.out


def _genome(out: Path):
    from crossbreed.core.genome import from_yaml

    return from_yaml((out / "genome.yaml").read_text())


def test_bad_input_is_a_sentence_and_leaves_no_file(cli: Cli, tmp_path: Path) -> None:
    for arguments in (
        [tmp_path / "nowhere", tmp_path / "out"],
        [tmp_path, tmp_path / "out", "--set", "n_heads"],
    ):
        result = cli("import-model", *arguments)
        assert result.code == 2
        assert result.err.startswith("crossbreed: ")
    assert not (tmp_path / "out").exists()
