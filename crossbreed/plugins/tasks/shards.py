"""A corpus as token ids on disk, in shards that are mapped into memory; made once for all workers of a host."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crossbreed.core.cache import CACHE, cache_folder
from crossbreed.core.errors import ConfigError
from crossbreed.plugins.tasks.corpus import Corpus
from crossbreed.plugins.tasks.tokens import Tokens

Ints = NDArray[np.int64]

VERSION = 1
"""Of what is written; a change of form or meaning raises it."""
SHARD_TOKENS = 1 << 24
AT_ONCE = 256
"""Documents that are tokenised together."""


@dataclass(frozen=True)
class Shards:
    """The documents of one side, training or evaluation, each behind the token that starts a document.

    tokens:  shards of token ids, mapped. shard_D, start_D, size_D: where each document lies.
    bytes_M: bytes that each token accounts for, all documents one after the other; of the evaluation side alone.
    """

    tokens: Sequence[NDArray[np.unsignedinteger]]
    shard_D: Ints
    start_D: Ints
    size_D: Ints
    bytes_M: Ints | None = None

    @property
    def total(self) -> int:
        """Tokens in all."""
        return int(self.size_D.sum())

    def take(self, document: Ints, within: Ints) -> Ints:
        """The tokens at places ``within`` documents."""
        at, shard = self.start_D[document] + within, self.shard_D[document]
        if len(self.tokens) == 1:
            only: Ints = self.tokens[0][at].astype(np.int64)
            return only
        found = np.empty(at.shape, dtype=np.int64)
        for number in np.unique(shard):
            mine = shard == number
            found[mine] = self.tokens[number][at[mine]]
        return found


@dataclass(frozen=True)
class Split:
    """Both sides of a corpus. ``lossless``: whether the tokenizer gives back every evaluation document."""

    train: Shards
    kept: Shards
    lossless: bool


def split(corpus: Corpus, tokens: Tokens, eval_fraction: float) -> Split:
    """A corpus, tokenised and split by document. Equal documents are on one side, whatever their order.

    Raises ConfigError for a corpus of fewer than two different documents, or a cache that cannot be written.
    """
    key = repr((VERSION, corpus.identity, tokens.identity, eval_fraction))
    home = cache_folder() / "text"
    folder = home / hashlib.sha256(key.encode()).hexdigest()[:32]
    if not (folder / "meta.json").exists():
        try:
            home.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix="making-", dir=home))
        except OSError as error:
            raise ConfigError(
                f"tokens of {corpus.where!r} cannot be kept in {str(home)!r}: {error.strerror}; name another folder in {CACHE}."
            ) from error
        try:
            _write(made, corpus, tokens, _kept(corpus, eval_fraction))
            os.rename(made, folder)
        except OSError as error:
            # Another worker may have been first.
            if not (folder / "meta.json").exists():
                raise ConfigError(
                    f"tokens of {corpus.where!r} cannot be kept in {str(folder)!r}: {error.strerror}; name another folder in {CACHE}."
                ) from error
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return _read(folder)


def _hash(document: str) -> int:
    return int.from_bytes(hashlib.blake2b(document.encode(), digest_size=8).digest(), "big")


def _kept(corpus: Corpus, fraction: float) -> frozenset[int]:
    """Hashes of the documents that are kept for evaluation: so many of the different ones, those whose hashes are the smallest."""
    hashes = np.unique(np.fromiter((_hash(d) for d in corpus.documents()), dtype=np.uint64))
    if len(hashes) < 2:
        raise ConfigError(
            f"{corpus.where!r} holds {len(hashes)} different documents, and the task 'text' keeps some for evaluation, so it needs at "
            f"least 2; the task 'bytes' cuts a single text."
        )
    count = min(max(1, round(fraction * len(hashes))), len(hashes) - 1)
    return frozenset(hashes[:count].tolist())


def _write(folder: Path, corpus: Corpus, tokens: Tokens, kept: frozenset[int]) -> None:
    dtype = np.uint16 if tokens.size <= 1 << 16 else np.uint32
    places: list[tuple[int, int, int, bool]] = []
    sizes: list[Ints] = []
    waiting: list[NDArray[np.unsignedinteger]] = []
    held = shard = 0
    lossless = True
    documents = corpus.documents()
    while batch := list(islice(documents, AT_ONCE)):
        judged = [_hash(document) in kept for document in batch]
        plain = iter(tokens.encode([d for d, mine in zip(batch, judged, strict=True) if not mine]))
        for document, mine in zip(batch, judged, strict=True):
            if mine:
                ids, its_sizes, same = tokens.measured(document)
                sizes.append(np.concatenate(([0], its_sizes)))
                lossless = lossless and same
            else:
                ids = next(plain)
            places.append((shard, held, len(ids) + 1, mine))
            waiting.append(np.concatenate(([tokens.start], ids)).astype(dtype))
            held += len(ids) + 1
            if held >= SHARD_TOKENS:
                np.save(folder / f"tokens-{shard:05}.npy", np.concatenate(waiting))
                waiting, held, shard = [], 0, shard + 1
    if waiting:
        np.save(folder / f"tokens-{shard:05}.npy", np.concatenate(waiting))
    np.save(folder / "documents.npy", np.array(places, dtype=np.int64))
    np.save(folder / "bytes.npy", np.concatenate(sizes))
    meta = {"version": VERSION, "source": corpus.where, "tokenizer": tokens.identity, "lossless": lossless}
    (folder / "meta.json").write_text(json.dumps(meta))


def _read(folder: Path) -> Split:
    meta = json.loads((folder / "meta.json").read_text())
    places = np.load(folder / "documents.npy")
    shards = [np.load(file, mmap_mode="r") for file in _shard_files(folder)]
    mine = places[:, 3] == 1
    train, kept = (Shards(shards, *places[side, :3].T.copy()) for side in (~mine, mine))
    kept = Shards(shards, kept.shard_D, kept.start_D, kept.size_D, np.load(folder / "bytes.npy"))
    return Split(train, kept, bool(meta["lossless"]))


def _shard_files(folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.glob("tokens-*.npy")))
