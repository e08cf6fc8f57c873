"""Users of data planes: each has one of its own, without privileges, if root runs the node.

A data plane keeps its user until its Pod is deleted, because a process of one user cannot take over
a proxy of another.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pwd
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

import gatehouse
from gatehouse.agent.envoy import binary as envoy_binary
from gatehouse.runtime import confined_exec, procfs
from kube_base.runtime import private_files

DEFAULT_RANGE = "60706-61183"
"""User IDs that neither distributions nor systemd allocate, and that containers have too."""

USER = "user"
"""File in a Pod's directory with the user ID of its processes."""

_IMPORTS = "import gatehouse.cli.agent, gatehouse.agent.nginx.main, gatehouse.agent.envoy.main"


class UserRangeError(ValueError):
    """A range of user IDs is invalid, or has no free one. The message says which."""


class UserRange(msgspec.Struct, frozen=True):
    """User IDs from ``first`` to ``last``, each of which is a group ID, too."""

    first: int
    last: int

    @property
    def ids(self) -> range:
        """Return the IDs."""
        return range(self.first, self.last + 1)


def parse_range(text: str) -> UserRange | None:
    """Parse ``FIRST-LAST``, or ``none`` for no users. Raises UserRangeError."""
    if text == "none":
        return None
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 2**32 - 1):
        raise UserRangeError(f"{text!r} is not of the form FIRST-LAST, such as {DEFAULT_RANGE}")
    return UserRange(int(first), int(last))


def effective_range(text: str) -> UserRange | None:
    """Return the users of data planes, None unless root runs this. Raises UserRangeError."""
    users = parse_range(text)
    return users if os.geteuid() == 0 else None


class DataPlaneUsers:
    """Users of the Pods of one node. ``nginx``: binary that they run."""

    def __init__(self, users: UserRange | None, node: Path, nginx: Path) -> None:
        self._users = users
        self._pods = node / "pods"
        self._programs = {nginx: "-v", **_envoy()}
        """Option that prints the version, by path of the program."""
        self.refusal = "" if users else "disabled"
        """Why new Pods run as the user of the node. Empty if they do not."""

    @property
    def enabled(self) -> bool:
        """Return whether data planes should have users of their own."""
        return self._users is not None

    async def check(self) -> None:
        """Run each program as a data plane would, and set :attr:`refusal` if one fails."""
        if self._users is None:
            return
        programs = ((str(path), option) for path, option in self._programs.items())
        for program in ((sys.executable, "-c", _IMPORTS), *programs):
            process = await asyncio.create_subprocess_exec(
                *self.command(self._users.first, self._pods.parent, program),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
            _, output = await process.communicate()
            if process.returncode:
                lines = output.decode(errors="replace").strip().splitlines()
                reason = lines[-1] if lines else f"status {process.returncode}"
                self.refusal = f"{program[0]} cannot run as another user: {reason}"
                return

    def command(self, user: int, volumes: Path, program: Sequence[str]) -> list[str]:
        """Return the command that runs a program as a user, with the volumes of its Pod."""
        return confined_exec.confined_command(user, self._needed(), str(volumes), program)

    def _needed(self) -> list[str]:
        """Return the directories of the programs and of their libraries."""
        package = Path(gatehouse.__file__).parents[1]
        paths = {package, Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix)}
        # Python starts the list with the working directory, which may be any.
        paths |= {Path(entry) for entry in sys.path[0 if sys.flags.safe_path else 1 :] if entry}
        paths |= {program.parent for program in (*self._programs, Path(sys.executable))}
        paths |= {Path(sys.executable).resolve().parent}
        paths |= {path.resolve() for path in paths}
        # A closed directory would stay closed.
        return sorted(str(path) for path in paths if path.is_dir() and path.stat().st_mode & 0o001)

    def user_of(self, directory: Path) -> int:
        """Return the user of the Pod with this directory, 0 for that of the node.

        A new Pod gets one. Raises UserRangeError, OSError.
        """
        with contextlib.suppress(FileNotFoundError):
            return int((directory / USER).read_text())
        # Without the file it was started by an earlier version.
        started = any(directory.iterdir())
        user = 0 if started or self.refusal else self._allocate(directory.name)
        if not started:
            private_files.replace_private_file(directory / USER, str(user).encode())
        return user

    def _allocate(self, name: str) -> int:
        if self._users is None:
            return 0
        used = {int(path.read_text()) for path in self._pods.glob(f"*/{USER}")}
        # Another installation, or any other program, may use an ID of the range.
        used |= procfs.users()
        ids = self._users.ids
        start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % len(ids)
        for offset in range(len(ids)):
            user = ids[(start + offset) % len(ids)]
            if user not in used and not _has_name(user):
                return user
        raise UserRangeError(f"no free user ID in {self._users.first}-{self._users.last}")


def _has_name(user: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True


def _envoy() -> dict[Path, str]:
    """Return the option that prints the version, by the path of Envoy if it is installed."""
    with contextlib.suppress(envoy_binary.EnvoyMissingError):
        return {envoy_binary.find_envoy_binary(None): "--version"}
    return {}
