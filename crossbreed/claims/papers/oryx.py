"""Oryx's claims (arXiv 2605.28769), as section 9 of its fact sheet lists them, and the runs that would show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crossbreed.claims.claim import (
    Arm,
    Claim,
    Exact,
    Experiment,
    Paper,
    Scale,
    Speed,
    Test,
    Timing,
    minus,
    of,
)
from crossbreed.claims.papers import ledgers
from crossbreed.core.genome import Architecture, Router, Sublayer
from crossbreed.presets.amor import stack
from crossbreed.presets.parts import attention, gated_deltanet, layer, multi_mixer, swiglu

BUDGET = {"match": {"active_parameters": 0.02}}
"""Of the first arm. Weights that a token uses, as the paper matches (section 10); the FLOPs of a pass follow them but for
scores and states, which are what the modes differ in."""


@dataclass(frozen=True)
class Size:
    """One scale. ``queries``: asked for after all pairs; the last tokens of the text, which attention reads."""

    d_model: int
    layers: int
    head_size: int
    segment: int
    pairs: int
    queries: int
    tokens: int
    batch: int
    lrs: tuple[float, ...]

    @property
    def length(self) -> int:
        return 2 * self.pairs + self.queries


SIZES: dict[Scale, Size] = {
    "cpu": Size(64, 2, 8, 3, 5, 5, 200_000, 32, (4e-3, 8e-3)),
    "gpu": Size(64, 4, 16, 8, 24, 10, 8_000_000, 128, (2e-3, 4e-3)),
}
FAMILIES = {"tg": "gated_deltanet", "tm": "mamba2"}


def model(s: Size, mixer: Sublayer, router: Router | None) -> Architecture:
    block = layer(mixer, swiglu(round(8 * s.d_model / 3)), output_init="depth_scaled")
    return Architecture(vocab=2, d_model=s.d_model, stages=(stack(block, s.layers),), mode_router=router)


def oryx(s: Size, family: str, segment: int | str | None = None, **params: object) -> Architecture:
    router = Router(name="segment_random", params={"segment": segment or s.segment, "probability": 0.25})
    return model(s, multi_mixer(s.d_model, s.head_size, (FAMILIES[family], "attention"), **params), router)


def skipping(s: Size, reader: str) -> Architecture:
    """Oryx-TG whose ``reader`` writes its state only for tokens that it reads: no joint update."""
    whole = oryx(s, "tg")
    readers: list[Any] = [
        {"name": name, "params": {"writes": "when_read"}} if name == reader else name
        for name in ("gated_deltanet", "attention")
    ]
    return whole.with_params((0, 0, 0), readers=readers)


def points(s: Size, family: str = "tg") -> dict[str, str]:
    """A context read in one mode and queries in another; L is the linear reader, A attention."""
    readers = {"L": FAMILIES[family], "A": "attention"}
    found = {}
    for before in readers:
        for after in readers:
            switch = "" if before == after else f",-{s.queries}={readers[after]}"
            found[before + after] = f"schedule:0={readers[before]}{switch}"
    return found


def experiments(scale: Scale) -> tuple[Experiment, ...]:
    s = SIZES[scale]
    task = {
        "name": "recall",
        "params": {
            "vocab": 4 + 5 * s.pairs // 2,
            "pairs": s.pairs,
            "length": s.length,
            "queries": s.queries,
            "eval_items": 512,
        },
    }
    recipe: dict[str, Any] = {"tokens": s.tokens, "batch": s.batch}
    if scale == "gpu":
        recipe["dtype"] = "bfloat16"
    conv = {"width": 4, "on": "kv"}
    arms = (
        Arm("tg", oryx(s, "tg"), points(s)),
        Arm("transformer", model(s, attention(s.d_model, s.head_size, short_conv=conv), None)),
        Arm("gdn", model(s, gated_deltanet(s.d_model, s.head_size), None)),
        Arm("tm", oryx(s, "tm"), points(s, "tm")),
        Arm("tg-kv-skipped", skipping(s, "attention"), points(s)),
        Arm("tg-no-conv", oryx(s, "tg", short_conv=None), points(s)),
        Arm("tg-sequence", oryx(s, "tg", segment="sequence"), points(s)),
        Arm("tg-tied", oryx(s, "tg", tied_queries=True), points(s)),
    )
    return (Experiment("recall", task, arms, BUDGET, recipe, s.lrs),)


ACCURACY = "accuracy"


def at(before: str, after: str, arm: str = "tg", quantity: str = "score") -> Any:
    """One arm's number with a context read in one mode and queries in another."""
    return of("recall", arm, f"{quantity}@{before}{after}")


CLAIMS = (
    Claim(
        "C0",
        "More than nine tenths of the weights that a mode uses are shared by both.",
        ">= 90 %; 130M, 380M, 810M and 1.4B parameters in use",
        (
            Exact("share at 1.4B less 0.9", lambda p: ledgers.oryx_shared(p) - 0.9, "more", 0.01),
            Exact("matrix weights in use against 13 D^2 L + V D", ledgers.oryx_sizes, "equal", 0.001),
        ),
        learned=False,
    ),
    Claim(
        "C9",
        "Reading mostly by the recurrence costs less than attention on long texts, and its state is small beside the cache.",
        "0.453 of attention at 2048 tokens and delta = 3/4, cheaper from 555 tokens on; state d / (2 T) of the cache",
        (
            Exact(
                "ratio at 2048 tokens less 0.453", lambda p: ledgers.oryx_ratio(p, 2048) - 0.453, "equal", 0.1
            ),
            Exact(
                "crossover over 555 tokens, less 1", lambda p: ledgers.oryx_crossover(p) - 1, "equal", 0.35
            ),
            Exact(
                "state over cache, times 2 T / d, less 1", lambda p: ledgers.oryx_state(p) - 1, "equal", 0.05
            ),
        ),
        learned=False,
        note="The paper counts a full chunk of 128 where the ledger counts the causal half of its own of 64.",
    ),
    Claim(
        "C9t",
        "The same in seconds of a pass.",
        "no time was measured; expected later than in FLOPs",
        (
            Speed(
                "attention over three quarters in Mamba-2 at 2048 tokens and 1.4B, less 1",
                "oryx-1.4b/attention",
                "oryx-1.4b/mixed",
                "more",
                0.02,
            ),
        ),
        learned=False,
    ),
    Claim(
        "C2",
        "A context read by the recurrence and a prompt read by attention retrieve like a Transformer.",
        "NIAH +40.3 (TG) and +38.6 (TM) points over the linear baseline, 97.5 and 85.1 against the Transformer's 94.8; < 10 % of tokens in attention",
        (
            Test(
                "TG: linear to attention over linear to linear",
                minus(at("L", "A"), at("L", "L")),
                "more",
                0.05,
                unit=ACCURACY,
            ),
            Test(
                "TG: linear to attention against attention throughout",
                minus(at("L", "A"), at("A", "A")),
                "at_least",
                0.05,
                unit=ACCURACY,
            ),
            Test(
                "TG: linear to attention against the Transformer",
                minus(at("L", "A"), of("recall", "transformer", "score")),
                "at_least",
                0.05,
                unit=ACCURACY,
            ),
            Test(
                "TM: linear to attention over linear to linear",
                minus(at("L", "A", "tm"), at("L", "L", "tm")),
                "more",
                0.05,
                unit=ACCURACY,
            ),
        ),
        note="At scale cpu a third of the tokens are read by attention, and 5 pairs are not beyond a Gated DeltaNet's state.",
    ),
    Claim(
        "C3",
        "Retrieval follows the reading mode, hardly the mode of the context.",
        "TG: NIAH 87.1 (attention to linear) and 80.8 (linear to linear) against 97.5; TM 36.7 and 36.3 against 85.1",
        (
            Test(
                "TG: attention to linear less linear to linear",
                minus(at("A", "L"), at("L", "L")),
                "equal",
                0.05,
                unit=ACCURACY,
            ),
        ),
    ),
    Claim(
        "C8",
        "Both states must be written in every mode (a control; not in the paper).",
        "none",
        (
            Test(
                "linear to attention: joint update over a cache that is skipped in linear mode",
                minus(at("L", "A"), at("L", "A", "tg-kv-skipped")),
                "more",
                0.1,
                unit=ACCURACY,
            ),
        ),
    ),
    Claim(
        "C1",
        "Each mode alone matches its single-mixer baseline.",
        "TG at 130M: attention 42.9 against 42.3, GDN 42.2 against 43.7 points",
        (
            Test(
                "TG attention throughout against the Transformer",
                minus(at("A", "A"), of("recall", "transformer", "score")),
                "at_least",
                0.05,
                unit=ACCURACY,
            ),
            Test(
                "TG linear throughout against GDN",
                minus(at("L", "L"), of("recall", "gdn", "score")),
                "at_least",
                0.05,
                unit=ACCURACY,
            ),
        ),
        note="The baseline's recurrent state is 1.5 times Oryx's, as in the paper.",
    ),
    Claim(
        "C7",
        "The short convolution on keys and values matters most of the components.",
        "15.09 / 15.28 with, 16.67 / 16.59 without (ppl, attention / linear, with gate)",
        (
            Test(
                "attention throughout: with convolution over without",
                minus(at("A", "A"), at("A", "A", "tg-no-conv")),
                "more",
                0.05,
                unit=ACCURACY,
            ),
            Test(
                "linear throughout: with convolution over without",
                minus(at("L", "L"), at("L", "L", "tg-no-conv")),
                "more",
                0.05,
                unit=ACCURACY,
            ),
        ),
    ),
    Claim(
        "C4",
        "A switch costs almost nothing: the text goes on as if it had been read in the new mode throughout.",
        "joins the target mode's curve within 100 to 200 tokens, no spike",
        (
            Test(
                "TG: loss after linear to attention less attention throughout",
                minus(at("L", "A", quantity="loss_nats"), at("A", "A", quantity="loss_nats")),
                "equal",
                0.1,
                unit="nats",
            ),
            Test(
                "TG: loss after attention to linear less linear throughout",
                minus(at("A", "L", quantity="loss_nats"), at("L", "L", quantity="loss_nats")),
                "equal",
                0.1,
                unit="nats",
            ),
        ),
    ),
    Claim(
        "C5",
        "Training in segments makes switches robust; in whole sequences it does not.",
        "sequence-trained 380M: 14.6 to 16.4 to 20.4 ppl after a switch to attention; no difference at 130M",
        (
            Test(
                "linear to attention: segments over sequences",
                minus(at("L", "A"), at("L", "A", "tg-sequence")),
                "more",
                0.05,
                unit=ACCURACY,
            ),
            Test(
                "attention throughout: segments against sequences",
                minus(at("A", "A"), at("A", "A", "tg-sequence")),
                "at_least",
                0.05,
                unit=ACCURACY,
            ),
        ),
    ),
    Claim(
        "C6",
        "Queries of their own for each mode are about 1 % better than shared ones.",
        "15.93 / 15.82 against 16.10 / 16.00 ppl",
        (
            Test(
                "attention throughout: shared less own, loss",
                minus(at("A", "A", "tg-tied", "loss_nats"), at("A", "A", quantity="loss_nats")),
                "more",
                0.01,
                unit="nats",
            ),
            Test(
                "linear throughout: shared less own, loss",
                minus(at("L", "L", "tg-tied", "loss_nats"), at("L", "L", quantity="loss_nats")),
                "more",
                0.01,
                unit="nats",
            ),
        ),
    ),
)

ORYX = Paper(
    "oryx",
    "Oryx: multi-mixer models",
    "arXiv 2605.28769",
    CLAIMS,
    {"cpu": experiments("cpu"), "gpu": experiments("gpu")},
    __file__,
    (
        Timing(
            "oryx-1.4b/attention", ledgers.named("oryx-tm-1.4b"), 2048, "forced:1", "prefill_tokens_per_s"
        ),
        Timing(
            "oryx-1.4b/mixed",
            ledgers.named("oryx-tm-1.4b"),
            2048,
            "schedule:0=mamba2,75%=attention",
            "prefill_tokens_per_s",
        ),
    ),
)
