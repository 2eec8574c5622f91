"""Documents of a corpus: text files, JSON lines, Parquet, or a Hugging Face data set, always in the same order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from crossbreed.core.errors import ConfigError, nearest

DATASET = "dataset:"
"""Begins the name of a data set of Hugging Face's hub, or of a folder that ``datasets`` reads."""
SEPARATOR = "<|endoftext|>"
"""Parts the documents of a plain text."""
LONGEST_PIECE = 8192
"""Characters after which a plain text is cut at the end of a line: without separators it says not where documents end."""
INSTALL = "pip install 'crossbreed[text]'"


@dataclass(frozen=True)
class Corpus:
    """Where documents come from. ``identity``: changes whenever they may have."""

    where: str
    identity: str
    read: Callable[[], Iterator[str]]

    def documents(self) -> Iterator[str]:
        """Every document that says anything, in order."""
        return (document for document in self.read() if document)


def open_corpus(path: str, field: str) -> Corpus:
    """The corpus that a path, or a name after ``dataset:``, stands for; ``field`` holds the text where rows have fields.

    Raises ConfigError naming what cannot be found or read, here and while documents are read.
    """
    if path.startswith(DATASET):
        return _dataset(path, field)
    files = text_files(Path(path), "text")
    facts = [(str(f.resolve()), (stat := f.stat()).st_size, stat.st_mtime_ns) for f in files]
    return Corpus(path, repr((facts, field)), lambda: (d for file in files for d in _documents(file, field)))


def text_files(path: Path, task: str) -> list[Path]:
    """A file, or all files of a folder (not hidden ones) in the order of their paths. Raises ConfigError where there are none."""
    if path.is_dir():
        files = sorted(
            (p for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path))),
            key=lambda p: p.relative_to(path).as_posix(),
        )
        if not files:
            raise ConfigError(f"folder {str(path)!r} holds no files; the task {task!r} needs text.")
        return files
    if not path.exists():
        raise ConfigError(
            f"path {str(path)!r} does not exist (looked for {str(path.absolute())!r}); the task {task!r} needs a text file or a "
            f"folder."
        )
    return [path]


def utf8(file: Path, task: str) -> bytes:
    """The bytes of a UTF-8 file. Raises ConfigError for one that cannot be read, or is none."""
    try:
        data = file.read_bytes()
        data.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"file {str(file)!r} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"file {str(file)!r} is not UTF-8 text (byte {error.start} is {data[error.start]:#04x}); "
            f"the task {task!r} reads UTF-8 only."
        ) from error
    return data


def _hidden(relative: Path) -> bool:
    return any(part.startswith(".") for part in relative.parts)


def _documents(file: Path, field: str) -> Iterator[str]:
    if file.stat().st_size == 0:
        raise ConfigError(f"{str(file)!r} is empty; the task 'text' needs text.")
    kind = file.suffix.lower()
    if kind in (".jsonl", ".ndjson"):
        return _json_lines(file, field)
    return _parquet(file, field) if kind == ".parquet" else _plain(file)


def _plain(file: Path) -> Iterator[str]:
    for document in utf8(file, "text").decode().split(SEPARATOR):
        yield from _pieces(document)


def _pieces(document: str) -> Iterator[str]:
    """A long document in pieces that end with a line."""
    start = 0
    while start < len(document):
        end = start + LONGEST_PIECE
        # The last line that ends in time, or the first one that ends at all.
        cut = document.rfind("\n", start, end) + 1 or document.find("\n", end) + 1
        end = len(document) if len(document) <= end or not cut else cut
        yield document[start:end]
        start = end


def _json_lines(file: Path, field: str) -> Iterator[str]:
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    where = f"line {number} of {str(file)!r}"
                    try:
                        row = json.loads(line)
                    except json.JSONDecodeError as error:
                        raise ConfigError(f"{where} is not JSON: {error}.") from error
                    yield _text_of(row, field, where)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"file {str(file)!r} is not UTF-8 text ({error.reason}); the task 'text' reads UTF-8 only."
        ) from error


def _parquet(file: Path, field: str) -> Iterator[str]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ConfigError(f"{str(file)!r} needs the package pyarrow: {INSTALL}.") from error
    try:
        table = pq.ParquetFile(file)
        if field not in table.schema_arrow.names:
            _text_of(dict.fromkeys(table.schema_arrow.names), field, repr(str(file)))
        for batch in table.iter_batches(columns=[field]):
            for value in batch.column(0).to_pylist():
                yield _text_of({field: value}, field, f"a row of {str(file)!r}")
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"{str(file)!r} cannot be read as Parquet: {error}.") from error


def _dataset(name: str, field: str) -> Corpus:
    """``dataset:NAME?subset=S&split=P``; the split is ``train`` unless given."""
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(f"{name!r} needs the package datasets: {INSTALL}.") from error
    which, _, query = name.removeprefix(DATASET).partition("?")
    asked = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(asked.keys() - {"subset", "split"})
    if unknown or not which:
        raise ConfigError(
            f"{name!r} must be {DATASET}NAME, with ?subset= and split= joined by & where they are needed"
        )
    try:
        found = datasets.load_dataset(which, asked.get("subset"), split=asked.get("split", "train"))
    # What a hub, a script or a broken file raises is not ours to list.
    except Exception as error:
        raise ConfigError(f"{name!r} cannot be loaded: {type(error).__name__}: {error}.") from error
    if field not in found.column_names:
        _text_of(dict.fromkeys(found.column_names), field, repr(name))
    fingerprint = f"{found._fingerprint}/{field}"
    return Corpus(name, fingerprint, lambda: (_text_of(row, field, f"a row of {name!r}") for row in found))


def _text_of(row: Any, field: str, where: str) -> str:
    """The text in a row's field. Raises ConfigError where it has none."""
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is a {type(row).__name__}, and must be an object with a field {field!r}.")
    if field not in row:
        known = ", ".join(map(repr, row)) or "none"
        raise ConfigError(f"{where} has no field {field!r}{nearest(field, row)}; it has {known}.")
    text = row[field]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise ConfigError(f"field {field!r} of {where} is a {type(text).__name__}, and must be text.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"field {field!r} of {where} holds half of a surrogate pair at character {error.start}, which UTF-8 has no bytes for."
            ) from error
    return text
