"""AMOR checkpoints as the authors' code saves them (FlyinGodzilla/AMOR-*), with either backbone.

The weights do not say the number of attention heads, the residual mode, or the gate's offset: they come from config.json
or --set under the names of that code's arguments (n_heads, residual_mode, offset_mode, offset_k, gate_offset), else from
its defaults. Norms have epsilon 1e-6, those inside the recurrent mixers, and all of transformers' Mamba-2, 1e-5.
"""

from __future__ import annotations

from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import (
    NORM_EPS,
    Architecture,
    Block,
    DepthPolicy,
    OutputScale,
    Router,
    Stage,
    Sublayer,
)
from crossbreed.foreign import gated_deltanet, mamba2
from crossbreed.foreign.files import Source
from crossbreed.foreign.plan import Plan, divided, ends, swiglu
from crossbreed.foreign.table import Constant, Entry, whole

MARK = "amor_blocks.0.raw_alpha"
INNER_EPS = 1e-5
"""Of fla's Gated DeltaNet layer and of transformers' Mamba-2, as that code builds them."""
HEAD_SIZE = 64


def plan(source: Source) -> Plan:
    """The backbone's stage, then the gated attention blocks. Raises ConfigError for an unknown residual or offset mode."""
    tied, table, copies = ends(source, "embed.weight", "lm_head.weight")
    vocab, d_model = source.shape("embed.weight")
    residual = source.setting("residual_mode", "classic")
    source.refuse_unless("residual_mode", ("classic", "h"), "classic")
    rules: list[Entry] = [*table, whole("final_norm.weight", "final_norm.weight")]
    on_mamba = "ssd_layers.0.mixer.dt_bias" in source.tensors
    backbone, found = _mamba2(source) if on_mamba else _gated_deltanet(source)
    rules += found
    first_eps = INNER_EPS if on_mamba else NORM_EPS
    blocks, found = _blocks(source, d_model, residual == "classic", first_eps)
    rules += found
    place = "entry_norm" if residual == "classic" else "weight_sets.0.0.norms.0"
    rules.append(whole(f"stages.1.{place}.weight", "norm_f.weight"))
    last = Stage(blocks=blocks, entry_norm=residual == "classic", norm_eps=first_eps)
    architecture = Architecture(vocab=vocab, d_model=d_model, tie_embeddings=tied, stages=(backbone, last))
    return Plan(architecture, tuple(rules), copies)


def _mamba2(source: Source) -> tuple[Stage, list[Entry]]:
    layers = source.count("ssd_layers.", ".mixer.dt_bias")
    rules: list[Entry] = []
    groups = int(source.setting("n_groups", 1))
    mixer = mamba2.sublayer(source, "ssd_layers.0.mixer.", groups, INNER_EPS)
    channel = swiglu(source, "mlps.0.", "")[0]
    for layer in range(layers):
        there, here = f"ssd_layers.{layer}.", f"stages.0.weight_sets.{layer}."
        rules += mamba2.mixer_rules(source, f"{there}mixer.", f"{here}0.mixers.0.", groups)
        rules += swiglu(source, f"mlps.{layer}.", f"{here}1.mixers.0.")[1]
        rules.append(whole(f"{here}0.norms.0.weight", f"{there}norm.weight"))
        rules.append(whole(f"{here}1.norms.0.weight", f"mlp_norms.{layer}.weight"))
    # Norms of another epsilon keep the two sublayers in blocks of their own.
    return _layers(layers, Block(sublayers=(mixer,), norm_eps=INNER_EPS), Block(sublayers=(channel,))), rules


def _gated_deltanet(source: Source) -> tuple[Stage, list[Entry]]:
    layers = source.count("layers.", ".gdn.A_log")
    rules: list[Entry] = []
    mixer = gated_deltanet.sublayer(source, "layers.0.gdn.", INNER_EPS)
    channel = swiglu(source, "layers.0.mlp.", "")[0]
    for layer in range(layers):
        there, here = f"layers.{layer}.", f"stages.0.weight_sets.{layer}.0."
        rules += gated_deltanet.mixer_rules(source, f"{there}gdn.", f"{here}mixers.0.")
        rules += swiglu(source, f"{there}mlp.", f"{here}mixers.1.")[1]
        rules.append(whole(f"{here}norms.0.weight", f"{there}norm_ssm.weight"))
        rules.append(whole(f"{here}norms.1.weight", f"{there}norm_mlp.weight"))
    return _layers(layers, Block(sublayers=(mixer, channel))), rules


def _layers(count: int, *blocks: Block) -> Stage:
    return Stage(blocks=blocks, depth=DepthPolicy(name="layered", repeats=count))


def _blocks(
    source: Source, d_model: int, classic: bool, first_eps: float
) -> tuple[tuple[Block, ...], list[Entry]]:
    heads = source.config.get("n_heads")
    if heads is None and d_model % HEAD_SIZE:
        raise ConfigError(
            f"checkpoint {str(source.path)!r} does not say its attention heads, and a width of {d_model} is no multiple of "
            f"{HEAD_SIZE}; add --set n_heads=NUMBER."
        )
    heads = int(heads or d_model // HEAD_SIZE)
    attention = Sublayer(
        mixer="attention", params={"heads": heads, "head_size": divided("head size", d_model, heads)}
    )
    blocks: list[Block] = []
    rules: list[Entry] = []
    for i in range(source.count("amor_blocks.", ".raw_alpha")):
        there, here = f"amor_blocks.{i}.", f"stages.1.weight_sets.0.{i}."
        normed = i > 0 or not classic
        blocks.append(
            Block(
                sublayers=(attention,),
                norm="pre" if normed else "none",
                norm_eps=first_eps if i == 0 else NORM_EPS,
                output_scale=OutputScale(),
                output_init="zero",
                gate=_gate(source),
            )
        )
        rules += [
            whole(
                f"{here}mixers.0.projections.input.weight",
                f"{there}kv_proj.k_proj.weight",
                f"{there}kv_proj.v_proj.weight",
                f"{there}q_proj.weight",
            ),
            whole(f"{here}mixers.0.projections.output.weight", f"{there}out_proj.weight"),
            whole(f"{here}scale_raw_D", f"{there}raw_alpha"),
            whole(f"{here}gate.router.mu", f"{there}gate.running_threshold"),
            whole(f"{here}gate.router.sigma", f"{there}gate.running_std"),
            # Only whether any step was taken is asked of it.
            Constant(f"{here}gate.router.steps", 1),
        ]
        if i > 0:
            rules.append(whole(f"{here}norms.0.weight", f"amor_pre_norms.{i}.weight"))
    return tuple(blocks), rules


def _gate(source: Source) -> Router:
    """The gate with the published momentum and start, should the model be trained on."""
    source.refuse_unless("offset_mode", ("adaptive", "fixed"), "adaptive")
    return Router(
        name="entropy_gate",
        params={
            "threshold": source.setting("offset_mode", "adaptive"),
            "kappa": float(source.setting("offset_k", 0.2)),
            "offset": float(source.setting("gate_offset", 0.03)),
            "momentum": 0.99,
            "warm_start": False,
        },
    )
