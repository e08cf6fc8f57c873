"""File sets: content-addressed configuration files of an NGINX data plane.

A file set maps paths to files. Only differences are sent: files are equal if their digests are, and
file sets are equal if their versions are. Deriving a file set from another, and comparing the two,
costs as much as they differ.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable

import msgspec

from gatehouse.incremental.table import Table


def base64_sha256(content: bytes) -> str:
    """Return the SHA-256 of ``content`` in standard base64, the hash format of NGINX Agent v3."""
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


class File(msgspec.Struct, frozen=True):
    """A file. ``path`` is relative to the proxy's configuration directory, separated by ``/``."""

    path: str
    content: bytes
    digest: str
    secret: bool = False
    """Holds key material: written 0600 and never logged."""

    @classmethod
    def make(cls, path: str, content: bytes | str, *, secret: bool = False) -> File:
        """Build a file, computing its digest."""
        data = content.encode() if isinstance(content, str) else content
        return cls(path=path, content=data, digest=base64_sha256(data), secret=secret)

    @property
    def key(self) -> str:
        """Unique key in a file set."""
        return self.path

    @property
    def number(self) -> int:
        """Number derived from path and digest; see :attr:`FileSet.version`."""
        text = f"{self.path}\0{self.digest}\n".encode()
        return int.from_bytes(hashlib.sha256(text).digest())

    def __repr__(self) -> str:
        return f"File({self.path!r}, {len(self.content)} bytes, {self.digest})"


TRIAL_PATH = "gatehouse/trial"
"""Path of the file that makes a file set a trial. NGINX does not read it."""

_TRIAL = File.make(TRIAL_PATH, "This file set is a trial. It must not be served.\n")


class FileSet:
    """An immutable set of files with a version that depends on their paths and digests alone."""

    def __init__(self, files: Iterable[File] = ()) -> None:
        self._set_files(Table((file.path, file) for file in files))

    def _set_files(self, files: Table[str, File], total: int | None = None) -> None:
        self.files = files
        """Files by path, sorted by path."""
        if total is None:
            total = sum(file.number for file in files.values())
        self._total = total % 2**256
        self.version = base64.b64encode(self._total.to_bytes(32)).decode()
        """Standard base64 of the sum of all files' numbers.

        A sum does not depend on an order, so an update only looks at the files that change.
        """

    def changed(self, new: Iterable[File] = (), gone: Iterable[str] = ()) -> FileSet:
        """Return a file set with the files ``new`` and without the paths ``gone``, sharing the
        rest."""
        added = {file.path: file for file in new}
        removed = [path for path in gone if path in self.files and path not in added]
        before = [self.files[path] for path in (*added, *removed) if path in self.files]
        total = self._total + sum(file.number for file in added.values())
        total -= sum(file.number for file in before)
        updated = FileSet.__new__(FileSet)
        updated._set_files(self.files.updated(added, removed), total)
        return updated

    @property
    def trial(self) -> bool:
        """True if instances must only test the file set, or not become ready with it."""
        return TRIAL_PATH in self.files

    def as_trial(self) -> FileSet:
        """Return the same file set as a trial."""
        return self.changed([_TRIAL])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileSet) and self.version == other.version

    def __hash__(self) -> int:
        return hash(self.version)

    def __repr__(self) -> str:
        return f"FileSet({len(self.files)} files, {self.version})"
