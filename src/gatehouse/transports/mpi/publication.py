"""The bundles of one gateway that its instances may fetch files of."""

from __future__ import annotations

from collections.abc import Set
from functools import cached_property

from gatehouse.bundle import Bundle, File
from gatehouse.transports.mpi import messages


class Published:
    """A bundle, with what is derived from it once for all instances."""

    def __init__(self, bundle: Bundle, config_dir: str) -> None:
        self.bundle = bundle
        self.retired_at = 0.0
        self._config_dir = config_dir

    @cached_property
    def overview(self) -> bytes:
        """Its serialised overview."""
        return messages.overview(self.bundle, self._config_dir)

    @cached_property
    def by_digest(self) -> dict[str, File]:
        """Its files by content, which is how they are asked for."""
        return {file.digest: file for file in self.bundle.files.values()}


class Publication:
    """The current bundle, and older ones for as long as an instance may be fetching them."""

    def __init__(self, config_dir: str, keep_seconds: float) -> None:
        self.current: Published | None = None
        self._retired: list[Published] = []
        self._config_dir = config_dir
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
        self.current = None if bundle is None else Published(bundle, self._config_dir)
        return True

    def find(self, digest: str) -> File | None:
        """Give the file with this content from the current bundle or a retired one."""
        for published in (self.current, *reversed(self._retired)):
            if published is not None and digest in published.by_digest:
                return published.by_digest[digest]
        return None
