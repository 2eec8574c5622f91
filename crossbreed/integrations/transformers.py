"""Exported models in Hugging Face's transformers: importing this module makes ``AutoModelForCausalLM`` know them.

    import crossbreed.integrations.transformers
    model = AutoModelForCausalLM.from_pretrained(folder)

Nothing in a folder is run. A model with parts of somebody's plugin needs that plugin installed, or its file named by
``use_plugins``. Models are for use and for judging; they are trained by crossbreed.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossbreed.core import genome
from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.schedule import Schedule
from crossbreed.core.errors import ConfigError
from crossbreed.core.host import Host, Registry
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.state import ModelState
from crossbreed.core.trust import Trust
from crossbreed.integrations.extras import need
from crossbreed.integrations.model_files import CLASS, MODEL_TYPE

LEAST = "5.24"
need("transformers", "transformers", LEAST)

from transformers import (  # noqa: E402 - after the sentence that says it is missing
    AutoConfig,
    AutoModelForCausalLM,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import ModelOutput  # noqa: E402

_files: tuple[str, ...] = ()


def use_plugins(*files: str) -> None:
    """Build models with the parts that these plugin files offer, too, from now on. They are run; raises PluginError for one that
    cannot be used."""
    global _files
    Host.load(files, trust=Trust.from_environment())
    _files = files


def registry() -> Registry:
    """The parts that models are built from."""
    return Host.load(_files, trust=Trust.from_environment())


class CrossbreedConfig(PreTrainedConfig):
    """The canonical genome with what it takes to run it (see ``model_files.config_of``).

    seed:          what random routers draw by.
    mode_schedule: (position, mode) pairs that the mode follows instead of asking its router.
    longest:       tokens of the longest text that the model can read, None for no limit.
    """

    model_type = MODEL_TYPE

    architecture: dict | None = None
    plugins: dict | None = None
    seed: int = 0
    mode_schedule: list | None = None
    longest: int | None = None
    origin: dict | None = None
    vocab_size: int = 0
    hidden_size: int = 0
    num_hidden_layers: int = 0
    tie_word_embeddings: bool = False
    use_cache: bool = True


class StateCache:
    """A model's own state as transformers hands it from step to step."""

    is_compileable = False
    is_croppable = False

    def __init__(self, state: ModelState) -> None:
        self.state = state

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens read of the longest row."""
        return int(self.state.position_B.max())

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Rows in another order, some of them several times."""
        self.state = self.state.select(beam_idx)


@dataclass
class CausalOutput(ModelOutput):
    """loss: mean over predicted tokens in nats, None without labels. logits: BTV, zero for padding."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    cache: Any = None


class CrossbreedForCausalLM(PreTrainedModel, GenerationMixin):
    """A genome's language model. Every text decides for itself: neither padding nor neighbours change it."""

    config_class = CrossbreedConfig
    base_model_prefix = "model"
    _is_stateful = True

    def __init__(self, config: CrossbreedConfig) -> None:
        super().__init__(config)
        if config.architecture is None:
            raise ConfigError(
                "config.json has no architecture; it must be of a model that crossbreed export-model wrote"
            )
        parts = registry()
        architecture = parts.canonical(
            genome.parse(genome.Architecture, config.architecture, "architecture of config.json")
        )
        _check_plugins(config.plugins or {}, parts.identities(architecture))
        # On the host even where a loader would have placeholders: plugins may compute what no file holds.
        with torch.device("cpu"):
            self.model = LanguageModel(architecture, parts, seed=config.seed)
        for module in self.model.modules():
            module._non_persistent_buffers_set.clear()
        self.schedule = (
            None
            if config.mode_schedule is None
            else Schedule(tuple((int(position), int(mode)) for position, mode in config.mode_schedule))
        )
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        cache: StateCache | None = None,
        use_cache: bool | None = None,
        labels: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        return_dict: bool | None = None,
        **ignored: Any,
    ) -> CausalOutput | tuple[Any, ...]:
        """Read on from ``cache``, or from the start.

        attention_mask: 1 for tokens and 0 for padding on one side of a row; of a longer text, its end counts. labels: the
        ``input_ids`` themselves, -100 where nothing is predicted, as transformers shifts them.
        """
        keep = self.config.use_cache if use_cache is None else use_cache
        B, T = input_ids.shape
        state = None if cache is None else cache.state
        if state is None and keep:
            state = self._empty_state(B, T)
        shift = None if attention_mask is None else _Shift.of(attention_mask[:, -T:])
        tokens_BT = input_ids if shift is None else shift.together(input_ids)
        context = self._context(tokens_BT, state, None if shift is None else shift.valid_BT)
        h_BTD, state = self.model(tokens_BT, context, state)
        if shift is not None:
            h_BTD = shift.back(h_BTD)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.model.logits(h_BTD[:, kept])
        loss = None
        if labels is not None:
            whole = logits if logits.shape[1] == T else self.model.logits(h_BTD)
            loss = F.cross_entropy(
                whole[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(), ignore_index=-100
            )
        found = CausalOutput(loss, logits, StateCache(state) if keep and state is not None else None)
        return found.to_tuple() if return_dict is False else found

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embedding

    def get_output_embeddings(self) -> nn.Module | None:
        return self.model.head

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def _init_weights(self, module: nn.Module) -> None:
        """Parts initialise themselves when they are built."""

    def _empty_state(self, batch: int, tokens: int) -> ModelState:
        kind = self.model.embedding.weight.device.type
        narrow = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        return self.model.init_state(batch, slots=tokens, dtype=narrow)

    def _context(self, tokens_BT: Tensor, state: ModelState | None, valid_BT: Tensor | None) -> Context:
        one = state is not None and tokens_BT.shape[1] == 1 and valid_BT is None
        context = self.model.context(
            tokens_BT,
            phase="decode" if one else "prefill",
            seed=self.config.seed,
            # Every text is number 0, so that a random router draws alike for it in any batch.
            rows_B=torch.zeros(len(tokens_BT), dtype=torch.int64, device=tokens_BT.device),
            valid_BT=valid_BT,
            state=state,
        )
        limit = self.config.longest
        if limit is not None and int(context.positions_BT.max()) >= limit:
            raise ConfigError(
                f"a text of {int(context.positions_BT.max()) + 1} tokens is too long; this model can read {limit}"
            )
        if self.schedule is None:
            return context
        return context.at(forced={"mode": self.schedule.choices_at(context.positions_BT)})


@dataclass(frozen=True)
class _Shift:
    """Rows with padding brought to begin at their first token, and back."""

    from_BT: Tensor
    to_BT: Tensor
    valid_BT: Tensor
    real_BT: Tensor

    @staticmethod
    def of(mask_BT: Tensor) -> _Shift | None:
        """None where nothing is padding. Raises ConfigError for padding inside a row."""
        real_BT = mask_BT.bool()
        if bool(real_BT.all()):
            return None
        T = real_BT.shape[1]
        at_T = torch.arange(T, device=real_BT.device)
        first_B1 = real_BT.int().argmax(1, keepdim=True)
        valid_BT = at_T < real_BT.sum(1, keepdim=True)
        from_BT = (at_T + first_B1).clamp(max=T - 1)
        if not torch.equal(real_BT.gather(1, from_BT) & valid_BT, valid_BT):
            raise ConfigError("attention_mask has padding between tokens of a row; it must stand on one side")
        return _Shift(from_BT, (at_T - first_B1).clamp(min=0), valid_BT, real_BT)

    def together(self, tokens_BT: Tensor) -> Tensor:
        return tokens_BT.gather(1, self.from_BT)

    def back(self, h_BTD: Tensor) -> Tensor:
        moved_BTD = h_BTD.gather(1, self.to_BT[..., None].expand(-1, -1, h_BTD.shape[-1]))
        return moved_BTD * self.real_BT[..., None]


def _check_plugins(stored: dict[str, str], here: dict[str, str]) -> None:
    """Raise ConfigError for a part of another file than the model was trained with; warn of another version."""
    for part, identity in stored.items():
        given = here.get(part, "nobody")
        if given == identity:
            continue
        if identity.startswith("sha256:") or given.startswith("sha256:"):
            raise ConfigError(
                f"the model was trained with {part} of {identity}, but here it is of {given}; name the same file with "
                "crossbreed.integrations.transformers.use_plugins(FILE)"
            )
        warnings.warn(f"the model was trained with {part} of {identity}, here it is of {given}", stacklevel=2)


AutoConfig.register(MODEL_TYPE, CrossbreedConfig, exist_ok=True)
AutoModelForCausalLM.register(CrossbreedConfig, CrossbreedForCausalLM, exist_ok=True)
assert CrossbreedForCausalLM.__name__ == CLASS
