"""Rates and relations to the loss, against numbers worked out from routers whose decisions are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from crossbreed.core.lab.analytics import analyse
from crossbreed.core.lab.analytics.decisions import decisions
from crossbreed.core.lab.analytics.observation import observe
from crossbreed.core.lab.evaluate import evaluate
from crossbreed.core.lab.operating_points import OperatingPoint
from tests.core.lab.analytics.conftest import ROWS, T, loss_of
from tests.support.genomes import ATTENTION, GENOMES, SWIGLU, architecture, block, gate

GATED = architecture({"blocks": [block(ATTENTION), block(SWIGLU, gate=gate("every", n=3))]})
UNSURE = architecture({"blocks": [block(ATTENTION), block(SWIGLU, gate=gate("unsure", above=0.4))]})


def found_in(subject):
    return decisions(observe(subject), subject.model.sites())


def test_rates_of_a_known_router_by_site_layer_position_and_class(subject_of, listed):
    found = found_in(subject_of(GATED))
    assert (found["rows"], found["tokens"], found["scored"]) == (ROWS, ROWS * T, ROWS * (T // 2))
    (site,) = found["sites"]
    assert (site["site"], site["layer"], site["kind"], site["router"]) == (
        "0.1.0.gate",
        "0.1.gate",
        "gate",
        "every",
    )
    assert site["choices"] == ["skip", "run"]
    assert site["asked"] == ROWS * T
    assert site["shares"] == [14 / 21, 7 / 21]
    assert found["layers"] == [{"layer": "0.1.gate", "depths": 1, "asked": 126, "shares": [14 / 21, 7 / 21]}]
    assert site["positions"] == {
        "width": 1,
        "asked": [ROWS] * T,
        "shares": [[0.0, 1.0] if t % 3 == 0 else [1.0, 0.0] for t in range(T)],
    }
    run_T = torch.arange(T) % 3 == 0
    for entry, here_BT in zip(site["classes"], (listed.tokens_BT < 10, listed.tokens_BT >= 10), strict=True):
        asked = int(here_BT.sum())
        runs = int((here_BT & run_T).sum())
        assert (entry["asked"], entry["shares"]) == (asked, [(asked - runs) / asked, runs / asked])
    assert [entry["class"] for entry in site["classes"]] == ["low", "high"]


def test_how_well_a_gate_finds_the_tokens_of_a_label(subject_of, listed):
    (site,) = found_in(subject_of(GATED))["sites"]
    run_BT, high_BT = (torch.arange(T) % 3 == 0).expand(ROWS, T), listed.tokens_BT >= 10
    hard, anything, nothing = site["labels"]
    hits = int((run_BT & high_BT).sum())
    assert (hard["label"], hard["classes"]) == ("hard", ["high"])
    assert hard["share"] == pytest.approx(int(high_BT.sum()) / (ROWS * T))
    assert hard["precision"] == pytest.approx(hits / int(run_BT.sum()))
    assert hard["recall"] == pytest.approx(hits / int(high_BT.sum()))
    # Of what every token is, the precision is 1 and the recall the rate; of what none is, there is nothing to find.
    assert (anything["precision"], anything["recall"]) == (1.0, pytest.approx(7 / 21))
    assert (nothing["share"], nothing["precision"], nothing["recall"]) == (0.0, 0.0, None)


def test_a_gate_that_never_opens_has_no_precision(subject_of):
    closed = subject_of(GATED, point=OperatingPoint.parse("forced:0"))
    (site,) = found_in(closed)["sites"]
    assert {entry["precision"] for entry in site["labels"]} == {None}
    assert site["labels"][0]["recall"] == 0.0


def test_loss_by_choice_and_both_correlations_by_hand(subject_of, listed):
    subject = subject_of(GATED)
    (site,) = found_in(subject)["sites"]
    scored = (torch.arange(T) % 2 == 1).expand(ROWS, T)
    loss = loss_of(subject.model, listed)[scored].numpy()
    run = (torch.arange(T).expand(ROWS, T)[scored] % 3 == 0).numpy()
    assert site["loss"]["tokens"] == [int((~run).sum()), int(run.sum())]
    assert site["loss"]["mean_nats"] == pytest.approx([loss[~run].mean(), loss[run].mean()], abs=1e-12)
    (entry,) = site["loss"]["correlations"]
    # Point-biserial in its own form: the distance of the means over the spread of all.
    n1, n0, n = run.sum(), (~run).sum(), len(run)
    biserial = (loss[run].mean() - loss[~run].mean()) / loss.std() * np.sqrt(n1 * n0 / n**2)
    spearman = np.corrcoef(pd.Series(run.astype(float)).rank(), pd.Series(loss).rank())[0, 1]
    assert (entry["choice"], entry["tokens"]) == (1, n)
    assert entry["pearson"] == pytest.approx(biserial, abs=1e-12)
    assert entry["rank"] == pytest.approx(spearman, abs=1e-12)


def test_entropy_is_binned_against_loss_and_choice(subject_of, listed):
    subject = subject_of(UNSURE)
    model = subject.model
    (site,) = found_in(subject)["sites"]
    seen = []
    hook = (
        model.stages[0].weight_sets[0][1].gate.register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    )
    loss_BT = loss_of(model, listed)
    hook.remove()
    p_BTV = model.logits(seen[0]).softmax(-1)
    entropy_BT = -(p_BTV * (p_BTV + 1e-10).log()).sum(-1).detach() / np.log(23)
    scored_BT = ~loss_BT.isnan()
    entropy = site["entropy"]
    assert entropy["mean"] == pytest.approx(float(entropy_BT.mean()), abs=1e-12)
    expected = np.corrcoef(entropy_BT[scored_BT], loss_BT[scored_BT])[0, 1]
    assert entropy["with_loss"]["pearson"] == pytest.approx(expected, abs=1e-9)
    # 126 tokens in tenths: cut after every 12 or 13 in order of entropy.
    order = entropy_BT.flatten().argsort()
    sizes = [entry["asked"] for entry in entropy["bins"]]
    assert set(sizes) == {12, 13}
    assert len(sizes) == 10
    for entry, here in zip(entropy["bins"], order.split(sizes), strict=True):
        inside, loss = entropy_BT.flatten()[here], loss_BT.flatten()[here]
        assert (entry["low"], entry["high"]) == pytest.approx(
            (float(inside.min()), float(inside.max())), abs=1e-12
        )
        share = float((inside > 0.4).double().mean())
        assert entry["shares"] == pytest.approx([1 - share, share])
        assert entry["scored"] == int((~loss.isnan()).sum())
        assert entry["mean_nats"] == pytest.approx(float(loss.nanmean()), abs=1e-12)


def test_equal_entropies_share_a_bin(subject_of):
    subject = subject_of(UNSURE)
    with torch.no_grad():
        subject.model.embedding.weight.zero_()  # every token's next one is uniform
    (site,) = found_in(subject)["sites"]
    (entry,) = site["entropy"]["bins"]
    assert entry["asked"] == ROWS * T
    assert entry["low"] == entry["high"] == pytest.approx(1.0)
    assert site["entropy"]["with_loss"]["pearson"] is None


def test_a_router_that_reads_no_entropy_exposes_none(subject_of):
    assert found_in(subject_of(GATED))["sites"][0]["entropy"] is None


@pytest.mark.parametrize("name", ["amor", "oryx_random", "halting", "halting_entropy", "random_gate"])
@pytest.mark.parametrize("point", ["own", "forced:0.4"])
def test_rates_are_those_that_evaluation_realises(subject_of, listed, name, point):
    at = OperatingPoint.parse(point)
    subject = subject_of(GENOMES[name], point=at, seed=3)
    found = found_in(subject)
    evaluated = evaluate(subject.model, listed, 5, point=at, seed=3)
    assert {site["site"]: tuple(site["shares"]) for site in found["sites"]} == evaluated.rates


def test_halted_tokens_are_not_asked_again_and_layers_add_up_their_depths(subject_of):
    found = found_in(subject_of(GENOMES["halting"]))
    first, second = found["sites"]
    assert (first["site"], second["site"]) == ("0.0.halt", "0.1.halt")
    went_on = round(first["asked"] * first["shares"][1])
    assert second["asked"] == went_on < first["asked"] == ROWS * T
    (layer,) = found["layers"]
    assert (layer["layer"], layer["depths"], layer["asked"]) == (
        "0.halt",
        2,
        first["asked"] + second["asked"],
    )
    ran = went_on + round(second["asked"] * second["shares"][1])
    assert layer["shares"][1] == pytest.approx(ran / layer["asked"])


@pytest.mark.parametrize("name", ["amor", "oryx_entropy", "halting", "recurrent_experts"])
def test_no_batch_size_changes_a_finding(subject_of, name):
    one, three = (analyse(subject_of(GENOMES[name], rows=4, batch=size)) for size in (1, 3))
    assert one.rows == three.rows == 4
    assert one.kinds
    assert flat(three.kinds) == pytest.approx(flat(one.kinds), abs=1e-9)


def test_a_second_look_finds_the_same_to_the_last_bit(subject_of):
    assert analyse(subject_of(GENOMES["amor"])) == analyse(subject_of(GENOMES["amor"]))


def test_only_the_rows_asked_for_are_looked_at(subject_of):
    few = found_in(subject_of(GATED, rows=5, batch=3))
    assert (few["rows"], few["tokens"]) == (5, 5 * T)
    assert found_in(subject_of(GATED, rows=100))["rows"] == ROWS


def test_nothing_routed_is_nothing_found(subject_of):
    assert analyse(subject_of(GENOMES["transformer"])).kinds == {}


def flat(value, name=""):
    """Every number of nested data by its path; words and gaps as well, so that shapes are compared too."""
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    else:
        return {name: value}
    return {path: leaf for key, item in pairs for path, leaf in flat(item, f"{name}/{key}").items()}
