"""Decisions imposed on a model, and the ledger at the rates that they came to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crossbreed.core.conformance.flop_count import count_flops
from crossbreed.core.contracts.context import Recorder
from crossbreed.core.contracts.task import Batch
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.lab.operating_points import realised_rates
from crossbreed.core.ledger import Ledger, Shape
from crossbreed.core.model.language_model import LanguageModel

ROWS = 12
"""Rows of a decoded token: every mode with every other choice, equally often, for up to four modes but never five."""


class Forced:
    """One model whose every decision is imposed: none run, half of them, or all. Counts what each phase dispatches."""

    def __init__(self, registry: Registry, genome: Architecture, rate: float) -> None:
        self.registry, self.genome, self.rate = registry, genome, rate
        self.model = LanguageModel(genome, registry)
        self.choices = {name: site.choices for name, site in self.model.sites().items()}

    def prefill(self, tokens: int) -> tuple[float, Ledger]:
        """(FLOPs per token dispatched, ledger at the rates that came about)."""
        self.model.eval()
        tokens_BT, recorder = self._tokens(1, tokens), Recorder()
        context = self._context(tokens_BT, torch.arange(tokens)[None], recorder=recorder)
        with torch.no_grad():
            flops = count_flops(lambda: self.model.logits(self.model(tokens_BT, context)[0]))
        return flops / tokens, self.ledger(tokens, recorder)

    def train(self, tokens: int) -> tuple[float, Ledger]:
        self.model.train()
        tokens_BT, recorder = self._tokens(1, tokens), Recorder()
        index_BT = torch.arange(tokens)[None]
        context = self._context(tokens_BT, index_BT, phase="train", recorder=recorder)
        batch = Batch(tokens_BT, tokens_BT)
        flops = count_flops(lambda: self.model.loss(batch, context).objective.backward())
        return flops / tokens, self.ledger(tokens, recorder)

    def decode(self, tokens: int) -> tuple[float, Ledger]:
        """The token after ``tokens - 1`` others."""
        model, recorder = self.model.eval(), Recorder()
        tokens_BT, row_BT = self._tokens(ROWS, tokens), torch.arange(ROWS)[:, None]
        with torch.no_grad():
            state = model.init_state(ROWS, slots=tokens)
            prompt_BT, last_BT = tokens_BT[:, :-1], tokens_BT[:, -1:]
            if tokens > 1:
                context = self._context(prompt_BT, row_BT.expand_as(prompt_BT), state=state)
                _, state = model(prompt_BT, context, state)
            context = self._context(last_BT, row_BT, phase="decode", state=state, recorder=recorder)
            flops = count_flops(lambda: model.logits(model(last_BT, context, state)[0]))
        return flops / ROWS, self.ledger(tokens, recorder)

    def ledger(self, tokens: int, recorder: Recorder) -> Ledger:
        costs = self.registry.factory("cost", "analytic")(None, self.registry)
        canonical = self.registry.canonical(self.genome)
        rates = realised_rates([recorder])
        return costs.estimate(canonical, Shape(1, tokens), rates=rates or None)  # type: ignore[no-any-return]

    def _tokens(self, rows: int, tokens: int) -> Tensor:
        return torch.randint(self.genome.vocab, (rows, tokens))

    def _context(self, tokens_BT: Tensor, index_BT: Tensor, **more: Any) -> Any:
        forced = {name: self._choice(name, n, index_BT) for name, n in self.choices.items()}
        return self.model.context(tokens_BT, labels_BT=tokens_BT, forced=forced, **more)

    def _choice(self, site: str, choices: int, index_BT: Tensor) -> Tensor:
        """Modes take turns from one token to the next, everything else from one half of ROWS to the other."""
        if self.rate in (0.0, 1.0):
            return torch.full_like(index_BT, int(self.rate) * (choices - 1))
        if site == "mode":
            return index_BT % choices
        return index_BT // (ROWS // 2) % 2
