"""Tasks of lm-evaluation-harness, from files that lie here, answered by a run that was really trained."""

from __future__ import annotations

import importlib
import json
import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

import crossbreed.integrations.lm_harness as integration
from crossbreed.core.contracts.task import Task
from crossbreed.core.errors import ConfigError, MissingExtra, UnknownName
from crossbreed.core.host import Host
from crossbreed.core.lab.generate import Sampling, complete
from crossbreed.core.lab.likelihood import Request
from crossbreed.core.lab.operating_points import OperatingPoint
from crossbreed.core.search.trained import TrainedRun, load
from crossbreed.integrations.lm_harness import HarnessModel, HarnessTasks, _generation
from crossbreed.presets.amor import AmorSizes, amor
from crossbreed.storage.repository import Repository
from tests.support.passes import loud_model
from tests.support.trained import LETTERS, SYMBOLS

TASKS = Path(__file__).parent / "harness_tasks"
SEPARATOR = ord("\n")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in with the task files below it, and no way to the network."""
    shutil.copytree(TASKS, tmp_path / "harness_tasks")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path


@pytest.fixture(scope="module")
def trained(trained_once: Path) -> TrainedRun:
    with Repository.open(str(trained_once), read_only=True) as repository:
        return load(repository, LETTERS, Host.load(third_party=False))


def asked(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (TASKS / f"{name}.jsonl").read_text().splitlines()]


def harness(trained: TrainedRun, **settings: Any) -> HarnessModel:
    return HarnessModel(trained.model, trained.setting.task, **{"max_length": 32, **settings})


def questions(*arguments: tuple[Any, ...]) -> list[SimpleNamespace]:
    return [SimpleNamespace(args=each) for each in arguments]


@torch.no_grad()
def nats_of(trained: TrainedRun, tokens: list[int], judged: int) -> tuple[float, bool]:
    """Of the last ``judged`` tokens, by one whole pass."""
    text_BT = torch.tensor([tokens])
    h_BTD, _ = trained.model(text_BT, trained.model.context(text_BT))
    log_TV = trained.model.logits(h_BTD)[0].double().log_softmax(-1)[-judged - 1 : -1]
    labels_T = text_BT[0, -judged:]
    greedy = bool((log_TV.argmax(-1) == labels_T).all())
    return float(log_TV.gather(1, labels_T[:, None]).sum()), greedy


def test_continuations_are_judged_as_a_whole_pass_does_and_long_contexts_cut_from_the_left(
    trained: TrainedRun,
) -> None:
    pairs = [
        ("the cat sat on the ", "mat"),
        ("", "the"),
        ("the cat sat on the mat and the dog sat on ", "the log"),
    ]
    model = harness(trained, batch=2)
    found = model.loglikelihood(questions(*pairs))
    for (context, continuation), (nats, greedy) in zip(pairs, found, strict=True):
        tokens = [*(context.encode() or b"\n"), *continuation.encode()][-33:]
        # A space that ends the context is judged too, as the harness has it.
        judged = len(continuation) + context.endswith(" ")
        wanted, wanted_greedy = nats_of(trained, tokens, judged)
        assert nats == pytest.approx(wanted, abs=1e-4)
        assert greedy is wanted_greedy
    assert found[0][1]
    assert (model.truncated.requests, model.truncated.of) == (1, 3)
    with pytest.raises(ConfigError, match="a continuation has 34 tokens, and texts have at most 32"):
        model.loglikelihood(questions(("a", "b" * 34)))


@pytest.mark.parametrize("length", [1, 2, 5, 31, 32, 33, 64, 65, 100])
@pytest.mark.parametrize("longest", [2, 7, 32])
def test_whole_texts_are_cut_into_windows_as_the_harness_cuts_them(
    trained: TrainedRun, length: int, longest: int
) -> None:
    tokens = [(7 * i) % 256 for i in range(length)]
    cut = get_rolling_token_windows(tokens, SEPARATOR, max_seq_len=longest, context_len=1)
    wanted = [Request(*make_disjoint_window(pair)) for pair in cut]
    found = list(harness(trained, max_length=longest)._windows(tokens))
    assert [(list(r.context), list(r.continuation)) for r in found] == [tuple(map(list, r)) for r in wanted]


def test_a_text_that_fits_is_judged_in_one_pass(trained: TrainedRun) -> None:
    text = "the cat sat on the mat and the d"
    (found,) = harness(trained).loglikelihood_rolling(questions((text,)))
    assert found == pytest.approx(nats_of(trained, [SEPARATOR, *text.encode()], len(text))[0], abs=1e-4)
    assert harness(trained).loglikelihood_rolling(questions(("",))) == [0.0]


def test_answers_end_before_their_stop(trained: TrainedRun) -> None:
    model = harness(trained, batch=3)
    settings = {"until": [".", "zz"], "max_gen_toks": 12, "do_sample": False}
    found = model.generate_until(
        questions(("the dog sat on the", settings), ("the cat sat on", settings), ("the dog sat", settings))
    )
    assert found[0] == " log"
    assert found[1] == " the mat and"
    assert len(found[2]) == 11 or len(found[2]) == 12
    other = {"until": " mat", "max_new_tokens": 9}
    assert model.generate_until(questions(("the cat sat on", other), ("the dog sat on the", settings))) == [
        " the",
        " log",
    ]
    with pytest.raises(ConfigError, match="256 new tokens are asked for, and texts have at most 32"):
        model.generate_until(questions(("a", {})))


def test_settings_of_generation_are_followed_or_refused() -> None:
    assert _generation({}) == ([], 256, Sampling())
    assert _generation(
        {"until": ["", "x"], "max_tokens": 5, "temperature": 0.7, "do_sample": True, "top_k": 3}
    ) == (
        ["x"],
        5,
        Sampling(0.7, 3),
    )
    assert _generation({"temperature": 0.7, "do_sample": False, "top_p": 1.0})[2] == Sampling()
    assert _generation({"do_sample": True})[2] == Sampling(1.0)
    with pytest.raises(ConfigError, match=r"generation setting 'top_p' is 0\.9, which is not followed"):
        _generation({"top_p": 0.9})


@pytest.mark.usefixtures("folder")
def test_tasks_score_what_the_model_really_says_in_any_batch(trained: TrainedRun) -> None:
    names = ["sat_choices", "sat_texts", "sat_answers"]
    tasks = HarnessTasks([f"harness_tasks/{name}.yaml" for name in names])
    results = {size: tasks.judge(harness(trained, batch=size)) for size in (1, 8, 32)}
    scores = {(s.task, s.metric): s for s in results[1].scores}
    right = 0
    for doc in asked("sat_choices"):
        nats = [
            nats_of(
                trained,
                [*(doc["question"].encode() or b"\n"), *choice.encode()][-33:],
                len(choice) + doc["question"].endswith(" "),
            )[0]
            for choice in doc["choices"]
        ]
        right += nats.index(max(nats)) == doc["answer"]
    assert scores["sat_choices", "acc"].value == pytest.approx(right / 7)
    assert 0 < right < 7
    assert scores["sat_choices", "acc"].stderr is not None
    assert scores["sat_choices", "acc"].higher_is_better
    texts = [doc["text"].encode() for doc in asked("sat_texts")]
    total = 0.0
    for text in texts:
        whole = [SEPARATOR, *text]
        for begin in range(0, len(text), 32):
            end = min(begin + 32, len(text))
            total += nats_of(trained, whole[max(0, end - 32) : end + 1], end - begin)[0]
    bits = -total / sum(map(len, texts)) / math.log(2)
    assert scores["sat_texts", "bits_per_byte"].value == pytest.approx(bits, rel=1e-4)
    assert scores["sat_answers", "exact_match"].value == pytest.approx(3 / 5)
    assert results[1].samples == {"sat_choices": 7, "sat_texts": 5, "sat_answers": 5}
    for size in (8, 32):
        assert results[size].truncated == results[1].truncated
        for one, other in zip(results[1].scores, results[size].scores, strict=True):
            assert (one.task, one.metric) == (other.task, other.metric)
            assert other.value == pytest.approx(one.value, rel=1e-5)


@pytest.mark.usefixtures("folder")
def test_a_folder_of_tasks_is_found_by_name_and_a_limit_keeps_to_the_first(
    trained: TrainedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Looking through all that the harness ships takes ten seconds.
    mine = integration.TaskManager
    monkeypatch.setattr(
        integration, "TaskManager", lambda include_path, include_defaults: mine(None, include_path, False)
    )
    tasks = HarnessTasks(["sat_choices"], [Path("harness_tasks")])
    found = tasks.judge(harness(trained), limit=3, shots=1)
    assert found.samples == {"sat_choices": 3}
    assert found.shots == {"sat_choices": 1}
    with pytest.raises(UnknownName, match="unknown lm-eval task 'sat_choses'; did you mean 'sat_choices'"):
        HarnessTasks(["sat_choses"], [Path("harness_tasks")])
    with pytest.raises(UnknownName, match=r"unknown lm-eval task 'nowhere\.yaml'"):
        HarnessTasks(["nowhere.yaml"])
    with pytest.raises(ConfigError, match="--include 'nowhere' is no folder"):
        HarnessTasks(["sat_choices"], [Path("nowhere")])


@pytest.mark.usefixtures("folder")
def test_data_that_are_not_there_are_a_sentence(trained: TrainedRun) -> None:
    Path("harness_tasks/sat_texts.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"a task of .*sat_texts\.yaml cannot be loaded: FileNotFoundError"):
        HarnessTasks(["harness_tasks/sat_texts.yaml"]).judge(harness(trained))


def test_symbols_have_no_text_to_be_asked_in(trained_once: Path) -> None:
    with Repository.open(str(trained_once), read_only=True) as repository:
        symbols = load(repository, SYMBOLS, Host.load(third_party=False))
    with pytest.raises(ConfigError, match="task Recall is made of symbols"):
        harness(symbols)


class Marked(Task):
    """Letters by their number, ``th`` as one token, and a mark before each document."""

    vocab, separator, MERGED = 31, 30, 29

    def encode(self, text: str) -> list[int]:
        return [ord(c) - 97 if c != "#" else self.MERGED for c in text.replace("th", "#")]

    def prompt(self, text: str) -> list[int]:
        return [self.separator, *self.encode(text)]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(
            "th" if t == self.MERGED else "|" if t == self.separator else chr(t + 97) for t in tokens
        )


@pytest.fixture(scope="module")
def marked(registry) -> HarnessModel:
    body = amor(AmorSizes(31, 16, 2, 20, head_size=8, state_size=6), "gdn", blocks=2)
    model = loud_model(body.model_copy(update={"tie_embeddings": False}), registry)
    return HarnessModel(model, Marked(None), max_length=20, batch=4)


def test_a_text_is_tokenised_whole_and_begins_after_what_tells_documents_apart(marked: HarnessModel) -> None:
    assert marked._pair("cat", "er") == ([30, 2, 0, 19], [4, 17])
    assert marked._pair("cat", "thx") == ([30, 2, 0, 19], [29, 23])
    assert marked._pair("cat  ", "er")[1] == [32 - 97, 32 - 97, 4, 17]
    # The t that ends the context is one token with the h that follows it.
    assert marked._pair("t", "h") == ([30, 19], [])
    assert marked._pair("", "th") == ([30], [29])
    assert marked.loglikelihood(questions(("t", "h"))) == [(0.0, True)]


def test_an_answer_ends_with_its_document(marked: HarnessModel) -> None:
    prompts = [[30, n] for n in range(26)]
    whole = complete(marked.model, prompts, 12, batch=26)
    (place,) = [n for n, said in enumerate(whole) if 30 in said[1:]][:1]
    said = whole[place]
    asked = questions((chr(97 + place), {"max_gen_toks": 12}))
    assert marked.generate_until(asked) == [marked.task.decode(said[: said.index(30)])]


def test_a_point_decides_for_the_model(trained: TrainedRun) -> None:
    pair = questions(("the cat sat on the ", "mat"))
    own, shut = (
        harness(trained, point=OperatingPoint.parse(name)).loglikelihood(pair)[0][0]
        for name in ("own", "forced:0")
    )
    assert abs(own - shut) > 1e-3


@pytest.fixture
def _as_it_was() -> Iterator[None]:
    yield
    importlib.reload(integration)


@pytest.mark.usefixtures("_as_it_was")
def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "lm_eval", None)
        with pytest.raises(MissingExtra, match=r"pip install 'crossbreed\[eval\]'"):
            importlib.reload(integration)
