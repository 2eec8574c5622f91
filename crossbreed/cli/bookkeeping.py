"""Parameters as papers count them: matrices apart from small tensors, and what all modes share."""

from __future__ import annotations

from dataclasses import dataclass

from crossbreed.core.errors import UnknownName
from crossbreed.core.ledger import QUANTITIES, Ledger
from crossbreed.presets import Published

ENDS = ("embedding", "head")
"""Sites of a ledger's parts that "without embeddings" leaves out."""


@dataclass(frozen=True)
class Bookkeeping:
    """Counts from a ledger's parts. "Matrix" parameters leave out convolutions, decays, gates of recurrences and gains.

    shared_matrix_parameters: those that a token uses in every mode, without embeddings; with the two shares None where
    nothing is chosen.
    """

    active_matrix_parameters: int
    stored_matrix_parameters: int
    small_parameters: int
    shared_matrix_parameters: int | None
    shared_of_active: float | None
    shared_of_stored: float | None

    @staticmethod
    def of(ledger: Ledger) -> Bookkeeping:
        """Sort a ledger's parts. In a part with several readers a token uses one of equal, unshared projections."""
        small = sum(part.small_parameters for part in ledger.parts)
        inner = [part for part in ledger.parts if part.site not in ENDS]
        active = sum(part.active_parameters - part.small_parameters for part in inner)
        stored = sum(part.parameters - part.small_parameters for part in inner)
        chosen = sum(
            (part.parameters - part.active_parameters) // (len(part.rates) - 1)
            for part in inner
            if len(part.rates) > 1
        )
        return Bookkeeping(
            active_matrix_parameters=ledger.active_parameters - small,
            stored_matrix_parameters=ledger.parameters - small,
            small_parameters=small,
            shared_matrix_parameters=active - chosen if chosen else None,
            shared_of_active=(active - chosen) / active if chosen else None,
            shared_of_stored=(active - chosen) / stored if chosen else None,
        )


def counted(published: Published, ledger: Ledger) -> int:
    """The count here of what a source states. Raises UnknownName for a quantity that is not counted."""
    books = Bookkeeping.of(ledger)
    if published.quantity in QUANTITIES:
        return int(ledger.quantity(published.quantity))
    if published.quantity not in books.__dataclass_fields__:
        raise UnknownName("quantity", published.quantity, [*QUANTITIES, *books.__dataclass_fields__])
    return int(getattr(books, published.quantity))
