"""Published versions of a Gateway's configuration, and the newest one that is known to be good.

No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.compiler.ir import gateway as ir

MAX_VERSIONS = 16
"""Maximum number of remembered versions. Agents answer within seconds, and versions that are
published while one is applied are skipped."""


class Version(msgspec.Struct, frozen=True):
    """A published version of a Gateway's configuration."""

    number: int
    gateway: ir.GatewayConfiguration
    compiled: ir.GatewayConfiguration
    """The configuration before parts were held back."""
    changes: int
    """Number of changes of objects before it was published."""
    trial: bool = False
    """True if no instance that serves got it."""


class PublishedVersions:
    """The last versions by name."""

    def __init__(self) -> None:
        self._versions: dict[str, Version] = {}
        self._newest = ""
        self.good: Version | None = None
        """The newest version that all instances have confirmed, and that is no trial."""

    @property
    def newest(self) -> Version | None:
        """The version that was published last."""
        return self._versions.get(self._newest)

    def get(self, name: str) -> Version | None:
        """Return a version; None if it is unknown or forgotten."""
        return self._versions.get(name)

    def publish(self, name: str, version: Version) -> Version:
        """Store a version under the next number. Return it."""
        before = self._versions.get(self._newest)
        number = before.number if before is not None else 0
        if name != self._newest:
            number += 1
            self._versions.pop(name, None)
            self._newest = name
        self._versions[name] = msgspec.structs.replace(version, number=number)
        self._forget()
        return self._versions[name]

    def oldest(self, names: Iterable[str]) -> Version | None:
        """Return the oldest of some versions; None if one of them is unknown, or there is none."""
        versions = [self._versions.get(name) for name in names]
        known = [version for version in versions if version is not None]
        if not known or len(known) < len(versions):
            return None
        return min(known, key=lambda version: version.number)

    def confirm(self, version: Version) -> None:
        """Store that all instances have confirmed a version."""
        if version.trial or (self.good is not None and version.number <= self.good.number):
            return
        self.good = version
        self._forget()

    def _forget(self) -> None:
        oldest = self.good.number if self.good is not None else 0
        first = next(iter(self._versions))
        while len(self._versions) > MAX_VERSIONS or self._versions[first].number < oldest:
            del self._versions[first]
            first = next(iter(self._versions))
