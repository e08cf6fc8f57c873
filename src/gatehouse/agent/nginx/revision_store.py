"""Store of configuration revisions: contents by hash, and directories of hard links to them.

An obsolete revision is reused for the next one, so files in both are not written again.

The process may be killed after any step. A revision gets its name only when it is complete, and the
link `current` is replaced by a rename. So it always leads to a complete revision that `nginx -t`
accepted. The link `proven` leads to the last known good revision.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from pathlib import Path, PurePosixPath

import msgspec
import structlog

from gatehouse.agent.nginx.manifests import Manifest, ManifestEntry
from kube_base.runtime import private_files
from kube_base.runtime.private_files import UnsafePathError

log = structlog.get_logger("gatehouse.agent")

MANIFEST = "manifest.json"
"""Manifest file of a revision. Directories without it are not revisions."""

MAIN = "nginx.conf"
SYSTEM_TRUST = "system.pem"
"""Files written by the agent that file sets refer to: main file and CA certificates of the system.
"""

RUNTIME_FILES = "gatehouse/secrets"
"""Directory of files that NGINX opens when a request needs them, not at start."""

_CERTIFICATE = re.compile(r"gatehouse/tls/[^/]+\.crt")
"""Path of a certificate chain."""

_OBJECT = re.compile(r"[0-9a-f]{64}")
_STAGED = re.compile(r"\.[0-9a-f]{64}(-\d+)?")


class _WrittenRevision(msgspec.Struct, frozen=True):
    """A revision that this process wrote completely, and so knows without reading the disk."""

    manifest: Manifest
    own: Mapping[str, str | Path]
    """The agent's own files by path: texts, or paths that they link to."""

    @property
    def reusable(self) -> dict[str, ManifestEntry | str | Path]:
        """Files that another revision can reuse, by path."""
        entries = {
            entry.path: entry
            for entry in self.manifest.entries
            if not entry.path.startswith(f"{RUNTIME_FILES}/") and not entry.secret
        }
        return {**entries, **self.own}


class RevisionStore:
    """Store of revisions under one root, for a single process. All methods are synchronous."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._objects = root / "objects"
        self._revisions = root / "generations"
        self._link = root / "current"
        self._good = root / "proven"
        self._writes = itertools.count()
        self._written: dict[int, _WrittenRevision] = {}
        self.test_directory = root / "test"
        """Directory for a test of a part of a revision. It exists only meanwhile."""
        self._spare = root / "spare"
        """An obsolete revision for reuse, without its secrets."""
        self._spare_content: _WrittenRevision | None = None
        """Content of the spare revision. None if it does not exist."""
        self._maybe_obsolete: set[str] | None = None
        """Digests of contents that may be obsolete. None: any may be."""

    def prepare(self) -> None:
        """Create the directories and remove incomplete files of an interrupted run.

        Raises OSError.
        """
        for directory in (self._objects, self._revisions):
            private_files.reject_symlinks(self._root, directory.name)
            private_files.make_private_dir(directory)
        # Files that cannot be removed do no harm. The disk may be read-only for a while.
        for directory in (self._spare, self.test_directory):
            shutil.rmtree(directory, ignore_errors=True)
        for path in self._revisions.iterdir():
            if path.name.startswith(".") and path.name[1:].isdigit():
                shutil.rmtree(path, ignore_errors=True)
        for path in self._objects.iterdir():
            if not _STAGED.fullmatch(path.name):
                continue
            with contextlib.suppress(OSError):
                path.unlink()

    def directory(self, number: int) -> Path:
        """Return the directory of a revision."""
        return self._revisions / str(number)

    def numbers(self) -> list[int]:
        """Return the numbers of all revisions, oldest first."""
        paths = (path for path in self._revisions.iterdir() if path.name.isdigit())
        return sorted(int(path.name) for path in paths if (path / MANIFEST).is_file())

    def current(self) -> int | None:
        """Return the revision that NGINX loads at a start or reload. None before the first."""
        return self._read_link(self._link)

    def last_known_good(self) -> int | None:
        """Return the revision that was served last. None before the first."""
        return self._read_link(self._good)

    def _read_link(self, link: Path) -> int | None:
        try:
            name = link.readlink().name
        except OSError:
            return None
        return int(name) if name.isdigit() and self.directory(int(name)).is_dir() else None

    def manifest(self, number: int) -> Manifest:
        """Return the manifest of a revision. Raises OSError or msgspec.DecodeError."""
        if number in self._written:
            return self._written[number].manifest
        return msgspec.json.decode((self.directory(number) / MANIFEST).read_bytes(), type=Manifest)

    def certificate_chains(self) -> dict[str, Callable[[], bytes]]:
        """Return readers of the certificate chains of the current revision, by their content.

        Raises OSError.
        """
        number = self.current()
        if number is None:
            return {}
        directory = self.directory(number)
        return {
            entry.digest: (directory / entry.path).read_bytes
            for entry in self.manifest(number).entries
            if _CERTIFICATE.fullmatch(entry.path)
        }

    def missing(self, entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
        """Return the entries whose content is not in the store, each content once."""
        needed = {entry.digest: entry for entry in entries}
        current = self.current()
        if current in self._written:
            stored = {entry.digest for entry in self._written[current].manifest.entries}
            needed = {digest: entry for digest, entry in needed.items() if digest not in stored}
        return [entry for digest, entry in needed.items() if not (self._objects / digest).exists()]

    def put(self, entry: ManifestEntry, content: bytes) -> None:
        """Store a content.

        Raises :class:`UnsafePathError` if its hash differs from that of the entry. Raises OSError
        naming the file if it cannot be written; then nothing of it stays on disk.
        """
        if hashlib.sha256(content).hexdigest() != entry.digest:
            raise UnsafePathError(
                f"{entry.path}: hash of the content ({len(content)} bytes) does not match"
            )
        private_files.reject_symlinks(self._root, self._objects.name)
        # A unique name, because a cancelled writer thread may still be running.
        staged = self._objects / f".{entry.digest}-{next(self._writes)}"
        try:
            private_files.write_private_file(staged, content, 0o600 if entry.secret else 0o644)
            staged.rename(self._objects / entry.digest)
            if self._maybe_obsolete is not None:
                self._maybe_obsolete.add(entry.digest)
        except OSError as error:
            # Free space for what is needed now.
            self._spare_content = None
            shutil.rmtree(self._spare, ignore_errors=True)
            with contextlib.suppress(OSError):
                staged.unlink(missing_ok=True)
            raise OSError(f"{entry.path} cannot be written: {error.strerror}") from error

    def content(self, entry: ManifestEntry) -> bytes:
        """Return a content from the store. Raises OSError."""
        return (self._objects / entry.digest).read_bytes()

    def stage(self, manifest: Manifest, own: Mapping[str, str | Path]) -> int:
        """Create a revision from stored contents and the agent's own files. Return its number.

        Own files are texts, or paths to link to. Raises OSError; then nothing of it stays on disk.
        """
        taken = (int(path.name) for path in self._revisions.iterdir() if path.name.isdigit())
        number = max(taken, default=0) + 1
        for store in (self._objects, self._revisions):
            private_files.reject_symlinks(self._root, store.name)
        staged = self._revisions / f".{number}"
        if not self._reuse_spare(staged, manifest, own):
            shutil.rmtree(staged, ignore_errors=True)
            try:
                self._fill(staged, manifest, own, {})
            except OSError as error:
                shutil.rmtree(staged, ignore_errors=True)
                raise OSError(f"revision cannot be created: {error.strerror}") from error
        staged.rename(self.directory(number))
        self._written[number] = _WrittenRevision(manifest, own)
        return number

    def _reuse_spare(self, staged: Path, manifest: Manifest, own: Mapping[str, str | Path]) -> bool:
        """Turn the spare revision into a new one. Return whether that succeeded."""
        spare, self._spare_content = self._spare_content, None
        if spare is None:
            return False
        try:
            shutil.rmtree(staged, ignore_errors=True)
            self._spare.rename(staged)
            _remove(staged / MANIFEST)
            _remove(staged / RUNTIME_FILES)
            self._fill(staged, manifest, own, spare.reusable)
        except OSError as error:
            log.info("spare revision not reused", error=str(error))
            return False
        return True

    def _fill(
        self,
        staged: Path,
        manifest: Manifest,
        own: Mapping[str, str | Path],
        existing: Mapping[str, ManifestEntry | str | Path],
    ) -> None:
        """Write the files of a revision to a directory that already has the files `existing`."""
        # Own files replace those of the manifest with the same path. Contents in the store stay.
        entries = {entry.path: entry for entry in manifest.entries}
        desired: dict[str, ManifestEntry | str | Path] = {**entries, **own}
        for path, content in existing.items():
            if desired.get(path) != content:
                (staged / path).unlink()
                with contextlib.suppress(OSError):
                    for directory in PurePosixPath(path).parents[:-1]:
                        (staged / directory).rmdir()
        added = {path: file for path, file in desired.items() if existing.get(path) != file}
        for parent in {"", *(path.rpartition("/")[0] for path in added)}:
            private_files.make_private_dir(staged / parent)
        current = self._written.get(self.current() or 0)
        for path, content in added.items():
            if isinstance(content, ManifestEntry):
                source = self._objects / content.digest
                if content.secret:
                    source.chmod(0o600)
                os.link(source, staged / path)
            elif isinstance(content, Path):
                (staged / path).symlink_to(content)
            elif current is not None and current.own.get(path) == content:
                # A file system creates a link much faster than a file.
                os.link(self._link / path, staged / path)
            else:
                private_files.write_private_file(staged / path, content.encode())
        self._add_runtime_files(staged)
        private_files.write_private_file(staged / MANIFEST, msgspec.json.encode(manifest))

    def _add_runtime_files(self, staged: Path) -> None:
        """Add runtime files of the current revision, which old workers open by their old names."""
        current = self.current()
        if current is None:
            return
        for entry in self.manifest(current).entries:
            if entry.path.startswith(f"{RUNTIME_FILES}/") and not (staged / entry.path).exists():
                private_files.make_private_dir((staged / entry.path).parent)
                os.link(self.directory(current) / entry.path, staged / entry.path)

    def update_in_place(self, number: int, manifest: Manifest) -> None:
        """Replace files of a revision by others with the same paths, the manifest last.

        Only for files that NGINX does not read. If this is interrupted, the old manifest remains
        and the control plane requests the update again.
        """
        directory = self.directory(number)
        known = {entry.path: entry for entry in self.manifest(number).entries}
        written = self._written.pop(number, None)
        for entry in manifest.entries:
            if entry == known[entry.path]:
                continue
            parent = PurePosixPath(entry.path).parent
            private_files.reject_symlinks(self._root, f"generations/{number}/{parent}")
            new = directory / ".new"
            new.unlink(missing_ok=True)
            os.link(self._objects / entry.digest, new)
            new.replace(directory / entry.path)
            if self._maybe_obsolete is not None:
                self._maybe_obsolete.add(known[entry.path].digest)
        new = directory / ".new"
        new.unlink(missing_ok=True)
        private_files.write_private_file(new, msgspec.json.encode(manifest))
        new.replace(directory / MANIFEST)
        if written is not None:
            self._written[number] = _WrittenRevision(manifest, written.own)
        self._remove_obsolete_contents()

    def activate(self, number: int) -> None:
        """Make a revision the current one, atomically."""
        if self.current() != number:
            self._write_link(self._link, number)

    def _write_link(self, link: Path, number: int) -> None:
        new = link.with_name(f".{link.name}")
        new.unlink(missing_ok=True)
        new.symlink_to(Path("generations") / str(number))
        new.replace(link)

    def sweep(self, keep: Iterable[int | None]) -> None:
        """Remove revisions other than `keep` and the linked ones, and contents that none needs.

        Disk errors are only logged, because they are no reason to fail.
        """
        try:
            self._sweep({*keep, self.current(), self.last_known_good()})
        except (OSError, msgspec.DecodeError) as error:
            log.warning("revisions not removed", error=str(error))

    def remove(self, number: int) -> None:
        """Remove a revision that is not going to be served."""
        self.sweep(other for other in self.numbers() if other != number)

    def keep(self, good: int) -> None:
        """Record `good` as the last known good revision. Remove all except it and the previous one.

        If the disk cannot be written to, the previous record stays.
        """
        try:
            if self.last_known_good() != good:
                self._write_link(self._good, good)
        except OSError as error:
            log.warning("last known good revision not recorded", revision=good, error=str(error))
        self.sweep(self._with_previous(good))

    def _with_previous(self, number: int) -> Iterator[int]:
        """Yield a revision, and the newest one before it that has other files.

        Revisions of the same files differ only in what the agent adds to them, such as seeds.
        """
        yield number
        manifest = self.manifest(number)
        for other in reversed(self.numbers()):
            if other < number and not self.manifest(other).same(manifest):
                yield other
                return

    def _sweep(self, keep: Set[int | None]) -> None:
        for number in self.numbers():
            if number not in keep:
                # Rename it first, so that a partly removed revision is never taken as complete.
                removed = self._revisions / f".{number}"
                written = self._written.pop(number, None)
                self.directory(number).rename(removed)
                self._make_spare(removed, written)
        self._remove_obsolete_contents()

    def _make_spare(self, directory: Path, written: _WrittenRevision | None) -> None:
        """Keep an obsolete revision as the spare one, replacing an older spare."""
        if written is None:
            self._maybe_obsolete = None
            shutil.rmtree(directory)
            return
        if self._maybe_obsolete is not None:
            self._maybe_obsolete.update(entry.digest for entry in written.manifest.entries)
        for entry in written.manifest.entries:
            if entry.secret:
                (directory / entry.path).unlink()
        _remove(directory / RUNTIME_FILES)
        self._spare_content = None
        _remove(self._spare)
        directory.rename(self._spare)
        self._spare_content = written

    def _remove_obsolete_contents(self) -> None:
        # Keep what a manifest names instead of what has links: an interrupted update in place left
        # a manifest whose contents are only in the store.
        used = {
            entry.digest for number in self.numbers() for entry in self.manifest(number).entries
        }
        candidates, self._maybe_obsolete = self._maybe_obsolete, None
        if candidates is None:
            names = (path.name for path in self._objects.iterdir())
            candidates = {name for name in names if _OBJECT.fullmatch(name)}
        for digest in candidates - used:
            (self._objects / digest).unlink(missing_ok=True)
        self._maybe_obsolete = set()


def _remove(path: Path) -> None:
    """Remove a file, a link, or a directory tree, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
