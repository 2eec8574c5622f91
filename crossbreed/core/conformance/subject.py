"""What is checked: one registered plugin and the settings it is tried with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from crossbreed.core.conformance.case import legal_settings
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.host import Registry

if TYPE_CHECKING:
    from crossbreed.core.conformance.report import Outcome

ProfileName = Literal["suite", "full"]


@dataclass(frozen=True)
class Profile:
    """How much is tried: how many drawn settings beside the defaults, and which of a rule's sizes."""

    name: ProfileName
    drawn: int


PROFILES: dict[ProfileName, Profile] = {"suite": Profile("suite", 1), "full": Profile("full", 3)}


class Subject:
    """One plugin under check. Each kind has a subclass with what its rules need, such as a built mixer.

    ``extra`` settings are tried beside the defaults and the drawn ones; raises ConfigError where they are not legal.
    """

    kind: ClassVar[Kind]

    def __init__(
        self,
        registry: Registry,
        name: str,
        profile: ProfileName = "suite",
        extra: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.registry, self.name, self.profile = registry, name, PROFILES[profile]
        self.descriptor = registry.descriptor(self.kind, name)
        self.extra = tuple(dict(settings) for settings in extra)
        for settings in self.extra:
            self.config(settings)
        self.outcomes: dict[str, Outcome] = {}

    def config(self, settings: Mapping[str, Any]) -> Any:
        """Settings as the plugin's config; raises ConfigError where they are not legal."""
        return self.registry.config(self.kind, self.name, dict(settings))

    @cached_property
    def settings(self) -> tuple[dict[str, Any], ...]:
        """Settings to try: the defaults, then those given, then drawn ones."""
        drawn = legal_settings(self.ranges(), self.config, self.profile.drawn)
        found: list[dict[str, Any]] = []
        for settings in ({}, *self.extra, *drawn):
            if settings not in found:
                found.append(settings)
        return tuple(found)

    def briefly(self, settings: Mapping[str, Any]) -> bool:
        """Whether settings are tried on few cases: drawn ones by the suite profile, on the largest of each rule's sizes."""
        return self.profile.name == "suite" and dict(settings) not in ({}, *self.extra)

    def ranges(self) -> Mapping[str, Any]:
        """What settings are drawn from."""
        found: Mapping[str, Any] = self.descriptor.ranges
        return found
