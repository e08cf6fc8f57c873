"""Replaces itself by a program of another user, which has no privilege but to bind low ports.

The node runs this file as a program of its own, with the standard library only. The program sees
each path that it needs, even below directories that only root may enter: in its mount namespace an
empty directory covers such a directory, and contains nothing but the needed paths.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

_CLONE_NEWNS = 0x20000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 1, 2, 4, 32
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000
_PR_SET_KEEPCAPS, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 8, 24, 38, 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_NET_BIND_SERVICE = 10
_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITIES = 64
"""Number of capabilities that the system calls can express."""

_libc = ctypes.CDLL(None, use_errno=True)


def confined_command(
    user: int, needed: Sequence[str], writable: str, program: Sequence[str]
) -> list[str]:
    """Return the command that runs `program` as a user and group.

    `needed`: directories that the program reads. `writable`: directory whose entries it may write
    as far as their owner allows.
    """
    argument = json.dumps({"user": user, "needed": list(needed), "writable": writable})
    # Isolated and without packages: it runs as root, and must start fast.
    return [sys.executable, "-I", "-S", __file__, argument, *program]


def execute_confined() -> None:
    """Run the program, or exit with status 126 and the reason on stderr."""
    options, program = json.loads(sys.argv[1]), sys.argv[2:]
    try:
        _reveal(options["needed"], options["writable"])
        _become(options["user"])
        _keep_directory()
        # Python ignores them, which programs would inherit.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(program[0], program)  # noqa: S606 (this is what the program is for)
    except OSError as error:
        print(f"gatehouse: {program[0]} as user {options['user']}: {error}", file=sys.stderr)
        sys.exit(126)


def _keep_directory() -> None:
    """Stay in the working directory if the user may, as the program would have found it."""
    try:
        os.chdir(Path.cwd())
    except OSError:
        os.chdir("/")


def _reveal(needed: Sequence[str], writable: str) -> None:
    """Make directories accessible to all users, in a mount namespace if necessary."""
    paths = sorted({*needed, writable}, key=len)
    if not any(map(_closed_ancestor, paths)):
        return
    _check(_libc.unshare(_CLONE_NEWNS), "mount namespace (CAP_SYS_ADMIN is needed)")
    # Mounts of the machine still appear and disappear here.
    _mount("none", "/", "", _MS_REC | _MS_SLAVE)
    sources = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in paths}
    umask = os.umask(0o022)
    for path, source in sources.items():
        closed = _closed_ancestor(path)
        if closed:
            _mount("tmpfs", closed, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=1m")
        if closed or not Path(path).is_dir():
            Path(path).mkdir(parents=True, exist_ok=True)
            _mount(f"/proc/self/fd/{source}", path, "", _MS_BIND | _MS_REC)
            access = 0 if path == writable else _MS_RDONLY
            flags = _MS_REMOUNT | _MS_BIND | _MS_NOSUID | _MS_NODEV | access
            _mount("none", path, "", flags)
    os.umask(umask)


def _closed_ancestor(path: str) -> str:
    """Return the first directory above a path that other users may not enter. Empty if none."""
    for ancestor in reversed(Path(path).parents):
        with contextlib.suppress(FileNotFoundError):
            if not ancestor.stat().st_mode & 0o001:
                return str(ancestor)
    return ""


def _become(user: int) -> None:
    """Change user and group, and give up every capability but that to bind low ports."""
    for capability in range(_CAPABILITIES):
        if capability != _CAP_NET_BIND_SERVICE:
            # Fails for capabilities that the kernel does not know.
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _check(_libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0), "capabilities")
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    mask = 1 << _CAP_NET_BIND_SERVICE
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    # Effective, permitted and inheritable, of capabilities 0 to 31 and 32 to 63.
    if _libc.capset(header, (ctypes.c_uint32 * 6)(mask, mask, mask, 0, 0, 0)) == 0:
        raised = _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_NET_BIND_SERVICE, 0, 0)
        _check(raised, "capabilities")
    else:
        # This process itself may not bind low ports, so that others below it cannot either.
        _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capabilities")
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    words = (source.encode(), target.encode(), kind.encode() or None)
    _check(_libc.mount(*words, ctypes.c_ulong(flags), data.encode() or None), target)


def _check(result: int, name: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


if __name__ == "__main__":
    execute_confined()
