"""Bundles: what a data plane is to have, addressed by content.

A bundle maps paths to files. Delivery is "send what differs": two files are the same when their
digests are, two bundles when their versions are.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType

import msgspec


def digest_of(content: bytes) -> str:
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
        return cls(path=path, content=data, digest=digest_of(data), secret=secret)

    def __repr__(self) -> str:
        return f"File({self.path!r}, {len(self.content)} bytes, {self.digest})"


class Bundle:
    """An immutable set of files with a version that depends on their paths and digests alone."""

    def __init__(self, files: Iterable[File]) -> None:
        ordered = {file.path: file for file in sorted(files, key=lambda file: file.path)}
        self.files: Mapping[str, File] = MappingProxyType(ordered)

    @cached_property
    def version(self) -> str:
        """Standard base64 of a SHA-256 over all paths and digests."""
        whole = hashlib.sha256()
        for file in self.files.values():
            whole.update(f"{file.path}\0{file.digest}\n".encode())
        return base64.b64encode(whole.digest()).decode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bundle) and self.version == other.version

    def __hash__(self) -> int:
        return hash(self.version)

    def __repr__(self) -> str:
        return f"Bundle({len(self.files)} files, {self.version})"
