"""Bundles: what a data plane is to have, addressed by content.

A bundle maps paths to files. Delivery is "send what differs": two files are the same when their
digests are, two bundles when their versions are. A bundle that is made of another costs what is
different, and so does finding that.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable

import msgspec

from gatehouse.incremental.table import Table


def base64_sha256(content: bytes) -> str:
    """Give the standard base64 of the SHA-256 of ``content``, as NGINX Agent v3 writes hashes."""
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


class File(msgspec.Struct, frozen=True):
    """One file. ``path`` is relative to the proxy's configuration directory, with ``/``."""

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
        """What no other file of a bundle has."""
        return self.path

    @property
    def number(self) -> int:
        """A number that stands for path and content."""
        text = f"{self.path}\0{self.digest}\n".encode()
        return int.from_bytes(hashlib.sha256(text).digest())

    def __repr__(self) -> str:
        return f"File({self.path!r}, {len(self.content)} bytes, {self.digest})"


class FileSet:
    """An immutable set of files with a version that depends on their paths and digests alone."""

    def __init__(self, files: Iterable[File] = ()) -> None:
        self._hold(Table((file.path, file) for file in files))

    def _hold(self, files: Table[str, File], total: int | None = None) -> None:
        self.files = files
        """By path, in the order of the paths."""
        if total is None:
            total = sum(file.number for file in files.values())
        self._total = total % 2**256
        self.version = base64.b64encode(self._total.to_bytes(32)).decode()
        """Standard base64 of a number that is the sum of all files' numbers.

        A sum needs no order, and can follow a change without looking at what did not change.
        """

    def changed(self, new: Iterable[File] = (), gone: Iterable[str] = ()) -> FileSet:
        """Give a bundle with ``new`` in it and without the paths ``gone``, sharing the rest."""
        added = {file.path: file for file in new}
        leaving = [path for path in gone if path in self.files and path not in added]
        before = [self.files[path] for path in (*added, *leaving) if path in self.files]
        total = self._total + sum(file.number for file in added.values())
        made = FileSet.__new__(FileSet)
        made._hold(self.files.updated(added, leaving), total - sum(file.number for file in before))
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileSet) and self.version == other.version

    def __hash__(self) -> int:
        return hash(self.version)

    def __repr__(self) -> str:
        return f"Bundle({len(self.files)} files, {self.version})"
