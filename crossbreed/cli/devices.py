"""What is known of devices: ceilings kept beside the database, and profiles in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.lab import ceilings
from crossbreed.storage.locations import artefacts_of


def device_of(db: str, name: str | None) -> dict[str, Any]:
    """Ceilings and profiles of the named device, or of the only one that anything is known of.

    Raises ConfigError when nothing is known, or when several devices are and none is named.
    """
    artefacts = artefacts_of(db)
    known = ceilings.read(artefacts) if artefacts.exists(ceilings.FILE) else {}
    profiles = _profiles(db)
    names = sorted({*known, *(p["device"] for p in profiles)})
    if not names:
        raise ConfigError(
            f"nothing is known of any device: {db!r} holds no profiles and {artefacts.shown(ceilings.FILE)} no ceilings; "
            "run `crossbreed doctor --measure`, or a search."
        )
    if name is None and len(names) > 1:
        raise ConfigError(f"several devices are known; choose one with --device: {', '.join(names)}.")
    chosen = names[0] if name is None else name
    if chosen not in names:
        raise UnknownName("device", chosen, names)
    return {
        "name": chosen,
        **known.get(chosen, {}),
        "profiles": [p for p in profiles if p["device"] == chosen],
    }


def _profiles(db: str) -> list[dict[str, Any]]:
    """Every throughput in the database as seconds per token, with the genome and rates it was measured at."""
    from crossbreed.storage.locations import parse_url
    from crossbreed.storage.repository import Repository

    place = parse_url(db)
    if place.get_backend_name() == "sqlite" and not Path(str(place.database)).exists():
        return []
    with Repository.open(db, read_only=True) as repository:
        return [
            {
                "architecture": genome,
                "rates": rates,
                **dict(
                    zip(
                        ("phase", "batch", "tokens", "dtype", "device", "policy", "compiled"),
                        row.key(),
                        strict=True,
                    )
                ),
                "seconds_per_token": 1.0 / row.median,
            }
            for genome, rates, row in repository.throughputs()
        ]
