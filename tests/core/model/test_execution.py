"""Whole models: skipping what is not read changes no result; repeats that share weights store them once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.genome import Architecture
from crossbreed.core.lab import checkpoint
from crossbreed.core.lab.checkpoint import Header
from crossbreed.core.model.language_model import LanguageModel
from tests.support.genomes import ATTENTION, EXPERTS, GENOMES, MAMBA2, architecture, block


def routed(genome: Architecture) -> bool:
    in_stages = any(stage.halt or any(b.gate for b in stage.blocks) for stage in genome.stages)
    return in_stages or genome.mode_router is not None


ROUTED = [name for name, genome in GENOMES.items() if routed(genome)]


def run(model: LanguageModel, tokens: torch.Tensor, execution: str, cuts: list[int]) -> torch.Tensor:
    """The whole text in pieces between ``cuts``, with random decisions at every site."""
    generator = torch.Generator().manual_seed(2)
    forced = {
        name: torch.randint(site.choices, tokens.shape, generator=generator)
        for name, site in sorted(model.sites().items())
    }
    state, outputs = model.init_state(len(tokens)), []
    for start, stop in zip([0, *cuts], [*cuts, tokens.shape[1]], strict=True):
        piece = tokens[:, start:stop]
        context = model.context(
            piece,
            phase="decode" if stop - start == 1 else "prefill",
            forced={name: choice[:, start:stop] for name, choice in forced.items()},
            state=state,
        )
        h, state = model(piece, context.at(execution=execution), state)
        outputs.append(h)
    return torch.cat(outputs, 1)


@pytest.mark.parametrize("cuts", [[], [7, 8, 9, 17]], ids=["whole", "pieces"])
@pytest.mark.parametrize("name", ROUTED)
@torch.no_grad()
def test_dense_sparse_and_auto_execution_agree(build, tokens, name: str, cuts: list[int]) -> None:
    model = build(GENOMES[name])
    dense = run(model, tokens, "dense", cuts)
    for execution in ("sparse", "auto"):
        torch.testing.assert_close(run(model, tokens, execution, cuts), dense, rtol=0, atol=1e-10)


def repeated(name: str, repeats: int) -> Architecture:
    blocks = [block(ATTENTION), block(MAMBA2), block(EXPERTS)]
    return architecture({"blocks": blocks, "depth": {"name": name, "repeats": repeats}})


def stored(model: LanguageModel, folder: Path) -> int:
    """Bytes of the tensors in the model's checkpoint."""
    header = Header(architecture="a" * 64, recipe={}, task={}, seed=0, step=0, tokens=0, rung=0)
    name = checkpoint.write(Artefacts.at(folder), "model.safetensors", model, None, header).name
    with safe_open(folder / name, "pt") as file:
        return sum(file.get_tensor(key).nbytes for key in file.keys())  # noqa: SIM118


def numbers(model: LanguageModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_weights_that_repeats_share_are_stored_once(build, tmp_path: Path) -> None:
    once, shared, own = (
        build(repeated(*depth)) for depth in (("layered", 1), ("recurrent", 4), ("layered", 4))
    )
    assert numbers(shared) == numbers(once)
    assert stored(shared, tmp_path) == stored(once, tmp_path)
    outside = sum(parameter.numel() for name, parameter in once.named_parameters() if "stages" not in name)
    assert numbers(own) - outside == 4 * (numbers(once) - outside)
    assert stored(own, tmp_path) > 2 * stored(shared, tmp_path)
