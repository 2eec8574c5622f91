"""Mamba-2 checkpoints: state-spaces/mamba2-* (mamba_ssm) and transformers' Mamba2ForCausalLM, which share their keys.

Norms have epsilon 1e-5 in both unless config.json says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator

from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, Block, DepthPolicy, Stage, Sublayer
from crossbreed.foreign.files import UNLIMITED, Source
from crossbreed.foreign.plan import Plan, divided, ends
from crossbreed.foreign.table import Rule, sections, taps, whole

MARK = "backbone.layers.0.mixer.dt_bias"
EPS = 1e-5
LAYER = "backbone.layers."


def plan(source: Source) -> Plan:
    """One stage of Mamba-2 blocks. Raises ConfigError for what the mixer here does not do: limits on time steps, a norm by
    groups, attention layers among the others."""
    named = next(
        (n for n in ("embeddings", "embedding") if f"backbone.{n}.weight" in source.tensors), "embedding"
    )
    embedding = f"backbone.{named}.weight"
    source.refuse_unless("time_step_limit", (UNLIMITED,), UNLIMITED)
    source.refuse_unless("hidden_act", ("silu",), "silu")
    own = source.setting("ssm_cfg", {})
    if named == "embedding":
        source.refuse_unless("attn_layer_idx", ((),), ())
    groups = int(own.get("ngroups", source.setting("n_groups", 1 if named == "embedding" else 8)))
    if groups != 1:
        raise ConfigError(
            f"checkpoint {str(source.path)!r} has {groups} groups, each normalised apart at the end of a mixer; the norm here "
            "covers all heads, so that it must have 1."
        )
    eps = float(source.setting("layer_norm_epsilon", EPS))
    layers = source.count(LAYER, ".mixer.dt_bias")
    tied, table, copies = ends(source, embedding, "lm_head.weight")
    rules: list[Rule] = [*table, whole("final_norm.weight", "backbone.norm_f.weight")]
    mixer = sublayer(source, f"{LAYER}0.mixer.", groups, eps)
    for layer in range(layers):
        here = f"stages.0.weight_sets.{layer}.0."
        rules.append(whole(f"{here}norms.0.weight", f"{LAYER}{layer}.norm.weight"))
        rules += mixer_rules(source, f"{LAYER}{layer}.mixer.", f"{here}mixers.0.", groups)
    vocab, d_model = source.shape(embedding)
    block = Block(sublayers=(mixer,), norm_eps=eps)
    stage = Stage(blocks=(block,), depth=DepthPolicy(name="layered", repeats=layers))
    architecture = Architecture(
        vocab=vocab, d_model=d_model, tie_embeddings=tied, stages=(stage,), norm_eps=eps
    )
    return Plan(architecture, tuple(rules), copies)


def sublayer(source: Source, there: str, groups: int, eps: float) -> Sublayer:
    """The mixer whose sizes the tensors of one layer have."""
    (heads,), inner = source.shape(f"{there}A_log"), source.shape(f"{there}out_proj.weight")[1]
    channels, _, width = source.shape(f"{there}conv1d.weight")
    return Sublayer(
        mixer="mamba2",
        params={
            "heads": heads,
            "head_size": divided("head size", inner, heads),
            "state_size": divided("state size", channels - inner, 2 * groups),
            "groups": groups,
            "norm_eps": eps,
            "short_conv": {"width": width, "bias": f"{there}conv1d.bias" in source.tensors},
        },
    )


def mixer_rules(source: Source, there: str, here: str, groups: int) -> Iterator[Rule]:
    """Theirs in the order z, x, B, C, dt; here keys (B), values (x), queries (C), gate (z), and dt with the reader."""
    (heads,), inner = source.shape(f"{there}A_log"), source.shape(f"{there}out_proj.weight")[1]
    state = divided("state size", source.shape(f"{there}conv1d.weight")[0] - inner, 2)
    part = sections(f"{there}in_proj.weight", z=inner, x=inner, B=state, C=state, dt=heads)
    yield Rule(f"{here}projections.input.weight", (part["B"], part["x"], part["C"], part["z"]))
    yield Rule(f"{here}readers.0.dt_proj.weight", (part["dt"],))
    conv = sections(f"{there}conv1d.weight", x=inner, B=state, C=state)
    yield Rule(f"{here}conv_CW", (conv["B"], conv["x"], conv["C"]), taps)
    if f"{there}conv1d.bias" in source.tensors:
        bias = sections(f"{there}conv1d.bias", x=inner, B=state, C=state)
        yield Rule(f"{here}conv_bias_C", (bias["B"], bias["x"], bias["C"]))
    for ours, theirs in (
        ("readers.0.dt_bias", "dt_bias"),
        ("readers.0.A_log", "A_log"),
        ("readers.0.D_H", "D"),
        ("norm_weight", "norm.weight"),
        ("projections.output.weight", "out_proj.weight"),
    ):
        yield whole(f"{here}{ours}", f"{there}{theirs}")
