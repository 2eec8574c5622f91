"""Where documents come from: every kind of file gives the same ones, and what is wrong with one is a sentence."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from crossbreed.core.errors import ConfigError
from crossbreed.plugins.tasks.configs import TextConfig
from crossbreed.plugins.tasks.corpus import LONGEST_PIECE, SEPARATOR, open_corpus
from crossbreed.plugins.tasks.text import Text
from crossbreed.plugins.tasks.tokens import Subwords

DOCUMENTS = ["First: naïve café.", "Second,\nof two lines.", "日本語"]


def read(path: Path | str, field: str = "text") -> list[str]:
    return list(open_corpus(str(path), field).documents())


def json_lines(folder: Path) -> Path:
    path = folder / "a.jsonl"
    rows = [json.dumps({"text": text, "n": n}, ensure_ascii=n == 0) for n, text in enumerate(DOCUMENTS)]
    path.write_text("\n\n".join(rows) + "\n", encoding="utf-8")
    return path


def parquet(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "a.parquet"
    table = pa.table({"n": [0, 1, 2], "text": DOCUMENTS})
    pq.write_table(table, path, row_group_size=2)
    return path


def plain(folder: Path) -> Path:
    path = folder / "a.txt"
    path.write_text(SEPARATOR.join(DOCUMENTS), encoding="utf-8")
    return path


def folder_of_texts(folder: Path) -> Path:
    inside = folder / "texts" / "deeper"
    inside.mkdir(parents=True)
    for n, text in enumerate(DOCUMENTS):
        (inside / f"{n}.txt").write_text(text, encoding="utf-8")
    (inside / ".hidden").write_bytes(b"\xff")
    return folder / "texts"


@pytest.mark.parametrize("made", [json_lines, parquet, plain, folder_of_texts])
def test_every_kind_of_file_gives_its_documents_in_order(
    made: Callable[[Path], Path], tmp_path: Path
) -> None:
    assert read(made(tmp_path)) == DOCUMENTS


def test_a_data_set_is_read_by_its_name_from_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    data = tmp_path / "named"
    data.mkdir()
    for part, texts in (("train", DOCUMENTS), ("validation", DOCUMENTS[:1])):
        rows = [json.dumps({"text": text, "title": "t"}) for text in texts]
        (data / f"{part}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    assert read(f"dataset:{data}") == DOCUMENTS
    assert read(f"dataset:{data}?split=validation") == DOCUMENTS[:1]
    one, other = (open_corpus(f"dataset:{data}{part}", "text").identity for part in ("", "?split=validation"))
    assert one != other
    with pytest.raises(ConfigError, match="has no field 'txt'; did you mean 'text'"):
        read(f"dataset:{data}", "txt")
    with pytest.raises(ConfigError, match=r"with [?]subset= and split= joined by &"):
        read(f"dataset:{data}?splt=train")
    with pytest.raises(ConfigError, match="cannot be loaded: "):
        read(f"dataset:{data}?split=test")


@pytest.mark.parametrize(("package", "name"), [("datasets", "dataset:some/name"), ("pyarrow", "a.parquet")])
def test_a_missing_package_names_what_installs_it(
    package: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    where = name if name.startswith("dataset:") else str(tmp_path / name)
    with pytest.raises(ConfigError, match=rf"needs the package {package}: pip install 'crossbreed\[text\]'"):
        read(where)


def test_a_missing_tokenizers_package_names_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigError, match=r"needs the package tokenizers: pip install 'crossbreed\[text\]'"):
        Subwords(Path("tokenizer.json"))


def test_a_long_text_is_cut_at_line_ends_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    text = "".join(f"line {n} of a long text\n" for n in range(2000)) + "x" * 3 * LONGEST_PIECE + "\nend"
    path.write_text(text, encoding="utf-8")
    found = read(path)
    assert "".join(found) == text
    assert len(found) > 5
    assert all(piece.endswith("\n") for piece in found[:-1])
    assert all(len(piece) <= LONGEST_PIECE for piece in found if "xxx" not in piece)


def test_empty_documents_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": ""}\n{"text": "a"}\n{"text": null}\n', encoding="utf-8")
    assert read(path) == ["a"]


BAD: tuple[tuple[str, bytes, str], ...] = (
    ("a.txt", b"", r"a.txt' is empty; the task 'text' needs text"),
    ("a.jsonl", b"", r"a.jsonl' is empty"),
    (
        "a.txt",
        b"caf\xe9 au lait",
        r"a.txt' is not UTF-8 text \(byte 3 is 0xe9\); the task 'text' reads UTF-8 only",
    ),
    ("a.jsonl", b'{"text": "caf\xe9"}', r"a.jsonl' is not UTF-8 text"),
    ("a.jsonl", b'{"text": "a"}\n{"text"', r"line 2 of .*a.jsonl' is not JSON: "),
    ("a.jsonl", b'["a"]', r"line 1 of .* is a list, and must be an object with a field 'text'"),
    (
        "a.jsonl",
        b'{"texts": "a"}',
        r"line 1 of .* has no field 'text'; did you mean 'texts'\?; it has 'texts'",
    ),
    ("a.jsonl", b'{"text": 3}', r"field 'text' of line 1 of .* is a int, and must be text"),
    ("a.jsonl", b'{"text": "\\ud800x"}', r"holds half of a surrogate pair at character 0"),
    ("a.parquet", b"not a table", r"a.parquet' cannot be read as Parquet: "),
)


@pytest.mark.parametrize(("name", "content", "sentence"), BAD)
def test_what_is_wrong_with_a_file_is_a_sentence(
    name: str, content: bytes, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=sentence):
        read(tmp_path / name)


def test_a_parquet_file_without_the_field_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no field 'txt'; did you mean 'text'"):
        read(parquet(tmp_path), "txt")


def test_places_that_hold_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        read(tmp_path / "none.txt")
    with pytest.raises(ConfigError, match="holds no files; the task 'text' needs text"):
        read(tmp_path)


def text(**settings: object) -> Text:
    return Text(TextConfig.model_validate(settings))


def test_a_single_document_is_the_other_tasks_matter(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("All there is.")
    with pytest.raises(
        ConfigError, match=r"holds 1 different documents, .* the task 'bytes' cuts a single text"
    ):
        text(path=str(path))


def test_too_few_tokens_for_a_row_are_counted(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"training documents of .* hold \d+ tokens, too few for length 128, which takes 129",
    ):
        text(path=str(json_lines(tmp_path)))


def test_a_tokenizer_larger_than_the_models_vocabulary_is_refused(tmp_path: Path) -> None:
    from crossbreed.plugins.tasks import EXAMPLE

    tokenizer, path = str(EXAMPLE / "tokenizer.json"), str(EXAMPLE / "fables.jsonl")
    with pytest.raises(
        ConfigError, match=r"tokenizer .*tokenizer.json' has 512 token ids, more than vocab 511; raise vocab"
    ):
        text(path=path, tokenizer=tokenizer, vocab=511)
    with pytest.raises(ConfigError, match="tokenizer 'of bytes' has 257 token ids, more than vocab 256"):
        text(path=path, vocab=256)


@pytest.mark.parametrize(
    ("content", "sentence"), [(b"{}", "is no tokenizer.json: "), (b"\xff\xfe", "cannot be read: ")]
)
def test_a_file_that_is_no_tokenizer_is_refused(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=sentence):
        Subwords(path)
    with pytest.raises(ConfigError, match=r"does not exist \(looked for '/.*none.json'\)"):
        Subwords(tmp_path / "none.json")


def test_a_cache_that_cannot_be_written_names_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("CROSSBREED_CACHE", str(blocked))
    with pytest.raises(ConfigError, match=r"cannot be kept in .*; name another folder in CROSSBREED_CACHE"):
        text(path=str(json_lines(tmp_path)), length=4)
