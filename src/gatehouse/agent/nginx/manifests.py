"""Manifest of a configuration revision, as parsed from a file overview and as stored on disk."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from pathlib import PurePosixPath

import msgspec

from gatehouse.agent.options import CONFIG_DIR
from gatehouse.dataplane.endpoints import Endpoints
from gatehouse.dataplane.file_set import TRIAL_PATH
from kube_base.runtime.private_files import UnsafePathError


class ManifestEntry(msgspec.Struct, frozen=True):
    """One file of a revision."""

    path: str
    """Path relative to the revision."""
    digest: str
    """SHA-256 in lower-case hex."""
    size: int
    secret: bool


class Manifest(msgspec.Struct, frozen=True):
    """Content of a revision, stored beside its files."""

    version: str
    entries: tuple[ManifestEntry, ...]
    loaded: str = ""
    """Version under which NGINX loaded it, if only endpoints changed since. Empty: `version`."""
    nameserver: int = 0
    """Name server port in its main file. 0: none."""
    seeds: Mapping[str, Endpoints] = {}
    """Endpoints in the configuration, by upstream."""
    unmanaged: tuple[str, ...] = ()
    """Paths of files that the file set relies on and that the data plane itself has."""

    @property
    def served(self) -> str:
        """Version that the workers report."""
        return self.loaded or self.version

    @property
    def trial(self) -> bool:
        """True if it must only be tested."""
        return any(entry.path == TRIAL_PATH for entry in self.entries)

    def same(self, other: Manifest) -> bool:
        """Return whether `other` has the same version and files."""
        mine, others = ((m.version, m.entries, m.unmanaged) for m in (self, other))
        return mine == others


EMPTY_MANIFEST = Manifest(version="", entries=())
"""Manifest of an NGINX without a file set."""


def unmanaged_path(name: str) -> str:
    """Return the path of an unmanaged file, empty if it is not a path under the directory."""
    path = name.removeprefix(f"{CONFIG_DIR}/")
    parts = PurePosixPath(path).parts
    normal = path != name and "/".join(parts) == path and "\0" not in path
    return path if normal and ".." not in parts else ""


def entry_of(name: str, digest: str, size: int, permissions: str) -> ManifestEntry:
    """Build an entry from a file of an overview. Raises :class:`UnsafePathError`."""
    prefix = f"{CONFIG_DIR}/"
    relative = PurePosixPath(name.removeprefix(prefix))
    path = name.removeprefix(prefix)
    if not name.startswith(prefix) or str(relative) != path or ".." in relative.parts:
        raise UnsafePathError(f"{name}: must be a normalized path under {CONFIG_DIR}")
    if relative.is_absolute() or len(relative.parts) < 2 or "\0" in path:
        # Files beside `nginx.conf` itself belong to the agent.
        raise UnsafePathError(f"{name}: must be in a subdirectory of {CONFIG_DIR}")
    try:
        raw = base64.b64decode(digest, validate=True)
    except binascii.Error:
        raw = b""
    if len(raw) != hashlib.sha256().digest_size:
        raise UnsafePathError(f"{name}: hash {digest!r} must be a SHA-256 in base64")
    readable = permissions[-1:] not in ("", "0")
    return ManifestEntry(path, raw.hex(), size, secret=not readable)
