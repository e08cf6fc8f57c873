"""The bundles of one gateway that its instances may fetch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Set
from functools import cached_property
from typing import Any, TypeVar, cast

from gatehouse.dataplane.endpoints import name_of
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.agents.session import Apart, Publish

_Derived = TypeVar("_Derived")

DERIVED_MAX = 8
"""Results kept for one bundle: an agent may claim ever other facts that one depends on."""


class Published:
    """A bundle, with what is derived from it once for all instances."""

    def __init__(self, bundle: FileSet, before: Published | None = None) -> None:
        """``before``: what was published before it, of which this may be little different."""
        self.bundle = bundle
        self.retired_at = 0.0
        self.left: dict[str, File] = {}
        """By content, the files that later bundles have no more."""
        self._derived: dict[Hashable, Any] = {}
        self._chunks: dict[Hashable, dict[int, tuple[Any, Any]]] = (
            dict(before._chunks) if before is not None else {}
        )
        if before is not None and "files" in before.__dict__:
            self.__dict__["files"] = _followed(before, bundle)

    def derive(self, key: Hashable, make: Callable[[], _Derived]) -> _Derived:
        """Give what ``make`` gives, made once for ``key``."""
        if key not in self._derived:
            if len(self._derived) >= DERIVED_MAX:
                del self._derived[next(iter(self._derived))]
            self._derived[key] = make()
        return cast(_Derived, self._derived[key])

    def by_chunk(
        self, key: Hashable, files: FileSet, make: Callable[[Iterable[File]], _Derived]
    ) -> list[_Derived]:
        """Give what ``make`` gives for files a chunk at a time, in the order of their paths.

        Of chunks that the bundle before had as well it was made then, under the same ``key``.
        """
        known, found = self._chunks.get(key, {}), {}
        for chunk in files.files.chunks:
            made = known.get(id(chunk))
            # What is held stays alive, so that an identity is never that of another chunk.
            found[id(chunk)] = (chunk, make(chunk.stored)) if made is None else made
        self._chunks[key] = found
        return [made for _, made in found.values()]

    @cached_property
    def files(self) -> FileSet:
        """The bundle without what some instances get apart."""
        return FileSet(file for file in self.bundle.files.values() if not name_of(file.path))

    @cached_property
    def apart(self) -> Apart | None:
        """What that is; None: nothing."""
        found = [(name_of(path), file.digest) for path, file in self.bundle.files.items()]
        upstreams = tuple((name, digest) for name, digest in found if name)
        return Apart(self.files.version, upstreams) if upstreams else None

    @property
    def wanted(self) -> Publish:
        """The event that it is to be had."""
        return Publish(self.bundle.version, lambda: self.apart)


def _followed(before: Published, bundle: FileSet) -> FileSet:
    """Give the bundle without what some instances get apart, made of that of the one before."""
    differing = [each for each in before.bundle.files.diff(bundle.files) if not name_of(each[0])]
    gone = [path for path, _, new in differing if new is None]
    return before.files.changed([new for _, _, new in differing if new is not None], gone)


class _Contents:
    """The files of the current bundle by content, which is how they are asked for."""

    def __init__(self) -> None:
        self._found: dict[str, File] = {}
        self._paths: Counter[str] = Counter()

    def get(self, digest: str) -> File | None:
        return self._found.get(digest)

    def follow(self, before: FileSet, after: FileSet) -> dict[str, File]:
        """Follow from one bundle to the next; gives what is there no more."""
        left = {}
        for _, old, new in before.files.diff(after.files):
            if new is not None:
                self._paths[new.digest] += 1
                self._found[new.digest] = new
            if old is not None:
                self._paths[old.digest] -= 1
                left[old.digest] = old
        left = {digest: old for digest, old in left.items() if not self._paths[digest]}
        for digest in left:
            del self._found[digest], self._paths[digest]
        return left


class Publication:
    """The current bundle, and older ones for as long as an instance may be fetching them."""

    def __init__(self, keep_seconds: float) -> None:
        self.current: Published | None = None
        self._retired: list[Published] = []
        self._keep_seconds = keep_seconds
        self._contents = _Contents()

    def publish(self, bundle: FileSet | None, in_flight: Set[str], now: float) -> bool:
        """Make ``bundle`` the current one; returns False if it already was.

        ``in_flight``: the versions that instances are fetching at this moment.
        """
        previous = self.current
        if (previous.bundle if previous else None) == bundle:
            return False
        self._drop(
            old
            for old in self._retired
            if old.bundle.version not in in_flight and now - old.retired_at >= self._keep_seconds
        )
        before = previous.bundle if previous is not None else FileSet()
        left = self._contents.follow(before, bundle if bundle is not None else FileSet())
        if previous is not None:
            previous.retired_at, previous.left = now, left
            # Memory follows the churn: 8 keeps any that can be in flight at one change a second,
            # with deadlines far beyond a reload; the content of equal files is shared anyway.
            excess = len(self._retired) - 7
            spare = [old for old in self._retired if old.bundle.version not in in_flight]
            self._drop(spare[: max(0, excess)])
            self._retired.append(previous)
        self.current = None if bundle is None else Published(bundle, previous)
        return True

    def _drop(self, olds: Iterable[Published]) -> None:
        for old in list(olds):
            place = self._retired.index(old)
            if place:
                # What an older one has, too, is still to be had.
                older = self._retired[place - 1]
                older.left = old.left | older.left
            del self._retired[place]

    def find(self, digest: str) -> File | None:
        """Give the file with this content from the current bundle or a retired one."""
        found = self._contents.get(digest)
        if found is not None:
            return found
        held = (old.left[digest] for old in reversed(self._retired) if digest in old.left)
        return next(held, None)

    def get(self, version: str) -> Published | None:
        """Give the bundle of this version, if it is the current one or a retired one."""
        found = (each for each in self._kept() if each.bundle.version == version)
        return next(found, None)

    def _kept(self) -> list[Published]:
        current = [] if self.current is None else [self.current]
        return [*current, *reversed(self._retired)]
