"""Budgets: which quantities of an architecture must meet a reference, how closely, and at what shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from crossbreed.core.budget.amounts import read_amount
from crossbreed.core.budget.spans import Span, read_free
from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.genome import parse
from crossbreed.core.ledger import DTYPE_BYTES, QUANTITIES, Ledger, Shape


class BudgetShape(BaseModel):
    """Where a budget is taken: ``batch`` sequences of ``tokens`` tokens with weights and activations in ``dtype``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch: int = Field(default=1, ge=1)
    tokens: int = Field(ge=1)
    dtype: str = "float32"

    @field_validator("dtype")
    @classmethod
    def _known_dtype(cls, dtype: str) -> str:
        if dtype not in DTYPE_BYTES:
            raise UnknownName("dtype", dtype, DTYPE_BYTES)
        return dtype

    def as_shape(self) -> Shape:
        return Shape(self.batch, self.tokens, self.dtype)


class Budget(BaseModel):
    """Quantities that are matched (within a relative tolerance on both sides) or capped (on the upper side only).

    ``match`` and ``cap`` map quantities (see ``ledger.QUANTITIES``) to tolerances, as 0.02 or ``"2%"``. ``values`` are the
    reference's, given as numbers (or with a unit, as in ``"180M"``) or filled in by ``at_reference``. ``free`` names
    dimensions that may move beside those that mixers declare free, and their spans (see ``dimensions.layout``); an
    architecture without such a dimension does without.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: BudgetShape
    match: dict[str, float] = Field(default_factory=dict)
    cap: dict[str, float] = Field(default_factory=dict)
    values: dict[str, float] = Field(default_factory=dict)
    free: dict[str, Span | None] = Field(default_factory=dict)

    @field_validator("match", "cap", mode="before")
    @classmethod
    def _tolerances(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise ValueError(f"must map quantities to tolerances, as in 'parameters: 2%'; got {data!r}")
        return {name: _tolerance(name, value) for name, value in data.items()}

    @field_validator("values", mode="before")
    @classmethod
    def _amounts(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise ValueError(
                f"must map quantities to reference values, as in 'parameters: 180M'; got {data!r}"
            )
        for name in data:
            if name not in QUANTITIES:
                raise UnknownName("quantity", str(name), QUANTITIES)
        return {name: read_amount(name, value) for name, value in data.items()}

    @field_validator("free", mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        return read_free(data)

    @field_validator("match", "cap")
    @classmethod
    def _known(cls, data: dict[str, float]) -> dict[str, float]:
        for name in data:
            if name not in QUANTITIES:
                raise UnknownName("quantity", name, QUANTITIES)
        return data

    @model_validator(mode="after")
    def _says_something_once(self) -> Budget:
        if not self.match and not self.cap:
            raise ValueError("a budget must match or cap at least one quantity")
        both = sorted(set(self.match) & set(self.cap))
        if both:
            raise ValueError(f"quantity {both[0]!r} is both matched and capped; choose one")
        idle = sorted(set(self.values) - set(self.match) - set(self.cap))
        if idle:
            raise ValueError(f"values gives {idle[0]!r}, which the budget neither matches nor caps")
        return self

    @staticmethod
    def read(data: Any, where: str = "budget") -> Budget:
        """Validate plain data; raises ConfigError with a sentence per broken field."""
        return parse(Budget, data, where)

    def at_reference(self, ledger: Ledger) -> Budget:
        """This budget with the values it lacks taken from a reference's ledger. Raises ConfigError for one that has none."""
        taken = {name: ledger.quantity(name) for name in self.quantities() if name not in self.values}
        for name, value in taken.items():
            if value < 1:
                raise ConfigError(
                    f"the budget's reference has a {name} of {value:g}, and nothing can be measured against that; leave "
                    f"{name} out of the budget or give values.{name}."
                )
        return Budget.read({**self.model_dump(), "values": {**self.values, **taken}}, "budget reference")

    def freeing(self, free: Any) -> Budget:
        """This budget with more dimensions free; see ``spans.read_free`` for how they are written."""
        return Budget.read({**self.model_dump(), "free": {**self.free, **read_free(free)}}, "budget")

    def quantities(self) -> list[str]:
        """Budgeted quantities, matched ones first."""
        return [*self.match, *self.cap]

    def target(self, quantity: str) -> float:
        """The reference value; raises ConfigError when the budget has no reference for it."""
        try:
            return self.values[quantity]
        except KeyError:
            raise ConfigError(
                f"budget names {quantity!r} but has no reference value for it; "
                f"give a reference architecture or values.{quantity}."
            ) from None


def _tolerance(name: str, value: Any) -> float:
    """A relative tolerance from 0.02 or "2%"."""
    rule = "must be a number from 0 up to 1, such as 0.02 or '2%'"
    if isinstance(value, str):
        text = value.strip()
        try:
            number = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            raise ValueError(f"tolerance of {name!r} {rule}, got {value!r}") from None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    else:
        raise ValueError(f"tolerance of {name!r} {rule}, got {value!r}")
    if not 0 <= number < 1:
        raise ValueError(f"tolerance of {name!r} {rule}, got {value!r}")
    return number
