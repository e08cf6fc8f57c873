"""Conversion of the control plane's file overviews to manifests."""

from __future__ import annotations

from collections.abc import Sequence

from gatehouse.agent.nginx.manifests import Manifest, ManifestEntry, entry_of, unmanaged_path
from gatehouse.agent.options import CONFIG_DIR
from gatehouse.wire.mpi.v1 import files_pb2
from kube_base.runtime.private_files import UnsafePathError


class Overviews:
    """Converts overviews. Unchanged files are not parsed again."""

    def __init__(self, allowed: Sequence[str] = (CONFIG_DIR,)) -> None:
        """`allowed`: the directories in which files may be."""
        self._allowed = tuple(f"{directory}/" for directory in allowed)
        self._known: dict[tuple[str, str, int, str], ManifestEntry] = {}

    def read(self, overview: files_pb2.FileOverview) -> Manifest:
        """Return the manifest to apply.

        Raises :class:`UnsafePathError` if a file is not allowed.
        """
        known, entries_by_key, unmanaged = self._known, {}, set[str]()
        for file in overview.files:
            meta = file.file_meta
            if file.unmanaged:
                unmanaged.add(unmanaged_path(meta.name))
                continue
            if file.HasField("external_data_source"):
                raise UnsafePathError(f"{meta.name}: external data sources are not supported")
            key = (meta.name, meta.hash, meta.size, meta.permissions)
            entries_by_key[key] = known.get(key) or self._entry(*key)
        self._known = entries_by_key
        entries = {entry.path: entry for entry in entries_by_key.values()}
        ordered = tuple(entries[path] for path in sorted(entries))
        version = overview.config_version.version
        return Manifest(version, ordered, unmanaged=tuple(sorted(unmanaged - {"", *entries})))

    def _entry(self, name: str, digest: str, size: int, permissions: str) -> ManifestEntry:
        entry = entry_of(name, digest, size, permissions)
        if not name.startswith(self._allowed):
            allowed = ", ".join(directory.removesuffix("/") for directory in self._allowed)
            raise UnsafePathError(f"{name}: not in an allowed directory ({allowed})")
        return entry
