"""Exported models through transformers' own doors: the same logits, the same text, with a cache, padding and beams."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

import crossbreed.integrations.transformers as integration
from crossbreed.cli import run
from crossbreed.core.errors import ConfigError, MissingExtra
from crossbreed.core.genome import Router
from crossbreed.core.host import Host
from crossbreed.core.lab.generate import generate
from crossbreed.core.lab.operating_points import OperatingPoint
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.search.trained import load
from crossbreed.integrations import model_files
from crossbreed.presets.cells import with_router
from crossbreed.storage.repository import Repository
from tests.support.miniatures import BODIES, V
from tests.support.passes import loud_model
from tests.support.trained import LETTERS, SYMBOLS

HALTED = with_router(
    BODIES["dreamer"], "halt", Router(name="segment_random", params={"segment": 3, "probability": 0.5})
)
# Tied embeddings would have loud models repeat their last token.
MODELS = {
    name: body.model_copy(update={"tie_embeddings": False})
    for name, body in {**BODIES, "halted": HALTED}.items()
}
PLUGIN = '''
"""Runs every PERIOD-th token; the period is in a buffer that no checkpoint holds."""
from pydantic import BaseModel
from crossbreed import Decision, Router, RouterCapabilities, RouterDescriptor, hookimpl


class Config(BaseModel, frozen=True, extra="forbid"):
    pass


def build():
    import torch

    class Periodic(Router, torch.nn.Module):
        def __init__(self, config, build):
            super().__init__()
            self.register_buffer("period", torch.tensor(3), persistent=False)

        def forward(self, h_BTD, context, state):
            return Decision((context.positions_BT % self.period == 0).long()), state

    return Periodic


@hookimpl
def register_routers():
    can = RouterCapabilities(sites=("gate",), max_choices=2)
    return [RouterDescriptor("periodic", build, Config, can, "Runs some tokens.")]
'''


def exported(db: Path, key: str, folder: Path, *options: str) -> Path:
    assert run(["export-model", key, str(folder), "--db", str(db), *options]) == 0
    return folder


def wrapped(model: LanguageModel, parts: Host, folder: Path, **changes: object):
    """A model of our own through files and ``AutoModelForCausalLM``, in float64."""
    config = model_files.config_of(model, parts, seed=0, schedule=None, origin={})
    model_files.write(folder, model, {**config, "dtype": "float64", **changes}, "a card", {})
    return AutoModelForCausalLM.from_pretrained(folder)


@pytest.fixture(scope="module")
def models(registry, tmp_path_factory):
    """Name -> (our model, the same through transformers)."""
    found = {}
    for name, architecture in MODELS.items():
        model = loud_model(architecture, registry)
        found[name] = model, wrapped(model, registry, tmp_path_factory.mktemp(name))
    return found


def tokens(batch: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(V, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("key", [LETTERS, SYMBOLS])
def test_a_trained_run_comes_back_with_every_tensor_and_the_same_logits(
    trained_runs: Path, tmp_path: Path, key: str
) -> None:
    folder = exported(trained_runs, key, tmp_path / "out")
    model, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(loading.values())
    with Repository.open(str(trained_runs), read_only=True) as repository:
        ours = load(repository, key, Host.load(third_party=False))
    for name, tensor in ours.model.state_dict().items():
        assert torch.equal(tensor, model.model.state_dict()[name]), name
    rows_BT = next(ours.setting.task.evaluation(4)).tokens_BT
    with torch.no_grad():
        context = ours.model.context(rows_BT, rows_B=torch.zeros(len(rows_BT), dtype=torch.int64))
        logits_BTV = ours.model.logits(ours.model(rows_BT, context)[0])
        assert torch.equal(model(rows_BT, use_cache=False).logits, logits_BTV)
        torch.testing.assert_close(model(rows_BT).logits, logits_BTV, rtol=0, atol=1e-5)
    prompt = rows_BT[0, :5]
    found = generate(ours.model, prompt.tolist(), 7)
    text_BT = model.generate(prompt[None], max_new_tokens=7, do_sample=False)
    assert text_BT[0].tolist() == [*found.prompt, *found.new]


@pytest.mark.parametrize("name", MODELS)
def test_a_cache_changes_no_text_and_reads_each_token_once(models, name: str) -> None:
    _, model = models[name]
    read: list[int] = []
    hook = model.model.register_forward_pre_hook(lambda module, args: read.append(args[0].shape[1]))
    prompts_BT = tokens(3, 6)
    cached = model.generate(prompts_BT, max_new_tokens=5, do_sample=False)
    assert read == [6, 1, 1, 1, 1]
    hook.remove()
    again = model.generate(prompts_BT, max_new_tokens=5, do_sample=False, use_cache=False)
    assert torch.equal(cached, again)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side_and_neighbours_change_nothing(models, name: str, side: str) -> None:
    model, (lengths, T) = models[name][1], ((9, 5, 1), 9)
    rows = [tokens(1, n, seed=n) for n in lengths]
    batch_BT, mask_BT = torch.full((3, T), 7), torch.zeros(3, T, dtype=torch.int64)
    places = [slice(T - n, T) if side == "left" else slice(0, n) for n in lengths]
    for b, place in enumerate(places):
        batch_BT[b, place], mask_BT[b, place] = rows[b][0], 1
    with torch.no_grad():
        together_BTV = model(batch_BT, attention_mask=mask_BT).logits
        for b, place in enumerate(places):
            alone_TV = model(rows[b]).logits[0]
            torch.testing.assert_close(together_BTV[b, place], alone_TV, rtol=0, atol=1e-9)
    if side == "left":
        found = model.generate(batch_BT, attention_mask=mask_BT, max_new_tokens=4, do_sample=False)
        for b, row in enumerate(rows):
            alone = model.generate(row, max_new_tokens=4, do_sample=False)
            assert found[b, -4:].tolist() == alone[0, -4:].tolist()


def test_beams_take_their_state_along(models) -> None:
    model = models["oryx"][1]
    options = {"max_new_tokens": 6, "num_beams": 4, "do_sample": False}
    cached = model.generate(tokens(2, 5), **options)
    assert torch.equal(cached, model.generate(tokens(2, 5), **options, use_cache=False))
    assert not torch.equal(cached, model.generate(tokens(2, 5), max_new_tokens=6, do_sample=False))


def test_a_text_in_pieces_and_its_last_logits_alone(models) -> None:
    model, whole_BT = models["dreamer"][1], tokens(2, 11)
    with torch.no_grad():
        first = model(whole_BT[:, :4])
        second = model(whole_BT[:, 4:], cache=first.cache, logits_to_keep=1)
        wanted_BTV = model(whole_BT).logits
    assert second.cache.get_seq_length() == 11
    assert second.logits.shape == (2, 1, V)
    torch.testing.assert_close(second.logits[:, 0], wanted_BTV[:, -1], rtol=0, atol=1e-9)


def test_the_loss_is_of_each_next_token(models) -> None:
    model, text_BT = models["amor"][1], tokens(2, 8)
    labels_BT = text_BT.clone()
    labels_BT[0, :3] = -100
    with torch.no_grad():
        found = model(text_BT, labels=labels_BT)
        log_BTV = found.logits.log_softmax(-1)
    wanted = [log_BTV[b, t - 1, text_BT[b, t]] for b in (0, 1) for t in range(1, 8) if labels_BT[b, t] >= 0]
    assert float(found.loss) == pytest.approx(-float(torch.stack(wanted).mean()), rel=1e-6)


def test_what_transformers_saves_it_loads_again(models, tmp_path: Path) -> None:
    model = models["oryx"][1]
    model.save_pretrained(tmp_path / "again")
    again, loading = AutoModelForCausalLM.from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not any(loading.values())
    with torch.no_grad():
        assert torch.equal(again(tokens(2, 6)).logits, model(tokens(2, 6)).logits)


def test_a_schedule_from_the_start_goes_with_the_model(trained_runs: Path, tmp_path: Path) -> None:
    name = "schedule:0=mamba2,3=attention"
    folder = exported(trained_runs, SYMBOLS, tmp_path / "out", "--point", name)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.config.mode_schedule == [[0, 0], [3, 1]]
    with Repository.open(str(trained_runs), read_only=True) as repository:
        ours = load(repository, SYMBOLS, Host.load(third_party=False)).model
    wanted = generate(ours, [1, 7, 0, 1], 6, point=OperatingPoint.parse(name))
    found = model.generate(torch.tensor([[1, 7, 0, 1]]), max_new_tokens=6, do_sample=False)
    assert found[0].tolist() == [*wanted.prompt, *wanted.new]


def test_fitted_routers_are_a_model_of_their_own(trained_runs: Path, tmp_path: Path) -> None:
    assert run(["fit-router", LETTERS, "--steps", "3", "--no-profile", "--db", str(trained_runs)]) == 0
    folder = exported(trained_runs, LETTERS, tmp_path / "out", "--point", "fitted:distilled")
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert [site.router_name for site in model.model.routed_sites()] == ["distilled"]


@pytest.fixture
def _no_plugin_files():
    yield
    integration.use_plugins()


@pytest.mark.usefixtures("_no_plugin_files")
def test_a_plugin_file_is_named_by_the_one_who_loads_and_must_be_the_same(tmp_path: Path) -> None:
    file = tmp_path / "periodic.py"
    file.write_text(PLUGIN)
    parts = Host.load([str(file)])
    model = loud_model(with_router(BODIES["amor"], "gate", Router(name="periodic")), parts)
    # As training might leave it, and as no one who builds it anew would have it.
    for site in model.routed_sites():
        site.router.period.fill_(2)
    config = model_files.config_of(model, parts, seed=0, schedule=None, origin={})
    folder = tmp_path / "out"
    model_files.write(folder, model, {**config, "dtype": "float64"}, "a card", {})
    with pytest.raises(ConfigError, match="unknown router 'periodic'"):
        AutoModelForCausalLM.from_pretrained(folder)
    integration.use_plugins(str(file))
    found = AutoModelForCausalLM.from_pretrained(folder)
    text_BT = tokens(2, 9)
    with torch.no_grad():
        wanted_BTV = model.logits(model(text_BT, model.context(text_BT))[0])
        torch.testing.assert_close(found(text_BT).logits, wanted_BTV, rtol=0, atol=1e-9)
    file.write_text(PLUGIN + "\n# another file\n")
    integration.use_plugins(str(file))
    with pytest.raises(ConfigError, match="was trained with router:periodic of sha256"):
        AutoModelForCausalLM.from_pretrained(folder)


def test_another_version_is_a_warning_and_a_genome_that_cannot_be_built_a_sentence(
    models, registry, tmp_path: Path
) -> None:
    model = models["amor"][0]
    other = dict.fromkeys(registry.identities(model.architecture), "crossbreed 0.0.1")
    with pytest.warns(UserWarning, match=r"of crossbreed 0\.0\.1, here it is of crossbreed"):
        wrapped(model, registry, tmp_path / "old", plugins=other)
    with pytest.raises(ConfigError, match=r"architecture of config\.json"):
        wrapped(model, registry, tmp_path / "bad", architecture={"vocab": 3})
    with pytest.raises(ConfigError, match="must be of a model that crossbreed export-model wrote"):
        wrapped(model, registry, tmp_path / "none", architecture=None)


def test_what_a_model_cannot_read_is_a_sentence(models, registry, tmp_path: Path) -> None:
    model = wrapped(models["oryx"][0], registry, tmp_path / "short", longest=6)
    assert model.generate(tokens(1, 4), max_new_tokens=3, do_sample=False).shape == (1, 7)
    with pytest.raises(ConfigError, match="a text of 7 tokens is too long; this model can read 6"):
        model.generate(tokens(1, 4), max_new_tokens=4, do_sample=False)
    with pytest.raises(ConfigError, match="padding between tokens of a row"):
        model(tokens(1, 4), attention_mask=torch.tensor([[1, 0, 1, 1]]))


def test_without_transformers_or_with_an_old_one_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, warnings.catch_warnings():
        patched.setitem(sys.modules, "transformers", None)
        with pytest.raises(MissingExtra, match=r"'transformers' \(at least 5.24\), which cannot be imported"):
            importlib.reload(integration)
    with monkeypatch.context() as patched:
        patched.setattr("crossbreed.integrations.extras.version", lambda package: "5.3.0")
        with pytest.raises(
            MissingExtra, match=r"version 5.3.0 is installed; pip install 'crossbreed\[transformers\]'"
        ):
            importlib.reload(integration)
    assert issubclass(MissingExtra, ImportError)
    assert MissingExtra.exit_code == 2
