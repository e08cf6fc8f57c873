"""What a control plane asks for, read of its overviews of files."""

from __future__ import annotations

from collections.abc import Sequence

from gatehouse.agent.nginx.manifests import Entry, Manifest, entry_of
from gatehouse.agent.options import CONFIG_DIR
from gatehouse.agent.secure_files import UnsafePathError
from gatehouse.wire.mpi.v1 import files_pb2


class Overviews:
    """Reads overviews one after the other; what is said again of a file is not read again."""

    def __init__(self, allowed: Sequence[str] = (CONFIG_DIR,)) -> None:
        """``allowed``: the directories in which files may be."""
        self._allowed = tuple(f"{directory}/" for directory in allowed)
        self._known: dict[tuple[str, str, int, str], Entry] = {}

    def read(self, overview: files_pb2.FileOverview) -> Manifest:
        """Give what is to be applied; raises :class:`Refused` for a file that is not taken."""
        known, found = self._known, {}
        for file in overview.files:
            if file.unmanaged:
                continue
            about = file.file_meta
            if file.HasField("external_data_source"):
                raise UnsafePathError(f"{about.name}: external data sources are not fetched")
            said = (about.name, about.hash, about.size, about.permissions)
            found[said] = known.get(said) or self._entry(*said)
        self._known = found
        entries = {entry.path: entry for entry in found.values()}
        ordered = tuple(entries[path] for path in sorted(entries))
        return Manifest(version=overview.config_version.version, entries=ordered)

    def _entry(self, name: str, digest: str, size: int, permissions: str) -> Entry:
        entry = entry_of(name, digest, size, permissions)
        if not name.startswith(self._allowed):
            allowed = ", ".join(directory.removesuffix("/") for directory in self._allowed)
            raise UnsafePathError(f"{name}: not in an allowed directory ({allowed})")
        return entry
