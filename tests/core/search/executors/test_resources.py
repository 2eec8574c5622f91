"""What a worker asks of a Ray cluster: the file, its rules, and Ray's options that follow from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crossbreed.core.errors import ConfigError
from crossbreed.core.search.executors import choose
from crossbreed.core.search.executors.resources import Resources
from tests.docs.pages import DOCS


def read(folder: Path, text: str) -> Resources:
    file = folder / "workers.yaml"
    file.write_text(text)
    return Resources.load(file)


def test_the_documented_file_is_what_ray_is_asked_for(tmp_path: Path) -> None:
    page = (DOCS / "clusters.md").read_text()
    (documented,) = re.findall(r"```yaml\n(gpus:.*?)```", page, flags=re.S)
    found = read(tmp_path, documented)
    assert found.options() == {
        "num_gpus": 0.5,
        "memory": 8_000_000_000,
        "resources": {"accelerator_type:A100": 0.01},
        "label_selector": {"ray.io/market-type": "on-demand"},
        "scheduling_strategy": "SPREAD",
    }
    assert found.runtime_env == {"env_vars": {"OMP_NUM_THREADS": "1"}}
    assert found.shown(2).startswith("2 CPU, 0.5 GPU, 8000000000 bytes of memory, 0.01 accelerator_type:A100")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus: 1.5", "whole above it"),
        ("gpus: -1", "gpus"),
        ("gpu: 1", "did you mean 'gpus'"),
        ("resources: {A100: 0}", "A100"),
        ("placement: random", "placement"),
        ("- 1", "must be a mapping"),
    ],
)
def test_a_file_that_cannot_be_meant_is_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, text)


def test_shares_of_gpus_fit_the_place() -> None:
    asked = Resources(resources={"A100": 1.0})
    assert choose("ray", device="cpu", resources=asked).resources.options()["num_gpus"] == 0
    # How many GPUs this machine has says nothing about a cluster's.
    cluster = choose("ray", device="cuda", workers=3, address="10.0.0.1:6379", resources=asked).resources
    assert (cluster.gpus, cluster.resources) == (1.0, {"A100": 1.0})
    half = choose("ray", device="cuda", workers=3, address="10.0.0.1:6379", resources=Resources(gpus=0.5))
    assert half.resources.gpus == 0.5
    with pytest.raises(ConfigError, match="workers run on device 'cpu'"):
        choose("ray", device="cpu", resources=Resources(gpus=0.5))
    with pytest.raises(ConfigError, match="asks no cluster for resources"):
        choose("inline", resources=asked)
