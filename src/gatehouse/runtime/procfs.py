"""What /proc says about processes."""

from __future__ import annotations

import contextlib
from pathlib import Path

_PROC = Path("/proc")


def command_line(pid: int) -> str:
    """The command line, or the title a process gave itself; empty if it is gone or a zombie."""
    try:
        raw = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()


def executable(pid: int) -> str:
    """The name of the file a process runs; empty if it is gone or belongs to another user."""
    try:
        return (_PROC / str(pid) / "exe").readlink().name
    except OSError:
        return ""


def children(pid: int) -> frozenset[int]:
    """The live children of a process; empty if it is gone."""
    try:
        text = (_PROC / str(pid) / "task" / str(pid) / "children").read_text(encoding="ascii")
    except OSError:
        return frozenset()
    return frozenset(child for child in map(int, text.split()) if is_alive(child))


def zombies(pid: int) -> list[tuple[int, int]]:
    """The dead children of a process that nobody has waited for, with their sessions."""
    found = []
    for task in (_PROC / str(pid) / "task").iterdir():
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text(encoding="ascii").split():
                fields = _stat(int(child))
                if fields and fields[0] == "Z":
                    found.append((int(child), int(fields[3])))
    return found


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in ("Z", "X")


def pids_in_session(leader: int) -> frozenset[int]:
    """The live processes of the session that ``leader`` opened, whether or not it lives."""
    found = set()
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields and int(fields[3]) == leader and fields[0] not in ("Z", "X"):
                found.add(int(entry.name))
    return frozenset(found)


def _stat(pid: int) -> list[str]:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    # The name, in parentheses, may itself have spaces and parentheses; what follows has not.
    return text.rpartition(")")[2].split()
