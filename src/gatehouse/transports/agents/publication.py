"""The bundles of one gateway that its instances may fetch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Set
from functools import cached_property
from typing import Any, TypeVar, cast

from gatehouse.bundle import Bundle, File
from gatehouse.endpoints import name_of
from gatehouse.transports.agents.session import Apart, Publish

_Derived = TypeVar("_Derived")

DERIVED_MAX = 8
"""Results kept for one bundle: an agent may claim ever other facts that one depends on."""


class Published:
    """A bundle, with what is derived from it once for all instances."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.retired_at = 0.0
        self._derived: dict[Hashable, Any] = {}

    def derive(self, key: Hashable, make: Callable[[], _Derived]) -> _Derived:
        """Give what ``make`` gives, made once for ``key``."""
        if key not in self._derived:
            if len(self._derived) >= DERIVED_MAX:
                del self._derived[next(iter(self._derived))]
            self._derived[key] = make()
        return cast(_Derived, self._derived[key])

    @cached_property
    def files(self) -> Bundle:
        """The bundle without what some instances get apart."""
        return Bundle(file for file in self.bundle.files.values() if not name_of(file.path))

    @cached_property
    def apart(self) -> Apart | None:
        """What that is; None: nothing."""
        found = [(name_of(path), file.digest) for path, file in self.bundle.files.items()]
        upstreams = tuple((name, digest) for name, digest in found if name)
        return Apart(self.files.version, upstreams) if upstreams else None

    @property
    def wanted(self) -> Publish:
        """The event that it is to be had."""
        return Publish(self.bundle.version, self.apart)

    @cached_property
    def by_digest(self) -> dict[str, File]:
        """Its files by content, which is how they are asked for."""
        return {file.digest: file for file in self.bundle.files.values()}


class Publication:
    """The current bundle, and older ones for as long as an instance may be fetching them."""

    def __init__(self, keep_seconds: float) -> None:
        self.current: Published | None = None
        self._retired: list[Published] = []
        self._keep_seconds = keep_seconds

    def publish(self, bundle: Bundle | None, in_flight: Set[str], now: float) -> bool:
        """Make ``bundle`` the current one; returns False if it already was.

        ``in_flight``: the versions that instances are fetching at this moment.
        """
        previous = self.current
        if (previous.bundle if previous else None) == bundle:
            return False
        self._retired = [
            old
            for old in self._retired
            if old.bundle.version in in_flight or now - old.retired_at < self._keep_seconds
        ]
        if previous is not None:
            previous.retired_at = now
            # Memory follows the churn: 8 keeps any that can be in flight at one change a second,
            # with deadlines far beyond a reload; the content of equal files is shared anyway.
            excess = len(self._retired) - 7
            spare = [old for old in self._retired if old.bundle.version not in in_flight]
            dropped = {id(old) for old in spare[: max(0, excess)]}
            self._retired = [old for old in self._retired if id(old) not in dropped]
            self._retired.append(previous)
        self.current = None if bundle is None else Published(bundle)
        return True

    def find(self, digest: str) -> File | None:
        """Give the file with this content from the current bundle or a retired one."""
        for published in self._kept():
            if digest in published.by_digest:
                return published.by_digest[digest]
        return None

    def get(self, version: str) -> Published | None:
        """Give the bundle of this version, if it is the current one or a retired one."""
        found = (each for each in self._kept() if each.bundle.version == version)
        return next(found, None)

    def _kept(self) -> list[Published]:
        current = [] if self.current is None else [self.current]
        return [*current, *reversed(self._retired)]
