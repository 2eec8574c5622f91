"""Language modelling of documents: packed without leaks, the same on every worker, in bytes that compare tokenizers."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crossbreed.core.contracts.task import Totals
from crossbreed.core.errors import ConfigError
from crossbreed.core.host import Registry
from crossbreed.plugins.tasks import EXAMPLE, shards
from crossbreed.plugins.tasks.configs import TextConfig
from crossbreed.plugins.tasks.text import Text

FABLES, TOKENIZER = str(EXAMPLE / "fables.jsonl"), str(EXAMPLE / "tokenizer.json")
TEXTS = [json.loads(line)["text"] for line in Path(FABLES).read_text(encoding="utf-8").splitlines()]
START = 256


def task(**settings: Any) -> Text:
    return Text(TextConfig(**{"path": FABLES, "length": 48, "eval_fraction": 0.25, **settings}))


def kept_and_trained(t: Text) -> tuple[set[str], list[str]]:
    """The documents of both sides of a task of bytes, as they lie in its shards."""

    def texts(side: shards.Shards) -> list[str]:
        found = []
        for n, size in enumerate(side.size_D):
            tokens = side.take(np.full(size, n), np.arange(size))
            assert tokens[0] == START
            found.append(bytes(tokens[1:].astype(np.uint8)).decode())
        return found

    return set(texts(t._split.kept)), texts(t._split.train)


def test_every_document_is_on_one_side_whole() -> None:
    kept, trained = kept_and_trained(task())
    assert len(kept) == 12
    assert sorted([*kept, *trained]) == sorted(TEXTS)
    assert not kept & set(trained)


def test_equal_documents_are_on_one_side_and_the_order_of_the_file_decides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "twice.jsonl"
    rows = [json.dumps({"text": text}) for text in [*reversed(TEXTS), *TEXTS]]
    path.write_text("\n".join(rows), encoding="utf-8")
    kept, trained = kept_and_trained(task(path=str(path)))
    assert kept == kept_and_trained(task())[0]
    assert not kept & set(trained)


def test_labels_are_next_tokens_of_the_same_document_and_its_end() -> None:
    for batch in (task().train_batch(0, 0, 16), next(task().evaluation(16))):
        assert torch.equal(batch.tokens_BT[:, 1:], batch.labels_BT[:, :-1])
        assert batch.document_BT is not None
        starts = batch.tokens_BT == START
        # A document begins wherever its number changes, and only its start is due at the end of the one before.
        changes = batch.document_BT[:, 1:] != batch.document_BT[:, :-1]
        assert torch.equal(changes, starts[:, 1:])
        assert changes.any()


def test_a_model_is_told_where_documents_start(registry: Registry) -> None:
    """What follows a start is the same whatever stands before it."""
    from crossbreed.core.genome import Architecture
    from crossbreed.core.model.language_model import LanguageModel

    blocks = [{"sublayers": [{"mixer": mixer}]} for mixer in ("attention", "mamba2")]
    data = {"vocab": 257, "d_model": 64, "stages": [{"blocks": blocks}]}
    model = LanguageModel(registry.canonical(Architecture.model_validate(data)), registry).eval()
    batch = task().train_batch(0, 0, 64)
    row, at = next((r, p) for r, p in (batch.tokens_BT == START).nonzero().tolist() if 8 < p < 40)
    changed = batch.tokens_BT.clone()
    changed[row, :at] = 7
    with torch.no_grad():
        one, other = (
            model(x, model.context(x, document_BT=batch.document_BT))[0][row, at:]
            for x in (batch.tokens_BT, changed)
        )
    torch.testing.assert_close(one, other)


def test_an_epoch_holds_every_training_token_once_and_the_next_has_another_order() -> None:
    t = task()
    rows = t._rows_per_epoch
    tokens = t.train_batch(3, 0, rows).tokens_BT
    wanted = Counter(t._split.train.take(*_everywhere(t._split.train)).tolist())
    seen = Counter(tokens.flatten().tolist())
    lacking = wanted - seen
    assert not seen - wanted
    # What does not fill a last row is left for another epoch.
    assert sum(lacking.values()) == t._split.train.total - rows * 48 <= 48
    again = t.train_batch(3, 1, rows).tokens_BT
    assert not torch.equal(tokens, again)
    assert Counter(again.flatten().tolist()) & wanted == Counter(again.flatten().tolist())


def _everywhere(side: shards.Shards) -> tuple[np.ndarray, np.ndarray]:
    document = np.repeat(np.arange(len(side.size_D)), side.size_D)
    return document, np.concatenate([np.arange(size) for size in side.size_D])


def test_a_step_is_the_same_whatever_was_asked_for_before() -> None:
    """So that a run goes on where it was stopped."""
    t, fresh = task(), task()
    for step in range(30):
        t.train_batch(5, step, 8)
    found = t.train_batch(5, 30, 8)
    for mine, theirs in zip(
        (found.tokens_BT, found.labels_BT, found.document_BT),
        _fields(fresh.train_batch(5, 30, 8)),
        strict=True,
    ):
        assert torch.equal(mine, theirs)
    assert not torch.equal(t.train_batch(6, 30, 8).tokens_BT, found.tokens_BT)


def _fields(batch: Any) -> tuple[torch.Tensor, ...]:
    return batch.tokens_BT, batch.labels_BT, batch.document_BT


def test_rows_that_straddle_two_epochs_are_those_of_each() -> None:
    t = task()
    rows = t._rows_per_epoch
    straddling = t.train_batch(0, 1, rows - 1).tokens_BT
    assert torch.equal(straddling[0], t.train_batch(0, 0, rows).tokens_BT[-1])
    assert torch.equal(straddling[1:], t.train_batch(0, 1, rows).tokens_BT[: rows - 2])


def test_small_shards_hold_what_one_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = task()
    monkeypatch.setattr(shards, "SHARD_TOKENS", 1000)
    monkeypatch.setattr(shards, "AT_ONCE", 5)
    monkeypatch.setenv(shards.CACHE, str(tmp_path))
    parts = task()
    assert len(parts._split.train.tokens) > 5
    assert parts.evaluation_hash() == whole.evaluation_hash()
    for mine, theirs in zip(
        _fields(parts.train_batch(1, 2, 9)), _fields(whole.train_batch(1, 2, 9)), strict=True
    ):
        assert torch.equal(mine, theirs)
    assert parts.baselines() == pytest.approx(whole.baselines())


def test_tokens_are_made_once_and_again_when_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(shards.CACHE, str(tmp_path / "cache"))
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS), encoding="utf-8")
    first = task(path=str(path)).evaluation_hash()
    made = list((tmp_path / "cache" / "text").iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(shards, "_write", lambda *_: pytest.fail("tokenised again"))
        assert task(path=str(path), length=48).evaluation_hash() == first
    assert list((tmp_path / "cache" / "text").iterdir()) == made
    path.write_text("\n".join(json.dumps({"text": text.upper()}) for text in TEXTS), encoding="utf-8")
    assert task(path=str(path)).evaluation_hash() != first


def test_another_process_that_was_first_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shards.CACHE, str(tmp_path))
    real = shards._write

    def write(folder: Path, *rest: Any) -> None:
        real(folder, *rest)
        with monkeypatch.context() as patched:
            patched.setattr(shards, "_write", real)
            task()

    monkeypatch.setattr(shards, "_write", write)
    found = task()
    assert found.evaluation_hash() == task().evaluation_hash()
    assert [f.name.startswith("making-") for f in (tmp_path / "text").iterdir()] == [False]


def test_another_process_sees_the_same_data() -> None:
    code = (
        "from crossbreed.plugins.tasks.configs import TextConfig\n"
        "from crossbreed.plugins.tasks.text import Text\n"
        f"t = Text(TextConfig(path={FABLES!r}, length=48, eval_fraction=0.25, tokenizer={TOKENIZER!r}))\n"
        "print(t.evaluation_hash(), t.train_batch(3, 7, 2).tokens_BT.tolist())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    mine = task(tokenizer=TOKENIZER)
    assert other.stdout.strip() == f"{mine.evaluation_hash()} {mine.train_batch(3, 7, 2).tokens_BT.tolist()}"


def rows_of(t: Text) -> list[list[int]]:
    return [row for batch in t.evaluation(7) for row in batch.tokens_BT.tolist()]


@pytest.mark.parametrize("tokenizer", [None, TOKENIZER])
def test_bits_per_byte_are_all_bits_over_all_bytes(tokenizer: str | None) -> None:
    t = task(tokenizer=tokenizer)
    size = sum(len(t._tokens.word(x).replace("↵", "\n").encode()) for row in _labels(t) for x in row if x != t._tokens.start)  # fmt: skip
    if tokenizer is None:
        # A byte of a longer character is a word of two letters here; a byte is one all the same.
        size = sum(x != START for row in _labels(t) for x in row)
    scored = len(_labels(t)) * 48
    assert t.bytes_per_token * scored == pytest.approx(size, rel=0.01)
    metrics = t.metrics(Totals(scored, 0, 1000.0))
    assert metrics["bits_per_byte"] == pytest.approx(1000 / math.log(2) / (t.bytes_per_token * scored))
    assert metrics["loss_nats"] == pytest.approx(1000.0 / scored)
    assert (t.score.name, t.score.direction) == ("bits_per_byte", "min")
    assert t.baselines()["unigram"] < t.baselines()["uniform"] == t.chance


def _labels(t: Text) -> list[list[int]]:
    return [row for batch in t.evaluation(64) for row in batch.labels_BT.tolist()]


def test_bytes_of_tokens_sum_to_those_of_the_text_in_any_script(tmp_path: Path) -> None:
    document = "naïve café — 日本語の文章。🙂🙂 \n\n  end  "
    tokens, sizes, same = task(tokenizer=TOKENIZER)._tokens.measured(document)
    assert sizes.sum() == len(document.encode())
    assert len(tokens) == len(sizes)
    assert (sizes >= 0).all()
    assert same


def wordlevel(path: Path) -> str:
    """A tokenizer that loses whatever it does not know, capitals and spaces."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    words = sorted({word.lower() for text in TEXTS[:30] for word in text.split()})
    vocab = {word: n for n, word in enumerate(["<unk>", *words])}
    found = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    found.normalizer = normalizers.Lowercase()
    found.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    found.enable_truncation(4)
    found.enable_padding(length=9)
    found.save(str(path))
    return str(path)


def test_a_tokenizer_that_loses_text_is_judged_by_its_loss(tmp_path: Path) -> None:
    """It could be as sure as it likes of a text it has thrown away."""
    t = task(tokenizer=wordlevel(tmp_path / "words.json"))
    assert t.score.name == "loss_nats"
    assert "bits_per_byte" not in t.metrics(Totals(10, 1, 20.0))
    assert t.chance == pytest.approx(math.log(t.vocab))
    # Neither cut at 4 tokens nor filled up to 9.
    assert set(t._split.train.size_D.tolist()) - {10}
    assert t._split.train.size_D.max() > 20


def test_the_start_is_a_token_of_the_tokenizers_own_or_one_more(tmp_path: Path) -> None:
    t = task(tokenizer=TOKENIZER)
    assert (t.vocab, t._tokens.start) == (512, 0)
    other = task(tokenizer=wordlevel(tmp_path / "words.json"))
    assert other._tokens.start == other.vocab - 1
    assert (task().vocab, task(vocab=300).vocab) == (257, 300)


def test_words_are_read_by_people(tmp_path: Path) -> None:
    t = task(tokenizer=TOKENIZER)
    row = rows_of(t)[0]
    read = "".join(t.words(row)).split("⟂")
    assert all(any(part in text for text in TEXTS) for part in read)
    assert task().words([START, 65, 10, 200]) == ["⟂", "A", "↵", "c8"]
    assert task(vocab=300).words([299]) == ["299"]


@pytest.mark.parametrize("tokenizer", [None, TOKENIZER])
def test_any_text_goes_there_and_back(tokenizer: str | None) -> None:
    t = task(tokenizer=tokenizer, vocab=600)
    for text in (TEXTS[3], "日本語 🙂\n\n  x", ""):
        assert t.decode(t.encode(text)) == text
    assert t.decode([t.separator, *t.encode("fox"), t.separator, 599]) == "⟂fox⟂\ufffd"
    assert t.prompt("fox") == [t.separator, *t.encode("fox")]
    assert t.ending == t.separator
    with pytest.raises(ConfigError, match=r"cannot be written as UTF-8 .* at character 1"):
        t.encode("a\ud800")


def test_longer_rows_are_of_the_same_kept_documents(tmp_path: Path) -> None:
    t = task()
    longer = t.at_length(48 * 16)
    assert longer.evaluation_hash() == task().at_length(48 * 16).evaluation_hash()
    kept = "".join(chr(START) + text.encode().decode("latin-1") for text in _in_order(t))
    assert all("".join(map(chr, row)) in kept for row in rows_of(longer))
    with pytest.raises(
        ConfigError, match=r"the 12 evaluation documents of .* hold \d+ tokens, too few for length 9999"
    ):
        t.at_length(9999)


def _in_order(t: Text) -> list[str]:
    kept, _ = kept_and_trained(t)
    return [text for text in TEXTS if text in kept]


def test_what_both_sides_share_is_reported(tmp_path: Path) -> None:
    common = "This passage of more than thirty-two bytes stands in every single one of the documents. "
    path = tmp_path / "shared.jsonl"
    rows = [json.dumps({"text": f"{text} {common}"}) for text in TEXTS]
    path.write_text("\n".join(rows), encoding="utf-8")
    with_common, without = task(path=str(path)).overlap(), task(tokenizer=TOKENIZER).overlap()
    assert with_common.shared > 0.2 * with_common.evaluation
    assert without.shared < without.evaluation
    assert task(tokenizer=TOKENIZER, length=4).overlap().shared > 0


def test_classes_are_starts_insides_and_ends() -> None:
    t = task()
    batch = next(t.evaluation(64))
    found = t.classes(batch)
    assert torch.equal(found.class_BT == 0, batch.tokens_BT == START)
    assert torch.equal(found.class_BT == 2, (batch.labels_BT == START) & (batch.tokens_BT != START))


def test_a_run_trains_on_packed_documents_and_is_judged_in_bits_per_byte(tmp_path: Path) -> None:
    from crossbreed.core.lab.job import Job
    from crossbreed.core.lab.records import Evaluated, Finished, Record
    from crossbreed.core.lab.trial import run

    block = {"sublayers": [{"mixer": "attention", "params": {"head_size": 16}}]}
    job = Job(
        study="s",
        number=1,
        seed=0,
        lease="l",
        architecture={"vocab": 512, "d_model": 32, "stages": [{"blocks": [block]}]},
        task={
            "name": "text",
            "params": {"path": FABLES, "length": 32, "eval_fraction": 0.25, "tokenizer": TOKENIZER},
        },
        recipe={"tokens": 60 * 16 * 32, "batch": 16, "lr": 0.01},
        artefacts=str(tmp_path),
        phases=("train", "evaluate"),
    )
    records: list[Record] = []
    run(job, records.append, lambda: False)
    assert records[-1] == Finished("done")
    (found,) = (record for record in records if isinstance(record, Evaluated))
    baselines = task(length=32, tokenizer=TOKENIZER).baselines()
    # It has seen the words that fables share; a model that knew the text would be far below.
    assert 0.3 < found.score < baselines["unigram"]
    assert found.score == found.metrics["bits_per_byte"]
    assert found.breakdown is not None
    assert [part["class"] for part in found.breakdown["classes"]] == ["start", "inside", "end"]
