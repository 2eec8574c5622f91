"""AMOR's claims (arXiv 2602.13215), as section 9 of its fact sheet lists them; ``amor_arms`` has the runs that would show them."""

from __future__ import annotations

from crossbreed.claims.claim import Claim, Exact, Paper, Speed, Test, Timing, difference, minus, of
from crossbreed.claims.papers import ledgers
from crossbreed.claims.papers.amor_arms import experiments

FAR = 106_000
"""Tokens at which gates that fire at 0.4 draw level in FLOPs, by the formula."""
RECALL_NOTE = "At scale cpu answers are the only targets and the recall is of 4 pairs, since small models take too long to learn it in a text."
SCORE, FILLER = "score", "loss:filler"
ACCURACY = "accuracy"

CLAIMS = (
    Claim(
        "C7",
        "The attention blocks are cheap in parameters: below 5 % of the model.",
        "3.9 %, 2.9 % and 3.3 % at 180M, 440M and 1.5B",
        (
            Exact("counted blocks over K(4D^2 + D) + K D, less 1", ledgers.amor_formula, "equal", 0.0),
            Exact("released models' parameters against the published", ledgers.amor_counts, "equal", 0.0),
            Exact(
                "5 % less the share at 180M", lambda p: 0.05 - ledgers.amor_share(p, "180m"), "more", 0.005
            ),
        ),
        learned=False,
    ),
    Claim(
        "C6",
        "Past a context length gated attention decodes cheaper than attention that is always on.",
        "about 256K tokens at 440M, measured; V / (2 (1 - p)) - D in FLOPs",
        (
            Exact(
                "crossover in FLOPs at p = 0.40 over the formula, less 1",
                lambda p: ledgers.amor_crossover_off(p, 0.4),
                "equal",
                0.01,
            ),
            Exact(
                "crossover in FLOPs at p = 0.22 over the formula, less 1",
                lambda p: ledgers.amor_crossover_off(p, 0.22),
                "equal",
                0.01,
            ),
            Exact(
                "crossover with the distilled router, tokens",
                lambda p: float(ledgers.amor_crossover(p, 0.4, distilled=True) or 1e9),
                "equal",
                1000,
                unit="tokens",
            ),
        ),
        learned=False,
    ),
    Claim(
        "C6t",
        "The same in seconds of a decoded token.",
        "about 256K tokens at 440M; rival, GPU and kernels not stated",
        (
            Speed(
                "always on over gated at p = 0.40 and 106K tokens, less 1",
                "amor-440m/always",
                "amor-440m/gated",
                "more",
                0.02,
            ),
        ),
        learned=False,
    ),
    Claim(
        "C1",
        "Gated attention recovers the recall that a recurrent backbone lacks.",
        "recurrent weak, AMOR far above it and competitive with fixed hybrids; no table was found",
        (
            Test(
                "AMOR over the backbone",
                difference("recall", "amor", "backbone", SCORE),
                "more",
                0.05,
                unit=ACCURACY,
            ),
            Test(
                "AMOR against attention always on",
                difference("recall", "amor", "always", SCORE),
                "at_least",
                0.05,
                unit=ACCURACY,
            ),
            Test(
                "the gain over the backbone at many pairs less that at few",
                minus(
                    difference("recall", "amor", "backbone", SCORE),
                    difference("few", "amor", "backbone", SCORE),
                ),
                "more",
                0.05,
                unit=ACCURACY,
            ),
            Test(
                "AMOR against a serial hybrid",
                difference("recall", "amor", "serial", SCORE),
                "at_least",
                0.05,
                unit=ACCURACY,
            ),
            Test(
                "AMOR against a fused hybrid",
                difference("recall", "amor", "fused", SCORE),
                "at_least",
                0.05,
                unit=ACCURACY,
            ),
            Test(
                "AMOR against a Transformer",
                difference("recall", "amor", "transformer", SCORE),
                "at_least",
                0.05,
                unit=ACCURACY,
            ),
        ),
        note=RECALL_NOTE,
    ),
    Claim(
        "C2",
        "The model's own entropy routes better than chance at an equal rate.",
        "no ablation was found; v1's toy fires at 22 % with all recall positions among them",
        (
            Test(
                "over a gate drawn for each token",
                difference("recall", "amor", "random", SCORE),
                "more",
                0.02,
                unit=ACCURACY,
            ),
            Test(
                "over a gate drawn for each segment",
                difference("recall", "amor", "segments", SCORE),
                "more",
                0.02,
                unit=ACCURACY,
            ),
            Test(
                "the gap to drawn gates at kappa 0.77 less that at 0.2",
                minus(
                    difference("rare", "amor", "random", SCORE), difference("recall", "amor", "random", SCORE)
                ),
                "more",
                0.02,
                unit=ACCURACY,
            ),
        ),
        note=RECALL_NOTE,
    ),
    Claim(
        "C9",
        "Gates must be there in training: gating a model that always attended loses more.",
        "no number was found",
        (
            Test(
                "gate in training and use over gate in use alone",
                difference("recall", "amor", "late", SCORE),
                "more",
                0.02,
                unit=ACCURACY,
            ),
        ),
        note=RECALL_NOTE,
    ),
    Claim(
        "C4",
        "Later blocks see fewer hard tokens.",
        "no number was found",
        (
            Test(
                "mean entropy at the first gate less that at the last",
                of("text", "amor", "entropy_drop"),
                "more",
                0.01,
                unit="of ln V",
            ),
        ),
    ),
    Claim(
        "C3",
        "The share of tokens that attend is set by kappa and the shape of the entropies.",
        "about 40 % (v3) at kappa 0.2; about 22 % (v2), which a normal shape gives at 0.77",
        (
            Test("rate at kappa 0.2 less 0.42", of("text", "amor", "rate"), "equal", 0.05, 0.42, "of tokens"),
            Test(
                "rate at kappa 0.77 less 0.22",
                of("text-rare", "amor", "rate"),
                "equal",
                0.05,
                0.22,
                "of tokens",
            ),
            Test(
                "a half less the rate",
                ((-1.0, of("text", "amor", "rate")[0][1]),),
                "more",
                0.02,
                -0.5,
                "of tokens",
            ),
        ),
    ),
    Claim(
        "C5",
        "Skipping attention helps past the training length.",
        "AMOR steady on LongBench where fixed hybrids and the Transformer drop; no table was found",
        (
            Test(
                "loss of filler at twice the length less at its own: always on minus AMOR",
                minus(
                    minus(of("text", "always", FILLER + "@twice"), of("text", "always", FILLER)),
                    minus(of("text", "amor", FILLER + "@twice"), of("text", "amor", FILLER)),
                ),
                "more",
                0.02,
                unit="nats",
            ),
        ),
    ),
    Claim(
        "C8",
        "Noise that nobody can predict draws the gate away from what attention could answer (a weakness; the sheet's).",
        "not tested by the authors; v1's haystack of noise fires at 81 % and reaches 9.9 %",
        (
            Test(
                "share of what fires that is an answer: without noise less with half",
                minus(of("text", "amor", "precision:answer"), of("noise-50", "amor", "precision:answer")),
                "more",
                0.05,
                unit="of what fires",
            ),
            Test(
                "share of answers at which gates fire: without noise less with 70 %",
                minus(of("text", "amor", "recall:answer"), of("noise-70", "amor", "recall:answer")),
                "more",
                0.1,
                unit="of answers",
            ),
        ),
    ),
    Claim(
        "L",
        "No learned router is needed: entropy does as well at an equal rate.",
        "the gate has no parameters; no comparison was found",
        (
            Test(
                "entropy against a learned gate",
                difference("recall", "amor", "learned", SCORE),
                "at_least",
                0.05,
                unit=ACCURACY,
            ),
        ),
    ),
)

AMOR = Paper(
    "amor",
    "AMOR: adaptive entropy gate for hybrid models",
    "arXiv 2602.13215",
    CLAIMS,
    {"cpu": experiments("cpu"), "gpu": experiments("gpu")},
    __file__,
    (
        Timing("amor-440m/always", ledgers.named("always-gdn-440m"), FAR, "own", "decode_tokens_per_s"),
        Timing("amor-440m/gated", ledgers.named("amor-gdn-440m"), FAR, "forced:0.4", "decode_tokens_per_s"),
    ),
)
