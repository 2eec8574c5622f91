"""Built-in depth policies. Importing this imports no torch."""

from __future__ import annotations

from crossbreed.core.contracts.depth import DepthPolicyDescriptor
from crossbreed.core.contracts.hookspecs import hookimpl
from crossbreed.core.contracts.space import Choices
from crossbreed.plugins.depth.configs import LayeredConfig, RecurrentConfig


@hookimpl
def register_depth_policies() -> list[DepthPolicyDescriptor]:
    return [
        DepthPolicyDescriptor(
            name="layered",
            factory="crossbreed.plugins.depth.policies:Layered",
            config=LayeredConfig,
            summary="every repeat has weights of its own",
            shares_weights=False,
        ),
        DepthPolicyDescriptor(
            name="recurrent",
            factory="crossbreed.plugins.depth.policies:Recurrent",
            config=RecurrentConfig,
            summary="all repeats reuse one set of weights (Dreamer)",
            shares_weights=True,
            ranges={"inject": Choices((False, True))},
        ),
    ]
