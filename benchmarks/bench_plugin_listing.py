"""Seconds that ``crossbreed plugins`` takes with many plugins installed. Run: python benchmarks/bench_plugin_listing.py

Makes distributions of one router each in a temporary folder and lists them in processes of their own; the first run, which
compiles the modules, is left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODULE = """
from pydantic import BaseModel
from crossbreed import RouterCapabilities, RouterDescriptor, hookimpl

class Config(BaseModel):
    rate: float = 0.5

@hookimpl
def register_routers():
    able = RouterCapabilities(sites=("gate",))
    return [RouterDescriptor("bench_{i}", "nowhere:Gate", Config, able, "a router to be listed")]
"""


def install(site: Path, plugins: int) -> None:
    for i in range(plugins):
        (site / f"bench_plugin_{i}.py").write_text(MODULE.format(i=i))
        info = site / f"bench_plugin_{i}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: bench-plugin-{i}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[crossbreed]\nbench_{i} = bench_plugin_{i}\n")


def listed_in(site: Path) -> float:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "crossbreed", "plugins"], env=environment, check=True, capture_output=True
    )
    return time.perf_counter() - begin


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--plugins", type=int, nargs="*", default=[0, 50])
    options.add_argument("--repeats", type=int, default=5)
    asked = options.parse_args()
    for plugins in asked.plugins:
        with tempfile.TemporaryDirectory() as folder:
            install(Path(folder), plugins)
            seconds = [listed_in(Path(folder)) for _ in range(asked.repeats + 1)][1:]
        shown = " ".join(f"{value:.2f}" for value in seconds)
        print(f"{plugins:4d} plugins: median {statistics.median(seconds):.2f} s   repeats: {shown}")


if __name__ == "__main__":
    main()
