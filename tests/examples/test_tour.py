"""The notebook runs from top to bottom and ends with a front."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"
BRIEF = """
from crossbreed.core.lab import profile
profile.DECODE_STEPS, profile.PREFILL_TOKENS = 5, 32
"""
"""Put before the first cell: how fast the candidates are is no matter here."""


def test_the_tour_runs_from_top_to_bottom(tmp_path):
    notebook = nbformat.read(EXAMPLES / "tour.ipynb", as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(BRIEF))
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert "'done'" in outputs[-3][-1]["data"]["text/plain"]
    table, front = (outputs[i][-1]["data"]["text/plain"] for i in (-2, -1))
    assert "mamba2" in table
    assert "decode_tokens_per_s" in front
