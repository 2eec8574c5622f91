"""Gated DeltaNet checkpoints of fla (GatedDeltaNetForCausalLM)."""

from __future__ import annotations

from collections.abc import Iterator

from crossbreed.core.genome import Architecture, Block, DepthPolicy, Stage, Sublayer
from crossbreed.foreign.files import Source
from crossbreed.foreign.plan import Plan, divided, ends, swiglu
from crossbreed.foreign.table import Rule, taps, whole

MARK = "model.layers.0.attn.b_proj.weight"
EPS = 1e-6
LAYER = "model.layers."


def plan(source: Source) -> Plan:
    """One stage of blocks of Gated DeltaNet and SwiGLU. Raises ConfigError for settings without a counterpart: attention
    among the layers, negative eigenvalues, another activation."""
    source.refuse_unless("attn", (None,), None)
    source.refuse_unless("allow_neg_eigval", (False,), False)
    source.refuse_unless("hidden_act", ("swish", "silu"), "swish")
    eps = float(source.setting("norm_eps", EPS))
    layers = source.count(LAYER, ".attn.b_proj.weight")
    tied, table, copies = ends(source, "model.embeddings.weight", "lm_head.weight")
    rules: list[Rule] = [*table, whole("final_norm.weight", "model.norm.weight")]
    key_heads = source.config.get("num_heads")
    mixer = sublayer(source, f"{LAYER}0.attn.", eps, key_heads)
    channel = swiglu(source, f"{LAYER}0.mlp.", "")[0]
    for layer in range(layers):
        there, here = f"{LAYER}{layer}.", f"stages.0.weight_sets.{layer}.0."
        rules.append(whole(f"{here}norms.0.weight", f"{there}attn_norm.weight"))
        rules.append(whole(f"{here}norms.1.weight", f"{there}mlp_norm.weight"))
        rules += mixer_rules(source, f"{there}attn.", f"{here}mixers.0.")
        rules += swiglu(source, f"{there}mlp.", f"{here}mixers.1.")[1]
    vocab, d_model = source.shape("model.embeddings.weight")
    block = Block(sublayers=(mixer, channel), norm_eps=eps)
    stage = Stage(blocks=(block,), depth=DepthPolicy(name="layered", repeats=layers))
    architecture = Architecture(
        vocab=vocab, d_model=d_model, tie_embeddings=tied, stages=(stage,), norm_eps=eps
    )
    return Plan(architecture, tuple(rules), copies)


def sublayer(source: Source, there: str, eps: float, key_heads: int | None = None) -> Sublayer:
    """The mixer whose sizes the tensors of one layer have; ``key_heads`` None: one for each value head."""
    (heads,) = source.shape(f"{there}A_log")
    keys, values = (source.shape(f"{there}{name}_proj.weight")[0] for name in ("k", "v"))
    return Sublayer(
        mixer="gated_deltanet",
        params={
            "heads": heads,
            "key_heads": key_heads,
            "key_size": divided("key size", keys, key_heads or heads),
            "value_size": divided("value size", values, heads),
            "gate": f"{there}g_proj.weight" in source.tensors,
            "norm_eps": eps,
            "short_conv": {
                "width": source.shape(f"{there}k_conv1d.weight")[-1],
                "bias": f"{there}k_conv1d.bias" in source.tensors,
            },
        },
    )


def mixer_rules(source: Source, there: str, here: str) -> Iterator[Rule]:
    """Theirs apart; here in the order keys, values, queries, gate, with decay (a) and write strength (b) in the reader."""
    streams = ("k", "v", "q")
    gate = [f"{there}g_proj.weight"] if f"{there}g_proj.weight" in source.tensors else []
    yield whole(f"{here}projections.input.weight", *(f"{there}{name}_proj.weight" for name in streams), *gate)
    yield whole(f"{here}conv_CW", *(f"{there}{name}_conv1d.weight" for name in streams), reshape=taps)
    if f"{there}k_conv1d.bias" in source.tensors:
        yield whole(f"{here}conv_bias_C", *(f"{there}{name}_conv1d.bias" for name in streams))
    yield whole(f"{here}readers.0.ab_proj.weight", f"{there}a_proj.weight", f"{there}b_proj.weight")
    for ours, theirs in (
        ("readers.0.A_log", "A_log"),
        ("readers.0.dt_bias", "dt_bias"),
        ("norm_weight", "o_norm.weight"),
        ("projections.output.weight", "o_proj.weight"),
    ):
        yield whole(f"{here}{ours}", f"{there}{theirs}")
