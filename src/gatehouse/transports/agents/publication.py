"""File sets of one Gateway that its instances may fetch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Set
from functools import cached_property
from typing import Any, TypeVar, cast

from gatehouse.dataplane.agent_limits import CALL_BYTES
from gatehouse.dataplane.endpoints import upstream_of
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.agents.session import Publish, SeparateEndpoints

_Derived = TypeVar("_Derived")

MAX_DERIVED_RESULTS = 8
"""Maximum number of cached results per file set. They depend on facts that agents claim."""


class Published:
    """A file set with results derived from it once for all instances."""

    def __init__(self, file_set: FileSet, before: Published | None = None) -> None:
        """``before`` is the previous publication, which usually differs little."""
        self.file_set, self.trial = file_set, file_set.trial
        self.retired_at = 0.0
        self.removed: dict[str, File] = {}
        """Files by digest that later file sets do not contain."""
        self._derived: dict[Hashable, Any] = {}
        self._chunks: dict[Hashable, dict[int, tuple[Any, Any]]] = (
            dict(before._chunks) if before is not None else {}
        )
        if before is not None and "files" in before.__dict__:
            self.__dict__["files"] = _files_from(before, file_set)

    def derive(self, key: Hashable, make: Callable[[], _Derived]) -> _Derived:
        """Return the result of ``make``, cached by ``key``."""
        if key not in self._derived:
            if len(self._derived) >= MAX_DERIVED_RESULTS:
                del self._derived[next(iter(self._derived))]
            self._derived[key] = make()
        return cast(_Derived, self._derived[key])

    def by_chunk(
        self, key: Hashable, files: FileSet, make: Callable[[Iterable[File]], _Derived]
    ) -> list[_Derived]:
        """Return the results of ``make`` for each chunk of files, in the order of their paths.

        Results for chunks shared with the previous file set are reused if the ``key`` is equal.
        """
        known, results = self._chunks.get(key, {}), {}
        for chunk in files.files.chunks:
            result = known.get(id(chunk))
            # The entry keeps its chunk alive, so its identity cannot be reused by another chunk.
            results[id(chunk)] = (chunk, make(chunk.stored)) if result is None else result
        self._chunks[key] = results
        return [result for _, result in results.values()]

    @cached_property
    def files(self) -> FileSet:
        """The file set without endpoint files."""
        return FileSet(file for file in self.file_set.files.values() if not upstream_of(file.path))

    @cached_property
    def by_digest(self) -> dict[str, File]:
        """All files by digest."""
        return {file.digest: file for file in self.file_set.files.values()}

    @cached_property
    def fetch_units(self) -> float:
        """Size of the file set, counted as calls that fetch its files."""

        def count(files: Iterable[File]) -> float:
            return sum(1 + len(file.content) / CALL_BYTES for file in files)

        return sum(self.by_chunk("fetch units", self.file_set, count))

    @cached_property
    def separate_endpoints(self) -> SeparateEndpoints | None:
        """Upstreams whose endpoints some instances receive separately; None if there are none.

        A trial has none, since the endpoints would be served.
        """
        if self.trial:
            return None
        digests = [(upstream_of(path), file.digest) for path, file in self.file_set.files.items()]
        upstreams = tuple((name, digest) for name, digest in digests if name)
        return SeparateEndpoints(self.files.version, upstreams) if upstreams else None

    @property
    def publish_event(self) -> Publish:
        """The event that makes this file set the desired one."""
        return Publish(self.file_set.version, lambda: self.separate_endpoints)


def _files_from(before: Published, file_set: FileSet) -> FileSet:
    """Derive the file set without endpoint files from that of the previous publication."""
    differing = [
        entry for entry in before.file_set.files.diff(file_set.files) if not upstream_of(entry[0])
    ]
    gone = [path for path, _, new in differing if new is None]
    return before.files.changed([new for _, _, new in differing if new is not None], gone)


class _Contents:
    """Files of the current file set by digest, which is how agents fetch them."""

    def __init__(self) -> None:
        self._files: dict[str, File] = {}
        self._paths: Counter[str] = Counter()

    def get(self, digest: str) -> File | None:
        return self._files.get(digest)

    def update(self, before: FileSet, after: FileSet) -> dict[str, File]:
        """Update from one file set to the next and return the files that are gone."""
        removed = {}
        for _, old, new in before.files.diff(after.files):
            if new is not None:
                self._paths[new.digest] += 1
                self._files[new.digest] = new
            if old is not None:
                self._paths[old.digest] -= 1
                removed[old.digest] = old
        removed = {digest: old for digest, old in removed.items() if not self._paths[digest]}
        for digest in removed:
            del self._files[digest], self._paths[digest]
        return removed


class Publication:
    """The current file set, and older ones for as long as an instance may be fetching them."""

    def __init__(self, keep_seconds: float) -> None:
        self.current: Published | None = None
        self.good: Published | None = None
        """The newest file set that an instance has confirmed."""
        self._retired: list[Published] = []
        self._keep_seconds = keep_seconds
        self._contents = _Contents()

    def publish(self, file_set: FileSet | None, in_flight: Set[str], now: float) -> bool:
        """Make ``file_set`` the current file set. Return False if it already was.

        ``in_flight`` contains the versions that instances are fetching now.
        """
        previous = self.current
        if (previous.file_set if previous else None) == file_set:
            return False
        self._drop(
            old
            for old in self._retired
            if old.file_set.version not in in_flight and now - old.retired_at >= self._keep_seconds
        )
        before = previous.file_set if previous is not None else FileSet()
        removed = self._contents.update(before, file_set if file_set is not None else FileSet())
        if previous is not None:
            previous.retired_at, previous.removed = now, removed
            # Limits memory under frequent changes. Eight file sets cover all that can be in flight
            # at one change per second with deadlines far beyond a reload. Equal files share their
            # content.
            excess = len(self._retired) - 7
            spare = [old for old in self._retired if old.file_set.version not in in_flight]
            self._drop(spare[: max(0, excess)])
            self._retired.append(previous)
        self.current = None if file_set is None else Published(file_set, previous)
        if file_set is None:
            self.good = None
        return True

    def confirm(self, version: str) -> bool:
        """Store that an instance confirmed a version. Return whether it is the current one and was
        not confirmed before."""
        current = self.current
        if current is None or current is self.good or current.file_set.version != version:
            return False
        if current.trial:
            return False
        self.good = current
        return True

    def desired_by(self, confirmed: str) -> Published | None:
        """Return what an instance is to apply that has confirmed a version.

        One without any starts with a file set that is known to be good.
        """
        return self.current if confirmed or self.good is None else self.good

    def _drop(self, olds: Iterable[Published]) -> None:
        for old in list(olds):
            index = self._retired.index(old)
            if index:
                # Files that an older file set contains too stay available.
                older = self._retired[index - 1]
                older.removed = old.removed | older.removed
            del self._retired[index]

    def find(self, digest: str) -> File | None:
        """Return the file with this digest from the current or a retired file set, or None."""
        current = self._contents.get(digest)
        if current is not None:
            return current
        retired = (old.removed[digest] for old in reversed(self._retired) if digest in old.removed)
        content = next(retired, None)
        if content is None and self.good is not None:
            return self.good.by_digest.get(digest)
        return content

    @property
    def fetch_units(self) -> float:
        """Size of the largest available file set, counted as calls that fetch its files."""
        return max((published.fetch_units for published in self._available()), default=0.0)

    def get(self, version: str) -> Published | None:
        """Return the current or retired publication of this version, or None."""
        matches = (
            publication
            for publication in self._available()
            if publication.file_set.version == version
        )
        return next(matches, None)

    def _available(self) -> list[Published]:
        newest = [
            publication for publication in (self.current, self.good) if publication is not None
        ]
        return [*newest, *reversed(self._retired)]
