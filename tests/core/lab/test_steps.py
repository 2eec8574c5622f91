"""Tokens decoded in memory that stays, and replayed from a recording."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Host, PluginFile
from crossbreed.core.lab.steps import NotRecorded, RecordedStep, StaticStep
from crossbreed.core.model.language_model import LanguageModel
from tests.support.genomes import ATTENTION, EXPERTS, GENOMES, MAMBA2, architecture, block
from tests.support.passes import loud_model

PROMPT, TOKENS = 6, 19
REGISTRY = Host.load(third_party=False)
LEARNED = {"name": "learned", "params": {"target_rate": 0.4}}
GDN = {"mixer": "gated_deltanet", "params": {"heads": 2, "key_size": 24, "value_size": 48}}
ODD = {"mixer": "attention", "params": {"heads": 3, "head_size": 48, "short_conv": {"width": 3}}}
GROUPED = {"mixer": "attention", "params": {"heads": 4, "kv_heads": 2, "head_size": 24, "window": 5}}
SWIGLU = {"mixer": "swiglu", "params": {"hidden": 40}}
ROTATED = {"mixer": "attention", "params": {"heads": 2, "head_size": 32}}


def tokens(rows: int, device: str = "cpu") -> torch.Tensor:
    return torch.randint(0, 23, (rows, TOKENS), generator=torch.Generator().manual_seed(1)).to(device)


def forced_choices(model: LanguageModel, tokens_BT: torch.Tensor) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    return {
        name: torch.randint(site.choices, tokens_BT.shape, generator=generator).to(tokens_BT.device)
        for name, site in sorted(model.sites().items())
    }


@torch.inference_mode()
def prefilled(model: LanguageModel, tokens_BT: torch.Tensor, forced: dict[str, torch.Tensor], dtype=None):
    """The state after the prompt, with room for all tokens."""
    prompt = tokens_BT[:, :PROMPT]
    state = model.init_state(len(prompt), slots=TOKENS, dtype=dtype)
    context = model.context(
        prompt, state=state, forced={name: choice[:, :PROMPT] for name, choice in forced.items()}
    )
    return model(prompt, context, state)[1]


@torch.inference_mode()
def plainly(model: LanguageModel, tokens_BT: torch.Tensor, forced: dict[str, torch.Tensor], dtype=None):
    """Logits of every token after the prompt, decoded as always."""
    state, found = prefilled(model, tokens_BT, forced, dtype), []
    for t in range(PROMPT, TOKENS):
        cut = {name: choice[:, t : t + 1] for name, choice in forced.items()}
        context = model.context(tokens_BT[:, t : t + 1], phase="decode", state=state, forced=cut)
        h_B1D, state = model(tokens_BT[:, t : t + 1], context, state)
        found.append(model.logits(h_B1D[:, 0]))
    return torch.stack(found, 1), state


def stepped(step: StaticStep, tokens_BT: torch.Tensor, forced: dict[str, torch.Tensor]) -> torch.Tensor:
    inputs = torch.stack([tokens_BT, *(forced[site] for site in step.sites)])
    return torch.stack([step(inputs[:, :, t]).clone() for t in range(PROMPT, TOKENS)], 1)


def off_T(got_BTV: torch.Tensor, right_BTV: torch.Tensor) -> torch.Tensor:
    """Of each token's logits, how far they are off, as a share of their norm."""
    right_BTV = right_BTV.cpu().double()
    return (got_BTV.cpu().double() - right_BTV).norm(dim=(0, 2)) / right_BTV.norm(dim=(0, 2))


def same_states(got, wanted, tolerance: float) -> None:
    assert torch.equal(got.position_B, wanted.position_B)
    for states, others in ((got.mixers, wanted.mixers), (got.routers, wanted.routers)):
        assert states.keys() == others.keys()
        for site, own in states.items():
            for name, tensor in own.items():
                torch.testing.assert_close(
                    tensor.double(), others[site][name].double(), rtol=0, atol=tolerance, msg=f"{site} {name}"
                )


WIDE = {
    "attention of odd heads": architecture({"blocks": [block(ODD), block(SWIGLU)]}),
    "grouped, windowed": architecture({"blocks": [block(GROUPED)]}),
    "gated deltanet": architecture({"blocks": [block(GDN), block(SWIGLU)]}),
    "mamba2": architecture({"blocks": [block(MAMBA2), block(SWIGLU)]}),
    "entropy gate": architecture({"blocks": [block(GDN), block(ATTENTION, gate={"name": "entropy_gate"})]}),
    "learned gate": architecture(
        {"blocks": [block(MAMBA2), block(GROUPED, gate=LEARNED), block(EXPERTS, gate=LEARNED)]}
    ),
}
ALL = {**GENOMES, **WIDE}


@pytest.mark.parametrize("decides", ["forced", "own"])
@pytest.mark.parametrize("name", ALL)
def test_steps_in_memory_that_stays_equal_decoding(name, decides):
    model = loud_model(ALL[name], REGISTRY)
    tokens_BT = tokens(3)
    forced = forced_choices(model, tokens_BT) if decides == "forced" else {}
    wanted, after = plainly(model, tokens_BT, forced)
    state = prefilled(model, tokens_BT, forced)
    places = {(site, n): t.data_ptr() for site, own in state.mixers.items() for n, t in own.items()}
    step = StaticStep(model, state, room=TOKENS - PROMPT, forced=list(forced))
    for _ in range(2):
        torch.testing.assert_close(stepped(step, tokens_BT, forced), wanted, rtol=0, atol=1e-8)
        same_states(step.state, after, 1e-8)
        assert places == {
            (s, n): t.data_ptr() for s, own in step.state.mixers.items() for n, t in own.items()
        }
        step.load(prefilled(model, tokens_BT, forced))


def test_no_more_tokens_are_read_than_there_is_room_for():
    model = loud_model(architecture({"blocks": [block(MAMBA2)]}), REGISTRY)
    step = StaticStep(model, prefilled(model, tokens(1), {}), room=1)
    step(tokens(1)[None, :, 0])
    with pytest.raises(ConfigError, match="room for 1 tokens"):
        step(tokens(1)[None, :, 0])


def test_what_cannot_be_recorded_says_why():
    gated = architecture({"blocks": [block(ATTENTION, gate={"name": "oracle"})]})
    model = loud_model(gated, REGISTRY)
    with pytest.raises(NotRecorded, match="looks at the labels"):
        StaticStep(model, model.init_state(1, slots=4), room=1)
    model = loud_model(architecture({"blocks": [block(ATTENTION)]}), REGISTRY)
    with pytest.raises(NotRecorded, match="CUDA devices"):
        RecordedStep(model, model.init_state(1, slots=4), room=1)


class Computed(TorchDispatchMode):
    """Counts the operations that compute something: into new memory, or in place."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given, found = tree_leaves((args, kwargs or {})), function(*args, **(kwargs or {}))
        places = {x.untyped_storage()._cdata for x in given if isinstance(x, torch.Tensor)}
        made = [x for x in tree_leaves(found) if isinstance(x, torch.Tensor)]
        new = any(x.untyped_storage()._cdata not in places for x in made)
        if (new or function._schema.is_mutable) and "empty" not in function._schema.name:
            self.count[function._schema.name.partition("::")[2]] += 1
        return found


def one_block(*sublayers: dict[str, object], gate: str | None = None, count: int = 1) -> Architecture:
    gates = {} if gate is None else {"gate": {"name": gate}}
    return architecture({"blocks": [{"sublayers": list(sublayers), **gates}] * count})


def begun(kind: type[StaticStep], genome: Architecture, device: str = "cpu", **settings) -> StaticStep:
    model = LanguageModel(genome, REGISTRY, seed=0).to(device).eval()
    dtype = getattr(torch, settings.get("dtype", "float32"))
    state = model.init_state(1, slots=TOKENS, dtype=dtype)
    return kind(model, state, room=TOKENS, forced=list(model.sites()), **settings)


def fired(step: StaticStep) -> torch.Tensor:
    """A token that all gates are forced to let in."""
    return torch.ones_like(step.inputs_NB)


@pytest.mark.parametrize(("sublayers", "masks"), [((ATTENTION,), 1), ((MAMBA2,), 2), ((GDN, SWIGLU), 3)])
def test_a_gate_adds_its_decision_and_one_mask_a_mixer(sublayers, masks):
    """The distilled router's network and threshold are 7 operations, a forced choice 3, and a CPU looks at it once.

    A recurrence is masked by 2 operations, attention and the feed-forward layer by 1.
    """
    counts = []
    for gate in (None, "distilled"):
        step = begun(StaticStep, one_block(*sublayers, gate=gate))
        step(fired(step))
        with Computed() as computed, torch.inference_mode():
            step(fired(step))
        counts.append(computed.count)
    plain, gated = counts
    more = gated - plain
    assert not plain - gated
    assert not {"to", "_to_copy"} & more.keys(), more
    assert more.total() == 7 + 3 + 1 + masks, more


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("sublayers", "kernels"),
    [((ROTATED,), 7), ((GDN,), 4), ((MAMBA2,), 4), ((SWIGLU,), 2), ((GDN, SWIGLU), 6)],
)
def test_a_block_of_a_replayed_token_is_few_kernels(sublayers, kernels):
    """So many more for one block more; a gate adds the parts of its score and the choice."""

    def counted(gate: str | None, count: int) -> int:
        step = begun(RecordedStep, one_block(*sublayers, gate=gate, count=count), "cuda", dtype="bfloat16")
        inputs_NB = fired(step)
        step(inputs_NB)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            step(inputs_NB)
            torch.cuda.synchronize()
        return sum(
            event.count
            for event in seen.key_averages()
            if event.device_type == torch.autograd.DeviceType.CUDA and not event.key.startswith("Mem")
        )

    for gate, most in ((None, kernels), ("distilled", kernels + 2)):
        assert 0 < counted(gate, 3) - counted(gate, 2) <= most


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "rows"), [*((name, 1) for name in ALL), *((name, 3) for name in WIDE)])
def test_replayed_tokens_equal_decoding(name, rows):
    """bfloat16 with forced choices, as close to float64 as launched tokens are: which rows read follows from the tokens alone, but
    which experts compute a token may follow from rounding."""
    exact = loud_model(ALL[name], REGISTRY)
    exact_BT = tokens(rows)
    forced = forced_choices(exact, exact_BT)
    right, _ = plainly(exact, exact_BT, forced)
    model, tokens_BT = exact.float().to("cuda"), exact_BT.cuda()
    forced = {site: choice.cuda() for site, choice in forced.items()}
    with torch.autocast("cuda", torch.bfloat16):
        launched, after = plainly(model, tokens_BT, forced, torch.bfloat16)
        state = prefilled(model, tokens_BT, forced, torch.bfloat16)
        kept = prefilled(model, tokens_BT, forced, torch.bfloat16)
    step = RecordedStep(model, state, room=TOKENS - PROMPT, forced=list(forced), dtype="bfloat16")
    allowed = 1.5 * off_T(launched, right).median() + 0.01
    for _ in range(2):
        assert off_T(stepped(step, tokens_BT, forced), right).median() < allowed
        assert torch.equal(step.state.position_B, after.position_B)
        for site, own in step.state.mixers.items():
            if "0.length" in own:
                assert int(own["0.length"]) == int(after.mixers[site]["0.length"])
        step.load(kept)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["amor", "oryx_entropy", "oryx_learned", "learned_gate", "gated_deltanet"])
def test_replayed_tokens_in_float32_decide_as_decoding_does_in_float64(name):
    model, tokens_BT = loud_model(GENOMES[name], REGISTRY), tokens(3)
    wanted, _ = plainly(model, tokens_BT, {})
    model = model.float().to("cuda")
    state = prefilled(model, tokens_BT.cuda(), {})
    step = RecordedStep(model, state, room=TOKENS - PROMPT)
    got = stepped(step, tokens_BT.cuda(), {}).cpu().double()
    assert (got - wanted).norm() < 0.01 * wanted.norm()


@pytest.mark.gpu
@pytest.mark.parametrize(("mixer", "why"), [("waiting", "synchroniz"), ("lengthening", "gives other logits")])
def test_what_waits_for_the_device_or_computes_with_numbers_of_the_host_is_not_recorded(mixer, why):
    parts = Host.load([PluginFile.read(Path(__file__).with_name("waiting_parts.py"))], third_party=False)
    data = {"vocab": 20, "d_model": 16, "stages": [{"blocks": [{"sublayers": [{"mixer": mixer}]}]}]}
    model = LanguageModel(parts.canonical(Architecture.model_validate(data)), parts).to("cuda").eval()
    with pytest.raises(NotRecorded, match=why):
        RecordedStep(model, model.init_state(1), room=4)
