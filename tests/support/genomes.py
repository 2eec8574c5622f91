"""Small genomes that together use every part of the model; shared by the model's tests."""

from __future__ import annotations

from typing import Any

from crossbreed.core.genome import Architecture, parse

ATTENTION = {
    "mixer": "attention",
    "params": {"heads": 2, "head_size": 12, "short_conv": {"width": 4, "on": "kv"}},
}
MAMBA2 = {"mixer": "mamba2", "params": {"heads": 3, "head_size": 8, "state_size": 10}}
DELTANET = {"mixer": "gated_deltanet", "params": {"heads": 2, "key_size": 8, "value_size": 12}}
SWIGLU = {"mixer": "swiglu", "params": {"hidden": 20}}
EXPERTS = {"mixer": "experts", "params": {"experts": 4, "hidden": 12, "top_k": 2}}
PROJECTION_EXPERTS = {"experts": 3, "top_k": 2, "router_key": 4}
DEPTH_ATTENTION = {"mixer": "depth_attention", "params": {"heads": 2, "head_size": 8}}


def of_experts(sublayer: dict[str, Any], **params: Any) -> dict[str, Any]:
    """The same mixer with routed projections."""
    return {**sublayer, "params": {**sublayer["params"], "projection_experts": PROJECTION_EXPERTS | params}}


def multi(*readers: str | dict[str, Any], **params: Any) -> dict[str, Any]:
    sizes = {"heads": 2, "head_size": 12}
    return {"mixer": "multi_mixer", "params": {"readers": list(readers), **sizes, **params}}


def block(*sublayers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"sublayers": list(sublayers), **fields}


def architecture(*stages: dict[str, Any], **fields: Any) -> Architecture:
    return parse(Architecture, {"vocab": 23, "d_model": 16, "stages": list(stages), **fields}, "test genome")


def gate(name: str, **params: Any) -> dict[str, Any]:
    return {"name": name, "params": params}


HALVES = {"segment": 4, "probability": 0.5}

GENOMES: dict[str, Architecture] = {
    "transformer": architecture({"blocks": [block(ATTENTION), block(SWIGLU)] * 2}),
    "mamba2": architecture({"blocks": [block(MAMBA2), block(SWIGLU)] * 2}),
    "gated_deltanet": architecture({"blocks": [block(DELTANET, SWIGLU, norm="sandwich")] * 2}),
    "fused": architecture({"blocks": [block(ATTENTION, MAMBA2, arrangement="parallel_mean"), block(SWIGLU)]}),
    "parallel_untied": architecture(
        {"blocks": [block(ATTENTION, SWIGLU, arrangement="parallel", output_init="depth_scaled")]},
        tie_embeddings=False,
    ),
    "amor": architecture(
        {"blocks": [block(DELTANET), block(SWIGLU)]},
        {
            "entry_norm": True,
            "blocks": [
                block(ATTENTION, norm="none", gate=gate("entropy_gate"), output_scale={"raw": 0.0}),
                block(ATTENTION, gate=gate("entropy_gate"), output_scale={"raw": 0.5}),
            ],
        },
    ),
    "amor_first_version": architecture(
        {"blocks": [block(DELTANET, SWIGLU)]},
        {
            "blocks": [
                block(
                    of_experts(
                        {
                            "mixer": "attention",
                            "params": {"heads": 2, "head_size": 12, "top_k": 3, "kv_from": "embeddings"},
                        }
                    ),
                    gate=gate("entropy_gate", train=1),
                ),
                block(
                    {
                        "mixer": "attention",
                        "params": {
                            "heads": 4,
                            "kv_heads": 2,
                            "head_size": 6,
                            "top_k": 5,
                            "kv_from": "embeddings",
                            "short_conv": {"on": "qkv"},
                        },
                    },
                    gate=gate("learned", train=1),
                ),
            ],
        },
    ),
    "learned_gate": architecture(
        {"blocks": [block(ATTENTION, gate=gate("learned", segment=4)), block(SWIGLU)] * 2}
    ),
    "random_gate": architecture(
        {"blocks": [block(MAMBA2, SWIGLU, gate=gate("segment_random", **HALVES))] * 2}
    ),
    "oryx_random": architecture(
        {"blocks": [block(multi("mamba2", "attention")), block(SWIGLU)] * 2},
        mode_router=gate("segment_random", **HALVES),
    ),
    "oryx_scheduled": architecture(
        {
            "blocks": [
                block(
                    multi(
                        "mamba2",
                        {"name": "attention", "params": {"l2_norm": "qk"}},
                        tied_queries=True,
                        norm="head",
                        norm_place="after_gate",
                    )
                ),
                block(
                    multi(
                        "mamba2",
                        "attention",
                        tied_kv=False,
                        q_activation=["silu", "none"],
                        short_conv=None,
                        norm="head",
                    )
                ),
                block(
                    multi(
                        "mamba2",
                        "attention",
                        tied_kv=False,
                        tied_queries=True,
                        short_conv={"width": 3, "on": "qkv"},
                        gate=False,
                    )
                ),
            ]
        },
        mode_router=gate(
            "segment_random",
            segment=4,
            probability=0.5,
            draws="per_batch",
            evaluate=[(0, 0), (3, 1)],
        ),
    ),
    "oryx_random_controls": architecture(
        {
            "blocks": [
                block(
                    multi(
                        {"name": "gated_deltanet", "params": {"writes": "when_read"}},
                        {"name": "attention", "params": {"writes": "when_read", "l2_norm": "k"}},
                    )
                ),
                block(
                    multi(
                        "gated_deltanet",
                        "attention",
                        tied_queries=True,
                        norm="full",
                        norm_place="before_gate",
                        rope="all",
                    )
                ),
            ]
        },
        mode_router=gate("segment_random", segment="sequence", probability=0.5),
    ),
    "oryx_learned": architecture(
        {"blocks": [block(multi("gated_deltanet", "attention")), block(SWIGLU)] * 2},
        mode_router=gate("learned", segment=4),
    ),
    "oryx_entropy": architecture(
        {"blocks": [block(multi("mamba2", "attention")), block(SWIGLU)]},
        mode_router=gate("entropy_gate", segment=4, mu_init=0.9, kappa=0.0),
    ),
    "recurrent_experts": architecture(
        {"blocks": [block(ATTENTION), block(EXPERTS)], "depth": {"name": "recurrent", "repeats": 3}}
    ),
    "layered_repeats": architecture({"blocks": [block(MAMBA2)], "depth": {"name": "layered", "repeats": 2}}),
    "halting": architecture(
        {
            "blocks": [block(ATTENTION), block(MAMBA2)],
            "depth": {"name": "recurrent", "repeats": 3, "params": {"inject": True}},
            "halt": gate("learned", target_rate=0.5),
        }
    ),
    "halting_entropy": architecture(
        {
            "blocks": [block(DELTANET), block(EXPERTS)],
            "depth": {"name": "recurrent", "repeats": 2},
            "halt": gate("entropy_gate", mu_init=0.95, kappa=0.0),
        }
    ),
    "dreamer": architecture(
        {
            "blocks": [
                block(
                    of_experts(DEPTH_ATTENTION),
                    of_experts({"mixer": "attention", "params": {"heads": 2, "head_size": 12}}),
                    EXPERTS,
                    output_init="depth_scaled",
                )
            ],
            "depth": {"name": "recurrent", "repeats": 3},
        },
        tie_embeddings=False,
    ),
    "dreamer_parallel": architecture(
        {
            "blocks": [
                block(
                    DEPTH_ATTENTION,
                    of_experts(MAMBA2, tied=False),
                    EXPERTS,
                    arrangement="parallel",
                    norm="sandwich",
                    gate=gate("learned", segment=4),
                )
            ],
            "depth": {"name": "recurrent", "repeats": 3, "params": {"inject": True}},
        }
    ),
    "dreamer_halting": architecture(
        {
            "blocks": [block(of_experts(DEPTH_ATTENTION), DELTANET), block(EXPERTS)],
            "depth": {"name": "recurrent", "repeats": 2},
            "halt": gate("entropy_gate", mu_init=0.95, kappa=0.0),
        }
    ),
    "layered_depth_attention": architecture(
        {
            "blocks": [block(DEPTH_ATTENTION, ATTENTION), block(SWIGLU)],
            "depth": {"name": "layered", "repeats": 3},
        }
    ),
}
