"""Who computes: what serves on which device and in which dtype, and what is refused."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.conformance.suite import check
from crossbreed.core.contracts.mixer import MixerBuild
from crossbreed.core.errors import MissingCapability
from crossbreed.core.genome import Architecture, Block, Stage, Sublayer
from crossbreed.core.lab.environment import backends as stated
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.plugins.mixers import backends
from tests.plugins.mixers.helpers import PARTS

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def installed(monkeypatch):
    """Every library is there."""
    monkeypatch.setattr(backends, "_absent", lambda backend: "")


def hybrid() -> Architecture:
    blocks = [
        Block(sublayers=(Sublayer(mixer=name), Sublayer(mixer="swiglu")))
        for name in ("attention", "gated_deltanet")
    ]
    return Architecture(vocab=16, d_model=32, stages=(Stage(blocks=tuple(blocks)),))


@pytest.mark.parametrize(
    ("requested", "device", "dtype", "serves"),
    [
        ("auto", CPU, torch.bfloat16, "reference"),
        ("auto", CUDA, torch.float32, "reference"),
        ("auto", CUDA, torch.float64, "reference"),
        ("auto", CUDA, torch.bfloat16, "sdpa"),
        ("auto", CUDA, torch.float16, "sdpa"),
        ("flash_attn", CUDA, torch.bfloat16, "flash_attn"),
        ("reference", CUDA, torch.bfloat16, "reference"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_fused_kernels_serve_16_bits_on_a_device_and_the_reference_everything_else(
    requested, device, dtype, serves
):
    assert backends.serving(requested, backends.SOFTMAX, device, dtype, (64, 64)) == serves


def test_the_reference_serves_where_a_library_is_missing(monkeypatch):
    monkeypatch.setattr(backends, "_absent", lambda backend: backend)
    assert backends.serving("auto", backends.SOFTMAX, CUDA, torch.bfloat16) == "reference"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("backend", "fused", "sizes"),
    [
        ("flash_attn", backends.SOFTMAX, (64, 128)),
        ("flash_attn", backends.SOFTMAX, (20, 20)),
        ("fla", backends.DELTA, (64, 512)),
    ],
)
def test_sizes_that_a_forced_kernel_does_not_take_are_refused_with_the_rule(backend, fused, sizes):
    with pytest.raises(
        MissingCapability,
        match=rf"'{backend}' takes .*, but this mixer's key and value sizes are \({sizes[0]}",
    ):
        backends.serving(backend, fused, CUDA, torch.bfloat16, sizes)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("device", "dtype"), [(CPU, torch.bfloat16), (CUDA, torch.float32)])
def test_a_forced_kernel_that_cannot_serve_is_refused_and_nothing_takes_its_place(device, dtype):
    with pytest.raises(
        MissingCapability,
        match=f"'fla' computes in bfloat16 or float16 on a CUDA device, but this is {dtype}",
    ):
        backends.serving("fla", backends.DELTA, device, dtype)


def test_a_forced_kernel_whose_library_is_missing_is_named_with_the_extra_that_has_it(monkeypatch):
    monkeypatch.setattr(backends, "_absent", lambda backend: "fla")
    with pytest.raises(
        MissingCapability, match=r"'fla' of mixer 'gated_deltanet' needs the module 'fla'.*extra 'cuda'"
    ):
        PARTS.factory("mixer", "gated_deltanet")(
            PARTS.config("mixer", "gated_deltanet", {}), MixerBuild(8, backend="fla", parts=PARTS)
        )


@pytest.mark.usefixtures("installed")
def test_beside_the_mixer_that_has_the_forced_kernel_others_compute_as_they_would_of_themselves():
    model = LanguageModel(hybrid(), PARTS, backend="fla")
    requested = [
        reader.requested for block in model.stages[0].weight_sets[0] for reader in block.mixers[0].readers
    ]
    assert requested == ["auto", "fla"]


def test_a_kernel_that_no_mixer_has_is_refused_with_those_they_have():
    with pytest.raises(
        MissingCapability,
        match=r"'abacus' is forced, but no mixer .* has it; theirs: fla, flash_attn, reference, sdpa",
    ):
        LanguageModel(hybrid(), PARTS, backend="abacus")


def test_a_model_on_a_cpu_states_that_the_reference_computes():
    assert set(stated(LanguageModel(hybrid(), PARTS)).values()) == {"reference"}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["attention", "mamba2", "gated_deltanet", "multi_mixer"])
def test_every_backend_computes_what_the_reference_computes(name):
    report = check(PARTS, "mixer", name, "suite")
    (outcome,) = [outcome for outcome in report.outcomes if outcome.rule.name == "backends"]
    assert outcome.status == "passed", str(outcome)


@pytest.mark.gpu
def test_a_model_under_autocast_states_the_kernels_that_serve_it():
    model = LanguageModel(hybrid(), PARTS).to("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        assert set(stated(model).values()) >= {"sdpa"}
