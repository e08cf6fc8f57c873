"""What a generation is to hold, as a control plane says it, and as it is kept on disk."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from pathlib import PurePosixPath

import msgspec

from gatehouse.agent.options import CONFIG_DIR
from gatehouse.agent.secure_files import UnsafePathError
from gatehouse.dataplane.endpoints import Endpoints


class Entry(msgspec.Struct, frozen=True):
    """One file of a generation."""

    path: str
    """Relative to the generation."""
    digest: str
    """Lower-case hex of the SHA-256."""
    size: int
    secret: bool


class Manifest(msgspec.Struct, frozen=True):
    """What a generation is, kept beside its files."""

    version: str
    entries: tuple[Entry, ...]
    loaded: str = ""
    """The version under which NGINX loaded it, if only endpoints changed since; empty: its own."""
    nameserver: int = 0
    """The port that its main file names; 0: none."""
    seeds: Mapping[str, Endpoints] = {}
    """What upstreams begin with, by name."""

    @property
    def served(self) -> str:
        """The version that workers answer with."""
        return self.loaded or self.version

    def same(self, other: Manifest) -> bool:
        """Whether ``other`` asks for the same files under the same version."""
        return self.version == other.version and self.entries == other.entries


def entry_of(name: str, digest: str, size: int, permissions: str) -> Entry:
    """Build an entry from an overview's file; raises :class:`Refused`."""
    prefix = f"{CONFIG_DIR}/"
    relative = PurePosixPath(name.removeprefix(prefix))
    written = name.removeprefix(prefix)
    if not name.startswith(prefix) or str(relative) != written or ".." in relative.parts:
        raise UnsafePathError(f"{name}: not a plain path under {CONFIG_DIR}")
    if relative.is_absolute() or len(relative.parts) < 2 or "\0" in written:
        # Files beside ``nginx.conf`` itself would be the agent's own.
        raise UnsafePathError(f"{name}: only files in directories of {CONFIG_DIR} are taken")
    try:
        raw = base64.b64decode(digest, validate=True)
    except binascii.Error:
        raw = b""
    if len(raw) != hashlib.sha256().digest_size:
        raise UnsafePathError(f"{name}: hash {digest!r} is not the base64 of a SHA-256")
    readable = permissions[-1:] not in ("", "0")
    return Entry(written, raw.hex(), size, secret=not readable)
