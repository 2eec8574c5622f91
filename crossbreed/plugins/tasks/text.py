"""Language modelling of documents, in bytes or in the tokens of any tokenizer, packed into rows that documents do not leak across."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray

from crossbreed.core.contracts.task import Batch, Overlap, Score, Task, TokenClasses, Totals
from crossbreed.core.errors import ConfigError
from crossbreed.plugins.tasks.configs import TextConfig
from crossbreed.plugins.tasks.corpus import open_corpus
from crossbreed.plugins.tasks.counter import digest, generator, row_hashes
from crossbreed.plugins.tasks.scores import accuracy
from crossbreed.plugins.tasks.shards import Shards, Split, split
from crossbreed.plugins.tasks.tokens import START_WORD, Tokens, open_tokens

Ints = NDArray[np.int64]

RUN = 32
"""Tokens in a row that training and evaluation are not to share."""


class Text(Task):
    """Predict each next token of packed documents, and where they end.

    Every document stands behind one token that starts it, at which its first token is due; at its last token that start is due
    again, as its end. Rows are cut from all documents one after the other, shuffled anew in every epoch; a document that a row
    cuts goes on in the next row as one of its own. Documents of a row are numbered, so that none sees another.

    Training rows are a function of (seed, step, size) alone: nothing is kept between them, so a resumed run goes on where it was.
    """

    config: TextConfig

    def __init__(
        self, config: TextConfig, tokens: Tokens | None = None, corpus_split: Split | None = None
    ) -> None:
        super().__init__(config)
        self._tokens = open_tokens(config.tokenizer) if tokens is None else tokens
        self._vocab = self._tokens.size if config.vocab is None else config.vocab
        if self._vocab < self._tokens.size:
            raise ConfigError(
                f"tokenizer {config.tokenizer or 'of bytes'!r} has {self._tokens.size} token ids, more than vocab {self._vocab}; raise "
                f"vocab, or give a tokenizer with fewer"
            )
        self._split = corpus_split or split(
            open_corpus(config.path, config.field), self._tokens, config.eval_fraction
        )
        self._rows_per_epoch = self._rows_of(self._split.train, "training")
        windows = self._rows_of(self._split.kept, "evaluation")
        count = min(config.eval_items, windows)
        self._windows = np.arange(count) * windows // count * config.length
        self._order = lru_cache(maxsize=2)(self._shuffled)

    def _rows_of(self, side: Shards, what: str) -> int:
        """Rows that a side gives; each needs one more token, which is due at its end."""
        rows = (side.total - 1) // self.config.length
        if rows < 1:
            raise ConfigError(
                f"the {len(side.size_D)} {what} documents of {self.config.path!r} hold {side.total} tokens, too few for length "
                f"{self.config.length}, which takes {self.config.length + 1}; lower length, or change eval_fraction"
            )
        return rows

    @property
    def vocab(self) -> int:
        return self._vocab

    @property
    def length(self) -> int:
        return self.config.length

    @property
    def score(self) -> Score:
        """Bits per byte compares tokenizers, but only those that lose nothing of the text; others are judged by their loss."""
        return Score("bits_per_byte" if self._split.lossless else "loss_nats", "min", None)

    @property
    def chance(self) -> float:
        return self._scored(math.log(self.vocab))

    def baselines(self) -> dict[str, float]:
        """A uniform guess, and guessing every token as often as training has it."""
        counts = np.ones(self.vocab)
        for shard in self._split.train.tokens:
            counts += np.bincount(shard, minlength=self.vocab)
        kept = self._kept_rows[1][:, 1:]
        counts -= np.bincount(self._everything_kept, minlength=self.vocab)
        nats = -np.log(counts / counts.sum())[kept].mean()
        return {"uniform": self.chance, "unigram": self._scored(float(nats))}

    def train_batch(self, seed: int, step: int, size: int) -> Batch:
        """Rows ``step * size`` and on of the seed's endless order."""
        number = step * size + np.arange(size)
        epoch, row = np.divmod(number, self._rows_per_epoch)
        document = np.empty((size, self.length + 1), dtype=np.int64)
        tokens = np.empty_like(document)
        for e in np.unique(epoch):
            mine = epoch == e
            order, before = self._order(seed, int(e))
            at = (row[mine] * self.length)[:, None] + np.arange(self.length + 1)
            place = np.searchsorted(before, at, side="right") - 1
            document[mine] = place
            tokens[mine] = self._split.train.take(order[place], at - before[place])
        return _batch(document, tokens)

    def _shuffled(self, seed: int, epoch: int) -> tuple[Ints, Ints]:
        """The training documents in the order of an epoch, and the number of tokens before each."""
        order = generator("text", "order", seed, epoch).permutation(len(self._split.train.size_D))
        return order, _before(self._split.train.size_D[order])

    def evaluation(self, size: int) -> Iterator[Batch]:
        document, tokens, _ = self._kept_rows
        for start in range(0, len(tokens), size):
            yield _batch(document[start : start + size], tokens[start : start + size])

    @cached_property
    def _kept_rows(self) -> tuple[Ints, Ints, Ints]:
        """Documents, tokens and their bytes of the evaluation items, each (N, length + 1)."""
        kept = self._split.kept
        at = self._windows[:, None] + np.arange(self.length + 1)
        before = _before(kept.size_D)
        document = np.searchsorted(before, at, side="right") - 1
        assert kept.bytes_M is not None
        return document, kept.take(document, at - before[document]), kept.bytes_M[at]

    @property
    def _everything_kept(self) -> Ints:
        kept = self._split.kept
        document = np.repeat(np.arange(len(kept.size_D)), kept.size_D)
        return kept.take(document, np.arange(kept.total) - _before(kept.size_D)[document])

    def evaluation_hash(self) -> str:
        return digest(self._kept_rows[:2])

    def at_length(self, tokens: int) -> Text:
        """Longer rows of the same evaluation documents."""
        return Text(self.config.model_copy(update={"length": tokens}), self._tokens, self._split)

    def classes(self, batch: Batch) -> TokenClasses:
        """Whether the first token of a document is due, its end, or what lies between."""
        kind_BT = torch.where(batch.labels_BT == self._tokens.start, 2, 1)
        kind_BT = torch.where(batch.tokens_BT == self._tokens.start, 0, kind_BT)
        return TokenClasses(("start", "inside", "end"), kind_BT)

    def words(self, tokens: Sequence[int]) -> list[str]:
        return [self._tokens.word(token) if token < self._tokens.size else str(token) for token in tokens]

    @property
    def separator(self) -> int:
        """What stands before each document."""
        return self._tokens.start

    @property
    def tokenizer(self) -> str | None:
        return self._tokens.file

    def encode(self, text: str) -> list[int]:
        """The tokens of one document, without its start."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"text {text!r} cannot be written as UTF-8 ({text[error.start]!r} at character {error.start}); the task 'text' reads "
                f"UTF-8 only"
            ) from error
        return self._tokens.encode([text])[0].tolist() if text else []

    def prompt(self, text: str) -> list[int]:
        """A document's start and its tokens."""
        return [self.separator, *self.encode(text)]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text, with a mark where a document starts; ids that the tokenizer lacks become U+FFFD."""
        said = []
        for known, run in groupby(tokens, key=lambda t: t < self._tokens.size and t != self._tokens.start):
            if known:
                said.append(self._tokens.decode(list(run)))
            else:
                said += [START_WORD if token == self._tokens.start else "\ufffd" for token in run]
        return "".join(said)

    def metrics(self, totals: Totals) -> dict[str, float]:
        found = accuracy("text", totals)
        if self._split.lossless:
            found["bits_per_byte"] = self._scored(found["loss_nats"])
        return found

    def _scored(self, nats: float) -> float:
        """The score of a mean loss in nats a token: all bits of the evaluation items over all bytes that they account for."""
        return nats / math.log(2) / self.bytes_per_token if self._split.lossless else nats

    @cached_property
    def bytes_per_token(self) -> float:
        """Bytes of text that a scored token of the evaluation items accounts for; starts account for none."""
        return float(self._kept_rows[2][:, 1:].mean())

    def overlap(self, seed: int = 0, steps: int = 16, size: int = 64) -> Overlap:
        """How many evaluation rows share 32 successive tokens, or a whole row where it is shorter, with a training document:
        whatever seed and steps."""
        run = min(RUN, self.length)
        train = self._split.train
        seen = np.unique(np.concatenate([_runs(train, n, run) for n in range(len(train.size_D))]))
        tokens = self._kept_rows[1]
        runs = np.stack([row_hashes(tokens[:, n : n + run]) for n in range(self.length + 2 - run)], axis=1)
        shared = int(np.isin(runs, seen).any(axis=1).sum())
        return Overlap(training=len(seen), evaluation=len(tokens), shared=shared)


def _before(sizes: Ints) -> Ints:
    found: Ints = np.cumsum(sizes) - sizes
    return found


def _runs(side: Shards, document: int, run: int) -> NDArray[np.uint64]:
    """Hashes of all runs of so many tokens in a document."""
    size = int(side.size_D[document])
    if size < run:
        return np.empty(0, dtype=np.uint64)
    tokens = side.take(np.full(size, document), np.arange(size))
    return row_hashes(np.lib.stride_tricks.sliding_window_view(tokens, run))


def _batch(document: Ints, tokens: Ints) -> Batch:
    return Batch(*(torch.from_numpy(x.copy()) for x in (tokens[:, :-1], tokens[:, 1:], document[:, :-1])))
