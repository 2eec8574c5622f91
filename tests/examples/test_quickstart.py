"""The quickstart study covers every part under one budget, and becomes byte-level modelling by one line."""

from __future__ import annotations

import pydoc_data.topics
from pathlib import Path

import yaml

from crossbreed.core.budget.matcher import match
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.search.proposals import Proposer
from crossbreed.core.search.study import Study
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import resolve

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.yaml"


def mixers(architecture: Architecture) -> set[str]:
    return {sublayer.mixer for _, sublayer in architecture.sublayers()}


def gates(architecture: Architecture) -> set[str]:
    blocks = [block for stage in architecture.stages for block in stage.blocks]
    return {block.gate.name for block in blocks if block.gate is not None}


def test_candidates_cover_every_part_and_all_but_the_dense_recurrent_one_fit(registry: Registry) -> None:
    setting = resolve(StudyFile.load(QUICKSTART), registry)
    starts = Proposer(setting.space, setting.setting, ["max", "max"]).starting_points()
    found = [
        match(registry.canonical(s.architecture), setting.budget, registry, setting.cost_model)
        for s in starts
    ]
    fit = [m.architecture for m in found if m.certificate.feasible]
    assert len(fit) >= 12
    assert set().union(*map(mixers, fit)) == {"attention", "mamba2", "gated_deltanet", "multi_mixer"} | {
        "swiglu",
        "experts",
    }
    routers = {"entropy_gate", "segment_random", "learned"}
    assert set().union(*map(gates, fit)) == routers
    assert {a.mode_router.name for a in fit if a.mode_router is not None} == routers
    depths = {(a.stages[0].depth.name, m) for a in fit for m in mixers(a)}
    assert {("layered", "swiglu"), ("recurrent", "experts")} <= depths
    (dense,) = [m for m in found if not m.certificate.feasible]
    assert dense.architecture.stages[0].depth.name == "recurrent"
    assert "experts" not in mixers(dense.architecture)
    reason = dense.certificate.reason
    assert reason is not None
    assert "non_embedding_parameters" in reason
    assert "training_flops_per_token" in reason


def test_one_changed_line_makes_it_model_the_bytes_of_a_text(
    registry: Registry, tmp_path: Path, brief_timing: None
) -> None:
    text = tmp_path / "topics.txt"
    text.write_text("\n".join(pydoc_data.topics.topics.values()))
    lines = QUICKSTART.read_text().splitlines()
    commented = [n for n, line in enumerate(lines) if line.startswith("# task: {name: bytes")]
    given = [n for n, line in enumerate(lines) if line.startswith("task:")]
    assert len(commented) == len(given) == 1
    lines[given[0]] = lines[commented[0]].removeprefix("# ").replace("my_text.txt", str(text))
    data = yaml.safe_load("\n".join(lines))
    # As the file stands this takes minutes; its reference and a short training show the same.
    data["train"] |= {"tokens": 60_000, "batch": 4}
    data["search"] |= {"trials": 0, "seeds": 1}
    file = StudyFile.read(data)
    unigram = resolve(file, registry).task.baselines()["unigram"]
    with Study.start(str(tmp_path / "bytes.db"), file, registry) as study:
        assert study.run(executor="inline", device="cpu").end == "done"
        scores = [c.means["score"] for c in study.read_candidates()]
        detail = study.repository.trial_detail(study.row.id, 0)
    assert len(scores) == 1
    assert max(s for s in scores if s is not None) > unigram
    evaluation = detail.runs[0].points["own"].evaluations[0]
    assert 0 < evaluation.metrics["bits_per_byte"] < 8
