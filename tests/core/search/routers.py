"""Router plugins as a user would write them, in under 30 lines."""

COIN = '''
"""A router that flips a coin for every token."""

import torch
from pydantic import BaseModel, ConfigDict
from crossbreed import Decision, Router, RouterCapabilities, RouterDescriptor, hookimpl


class CoinConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")
    probability: float = 0.5


class Coin(Router, torch.nn.Module):
    def __init__(self, config, build):
        super().__init__()
        self.config, self.build = config, build

    def forward(self, h_BTD, context, state):
        u_BT = context.uniform(self.build.site, context.positions_BT)
        return Decision((u_BT < self.config.probability).long()), state


@hookimpl
def register_routers():
    able = RouterCapabilities(sites=("gate",), max_choices=2)
    return [RouterDescriptor("coin", Coin, CoinConfig, able, "Flips a coin for every token")]
'''

RAISES = COIN.replace(
    "u_BT = context", "raise RuntimeError('no coin today')\n        u_BT = context"
).replace('"coin"', '"broken_coin"')
