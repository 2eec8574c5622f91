"""Settings of the built-in tasks. Torch-free; what can be refused without reading data is refused here."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict, Field, model_validator

ROWS_PER_ITEM = 256
"""Distinct rows that must exist for each evaluation item, so that both streams find rows of their own."""


class RecallConfig(BaseModel):
    """Multi-query associative recall (MQAR) in the layout of zoology: pairs first, then queries among filler.

    vocab:      token ids in all. Fillers come first, then keys, then values, three ranges that share no id; keys and values
                split what the fillers leave (an odd one goes to the values).
    pairs:      key-value pairs at the start of a row, their keys distinct.
    length:     tokens in a row.
    queries:    keys asked for later, each scored with its value at the key's own position; None: every key once.
                More than ``pairs`` ask for keys again.
    fillers:    ids of the tokens between queries. Few by default: they carry nothing to learn.
    eval_items: rows of the fixed evaluation set.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    vocab: int = Field(default=48, ge=3)
    pairs: int = Field(default=4, ge=1)
    length: int = Field(default=32, ge=3)
    queries: int | None = Field(default=None, ge=1)
    fillers: int = Field(default=4, ge=1)
    eval_items: int = Field(default=512, ge=1)

    @property
    def asked(self) -> int:
        """Queries in a row."""
        return self.pairs if self.queries is None else self.queries

    @property
    def keys(self) -> int:
        return (self.vocab - self.fillers) // 2

    @property
    def values(self) -> int:
        return self.vocab - self.fillers - self.keys

    def distinct_rows(self) -> int:
        """How many different rows the settings allow, at least (repeated queries add some)."""
        tail = self.length - 2 * self.pairs
        asked = min(self.asked, self.pairs)
        pairs = int(math.perm(self.keys, self.pairs) * self.values**self.pairs)
        places = math.comb(tail, self.asked) * math.perm(self.pairs, asked)
        return pairs * places * int(self.fillers ** (tail - self.asked))

    @model_validator(mode="after")
    def _rows_exist(self) -> RecallConfig:
        needed = 2 * self.pairs + self.asked
        if self.length < needed:
            raise ValueError(
                f"length {self.length} is too short for {self.pairs} pairs and {self.asked} queries, "
                f"which take {needed} tokens"
            )
        least = self.fillers + 2 * max(self.pairs, 2)
        if self.vocab < least:
            raise ValueError(
                f"vocab {self.vocab} is too small: {self.pairs} pairs with distinct keys and {self.fillers} fillers "
                f"need at least {least} token ids"
            )
        if self.distinct_rows() < ROWS_PER_ITEM * self.eval_items:
            raise ValueError(
                f"only {self.distinct_rows()} different rows exist for these settings, and {self.eval_items} evaluation "
                f"items apart from training need at least {ROWS_PER_ITEM * self.eval_items}; raise vocab or length, or "
                f"lower eval_items"
            )
        return self


class BytesConfig(BaseModel):
    """Byte-level language modelling of any text.

    path:          a UTF-8 text file, or a folder whose files (hidden ones apart) are read in the order of their paths; a
                   relative one is taken from the folder the command runs in.
    length:        tokens in a row; every one is scored with the byte that follows it.
    eval_fraction: share of the text kept for evaluation, in up to ``regions`` contiguous regions spread over it.
    regions:       more of them sample a varied text more evenly; fewer are made where the text is short.
    eval_items:    rows of the fixed evaluation set at most; where the kept text holds more, evenly spaced ones are used.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1)
    length: int = Field(default=128, ge=1)
    eval_fraction: float = Field(default=0.1, gt=0, lt=1)
    regions: int = Field(default=8, ge=1)
    eval_items: int = Field(default=256, ge=1)


class TextConfig(BaseModel):
    """Language modelling of documents, in bytes or in the tokens of any tokenizer.

    path:          a text file (documents parted by <|endoftext|>, long ones cut at line ends), JSON lines (.jsonl), Parquet, or a
                   folder of them, read in the order of their paths; or dataset:NAME?subset=S&split=P, which the package datasets
                   loads.
    field:         of each row that holds the text, where rows have fields.
    tokenizer:     a tokenizer.json of the package tokenizers; none: bytes.
    vocab:         token ids of the model; none: as many as the tokenizer has.
    length:        tokens in a row. Documents are packed, and none sees another.
    eval_fraction: share of the different documents that is kept for evaluation.
    eval_items:    rows of the fixed evaluation set at most; where the kept documents give more, evenly spaced ones are used.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1)
    field: str = Field(default="text", min_length=1)
    tokenizer: str | None = Field(default=None, min_length=1)
    vocab: int | None = Field(default=None, ge=2)
    length: int = Field(default=128, ge=2)
    eval_fraction: float = Field(default=0.1, gt=0, lt=1)
    eval_items: int = Field(default=256, ge=1)
