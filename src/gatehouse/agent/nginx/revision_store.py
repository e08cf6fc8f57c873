"""Configuration on disk: contents by hash, generations of links to them, one link to the current.

A generation that is needed no more becomes the next one: what both have is not written again.

Every step can be the last: a generation gets its name only when it is complete, and ``current``
is replaced by a rename, so it always leads to a complete generation that ``nginx -t`` accepted.
``proven`` leads to the last one that was seen to be served.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Set
from pathlib import Path, PurePosixPath

import msgspec
import structlog

from gatehouse.agent import secure_files
from gatehouse.agent.nginx.manifests import Entry, Manifest
from gatehouse.agent.secure_files import UnsafePathError

log = structlog.get_logger("gatehouse.agent")

MANIFEST = "manifest.json"
"""Of each generation; a directory without one is somebody else's."""

MAIN = "nginx.conf"
SYSTEM_TRUST = "system.pem"
"""The agent's own files, which bundles refer to: the main file, and whom everybody trusts."""

RUNTIME_FILES = "gatehouse/secrets"
"""The directory of files that NGINX opens when a request needs them, not when it starts."""


_OBJECT = re.compile(r"[0-9a-f]{64}")
_STAGED = re.compile(r"\.[0-9a-f]{64}(-\d+)?")


class _Made(msgspec.Struct, frozen=True):
    """What this process wrote in whole, and so knows without a look at the disk."""

    manifest: Manifest
    own: frozenset[str]
    """First parts of the paths that are the agent's own."""

    @property
    def kept(self) -> dict[str, Entry]:
        """What of it another generation may keep."""
        return {
            entry.path: entry
            for entry in self.manifest.entries
            if entry.path.partition("/")[0] not in self.own
            and not entry.path.startswith(f"{RUNTIME_FILES}/")
            and not entry.secret
        }


class RevisionStore:
    """The store under one root. Only one process may use it; all methods are synchronous."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._objects = root / "objects"
        self._generations = root / "generations"
        self._link = root / "current"
        self._proven = root / "proven"
        self._writes = itertools.count()
        self._made: dict[int, _Made] = {}
        self._spare = root / "spare"
        """A generation that is needed no more, without its secrets."""
        self._spared: _Made | None = None
        """What that is; None: it is not there."""
        self._loose: set[str] | None = None
        """Contents that may be needed no more; None: any may."""

    def prepare(self) -> None:
        """Make the directories and remove what an interrupted run left half-made."""
        for directory in (self._objects, self._generations):
            secure_files.reject_symlinks(self._root, directory.name)
            secure_files.make_private_dir(directory)
        # What cannot be removed is in nobody's way; the disk may be read-only for a while.
        shutil.rmtree(self._spare, ignore_errors=True)
        for path in self._generations.iterdir():
            if path.name.startswith(".") and path.name[1:].isdigit():
                shutil.rmtree(path, ignore_errors=True)
        for path in self._objects.iterdir():
            if not _STAGED.fullmatch(path.name):
                continue
            with contextlib.suppress(OSError):
                path.unlink()

    def directory(self, number: int) -> Path:
        """The directory of one generation."""
        return self._generations / str(number)

    def numbers(self) -> list[int]:
        """Every generation there is, oldest first."""
        found = (path for path in self._generations.iterdir() if path.name.isdigit())
        return sorted(int(path.name) for path in found if (path / MANIFEST).is_file())

    def current(self) -> int | None:
        """The generation that NGINX loads at a start or reload; None before the first."""
        return self._led(self._link)

    def last_known_good(self) -> int | None:
        """The generation that was last seen to be served; None before the first."""
        return self._led(self._proven)

    def _led(self, link: Path) -> int | None:
        try:
            name = link.readlink().name
        except OSError:
            return None
        return int(name) if name.isdigit() and self.directory(int(name)).is_dir() else None

    def manifest(self, number: int) -> Manifest:
        """What generation ``number`` holds; raises OSError or msgspec.DecodeError."""
        if number in self._made:
            return self._made[number].manifest
        return msgspec.json.decode((self.directory(number) / MANIFEST).read_bytes(), type=Manifest)

    def missing(self, entries: Iterable[Entry]) -> list[Entry]:
        """Those whose content is not in the store, each content once."""
        wanted = {entry.digest: entry for entry in entries}
        current = self.current()
        if current in self._made:
            there = {entry.digest for entry in self._made[current].manifest.entries}
            wanted = {digest: entry for digest, entry in wanted.items() if digest not in there}
        return [entry for digest, entry in wanted.items() if not (self._objects / digest).exists()]

    def put(self, entry: Entry, content: bytes) -> None:
        """Take in a content; raises :class:`Refused` if it is not what its hash says.

        Raises OSError that names the file; nothing is left of it then.
        """
        if hashlib.sha256(content).hexdigest() != entry.digest:
            raise UnsafePathError(f"{entry.path}: content of {len(content)} bytes has another hash")
        secure_files.reject_symlinks(self._root, self._objects.name)
        # A name of its own: who was told to stop writing may still be at it.
        staged = self._objects / f".{entry.digest}-{next(self._writes)}"
        try:
            secure_files.write_private_file(staged, content, 0o600 if entry.secret else 0o644)
            staged.rename(self._objects / entry.digest)
            if self._loose is not None:
                self._loose.add(entry.digest)
        except OSError as error:
            # Whatever there is room for is needed now.
            self._spared = None
            shutil.rmtree(self._spare, ignore_errors=True)
            with contextlib.suppress(OSError):
                staged.unlink(missing_ok=True)
            raise OSError(f"{entry.path} cannot be written: {error.strerror}") from error

    def content(self, entry: Entry) -> bytes:
        """Give a content that is in the store; raises OSError."""
        return (self._objects / entry.digest).read_bytes()

    def stage(self, manifest: Manifest, own: Mapping[str, str | Path]) -> int:
        """Make a generation of contents in the store and of the agent's own files; its number.

        Those are texts, or files elsewhere that are linked to. Raises OSError; nothing is left
        then.
        """
        taken = (int(each.name) for each in self._generations.iterdir() if each.name.isdigit())
        number = max(taken, default=0) + 1
        for store in (self._objects, self._generations):
            secure_files.reject_symlinks(self._root, store.name)
        staged = self._generations / f".{number}"
        if not self._amended(staged, manifest, own):
            shutil.rmtree(staged, ignore_errors=True)
            try:
                self._fill(staged, manifest, own, {})
            except OSError as error:
                shutil.rmtree(staged, ignore_errors=True)
                raise OSError(f"a generation cannot be made: {error.strerror}") from error
        staged.rename(self.directory(number))
        self._made[number] = _Made(manifest, frozenset(path.partition("/")[0] for path in own))
        return number

    def _amended(self, staged: Path, manifest: Manifest, own: Mapping[str, str | Path]) -> bool:
        """Make a generation of one that is needed no more; returns whether that went well."""
        made, self._spared = self._spared, None
        if made is None:
            return False
        try:
            shutil.rmtree(staged, ignore_errors=True)
            self._spare.rename(staged)
            for top in (*made.own, MANIFEST, RUNTIME_FILES):
                _remove(staged / top)
            self._fill(staged, manifest, own, made.kept)
        except OSError as error:
            log.info("generation made from nothing", reason=str(error))
            return False
        return True

    def _fill(
        self,
        staged: Path,
        manifest: Manifest,
        own: Mapping[str, str | Path],
        there: Mapping[str, Entry],
    ) -> None:
        """Have the files of a generation in a directory where ``there`` are some already."""
        secure_files.make_private_dir(staged)
        wanted = {entry.path: entry for entry in manifest.entries}
        for path, entry in there.items():
            if wanted.get(path) != entry:
                (staged / path).unlink()
        for above in {path.rpartition("/")[0] for path in (*wanted, *own)}:
            secure_files.make_private_dir(staged / above)
        for entry in manifest.entries:
            if there.get(entry.path) == entry:
                continue
            source = self._objects / entry.digest
            if entry.secret:
                source.chmod(0o600)
            os.link(source, staged / entry.path)
        self._carry(staged)
        for path, content in own.items():
            if isinstance(content, Path):
                (staged / path).symlink_to(content)
            else:
                secure_files.write_private_file(staged / path, content.encode())
        secure_files.write_private_file(staged / MANIFEST, msgspec.json.encode(manifest))

    def _carry(self, staged: Path) -> None:
        """Add what NGINX opens at each request and old workers still know by its old name."""
        current = self.current()
        if current is None:
            return
        for entry in self.manifest(current).entries:
            if entry.path.startswith(f"{RUNTIME_FILES}/") and not (staged / entry.path).exists():
                secure_files.make_private_dir((staged / entry.path).parent)
                os.link(self.directory(current) / entry.path, staged / entry.path)

    def update_in_place(self, number: int, manifest: Manifest) -> None:
        """Replace files of a generation by others with the same paths, the manifest last.

        Only for files that NGINX does not read. Whoever is interrupted leaves a generation whose
        manifest is the former one, which is asked for again.
        """
        directory = self.directory(number)
        known = {entry.path: entry for entry in self.manifest(number).entries}
        made = self._made.pop(number, None)
        for entry in manifest.entries:
            if entry == known[entry.path]:
                continue
            parent = PurePosixPath(entry.path).parent
            secure_files.reject_symlinks(self._root, f"generations/{number}/{parent}")
            new = directory / ".new"
            new.unlink(missing_ok=True)
            os.link(self._objects / entry.digest, new)
            new.replace(directory / entry.path)
            if self._loose is not None:
                self._loose.add(known[entry.path].digest)
        new = directory / ".new"
        new.unlink(missing_ok=True)
        secure_files.write_private_file(new, msgspec.json.encode(manifest))
        new.replace(directory / MANIFEST)
        if made is not None:
            self._made[number] = _Made(manifest, made.own)
        self._discard()

    def activate(self, number: int) -> None:
        """Make ``number`` the current generation, atomically."""
        if self.current() != number:
            self._lead(self._link, number)

    def _lead(self, link: Path, number: int) -> None:
        new = link.with_name(f".{link.name}")
        new.unlink(missing_ok=True)
        new.symlink_to(Path("generations") / str(number))
        new.replace(link)

    def sweep(self, keep: Iterable[int | None]) -> None:
        """Remove all generations but ``keep`` and those with a link, and what none needs more.

        As far as the disk lets itself be cleaned: it is no reason to fail.
        """
        try:
            self._sweep({*keep, self.current(), self.last_known_good()})
        except (OSError, msgspec.DecodeError) as error:
            log.warning("disk not cleaned", reason=str(error))

    def remove(self, number: int) -> None:
        """Remove one that is not to be served after all."""
        self.sweep(each for each in self.numbers() if each != number)

    def keep(self, proven: int, *others: int | None) -> None:
        """Note that ``proven`` was seen to be served, and remove all but it and ``others``.

        Where the disk cannot be written to, what was proven before is what stays noted.
        """
        try:
            if self.last_known_good() != proven:
                self._lead(self._proven, proven)
        except OSError as error:
            log.warning("not noted as proven", generation=proven, reason=str(error))
        self.sweep({proven, *others})

    def _sweep(self, kept: Set[int | None]) -> None:
        for number in self.numbers():
            if number not in kept:
                # By another name first, so that no half-removed one can be taken for whole.
                leaving = self._generations / f".{number}"
                made = self._made.pop(number, None)
                self.directory(number).rename(leaving)
                self._leave(leaving, made)
        self._discard()

    def _leave(self, directory: Path, made: _Made | None) -> None:
        """Keep a generation that is needed no more for the next one, instead of one before it."""
        if made is None:
            self._loose = None
            shutil.rmtree(directory)
            return
        if self._loose is not None:
            self._loose.update(entry.digest for entry in made.manifest.entries)
        for entry in made.manifest.entries:
            if entry.secret:
                (directory / entry.path).unlink()
        _remove(directory / RUNTIME_FILES)
        self._spared = None
        _remove(self._spare)
        directory.rename(self._spare)
        self._spared = made

    def _discard(self) -> None:
        # What a manifest names, not what has links: whoever was interrupted while it replaced
        # files left a manifest whose contents are in the store alone.
        named = {
            entry.digest for number in self.numbers() for entry in self.manifest(number).entries
        }
        loose, self._loose = self._loose, None
        if loose is None:
            found = (path.name for path in self._objects.iterdir())
            loose = {name for name in found if _OBJECT.fullmatch(name)}
        for digest in loose - named:
            (self._objects / digest).unlink(missing_ok=True)
        self._loose = set()


def _remove(path: Path) -> None:
    """Remove a file, a link, or a directory with all in it, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
