"""Text as token ids: UTF-8 bytes, or any tokenizer of the ``tokenizers`` library."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crossbreed.core.errors import ConfigError
from crossbreed.plugins.tasks.corpus import INSTALL

Ints = NDArray[np.int64]

BYTES = 256
STARTS = ("<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "</s>", "<eos>", "<s>", "<bos>", "[SEP]")
"""Tokens that stand before a document where a tokenizer has one of them; otherwise an id is added to its own."""
START_WORD = "⟂"


class Tokens(Protocol):
    """What the task asks of a tokenizer.

    size:     of token ids, that before documents among them. start: the id that stands before each document.
    identity: changes whenever it may say another thing. file: the text of its tokenizer.json, None without one.
    """

    size: int
    start: int
    identity: str
    file: str | None

    def encode(self, documents: Sequence[str]) -> list[Ints]:
        """Token ids of each document, without the start."""
        ...

    def measured(self, document: str) -> tuple[Ints, Ints, bool]:
        """Token ids, how many bytes of the document each accounts for (they sum to all), and whether nothing is lost."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens without starts."""
        ...

    def word(self, token: int) -> str:
        """A token as people read it."""
        ...


def open_tokens(path: str | None) -> Tokens:
    """Bytes, or the tokenizer of a ``tokenizer.json``. Raises ConfigError for a file that is none."""
    return Utf8() if path is None else Subwords(Path(path))


class Utf8:
    """Each byte a token."""

    size, start, identity = BYTES + 1, BYTES, "bytes"
    file: str | None = None

    def encode(self, documents: Sequence[str]) -> list[Ints]:
        return [np.frombuffer(d.encode(), dtype=np.uint8).astype(np.int64) for d in documents]

    def measured(self, document: str) -> tuple[Ints, Ints, bool]:
        (tokens,) = self.encode([document])
        return tokens, np.ones_like(tokens), True

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode("utf-8", errors="replace")

    def word(self, token: int) -> str:
        if token == self.start:
            return START_WORD
        return "↵" if token == 10 else chr(token) if 32 <= token < 127 else f"{token:02x}"


class Subwords:
    """A tokenizer of the ``tokenizers`` library, without its special tokens, truncation and padding."""

    def __init__(self, path: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ConfigError(f"tokenizer {str(path)!r} needs the package tokenizers: {INSTALL}.") from error
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise ConfigError(
                f"tokenizer {str(path)!r} does not exist (looked for {str(path.absolute())!r})."
            ) from error
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"tokenizer {str(path)!r} cannot be read: {error}.") from error
        try:
            self._tokenizer: Any = Tokenizer.from_str(text)
        # The library raises a plain Exception for whatever is wrong with the file.
        except Exception as error:
            raise ConfigError(f"tokenizer {str(path)!r} is no tokenizer.json: {error}.") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        ids = self._tokenizer.get_vocab(with_added_tokens=True)
        if not ids:
            raise ConfigError(f"tokenizer {str(path)!r} has no token ids.")
        self.size = max(ids.values()) + 1
        self.start = next((ids[name] for name in STARTS if name in ids), self.size)
        self.size = max(self.size, self.start + 1)
        self.file: str | None = text
        self.identity = hashlib.sha256(text.encode()).hexdigest()

    def encode(self, documents: Sequence[str]) -> list[Ints]:
        found = self._tokenizer.encode_batch_fast(list(documents), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in found]

    def measured(self, document: str) -> tuple[Ints, Ints, bool]:
        """A token accounts for what is new up to its end, so that parts of one character count once; the last one for the rest."""
        found = self._tokenizer.encode(document, add_special_tokens=False)
        tokens = np.array(found.ids, dtype=np.int64)
        if not len(tokens):
            return tokens, tokens, False
        ends = list(accumulate((end for _, end in found.offsets), max))
        ends[-1] = len(document)
        bytes_before = np.concatenate(([0], np.cumsum(_utf8_sizes(document))))
        sizes = np.diff(bytes_before[ends], prepend=0)
        same = self._tokenizer.decode(found.ids, skip_special_tokens=False) == document
        return tokens, sizes.astype(np.int64), same

    def decode(self, tokens: Sequence[int]) -> str:
        said: str = self._tokenizer.decode(list(tokens), skip_special_tokens=False)
        return said

    def word(self, token: int) -> str:
        if token == self.start:
            return START_WORD
        said: str = self._tokenizer.decode([token], skip_special_tokens=False)
        return said.replace("\n", "↵") or str(self._tokenizer.id_to_token(token))


def _utf8_sizes(text: str) -> Ints:
    """UTF-8 bytes of each character."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    sizes: Ints = 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
    return sizes
