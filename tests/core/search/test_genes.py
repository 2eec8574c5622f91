"""Which gene matters: a planted effect is found with its size, and noise is called an effect in 5% of studies."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from crossbreed.core.search.candidates import Candidate, read
from crossbreed.core.search.genes import Genes, effects, subject
from tests.core.search.results import SCORE, row, scored, seed

FACTORS: dict[str, tuple[Any, ...]] = {
    "layer0.sequence": ("attention", "mamba2", "gated_deltanet"),
    "layer1.sequence": ("attention", "mamba2"),
    "channel": ("swiglu", "experts"),
    "width": (16, 32, 64),
}
GRID = [dict(zip(FACTORS, values, strict=True)) for values in product(*FACTORS.values())]


def studied(scores: list[float], draws: list[dict[str, Any]]) -> Genes:
    found = scored({n: [s] for n, s in enumerate(scores)}, draws=dict(enumerate(draws)))
    return judged(found)


def judged(found: list[Candidate], genomes: dict[int, Any] | None = None) -> Genes:
    subjects = [subject(c, (genomes or {}).get(c.row.number), SCORE) for c in found]
    return effects([s for s in subjects if s is not None], ["score"])


def test_a_planted_effect_is_found_with_its_size() -> None:
    random = np.random.default_rng(0)
    scores = [
        0.5 + 0.05 * (d["channel"] == "experts") + 0.001 * d["width"] + random.normal(0, 0.02) for d in GRID
    ]
    found = studied(scores, GRID)
    best = next(e for e in found.effects if e.gene == "channel")
    assert (best.before, best.after) == ("experts", "swiglu")
    assert best.paired.pairs == 18
    assert best.paired.interval is not None
    assert best.paired.interval.low < -0.05 < best.paired.interval.high < 0
    assert best.corrected < 0.001
    # Of the widths, 16 against 64 differs most: 0.048.
    widths = {(e.before, e.after): e for e in found.effects if e.gene == "width"}
    assert widths[16, 64].paired.mean == pytest.approx(0.048, abs=0.015)
    assert all(e.corrected > 0.05 for e in found.effects if e.gene.startswith("layer"))


def test_noise_is_called_an_effect_in_about_5_percent_of_studies() -> None:
    random = np.random.default_rng(7)
    studies = 200
    wrong = sum(
        any(e.corrected < 0.05 for e in studied(list(random.normal(0.5, 0.02, size=len(GRID))), GRID).effects)
        for _ in range(studies)
    )
    # The expectation is at most 10; 18 or more would come by chance in 1% of such tests.
    assert 1 <= wrong < 18


def test_pairs_that_differ_in_a_second_gene_do_not_count() -> None:
    draws = [{"a": n % 2, "b": n} for n in range(10)]
    found = studied([0.1 * n for n in range(10)], draws)
    assert found.effects == ()
    assert found.untested == ("a", "b")


def test_settings_that_a_choice_brings_with_it_belong_to_the_choice() -> None:
    draws = []
    for width in (1, 2, 3):
        draws.append({"width": width, "gate": "none"})
        draws.append({"width": width, "gate": "learned", "gate.learned.hidden": 8})
        draws.append(
            {"width": width, "layer0.sequence": "mamba2", "mamba2.state": 16 * width, "gate": "none"}
        )
        draws.append({"width": width, "layer0.sequence": "attention", "attention.window": 32})
    found = studied([0.5 + 0.1 * (i % 4) for i in range(12)], draws)
    told = {(e.gene, e.before, e.after): e.paired.mean for e in found.effects}
    assert told["gate", "learned", "none"] == pytest.approx(-0.1)
    assert told["layer0.sequence", "attention", "mamba2"] == pytest.approx(-0.1)


def test_a_setting_that_two_choices_brought_in_stays_in_the_context() -> None:
    """With attention in both layers its window is still there when one of them changes, so it must be equal."""
    draws = []
    for width in range(3):
        draws.append({"l0": "attention", "l1": "attention", "attention.window": 32, "w": width})
        draws.append({"l0": "mamba2", "l1": "attention", "attention.window": 64, "w": width})
    assert not [e for e in studied([0.1 * i for i in range(6)], draws).effects if e.gene == "l0"]


def test_genes_that_always_change_together_are_one() -> None:
    draws = [{"x.norm": n, "y.norm": n, "z": z} for n in ("pre", "sandwich") for z in range(3)]
    found = studied([0.1, 0.2, 0.3, 0.2, 0.3, 0.41], draws)
    (effect,) = [e for e in found.effects if e.gene != "z"]
    assert effect.gene == "*.norm"
    assert effect.paired.mean == pytest.approx(0.31 / 3)


def genome(mixer: str, norm: str, gate: str | None, heads: int = 2, hidden: int = 64) -> dict[str, Any]:
    params = {"heads": heads} if mixer == "attention" else {"state": 16}
    block = {
        "sublayers": [{"mixer": mixer, "params": params}, {"mixer": "swiglu", "params": {"hidden": hidden}}],
        "norm": norm,
        "gate": None if gate is None else {"name": gate, "params": {"width": 3}},
    }
    stage = {"blocks": [block, block], "depth": {"name": "layered", "repeats": 1, "params": {}}}
    return {"d_model": 16, "stages": [stage]}


def test_genomes_that_were_not_drawn_are_read_field_by_field() -> None:
    genomes, rows = {}, []
    cases = list(product(("attention", "mamba2"), ("pre", "sandwich"), (None, "learned")))
    for number, (mixer, norm, gate) in enumerate(cases):
        # What the matcher moved differs from candidate to candidate, and is not held against a pair.
        genomes[number] = genome(mixer, norm, gate, hidden=64 + number)
        value = 0.5 + 0.1 * (mixer == "mamba2") + 0.03 * (gate is not None) + 0.0001 * number
        dimensions = {"certificate": {"dimensions": {"swiglu[0].hidden": 64 + number}}}
        rows.append(row(number, [seed(0, value)], origin="named", **dimensions))
    told = {e.gene: e for e in judged(read(rows, SCORE), genomes).effects}
    assert told.keys() == {
        "stages.0.blocks.*.sublayers.0",
        "stages.0.blocks.*.norm",
        "stages.0.blocks.*.gate",
    }
    mixers = told["stages.0.blocks.*.sublayers.0"]
    assert (mixers.before, mixers.after) == ("attention", "mamba2")
    assert mixers.paired.mean == pytest.approx(0.1, abs=0.001)
    assert told["stages.0.blocks.*.gate"].paired.mean == pytest.approx(-0.03, abs=0.001)
    assert told["stages.0.blocks.*.norm"].paired.mean == pytest.approx(0.0002)


def test_differences_are_taken_on_shared_seeds() -> None:
    """Seeds that only one side has, and that are lucky ones, do not count where others are shared."""
    draws, scores = {}, {}
    for pair in range(3):
        draws[2 * pair] = {"a": 0, "b": pair}
        draws[2 * pair + 1] = {"a": 1, "b": pair}
        scores[2 * pair] = [0.5, 0.6, 0.9]
        scores[2 * pair + 1] = [0.52, 0.62]
    (effect,) = [e for e in judged(scored(scores, draws=draws)).effects if e.gene == "a"]
    assert effect.paired.mean == pytest.approx(0.02)


def test_report_runs_are_compared_with_report_runs_and_tuning_with_tuning() -> None:
    """The run that chose a setting is too good: beside fresh runs of another candidate it would look like an effect."""
    rows = []
    for pair in range(3):
        for a in (0, 1):
            runs = [seed(0, 0.9 + 0.01 * a, role="tune")]
            # Only one side is confirmed, by worse numbers.
            runs += [seed(i, 0.5) for i in (1, 2, 3)] if a == 0 else []
            rows.append(row(2 * pair + a, runs, draws={"a": a, "b": pair}))
    (effect,) = [e for e in judged(read(rows, SCORE)).effects if e.gene == "a"]
    assert effect.paired.mean == pytest.approx(0.01)
