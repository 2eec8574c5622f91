"""Byte-level language modelling: any UTF-8 text, split without a shared byte, resumable by step."""

from __future__ import annotations

import math
import pydoc_data.topics
from pathlib import Path

import numpy as np
import pytest
import torch

from crossbreed.core.contracts.task import Totals
from crossbreed.core.errors import ConfigError
from crossbreed.plugins.tasks.configs import BytesConfig
from crossbreed.plugins.tasks.text_bytes import TextBytes, read_text, split


@pytest.fixture(scope="module")
def english(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "topics.txt"
    path.write_text("\n".join(pydoc_data.topics.topics.values()), encoding="utf-8")
    return path


def task(path, **settings):
    return TextBytes(BytesConfig(path=str(path), **settings))


def numbered(path, size):
    """A text in which every 4 bytes name their own place, so that a window says where it came from."""
    path.write_bytes(b"".join(b"%04d" % i for i in range(size // 4)))
    return path


def test_labels_are_the_next_bytes_of_the_text(english):
    t, text = task(english, length=20), english.read_bytes()
    for batch in (t.train_batch(0, 0, 30), next(t.evaluation(30))):
        assert batch.tokens_BT.shape == batch.labels_BT.shape == (30, 20)
        assert torch.equal(batch.tokens_BT[:, 1:], batch.labels_BT[:, :-1])
        for tokens, labels in zip(batch.tokens_BT.tolist(), batch.labels_BT.tolist(), strict=True):
            assert bytes([*tokens, labels[-1]]) in text
    assert (t.vocab, t.length) == (256, 20)


@pytest.mark.parametrize("settings", [{}, {"regions": 1}, {"eval_fraction": 0.4, "regions": 3}])
def test_training_and_evaluation_share_no_byte_of_the_text(tmp_path, settings):
    path = numbered(tmp_path / "numbers.txt", 8000)
    t = task(path, length=11, eval_items=10_000, **settings)
    text = path.read_bytes()

    def places(batch):
        rows = [
            bytes([*a, b[-1]])
            for a, b in zip(batch.tokens_BT.tolist(), batch.labels_BT.tolist(), strict=True)
        ]
        assert all(text.count(row) == 1 for row in rows)
        return {p for row in rows for p in range(text.index(row), text.index(row) + len(row))}

    train = set().union(*(places(t.train_batch(0, step, 400)) for step in range(10)))
    kept = set().union(*(places(b) for b in t.evaluation(64)))
    assert not train & kept
    assert len(train) > 0.9 * 8000 * (1 - t.config.eval_fraction)
    assert len(kept) > 0.8 * 8000 * t.config.eval_fraction
    assert t.overlap().shared == 0


def test_longer_windows_share_no_byte_with_training_at_the_task_s_own_length(tmp_path):
    path = numbered(tmp_path / "numbers.txt", 8000)
    t = task(path, length=11, regions=4)
    longer = t.at_length(44)
    text = path.read_bytes()
    kept = {p for a, b in split(text, t.config)[1] for p in range(a, b)}
    (batch,) = longer.evaluation(1000)
    starts = [text.index(bytes(row)) for row in batch.tokens_BT.tolist()]
    assert len(starts) > 5
    assert {p for start in starts for p in range(start, start + 45)} <= kept
    assert longer.evaluation_hash() == task(path, length=11, regions=4).at_length(44).evaluation_hash()
    assert longer.evaluation_hash() != t.evaluation_hash()
    with pytest.raises(
        ConfigError, match=r"hold windows of 199 bytes at most, too few for length 200; raise"
    ):
        t.at_length(200)


def test_training_reaches_every_legal_window_and_no_other(tmp_path):
    path = tmp_path / "letters.txt"
    path.write_bytes(bytes(range(65, 125)))
    t = task(path, length=3, regions=3, eval_fraction=0.3)
    starts = set((t.train_batch(0, 0, 5000).tokens_BT[:, 0] - 65).tolist())
    legal = {s for a, b in t._train for s in range(a, b - 3)}
    assert t._train == [(0, 14), (20, 34), (40, 54)]
    assert starts == legal


def test_a_batch_is_a_function_of_seed_and_step(english):
    t = task(english)
    one = t.train_batch(5, 9, 16).tokens_BT
    assert torch.equal(task(english).train_batch(5, 9, 16).tokens_BT, one)
    assert torch.equal(t.train_batch(5, 9, 40).tokens_BT[:16], one)
    assert not torch.equal(t.train_batch(5, 10, 16).tokens_BT, one)
    assert not torch.equal(t.train_batch(6, 9, 16).tokens_BT, one)


def test_evaluation_is_fixed_and_hashed(english):
    t = task(english, eval_items=50)
    rows = torch.cat([b.tokens_BT for b in t.evaluation(7)])
    assert rows.shape == (50, 128)
    assert torch.equal(rows, torch.cat([b.tokens_BT for b in t.evaluation(50)]))
    assert t.evaluation_hash() == task(english, eval_items=50).evaluation_hash()
    assert len({tuple(row) for row in rows.tolist()}) == 50


def test_every_setting_changes_the_data(english, tmp_path):
    other = tmp_path / "other.txt"
    other.write_bytes(english.read_bytes()[1000:])
    changes = {"path": str(other), "length": 64, "eval_fraction": 0.2, "regions": 4, "eval_items": 100}
    assert set(changes) == set(BytesConfig.model_fields)
    plain = task(english).evaluation_hash()
    for name, value in changes.items():
        changed = TextBytes(BytesConfig(**{"path": str(english), name: value}))
        assert changed.evaluation_hash() != plain, name


def test_repeats_across_the_cut_are_reported(tmp_path):
    path = tmp_path / "again.txt"
    path.write_text("the same sentence once more. " * 200)
    overlap = task(path, length=16).overlap()
    assert overlap.shared == overlap.evaluation > 0


def test_baselines_are_measured_on_the_evaluation_text(tmp_path):
    path = tmp_path / "skewed.txt"
    path.write_bytes(b"aab" * 2000)
    t = task(path, length=30)
    assert t.baselines() == {"uniform": 1 / 256, "unigram": pytest.approx(2 / 3, abs=0.02)}
    assert t.chance == 1 / 256
    assert t.solve(next(t.evaluation(2)).tokens_BT) is None
    assert t.score.bound is None


def test_english_has_the_unigram_score_of_its_space(english):
    assert 0.1 < task(english).baselines()["unigram"] < 0.35


def test_bits_per_byte_are_nats_over_ln_2(english):
    found = task(english).metrics(Totals(scored=100, correct=25, loss_nats=100 * math.log(2)))
    assert found["accuracy"] == 0.25
    assert found["bits_per_byte"] == pytest.approx(1.0)
    with pytest.raises(ConfigError, match="0 scored positions"):
        task(english).metrics(Totals(0, 0, 0.0))


def test_a_folder_is_read_in_the_order_of_its_paths(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.txt").write_text("second")
    (tmp_path / "a.txt").write_text("first")
    (tmp_path / "c.md").write_text("third, \u00e9")
    (tmp_path / ".hidden").write_text("never")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "blob").write_bytes(b"\xff\xfe")
    assert read_text(tmp_path).tobytes().decode() == "first\nsecond\nthird, \u00e9"


def test_a_short_text_gets_fewer_regions():
    config = BytesConfig(path="x", length=9, eval_fraction=0.1, regions=8)
    train, kept = split(np.zeros(250, dtype=np.uint8), config)
    assert len(kept) == 2
    assert all(b - a >= 10 for a, b in train + kept)
    assert sum(b - a for a, b in train + kept) == 250


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "does not exist"),
        (b"", "is empty"),
        (b"abc\xff\xfedef" * 500, r"not UTF-8 text \(byte 3 is 0xff\)"),
        (b"a short text", "has 12 bytes, too few for length 128"),
    ],
)
def test_bad_text_is_refused_with_its_path(tmp_path, content, sentence):
    path = tmp_path / "input.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=sentence) as caught:
        task(path)
    assert str(path) in str(caught.value)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="holds no files"):
        task(tmp_path)


@pytest.mark.parametrize(
    "settings", [{"length": 0}, {"eval_fraction": 0}, {"eval_fraction": 1}, {"stride": 4}]
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        BytesConfig(path="x", **settings)


def test_bytes_are_told_apart_by_what_is_read(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("aZ 7,\té\x01" * 40, encoding="utf-8")
    t = task(path, length=9, eval_items=1)
    batch = next(t.evaluation(1))
    found = t.classes(batch)
    names = {ord("a"): "letter", ord("Z"): "letter", ord("7"): "digit", ord(","): "punctuation"}
    names |= {ord(" "): "space", ord("\t"): "space", 0xC3: "other", 0xA9: "other", 1: "other"}
    seen = [found.names[n] for n in found.class_BT[0].tolist()]
    assert seen == [names[byte] for byte in batch.tokens_BT[0].tolist()]
    assert set(seen) == set(found.names)


def test_words_are_characters_and_bytes_that_have_none_are_numbers(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"words, words\n" * 200)
    task = TextBytes(BytesConfig(path=str(text), length=16))
    assert task.words(list(b"a b\n\x00\xc3")) == ["a", " ", "b", "↵", "00", "c3"]


def test_any_text_goes_into_bytes_and_back(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"words, words\n" * 200)
    task = TextBytes(BytesConfig(path=str(text), length=16))
    for said in ("", "a b\n", "né 日本 \x00"):
        assert task.encode(said) == list(said.encode())
        assert task.decode(task.encode(said)) == said
    assert task.separator == ord("\n")
    assert (task.prompt("a"), task.ending) == ([97], None)
    assert task.decode([0x61, 0xE6, 0x97]) == "a\N{REPLACEMENT CHARACTER}"
    with pytest.raises(ConfigError, match=r"cannot be written as UTF-8 \('\\udc80' at character 1\)"):
        task.encode("a\udc80")
