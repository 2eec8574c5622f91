"""Backends are compared with the reference by the worker that is to serve them, and refused by name where they are wrong."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

from crossbreed.core.errors import WrongBackend
from crossbreed.core.genome import Architecture, Block, DepthPolicy, Stage, Sublayer
from crossbreed.core.host import Host, PluginFile
from crossbreed.core.lab import probe as probes
from crossbreed.core.lab.probe import probe
from crossbreed.core.lab.records import Finished, Started
from crossbreed.core.ops import kernels

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def twins():
    return PluginFile.read(Path(__file__).with_name("twin_parts.py"))


@pytest.fixture(scope="module")
def registry(twins):
    return Host.load([twins], third_party=False)


def holding(mixer: str = "twin", **params) -> dict:
    return {
        "vocab": 20,
        "d_model": 16,
        "stages": [{"blocks": [{"sublayers": [{"mixer": mixer, "params": params}]}]}],
    }


def probed(registry, where=CPU, backend="auto", dtype="float32", **params):
    architecture = registry.canonical(Architecture.model_validate(holding(**params)))
    return probe(architecture, registry, where, backend=backend, dtype=dtype)


def test_a_right_backend_is_recorded_with_what_it_differed_by(registry):
    (found,) = probed(registry)
    assert (found.mixer, found.backend, found.dtype) == ("twin", "fused", "float32")
    assert 0 < found.error <= found.allowed < 1e-2


@pytest.mark.parametrize(
    ("fault", "where"),
    [
        ("tail", "outputs of 130 tokens"),
        ("state", "outputs in pieces"),
        ("gradient", "gradients of 130 tokens"),
        ("nan", "by inf of the largest"),
        ("raise", "no kernel image is available"),
    ],
)
def test_a_wrong_backend_is_refused_with_what_is_wrong_about_it(registry, fault, where):
    with pytest.raises(WrongBackend, match=f"backend 'fused' of mixer 'twin' on .* fails its probe.*{where}"):
        probed(registry, fault=fault)


def test_a_fault_of_another_device_is_none_here(registry):
    assert probed(registry, fault="tail", device="cuda")


def test_the_reference_alone_is_not_compared(registry):
    assert probed(registry, mixer="swiglu") == []
    (same,) = probed(registry, backend="reference", fault="tail")
    assert (same.backend, same.error) == ("reference", 0.0)


OURS = {
    "swiglu": ("crossbreed.plugins.mixers.swiglu.silu_times", {"hidden": 24}),
    "experts": ("crossbreed.plugins.mixers.experts.routed_swiglu", {"experts": 4, "hidden": 8}),
    "depth_attention": (
        "crossbreed.plugins.mixers.depth_reader.depth_attention",
        {"heads": 2, "head_size": 8},
    ),
    "mamba2": ("crossbreed.plugins.mixers.sequence.short_conv", {"heads": 2, "state_size": 8}),
}
"""By mixer, an operation that has a kernel of our own on a CUDA device."""


@pytest.fixture
def ours(monkeypatch):
    """Operations have kernels of our own here, too; what they compute is given."""
    monkeypatch.setattr(probes, "_kernels_of_our_own", lambda device: True)
    monkeypatch.setattr(probes, "_ANSWERS", {})

    def ours(mixer, kernel):
        where, params = OURS[mixer]
        module, _, name = where.rpartition(".")
        operation = getattr(importlib.import_module(module), name)

        def either(*given, **named):
            found = operation(*given, **named)
            return found if kernels._PLAIN.get() else kernel(found)

        monkeypatch.setattr(where, either)
        return params

    return ours


def scaled(found, factor):
    return (scaled(found[0], factor), *found[1:]) if isinstance(found, tuple) else found * factor


@pytest.mark.parametrize("mixer", OURS)
def test_kernels_of_our_own_are_compared_with_the_reference_under_auto_alone(registry, ours, mixer):
    params = ours(mixer, lambda found: scaled(found, 1.0 + 1e-6))
    (found,) = probed(registry, mixer=mixer, **params)
    assert found.mixer == mixer
    assert 0 < found.error <= found.allowed < 0.1
    assert all(alone.error == 0 for alone in probed(registry, backend="reference", mixer=mixer, **params))


@pytest.mark.parametrize("mixer", OURS)
def test_a_wrong_kernel_of_our_own_is_refused_with_the_mixer_that_it_serves(registry, ours, mixer):
    params = ours(mixer, lambda found: scaled(found, 1.5))
    with pytest.raises(WrongBackend, match=f"of mixer '{mixer}' on .* fails its probe"):
        probed(registry, mixer=mixer, **params)


@pytest.mark.parametrize("turned", [1, probes.STIRS, None])
def test_what_one_of_many_changes_of_last_bits_does_to_the_reference_is_no_fault(
    registry, ours, monkeypatch, turned
):
    params = ours("swiglu", lambda found: scaled(found, 1.2))
    computed, stirs = probes._computed, []

    def counted(model, *given):
        found = computed(model, *given)
        # First come two of the reference as it is, and that of the backend.
        stirs.append(len(stirs) - 2)
        return {name: x * 1.3 for name, x in found.items()} if stirs[-1] == turned else found

    monkeypatch.setattr(probes, "_computed", counted)
    if turned is None:
        with pytest.raises(WrongBackend, match=r"differ from the reference's by 0\.\d+ of the largest"):
            probed(registry, mixer="swiglu", **params)
    else:
        (found,) = probed(registry, mixer="swiglu", **params)
        assert 0.1 < found.error <= found.allowed
    assert stirs[-1] == (turned or probes.STIRS)


@pytest.mark.parametrize(("mixer", "refused"), [("swiglu", False), ("mamba2", True)])
def test_where_the_reference_overflows_only_a_mixer_with_backends_is_refused(
    registry, ours, monkeypatch, mixer, refused
):
    params = ours(mixer, lambda found: found)
    monkeypatch.setattr(probes, "LOUD", float("inf"))
    if refused:
        with pytest.raises(WrongBackend, match="cannot be probed: the reference's outputs are not finite"):
            probed(registry, mixer=mixer, **params)
    else:
        assert probed(registry, mixer=mixer, **params) == []


def test_beside_a_forced_backend_mixers_without_it_are_probed_as_they_are_built(registry, ours):
    ours("swiglu", lambda found: scaled(found, 1.5))
    sublayers = [{"mixer": "twin"}, {"mixer": "swiglu"}]
    data = {**holding(), "stages": [{"blocks": [{"sublayers": sublayers}]}]}
    with pytest.raises(WrongBackend, match="backend 'auto' of mixer 'swiglu'"):
        probe(
            registry.canonical(Architecture.model_validate(data)),
            registry,
            CPU,
            backend="fused",
            dtype="float32",
        )


def test_one_question_is_answered_once_a_process(registry, monkeypatch):
    first = probed(registry)
    asked = []
    monkeypatch.setattr(probes, "_answer", lambda *question: asked.append(question))
    assert probed(registry) == first
    assert not asked


def test_a_worker_refuses_a_mixer_whose_backend_fails_and_takes_no_other_one(job, records_of, twins):
    records = records_of(job(holding(fault="tail"), plugins=(twins,)))
    (finished,) = records
    assert isinstance(finished, Finished)
    assert finished.state == "failed"
    assert "backend 'fused' of mixer 'twin'" in finished.cause


def test_a_worker_records_its_probes_with_the_run(job, records_of, twins):
    started, *_, finished = records_of(job(holding(), plugins=(twins,), phases=("train",)))
    assert finished == Finished("done"), finished.traceback
    assert isinstance(started, Started)
    (found,) = started.environment["probes"]
    assert (found["mixer"], found["backend"]) == ("twin", "fused")
    assert found["error"] <= found["allowed"]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_backend_that_is_wrong_on_cuda_alone_is_refused_there(registry, dtype):
    cuda = torch.device("cuda")
    (right,) = probed(registry, cuda, dtype=dtype)
    assert right.error <= right.allowed < 0.2
    for fault in ("tail", "state", "gradient", "nan", "raise"):
        with pytest.raises(WrongBackend, match="fails its probe"):
            probed(registry, cuda, dtype=dtype, fault=fault, device="cuda")


@pytest.mark.gpu
def test_what_many_layers_make_of_rounding_is_not_held_against_a_backend():
    registry = Host.load()
    attention = Sublayer(mixer="attention", params={"heads": 4, "head_size": 32})
    stage = Stage(blocks=(Block(sublayers=(attention,)),), depth=DepthPolicy(name="layered", repeats=8))
    (found,) = probe(
        registry.canonical(Architecture(vocab=64, d_model=128, stages=(stage,))),
        registry,
        torch.device("cuda"),
        backend="sdpa",
        dtype="bfloat16",
    )
    assert (found.backend, found.error <= found.allowed < 1) == ("sdpa", True)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("d_model", [96, 512])
@pytest.mark.parametrize("mixer", OURS)
def test_kernels_of_our_own_pass_on_a_cuda_device(registry, mixer, d_model, dtype):
    _, params = OURS[mixer]
    sublayer = Sublayer(mixer=mixer, params=params)
    stage = Stage(blocks=(Block(sublayers=(sublayer,)),), depth=DepthPolicy(name="recurrent", repeats=2))
    architecture = registry.canonical(Architecture(vocab=64, d_model=d_model, stages=(stage,)))
    cuda = torch.device("cuda")
    (found,) = probe(architecture, registry, cuda, backend="auto", dtype=dtype)
    assert found.mixer == mixer
    assert found.error <= found.allowed
