"""Predicted seconds: the roofline against sums made by hand, the measured model against a law that it must find."""

from __future__ import annotations

from typing import Any

import pytest

from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.ledger import Shape
from tests.support.genomes import ATTENTION, GENOMES, MAMBA2, architecture, block

DEVICE = {
    "name": "toy",
    "matrix_flops_per_s": {"float32": 1e9, "bfloat16": 4e9},
    "copy_bytes_per_s": 1e8,
    "launch_s": 1e-6,
}


def model(registry: Registry, name: str, **params: Any) -> CostModel:
    made: CostModel = registry.factory("cost", name)(registry.config("cost", name, params), registry)
    return made


def layers(registry: Registry, count: int, hidden: int) -> Architecture:
    swiglu = {"mixer": "swiglu", "params": {"hidden": hidden}}
    return registry.canonical(
        architecture({"blocks": [block(ATTENTION), block(MAMBA2), block(swiglu)] * count})
    )


class TestRoofline:
    def test_each_part_takes_its_arithmetic_or_its_memory_and_its_launches(self, registry: Registry) -> None:
        genome = registry.canonical(GENOMES["transformer"])
        ledger = model(registry, "roofline", launches_per_run=10).estimate(genome, Shape(2, 32), DEVICE)
        assert ledger.prediction is not None
        part = next(p for p in ledger.parts if p.name == "swiglu")
        found = ledger.prediction.part_seconds_per_token[part.site]
        # The two layers are one part, that runs twice, each time with weights of its own.
        assert part.runs == 2
        flops, tokens, launches = 2.0 * part.parameters, 64, part.runs * 10e-6
        moved = 4 * part.parameters + 2 * part.kept_bytes_per_token * tokens
        assert found["prefill"] == pytest.approx(max(flops / 1e9, moved / 1e8 / tokens) + launches / tokens)
        assert found["train"] == pytest.approx(
            max(3 * flops / 1e9, 3 * moved / 1e8 / tokens) + 3 * launches / tokens
        )
        # Decoding two rows reads the weights once for both.
        assert found["decode"] == pytest.approx(
            max(flops / 1e9, 4 * part.parameters / 1e8 / 2) + launches / 2
        )

    def test_the_whole_is_the_sum_of_its_parts(self, registry: Registry) -> None:
        genome = registry.canonical(GENOMES["amor"])
        prediction = model(registry, "roofline").estimate(genome, Shape(1, 32), DEVICE).prediction
        assert prediction is not None
        for phase, seconds in prediction.seconds_per_token.items():
            parts = [part[phase] for part in prediction.part_seconds_per_token.values()]
            assert seconds == pytest.approx(sum(parts))
        assert prediction.device == "toy"

    def test_it_counts_as_the_analytic_model_does(self, registry: Registry) -> None:
        genome, shape = registry.canonical(GENOMES["halting"]), Shape(1, 48)
        plain = model(registry, "analytic").estimate(genome, shape).as_dict()
        assert {
            **model(registry, "roofline").estimate(genome, shape, DEVICE).as_dict(),
            "prediction": None,
        } == plain

    def test_without_ceilings_or_in_a_dtype_never_measured_it_refuses(self, registry: Registry) -> None:
        genome, roofline = registry.canonical(GENOMES["mamba2"]), model(registry, "roofline")
        with pytest.raises(ConfigError, match="needs the ceilings of a device"):
            roofline.estimate(genome, Shape(1, 8))
        with pytest.raises(ConfigError, match=r"'toy' was measured in bfloat16, float32, not in float16"):
            roofline.estimate(genome, Shape(1, 8, "float16"), DEVICE)


class TestMeasured:
    SHAPE = Shape(1, 32)

    def profiles(self, registry: Registry, noise: float = 0.0) -> dict[str, Any]:
        """Decode times that follow a law of weight bytes and runs, with an error that alternates in sign."""
        analytic, found = model(registry, "analytic"), []
        for i, (count, hidden) in enumerate(
            [(1, 8), (1, 64), (2, 16), (2, 96), (3, 32), (3, 80), (4, 24), (4, 64)]
        ):
            genome = layers(registry, count, hidden)
            ledger = analytic.estimate(genome, self.SHAPE)
            runs = sum(part.runs for part in ledger.parts)
            weights = ledger.decode_traffic_bytes_per_token
            weights -= sum(part.state_traffic_bytes_per_token for part in ledger.parts)
            seconds = (2e-9 * weights + 3e-5 * runs + 1e-4) * (1 + noise * (-1) ** i)
            found.append(
                {
                    "architecture": genome.model_dump(mode="json"), "rates": None, "phase": "decode", "batch": 1,
                    "tokens": 32, "dtype": "float32", "device": "toy", "policy": "best", "compiled": False,
                    "seconds_per_token": seconds,
                }
            )  # fmt: skip
        return {"name": "toy", "profiles": found}

    def test_a_law_in_the_profiles_is_found(self, registry: Registry) -> None:
        genome = layers(registry, 2, 48)
        ledger = model(registry, "measured").estimate(genome, self.SHAPE, self.profiles(registry))
        assert ledger.prediction is not None
        runs = sum(part.runs for part in ledger.parts)
        weights = ledger.decode_traffic_bytes_per_token
        weights -= sum(part.state_traffic_bytes_per_token for part in ledger.parts)
        wanted = 2e-9 * weights + 3e-5 * runs + 1e-4
        assert ledger.prediction.seconds_per_token == {"decode": pytest.approx(wanted, rel=0.01)}
        assert ledger.prediction.relative_error["decode"] < 0.01

    def test_its_error_is_that_on_architectures_held_out(self, registry: Registry) -> None:
        device = self.profiles(registry, noise=0.2)
        prediction = (
            model(registry, "measured").estimate(layers(registry, 2, 48), self.SHAPE, device).prediction
        )
        assert prediction is not None
        assert 0.1 < prediction.relative_error["decode"] < 0.6

    def test_outside_what_was_profiled_it_answers_only_when_asked(self, registry: Registry) -> None:
        device, large = self.profiles(registry), layers(registry, 9, 128)
        with pytest.raises(
            ConfigError, match=r"saw decode passes of .* FLOPs, and this one has .*extrapolate"
        ):
            model(registry, "measured").estimate(large, self.SHAPE, device)
        ledger = model(registry, "measured", extrapolate=True).estimate(large, self.SHAPE, device)
        assert ledger.prediction is not None
        assert ledger.prediction.seconds_per_token["decode"] > 0

    def test_keys_are_never_mixed(self, registry: Registry) -> None:
        device, genome = self.profiles(registry), layers(registry, 2, 48)
        for shape in (Shape(2, 32), Shape(1, 64), Shape(1, 32, "bfloat16")):
            with pytest.raises(ConfigError, match="has no profiles at batch"):
                model(registry, "measured").estimate(genome, shape, device)
        with pytest.raises(ConfigError, match="under policy 'reference'"):
            model(registry, "measured", policy="reference").estimate(genome, self.SHAPE, device)
        with pytest.raises(ConfigError, match="has no profiles"):
            model(registry, "measured").estimate(genome, self.SHAPE, {**device, "name": "another"})

    def test_too_few_profiles_are_named(self, registry: Registry) -> None:
        device = self.profiles(registry)
        device["profiles"] = device["profiles"][:3]
        with pytest.raises(ConfigError, match=r"decode profiles of 3 architectures .* needs 6"):
            model(registry, "measured").estimate(layers(registry, 2, 48), self.SHAPE, device)
        with pytest.raises(ConfigError, match="needs stored profiles"):
            model(registry, "measured").estimate(layers(registry, 2, 48), self.SHAPE, {"name": "toy"})
