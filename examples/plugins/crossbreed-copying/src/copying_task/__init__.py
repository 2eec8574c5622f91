"""Offers the task ``copying``. Importing this imports no torch, so that listing plugins stays quick."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, model_validator

from crossbreed import TaskDescriptor, hookimpl

ROWS_PER_ITEM = 64
"""Distinct rows that must exist for each evaluation item, so that training and evaluation both find rows of their own."""


class CopyingConfig(BaseModel, frozen=True, extra="forbid"):
    """A span of symbols, a token that asks for it, and the span again: every answer is scored.

    symbols: ids that a span is made of. span: symbols in it. eval_items: rows of the fixed evaluation set.
    """

    symbols: int = Field(default=8, ge=2)
    span: int = Field(default=12, ge=2)
    eval_items: int = Field(default=256, ge=1)

    @model_validator(mode="after")
    def _rows_exist(self) -> Any:
        rows, needed = self.symbols**self.span, ROWS_PER_ITEM * self.eval_items
        if rows < needed:
            raise ValueError(
                f"{self.symbols} symbols and a span of {self.span} make {rows} different rows, and {self.eval_items} evaluation "
                f"items apart from training need at least {needed}; raise symbols or span, or lower eval_items"
            )
        return self


@hookimpl
def register_tasks() -> list[TaskDescriptor]:
    return [
        TaskDescriptor(
            name="copying",
            factory="copying_task.task:Copying",
            config=CopyingConfig,
            summary="read a span of symbols, then say it again",
        )
    ]
