from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossbreed.plugins.tasks import EXAMPLE
from tests.cli.conftest import Cli


def test_the_tasks_are_listed(cli: Cli) -> None:
    names = [item["name"] for item in cli("tasks", "list", "--json").json("tasks")["tasks"]]
    assert {"recall", "bytes"} <= set(names)
    assert "recall" in cli("tasks", "list").out


def test_a_task_shows_its_settings_with_types_and_defaults(cli: Cli) -> None:
    shown = cli("tasks", "show", "recall", "--json").json("task")
    settings = {item["name"]: item for item in shown["settings"]}
    assert settings["pairs"]["type"].startswith("integer")
    assert not settings["pairs"]["required"]
    text = cli("tasks", "show", "recall").out
    assert all(name in text for name in settings)


def test_a_required_setting_says_so(cli: Cli) -> None:
    settings = {s["name"]: s for s in cli("tasks", "show", "bytes", "--json").json("task")["settings"]}
    assert settings["path"]["required"]
    assert "required" in cli("tasks", "show", "bytes").out


def test_an_unknown_task_names_the_nearest(cli: Cli) -> None:
    result = cli("tasks", "show", "recal")
    assert result.code == 2
    assert "unknown task 'recal'; did you mean 'recall'?" in result.err
    assert result.out == ""


def test_samples_are_read_by_people_with_their_targets_marked(cli: Cli) -> None:
    small = (
        "tasks",
        "show",
        "recall",
        "--set",
        "length=12",
        "--set",
        "pairs=2",
        "--set",
        "vocab=16",
        "--samples",
        "2",
    )
    first, _ = cli(*small, "--json").json("task")["samples"]
    assert len(first["words"]) == 12
    told = dict(zip(first["words"][:4:2], first["words"][1:4:2], strict=True))
    asked = [(w, t) for w, t in zip(first["words"], first["targets"], strict=True) if t is not None]
    assert len(asked) == 2
    assert all(told[word] == target for word, target in asked)
    assert all(f"{word}→{target}" in cli(*small).out for word, target in asked)


def test_samples_of_a_text_run_together_and_need_its_path(cli: Cli, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be " * 99)
    show = ("tasks", "show", "bytes")
    assert "Samples need its required settings: --set path=VALUE" in cli(*show).out
    assert cli(*show, "--json").json("task")["samples"] is None
    assert (
        "to be or not to be"
        in cli(*show, "--set", f"path={text}", "--set", "length=32", "--samples", "1").out
    )
    result = cli(*show, "--set", "path")
    assert (result.code, "NAME=VALUE" in result.err) == (2, True)


def test_a_text_in_tokens_is_shown_by_token_with_its_documents(cli: Cli) -> None:
    given = (f"path={EXAMPLE / 'fables.jsonl'}", f"tokenizer={EXAMPLE / 'tokenizer.json'}", "length=48")
    shown = [part for setting in given for part in ("--set", setting)]
    (sample,) = cli("tasks", "show", "text", *shown, "--samples", "1", "--json").json("task")["samples"]
    assert sample["words"][0] == "⟂"
    assert sample["words"][1:] == sample["targets"][:-1]
    text = json.loads((EXAMPLE / "fables.jsonl").read_text(encoding="utf-8").splitlines()[0])["text"]
    assert text.startswith("".join(sample["words"][1:8])) or len(sample["words"]) == 48


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("recall", "length=11", "length 11 is too short for 4 pairs and 4 queries, which take 12 tokens"),
        (
            "recall",
            "vocab=11",
            "vocab 11 is too small: 4 pairs with distinct keys and 4 fillers need at least 12",
        ),
        ("needle", "length=12", "length 12 is too short: 4 pairs, the marker and 4 queries take 13 tokens"),
        ("bytes", "path={latin}", "is not UTF-8 text (byte 3 is 0xe9); the task 'bytes' reads UTF-8 only"),
        ("text", "path={latin}", "is not UTF-8 text (byte 3 is 0xe9); the task 'text' reads UTF-8 only"),
        ("bytes", "path={empty}", "is empty; the task 'bytes' needs text"),
        ("text", "path={empty}", "is empty; the task 'text' needs text"),
        ("text", "vocab=100", "tokenizer 'of bytes' has 257 token ids, more than vocab 100; raise vocab"),
    ],
)
def test_what_a_task_cannot_be_made_of_is_one_sentence_and_exit_code_2(
    cli: Cli, tmp_path: Path, name: str, given: str, sentence: str
) -> None:
    latin, empty = tmp_path / "latin.txt", tmp_path / "empty.txt"
    latin.write_bytes(b"caf\xe9 au lait")
    empty.write_bytes(b"")
    path = (
        []
        if "path" in given or name not in ("bytes", "text")
        else ["--set", f"path={EXAMPLE / 'fables.jsonl'}"]
    )
    result = cli("tasks", "show", name, *path, "--set", given.format(latin=latin, empty=empty))
    assert (result.code, result.out) == (2, "")
    assert sentence in " ".join(result.err.split())
    assert "Traceback" not in result.err


def test_how_a_task_judges_is_shown_with_its_chance_items_and_overlap(cli: Cli) -> None:
    small = ("tasks", "show", "facts", "--set", "eval_items=16", "--overlap")
    item = cli(*small, "--json").json("task")
    assert item["judges"]["chance"] == 1 / 16
    assert item["judges"]["items"] == item["overlap"]["evaluation"] == 16
    assert item["overlap"]["shared"] == 0
    assert item["overlap"]["training"] > 500
    text = " ".join(cli(*small).out.split())
    assert "Judged by accuracy (max), at best 1: a guess 0.0625, most frequent answer" in text
    assert (
        f"16 evaluation items of 32 tokens, 80 token ids, SHA-256 {item['judges']['items_sha256'][:12]}."
        in text
    )
    assert (
        f"Overlap: 0 of 16 different evaluation items are among {item['overlap']['training']} of training."
        in text
    )
    plain = cli("tasks", "show", "facts", "--json").json("task")
    assert plain["overlap"] is None
    assert cli("tasks", "show", "bytes", "--json").json("task")["judges"] is None


def test_where_answers_alone_count_they_alone_are_marked(cli: Cli) -> None:
    """A text in which every token is trained on stays readable."""
    shown = ("tasks", "show", "filler_recall", "--set", "length=40", "--samples", "1")
    (sample,) = cli(*shown, "--json").json("task")["samples"]
    marked = [n for n, target in enumerate(sample["targets"]) if target is not None]
    assert len(marked) == 8
    assert all(sample["words"][n + 1] == sample["targets"][n] for n in marked)
    text = cli(*shown).out
    assert text.count("→") == 8
    assert "on positions of class answer" in " ".join(text.split())


def test_what_a_small_model_was_seen_to_learn_is_said_and_what_not_too(cli: Cli, tmp_path: Path) -> None:
    plugin = tmp_path / "proven.py"
    plugin.write_text(
        "import crossbreed\n"
        "from crossbreed.core.contracts.task import Proven, TaskDescriptor\n"
        "from crossbreed.plugins.tasks.synthetic_configs import CopyConfig\n"
        "FOUND = Proven({'length': 9}, '2 layers of attention', 1234, 5_000, 3, 0.98765)\n"
        "@crossbreed.hookimpl\n"
        "def register_tasks():\n"
        "    return [TaskDescriptor('mine', 'crossbreed.plugins.tasks.memory:Copying', CopyConfig, 's', proven=FOUND)]\n"
    )
    show = ("tasks", "show", "mine", "--plugin", str(plugin))
    assert cli(*show, "--json").json("task")["proven"]["score"] == 0.98765
    said = "length=9: 2 layers of attention (1,234 parameters) scored at least 0.988 with each of 3 seeds after 5,000 tokens."
    assert f"Seen to be learned with {said}" in " ".join(cli(*show).out.split())
    assert "No settings are recorded with which a small model was seen" in cli("tasks", "show", "bytes").out
