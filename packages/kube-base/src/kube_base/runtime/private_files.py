"""Files and directories that only their owner can use: created, checked and restricted.

Files get mode 0600 and directories 0700, whatever the umask and the mode of an existing path are.
A path that another local user controls is rejected, because that user may have chosen its content.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import stat
from collections.abc import Container, Iterator
from pathlib import Path, PurePosixPath

UMASK = 0o077
OTHERS = 0o077
"""Mode bits of the group and of all other users."""
WRITABLE_BY_OTHERS = 0o022


class UnsafePathError(ValueError):
    """A file must not be written. The message names it."""


class ForeignPathError(PermissionError):
    """A path that another user controls. The message names path, mode, owner and the remedy."""


class LockedError(OSError):
    """Another process holds a lock."""


def restrict_umask() -> None:
    """Deny other users access to every file that this process and its children create."""
    os.umask(UMASK)


def make_private_dir(
    path: Path, *, marker: str = "", tree: bool = False, groups: Container[int] = ()
) -> bool:
    """Create a directory with mode 0700, also missing parents, or restrict an existing one.

    Return whether other users could enter it before. `marker` is the name of a file that an
    existing directory must contain if other users can enter it, unless it is empty. `tree`:
    restrict everything in it, too, except for `groups`. Raises ForeignPathError, OSError.
    """
    for directory in (*reversed(path.parents), path):
        if not directory.is_dir():
            directory.mkdir(mode=0o700, exist_ok=True)
    state = _checked(path, trust_root=True)
    if state.st_uid != os.geteuid():
        # A volume, which the container runtime creates. Root can read everything anyway.
        return False
    is_shared = bool(state.st_mode & stat.S_ISVTX) or (marker and _has_others(path, marker))
    if state.st_mode & OTHERS and is_shared:
        raise ForeignPathError(
            f"{_described(path, state)} holds files of others: name a directory of its own, such "
            f"as {path / 'data'}"
        )
    if tree:
        _restrict_entries(path, state, groups)
    return _set_mode(path, state, 0o700)


def make_group_dir(path: Path, group: int) -> None:
    """Create a directory that a group can read, or change an existing one. Raises OSError."""
    path.mkdir(mode=0o700, exist_ok=True)
    state = _checked(path)
    if (state.st_gid, stat.S_IMODE(state.st_mode)) != (group, 0o750):
        os.chown(path, -1, group)
        path.chmod(0o750)


def make_foreign_dir(path: Path, user: int) -> None:
    """Create a directory for a user, who alone can use it. An existing one stays. Raises OSError.

    No other user may be able to write to the directory above it.
    """
    if not path.exists():
        path.mkdir(mode=0o700)
        os.chown(path, user, user)


def _restrict_entries(directory: Path, state: os.stat_result, groups: Container[int]) -> None:
    """Restrict everything in a directory with status `state`. Does not follow links.

    Entries of a group in `groups` stay readable by it.

    Raises ForeignPathError for an entry of another user in a directory to which that user could
    write. Entries of other users elsewhere were created on behalf of the owner and stay unchanged,
    like the temporary directories of an NGINX whose workers have a user of their own.
    """
    for path in directory.iterdir():
        # Running data planes create and remove files meanwhile.
        with contextlib.suppress(FileNotFoundError):
            entry = path.lstat()
            if entry.st_uid != os.geteuid():
                if state.st_mode & WRITABLE_BY_OTHERS:
                    raise _foreign(path, entry)
            elif stat.S_ISDIR(entry.st_mode):
                _restrict_entries(path, entry, groups)
                _set_mode(path, entry, 0o750 if entry.st_gid in groups else 0o700)
            elif stat.S_ISREG(entry.st_mode):
                allowed = 0o740 if entry.st_gid in groups else 0o700
                _set_mode(path, entry, entry.st_mode & allowed)


def restrict_file(path: Path) -> bool:
    """Set the mode of a file to 0600 if it exists. Return whether others could read it before.

    Does nothing to a device like /dev/null. Raises ForeignPathError, OSError.
    """
    try:
        if path.is_char_device():
            return False
        state = _checked(path)
    except FileNotFoundError:
        return False
    return _set_mode(path, state, 0o600)


def write_private_file(path: Path, content: bytes, mode: int = 0o600, group: int = -1) -> None:
    """Write a new file. Raises FileExistsError instead of following a link.

    `group`: a group that can read it, -1 for none.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        if group >= 0:
            os.fchown(descriptor, -1, group)
            os.fchmod(descriptor, mode | 0o040)


def replace_private_file(
    path: Path, content: bytes, mode: int = 0o600, *, durable: bool = False, group: int = -1
) -> None:
    """Write a file, or replace it atomically. Raises OSError.

    `durable`: wait for the disk. `group`: a group that can read it, -1 for none.
    """
    staged = path.with_name(f".{path.name}")
    staged.unlink(missing_ok=True)
    try:
        write_private_file(staged, content, mode, group)
        if durable:
            _sync(staged)
        staged.rename(path)
    except OSError:
        # For example a full disk, on which part of a file would take the space of others.
        staged.unlink(missing_ok=True)
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file. Raises LockedError, ForeignPathError, OSError."""
    restrict_file(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LockedError(f"{path.parent} is in use by another process") from error
        yield
    finally:
        os.close(descriptor)


def reject_symlinks(base: Path, path: str) -> None:
    """Raise UnsafePathError if a component of directory `path` under `base` is a symbolic link."""
    below = PurePosixPath(path)
    for part in (*list(below.parents)[:-1], below):
        if (base / part).is_symlink():
            raise UnsafePathError(f"{base / part} is a symbolic link: not supported")


def _checked(path: Path, *, trust_root: bool = False) -> os.stat_result:
    """Return the status of a path. Raises ForeignPathError if another user owns it or a link."""
    trusted = {os.geteuid(), 0} if trust_root else {os.geteuid()}
    link = path.lstat()
    if link.st_uid not in trusted:
        raise _foreign(path, link)
    if not stat.S_ISLNK(link.st_mode):
        return link
    state = path.stat()
    if state.st_uid not in trusted:
        raise _foreign(path.resolve(), state)
    return state


def _set_mode(path: Path, state: os.stat_result, mode: int) -> bool:
    if stat.S_IMODE(state.st_mode) != mode:
        path.chmod(mode)
    return bool(state.st_mode & OTHERS)


def _has_others(path: Path, marker: str) -> bool:
    names = {entry.name for entry in path.iterdir()}
    return bool(names) and marker not in names


def _foreign(path: Path, state: os.stat_result) -> ForeignPathError:
    user = _user(os.geteuid())
    return ForeignPathError(
        f"{_described(path, state)} must be owned by {user}: check its content, then run "
        f"`chown {user} {path}`, or name another path"
    )


def _described(path: Path, state: os.stat_result) -> str:
    return f"{path} (mode {stat.S_IMODE(state.st_mode):04o}, owner {_user(state.st_uid)})"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
