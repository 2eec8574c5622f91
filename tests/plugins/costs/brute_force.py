"""Mixers' arithmetic written out number by number, with every multiply-add counted: no formula, only loops.

Each function also returns its result, so that what is counted is shown to be the mixer's mathematics.
"""

from __future__ import annotations

import math

CHUNK = 64
Vector = list[float]
Matrix = list[Vector]


class Tally:
    """Counts multiply-adds; one is 2 FLOPs."""

    def __init__(self) -> None:
        self.flops = 0

    def dot(self, a: Vector, b: Vector) -> float:
        self.flops += 2 * len(a)
        return sum(x * y for x, y in zip(a, b, strict=True))

    def add_scaled(self, to: Vector, factor: float, b: Vector) -> None:
        self.flops += 2 * len(b)
        for i, x in enumerate(b):
            to[i] += factor * x


def attention(
    tally: Tally, q: Matrix, k: Matrix, v: Matrix, window: int | None, top_k: int | None = None
) -> Matrix:
    """Softmax over the visible keys of each query; a hidden pair is never touched, a weak one scored alone."""
    out = []
    for t in range(len(q)):
        first = 0 if window is None else max(0, t - window + 1)
        scores = [tally.dot(q[t], k[j]) for j in range(first, t + 1)]
        strongest = sorted(range(len(scores)), key=lambda j: -scores[j])[:top_k]
        total, row = sum(math.exp(scores[j]) for j in strongest), [0.0] * len(v[0])
        for j in strongest:
            tally.add_scaled(row, math.exp(scores[j]) / total, v[first + j])
        out.append(row)
    return out


def ssd(tally: Tally, q: Matrix, k: Matrix, v: Matrix, decay: Vector) -> Matrix:
    """S_t = a_t S_{t-1} + k_t^T v_t, o_t = q_t S_t, in chunks: scores inside, the state across."""
    K, V, out = len(k[0]), len(v[0]), []
    state = [[0.0] * V for _ in range(K)]
    for start in range(0, len(q), CHUNK):
        chunk = range(start, min(start + CHUNK, len(q)))
        for i in chunk:
            row = [0.0] * V
            # The state before the chunk, decayed to here.
            reach = math.prod(decay[start : i + 1])
            for a in range(K):
                tally.add_scaled(row, reach * q[i][a], state[a])
            for j in range(start, i + 1):
                score = tally.dot(q[i], k[j]) * math.prod(decay[j + 1 : i + 1])
                tally.add_scaled(row, score, v[j])
            out.append(row)
        whole = math.prod(decay[chunk.start : chunk.stop])
        state = [[whole * x for x in row] for row in state]
        for j in chunk:
            left = math.prod(decay[j + 1 : chunk.stop])
            for a in range(K):
                tally.add_scaled(state[a], left * k[j][a], v[j])
    return out


def delta(tally: Tally, q: Matrix, k: Matrix, v: Matrix, decay: Vector, beta: Vector) -> Matrix:
    """The gated delta rule in chunks: substitution for what each token writes and for the keys that read the old state."""
    K, V, out = len(k[0]), len(v[0]), []
    state = [[0.0] * V for _ in range(K)]
    for start in range(0, len(q), CHUNK):
        chunk = range(start, min(start + CHUNK, len(q)))
        values: Matrix = []
        reads: Matrix = []
        for i in chunk:
            # y_i = v_i - a k_i S - sum over j < i of (k_i . b_j k_j) D_ij y_j, split into a part without S and one with it.
            value, read = list(v[i]), [math.prod(decay[start : i + 1]) * x for x in k[i]]
            for j in range(start, i):
                score = tally.dot(k[i], [beta[j] * x for x in k[j]]) * math.prod(decay[j + 1 : i + 1])
                tally.add_scaled(value, -score, values[j - start])
                tally.add_scaled(read, -score, reads[j - start])
            values.append(value)
            reads.append(read)
        written: Matrix = []
        for i in chunk:
            y = list(values[i - start])
            for a in range(K):
                tally.add_scaled(y, -reads[i - start][a], state[a])
            written.append(y)
        for i in chunk:
            row, reach = [0.0] * V, math.prod(decay[start : i + 1])
            for a in range(K):
                tally.add_scaled(row, reach * q[i][a], state[a])
            for j in range(start, i + 1):
                score = tally.dot(q[i], [beta[j] * x for x in k[j]]) * math.prod(decay[j + 1 : i + 1])
                tally.add_scaled(row, score, written[j - start])
            out.append(row)
        whole = math.prod(decay[chunk.start : chunk.stop])
        state = [[whole * x for x in row] for row in state]
        for j in chunk:
            left = math.prod(decay[j + 1 : chunk.stop])
            for a in range(K):
                tally.add_scaled(state[a], left * beta[j] * k[j][a], written[j - start])
    return out
