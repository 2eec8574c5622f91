"""Tasks: seeded batches to train on, fixed items to be judged on, and one honest score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import BaseModel

from crossbreed.core.contracts.space import Range
from crossbreed.core.errors import ConfigError, nearest
from crossbreed.core.genome import parse

if TYPE_CHECKING:
    from torch import Tensor

IGNORE = -100
"""Label of a position that is not scored."""
MOST_WORDS = 24
"""Words of a vocabulary that a message lists."""


@dataclass(frozen=True)
class Batch:
    """Tokens and targets.

    tokens_BT:   int64 in [0, vocab).
    labels_BT:   int64, the target AT each position (what the model should say after reading tokens up to and including
                 it), IGNORE where nothing is scored.
    document_BT: int64 document numbers for packed rows, or None.
    """

    tokens_BT: Tensor
    labels_BT: Tensor
    document_BT: Tensor | None = None


@dataclass(frozen=True)
class TokenClasses:
    """Kinds of positions, for reports that tell them apart (router analytics).

    names:    of the kinds; the same for every batch of a task.
    class_BT: int64, the number of each position's name.
    groups:   label -> names that it takes together, against which a gate's precision can be scored.
    """

    names: tuple[str, ...]
    class_BT: Tensor
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def among(self, names: Sequence[str]) -> Tensor:
        """bool BT: positions whose kind has one of these names. Raises ConfigError for a name that no kind has."""
        for name in names:
            if name not in self.names:
                raise ConfigError(f"unknown class {name!r} of positions{nearest(name, self.names)}")
        wanted_N = self.class_BT.new_tensor([name in names for name in self.names]).bool()
        found_BT: Tensor = wanted_N[self.class_BT]
        return found_BT


@dataclass(frozen=True)
class Score:
    """What the task is judged by: a name, a direction, and the best reachable value or None.

    on: the classes of positions that count, of those with a label; all of them where it is empty. Others are trained on, and their
        losses are stored beside the score.
    """

    name: str
    direction: Literal["max", "min"]
    bound: float | None
    on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Totals:
    """Sums over the positions that the score counts: how many, how many are right, and the loss in nats."""

    scored: int
    correct: int
    loss_nats: float


class Overlap(NamedTuple):
    """Distinct rows seen in training, distinct evaluation rows, and those that are in both."""

    training: int
    evaluation: int
    shared: int


class Task:
    """Base class of tasks. Built as ``factory(config)``.

    The same (seed, step) gives the same training batch on any worker; evaluation items are fixed and disjoint from
    training.
    """

    def __init__(self, config: Any) -> None:
        self.config = config

    @property
    def vocab(self) -> int:
        """Number of token ids."""
        raise NotImplementedError(f"{type(self).__name__} must define vocab")

    @property
    def length(self) -> int:
        """Tokens in a row, for training, evaluation and the shape of budgets."""
        raise NotImplementedError(f"{type(self).__name__} must define length")

    @property
    def score(self) -> Score:
        """What candidates are judged by."""
        raise NotImplementedError(f"{type(self).__name__} must define score")

    @property
    def chance(self) -> float:
        """The score of a uniform guess."""
        raise NotImplementedError(f"{type(self).__name__} must define chance")

    def baselines(self) -> dict[str, float]:
        """Scores of simple predictors, such as unigram; empty where a solver exists."""
        return {}

    def solve(self, tokens_BT: Tensor) -> Tensor | None:
        """The right answer at every scored position (anything elsewhere), or None where no solver exists."""
        return None

    def train_batch(self, seed: int, step: int, size: int) -> Batch:
        """Training rows of one optimiser step."""
        raise NotImplementedError(f"{type(self).__name__} must define train_batch(seed, step, size)")

    def evaluation(self, size: int) -> Iterator[Batch]:
        """The fixed evaluation items, in batches of at most ``size`` rows."""
        raise NotImplementedError(f"{type(self).__name__} must define evaluation(size)")

    def evaluation_hash(self) -> str:
        """SHA-256 (hex) over all evaluation items."""
        raise NotImplementedError(f"{type(self).__name__} must define evaluation_hash()")

    def at_length(self, tokens: int) -> Task:
        """The same task with rows of ``tokens`` tokens, on which models that were trained on shorter ones are judged.

        Its evaluation items are fixed and in no training row of the task itself; of a task made so, nothing else is asked. A
        task whose settings have a ``length`` needs to define this only where that alone does not keep them apart. Raises
        ConfigError where there is no such task.
        """
        if "length" not in getattr(type(self.config), "model_fields", {}):
            raise ConfigError(
                f"task {type(self).__name__} has no setting length; all of its rows have {self.length} tokens"
            )
        return type(self)(
            parse(type(self.config), {**self.config.model_dump(), "length": tokens}, f"a length of {tokens}")
        )

    def classes(self, batch: Batch) -> TokenClasses:
        """What kind of token stands at each position; unless a task says more, whether it is scored."""
        return TokenClasses(("unscored", "scored"), (batch.labels_BT != IGNORE).long())

    def judged(self, batch: Batch) -> Tensor:
        """bool BT: positions that the score counts."""
        labelled_BT = batch.labels_BT != IGNORE
        return labelled_BT & self.classes(batch).among(self.score.on) if self.score.on else labelled_BT

    def overlap(self, seed: int = 0, steps: int = 16, size: int = 64) -> Overlap:
        """How many rows training over ``steps`` steps shares with evaluation, which should be none."""
        items = {row.numpy().tobytes() for batch in self.evaluation(size) for row in batch.tokens_BT}
        rows = {
            row.numpy().tobytes()
            for step in range(steps)
            for row in self.train_batch(seed, step, size).tokens_BT
        }
        return Overlap(training=len(rows), evaluation=len(items), shared=len(rows & items))

    def words(self, tokens: Sequence[int]) -> list[str]:
        """Token ids as people read them, one word a token; the ids themselves unless a task says more."""
        return [str(token) for token in tokens]

    @property
    def separator(self) -> int | None:
        """For a task whose tokens are text, the token that stands between two texts, after which one begins; None for a task
        whose tokens are symbols. A task that defines it defines ``encode`` and ``decode``, which take any text there and back.
        """
        return None

    def encode(self, text: str) -> list[int]:
        """Token ids of what people write: words as ``words`` spells them with spaces between, or ``#ID``, unless a task says more.

        Raises ConfigError for what the vocabulary cannot hold.
        """
        spelt = self.words(range(self.vocab))
        known = {word: token for token, word in reversed(list(enumerate(spelt)))}
        return [self._token(word, known) for word in text.split()]

    def prompt(self, text: str) -> list[int]:
        """Token ids of a text from its beginning: after the ``separator`` where that is what tells documents apart, and ends them."""
        return self.encode(text)

    @property
    def tokenizer(self) -> str | None:
        """What ``encode`` and ``decode`` are done by, as the text of a ``tokenizer.json`` (package tokenizers), to be given away with a
        model; None where they are the task's own. A ``separator`` may lie beyond its ids."""
        return None

    @property
    def ending(self) -> int | None:
        """The token at which a document is over; None where texts have no end that a model would say."""
        return self.separator if self.separator is not None and self.prompt("") else None

    def decode(self, tokens: Sequence[int]) -> str:
        """Token ids as text: the words with spaces between, unless a task says more."""
        return " ".join(self.words(tokens))

    def _token(self, word: str, known: Mapping[str, int]) -> int:
        if word in known:
            return known[word]
        if word[:1] == "#" and word[1:].isdecimal() and int(word[1:]) < self.vocab:
            return int(word[1:])
        listed = ", ".join([*known][::-1][:MOST_WORDS]) + (", ..." if len(known) > MOST_WORDS else "")
        raise ConfigError(
            f"word {word!r} is not in the vocabulary of task {type(self).__name__}{nearest(word, known)}; it must be one of "
            f"{listed}, or '#' and a token's number from 0 to {self.vocab - 1}"
        )

    def metrics(self, totals: Totals) -> dict[str, float]:
        """The score under its name, and any companions (bits per byte ...), from the sums of an evaluation."""
        raise NotImplementedError(f"{type(self).__name__} must define metrics(totals)")


@dataclass(frozen=True)
class Proven:
    """A setting with which a small model was seen to learn the task.

    settings: of the task. model: in words, such as its layers and width. model_parameters: in all.
    tokens, score: what the worst of ``seeds`` seeds scored on the evaluation items after so many training tokens.
    """

    settings: Mapping[str, Any]
    model: str
    model_parameters: int
    tokens: int
    seeds: int
    score: float


@dataclass(frozen=True)
class TaskDescriptor:
    """How a task is offered to the host.

    name:     what genomes, studies and commands call it; unique among its kind.
    factory:  ``"module:Class"``, the class, or a callable without arguments that imports late and returns it.
    config:   a pydantic model of its settings, which should forbid unknown keys.
    summary:  what it is in one line, for listings.
    ranges:   settings that conformance checks try, with their ranges; others are tried near their values. A study names its own.
    example:  settings under which it can be checked, where its defaults alone are not enough.
    proven:   settings with which a small model was seen to learn it; None where nobody has looked or none did.
    """

    name: str
    factory: str | Callable[..., Any]
    config: type[BaseModel]
    summary: str
    ranges: Mapping[str, Range] = field(default_factory=dict)
    example: Mapping[str, Any] = field(default_factory=dict)
    proven: Proven | None = None
