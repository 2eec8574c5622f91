"""The user's path: a router in one file, listed, searched without any other edit, on the front, and in the browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import expect

from tests.cli.studies import write_study
from tests.dashboard.browser import Chromium, picture, serving, settled

ROUTER = '''
"""Runs a block at every eighth token only."""

import torch
from pydantic import BaseModel

from crossbreed import Decision, Router, RouterCapabilities, RouterDescriptor, hookimpl


class Config(BaseModel, frozen=True, extra="forbid"):
    period: int = 8


class EveryEighth(Router, torch.nn.Module):
    def __init__(self, config, build):
        super().__init__()
        self.period = config.period

    def forward(self, h_BTD, context, state):
        return Decision((context.positions_BT % self.period == 0).long()), state

    @staticmethod
    def rates(config, kind, choices):
        return 1 - 1 / config.period, 1 / config.period


@hookimpl
def register_routers():
    able = RouterCapabilities(sites=("gate",))
    return [RouterDescriptor("every_eighth", EveryEighth, Config, able, "every eighth token")]
'''


def crossbreed(*arguments: str | Path, cwd: Path) -> str:
    """Standard output of a command that must succeed."""
    command = [sys.executable, "-c", "from crossbreed.cli import main; main()", *map(str, arguments)]
    # Without COLUMNS (test runners set it) a piped table is as wide as it needs to be.
    environment = {k: v for k, v in os.environ.items() if k not in ("CROSSBREED_DB", "COLUMNS")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_router_in_one_file_reaches_the_front_and_the_browser(tmp_path: Path, browser: Chromium) -> None:
    plugin = tmp_path / "every_eighth.py"
    plugin.write_text(ROUTER.strip() + "\n")
    assert len(plugin.read_text().splitlines()) < 30

    assert "every_eighth" in crossbreed("plugins", "--plugin", plugin, cwd=tmp_path)
    assert "every_eighth" not in crossbreed("plugins", cwd=tmp_path)

    # The gate that runs least is the cheapest to decode, so it stands on the front whatever the scores are.
    study = write_study(
        tmp_path / "study.yaml",
        name="path",
        space={"routers": "all"},
        objectives={"score": "max", "decode_flops_per_token": "min"},
        search={"trials": 3, "forced_rates": [0.22]},
    )
    printed = crossbreed("search", study, "--plugin", plugin, "--workers", 1, cwd=tmp_path)
    assert "attention/gate:every_eighth" in printed
    front = json.loads(crossbreed("front", "path", "--json", cwd=tmp_path))
    families = [row["family"] for row in front["candidates"] if row["on_front"]]
    assert "attention/gate:every_eighth" in families

    database = str(tmp_path / "crossbreed.db")
    with serving(database, tmp_path) as server, browser.open() as page:
        page.goto(server.url("front", study="path"))
        settled(page)
        expect(page.get_by_text("attention/gate:every_eighth").first).to_be_visible()
        picture(page, "user-path")
