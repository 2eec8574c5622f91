"""Byte-level language modelling of any text file or folder."""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crossbreed.core.contracts.task import Batch, Overlap, Score, Task, TokenClasses, Totals
from crossbreed.core.errors import ConfigError
from crossbreed.plugins.tasks.configs import BytesConfig
from crossbreed.plugins.tasks.corpus import text_files, utf8
from crossbreed.plugins.tasks.counter import digest, generator
from crossbreed.plugins.tasks.scores import accuracy

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

VOCAB = 256
NEWLINE = 10
KINDS = {
    "letter": string.ascii_letters,
    "digit": string.digits,
    "space": string.whitespace,
    "punctuation": string.punctuation,
}
"""Classes of ASCII bytes; all others (control codes, parts of longer UTF-8 characters) are ``other``."""


class Cut(NamedTuple):
    """A text, and [start, stop) of the training and of the evaluation part of each of its regions."""

    text: Bytes
    train: list[tuple[int, int]]
    kept: list[tuple[int, int]]

    @staticmethod
    def of(config: BytesConfig) -> Cut:
        """A text read and cut. Raises ConfigError for one that cannot be."""
        text = read_text(Path(config.path))
        return Cut(text, *split(text, config))


class TextBytes(Task):
    """Predict each next byte. The text is cut into equal regions; the end of each is kept for evaluation.

    Training windows lie inside the training part of one region and evaluation windows inside its evaluation part, so the
    two share no byte of the text. Text that says the same thing twice can still repeat itself across the cut: ``overlap``
    counts that.
    """

    config: BytesConfig

    def __init__(self, config: BytesConfig, cut: Cut | None = None) -> None:
        super().__init__(config)
        self._text, self._train, self._kept = Cut.of(config) if cut is None else cut
        windows = np.concatenate([np.arange(a, b - config.length, config.length) for a, b in self._kept])
        count = min(config.eval_items, len(windows))
        self._windows = windows[np.arange(count) * len(windows) // count]
        # Legal starts of training windows, numbered through all regions.
        self._starts = np.cumsum([b - a - config.length for a, b in self._train])

    @property
    def vocab(self) -> int:
        return VOCAB

    @property
    def length(self) -> int:
        return self.config.length

    @property
    def score(self) -> Score:
        return Score("accuracy", "max", None)

    @property
    def chance(self) -> float:
        return 1.0 / VOCAB

    def baselines(self) -> dict[str, float]:
        """Accuracy of a uniform guess, and of always saying the commonest byte of the training text."""
        train = np.concatenate([self._text[a:b] for a, b in self._train])
        commonest = np.bincount(train, minlength=VOCAB).argmax()
        return {
            "uniform": self.chance,
            "unigram": float((self._rows(self._windows)[:, 1:] == commonest).mean()),
        }

    def train_batch(self, seed: int, step: int, size: int) -> Batch:
        """Windows at starts drawn for (seed, step) over all legal ones; row r does not depend on ``size``."""
        u = generator("bytes", "training", seed, step).random(size)
        number = (u * self._starts[-1]).astype(np.int64)
        region = np.searchsorted(self._starts, number, side="right")
        before = np.concatenate([[0], self._starts])[region]
        first = np.array([a for a, _ in self._train])[region]
        return _batch(self._rows(first + number - before))

    def evaluation(self, size: int) -> Iterator[Batch]:
        for start in range(0, len(self._windows), size):
            yield _batch(self._rows(self._windows[start : start + size]))

    def evaluation_hash(self) -> str:
        return digest([self._rows(self._windows)])

    def at_length(self, tokens: int) -> TextBytes:
        """Longer windows inside the same evaluation parts: another cut would show what was trained on."""
        room = [b - a - 1 for a, b in self._kept]
        if max(room) < tokens:
            raise ConfigError(
                f"the evaluation parts of {self.config.path!r} hold windows of {max(room)} bytes at most, too few for "
                f"length {tokens}; raise eval_fraction or lower regions"
            )
        cut = Cut(
            self._text,
            [(a, b) for a, b in self._train if b - a > tokens],
            [(a, b) for a, b in self._kept if b - a > tokens],
        )
        return TextBytes(self.config.model_copy(update={"length": tokens}), cut)

    def classes(self, batch: Batch) -> TokenClasses:
        """The kind of byte that is read at each position."""
        return TokenClasses((*KINDS, "other"), _byte_classes().to(batch.tokens_BT.device)[batch.tokens_BT])

    def words(self, tokens: Sequence[int]) -> list[str]:
        """Characters of ASCII text; a line's end as an arrow, any other byte by its number in hexadecimal."""
        return [
            "↵" if token == NEWLINE else chr(token) if 32 <= token < 127 else f"{token:02x}"
            for token in tokens
        ]

    @property
    def separator(self) -> int:
        """A line's end, which is also what joins the files of a folder."""
        return NEWLINE

    def encode(self, text: str) -> list[int]:
        """The bytes of its UTF-8 form."""
        try:
            return list(text.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"text {text!r} cannot be written as UTF-8 ({text[error.start]!r} at character {error.start}); the task 'bytes' "
                "reads UTF-8 only"
            ) from error

    def decode(self, tokens: Sequence[int]) -> str:
        """The text; a byte that is no UTF-8 where it stands becomes U+FFFD."""
        return bytes(tokens).decode("utf-8", errors="replace")

    def metrics(self, totals: Totals) -> dict[str, float]:
        found = accuracy("bytes", totals)
        return {**found, "bits_per_byte": found["loss_nats"] / math.log(2)}

    def overlap(self, seed: int = 0, steps: int = 16, size: int = 64) -> Overlap:
        """How many evaluation windows occur word for word in the training text, at any place: whatever seed and steps."""
        texts = [self._text[a:b].tobytes() for a, b in self._train]
        windows = {row.astype(np.uint8).tobytes() for row in self._rows(self._windows)}
        shared = sum(any(window in text for text in texts) for window in windows)
        return Overlap(training=int(self._starts[-1]), evaluation=len(windows), shared=shared)

    def _rows(self, starts: Ints) -> Ints:
        """(N, length + 1) bytes: one row for each start, with the byte that follows it."""
        rows: Ints = self._text[starts[:, None] + self._offsets].astype(np.int64)
        return rows

    @cached_property
    def _offsets(self) -> Ints:
        return np.arange(self.config.length + 1)


def _byte_classes() -> Tensor:
    """int64 class of each byte value, in the order of ``KINDS``, then ``other``."""
    class_V = torch.full((VOCAB,), len(KINDS))
    for number, characters in enumerate(KINDS.values()):
        class_V[list(characters.encode())] = number
    return class_V


def split(text: Bytes, config: BytesConfig) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """[start, stop) of the training and of the evaluation part of every region.

    Raises ConfigError when the text cannot give both parts one window.
    """
    window = config.length + 1
    for regions in range(config.regions, 0, -1):
        edges = [len(text) * r // regions for r in range(regions + 1)]
        cuts = [b - round((b - a) * config.eval_fraction) for a, b in pairwise(edges)]
        train = list(zip(edges[:-1], cuts, strict=True))
        kept = list(zip(cuts, edges[1:], strict=True))
        if all(b - a >= window for a, b in train + kept):
            return train, kept
    smaller = min(config.eval_fraction, 1 - config.eval_fraction)
    raise ConfigError(
        f"{config.path!r} has {len(text)} bytes, too few for length {config.length} and eval_fraction "
        f"{config.eval_fraction:g}: both parts need {window} bytes, so about {math.ceil(window / smaller)} in all."
    )


def read_text(path: Path) -> Bytes:
    """The bytes of a UTF-8 file, or of all files in a folder (not hidden ones) in the order of their paths.

    Files are joined by a newline. Raises ConfigError naming the path and what is wrong with it.
    """
    files = text_files(path, "bytes")
    text = b"\n".join(utf8(file, "bytes") for file in files)
    if not text:
        raise ConfigError(f"{str(path)!r} is empty; the task 'bytes' needs text.")
    return np.frombuffer(text, dtype=np.uint8)


def _batch(rows: Ints) -> Batch:
    return Batch(torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(rows[:, 1:].copy()))
