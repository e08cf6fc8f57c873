"""Process information from /proc."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


def command_line(pid: int) -> str:
    """Return the command line, or the title the process set. Empty if it is gone or a zombie."""
    try:
        raw = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()


def process_executable(pid: int) -> str:
    """Return the file name of the executable. Empty if the process is gone or of another user."""
    try:
        return (_PROC / str(pid) / "exe").readlink().name
    except OSError:
        return ""


def children(pid: int) -> frozenset[int]:
    """Return the live children of a process. Empty if it is gone."""
    try:
        text = (_PROC / str(pid) / "task" / str(pid) / "children").read_text(encoding="ascii")
    except OSError:
        return frozenset()
    return frozenset(child for child in map(int, text.split()) if is_alive(child))


def zombies(pid: int) -> list[tuple[int, int]]:
    """Return pid and session of each dead child that has not been waited for."""
    pids = []
    for task in (_PROC / str(pid) / "task").iterdir():
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text(encoding="ascii").split():
                fields = _stat(int(child))
                if fields and fields[0] == "Z":
                    pids.append((int(child), int(fields[3])))
    return pids


def sockets(pid: int) -> dict[int, int]:
    """Return a file descriptor of a process for each inode of its sockets.

    Raises OSError if the process is gone or of another user.
    """
    descriptors = {}
    for entry in (_PROC / str(pid) / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            kind, _, rest = str(entry.readlink()).partition(":[")
            if kind == "socket":
                descriptors[int(rest.rstrip("]"))] = int(entry.name)
    return descriptors


def is_inheritable(pid: int, descriptor: int) -> bool:
    """Return whether a program that a process executes inherits a file descriptor of it."""
    try:
        text = (_PROC / str(pid) / "fdinfo" / str(descriptor)).read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    flags = next(line.split()[1] for line in text.splitlines() if line.startswith("flags:"))
    return not int(flags, 8) & os.O_CLOEXEC


def state(pid: int) -> str:
    """Return the letter of the state of a process, such as `T` if stopped. Empty if it is gone."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used, in seconds. 0 if it is gone."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0


def threads(pid: int, prefix: str) -> int:
    """Return the number of threads whose names start with `prefix`. 0 if the process is gone."""
    number = 0
    with contextlib.suppress(OSError):
        for name in (_PROC / str(pid) / "task").glob("*/comm"):
            with contextlib.suppress(OSError):
                number += name.read_text(errors="replace").startswith(prefix)
    return number


def working_directory(pid: int) -> Path | None:
    """Return the working directory. None if the process is gone or of another user."""
    try:
        return (_PROC / str(pid) / "cwd").readlink()
    except OSError:
        return None


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in ("Z", "X")


def users() -> frozenset[int]:
    """Return the user IDs of all processes."""
    user_ids = set()
    for pid in _pids():
        with contextlib.suppress(OSError):
            user_ids.add((_PROC / str(pid)).stat().st_uid)
    return frozenset(user_ids)


def pids_in_session(leader: int) -> frozenset[int]:
    """Return the live processes of the session opened by `leader`, even if `leader` is dead."""
    pids = set()
    for pid in _pids():
        fields = _stat(pid)
        if fields and int(fields[3]) == leader and fields[0] not in ("Z", "X"):
            pids.add(pid)
    return frozenset(pids)


def running(executables: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Yield pid and words of the command line of each process, in ascending order.

    `executables`: prefixes of the file names of its executable.
    """
    for pid in sorted(_pids()):
        if process_executable(pid).startswith(executables):
            yield pid, command_line(pid).split()


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str]:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    # The name in parentheses may contain spaces and parentheses; later fields do not.
    return text.rpartition(")")[2].split()
