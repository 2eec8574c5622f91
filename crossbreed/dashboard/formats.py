"""How tables of candidates are shown by Streamlit."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

MISSING = "–"
"""In a cell that holds no number: what it would say does not apply, or is not measured."""
DASH = f"{MISSING}: not applicable, or not measured."


def candidate_formats(table: pd.DataFrame) -> dict[str, Any]:
    """How ``candidate_rows`` are shown: signed percents, prefixes for large counts; plain numbers underneath, so that
    sorting works."""
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    formats: dict[str, Any] = {c: number(format="%+.2f") for c in table.columns if c.startswith("Δ ")}
    formats |= {c: number(format="compact") for c in table.columns if "FLOPs" in c and c not in formats}
    formats |= {c: number(format="%.0f") for c in table.columns if c.endswith("tokens/s")}
    formats |= {"parameters": number(format="localized"), "memory, KiB": number(format="%.1f")}
    formats |= {"score": number(format="%.4f"), "family": text(width="medium")}
    formats |= {"lr": number(format="%.3g")}
    return formats | {"#": number(width=48), "front": text(width=52), "state": text(width=92)}
